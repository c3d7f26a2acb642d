//! Starts the server under test on an ephemeral port or a UNIX socket of its own, and ends it when the test is over.
//!
//! Any test may call it. It never listens on a standard port, never leaves a process behind, and never waits for a fixed time:
//! a server is ready when it answers.
//!
//! The program is, in this order: `NUTHATCH_TEST_SERVER` (any memcached; `debugtime` is counted on when it is called
//! `memcached-debug`, which is then that of memcached 1.6.45), `NUTHATCH_BIN` (a built `nuthatch`), or the workspace's own binary, built on first use into the target directory that the
//! running test came from.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::wire::Conn;

/// How long a server may take to answer for the first time, or to end. Generous: the machines that run this are often busy.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(2);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port on 127.0.0.1.
    Tcp(u16),
    /// The path of a UNIX stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(port) => write!(f, "127.0.0.1:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Under which name, hence in which role, the program is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A symlink called `memcached`.
    Memcached,
    /// A symlink called `memcached-debug`: `debugtime` is available.
    MemcachedDebug,
    /// The program under its own name; the arguments say the rest.
    Nuthatch,
}

/// A server to be started. Without further calls it listens on an ephemeral TCP port of 127.0.0.1.
#[derive(Clone, Debug)]
pub struct Launch {
    role: Role,
    program: Option<PathBuf>,
    unix: bool,
    listening: bool,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    files: Vec<(String, Vec<u8>)>,
}

impl Launch {
    /// Started through a symlink called `memcached`.
    pub fn memcached() -> Launch {
        Launch::new(Role::Memcached)
    }

    /// Started through a symlink called `memcached-debug`, so that [`Spawned::move_clock`] works.
    pub fn debug() -> Launch {
        Launch::new(Role::MemcachedDebug)
    }

    /// Started as `nuthatch` with only the arguments given here, e.g. `["serve", "-p", "-1"]` or `["check", "file"]`.
    /// No listener is added: give `-p -1` (the port is found through `MEMCACHED_PORT_FILENAME`) or call [`Launch::unix`].
    pub fn nuthatch() -> Launch {
        Launch::new(Role::Nuthatch)
    }

    /// Started as memcached itself: see [`memcached_binary`].
    pub fn real_memcached() -> Launch {
        Launch { program: Some(memcached_binary().to_owned()), ..Launch::memcached() }
    }

    /// As [`Launch::real_memcached`], with a clock that can be moved; `None` where the workspace's own was not built.
    pub fn real_memcached_debug() -> Option<Launch> {
        let program = memcached_binary().with_file_name("memcached-debug");
        program.exists().then(|| Launch { program: Some(program), ..Launch::debug() })
    }

    fn new(role: Role) -> Launch {
        Launch {
            role,
            program: None,
            unix: false,
            listening: role != Role::Nuthatch,
            args: Vec::new(),
            envs: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Listens on a UNIX socket instead of TCP.
    pub fn unix(mut self) -> Launch {
        self.unix = true;
        self.listening = true;
        self
    }

    /// Adds one argument. `{dir}` in it becomes the server's own temporary directory (where [`Launch::file`] writes).
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Launch {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds several arguments, as [`Launch::arg`] does.
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(self, args: I) -> Launch {
        args.into_iter().fold(self, Launch::arg)
    }

    /// `-t`: how many workers the server runs.
    pub fn workers(self, count: usize) -> Launch {
        self.arg("-t").arg(count.to_string())
    }

    /// Sets an environment variable; `{dir}` is replaced as in [`Launch::arg`].
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Launch {
        self.envs.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Writes a file into the server's directory before it starts; refer to it as `{dir}/name`. `{dir}` in its text is
    /// replaced too.
    pub fn file(mut self, name: &str, contents: impl AsRef<[u8]>) -> Launch {
        self.files.push((name.to_owned(), contents.as_ref().to_owned()));
        self
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// With one sentence, and what the server wrote, when it ends or does not answer in time.
    pub fn start(self) -> Spawned {
        match self.try_start() {
            Ok(server) => server,
            Err(exit) => {
                panic!("the server ended with {} instead of listening; it wrote:\n{}", exit.status, exit.stderr)
            }
        }
    }

    /// Starts it and waits until it answers, or returns how it ended if it refused to start.
    ///
    /// # Panics
    /// When it neither ends nor answers in time, or cannot be run at all.
    pub fn try_start(self) -> Result<Spawned, Exit> {
        let unix = self.unix;
        let adds_up = self.program.is_some() || other_server().is_some();
        let mut running = self.run();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = running.child.try_wait().expect("the server's status can be asked") {
                return Err(running.exit(status));
            }
            let address = if unix {
                Some(Address::Unix(running.dir.path().join("sock")))
            } else {
                std::fs::read_to_string(running.dir.path().join("ports"))
                    .ok()
                    .and_then(|text| tcp_port(&text))
                    .map(Address::Tcp)
            };
            if let Some(address) = address
                && Conn::try_open(&address).is_ok()
            {
                return Ok(Spawned { address, clock: Clock { adds_up, ..Clock::default() }, running });
            }
            assert!(
                Instant::now() < deadline,
                "the server did not listen within {PATIENCE:?}; it wrote:\n{}",
                running.stderr()
            );
            std::thread::sleep(POLL);
        }
    }

    /// Runs it to its end, for commands that do not serve (`-h`, `check FILE`) or starts that must be refused.
    ///
    /// # Panics
    /// When it is still running after 20 seconds.
    pub fn run_to_end(self) -> Exit {
        let mut running = self.run();
        let status = running.wait();
        running.exit(status)
    }

    fn run(self) -> Running {
        let dir =
            tempfile::Builder::new().prefix("nuthatch-test-").tempdir().expect("a temporary directory can be made");
        let place = dir.path().to_str().expect("the temporary directory's name is UTF-8").to_owned();
        let fill = |text: &OsStr| match text.to_str() {
            Some(text) => OsString::from(text.replace("{dir}", &place)),
            None => text.to_owned(),
        };
        for (name, contents) in &self.files {
            let contents = match std::str::from_utf8(contents) {
                Ok(text) => text.replace("{dir}", &place).into_bytes(),
                Err(_) => contents.clone(),
            };
            std::fs::write(dir.path().join(name), contents)
                .expect("a file can be written into the temporary directory");
        }

        let program = self.program(dir.path());
        let mut command = Command::new(&program);
        if self.listening {
            if self.unix {
                command.arg("-s").arg(dir.path().join("sock"));
            } else {
                command.args(["-l", "127.0.0.1", "-p", "-1"]);
            }
            // memcached refuses to run as root without being told so; the tests may run as anyone.
            if rustix::process::geteuid().is_root() && self.role != Role::Nuthatch {
                command.args(["-u", "root"]);
            }
        }
        command.args(self.args.iter().map(|arg| fill(arg)));
        command.env("MEMCACHED_PORT_FILENAME", dir.path().join("ports"));
        command.envs(self.envs.iter().map(|(name, value)| (name.clone(), fill(value))));
        let file =
            |name: &str| File::create(dir.path().join(name)).expect("a log can be made in the temporary directory");
        command.stdin(Stdio::null()).stdout(file("stdout")).stderr(file("stderr")).current_dir(dir.path());
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        Running { child, dir }
    }

    fn program(&self, dir: &Path) -> PathBuf {
        if let Some(program) = self.program.clone().or_else(other_server) {
            return program;
        }
        let name = match self.role {
            Role::Memcached => "memcached",
            Role::MemcachedDebug => "memcached-debug",
            Role::Nuthatch => return nuthatch_binary().to_owned(),
        };
        let link = dir.join(name);
        std::os::unix::fs::symlink(nuthatch_binary(), &link).expect("a symlink can be made in the temporary directory");
        link
    }
}

/// How a server ended and what it wrote.
#[derive(Debug)]
pub struct Exit {
    /// Its exit status.
    pub status: ExitStatus,
    /// All of its standard output, undecodable bytes replaced.
    pub stdout: String,
    /// All of its standard error, undecodable bytes replaced.
    pub stderr: String,
}

/// A running server. Dropping it kills the process and removes its directory.
#[derive(Debug)]
pub struct Spawned {
    address: Address,
    clock: Clock,
    running: Running,
}

impl Spawned {
    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its TCP port.
    ///
    /// # Panics
    /// When it listens on a UNIX socket.
    pub fn port(&self) -> u16 {
        match &self.address {
            Address::Tcp(port) => *port,
            Address::Unix(path) => panic!("the server listens on {} and has no TCP port", path.display()),
        }
    }

    /// Opens a new connection to it.
    pub fn connect(&self) -> Conn {
        Conn::try_open(&self.address).unwrap_or_else(|error| {
            panic!("cannot connect to the server at {}: {error}; it wrote:\n{}", self.address, self.stderr())
        })
    }

    /// The program it runs, without the name it was started under.
    pub fn program(&self) -> PathBuf {
        other_server().unwrap_or_else(|| nuthatch_binary().to_owned())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    /// Its temporary directory: `stdout`, `stderr`, `ports` and the files given to [`Launch::file`].
    pub fn dir(&self) -> &Path {
        self.running.dir.path()
    }

    /// What `MEMCACHED_PORT_FILENAME` holds by now: lines such as `TCP INET: 41234`.
    pub fn ports(&self) -> String {
        std::fs::read_to_string(self.dir().join("ports")).unwrap_or_default()
    }

    /// What it has written to standard error so far.
    pub fn stderr(&self) -> String {
        self.running.stderr()
    }

    /// Moves the server's clock on by `seconds` (`debugtime`); works with [`Launch::debug`] only, and exactly with a stopped
    /// clock only.
    pub fn move_clock(&self, seconds: u32) {
        let mut control = self.connect();
        control.send_line(format!("debugtime {}", self.clock.step(i64::from(seconds))));
        control.expect("OK");
    }

    /// Stops the server's clock, so that only [`Spawned::move_clock`] moves it; works with [`Launch::debug`] only.
    pub fn stop_clock(&self) {
        let mut control = self.connect();
        control.send_line("debugtime p");
        control.expect("OK");
    }

    /// Resident memory now, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server is running");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel tells resident memory");
        let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("VmRSS is a number of KiB");
        kib * 1024
    }

    /// Processor time it has used so far, user and system together.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the server is running");
        // The second field is the program's name in parentheses; utime and stime are the 12th and 13th after it, in ticks of
        // 1/100 s (USER_HZ on every Linux this runs on).
        let rest = stat.rsplit_once(") ").expect("the kernel writes the name in parentheses").1;
        let field = |n: usize| rest.split(' ').nth(n).and_then(|n| n.parse::<u64>().ok()).expect("a number of ticks");
        Duration::from_millis((field(11) + field(12)) * 10)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.running.child);
        let signal = match signal {
            Signal::Int => rustix::process::Signal::INT,
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Hup => rustix::process::Signal::HUP,
            Signal::Usr1 => rustix::process::Signal::USR1,
        };
        rustix::process::kill_process(pid, signal).expect("the server is running and ours");
    }

    /// Waits for it to end by itself.
    ///
    /// # Panics
    /// When it is still running after 20 seconds.
    pub fn wait(mut self) -> Exit {
        let status = self.running.wait();
        self.running.exit(status)
    }

    /// Fails if the server has ended, for the last line of tests that send rubbish.
    pub fn assert_alive(&mut self) {
        if let Some(status) = self.running.child.try_wait().expect("the server's status can be asked") {
            panic!("the server ended with {status}; it wrote:\n{}", self.stderr());
        }
    }
}

/// The signals a server gives a meaning to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop.
    Int,
    /// Stop.
    Term,
    /// Read the configuration again.
    Hup,
    /// Stop gracefully.
    Usr1,
}

/// The other memcached that `NUTHATCH_TEST_SERVER` names, if it does.
pub fn other_server() -> Option<PathBuf> {
    std::env::var_os("NUTHATCH_TEST_SERVER").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Whether a server started by [`Launch::debug`] has a clock that can be moved.
pub fn moves_clock() -> bool {
    other_server().is_none_or(|program| program.file_name() == Some(OsStr::new("memcached-debug")))
}

/// What a stopped clock of one server was told.
///
/// A stopped clock of memcached moves by the sum of all it was ever told, each time it is told anything.
#[derive(Debug)]
pub struct Clock {
    last_seconds: AtomicI64,
    adds_up: bool,
}

impl Default for Clock {
    /// Of the server under test.
    fn default() -> Clock {
        Clock { last_seconds: AtomicI64::new(0), adds_up: other_server().is_some() }
    }
}

impl Clock {
    /// What `debugtime` has to be told to move the clock by `seconds`.
    pub fn step(&self, seconds: i64) -> i64 {
        let last = self.last_seconds.swap(seconds, Ordering::Relaxed);
        if self.adds_up { seconds - last } else { seconds }
    }
}

/// A memcached to test clients against: the workspace's own 1.6.45 where it was built (`scripts/install-test-deps.sh`), else
/// the system's.
///
/// # Panics
/// When there is neither.
pub fn memcached_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/clients/memcached-1.6.45/memcached");
        [built, PathBuf::from("/usr/bin/memcached")]
            .into_iter()
            .find(|program| program.exists())
            .expect("there is a memcached in target/clients or /usr/bin; scripts/install-test-deps.sh installs one")
    })
}

/// The built `nuthatch` program.
///
/// # Panics
/// With cargo's messages, when it does not build.
pub fn nuthatch_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("NUTHATCH_BIN").filter(|name| !name.is_empty()) {
        Some(named) => std::path::absolute(&named).expect("NUTHATCH_BIN is a path"),
        None => build(),
    })
}

/// Builds the program with the profile of the running test, into its target directory, which is three levels above it:
/// `target/debug/deps/test-0123456789abcdef`. When nothing changed since `cargo test --workspace` this takes a moment.
fn build() -> PathBuf {
    let running = std::env::current_exe().expect("a running program knows its path");
    let profile_dir = running.parent().and_then(Path::parent).expect("tests run from target/PROFILE/deps");
    let target_dir = profile_dir.parent().expect("tests run from target/PROFILE/deps");
    let profile = match profile_dir.file_name().and_then(OsStr::to_str) {
        Some("debug") => "test",
        Some("release") => "release",
        other => panic!("cannot tell the cargo profile of a test in {other:?}; set NUTHATCH_BIN to a built nuthatch"),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    // What cargo told this test of its package would make it build again what looks at that, and the next test as well.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(name)) {
        build.env_remove(name);
    }
    let built = build
        .args(["build", "--quiet", "--package", "nuthatch", "--bin", "nuthatch", "--profile", profile, "--target-dir"])
        .arg(target_dir)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .expect("cargo can be run");
    assert!(built.status.success(), "nuthatch does not build:\n{}", String::from_utf8_lossy(&built.stderr));
    profile_dir.join("nuthatch")
}

/// Whether an environment variable is what cargo says of a package that it builds or runs.
fn is_of_package(name: &OsString) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}

/// The first TCP port in a file that `MEMCACHED_PORT_FILENAME` named. Lines read `TCP INET: 41234`.
fn tcp_port(text: &str) -> Option<u16> {
    text.lines().find_map(|line| line.strip_prefix("TCP INET: ")?.trim().parse().ok())
}

/// A child process and its directory; both are gone when it is dropped.
#[derive(Debug)]
struct Running {
    child: Child,
    dir: TempDir,
}

impl Running {
    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.dir.path().join(name)).unwrap_or_default()).into_owned()
    }

    fn stderr(&self) -> String {
        self.read("stderr")
    }

    fn exit(&self, status: ExitStatus) -> Exit {
        Exit { status, stdout: self.read("stdout"), stderr: self.stderr() }
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the server's status can be asked") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server still ran after {PATIENCE:?}; it wrote:\n{}", self.stderr());
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The child may have ended already; then there is nothing to kill and wait() only collects it.
        let _ = self.child.kill();
        let Ok(status) = self.child.wait() else { return };
        // A crash that no assertion noticed must still fail the test.
        let crashed =
            status.core_dumped() || matches!(status.signal(), Some(4 | 6 | 7 | 8 | 11)) || status.code() == Some(101);
        let wrote = self.stderr();
        if std::thread::panicking() {
            if !wrote.is_empty() {
                eprintln!("the server ended with {status}; it wrote:\n{wrote}");
            }
        } else {
            assert!(!crashed, "the server crashed with {status}; it wrote:\n{wrote}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_file_gives_the_tcp_port() {
        assert_eq!(tcp_port("TCP INET: 41234\nUDP INET: 41235\n"), Some(41234));
        assert_eq!(tcp_port("UDP INET: 41235\nTCP INET: 7\n"), Some(7));
        assert_eq!(tcp_port("TCP INET: \n"), None);
        assert_eq!(tcp_port(""), None);
    }
}
