//! The log: lines on standard error, by verbosity level. Any thread may write; a level that is off costs one relaxed
//! load. What came from a client is printed escaped, never as it is. Nothing here touches a file or a socket.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

/// What a line is about, from always shown to `-vvv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// Always shown: what stops the server or loses it something.
    Error = 0,
    /// `-v`: warnings, settings without effect, connections closed for cause.
    Warning = 1,
    /// `-vv`: also each command and its answer.
    Command = 2,
    /// `-vvv`: also internal state changes.
    Detail = 3,
}

/// The highest level `verbosity` can ask for.
pub(crate) const LEVEL_MAX: u8 = Level::Detail as u8;

/// How much is logged. Per server, so that tests with several servers in a process do not disturb each other.
#[derive(Debug, Default)]
pub(crate) struct Log {
    level: AtomicU8,
}

impl Log {
    /// A log that shows `level` and below.
    pub(crate) fn new(level: u8) -> Log {
        Log { level: AtomicU8::new(level.min(LEVEL_MAX)) }
    }

    /// The level in force.
    pub(crate) fn level(&self) -> u8 {
        self.level.load(Ordering::Relaxed)
    }

    /// Changes the level; above the highest means the highest.
    pub(crate) fn set_level(&self, level: u32) {
        self.level.store(level.min(u32::from(LEVEL_MAX)) as u8, Ordering::Relaxed);
    }

    /// Whether lines of `level` are shown. Ask before building one on a hot path.
    #[inline]
    pub(crate) fn shows(&self, level: Level) -> bool {
        self.level.load(Ordering::Relaxed) >= level as u8
    }

    /// Writes one line if `level` is shown. A standard error that cannot be written to is ignored: there is nowhere
    /// left to say so.
    pub(crate) fn line(&self, level: Level, text: fmt::Arguments<'_>) {
        if self.shows(level) {
            let mut line = String::with_capacity(128);
            let _ = fmt::write(&mut line, text);
            line.push('\n');
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }
}

/// Bytes of unknown origin, printed with everything outside printable ASCII escaped and cut after 512 bytes.
pub(crate) struct Escaped<'a>(pub &'a [u8]);

const ESCAPED_BYTES_MAX: usize = 512;

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(ESCAPED_BYTES_MAX)];
        for &byte in shown {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                0x20..=0x7e => write!(f, "{}", byte as char)?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        if shown.len() < self.0.len() {
            write!(f, "...({} bytes)", self.0.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_never_sees_a_clients_control_bytes() {
        assert_eq!(Escaped(b"a\x1b[31m\\\r\n\xff").to_string(), "a\\x1b[31m\\\\\\x0d\\x0a\\xff");
    }

    #[test]
    fn a_long_key_is_cut() {
        let shown = Escaped(&[b'k'; 2000]).to_string();
        assert!(shown.len() < 600);
        assert!(shown.ends_with("...(2000 bytes)"));
    }

    #[test]
    fn levels_nest() {
        let log = Log::new(1);
        assert!(log.shows(Level::Error) && log.shows(Level::Warning) && !log.shows(Level::Command));
        log.set_level(4_000_000_000);
        assert_eq!(log.level(), LEVEL_MAX);
    }
}
