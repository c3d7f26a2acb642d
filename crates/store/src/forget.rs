//! Forgetting all items of a prefix, or with a tag, in constant time.
//!
//! Owns what a prefix is and how it and a tag become a hash, which records a watermark (see `watermarks`) means, and the
//! sweep that gives their memory back. A key belongs to every prefix of it that ends with the delimiter, of which the first
//! [`PREFIX_LEVELS`] count; a tag is a hash in the item's record.
//!
//! Every record has a *birth*: the number of its segment's opening, or one of its own. What is forgotten is what was born
//! before the watermark of one of its prefixes or tags.
//!
//! | who | does | so that |
//! |---|---|---|
//! | who forgets | stores the watermark, then raises the number that is given next | every later birth is above it |
//! | who writes, or copies, a record | reads the number of its birth; later, under its shard's lock, looks the watermarks up, of the new record and of the one it replaces or copies | a forgetting in between is seen by one of the two |
//! | who reads | looks the watermarks up, if the segment is older than the newest of them | what was never forgotten costs one comparison |
//! | the sweep | looks at every sealed segment that is older than a watermark, waits for those that are not sealed, then for the readers that may have seen what it dropped, and takes the watermark out | the table holds what was forgotten of late |
//!
//! A birth of its own (nine bytes) is written only while the item's own prefix or tag is in the table.
//!
//! A start drops what was forgotten while it reads the log, and begins with an empty table.

use std::{
    fmt,
    sync::atomic::{AtomicU8, AtomicU64},
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

use crate::{
    Seconds,
    epoch::Reader,
    head::Page,
    record::RecordRef,
    segment::{Phase, Segment},
    stats::Counters,
    store::{Handle, Miss, Store},
    sync::{Mutex, Ordering},
};

/// Prefixes of a key that can be forgotten: those that end with one of its first so many delimiters.
pub const PREFIX_LEVELS: usize = 4;
/// The longest prefix and the longest tag, in bytes.
pub const FORGET_BYTES_MAX: usize = crate::KEY_BYTES_MAX;
/// The most tags of an item.
pub const TAGS_MAX: usize = 8;

/// Bytes of segments that [`Handle::maintain`] looks through in one call.
const SWEEP_BYTES: usize = 16 << 20;

/// Why nothing was forgotten, or an item not given its tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ForgetError {
    /// A prefix that no key has: it does not end with the delimiter.
    NotAPrefix {
        /// The delimiter of this store.
        delimiter: u8,
    },
    /// It ends with a later delimiter than those that are looked at.
    TooDeep,
    /// Empty, or longer than [`FORGET_BYTES_MAX`].
    Length,
    /// More than [`TAGS_MAX`].
    TooManyTags,
}

impl fmt::Display for ForgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForgetError::NotAPrefix { delimiter } => {
                write!(f, "expected a prefix that ends with '{}'", delimiter.escape_ascii())
            }
            ForgetError::TooDeep => write!(f, "expected a prefix with at most {PREFIX_LEVELS} delimiters"),
            ForgetError::Length => write!(f, "expected 1 to {FORGET_BYTES_MAX} bytes of prefix or tag"),
            ForgetError::TooManyTags => write!(f, "expected at most {TAGS_MAX} tags"),
        }
    }
}

impl std::error::Error for ForgetError {}

/// The tags an item is stored with, as their hashes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Tags {
    count: usize,
    hashes: [[u8; 8]; TAGS_MAX],
}

impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tags").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Tags {
    /// None.
    pub const NONE: Tags = Tags { count: 0, hashes: [[0; 8]; TAGS_MAX] };

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// As they lie in a record.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.hashes[..self.count].as_flattened()
    }

    /// Those of a record, if it has some, as hardly any has.
    #[inline]
    pub(crate) fn of(record: &RecordRef<'_>) -> Option<Box<Tags>> {
        if record.has_extras() { Tags::of_extras(*record) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn of_extras(record: RecordRef<'_>) -> Option<Box<Tags>> {
        let mut tags = Tags::NONE;
        for hash in record.tags().chunks_exact(8) {
            tags.hashes[tags.count].copy_from_slice(hash);
            tags.count += 1;
        }
        (tags.count > 0).then(|| Box::new(tags))
    }

    /// As they lie in a record, of one that may have none.
    #[inline]
    pub(crate) fn bytes_of(tags: Option<&Tags>) -> &[u8] {
        tags.map_or(&[], Tags::bytes)
    }
}

/// What a store needs to forget.
pub(crate) struct Forgets {
    secrets: RapidSecrets,
    /// The one that the marks in the table were made with.
    delimiter: AtomicU8,
    sweep: Mutex<Sweep>,
    prefixes: AtomicU64,
    tags: AtomicU64,
    folded: AtomicU64,
}

/// How far the sweep is.
#[derive(Default)]
struct Sweep {
    /// The highest watermark when the pass began; 0: none is going on.
    upto: u64,
    /// The next segment to look at.
    next: u32,
    /// Segments that could not be looked at, with their sequence numbers.
    left: Vec<(u32, u64)>,
    /// The pass is over, in this epoch: readers that began earlier may have seen what it dropped.
    over: Option<u64>,
}

/// What a look at a segment came to.
enum Swept {
    /// So many bytes were looked through.
    Done(usize),
    /// Not sealed yet, or somebody else's, in this opening.
    Later(u64),
}

impl Forgets {
    /// With what the marks in the memory were made with, or for memory that is new, with these.
    pub(crate) fn new(page: &Page, seed: u64, delimiter: u8) -> Forgets {
        if page.forget_seed.load(Ordering::Relaxed) == 0 {
            page.delimiter.store(delimiter.into(), Ordering::Relaxed);
            // Never 0, which is a page's that was not filled in; last, for a start after a crash in between.
            page.forget_seed.store(seed | 1, Ordering::Release);
        }
        Forgets {
            secrets: RapidSecrets::seed_cpp(page.forget_seed.load(Ordering::Relaxed)),
            delimiter: AtomicU8::new(page.delimiter.load(Ordering::Relaxed) as u8),
            sweep: Mutex::new(Sweep::default()),
            prefixes: AtomicU64::new(0),
            tags: AtomicU64::new(0),
            folded: AtomicU64::new(0),
        }
    }

    fn hash_of_prefix(&self, prefix: &[u8]) -> u64 {
        rapidhash_v3_inline::<true, false, false>(prefix, &self.secrets)
    }

    fn hash_of_tag(&self, tag: &[u8]) -> u64 {
        // The complement, so that a tag is never taken for a prefix of the same name.
        !self.hash_of_prefix(tag)
    }

    fn delimiter(&self) -> u8 {
        self.delimiter.load(Ordering::Relaxed)
    }

    pub(crate) fn commands(&self) -> [u64; 3] {
        [&self.prefixes, &self.tags, &self.folded].map(|count| count.load(Ordering::Relaxed))
    }
}

/// The prefixes of a key that can be forgotten.
fn prefixes(key: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> {
    let ends = key.iter().enumerate().filter(move |&(_, &byte)| byte == delimiter).map(|(at, _)| at + 1);
    ends.take(PREFIX_LEVELS).map(|end| &key[..end])
}

impl Store {
    /// Forgets every item whose key begins with `prefix`, which ends with the delimiter ([`Config::prefix_delimiter`]), and
    /// that was stored before this call. In constant time: nobody sees them from now on, and their memory comes back by
    /// and by. Answers a number that no earlier call has answered, and none a higher one.
    ///
    /// [`Config::prefix_delimiter`]: crate::Config::prefix_delimiter
    ///
    /// # Errors
    /// No key belongs to such a prefix.
    pub fn forget_prefix(&self, prefix: &[u8]) -> Result<u64, ForgetError> {
        check_length(prefix)?;
        let delimiter = self.forgets.delimiter();
        if prefix.last() != Some(&delimiter) {
            return Err(ForgetError::NotAPrefix { delimiter });
        }
        if prefixes(prefix, delimiter).all(|one| one.len() < prefix.len()) {
            return Err(ForgetError::TooDeep);
        }
        self.forgets.prefixes.fetch_add(1, Ordering::Relaxed);
        Ok(self.forget(self.forgets.hash_of_prefix(prefix)))
    }

    /// As [`Store::forget_prefix`], the items that were stored with this tag ([`Handle::set_tagged`]).
    ///
    /// # Errors
    /// No item can have such a tag.
    pub fn forget_tag(&self, tag: &[u8]) -> Result<u64, ForgetError> {
        check_length(tag)?;
        self.forgets.tags.fetch_add(1, Ordering::Relaxed);
        Ok(self.forget(self.forgets.hash_of_tag(tag)))
    }

    /// The tags of these names, to store an item with. One that is named twice counts once.
    ///
    /// # Errors
    /// Too many, or one that is empty or too long.
    pub fn tags<'n>(&self, names: impl IntoIterator<Item = &'n [u8]>) -> Result<Tags, ForgetError> {
        let mut tags = Tags::NONE;
        for name in names {
            check_length(name)?;
            let hash = self.forgets.hash_of_tag(name).to_le_bytes();
            if tags.hashes[..tags.count].contains(&hash) {
                continue;
            }
            *tags.hashes.get_mut(tags.count).ok_or(ForgetError::TooManyTags)? = hash;
            tags.count += 1;
        }
        Ok(tags)
    }

    fn forget(&self, hash: u64) -> u64 {
        let (below, folded) = self.log.forget(hash);
        self.forgets.folded.fetch_add(u64::from(folded), Ordering::Relaxed);
        below
    }

    /// The highest watermark of a key's prefixes and of tags; 0: nothing of them was forgotten of late.
    #[cold]
    #[inline(never)]
    pub(crate) fn watermark(&self, key: &[u8], tags: &[u8]) -> u64 {
        let table = self.log.watermarks();
        let of_prefixes = prefixes(key, self.forgets.delimiter()).map(|prefix| self.forgets.hash_of_prefix(prefix));
        let of_tags = tags.chunks_exact(8).map(|hash| hash.try_into().map_or(0, u64::from_le_bytes));
        of_prefixes.chain(of_tags).map(|hash| table.below(hash)).max().unwrap_or(0)
    }

    /// Why a record of a segment that is older than a flush or a watermark is not to be shown, if it is not.
    #[cold]
    #[inline(never)]
    pub(crate) fn suspected(&self, segment: &Segment, record: RecordRef<'_>) -> Option<Miss> {
        if self.log.is_flushed(segment) {
            return Some(Miss::Flushed);
        }
        self.is_forgotten(segment, record).then_some(Miss::Forgotten)
    }

    /// Was a record forgotten?
    #[inline]
    pub(crate) fn is_forgotten(&self, segment: &Segment, record: RecordRef<'_>) -> bool {
        segment.sequence() < self.log.newest_watermark() && self.is_older(segment, record)
    }

    #[cold]
    #[inline(never)]
    fn is_older(&self, segment: &Segment, record: RecordRef<'_>) -> bool {
        let birth = record.birth().unwrap_or_else(|| segment.sequence());
        birth < self.watermark(record.key(), record.tags())
    }

    /// Looks through some segments for items that were forgotten, and takes watermarks out that forget nothing any more.
    /// The caller is not pinned.
    pub(crate) fn sweep(&self, reader: &Reader, counters: &Counters) {
        let newest = self.log.newest_watermark();
        if newest == 0 {
            return;
        }
        let sweep = &mut *self.forgets.sweep.lock();
        if let Some(epoch) = sweep.over {
            if epoch >= self.epochs.safe_below() {
                return;
            }
            self.log.forgotten_upto(sweep.upto);
            *sweep = Sweep::default();
            return;
        }
        if sweep.upto == 0 {
            sweep.upto = newest;
        }
        let upto = sweep.upto;
        let mut bytes = 0;
        // Segments beyond this one were opened after the pass began, and so above its watermark.
        let end = self.log.page().fresh.load(Ordering::Acquire);
        while sweep.next < end && bytes < SWEEP_BYTES {
            match self.sweep_segment(sweep.next, upto, reader, counters) {
                Swept::Done(done) => bytes += done,
                Swept::Later(sequence) => sweep.left.push((sweep.next, sequence)),
            }
            sweep.next += 1;
        }
        if sweep.next < end {
            return;
        }
        sweep.left.retain(|&(id, sequence)| {
            if bytes >= SWEEP_BYTES {
                return true;
            }
            if self.log.segment(id).sequence() != sequence {
                return false;
            }
            match self.sweep_segment(id, upto, reader, counters) {
                Swept::Done(done) => {
                    bytes += done;
                    false
                }
                Swept::Later(_) => true,
            }
        });
        if sweep.left.is_empty() {
            sweep.over = Some(self.epochs.retire());
        }
    }

    /// Drops what was forgotten of a segment, if it is sealed and what was placed there is published or dead.
    fn sweep_segment(&self, id: u32, upto: u64, reader: &Reader, counters: &Counters) -> Swept {
        let segment = self.log.segment(id);
        // Found sealed while pinned, it is not used again before the pin is gone.
        let _pin = reader.pin(&self.epochs);
        let phase = segment.phase();
        let sequence = segment.sequence();
        match phase {
            Phase::Settled if sequence < upto => {}
            Phase::Busy if sequence < upto => return Swept::Later(sequence),
            _ => return Swept::Done(0),
        }
        self.each_record(id, |place, record| {
            if !self.is_forgotten(segment, record) {
                return;
            }
            let hash = self.hash(record.key());
            let mut shard = self.index.lock(hash);
            if let Some(entry) = shard.find(hash, |candidate| candidate == place) {
                self.drop_gone(&mut shard, entry, &record, Miss::Forgotten, counters);
            }
        });
        Swept::Done(segment.used())
    }

    /// Begins anew, with a delimiter, after everything forgotten was left out by a start.
    pub(crate) fn forgotten_by_a_start(&self) {
        self.log.forgotten_upto(u64::MAX);
        let delimiter = self.config().prefix_delimiter;
        self.log.page().delimiter.store(delimiter.into(), Ordering::Relaxed);
        self.forgets.delimiter.store(delimiter, Ordering::Relaxed);
    }
}

impl Handle {
    /// [`Handle::set`] of an item with tags. Append and prepend keep the item's own, unless they make a new one.
    pub fn set_tagged(
        &mut self,
        key: &[u8],
        value: &[u8],
        options: &crate::SetOptions,
        tags: &Tags,
        now: Seconds,
    ) -> crate::SetOutcome {
        self.set_with(key, value, options, tags.bytes(), now)
    }
}

fn check_length(name: &[u8]) -> Result<(), ForgetError> {
    if (1..=FORGET_BYTES_MAX).contains(&name.len()) { Ok(()) } else { Err(ForgetError::Length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Config, NEVER, SetMode, SetOptions,
        log::Purpose,
        place::Item,
        segment::Queue,
        write::{Condition, Published},
    };

    #[test]
    fn a_key_belongs_to_each_prefix_up_to_its_fourth_delimiter() {
        let of = |key: &'static str| {
            prefixes(key.as_bytes(), b':').map(|prefix| std::str::from_utf8(prefix).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of("key"), [""; 0]);
        assert_eq!(of("bin:key"), ["bin:"]);
        assert_eq!(of("a:b:key"), ["a:", "a:b:"]);
        assert_eq!(of(":x::"), [":", ":x:", ":x::"]);
        assert_eq!(of("1:2:3:4:5:6"), ["1:", "1:2:", "1:2:3:", "1:2:3:4:"]);
    }

    #[test]
    fn a_forgetting_between_two_steps_of_a_copy_or_a_write_is_seen() {
        let store = Store::new(Config::new(4 << 20)).unwrap();
        let mut handle = store.handle();
        let options = SetOptions { mode: SetMode::Add, ..SetOptions::default() };
        handle.set(b"bin:copied", b"1", &options, 1);
        let hash = store.hash(b"bin:copied");
        let place = store.index.lock(hash).find(hash, |_| true).unwrap().place;
        let item = Item::new(b"bin:written", 0, NEVER, 3, 1);
        let lane = &mut handle.lane.lock();
        let placed = store.place(lane, &handle.counters, Queue::Probation, &item, Purpose::Write, false, 1).unwrap();
        // Both were found, or made, before this, and are published after it.
        store.forget_prefix(b"bin:").unwrap();
        let record = store.record(place, &());
        assert!(store.move_on(lane, &handle.counters, place, &record, Queue::Main, 0, 1));
        assert!(store.index.lock(hash).find(hash, |_| true).is_none());
        let published = store.publish(&handle.counters, &placed, Condition::Options(&options), 0, false, 1);
        assert!(matches!(published, Published::Changed), "an add that is stored and gone would be neither");
        store.abandon(None, placed);
        assert_eq!((store.stats().items, store.stats().forgotten), (0, 1));
    }

    #[test]
    fn errors_say_what_was_expected() {
        let store = Store::new(Config::new(4 << 20)).unwrap();
        let said = |error: ForgetError| error.to_string();
        assert_eq!(store.forget_prefix(b"bin").map_err(said), Err("expected a prefix that ends with ':'".into()));
        assert_eq!(
            store.forget_prefix(b"1:2:3:4:5:").map_err(said),
            Err("expected a prefix with at most 4 delimiters".into())
        );
        for name in [&b""[..], &[b':'; 251]] {
            let expected = Err("expected 1 to 250 bytes of prefix or tag".into());
            assert_eq!(store.forget_prefix(name).map_err(said), expected);
            assert_eq!(store.forget_tag(name).map_err(said), expected);
        }
        let names = (0..9).map(|n| [b'0' + n]).collect::<Vec<_>>();
        let tags = store.tags(names.iter().map(|name| &name[..]));
        assert_eq!(tags.map_err(said), Err("expected at most 8 tags".into()));
        assert_eq!(store.tags([&b"a"[..], b"b", b"a"]).unwrap().count(), 2);
    }
}
