//! Incrementing and decrementing.
//!
//! A number is text, as the client stored it. The result is a new record like any write, published only over the one
//! that was read: no increment is ever lost.

use crate::{
    Seconds,
    forget::Tags,
    log::Purpose,
    place::Item,
    record::{CAS_SEEN, FETCHED},
    store::Handle,
    write::{Condition, SetMode, SetOptions, SetOutcome},
};

/// The digits of 2^64 - 1.
const DIGITS_MAX: usize = 20;

/// How a number is changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArithOptions {
    /// Subtract; otherwise add.
    pub decrement: bool,
    /// How much. Adding wraps at 2^64, subtracting ends at 0.
    pub delta: u64,
    /// The number and the expiry of the item that is made if there is none.
    pub initial: Option<(u64, Seconds)>,
    /// Only if the item has this CAS unique.
    pub compare: Option<u64>,
    /// The new CAS unique, instead of one the store chooses.
    pub cas: Option<u64>,
    /// The new expiry.
    pub touch: Option<Seconds>,
    /// Will the new CAS unique be shown to a client?
    pub want_cas: bool,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArithOutcome {
    /// Done.
    Value {
        /// The number now.
        value: u64,
        /// The CAS unique now, if it was wanted, else 0.
        cas: u64,
        /// When the item expires.
        expiry: Seconds,
        /// Had the item been fetched before?
        fetched_before: bool,
        /// When it was last fetched or stored, before this.
        last_access: Seconds,
        /// Was it made by this?
        created: bool,
    },
    /// There is no such item.
    NotFound,
    /// The value is not a decimal number below 2^64.
    NonNumeric,
    /// The item has another CAS unique.
    Exists,
    /// No room for the result.
    NoMemory,
}

impl Handle {
    /// Changes a number. Flags are kept; a result shorter than the stored text is padded with spaces at its right, as
    /// memcached does.
    pub fn arith(&mut self, key: &[u8], options: &ArithOptions, now: Seconds) -> ArithOutcome {
        self.store.notice_flush(now);
        let mut cas = options.cas;
        loop {
            let Handle { store, reader, lane, counters, .. } = self;
            let hash = store.hash(key);
            let look = {
                let _pin = reader.pin(&store.epochs);
                store.look(hash, key, now).map(|(seen, record)| {
                    let number = parse(&store.value_bytes_of(seen.place, &record));
                    let marks = record.marks();
                    let last_access = store.last_access_of(seen.place, marks);
                    (seen, record.value_bytes(), record.flags(), Tags::of(&record), number, marks, last_access)
                })
            };
            let Some((seen, old_bytes, flags, tags, number, marks, last_access)) = look else {
                match self.arith_initial(key, options, now) {
                    Some(outcome) => return outcome,
                    None => continue,
                }
            };
            if old_bytes == 0 {
                return ArithOutcome::NonNumeric;
            }
            if options.compare.is_some_and(|wanted| wanted != seen.cas) {
                return ArithOutcome::Exists;
            }
            let Some(number) = number else { return ArithOutcome::NonNumeric };
            let value = if options.decrement {
                number.saturating_sub(options.delta)
            } else {
                number.wrapping_add(options.delta)
            };
            let (text, digits) = text_of(value);
            let len = digits.max(old_bytes);
            let expiry = options.touch.unwrap_or(seen.expiry);
            let mut item = Item::new(key, flags, expiry.max(now.saturating_add(1)), len, now);
            item.cas = cas;
            item.tags = Tags::bytes_of(tags.as_deref());
            // A counter that was fetched stays so; its CAS unique is a new one that nobody has seen yet.
            item.marks = marks.kept_by_copies() & !CAS_SEEN;
            let mut lane = lane.lock();
            let Some(placed) = store.place(&mut lane, counters, seen.queue, &item, Purpose::Write, false, now) else {
                counters.out_of_memory.add(1);
                return ArithOutcome::NoMemory;
            };
            store.write_value(&placed, 0, &text[..digits]);
            let mut at = digits;
            while at < len {
                let blanks = &[b' '; 256][..(len - at).min(256)];
                store.write_value(&placed, at, blanks);
                at += blanks.len();
            }
            let published = {
                let _pin = reader.pin(&store.epochs);
                let same = Condition::Same { place: seen.place, sequence: seen.sequence, carry: 0 };
                store.publish(counters, &placed, same, 0, options.want_cas, now)
            };
            match store.conclude(&mut lane, placed, published, &mut cas) {
                Some(Ok(unique)) => {
                    // Not a new item.
                    counters.total_items.add(-1);
                    drop(lane);
                    if expiry <= now {
                        let _pin = reader.pin(&store.epochs);
                        store.remove(counters, key);
                    }
                    return ArithOutcome::Value {
                        value,
                        cas: if options.want_cas { unique } else { 0 },
                        expiry,
                        fetched_before: marks.has(FETCHED),
                        last_access,
                        created: false,
                    };
                }
                Some(Err(_)) => return ArithOutcome::NoMemory,
                None => {}
            }
        }
    }

    /// There is no item: makes one if that was asked for. `None`: there is one now.
    fn arith_initial(&mut self, key: &[u8], options: &ArithOptions, now: Seconds) -> Option<ArithOutcome> {
        let Some((value, expiry)) = options.initial else { return Some(ArithOutcome::NotFound) };
        let (text, len) = text_of(value);
        let add = SetOptions {
            mode: SetMode::Add,
            expiry,
            cas: options.cas,
            want_cas: options.want_cas,
            ..SetOptions::default()
        };
        match self.set(key, &text[..len], &add, now) {
            SetOutcome::Stored { cas } => {
                Some(ArithOutcome::Value { value, cas, expiry, fetched_before: false, last_access: now, created: true })
            }
            SetOutcome::NotStored | SetOutcome::Exists | SetOutcome::NotFound => None,
            SetOutcome::NoMemory | SetOutcome::TooLarge => Some(ArithOutcome::NoMemory),
        }
    }
}

/// The number in a value: as `strtoull` reads it, blanks before and anything behind a blank allowed.
fn parse(text: &[u8]) -> Option<u64> {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = text.iter().position(|byte| !blank(byte))?;
    let text = &text[start..];
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 || text.get(digits).is_some_and(|byte| !blank(byte)) {
        return None;
    }
    text[..digits].iter().try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// A number as text, and how many digits it has.
fn text_of(value: u64) -> ([u8; DIGITS_MAX], usize) {
    let mut digits = [0u8; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    digits.copy_within(at.., 0);
    (digits, DIGITS_MAX - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strtoull_reads_them() {
        for (text, number) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("12 ", Some(12)),
            ("12 abc", Some(12)),
            ("  12\r\n", Some(12)),
            ("+7", Some(7)),
            ("-7", None),
            ("12a", None),
            ("", None),
            (" ", None),
            ("+", None),
        ] {
            assert_eq!(parse(text.as_bytes()), number, "{text:?}");
        }
    }
}
