//! What was written under one key and what was read of it, and whether the two fit. Knows no server, no thread and no clock.
//!
//! Versions of a key are written one after the other, so they are in order. One that may or may not have been written is the
//! key's last. A read that found no row may have seen any deletion: it is judged by the newest that had begun, and later reads
//! are held against the oldest that explains it, so that nothing is called wrong that need not be.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How many Nuthatches there are.
pub(crate) const SERVERS: usize = 2;

/// So many reads and writes are told of how something came about.
const READS_TOLD: usize = 60;
const WRITES_TOLD: usize = 20;

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

/// A read through a Nuthatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Who asked.
    pub(crate) client: usize,
    /// Which Nuthatch.
    pub(crate) server: usize,
    /// The version that was there, if there was a row.
    pub(crate) found: Option<usize>,
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
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
    /// For each Nuthatch the versions that were newer than all it had shown before, and when the read ended that saw it.
    shown: [Vec<(usize, Instant)>; SERVERS],
    /// The last reads.
    reads: VecDeque<Read>,
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

    /// Whether a read that ended at `by` can have found this when `version` was the row's.
    fn fits(&self, found: Option<usize>, version: usize, by: Instant) -> bool {
        let write = version.checked_sub(1).map(|at| self.writes.get(at));
        match (found, write) {
            (None, None) => true,
            (None, Some(Some(write))) => write.deletes && write.may_be_seen(by),
            (Some(found), Some(Some(write))) => found == version && !write.deletes && write.may_be_seen(by),
            _ => false,
        }
    }

    /// The newest version that fits what was found.
    fn newest_of(&self, found: Option<usize>, by: Instant) -> Result<usize, String> {
        let all = || (0..=self.writes.len()).rev();
        match found {
            Some(version) if !self.fits(found, version, by) => {
                Err(format!("version {version} was read and never written"))
            }
            Some(version) => Ok(version),
            None => Ok(all().find(|version| self.fits(None, *version, by)).unwrap_or(0)),
        }
    }

    /// For how long `version` had been replaced at this moment.
    fn age(&self, version: usize, at: Instant) -> Duration {
        let since = self.writes.iter().skip(version).find_map(|write| write.acknowledged_before(at));
        since.map_or(Duration::ZERO, |since| at - since)
    }

    /// Judges a read: for how long what it saw had been replaced when it began. An error says what is wrong: it saw what was
    /// never written, what its own server had replaced, something older than its server had shown before, or something that had
    /// been replaced for longer than `window`.
    pub(crate) fn read(&mut self, read: Read, window: Duration) -> Result<Duration, String> {
        let Read { server, found, begun, ended, .. } = read;
        self.reads.push_back(read);
        if self.reads.len() > READS_TOLD {
            self.reads.pop_front();
        }
        let seen = self.newest_of(found, ended)?;
        let is_own = |write: &Write| write.via == Via::Server(server) && write.acknowledged_before(begun).is_some();
        let own = self.writes.iter().rposition(is_own).map_or(0, |at| at + 1);
        if seen < own {
            return Err(format!("version {seen} was read where version {own} had been acknowledged"));
        }
        let shown = self.shown[server].iter().rfind(|(_, at)| *at < begun).map_or(0, |(version, _)| *version);
        if seen < shown {
            return Err(format!("version {seen} was read after {shown}"));
        }
        let age = self.age(seen, begun);
        if age > window {
            return Err(format!("version {seen} was read {age:?} after it had been replaced"));
        }
        let explains = |version: &usize| self.fits(found, *version, ended) && self.age(*version, begun) <= window;
        let oldest = (own.max(shown)..=seen).find(explains).unwrap_or(seen);
        if self.shown[server].last().is_none_or(|(version, _)| *version < oldest) {
            self.shown[server].push((oldest, ended));
        }
        Ok(age)
    }

    /// Judges what the database holds when all is over.
    pub(crate) fn ends_with(&self, found: Option<usize>, now: Instant) -> Result<(), String> {
        let (newest, _) = self.newest();
        let seen = self.newest_of(found, now)?;
        if seen < newest {
            return Err(format!("version {newest} was acknowledged and is lost, the row has {seen}"));
        }
        Ok(())
    }

    /// The last writes and reads in the order in which they began, a line each, in milliseconds before `now`.
    pub(crate) fn story(&self, now: Instant) -> String {
        let first = self.writes.len().saturating_sub(WRITES_TOLD);
        let since = |moment: Instant| now.saturating_duration_since(moment).as_secs_f64() * 1000.0;
        let mut lines: Vec<(Instant, String)> = Vec::new();
        for (at, write) in self.writes.iter().enumerate().skip(first) {
            let what = if write.deletes { "is deleted" } else { "is written" };
            let end = write.ended.map_or("goes on".to_owned(), |(at, end)| format!("{:8.3} {end:?}", since(at)));
            let line = format!("{:8.3} to {end}: version {} {what} by {:?}", since(write.begun), at + 1, write.via);
            lines.push((write.begun, line));
        }
        for Read { client, server, found, begun, ended } in &self.reads {
            let found = found.map_or("no row".to_owned(), |version| format!("version {version}"));
            let line = format!(
                "{:8.3} to {:8.3}: client {client} reads {found} at server {server}",
                since(*begun),
                since(*ended)
            );
            lines.push((*begun, line));
        }
        lines.sort();
        lines.iter().fold(String::new(), |mut told, (_, line)| {
            let _ = writeln!(told, "    {line}");
            told
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(5);

    /// Moments in milliseconds since `0`, and the writes and reads at them.
    struct Fabricated(Instant, History);

    impl Fabricated {
        /// Versions 1 (by SQL) and 2 (through server 1), acknowledged after 10 and 30 ms; version 3 is refused.
        fn new() -> Fabricated {
            let mut fabricated = Fabricated(Instant::now(), History::default());
            fabricated.write(false, Via::Sql, [5, 10], End::Acknowledged);
            fabricated.write(false, Via::Server(1), [20, 30], End::Acknowledged);
            fabricated.write(false, Via::Server(0), [40, 50], End::Refused);
            fabricated
        }

        fn at(&self, millis: u64) -> Instant {
            self.0 + Duration::from_millis(millis)
        }

        fn write(&mut self, deletes: bool, via: Via, times: [u64; 2], end: End) {
            let [begun, ended] = times.map(|millis| self.at(millis));
            self.1.begin(deletes, via, begun);
            self.1.end(end, ended);
        }

        fn read(&mut self, found: Option<usize>, server: usize, times: [u64; 2]) -> Result<u64, String> {
            let [begun, ended] = times.map(|millis| self.at(millis));
            let read = Read { client: 0, server, found, begun, ended };
            self.1.read(read, WINDOW).map(|age| age.as_millis() as u64)
        }
    }

    #[test]
    fn an_old_version_is_stale_since_the_next_was_acknowledged() {
        let mut history = Fabricated::new();
        assert_eq!(history.read(None, 0, [75, 76]), Ok(65));
        assert_eq!(history.read(Some(1), 0, [28, 60]), Ok(0));
        assert_eq!(history.read(Some(1), 0, [75, 76]), Ok(45));
        assert_eq!(history.read(Some(2), 0, [75, 76]), Ok(0));
    }

    #[test]
    fn what_is_older_than_the_window_is_wrong() {
        let mut history = Fabricated::new();
        assert_eq!(history.read(Some(1), 0, [5030, 5031]), Ok(5000));
        let why = history.read(Some(1), 0, [5031, 5032]).unwrap_err();
        assert!(why.contains("version 1 was read 5.001"), "{why}");
        assert!(history.read(None, 0, [5032, 5033]).is_err(), "a row that was never read");
    }

    #[test]
    fn a_server_shows_at_once_what_it_acknowledged_itself() {
        assert!(Fabricated::new().read(Some(1), 1, [31, 32]).is_err());
        assert!(Fabricated::new().read(Some(1), 1, [29, 32]).is_ok());
    }

    #[test]
    fn a_server_that_showed_a_version_shows_none_before_it_to_anyone_who_asks_later() {
        let mut history = Fabricated::new();
        assert_eq!(history.read(Some(2), 0, [31, 40]), Ok(0));
        assert_eq!(history.read(Some(1), 0, [39, 45]), Ok(9), "it was asked for before");
        assert_eq!(history.read(Some(1), 1, [25, 45]), Ok(0), "another server");
        assert_eq!(history.read(Some(1), 0, [41, 42]), Err("version 1 was read after 2".to_owned()));
        let told = history.1.story(history.at(42));
        assert_eq!(told.lines().count(), 3 + 4, "{told}");
        assert!(told.ends_with("   1.000 to    0.000: client 0 reads version 1 at server 0\n"), "{told}");
    }

    #[test]
    fn of_several_deletions_an_absent_row_is_held_to_the_one_that_accuses_nobody() {
        let mut history = Fabricated(Instant::now(), History::default());
        history.write(true, Via::Sql, [0, 1], End::Acknowledged);
        history.write(false, Via::Sql, [2, 3], End::Acknowledged);
        history.write(true, Via::Sql, [10, 20], End::Acknowledged);
        // It may have seen the first or the second deletion, so that either version may be seen next.
        assert_eq!(history.read(None, 0, [8, 12]), Ok(0));
        assert_eq!(history.read(Some(2), 0, [13, 14]), Ok(0));
        // Now it was the second.
        assert_eq!(history.read(None, 0, [15, 16]), Ok(0));
        assert!(history.read(Some(2), 0, [17, 18]).is_err());
    }

    #[test]
    fn what_was_refused_or_never_written_is_not_seen() {
        for version in [0, 3, 4] {
            assert!(Fabricated::new().read(Some(version), 0, [1000, 1001]).is_err(), "{version}");
        }
        assert!(Fabricated::new().read(Some(2), 0, [10, 19]).is_err(), "before it was written");
    }

    #[test]
    fn an_acknowledged_version_that_is_gone_is_lost_and_an_unknown_one_may_be() {
        let mut history = Fabricated::new();
        let now = history.at(1000);
        assert!(history.1.ends_with(Some(1), now).is_err() && history.1.ends_with(None, now).is_err());
        assert!(history.1.ends_with(Some(2), now).is_ok());
        history.write(true, Via::Sql, [60, 70], End::Unknown);
        assert!(history.1.ends_with(Some(2), now).is_ok() && history.1.ends_with(None, now).is_ok());
    }
}
