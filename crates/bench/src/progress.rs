//! A line on the terminal that says how far a long run is.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use crate::settings::Stop;

/// Runs shorter than this show nothing.
const SHOWN_AFTER_SECONDS: f64 = 2.0;

/// Progress of one run, on standard error if that is a terminal.
pub(crate) struct Progress {
    shown: bool,
    dirty: bool,
    began: Option<Instant>,
    last: (f64, u64),
    stop: Stop,
}

impl Progress {
    pub(crate) fn new(quiet: bool, stop: Stop) -> Progress {
        Progress { shown: !quiet && io::stderr().is_terminal(), dirty: false, began: None, last: (0.0, 0), stop }
    }

    /// Keys are being stored, or the server is being warmed up.
    pub(crate) fn prepare(&mut self, done: u64, keys: u64) {
        self.show(&format!("preparing: {done} requests, {keys} keys to store"));
    }

    /// The run has made this many requests.
    pub(crate) fn running(&mut self, done: u64) {
        let began = *self.began.get_or_insert_with(Instant::now);
        // The first call comes a second after the start.
        let seconds = began.elapsed().as_secs_f64() + 1.0;
        if seconds >= SHOWN_AFTER_SECONDS {
            let line = self.line(seconds, done);
            self.show(&line);
        }
        self.last = (seconds, done);
    }

    fn line(&self, seconds: f64, done: u64) -> String {
        let rate = (done - self.last.1) as f64 / (seconds - self.last.0).max(0.001);
        match self.stop {
            Stop::Seconds(total) => format!("{seconds:.0} of {total:.0} s, {rate:.0} requests/s"),
            Stop::Requests(total) => {
                format!("{:.0} %, {done} of {total} requests, {rate:.0} requests/s", done as f64 * 100.0 / total as f64)
            }
        }
    }

    fn show(&mut self, line: &str) {
        if self.shown {
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
            self.dirty = true;
        }
    }

    /// The run is over: the line makes room for the result.
    pub(crate) fn finish(&mut self) {
        if self.dirty {
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.dirty = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_and_how_fast() {
        let mut progress = Progress::new(true, Stop::Seconds(60.0));
        progress.last = (10.0, 1000);
        assert_eq!(progress.line(11.0, 6000), "11 of 60 s, 5000 requests/s");
        progress.stop = Stop::Requests(12_000);
        assert_eq!(progress.line(11.0, 6000), "50 %, 6000 of 12000 requests, 5000 requests/s");
    }
}
