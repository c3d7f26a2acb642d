//! Nuthatches of their own process, which can be killed, paused and started again, and clients that survive it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nuthatch_testkit::database::Database;

/// Longer than any fault lasts.
const PATIENCE: Duration = Duration::from_secs(10);

/// A Nuthatch with one pool before the table `birds`, on a socket in `dir`.
pub(crate) struct Nuthatch {
    config: PathBuf,
    socket: PathBuf,
    child: Option<Child>,
}

impl Nuthatch {
    /// Writes its configuration; `url` is its database.
    pub(crate) fn new(dir: &Path, name: &str, url: &str) -> Nuthatch {
        // So long that no copy goes by itself.
        Nuthatch::with(dir, name, url, "1h", "")
    }

    /// With copies that live for so long, and further lines on the table.
    pub(crate) fn with(dir: &Path, name: &str, url: &str, ttl_max: &str, lines: &str) -> Nuthatch {
        let text = format!(
            "[pool.birds]\nmemory = \"16MiB\"\nbackend = \"birds\"\npolicy = \"caching\"\n\
             ttl_max = \"{ttl_max}\"\n\n\
             [table.birds]\nurl = \"{url}\"\nkey = \"id\"\nvalue = [\"body\"]\ncas = \"cas\"\n{lines}\n\
             [[listen]]\nmemcached = \"127.0.0.1:11211\"\npool = \"birds\"\n",
        );
        Nuthatch::of(dir, name, &text)
    }

    /// With this configuration, whose listener at memcached's port is at the socket instead.
    pub(crate) fn of(dir: &Path, name: &str, text: &str) -> Nuthatch {
        let (config, socket) = (dir.join(format!("{name}.toml")), dir.join(format!("{name}.sock")));
        let text = text.replace("127.0.0.1:11211", &format!("unix:{}", socket.display()));
        std::fs::write(&config, text).expect("the directory is ours");
        Nuthatch { config, socket, child: None }
    }

    /// What `nuthatch check` says of its configuration, and whether it may be served.
    pub(crate) fn check(&self) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
        let said = command.arg("check").arg(&self.config).output().expect("the program can be run");
        let text = [said.stdout, said.stderr].concat();
        (said.status.success(), String::from_utf8(text).expect("text"))
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The SQL that makes PostgreSQL tell of changes to the table.
    pub(crate) fn triggers(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
        let said =
            command.args(["rows", "triggers", "--config"]).arg(&self.config).output().expect("the program can be run");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).expect("text")
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(&mut self) {
        let log = std::fs::File::create(self.config.with_extension("log")).expect("the directory is ours");
        let child = Command::new(env!("CARGO_BIN_EXE_nuthatch"))
            .args(["serve", "--config"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the program can be run"));
        let deadline = Instant::now() + PATIENCE * 2;
        while Wire::new(&self.socket).ask("version\r\n").is_err() {
            let log = std::fs::read_to_string(self.config.with_extension("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server does not answer; it wrote:\n{log}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server is running");
        kill(Pid::from_raw(child.id().try_into().expect("a process id")), signal).expect("the server is ours");
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the server is ours");
            child.wait().expect("the server is ours");
        }
    }
}

impl Drop for Nuthatch {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a `get` was answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// The value, and its unique if that was asked for.
    Value(String, Option<u64>),
    Nothing,
    /// The reason.
    Refused(String),
}

/// A client's connection, made again when it was lost.
pub(crate) struct Wire {
    socket: PathBuf,
    stream: Option<BufReader<UnixStream>>,
}

impl Wire {
    pub(crate) fn new(socket: &Path) -> Wire {
        Wire { socket: socket.to_owned(), stream: None }
    }

    /// Sends a request and reads one line of answer. After an error nothing is known of it.
    pub(crate) fn ask(&mut self, request: &str) -> io::Result<String> {
        self.or_lost(|wire| {
            wire.send(request)?;
            wire.line()
        })
    }

    /// `get` or `gets` of one key.
    pub(crate) fn get(&mut self, command: &str, key: &str) -> io::Result<Got> {
        self.or_lost(|wire| {
            wire.send(&format!("{command} {key}\r\n"))?;
            let head = wire.line()?;
            if head == "END" {
                return Ok(Got::Nothing);
            }
            let Some(words) = head.strip_prefix("VALUE ") else { return Ok(Got::Refused(head)) };
            let words: Vec<&str> = words.split(' ').collect();
            let bad = || io::Error::other(format!("{head} is no answer"));
            let bytes: usize = words.get(2).and_then(|bytes| bytes.parse().ok()).ok_or_else(bad)?;
            let mut value = vec![0; bytes + "\r\nEND\r\n".len()];
            wire.stream()?.read_exact(&mut value)?;
            value.truncate(bytes);
            let unique = words.get(3).and_then(|unique| unique.parse().ok());
            Ok(Got::Value(String::from_utf8(value).map_err(|_| bad())?, unique))
        })
    }

    /// One of the numbers and words that `command` tells.
    pub(crate) fn stat(&mut self, command: &str, name: &str) -> io::Result<String> {
        self.or_lost(|wire| {
            wire.send(&format!("{command}\r\n"))?;
            let mut found = None;
            loop {
                let line = wire.line()?;
                if line == "END" {
                    return found.ok_or_else(|| io::Error::other(format!("no {name} is told")));
                }
                if let Some(value) =
                    line.strip_prefix("STAT ").and_then(|stat| stat.strip_prefix(name)?.strip_prefix(' '))
                {
                    found = Some(value.to_owned());
                }
            }
        })
    }

    fn or_lost<T>(&mut self, ask: impl FnOnce(&mut Wire) -> io::Result<T>) -> io::Result<T> {
        let asked = ask(self);
        if asked.is_err() {
            self.stream = None;
        }
        asked
    }

    fn stream(&mut self) -> io::Result<&mut BufReader<UnixStream>> {
        if self.stream.is_none() {
            let stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            self.stream = Some(BufReader::new(stream));
        }
        self.stream.as_mut().ok_or_else(|| io::Error::other("not connected"))
    }

    fn send(&mut self, request: &str) -> io::Result<()> {
        self.stream()?.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream()?.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Sends a signal to every process of a database.
pub(crate) fn signal_all(database: &Database, signal: Signal) {
    for process in database.processes() {
        // One that has ended meanwhile needs none.
        let _ = kill(Pid::from_raw(process.try_into().expect("a process id")), signal);
    }
}
