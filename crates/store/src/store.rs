//! The store: its parts put together, its handles, and what every operation needs of them.
//!
//! Owns the parts and the order in which they are used: lane, then the judgement of `age`, then shard, then the log's
//! list. Operations live in the modules beside this one (`read`, `write`, `arith`, `delete`, `meta`, `touch`, `scan`),
//! eviction in `evict`.
//!
//! What never happens here: reading a clock (seconds are passed in), knowing a protocol, using a file but through `file`.

use std::{
    fmt, io,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

use crate::{
    KEY_BYTES_MAX, NEVER, Seconds,
    age::Age,
    epoch::{Epochs, Reader},
    file::{Memory, MemoryFile},
    forget::Forgets,
    index::{Hash, Index, PLACE_BITS, Place},
    log::{Lane, Log},
    policy::Policy,
    record::{ALIGN, Marks, RecordRef, decode_access},
    restore::{Progress, Restored},
    segment::Segment,
    stats::{Blocks, Counters, Stats},
    sync::{AtomicU32, AtomicU64, Mutex, Ordering, Padded},
};

/// The smallest budget: below it segments and index would not leave room for items.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;
/// The smallest and the largest limit on one item.
pub const ITEM_BYTES_MIN: usize = 1 << 10;
/// See [`ITEM_BYTES_MIN`].
pub const ITEM_BYTES_MAX: usize = 1 << 30;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// The budget: index, segments and headers together, in bytes.
    pub memory_bytes: usize,
    /// How far [`Store::set_memory_limit`] may ever raise the budget. Address space is reserved for it, no memory.
    /// At least `memory_bytes` is taken.
    pub memory_bytes_max: usize,
    /// The largest item: key, value and header, in bytes.
    pub item_bytes_max: usize,
    /// Drop items to make room for new ones; otherwise a full store refuses writes.
    pub evict: bool,
    /// How many threads will write.
    pub handles_hint: usize,
    /// What keys are hashed with, so that nobody can choose keys that collide.
    pub hash_seed: u64,
    /// Ask the system for huge pages.
    pub huge_pages: bool,
    /// What ends the prefixes of a key that can be forgotten ([`Store::forget_prefix`]).
    pub prefix_delimiter: u8,
}

impl Config {
    /// A store of `memory_bytes` with memcached's defaults: items to 1 MiB, eviction, four writers.
    pub fn new(memory_bytes: usize) -> Config {
        Config {
            memory_bytes,
            memory_bytes_max: memory_bytes,
            item_bytes_max: 1 << 20,
            evict: true,
            handles_hint: 4,
            hash_seed: 0x6e75_7468_6174_6368,
            huge_pages: false,
            prefix_delimiter: b':',
        }
    }
}

/// Why a store cannot be made or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The budget is below the least or above the most that is possible.
    MemoryOutOfRange {
        /// The budget asked for, in bytes.
        asked: usize,
        /// The least, in bytes.
        least: usize,
        /// The most, in bytes.
        most: usize,
    },
    /// The item limit is outside its bounds.
    ItemOutOfRange {
        /// The limit asked for, in bytes.
        asked: usize,
        /// The most it can be with this budget, in bytes.
        most: usize,
    },
    /// The system does not give the address space.
    Reserve(io::Error),
    /// The system does not let a memory file be used.
    File(io::Error),
    /// A file that was to be a memory file holds something else.
    NotAMemoryFile,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::MemoryOutOfRange { asked, least, most } => {
                write!(f, "a memory limit of {asked} bytes is not possible here: expected {least} to {most} bytes")
            }
            StoreError::ItemOutOfRange { asked, most } => write!(
                f,
                "an item limit of {asked} bytes is not possible here: expected {ITEM_BYTES_MIN} to {most} bytes \
                 (at most half of the memory)"
            ),
            StoreError::Reserve(error) => write!(f, "the system refused address space for the store: {error}"),
            StoreError::File(error) => write!(f, "the system would not have this file used as memory: {error}"),
            StoreError::NotAMemoryFile => {
                f.write_str("expected an empty file or one of this server's, and it holds something else")
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        StoreError::Reserve(error)
    }
}

/// An item that is about to be evicted, as a watcher sees it.
#[derive(Clone, Copy, Debug)]
pub struct EvictedItem<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Was it fetched since it was stored?
    pub fetched: bool,
    /// Was it fetched more than once of late?
    pub active: bool,
    /// When it would have expired, or [`NEVER`].
    pub expiry: Seconds,
    /// When it was last fetched or stored.
    pub last_access: Seconds,
    /// Bytes of its value.
    pub value_bytes: usize,
}

/// Is told what the store does of its own accord. Called inside the store's critical sections: note it and return.
pub trait Events: Send + Sync {
    /// An item is evicted.
    fn evicted(&self, item: &EvictedItem<'_>);
}

/// A concurrent cache in one memory budget. See the crate's documentation.
pub struct Store {
    config: Config,
    /// What [`Store::set_item_limit`] and [`Store::set_evict`] change.
    item_bytes_max: AtomicUsize,
    evict: AtomicBool,
    pub(crate) index: Index,
    pub(crate) log: Log,
    pub(crate) epochs: Epochs,
    pub(crate) policy: Policy,
    pub(crate) age: Age,
    pub(crate) forgets: Forgets,
    lanes: Mutex<Vec<Arc<Padded<Mutex<Lane>>>>>,
    blocks: Blocks,
    secrets: RapidSecrets,
    /// The second at which a delayed flush takes effect, or `NEVER`.
    flush_at: AtomicU32,
    events_on: AtomicBool,
    events: RwLock<Option<Arc<dyn Events>>>,
    /// Deaths of records, counted only where eviction is off, and their number when compaction last found nothing.
    deaths: AtomicU64,
    packed_at: AtomicU64,
}

#[cfg(test)]
impl Store {
    /// What is left when the process is killed now.
    pub(crate) fn crashed(&self) -> Memory {
        self.log.memory().crashed()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Store {
    /// Makes an empty store.
    ///
    /// # Errors
    /// A limit is out of bounds, or the system refuses the address space.
    pub fn new(config: Config) -> Result<Arc<Store>, StoreError> {
        Store::assemble(config, |limit, limit_max| Ok(Memory::anonymous(limit, limit_max)?))
    }

    /// Makes a store in a file, with the items that are in it.
    ///
    /// Items are found again by a store that is opened later if this one was closed ([`Store::close`]) or its process
    /// killed; after the machine itself stopped, only if it was closed. The caller's clock has to go on from one to the
    /// other, as UNIX seconds do. `now` is its reading; what has expired by then is left out. `progress` is told now and
    /// then how far the reading is.
    ///
    /// # Errors
    /// A limit is out of bounds, the file is not a memory file, or the system refuses it.
    pub fn open(
        config: Config,
        file: MemoryFile,
        now: Seconds,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Arc<Store>, Restored), StoreError> {
        let mut emptied = None;
        let store = Store::assemble(config, |limit, limit_max| {
            let (memory, why) = Memory::of_file(file, limit, limit_max)?;
            emptied = why;
            Ok(memory)
        })?;
        let mut restored = store.restore(now, progress);
        restored.emptied = emptied;
        Ok((store, restored))
    }

    /// Leaves everything in the file for a later start, even of the machine. All handles are gone by then, and the store
    /// is only dropped afterwards. Without a file it does nothing.
    ///
    /// # Errors
    /// The device would not take it; or a handle is left, and what is written through it might not be kept.
    pub fn close(&self, now: Seconds) -> io::Result<()> {
        if !self.lanes.lock().is_empty() {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "expected nobody to use the store any more"));
        }
        self.log.page().now.fetch_max(now, Ordering::Relaxed);
        self.log.page().items.store(self.blocks.items(), Ordering::Relaxed);
        self.log.close()
    }

    pub(crate) fn assemble(
        config: Config,
        memory: impl FnOnce(usize, usize) -> Result<Memory, StoreError>,
    ) -> Result<Arc<Store>, StoreError> {
        let most = 1usize << (PLACE_BITS + ALIGN.trailing_zeros());
        if !(MEMORY_BYTES_MIN..=most).contains(&config.memory_bytes) {
            return Err(StoreError::MemoryOutOfRange { asked: config.memory_bytes, least: MEMORY_BYTES_MIN, most });
        }
        check_item_limit(config.item_bytes_max, config.memory_bytes)?;
        let memory_max = config.memory_bytes_max.max(config.memory_bytes).min(most);
        // The densest use: keys of a few bytes and empty values, some 20 bytes of memory each.
        let index = Index::new(config.memory_bytes / 72, memory_max / 20)?;
        let policy = Policy::new(config.memory_bytes)?;
        let memory = memory(config.memory_bytes, memory_max)?;
        let log = Log::new(memory, config.memory_bytes, policy.bytes(), config.handles_hint)?;
        if config.huge_pages {
            log.huge_pages();
        }
        let flush_at = log.page().flush_at.load(Ordering::Relaxed);
        Ok(Arc::new(Store {
            secrets: RapidSecrets::seed_cpp(config.hash_seed),
            forgets: Forgets::new(log.page(), config.hash_seed, config.prefix_delimiter),
            item_bytes_max: AtomicUsize::new(config.item_bytes_max),
            evict: AtomicBool::new(config.evict),
            config,
            index,
            log,
            epochs: Epochs::new(),
            policy,
            age: Age::new(),
            lanes: Mutex::new(Vec::new()),
            blocks: Blocks::default(),
            flush_at: AtomicU32::new(flush_at),
            events_on: AtomicBool::new(false),
            events: RwLock::new(None),
            deaths: AtomicU64::new(0),
            packed_at: AtomicU64::new(u64::MAX),
        }))
    }

    /// A handle for one thread.
    pub fn handle(self: &Arc<Self>) -> Handle {
        let lane = Arc::new(Padded(Mutex::new(Lane::default())));
        self.lanes.lock().push(Arc::clone(&lane));
        Handle {
            reader: self.epochs.reader(),
            lane,
            counters: self.blocks.block(),
            miss: Miss::Absent,
            store: Arc::clone(self),
        }
    }

    /// Changes the budget while running. A smaller one takes effect as [`Handle::maintain`] and writes make room.
    ///
    /// # Errors
    /// Out of bounds: see [`Config::memory_bytes_max`]. Or the system refuses a longer memory file.
    pub fn set_memory_limit(&self, memory_bytes: usize) -> Result<(), StoreError> {
        let most = self.log.limit_max();
        if !(MEMORY_BYTES_MIN..=most).contains(&memory_bytes) {
            return Err(StoreError::MemoryOutOfRange { asked: memory_bytes, least: MEMORY_BYTES_MIN, most });
        }
        self.log.set_limit(memory_bytes)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The budget, in bytes.
    pub fn memory_limit(&self) -> usize {
        self.log.limit()
    }

    /// The largest item, in bytes.
    pub fn item_bytes_max(&self) -> usize {
        self.item_bytes_max.load(Ordering::Relaxed)
    }

    /// Changes the largest item while running, for what is stored from now on.
    ///
    /// # Errors
    /// Out of bounds, which depend on the budget of the moment.
    pub fn set_item_limit(&self, item_bytes_max: usize) -> Result<(), StoreError> {
        check_item_limit(item_bytes_max, self.memory_limit())?;
        self.item_bytes_max.store(item_bytes_max, Ordering::Relaxed);
        Ok(())
    }

    /// Whether a full store drops items to make room.
    pub fn evicts(&self) -> bool {
        self.evict.load(Ordering::Relaxed)
    }

    /// Changes that while running.
    pub fn set_evict(&self, evict: bool) {
        // Nobody counted deaths while it evicted: what the last look found means nothing now.
        self.set_packed_at(u64::MAX);
        self.evict.store(evict, Ordering::Relaxed);
    }

    /// Forgets everything stored before this call, and a [`Store::flush_at`] whose time has not come.
    pub fn flush(&self, now: Seconds) {
        self.set_flush_at(NEVER);
        self.forget_all(now);
    }

    /// Also where a later start finds it.
    fn set_flush_at(&self, at: Seconds) {
        self.flush_at.store(at, Ordering::Release);
        self.log.page().flush_at.store(at, Ordering::Release);
    }

    fn forget_all(&self, now: Seconds) {
        // All lanes stay locked until the bound is raised, so that whatever is written later lies in a later segment.
        let lanes = self.lanes.lock();
        let mut locked: Vec<_> = lanes.iter().map(|lane| lane.lock()).collect();
        for lane in &mut locked {
            for open in self.log.overdue(Some(lane), now, true) {
                self.seal(&open);
            }
        }
        for open in self.log.overdue(None, now, true) {
            self.seal(&open);
        }
        self.log.flush();
    }

    /// Forgets, from second `at` on, everything stored before that. A later call replaces an earlier one whose time has
    /// not come at `now`.
    pub fn flush_at(&self, at: Seconds, now: Seconds) {
        self.notice_flush(now);
        self.set_flush_at(at);
        self.notice_flush(now);
    }

    /// Does a delayed flush that is due.
    #[inline]
    pub(crate) fn notice_flush(&self, now: Seconds) {
        let at = self.flush_at.load(Ordering::Relaxed);
        if at <= now {
            self.flush_due(at, now);
        }
    }

    #[cold]
    fn flush_due(&self, at: Seconds, now: Seconds) {
        if at != NEVER && self.flush_at.compare_exchange(at, NEVER, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.forget_all(now);
            // Only now: a start after a crash in between does it again. Unless a later one has been asked for.
            let kept = &self.log.page().flush_at;
            let _ = kept.compare_exchange(at, NEVER, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The numbers of this moment.
    pub fn stats(&self) -> Stats {
        let census = self.log.census();
        let index_bytes = self.index.bytes();
        let segment = self.log.segment_bytes() + size_of::<Segment>();
        let mut stats = Stats {
            memory_limit: self.log.limit() as u64,
            memory_used: (census.held * segment + index_bytes + self.log.fixed_bytes()) as u64,
            index_bytes: index_bytes as u64,
            index_slots: self.index.slots_total() as u64,
            segment_bytes: self.log.segment_bytes() as u64,
            segments_total: census.held as u64,
            segments_free: census.free as u64,
            segments_probation: census.sealed[0] as u64,
            segments_main: census.sealed[1] as u64,
            file_full: self.log.file_full(),
            ..Stats::default()
        };
        self.blocks.fill(&mut stats);
        [stats.forget_prefix, stats.forget_tag, stats.forget_folded] = self.forgets.commands();
        if self.log.newest_watermark() != 0 {
            stats.forget_marks = self.log.watermarks().marks() as u64;
        }
        stats
    }

    /// Bytes of the records of all items.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    /// Has evictions reported to `events`, or to nobody. Off costs nothing.
    pub fn set_events(&self, events: Option<Arc<dyn Events>>) {
        let mut slot = self.events.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.events_on.store(events.is_some(), std::sync::atomic::Ordering::Relaxed);
        *slot = events;
    }

    pub(crate) fn events(&self) -> Option<Arc<dyn Events>> {
        if !self.events_on.load(std::sync::atomic::Ordering::Relaxed) {
            return None;
        }
        self.events.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    #[inline]
    pub(crate) fn raw_hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_inline::<true, false, false>(key, &self.secrets)
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> Hash {
        self.index.hash(self.raw_hash(key))
    }

    pub(crate) fn segment_of(&self, place: Place) -> &Segment {
        self.log.segment(self.log.segment_of(place))
    }

    #[inline]
    pub(crate) fn expiry_of(&self, place: Place, record: &RecordRef<'_>) -> Seconds {
        let base = self.segment_of(place).group().base;
        if base == NEVER { NEVER } else { base + Seconds::from(record.expiry_offset().unwrap_or(0)) }
    }

    pub(crate) fn last_access_of(&self, place: Place, marks: Marks) -> Seconds {
        decode_access(self.segment_of(place).opened(), marks.access())
    }

    /// May an item be shown at `now`, and if not, why?
    #[inline(always)]
    pub(crate) fn visible(&self, place: Place, record: &RecordRef<'_>, now: Seconds) -> Result<Seconds, Miss> {
        let segment = self.segment_of(place);
        if self.log.is_suspect(segment)
            && let Some(miss) = self.suspected(segment, *record)
        {
            return Err(miss);
        }
        let expiry = self.expiry_of(place, record);
        if expiry <= now { Err(Miss::Expired) } else { Ok(expiry) }
    }

    /// A CAS unique above every one given so far, for a record whose place would give a lower one than its
    /// predecessor's.
    pub(crate) fn fresh_cas(&self) -> u64 {
        self.log.fresh_history()
    }

    #[inline]
    pub(crate) fn note_death(&self) {
        if !self.evicts() {
            self.deaths.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn deaths(&self) -> u64 {
        self.deaths.load(Ordering::Relaxed)
    }

    pub(crate) fn packed_at(&self, deaths: u64) -> bool {
        self.packed_at.load(Ordering::Relaxed) == deaths
    }

    pub(crate) fn set_packed_at(&self, deaths: u64) {
        self.packed_at.store(deaths, Ordering::Relaxed);
    }
}

fn check_item_limit(asked: usize, memory_bytes: usize) -> Result<(), StoreError> {
    let most = ITEM_BYTES_MAX.min(memory_bytes / 2);
    if (ITEM_BYTES_MIN..=most).contains(&asked) { Ok(()) } else { Err(StoreError::ItemOutOfRange { asked, most }) }
}

/// Why a lookup found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// Never stored, deleted, or evicted.
    Absent,
    /// Its time was over.
    Expired,
    /// A flush forgot it.
    Flushed,
    /// Its prefix, or one of its tags, was forgotten.
    Forgotten,
}

/// One thread's access to a store.
pub struct Handle {
    pub(crate) reader: Reader,
    pub(crate) lane: Arc<Padded<Mutex<Lane>>>,
    pub(crate) counters: Arc<Padded<Counters>>,
    pub(crate) miss: Miss,
    pub(crate) store: Arc<Store>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// The store behind the handle.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Why the last lookup that found nothing found nothing.
    pub fn miss_reason(&self) -> Miss {
        self.miss
    }

    /// The store's own work: gives back what expired, was flushed or forgotten, and shrinks to the limit. To be called once a
    /// second by one thread.
    pub fn maintain(&mut self, now: Seconds) {
        let store = &*self.store;
        store.notice_flush(now);
        store.log.page().now.store(now, Ordering::Relaxed);
        store.log.page().items.store(store.blocks.items(), Ordering::Relaxed);
        // Seal what lies open too long, so that it can be given back. One lane at a time.
        let lanes: Vec<_> = store.lanes.lock().clone();
        for lane in lanes {
            for open in store.log.overdue(Some(&mut lane.lock()), now, false) {
                store.seal(&open);
            }
        }
        for open in store.log.overdue(None, now, false) {
            store.seal(&open);
        }
        store.reclaim_due(&self.counters, now);
        store.reclaim_flushed(&self.counters);
        store.sweep(&self.reader, &self.counters);
        store.log.tidy();
        store.log.refine();
        for steps in 0.. {
            store.log.shrink(store.index.bytes(), &store.epochs);
            if store.log.census().held <= store.log.allowed(store.index.bytes())
                || !store.make_room(&mut self.lane.lock(), &self.counters, steps, now)
            {
                break;
            }
        }
    }

    /// Is this key and value too large for the store?
    pub(crate) fn too_large(&self, key: &[u8], value_bytes: usize) -> bool {
        debug_assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX, "the protocol checks keys");
        // What memcached counts: header, key, value and its line end.
        value_bytes.saturating_add(key.len() + 50) > self.store.item_bytes_max()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut lanes = self.store.lanes.lock();
        lanes.retain(|lane| !Arc::ptr_eq(lane, &self.lane));
        for open in self.store.log.overdue(Some(&mut self.lane.lock()), 0, true) {
            self.store.seal(&open);
        }
        self.store.epochs.forget(&self.reader);
    }
}
