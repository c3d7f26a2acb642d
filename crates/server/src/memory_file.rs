//! Memory files: what a pool keeps its items in over a restart (`-e`, `pool.NAME.file`).
//!
//! Opens the file, keeps other servers from it, has the store read it, and tells the operator what was found; at the end
//! has the store close it. What is in a file only the store knows.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nuthatch_store::{Config, MemoryFile, Progress, Restored, Seconds, Store, StoreError};

use crate::log::{Level, Log};
use crate::pool::Pool;
use crate::settings::Bytes;

/// What tells this start of the machine from others.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Reading that takes longer than this is said, and how far it is, as often.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Why a memory file cannot be used.
#[derive(Debug)]
pub struct MemoryFileError {
    path: PathBuf,
    problem: MemoryFileProblem,
}

#[derive(Debug)]
enum MemoryFileProblem {
    Open(io::Error),
    InUse,
    Store(StoreError),
}

impl fmt::Display for MemoryFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.problem {
            MemoryFileProblem::Open(error) => write!(f, "expected a memory file that can be written: {error}"),
            MemoryFileProblem::InUse => f.write_str("expected a memory file of this server's own, another one uses it"),
            MemoryFileProblem::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MemoryFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            MemoryFileProblem::Open(error) => Some(error),
            MemoryFileProblem::InUse => None,
            MemoryFileProblem::Store(error) => Some(error),
        }
    }
}

/// How long a server that is ending may take to let go of its file, and how often that is looked at.
const LEAVING_MAX: Duration = Duration::from_secs(2);
const LEAVING_LOOK: Duration = Duration::from_millis(10);

/// A store in the file at `path`, for the pool called `name`, with the items that are there.
pub(crate) fn open(
    path: &Path,
    name: &str,
    config: Config,
    now: Seconds,
    log: &Log,
) -> Result<Arc<Store>, MemoryFileError> {
    let failed = |problem| MemoryFileError { path: path.to_owned(), problem };
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| failed(MemoryFileProblem::Open(error)))?;
    // Held as long as the store, which has the file.
    lock(&file).map_err(failed)?;
    let began = Instant::now();
    let mut said = began;
    let mut progress = |progress: Progress| {
        if said.elapsed() >= SILENCE_MAX {
            said = Instant::now();
            let Progress { done_bytes, total_bytes } = progress;
            let percent = done_bytes * 100 / total_bytes.max(1);
            let (done, total) = (Bytes(done_bytes), Bytes(total_bytes));
            log.line(
                Level::Error,
                format_args!("pool {name}: reading {}: {done} of {total}, {percent} %", path.display()),
            );
        }
    };
    let (store, restored) = Store::open(config, MemoryFile { file, boot: boot_id() }, now, &mut progress)
        .map_err(|error| failed(MemoryFileProblem::Store(error)))?;
    say(path, name, &restored, began.elapsed(), log);
    Ok(store)
}

/// Waits for a server that is just ending, whose file this was.
fn lock(file: &File) -> Result<(), MemoryFileProblem> {
    let until = Instant::now() + LEAVING_MAX;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LEAVING_LOOK),
            Err(TryLockError::WouldBlock) => return Err(MemoryFileProblem::InUse),
            Err(TryLockError::Error(error)) => return Err(MemoryFileProblem::Open(error)),
        }
    }
}

/// Says what was found; what was lost without the operator's doing is said in any case.
fn say(path: &Path, name: &str, restored: &Restored, took: Duration, log: &Log) {
    let path = path.display();
    if let Some(why) = restored.emptied {
        log.line(Level::Error, format_args!("pool {name}: {path}: warning: starting without the items in it: {why}"));
    }
    if restored.damaged > 0 {
        let damaged = restored.damaged;
        log.line(
            Level::Error,
            format_args!("pool {name}: {path}: warning: {damaged} damaged parts of it were left out"),
        );
    }
    let took = took.as_secs_f64();
    let level = if took >= SILENCE_MAX.as_secs_f64() { Level::Error } else { Level::Warning };
    let Restored { items, expired, unfinished, evicted, .. } = restored;
    log.line(
        level,
        format_args!(
            "pool {name}: {path}: {items} items ({}) found in {took:.1} s; {expired} had expired, {evicted} had no room, \
             {unfinished} were being replaced",
            Bytes(restored.bytes)
        ),
    );
}

/// Says so once a file system has no room for what its pool may have. True: it had none.
pub(crate) fn say_if_full(pools: &[Arc<Pool>], log: &Log) -> bool {
    let mut is_any_full = false;
    for pool in pools {
        let Some(path) = pool.file.as_ref().filter(|_| pool.store.stats().file_full > 0) else { continue };
        let (name, path, limit) = (&pool.name, path.display(), Bytes(pool.store.memory_limit() as u64));
        log.line(Level::Error, format_args!("pool {name}: {path}: warning: its file system has no room for {limit}"));
        is_any_full = true;
    }
    is_any_full
}

fn boot_id() -> Option<u128> {
    let text = std::fs::read_to_string(BOOT_ID).ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// Closes the memory files of `pools`, of which nobody has a handle any more.
pub(crate) fn close(pools: &[Arc<Pool>], now: Seconds, log: &Log) {
    for pool in pools {
        let Some(path) = &pool.file else { continue };
        if let Err(error) = pool.store.close(now) {
            log.line(
                Level::Error,
                format_args!(
                    "pool {}: {}: warning: items are lost when the machine stops: {error}",
                    pool.name,
                    path.display()
                ),
            );
        }
    }
}
