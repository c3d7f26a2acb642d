//! Records: how an item lies in the log, byte by byte.
//!
//! Owns the layout. The log places records, the operations and eviction read them. It never decides whether a record
//! may be read: the `unsafe` constructor states the condition, and `view` is where callers prove it.
//!
//! ```text
//! shape 2 | state 2 | value bytes 1, 2 or 4 | flags 0, 1, 2 or 4 | expiry 0 or 2 | cas 0 or 8 | key | extras | value | to an even length
//!
//! shape   14           13        12           11..10        9..8          7..0
//!         | has extras | has cas | has expiry | flags width | value width | key bytes |
//! state   15..5         4          3      2     1       0
//!         | last access | cas seen | dead | won | stale | fetched |
//! extras  0 bytes, or: head 1 | birth 0 or 8 | tags 0 to 8 times 8
//! head    7           3..0
//!         | has birth | tags |
//! ```
//!
//! The state is an atomic half-word and the only part that changes after the record was published. Up to the beginning of
//! the value a record lies in one segment; the value may go on in the segments that follow (see `log`).
//!
//! A record is *dead* until it is published and from then on when it was superseded or removed; both are said under the
//! lock of its key's shard. At any moment, therefore, at most one record of a key is alive, but for the few instructions
//! in which one takes another's place: that is what a start reads a memory file by (see `restore`).
//!
//! * *Expiry* is the distance from the base second of the segment's expiry group; a group of one second needs none.
//! * *CAS unique*: a record without one of its own has the number of its place in the history of the log (segment
//!   sequence number and offset), which is never given twice. One is written out only when a record moves whose number
//!   a client has seen, or when the client chose it.
//! * *Last access* is an 11-bit code of its distance from the second in which the segment was opened: exact for two
//!   minutes, then within 3 %.
//! * *Birth* and *tags* are what `forget` compares and looks up; hardly any record has them.
//!
//! This is one of the store's modules with `unsafe` code.

#![allow(unsafe_code)]

use std::{marker::PhantomData, ptr::NonNull, sync::atomic::AtomicU16, sync::atomic::Ordering};

use crate::{NEVER, Seconds, TAGS_MAX};

/// Records start at multiples of this many bytes, which is also the unit of places.
pub(crate) const ALIGN: usize = 2;
/// The most a record can take up to its value.
#[cfg(test)]
pub(crate) const PREFIX_BYTES_MAX: usize = 4 + 4 + 4 + 2 + 8 + crate::KEY_BYTES_MAX + EXTRAS_BYTES_MAX;

const KEY_MASK: u16 = 0xff;
const VALUE_WIDTH_SHIFT: u32 = 8;
const FLAGS_WIDTH_SHIFT: u32 = 10;
const HAS_EXPIRY: u16 = 1 << 12;
const HAS_CAS: u16 = 1 << 13;
const HAS_EXTRAS: u16 = 1 << 14;
/// The bits above are zero.
#[cfg(not(loom))]
const SHAPE_BITS: u32 = 15;

/// In the head of the extras.
const HAS_BIRTH: u8 = 1 << 7;
const TAGS_MASK: u8 = 0b1111;
/// Bytes of a tag's hash, and of a birth.
const EXTRA_BYTES: usize = 8;
const EXTRAS_BYTES_MAX: usize = 1 + EXTRA_BYTES * (1 + TAGS_MAX);

/// Bytes of shape and state.
const HEAD_BYTES: usize = 4;
/// Where the state lies.
const STATE_AT: usize = 2;

/// The item was fetched since it was stored.
pub(crate) const FETCHED: u16 = 1 << 0;
/// The item was invalidated but may still be shown (meta protocol, `X`).
pub(crate) const STALE: u16 = 1 << 1;
/// One client has been told to recache the item (meta protocol, `W`, then `Z` for the others).
pub(crate) const WON: u16 = 1 << 2;
/// No index entry leads here any more, or none does yet: set when a record is placed, and cleared when it is published.
pub(crate) const DEAD: u16 = 1 << 3;
/// A client has been told the item's CAS unique, so a copy has to keep it.
pub(crate) const CAS_SEEN: u16 = 1 << 4;
/// The marks a copy of the record keeps.
pub(crate) const KEPT_BY_COPIES: u16 = FETCHED | STALE | WON | CAS_SEEN;
const ACCESS_SHIFT: u32 = 5;
const ACCESS_MASK: u16 = !0 << ACCESS_SHIFT;

/// What a record is made of, apart from its value.
#[derive(Clone, Copy)]
pub(crate) struct Spec<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) flags: u32,
    /// Seconds from the base of the segment's expiry group; `None` where the group says it all.
    pub(crate) expiry_offset: Option<u16>,
    pub(crate) cas: Option<u64>,
    /// As [`Extras`] lays them out; hardly any record has some.
    pub(crate) extras: &'k [u8],
    pub(crate) value_bytes: usize,
    /// Marks of [`KEPT_BY_COPIES`].
    pub(crate) marks: u16,
    pub(crate) access: u16,
}

impl Spec<'_> {
    fn value_width(&self) -> usize {
        match self.value_bytes {
            0..=0xff => 0,
            0x100..=0xffff => 1,
            _ => 2,
        }
    }

    fn flags_width(&self) -> usize {
        match self.flags {
            0 => 0,
            1..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 3,
        }
    }

    /// Bytes up to the value.
    #[inline]
    pub(crate) fn prefix_bytes(&self) -> usize {
        let expiry = if self.expiry_offset.is_some() { 2 } else { 0 };
        let cas = if self.cas.is_some() { 8 } else { 0 };
        let fixed = HEAD_BYTES + (1 << self.value_width()) + flags_bytes(self.flags_width() as u16);
        fixed + expiry + cas + self.key.len() + self.extras.len()
    }

    /// Bytes of the whole record, to a multiple of [`ALIGN`].
    #[inline]
    pub(crate) fn record_bytes(&self) -> usize {
        (self.prefix_bytes() + self.value_bytes).next_multiple_of(ALIGN)
    }

    /// Writes everything but the value. The record is dead until it is published.
    ///
    /// # Safety
    /// `at` is aligned to [`ALIGN`], `prefix_bytes()` bytes from it on belong to the caller alone, and no reader can
    /// find them yet.
    pub(crate) unsafe fn write_prefix(&self, at: NonNull<u8>) {
        let shape = self.key.len() as u16
            | (self.value_width() as u16) << VALUE_WIDTH_SHIFT
            | (self.flags_width() as u16) << FLAGS_WIDTH_SHIFT
            | if self.expiry_offset.is_some() { HAS_EXPIRY } else { 0 }
            | if self.cas.is_some() { HAS_CAS } else { 0 }
            | if self.extras.is_empty() { 0 } else { HAS_EXTRAS };
        let state = DEAD | self.marks | self.access << ACCESS_SHIFT;
        // SAFETY: the caller owns `prefix_bytes()` bytes from `at` on; the writes below sum to exactly that.
        unsafe {
            at.cast::<u16>().write(shape);
            at.add(STATE_AT).cast::<u16>().write(state);
            let mut cursor = at.as_ptr().add(HEAD_BYTES);
            let mut put = |bytes: &[u8]| {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), cursor, bytes.len());
                cursor = cursor.add(bytes.len());
            };
            let value_bytes = (self.value_bytes as u32).to_le_bytes();
            match self.value_width() {
                0 => put(&value_bytes[..1]),
                1 => put(&value_bytes[..2]),
                _ => put(&value_bytes),
            }
            let flags = self.flags.to_le_bytes();
            match self.flags_width() {
                0 => {}
                1 => put(&flags[..1]),
                2 => put(&flags[..2]),
                _ => put(&flags),
            }
            if let Some(offset) = self.expiry_offset {
                put(&offset.to_le_bytes());
            }
            if let Some(cas) = self.cas {
                put(&cas.to_le_bytes());
            }
            put(self.key);
            if !self.extras.is_empty() {
                put(self.extras);
            }
        }
    }
}

#[inline]
fn flags_bytes(width: u16) -> usize {
    // 0, 1, 2, 4
    ((1 << width) >> 1) as usize
}

fn extras_bytes(has_birth: bool, tags: usize) -> usize {
    1 + EXTRA_BYTES * (usize::from(has_birth) + tags)
}

/// The extras of a record, laid out.
pub(crate) struct Extras {
    bytes: [u8; EXTRAS_BYTES_MAX],
    used: usize,
}

impl Extras {
    /// With the number in history the record was born at, where that is not its segment's, and the hashes of its tags, at
    /// most [`TAGS_MAX`], one behind the other.
    pub(crate) fn new(birth: Option<u64>, tags: &[u8]) -> Extras {
        let mut extras = Extras { bytes: [0; EXTRAS_BYTES_MAX], used: 0 };
        if birth.is_some() || !tags.is_empty() {
            let has_birth = if birth.is_some() { HAS_BIRTH } else { 0 };
            extras.push(&[has_birth | (tags.len() / EXTRA_BYTES) as u8]);
            if let Some(birth) = birth {
                extras.push(&birth.to_le_bytes());
            }
            extras.push(tags);
        }
        extras
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// A record that may be read for as long as `'r`.
#[derive(Clone, Copy)]
pub(crate) struct RecordRef<'r> {
    at: NonNull<u8>,
    shape: u16,
    lives: PhantomData<&'r [u8]>,
}

impl<'r> RecordRef<'r> {
    /// # Safety
    /// A record's prefix was written at `at`, and for as long as `'r` nobody writes to it but through its atomic state.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<u8>) -> RecordRef<'r> {
        // SAFETY: the shape is an aligned, initialised half-word that nobody writes (caller).
        let shape = unsafe { at.cast::<u16>().read() };
        RecordRef { at, shape, lives: PhantomData }
    }

    /// What lies at `at`, if that can be a record whose prefix ends within `room` bytes.
    ///
    /// # Safety
    /// `at` is aligned to [`ALIGN`], `room` bytes from it on are initialised, and for as long as `'r` nobody writes to
    /// them but through a record's atomic state.
    #[cfg(not(loom))]
    pub(crate) unsafe fn found(at: NonNull<u8>, room: usize) -> Option<RecordRef<'r>> {
        if room < HEAD_BYTES + 1 {
            return None;
        }
        // SAFETY: the shape lies within `room` (above); what else is read of the record is read after the checks below.
        let record = unsafe { RecordRef::new(at) };
        let is_shape = record.shape >> SHAPE_BITS == 0
            && (1..=crate::KEY_BYTES_MAX).contains(&record.key_bytes())
            && record.value_width_bytes() <= 4;
        if !is_shape || record.extras_at() + usize::from(record.has_extras()) > room {
            return None;
        }
        let extras = record.extras_head();
        let is_sound = extras & !(HAS_BIRTH | TAGS_MASK) == 0 && usize::from(extras & TAGS_MASK) <= TAGS_MAX;
        (is_sound && record.prefix_bytes() <= room).then_some(record)
    }

    #[inline]
    fn state(&self) -> &'r AtomicU16 {
        // SAFETY: aligned and initialised; changed through atomics only, for as long as `'r` (see `new`).
        unsafe { AtomicU16::from_ptr(self.at.as_ptr().add(STATE_AT).cast()) }
    }

    #[inline]
    fn bytes(&self, offset: usize, len: usize) -> &'r [u8] {
        // SAFETY: callers stay inside the prefix, which nobody writes for as long as `'r` (see `new`).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(offset), len) }
    }

    #[inline]
    fn number(&self, offset: usize, bytes: usize) -> u64 {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(self.bytes(offset, bytes));
        u64::from_le_bytes(number)
    }

    #[inline]
    pub(crate) fn key_bytes(&self) -> usize {
        (self.shape & KEY_MASK) as usize
    }

    #[inline]
    fn value_width_bytes(&self) -> usize {
        1 << (self.shape >> VALUE_WIDTH_SHIFT & 0b11)
    }

    #[inline]
    fn flags_at(&self) -> usize {
        HEAD_BYTES + self.value_width_bytes()
    }

    #[inline]
    fn expiry_at(&self) -> usize {
        self.flags_at() + flags_bytes(self.shape >> FLAGS_WIDTH_SHIFT & 0b11)
    }

    #[inline]
    fn cas_at(&self) -> usize {
        self.expiry_at() + if self.shape & HAS_EXPIRY != 0 { 2 } else { 0 }
    }

    #[inline]
    fn key_at(&self) -> usize {
        self.cas_at() + if self.shape & HAS_CAS != 0 { 8 } else { 0 }
    }

    #[inline]
    pub(crate) fn key(&self) -> &'r [u8] {
        self.bytes(self.key_at(), self.key_bytes())
    }

    #[inline]
    pub(crate) fn has_extras(&self) -> bool {
        self.shape & HAS_EXTRAS != 0
    }

    #[inline]
    fn extras_at(&self) -> usize {
        self.key_at() + self.key_bytes()
    }

    /// The head of the extras; 0 where there are none.
    #[inline]
    fn extras_head(&self) -> u8 {
        if self.has_extras() { self.bytes(self.extras_at(), 1)[0] } else { 0 }
    }

    /// The number in history the record was born at, where that is not its segment's.
    #[cfg(any(test, not(loom)))]
    pub(crate) fn birth(&self) -> Option<u64> {
        (self.extras_head() & HAS_BIRTH != 0).then(|| self.number(self.extras_at() + 1, EXTRA_BYTES))
    }

    /// Hashes of its tags, one behind the other.
    #[cfg(any(test, not(loom)))]
    pub(crate) fn tags(&self) -> &'r [u8] {
        let head = self.extras_head();
        if head & TAGS_MASK == 0 {
            return &[];
        }
        let birth = if head & HAS_BIRTH != 0 { EXTRA_BYTES } else { 0 };
        self.bytes(self.extras_at() + 1 + birth, usize::from(head & TAGS_MASK) * EXTRA_BYTES)
    }

    /// Bytes up to the value.
    #[inline]
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.extras_at() + if self.has_extras() { self.extras_part_bytes() } else { 0 }
    }

    // By value, as whatever is called with a record and hardly ever: a reference would keep the record in memory where it
    // is not called.
    #[cold]
    #[inline(never)]
    fn extras_part_bytes(self) -> usize {
        let head = self.extras_head();
        extras_bytes(head & HAS_BIRTH != 0, usize::from(head & TAGS_MASK))
    }

    #[inline]
    pub(crate) fn value_bytes(&self) -> usize {
        match self.value_width_bytes() {
            1 => self.bytes(HEAD_BYTES, 1)[0] as usize,
            2 => self.number(HEAD_BYTES, 2) as usize,
            _ => self.number(HEAD_BYTES, 4) as usize,
        }
    }

    /// Bytes of the whole record, to a multiple of [`ALIGN`].
    #[inline]
    pub(crate) fn record_bytes(&self) -> usize {
        (self.prefix_bytes() + self.value_bytes()).next_multiple_of(ALIGN)
    }

    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        let bytes = flags_bytes(self.shape >> FLAGS_WIDTH_SHIFT & 0b11);
        if bytes == 0 { 0 } else { self.number(self.flags_at(), bytes) as u32 }
    }

    #[inline]
    pub(crate) fn expiry_offset(&self) -> Option<u16> {
        (self.shape & HAS_EXPIRY != 0).then(|| self.number(self.expiry_at(), 2) as u16)
    }

    pub(crate) fn cas(&self) -> Option<u64> {
        (self.shape & HAS_CAS != 0).then(|| self.number(self.cas_at(), 8))
    }

    /// The marks and the last access as they are now.
    #[inline]
    pub(crate) fn marks(&self) -> Marks {
        Marks(self.state().load(Ordering::Relaxed))
    }

    /// Sets marks; answers those that were set before.
    #[inline]
    pub(crate) fn set_marks(&self, marks: u16) -> Marks {
        // Relaxed: a mark publishes nothing but itself.
        Marks(self.state().fetch_or(marks, Ordering::Relaxed))
    }

    /// Declares a record that was placed alive, with `marks` besides those it has. To be called by the one who placed
    /// it, under the lock of its key's shard and just before its place is stored there.
    #[inline]
    pub(crate) fn come_alive(&self, marks: u16) {
        // Nobody else knows the record, so no exchange is needed. Release: whoever reads a memory file that was left by
        // a crash and finds the record alive finds all of its value as well.
        let state = self.state().load(Ordering::Relaxed) & !DEAD | marks;
        self.state().store(state, Ordering::Release);
    }

    /// Declares the record dead. To be called under the lock of its key's shard, right after its place was taken out of
    /// there, or by the one who placed it and does not publish it.
    #[inline]
    pub(crate) fn die(&self) {
        // A plain store: a reader that notes its access at the same time loses that, or overwrites nothing, because its
        // exchange fails; and no mark matters any more.
        let state = self.state().load(Ordering::Relaxed) | DEAD;
        self.state().store(state, Ordering::Release);
    }

    /// Is the record dead?
    #[inline]
    #[cfg(not(loom))]
    pub(crate) fn is_dead(&self) -> bool {
        // Acquire: who sees a death sees that no index entry leads to the record.
        self.state().load(Ordering::Acquire) & DEAD != 0
    }

    /// Notes an access. Writes only when something changes: the first fetch, or another second.
    #[inline]
    pub(crate) fn note_access(&self, marks: Marks, access: u16) {
        let wanted = (marks.0 & !ACCESS_MASK) | access << ACCESS_SHIFT | FETCHED;
        if wanted != marks.0 {
            // Whoever changes the state at the same time (another reader, a writer's mark) wins; an access more or
            // less is not worth a loop.
            let _ = self.state().compare_exchange(marks.0, wanted, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A copy of a record's state.
#[derive(Clone, Copy)]
pub(crate) struct Marks(u16);

impl Marks {
    #[inline]
    pub(crate) fn has(self, mark: u16) -> bool {
        self.0 & mark != 0
    }

    #[inline]
    pub(crate) fn kept_by_copies(self) -> u16 {
        self.0 & KEPT_BY_COPIES
    }

    #[inline]
    pub(crate) fn access(self) -> u16 {
        self.0 >> ACCESS_SHIFT
    }
}

/// The code for a second of last access, in a segment opened at `opened`: one bit for before or after, three bits of
/// exponent (base 4), seven of mantissa. (Before: records that eviction moved to a younger segment.)
pub(crate) fn encode_access(opened: Seconds, last: Seconds) -> u16 {
    let before = if last < opened { 1 << 10 } else { 0 };
    let seconds = last.abs_diff(opened);
    let mut start = 0u32;
    for exponent in 0..8u32 {
        let unit = 1u32 << (2 * exponent);
        let span = ACCESS_EXACT_SECONDS * unit;
        if seconds < start + span {
            return before | (exponent << 7 | ((seconds - start) / unit)) as u16;
        }
        start += span;
    }
    before | ((1 << 10) - 1)
}

/// The second a code stands for.
pub(crate) fn decode_access(opened: Seconds, code: u16) -> Seconds {
    let code = u32::from(code);
    let exponent = code >> 7 & 0b111;
    // 128 * (1 + 4 + … + 4^(exponent - 1))
    let start = ACCESS_EXACT_SECONDS * (((1u32 << (2 * exponent)) - 1) / 3);
    let seconds = start + (code & (ACCESS_EXACT_SECONDS - 1)) * (1 << (2 * exponent));
    if code >> 10 == 1 { opened.saturating_sub(seconds) } else { opened.saturating_add(seconds) }
}

/// Within so many seconds of a segment's opening, last accesses are exact.
pub(crate) const ACCESS_EXACT_SECONDS: u32 = 128;

/// The expiry group of a second: items that expire close to each other share segments, so that the whole segment
/// expires at once. Within the last minute of life a group is one second; further off it is at most a quarter of
/// what is left to live (and at most 18 hours).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Group {
    /// The first second of the group; [`NEVER`] for items that do not expire.
    pub(crate) base: Seconds,
    /// Seconds in the group.
    pub(crate) span: Seconds,
}

/// The seconds of the widest group, so that an offset fits 16 bits.
const SPAN_MAX: Seconds = 65536;

impl Group {
    pub(crate) const NEVER: Group = Group { base: NEVER, span: 1 };

    /// The group of `expiry`; each step of `coarser` doubles its seconds.
    #[inline]
    pub(crate) fn of(expiry: Seconds, now: Seconds, coarser: u32) -> Group {
        if expiry == NEVER {
            return Group::NEVER;
        }
        let left = expiry.saturating_sub(now);
        let span: Seconds = match left {
            0..=64 => 1,
            65..=1024 => 16,
            1025..=16384 => 256,
            16385..=262_144 => 4096,
            _ => SPAN_MAX,
        };
        let span = (span << coarser).min(SPAN_MAX);
        Group { base: expiry & !(span - 1), span }
    }

    /// Can this be a group that [`Group::of`] made?
    #[cfg(not(loom))]
    pub(crate) fn is_sound(self) -> bool {
        self == Group::NEVER || self.span.is_power_of_two() && self.span <= SPAN_MAX && self.base <= NEVER - self.span
    }

    /// From this second on every item of the group has expired.
    #[inline]
    pub(crate) fn deadline(self) -> Seconds {
        if self.base == NEVER { NEVER } else { self.base.saturating_add(self.span - 1) }
    }

    #[inline]
    pub(crate) fn offset_of(self, expiry: Seconds) -> Option<u16> {
        (self.span > 1).then(|| (expiry - self.base) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_code_is_exact_for_two_minutes_and_close_after() {
        let opened = 100_000_000;
        for seconds in 0..128 {
            assert_eq!(decode_access(opened, encode_access(opened, opened + seconds)), opened + seconds);
            assert_eq!(decode_access(opened, encode_access(opened, opened - seconds)), opened - seconds);
        }
        let mut seconds = 128u32;
        while seconds < 2_500_000 {
            for last in [opened + seconds, opened - seconds] {
                let code = encode_access(opened, last);
                assert!(code < 1 << 11);
                let back = decode_access(opened, code);
                assert!(back.abs_diff(last) <= seconds / 32, "{seconds} came back as {back}");
            }
            seconds += seconds / 97;
        }
        assert!(encode_access(0, u32::MAX - 1) < 1 << 11);
        assert!(encode_access(u32::MAX - 1, 0) < 1 << 11);
    }

    #[test]
    fn prefix_round_trips_for_every_shape() {
        for key in [&b"k"[..], &[7; 250]] {
            for flags in [0, 1, 255, 256, 65535, 65536, u32::MAX] {
                for expiry_offset in [None, Some(0), Some(65535)] {
                    for (cas, birth, tags) in [
                        (None, None, &[][..]),
                        (Some(1), Some(u64::MAX), &[][..]),
                        (Some(u64::MAX), None, &[5; 8][..]),
                        (None, Some(3), &[6; 8 * TAGS_MAX][..]),
                    ] {
                        for value_bytes in [0, 255, 256, 65535, 65536, 1 << 30] {
                            let (marks, access) = (STALE, 1711);
                            let extras = Extras::new(birth, tags);
                            let extras = extras.bytes();
                            let spec = Spec { key, flags, expiry_offset, cas, extras, value_bytes, marks, access };
                            assert!(spec.prefix_bytes() <= PREFIX_BYTES_MAX);
                            let mut memory = vec![0u32; PREFIX_BYTES_MAX / 4 + 1];
                            let at = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
                            // SAFETY: the vector is aligned, large enough and ours.
                            let record = unsafe {
                                spec.write_prefix(at);
                                RecordRef::new(at)
                            };
                            assert_eq!(record.key(), key);
                            assert_eq!(record.flags(), flags);
                            assert_eq!(record.expiry_offset(), expiry_offset);
                            assert_eq!(record.cas(), cas);
                            assert_eq!((record.birth(), record.tags()), (birth, tags));
                            assert_eq!(record.prefix_bytes(), spec.prefix_bytes());
                            assert_eq!(record.value_bytes(), value_bytes);
                            assert_eq!(record.record_bytes(), spec.record_bytes());
                            assert_eq!(record.marks().access(), 1711);
                            assert!(record.marks().has(STALE) && record.marks().has(DEAD));
                            record.come_alive(WON);
                            assert!(record.marks().has(STALE) && record.marks().has(WON) && !record.marks().has(DEAD));
                            record.die();
                            assert!(record.marks().has(DEAD));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_group_is_one_second_within_the_last_minute_and_at_most_a_quarter_of_the_rest_beyond() {
        for left in [1, 2, 60, 64] {
            let group = Group::of(1_000_007 + left, 1_000_007, 0);
            assert_eq!((group.base, group.span, group.deadline()), (1_000_007 + left, 1, 1_000_007 + left));
        }
        for left in [65, 300, 3600, 86400, 2_592_000] {
            let expiry = 1_000_007 + left;
            let group = Group::of(expiry, 1_000_007, 0);
            assert!(group.base <= expiry && expiry <= group.deadline());
            assert!(group.span <= left.max(64) / 4, "{left}: {group:?}");
            assert_eq!(group.base + u32::from(group.offset_of(expiry).unwrap()), expiry);
            let coarser = Group::of(expiry, 1_000_007, 2);
            assert_eq!(coarser.span, (group.span * 4).min(65536));
            assert!(coarser.base <= expiry && expiry <= coarser.deadline());
        }
        assert_eq!(Group::of(NEVER, 5, 0).deadline(), NEVER);
    }
}
