//! What is done to the process before the server starts, in memcached's order: core file limit, open files, user. Then its memory is
//! locked, and once it serves, its id is written.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::unistd::{Uid, User, setgid, setgroups, setuid};

use nuthatch_server::settings::Settings;

use crate::failure::Failure;

/// Descriptors besides connections: standard streams, each worker's poll and wake-up, files read at a reload, and some to spare.
const DESCRIPTORS_SPARE: u64 = 64;
const DESCRIPTORS_PER_WORKER: u64 = 4;
/// The control thread's, and that of whoever accepts.
const DESCRIPTORS_PER_LISTENER: u64 = 2;

/// `MCL_ONFAULT`: pages are locked as they are used. Without it the kernel would at once fill the address space that pools reserve.
const LOCK_ON_FAULT: i32 = 4;

/// Applies `-r`, `-c` and `-u`.
pub(crate) fn prepare(settings: &Settings) -> Result<(), Failure> {
    if settings.process.core_dumps {
        raise_core_limit()?;
    }
    raise_descriptor_limit(settings)?;
    if let Some(user) = &settings.process.user {
        become_user(user)?;
    }
    Ok(())
}

/// Whether this process could do what only root may.
pub(crate) fn is_root() -> bool {
    Uid::effective().is_root() || Uid::current().is_root()
}

/// `-k`. The reason when it could not be done: memcached goes on without, and so does this.
pub(crate) fn lock_memory() -> Result<(), String> {
    let flags = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | MlockAllFlags::from_bits_retain(LOCK_ON_FAULT);
    mlockall(flags).map_err(|errno| format!("-k: memory is not locked: {errno}"))
}

fn raise_core_limit() -> Result<(), Failure> {
    if setrlimit(Resource::RLIMIT_CORE, RLIM_INFINITY, RLIM_INFINITY).is_err()
        && let Ok((_, hard)) = getrlimit(Resource::RLIMIT_CORE)
    {
        let _ = setrlimit(Resource::RLIMIT_CORE, hard, hard);
    }
    match getrlimit(Resource::RLIMIT_CORE) {
        Ok((soft, _)) if soft > 0 => Ok(()),
        _ => Err(Failure::system("-r: expected a core file limit above 0, the hard limit allows none")),
    }
}

/// Makes room for `-c` connections. A limit that is high enough stays as it is.
pub(crate) fn raise_descriptor_limit(settings: &Settings) -> Result<(), Failure> {
    let wanted = settings.connections_max as u64
        + settings.listeners.len() as u64 * DESCRIPTORS_PER_LISTENER
        + settings.workers as u64 * DESCRIPTORS_PER_WORKER
        + DESCRIPTORS_SPARE;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|errno| Failure::system(format!("-c: expected to read the limit of open files: {errno}")))?;
    if soft >= wanted || setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted)).is_ok() {
        return Ok(());
    }
    // memcached-debug goes on with what there is, and test suites count on it.
    if settings.debug_commands {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        return Ok(());
    }
    Err(Failure::system(format!(
        "-c {}: expected a limit of open files of at least {wanted}, it is {hard}; start as root, raise LimitNOFILE=, or ask for fewer",
        settings.connections_max
    )))
}

/// Gives root up for good. Like memcached, whoever is not root stays who they are.
fn become_user(name: &str) -> Result<(), Failure> {
    if !is_root() {
        return Ok(());
    }
    let failed = |what: &str, errno: Errno| Failure::system(format!("-u {name}: expected to {what}: {errno}"));
    let user = User::from_name(name).map_err(|errno| failed("look the user up", errno))?.ok_or_else(|| {
        Failure::no_user(format!("-u {name}: expected the name of a user, there is none called that"))
    })?;
    match setgroups(&[]) {
        // Not permitted: a container that has given the right up already.
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(failed("leave root's groups", errno)),
    }
    setgid(user.gid).map_err(|errno| failed("take the user's group", errno))?;
    setuid(user.uid).map_err(|errno| failed("become the user", errno))
}

/// A pid file that goes when the server does.
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes this process's id. A reader that finds the file finds the whole number: it is written beside its place and moved there.
    pub(crate) fn write(path: &Path) -> io::Result<PidFile> {
        let mut unfinished = OsString::from(path);
        unfinished.push(".tmp");
        fs::write(&unfinished, format!("{}\n", std::process::id()))?;
        fs::rename(&unfinished, path)?;
        Ok(PidFile { path: path.to_owned() })
    }

    /// The process that a pid file of an earlier server names, if it is still there.
    pub(crate) fn running(path: &Path) -> Option<u32> {
        let pid: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
        (pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists()).then_some(pid)
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            eprintln!("nuthatch: -P {}: the pid file stays: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_holds_the_process_and_goes_with_it() {
        let dir = std::env::temp_dir().join(format!("nuthatch-pid-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("pid");
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(PidFile::running(&path), None, "this process is not another server");
        fs::write(&path, "1\n").unwrap();
        assert_eq!(PidFile::running(&path), Some(1));
        drop(file);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_unknown_user_is_one_sentence_with_memcached_s_status() {
        if !Uid::effective().is_root() {
            return; // Only root becomes anyone.
        }
        let failure = become_user("no-such-user").unwrap_err();
        assert_eq!(failure.to_string(), "-u no-such-user: expected the name of a user, there is none called that");
        assert_eq!((failure.status(false), failure.status(true)), (1, 67));
    }
}
