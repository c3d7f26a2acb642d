//! memcached's meaning on rows: what some changes come to, given the rows that are there, and which rows to write for it.
//! Pure; the one place that decides it for every database.
//!
//! The rows are locked while this is asked, or the changes do not depend on them, so that what it decides is so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cell::Cell;
use crate::error::Error;
use crate::layout::{Layout, Row};
use crate::op::{Done, Item, Mode, Op};

/// Numbers for cas columns: no two the same, over restarts and several servers on one database.
#[derive(Debug)]
pub(crate) struct Stamps {
    last: AtomicI64,
}

/// A stamp's lower bits tell servers apart, the upper ones are microseconds.
const SERVER_BITS: u32 = 10;

impl Stamps {
    pub(crate) fn new(server: u16) -> Stamps {
        Stamps { last: AtomicI64::new(i64::from(server) & ((1 << SERVER_BITS) - 1)) }
    }

    pub(crate) fn next(&self) -> i64 {
        let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
        let next = |last: i64| {
            let server = last & ((1 << SERVER_BITS) - 1);
            let now = i64::try_from(micros << SERVER_BITS).unwrap_or(0) | server;
            now.max(last + (1 << SERVER_BITS))
        };
        // A number that only has to be unlike all others.
        match self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last))) {
            Ok(last) | Err(last) => next(last),
        }
    }
}

/// What changes come to.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// One for each change, in their order.
    pub(crate) answers: Vec<Result<Done, Error>>,
    /// Rows that were not there.
    pub(crate) insert: Vec<Row>,
    /// Rows that were.
    pub(crate) update: Vec<Row>,
    /// Keys of rows that are to go.
    pub(crate) delete: Vec<Vec<Cell>>,
}

/// Whether changes come to the same whatever is in the table.
pub(crate) fn blind<'a>(ops: impl IntoIterator<Item = &'a Op>, now: i64) -> bool {
    ops.into_iter().all(|op| match op {
        Op::Store { mode: Mode::Set, compare: None, expiry, .. } => expiry.is_none_or(|expiry| expiry > now),
        _ => false,
    })
}

struct Slot {
    was_there: bool,
    changed: bool,
    row: Option<Row>,
    key: Vec<Cell>,
}

impl Plan {
    /// Of `ops`, in their order, when the table holds `found` of their keys.
    pub(crate) fn new<'a>(
        layout: &Layout,
        ops: impl IntoIterator<Item = &'a Op>,
        found: Vec<Row>,
        now: i64,
        stamps: &Stamps,
    ) -> Plan {
        let mut slots: HashMap<Vec<u8>, Slot> = HashMap::with_capacity(found.len());
        for row in found {
            let slot = Slot { was_there: true, changed: false, key: row.key.clone(), row: Some(row) };
            slots.insert(layout.key_bytes(&slot.key), slot);
        }
        let mut plan = Plan::default();
        // In the order of their first change, so that what is written is written in one order.
        let mut order: Vec<Vec<u8>> = Vec::new();
        for op in ops {
            let answer = layout.key_cells(op.key()).and_then(|key| {
                let slot = slots.entry(op.key().to_vec()).or_insert_with(|| Slot {
                    was_there: false,
                    changed: false,
                    row: None,
                    key,
                });
                let before = slot.changed;
                let answer = Change { layout, now, stamps }.make(slot, op);
                if slot.changed && !before {
                    order.push(op.key().to_vec());
                }
                answer
            });
            plan.answers.push(answer);
        }
        for key in order {
            let Some(slot) = slots.remove(&key) else { continue };
            match (slot.was_there, slot.row) {
                (true, Some(row)) => plan.update.push(row),
                (false, Some(row)) => plan.insert.push(row),
                (true, None) => plan.delete.push(slot.key),
                (false, None) => {}
            }
        }
        plan
    }
}

struct Change<'a> {
    layout: &'a Layout,
    now: i64,
    stamps: &'a Stamps,
}

impl Change<'_> {
    fn make(&mut self, slot: &mut Slot, op: &Op) -> Result<Done, Error> {
        let live = slot.row.as_ref().filter(|row| !row.expired(self.now));
        if let Some(why) = self.layout.unwritable.as_ref().filter(|_| !matches!(op, Op::Delete { .. })) {
            return Err(Error::Row(format!("no row can be written: {why}")));
        }
        match op {
            Op::Store { mode, compare, flags, expiry, value, vivify, .. } => {
                let extends = matches!(mode, Mode::Append | Mode::Prepend);
                let Some(live) = live else {
                    let expiry = match (mode, vivify) {
                        (Mode::Append | Mode::Prepend, Some(expiry)) => *expiry,
                        (Mode::Append | Mode::Prepend, None) => return Ok(Done::NotStored),
                        (Mode::Set | Mode::Replace, _) if compare.is_some() => return Ok(Done::NotFound),
                        (Mode::Replace, _) => return Ok(Done::NotStored),
                        (Mode::Set | Mode::Add, _) => *expiry,
                    };
                    let cells = self.layout.value_cells(&slot.key, value)?;
                    return self.put(slot, cells, *flags, expiry, value);
                };
                if *mode == Mode::Add {
                    return Ok(Done::NotStored);
                }
                if !self.may(live, *compare) {
                    return Ok(Done::Exists);
                }
                if !extends {
                    let cells = self.layout.value_cells(&slot.key, value)?;
                    return self.put(slot, cells, *flags, *expiry, value);
                }
                let mut whole = self.layout.value_bytes(live);
                let at = if *mode == Mode::Append { whole.len() } else { 0 };
                whole.splice(at..at, value.iter().copied());
                let (flags, expiry) = (live.flags, live.expiry);
                let cells = self.layout.value_cells(&slot.key, &whole)?;
                self.put(slot, cells, flags, expiry, &whole)
            }
            Op::Delete { compare, .. } => {
                let Some(live) = live else { return Ok(Done::NotFound) };
                if !self.may(live, *compare) {
                    return Ok(Done::Exists);
                }
                slot.row = None;
                slot.changed = true;
                Ok(Done::Deleted)
            }
            Op::Arith { delta, down, compare, initial, touch, .. } => {
                let (number, flags, expiry) = match (live, initial) {
                    (None, None) => return Ok(Done::NotFound),
                    (None, Some((number, expiry))) => (*number, 0, *expiry),
                    (Some(live), _) => {
                        if !self.may(live, *compare) {
                            return Ok(Done::Exists);
                        }
                        let Some(old) = number(&self.layout.value_bytes(live)) else {
                            return Ok(Done::NonNumeric);
                        };
                        let new = if *down { old.saturating_sub(*delta) } else { old.wrapping_add(*delta) };
                        (new, live.flags, touch.unwrap_or(live.expiry))
                    }
                };
                let digits = number.to_string().into_bytes();
                let cells = self.layout.value_cells(&slot.key, &digits)?;
                match self.put(slot, cells, flags, expiry, &digits)? {
                    Done::Stored { unique, .. } => Ok(Done::Counted { number, unique, expiry: self.kept(expiry) }),
                    other => Ok(other),
                }
            }
            Op::Touch { expiry, .. } => {
                let expiry = self.kept(*expiry);
                let Some(live) = slot.row.as_mut().filter(|row| !row.expired(self.now)) else {
                    return Ok(Done::NotFound);
                };
                if live.expiry != expiry {
                    live.expiry = expiry;
                    slot.changed = true;
                }
                let touched = item(self.layout, live);
                if live.expired(self.now) {
                    slot.row = None;
                }
                Ok(Done::Touched(touched))
            }
        }
    }

    fn may(&self, live: &Row, compare: Option<u64>) -> bool {
        compare.is_none_or(|unique| unique == self.layout.unique(live))
    }

    /// An expiry as it is kept: not at all without a column for it, except one that is over already.
    fn kept(&self, expiry: Option<i64>) -> Option<i64> {
        expiry.filter(|second| self.layout.expiry.is_some() || *second <= self.now)
    }

    fn put(
        &mut self,
        slot: &mut Slot,
        value: Vec<Cell>,
        flags: u32,
        expiry: Option<i64>,
        sent: &[u8],
    ) -> Result<Done, Error> {
        let layout = self.layout;
        if let Some(why) = layout.uninsertable.as_ref().filter(|_| !slot.was_there) {
            return Err(Error::Row(format!("no row can be added: {why}")));
        }
        let row = Row {
            key: slot.key.clone(),
            value,
            flags: if layout.flags.is_some() { flags } else { 0 },
            cas: if layout.cas.is_some() { self.stamps.next() } else { 0 },
            expiry: self.kept(expiry),
        };
        let unique = layout.unique(&row);
        let as_sent = layout.value_bytes(&row) == sent;
        slot.changed = true;
        // What is over already is not written first.
        slot.row = Some(row).filter(|row| !row.expired(self.now));
        Ok(Done::Stored { unique, as_sent })
    }
}

/// A row as clients see it.
pub(crate) fn item(layout: &Layout, row: &Row) -> Item {
    Item { value: layout.value_bytes(row), flags: row.flags, unique: layout.unique(row), expiry: row.expiry }
}

/// The number a value stands for: digits, with spaces after them at most.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Column, Kind};
    use crate::layout::Described;
    use crate::settings::{Database, Settings};

    fn layout() -> Layout {
        let text =
            || Kind::Text { chars_max: Some(8), bytes_max: None, padded: false, zero_bytes: false, any_bytes: false };
        let column = |name: &str, kind| Column {
            name: name.into(),
            kind,
            nullable: false,
            fills_itself: true,
            generated: false,
            folds: None,
        };
        let columns = vec![
            column("id", text()),
            column("name", text()),
            column("flags", Kind::signed(32)),
            column("cas", Kind::signed(64)),
            column("expires", Kind::signed(64)),
        ];
        let described = Described { columns, unique: vec![vec!["id".into()]], further_unique: false };
        let database = Database::new("sqlite:///a").unwrap();
        let mut settings = Settings::new("t", database, "t", &["id"], &["name"]);
        (settings.flags, settings.cas) = (Some("flags".into()), Some("cas".into()));
        settings.expiry = Some("expires".into());
        Layout::new(&settings, &described).unwrap()
    }

    fn plan(ops: &[Op], found: Vec<Row>) -> Plan {
        Plan::new(&layout(), ops, found, 1000, &Stamps::new(7))
    }

    fn row(key: &str, value: &str, expiry: Option<i64>) -> Row {
        let cell = |text: &str| vec![Cell::Bytes(text.into())];
        Row { key: cell(key), value: cell(value), flags: 3, cas: 5, expiry }
    }

    fn with(op: Op, change: impl FnOnce(&mut Mode, &mut Option<u64>)) -> Op {
        let Op::Store { key, mut mode, mut compare, flags, expiry, value, vivify } = op else { panic!("a store") };
        change(&mut mode, &mut compare);
        Op::Store { key, mode, compare, flags, expiry, value, vivify }
    }

    #[test]
    fn add_works_over_an_expired_row_and_updates_it() {
        let add = with(Op::set(b"a", b"new"), |mode, _| *mode = Mode::Add);
        let plan = plan(&[add.clone(), add], vec![row("a", "old", Some(999))]);
        assert!(matches!(plan.answers[0], Ok(Done::Stored { as_sent: true, .. })));
        assert_eq!(plan.answers[1], Ok(Done::NotStored), "the second finds the first's");
        assert_eq!((plan.update.len(), plan.insert.len(), plan.delete.len()), (1, 0, 0));
    }

    #[test]
    fn changes_of_one_key_come_to_one_row() {
        let plan =
            plan(&[Op::set(b"a", b"1"), Op::Delete { key: b"a".into(), compare: None }, Op::set(b"a", b"2")], vec![]);
        assert_eq!(plan.insert.len(), 1);
        assert_eq!(plan.insert[0].value, [Cell::Bytes(b"2".into())]);
        assert!(plan.answers.iter().all(Result::is_ok));
    }

    #[test]
    fn a_unique_fits_until_the_row_changes() {
        let there = row("a", "x", None);
        let unique = layout().unique(&there);
        let cas = |unique| with(Op::set(b"a", b"y"), |_, compare| *compare = Some(unique));
        let plan = plan(&[cas(unique + 1), cas(unique), cas(unique)], vec![there]);
        assert_eq!((&plan.answers[0], &plan.answers[2]), (&Ok(Done::Exists), &Ok(Done::Exists)));
        assert!(matches!(plan.answers[1], Ok(Done::Stored { .. })));
    }

    #[test]
    fn counting_wraps_up_and_stops_at_zero() {
        let count =
            |delta, down| Op::Arith { key: b"a".into(), delta, down, compare: None, initial: None, touch: None };
        let number = |value: &str, op: Op| plan(&[op], vec![row("a", value, None)]).answers.remove(0);
        assert!(matches!(number("5", count(7, true)), Ok(Done::Counted { number: 0, .. })));
        assert!(matches!(number("5", count(u64::MAX - 4, false)), Ok(Done::Counted { number: 0, .. })));
        assert_eq!(number("bird", count(1, false)), Ok(Done::NonNumeric));
        let long = number("99999999", count(1, false)).unwrap_err();
        assert_eq!(long.to_string(), "value of \"a\" for table t: column name holds up to 8 characters, not 9");
    }

    #[test]
    fn a_touch_changes_the_expiry_and_not_the_unique() {
        let there = row("a", "x", None);
        let unique = layout().unique(&there);
        let touch = |expiry| Op::Touch { key: b"a".into(), expiry };
        let touched = plan(&[touch(Some(2000))], vec![there.clone()]);
        assert!(matches!(&touched.answers[0], Ok(Done::Touched(item)) if item.unique == unique));
        assert_eq!((touched.update[0].expiry, touched.update[0].cas), (Some(2000), 5));
        let over = plan(&[touch(Some(1))], vec![there]);
        assert_eq!((over.update.len(), over.delete.len()), (0, 1));
    }

    #[test]
    fn stamps_never_repeat() {
        let (a, b) = (Stamps::new(1), Stamps::new(2));
        let mut all: Vec<i64> = (0..1000).flat_map(|_| [a.next(), b.next()]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }
}
