//! Reading: lookups, and what a caller may do with what they found.
//!
//! A hit takes no lock. It writes its own pin, and of what others share only what changed: the item's rank until it is
//! at its highest, and its last access when the second is another.

use std::{ops::ControlFlow, sync::Arc};

use crate::{
    Seconds,
    epoch::Pin,
    index::{Hash, Place},
    record::{CAS_SEEN, FETCHED, Marks, RecordRef, STALE, WON, encode_access},
    store::{Handle, Miss, Store},
};

/// An item that was found. While it lives the handle is pinned: copy what is wanted, or [`hold`](Hit::hold) it, and let
/// go.
pub struct Hit<'h> {
    store: &'h Arc<Store>,
    _pin: Option<Pin<'h>>,
    record: RecordRef<'h>,
    place: Place,
    expiry: Seconds,
    /// As they were before this access.
    marks: Marks,
}

impl<'h> Hit<'h> {
    pub(crate) fn new(
        store: &'h Arc<Store>,
        pin: Option<Pin<'h>>,
        place: Place,
        record: RecordRef<'h>,
        expiry: Seconds,
        marks: Marks,
    ) -> Hit<'h> {
        Hit { store, _pin: pin, record, place, expiry, marks }
    }

    pub(crate) fn record_ref(&self) -> &RecordRef<'h> {
        &self.record
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.record.key()
    }

    /// The client's flags.
    pub fn flags(&self) -> u32 {
        self.record.flags()
    }

    /// The CAS unique, never 0. Ask only to show it to a client: from then on the item keeps it wherever it moves, which
    /// costs eight bytes.
    pub fn cas(&self) -> u64 {
        if !self.marks.has(CAS_SEEN) {
            self.record.set_marks(CAS_SEEN);
        }
        self.record.cas().unwrap_or_else(|| self.store.log.history(self.place))
    }

    /// The CAS unique of this moment, for dumps of everything: nothing is done to keep it, so that once the item has moved
    /// a comparison with it fails.
    pub fn cas_now(&self) -> u64 {
        self.record.cas().unwrap_or_else(|| self.store.log.history(self.place))
    }

    /// When the item expires, or [`NEVER`](crate::NEVER).
    pub fn expiry(&self) -> Seconds {
        self.expiry
    }

    /// Bytes of the value.
    pub fn value_bytes(&self) -> usize {
        self.record.value_bytes()
    }

    /// The value, when it lies in one piece, as nearly all do.
    #[inline]
    pub fn value_whole(&self) -> Option<&[u8]> {
        let log = &self.store.log;
        let bytes = self.record.value_bytes();
        let offset = log.offset_of(self.place) + self.record.prefix_bytes();
        (offset + bytes <= log.segment_bytes())
            .then(|| self.store.value_part(log.segment_of(self.place), offset, bytes, self))
    }

    /// The value, piece by piece.
    pub fn value(&self) -> Value<'_> {
        Value { store: self.store, parts: Parts::new(self.store, self.place, &self.record), proof: self }
    }

    /// Had the item been fetched before this access?
    pub fn fetched_before(&self) -> bool {
        self.marks.has(FETCHED)
    }

    /// When the item was last fetched or stored, before this access.
    pub fn last_access(&self) -> Seconds {
        self.store.last_access_of(self.place, self.marks)
    }

    /// Was the item invalidated?
    pub fn stale(&self) -> bool {
        self.marks.has(STALE)
    }

    /// Has a client been told to recache it?
    pub fn win_sent(&self) -> bool {
        self.marks.has(WON)
    }

    /// Bytes the item takes in the log.
    pub fn stored_bytes(&self) -> usize {
        self.record.record_bytes()
    }

    /// Keeps the value's memory beyond the hit, for sending it piece by piece. Until it is dropped the segments it lies
    /// in are not used again.
    pub fn hold(&self) -> Held {
        let mut segments = Vec::new();
        self.store.log.record_parts(self.place, self.record.record_bytes(), |id, _| {
            self.store.log.segment(id).hold();
            segments.push(id);
        });
        Held {
            store: Arc::clone(self.store),
            segments,
            first: self.store.log.offset_of(self.place) + self.record.prefix_bytes(),
            value_bytes: self.record.value_bytes(),
        }
    }
}

/// The pieces of a [`Hit`]'s value.
pub struct Value<'v> {
    store: &'v Store,
    parts: Parts<'v>,
    proof: &'v Hit<'v>,
}

impl<'v> Iterator for Value<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        let (id, offset, bytes) = self.parts.next()?;
        Some(self.store.value_part(id, offset, bytes, self.proof))
    }
}

/// Where the parts of a value lie.
struct Parts<'s> {
    store: &'s Store,
    id: u32,
    offset: usize,
    left: usize,
}

impl<'s> Parts<'s> {
    fn new(store: &'s Store, place: Place, record: &RecordRef<'_>) -> Parts<'s> {
        Parts {
            store,
            id: store.log.segment_of(place),
            offset: store.log.offset_of(place) + record.prefix_bytes(),
            left: record.value_bytes(),
        }
    }
}

impl Iterator for Parts<'_> {
    type Item = (u32, usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let log = &self.store.log;
        if self.offset == log.segment_bytes() {
            self.id = log.segment(self.id).next();
            self.offset = crate::log::SEGMENT_HEADER_BYTES;
        }
        let bytes = self.left.min(log.segment_bytes() - self.offset);
        let part = (self.id, self.offset, bytes);
        self.offset += bytes;
        self.left -= bytes;
        Some(part)
    }
}

/// A value whose memory is kept while it is sent. Drop it soon: its segments cannot be used again before.
pub struct Held {
    store: Arc<Store>,
    segments: Vec<u32>,
    /// Offset of the value in the first segment.
    first: usize,
    value_bytes: usize,
}

impl Held {
    /// Bytes of the value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// The longest piece of the value that starts at `offset`; empty at its end.
    pub fn piece(&self, offset: usize) -> &[u8] {
        if offset >= self.value_bytes {
            return &[];
        }
        let log = &self.store.log;
        let in_first = log.segment_bytes() - self.first;
        let (id, at) = if offset < in_first {
            (self.segments[0], self.first + offset)
        } else {
            let rest = offset - in_first;
            (self.segments[1 + rest / log.room_bytes()], crate::log::SEGMENT_HEADER_BYTES + rest % log.room_bytes())
        };
        let bytes = (self.value_bytes - offset).min(log.segment_bytes() - at);
        self.store.value_part(id, at, bytes, self)
    }

    /// The pieces from `offset` on.
    pub fn pieces(&self, offset: usize) -> Pieces<'_> {
        Pieces { held: self, offset }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for &id in &self.segments {
            self.store.log.segment(id).release_hold();
        }
    }
}

/// The pieces of a [`Held`] value.
pub struct Pieces<'v> {
    held: &'v Held,
    offset: usize,
}

impl<'v> Iterator for Pieces<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        let piece = self.held.piece(self.offset);
        self.offset += piece.len();
        (!piece.is_empty()).then_some(piece)
    }
}

impl Handle {
    /// Looks an item up and counts it as fetched.
    #[inline]
    pub fn get(&mut self, key: &[u8], now: Seconds) -> Option<Hit<'_>> {
        self.look_up(key, now, true)
    }

    /// Looks an item up and leaves no trace of it.
    pub fn peek(&mut self, key: &[u8], now: Seconds) -> Option<Hit<'_>> {
        self.look_up(key, now, false)
    }

    #[inline]
    fn look_up(&mut self, key: &[u8], now: Seconds, bump: bool) -> Option<Hit<'_>> {
        let store = &self.store;
        store.notice_flush(now);
        let hash = store.hash(key);
        let pin = self.reader.pin(&store.epochs);
        match find(store, hash, key, now, bump) {
            Ok(mut hit) => {
                hit._pin = Some(pin);
                Some(hit)
            }
            Err(miss) => {
                self.miss = miss;
                None
            }
        }
    }

    /// Looks several items up and counts them as fetched, in the order of `keys`, until `each` breaks off; answers how
    /// many it was called for. Cheaper than one by one: while one is answered, memory brings the others.
    ///
    /// The handle is pinned throughout, so `each` should do no more than copy or [`hold`](Hit::hold).
    pub fn get_many(
        &mut self,
        keys: &[&[u8]],
        now: Seconds,
        mut each: impl FnMut(usize, Result<Hit<'_>, Miss>) -> ControlFlow<()>,
    ) -> usize {
        let store = &self.store;
        store.notice_flush(now);
        let mut done = 0;
        for group in keys.chunks(GROUP_KEYS) {
            let mut hashes = [Hash::default(); GROUP_KEYS];
            for (hash, key) in hashes.iter_mut().zip(group) {
                *hash = store.hash(key);
                store.index.prefetch(*hash);
            }
            for hash in &hashes[..group.len()] {
                if let Some(place) = store.index.guess(*hash) {
                    store.log.prefetch_read(place);
                }
            }
            let _pin = self.reader.pin(&store.epochs);
            for (hash, key) in hashes.iter().zip(group) {
                done += 1;
                if each(done - 1, find(store, *hash, key, now, true)).is_break() {
                    return done;
                }
            }
        }
        done
    }
}

/// Keys of which [`Handle::get_many`] brings the memory closer together. Two buckets, a segment and three lines of a record
/// for each are as many lines as processors wait for at a time, several times over.
pub const GROUP_KEYS: usize = 16;

/// Finds an item. The caller is pinned, and stays so while it uses the hit.
#[inline]
fn find<'h>(store: &'h Arc<Store>, hash: Hash, key: &[u8], now: Seconds, bump: bool) -> Result<Hit<'h>, Miss> {
    let mut record = None;
    let found = store.index.find(hash, |place| {
        store.log.prefetch_read(place);
        let candidate = store.record(place, store);
        record = Some(candidate);
        candidate.key() == key
    });
    let (Some(found), Some(record)) = (found, record) else { return Err(Miss::Absent) };
    let expiry = store.visible(found.place, &record, now)?;
    let marks = record.marks();
    if bump {
        found.raise_rank();
        let opened = store.segment_of(found.place).opened();
        record.note_access(marks, encode_access(opened, now));
    }
    Ok(Hit::new(store, None, found.place, record, expiry, marks))
}
