//! What a client counts about each server.
//!
//! Links count in plain numbers under their own lock; they are added up when someone asks.

use std::sync::Arc;
use std::time::Duration;

use super::config::ServerAddr;
use super::health::ServerState;

/// Buckets of [`ServerStats::latency`].
pub const LATENCY_BUCKETS: usize = 24;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one link has counted.
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct Counts {
            $(pub(super) $name: u64,)*
            pub(super) in_flight: u64,
            pub(super) latency: [u64; LATENCY_BUCKETS],
        }

        /// What a client knows about one server. Counts since the server came into the list.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ServerStats {
            /// The server.
            pub server: ServerAddr,
            /// Its name in errors.
            pub label: Arc<str>,
            /// Whether it is asked.
            pub state: ServerState,
            /// Requests whose answers have not come, those included that nobody waits for any longer.
            pub in_flight: u64,
            $($(#[$doc])* pub $name: u64,)*
            /// How often it went down.
            pub ejections: u64,
            /// How often it was probed while it was down.
            pub probes: u64,
            /// Operations that were not sent because it was down.
            pub down: u64,
            /// How many answers took how long: the first less than a microsecond, bucket n from 2^(n-1) to 2^n
            /// microseconds, the last all above. From the request to the answer, with the time it waited here.
            pub latency: [u64; LATENCY_BUCKETS],
        }

        impl Counts {
            pub(super) fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
                self.in_flight += other.in_flight;
                for (sum, count) in self.latency.iter_mut().zip(other.latency) {
                    *sum += count;
                }
            }

            pub(super) fn shown(
                &self,
                server: ServerAddr,
                label: Arc<str>,
                health: super::health::HealthCounts,
            ) -> ServerStats {
                ServerStats {
                    server,
                    label,
                    state: health.state,
                    in_flight: self.in_flight,
                    $($name: self.$name,)*
                    ejections: health.ejections,
                    probes: health.probes,
                    down: health.refused,
                    latency: self.latency,
                }
            }
        }
    };
}

counts! {
    /// Requests sent, several keys of one retrieval being one.
    requests,
    /// Answers, refusals included.
    answers,
    /// Answers that were `ERROR`, `CLIENT_ERROR` or `SERVER_ERROR`, or a binary status that says no.
    refusals,
    /// Requests whose operation's time was over before the answer came.
    timeouts,
    /// Requests that were not taken because as many waited as may.
    busy,
    /// Connections made.
    connects,
    /// Connections that could not be made, or not in time.
    connect_errors,
    /// Connections given up because the server answered nothing for too long.
    silences,
    /// Connections that ended or failed while answers were due.
    losses,
    /// Connections given up because what came was no answer.
    garbage,
    /// Connections that the server closed while nothing was due.
    closes,
    /// Writes sent without waiting for answers.
    quiet,
    /// Those of them that went wrong or were under way when their connection ended.
    quiet_failures,
    /// Bytes sent.
    bytes_out,
    /// Bytes received.
    bytes_in,
    /// Microseconds that all answers took together.
    latency_us,
}

impl Counts {
    #[inline]
    pub(super) fn answered(&mut self, took_us: u64) {
        self.answers += 1;
        self.latency_us += took_us;
        let bucket = (u64::BITS - took_us.leading_zeros()) as usize;
        self.latency[bucket.min(LATENCY_BUCKETS - 1)] += 1;
    }
}

impl ServerStats {
    /// What the mean answer took.
    #[must_use]
    pub fn latency_mean(&self) -> Duration {
        Duration::from_micros(self.latency_us.checked_div(self.answers).unwrap_or(0))
    }
}
