//! Is a server well? Told by how requests to it fare, and by probes where there are any. Shared by all workers.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::StatusCode;

use super::FetchError;

/// What is known of one server. Every field stands for itself, so relaxed accesses do: a worker that learns of an
/// illness a moment later asks once more in vain.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Failures in a row.
    failures: AtomicU32,
    /// Until when it is left alone, in milliseconds of [`millis`].
    ill_until: AtomicU64,
    /// The last probe found it ill.
    is_probed_ill: AtomicBool,
}

impl Health {
    pub(super) fn is_well(&self) -> bool {
        !self.is_probed_ill.load(Ordering::Relaxed) && {
            let ill_until = self.ill_until.load(Ordering::Relaxed);
            ill_until == 0 || ill_until <= millis()
        }
    }

    /// It answered.
    pub(super) fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.ill_until.store(0, Ordering::Relaxed);
        }
    }

    /// It did not. After `fails_max` times in a row it is left alone for `time`.
    pub(super) fn failed(&self, fails_max: u32, time: Duration) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if fails_max > 0 && failures >= fails_max {
            self.ill_until.store(millis() + time.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// A probe found it so: whether the last one found it otherwise.
    pub(super) fn probed(&self, is_well: bool) -> bool {
        if is_well {
            self.succeeded();
        }
        self.is_probed_ill.swap(!is_well, Ordering::Relaxed) == is_well
    }
}

/// Why a probe finds a server ill.
#[derive(Debug)]
#[non_exhaustive]
pub(super) enum ProbeError {
    /// The server's address or the path cannot be asked for.
    Unaskable,
    /// No answer is to be had.
    Failed(FetchError),
    /// Not in this time.
    Late(Duration),
    /// It answers that it is not well.
    Status(StatusCode),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Unaskable => f.write_str("its address and path make no request"),
            ProbeError::Failed(error) => error.fmt(f),
            ProbeError::Late(time) => write!(f, "expected an answer in {} s (health_interval)", time.as_secs()),
            ProbeError::Status(status) => {
                write!(f, "expected success or a redirection, it answered {}", status.as_u16())
            }
        }
    }
}

/// Milliseconds since the process first asked, never 0.
fn millis() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ill_after_failures_in_a_row_and_well_after_an_answer() {
        let health = Health::default();
        let hour = Duration::from_secs(3600);
        health.failed(2, hour);
        health.succeeded();
        health.failed(2, hour);
        assert!(health.is_well());
        health.failed(2, hour);
        assert!(!health.is_well());
        health.succeeded();
        assert!(health.is_well());
        health.failed(1, Duration::ZERO);
        assert!(health.is_well(), "its time is over");
        assert!(!health.probed(true), "as it was thought");
        assert!(health.probed(false) && !health.probed(false));
        assert!(!health.is_well());
        assert!(health.probed(true) && !health.probed(true));
        assert!(health.is_well());
    }
}
