//! What was written under one key and what is read of it, and whether the two fit. Knows no server, no thread and no clock.
//!
//! Versions of a key are written one after the other, so they are in order. One that may or may not have been written is the
//! key's last.

use std::time::{Duration, Instant};

/// By which way a version was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// By SQL, past every Nuthatch.
    Sql,
    /// By memcached's protocol, through the Nuthatch with this number.
    Server(usize),
}

/// What the writer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// That it is written.
    Acknowledged,
    /// That it is not.
    Refused,
    /// Nothing, or that it is not known.
    Unknown,
}

#[derive(Debug)]
struct Write {
    deletes: bool,
    via: Via,
    begun: Instant,
    ended: Option<(Instant, End)>,
}

impl Write {
    fn acknowledged_before(&self, moment: Instant) -> Option<Instant> {
        self.ended.filter(|(at, end)| *end == End::Acknowledged && *at < moment).map(|(at, _)| at)
    }

    fn may_be_seen(&self, by: Instant) -> bool {
        self.begun <= by && !matches!(self.ended, Some((_, End::Refused)))
    }
}

/// All versions of one key, from 1 up. Version 0 is that there is none.
#[derive(Debug, Default)]
pub(crate) struct History {
    writes: Vec<Write>,
}

impl History {
    /// A version is about to be written: its number.
    pub(crate) fn begin(&mut self, deletes: bool, via: Via, now: Instant) -> usize {
        self.writes.push(Write { deletes, via, begun: now, ended: None });
        self.writes.len()
    }

    /// What became of the newest version.
    pub(crate) fn end(&mut self, end: End, now: Instant) {
        self.writes.last_mut().expect("a write was begun").ended = Some((now, end));
    }

    /// The newest version that is known to be written, and whether a row is there.
    pub(crate) fn newest(&self) -> (usize, bool) {
        let acknowledged = |write: &Write| matches!(write.ended, Some((_, End::Acknowledged)));
        let at = self.writes.iter().rposition(acknowledged);
        at.map_or((0, false), |at| (at + 1, !self.writes[at].deletes))
    }

    /// The version that a read saw: of several that fit an absent row, the newest.
    fn seen(&self, found: Option<usize>, by: Instant) -> Result<usize, String> {
        match found {
            Some(version) => match version.checked_sub(1).and_then(|at| self.writes.get(at)) {
                Some(write) if !write.deletes && write.may_be_seen(by) => Ok(version),
                _ => Err(format!("version {version} was read and never written")),
            },
            None => {
                let deletes = |write: &Write| write.deletes && write.may_be_seen(by);
                Ok(self.writes.iter().rposition(deletes).map_or(0, |at| at + 1))
            }
        }
    }

    /// Judges a read through the Nuthatch `server`: which version it saw, and for how long that had been replaced when it began.
    pub(crate) fn read(
        &self,
        found: Option<usize>,
        server: usize,
        begun: Instant,
        ended: Instant,
    ) -> Result<(usize, Duration), String> {
        let seen = self.seen(found, ended)?;
        let newer = || self.writes.iter().enumerate().skip(seen);
        for (at, write) in newer() {
            if write.via == Via::Server(server) && write.acknowledged_before(begun).is_some() {
                return Err(format!("version {seen} was read where version {} had been acknowledged", at + 1));
            }
        }
        let since = newer().find_map(|(_, write)| write.acknowledged_before(begun));
        Ok((seen, since.map_or(Duration::ZERO, |since| begun - since)))
    }

    /// Judges what the database holds when all is over.
    pub(crate) fn ends_with(&self, found: Option<usize>, now: Instant) -> Result<(), String> {
        let (newest, _) = self.newest();
        let seen = self.seen(found, now)?;
        if seen < newest {
            return Err(format!("version {newest} was acknowledged and is lost, the row has {seen}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions 1 (by SQL) and 2 (through server 1), acknowledged after 10 and 30 ms; version 3 is refused.
    fn history(start: Instant) -> History {
        let at = |millis| start + Duration::from_millis(millis);
        let mut history = History::default();
        history.begin(false, Via::Sql, at(5));
        history.end(End::Acknowledged, at(10));
        history.begin(false, Via::Server(1), at(20));
        history.end(End::Acknowledged, at(30));
        history.begin(false, Via::Server(0), at(40));
        history.end(End::Refused, at(50));
        history
    }

    #[test]
    fn an_old_version_is_stale_since_the_next_was_acknowledged() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let history = history(start);
        assert_eq!(history.read(Some(1), 0, at(28), at(60)), Ok((1, Duration::ZERO)));
        assert_eq!(history.read(Some(1), 0, at(75), at(76)), Ok((1, Duration::from_millis(45))));
        assert_eq!(history.read(None, 0, at(75), at(76)), Ok((0, Duration::from_millis(65))));
        assert_eq!(history.read(Some(2), 0, at(75), at(76)), Ok((2, Duration::ZERO)));
    }

    #[test]
    fn a_server_shows_at_once_what_it_acknowledged_itself() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert!(history(start).read(Some(1), 1, at(31), at(32)).is_err());
        assert!(history(start).read(Some(1), 1, at(29), at(32)).is_ok());
    }

    #[test]
    fn what_was_refused_or_never_written_is_not_seen() {
        let now = Instant::now() + Duration::from_secs(1);
        for version in [0, 3, 4] {
            assert!(history(Instant::now()).read(Some(version), 0, now, now).is_err(), "{version}");
        }
    }

    #[test]
    fn an_acknowledged_version_that_is_gone_is_lost_and_an_unknown_one_may_be() {
        let start = Instant::now();
        let now = start + Duration::from_secs(1);
        let mut history = history(start);
        assert!(history.ends_with(Some(1), now).is_err() && history.ends_with(None, now).is_err());
        assert!(history.ends_with(Some(2), now).is_ok());
        history.begin(true, Via::Sql, start);
        history.end(End::Unknown, start);
        assert!(history.ends_with(Some(2), now).is_ok() && history.ends_with(None, now).is_ok());
    }
}
