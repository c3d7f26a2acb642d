//! Runs a program of `clients/`: an unmodified client, or a few of them, which checks claims by itself or answers questions.
//!
//! A program ends with status 0 and `ok N` on its last line, N being how many claims it checked or answers it gave. What it needs is
//! put in place by `scripts/install-test-deps.sh`; one that is missing fails the test and says so.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program that is about to be run. It begins in `clients/`.
pub struct Program {
    command: Command,
    words: String,
    input: Vec<u8>,
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate is two levels down")
}

/// Where the clients of other registries are.
pub fn clients_dir() -> PathBuf {
    std::env::var_os("NUTHATCH_CLIENTS_DIR").map_or_else(|| repository().join("target/clients"), PathBuf::from)
}

impl Program {
    /// The program and its arguments; `{clients}` in a word stands for [`clients_dir`].
    pub fn new(words: &[&str]) -> Program {
        let clients = clients_dir();
        let clients = clients.to_str().expect("the clients' directory is UTF-8");
        let words: Vec<_> = words.iter().map(|word| word.replace("{clients}", clients)).collect();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(repository().join("clients"))
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("NODE_PATH", format!("{clients}/node/node_modules"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Program { command, words: words.join(" "), input: Vec::new() }
    }

    /// With a variable of the environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        self.command.env(name, value);
        self
    }

    /// With something on its standard input.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Program {
        self.input = input.into();
        self
    }

    /// Runs it to its end and returns what it wrote. Fails the test, with `more` to say, when it ends otherwise than it should or not
    /// within `patience`.
    pub fn run(mut self, patience: Duration, more: impl FnOnce() -> String) -> String {
        let words = &self.words;
        let mut child = self
            .command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {words}: {error}; scripts/install-test-deps.sh installs it"));
        let (mut stdin, input) = (child.stdin.take().expect("the pipe was asked for"), self.input);
        let writer = std::thread::spawn(move || {
            // A program that ends without reading everything says why by itself.
            let _ = stdin.write_all(&input);
        });
        let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child's status can be asked") {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().expect("a child of ours can be killed");
                break child.wait().expect("a killed child ends");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        writer.join().expect("writing does not panic");
        let (stdout, stderr) =
            (stdout.join().expect("reading does not panic"), stderr.join().expect("reading does not panic"));
        let last = stdout.lines().last().unwrap_or_default();
        let checks = last.strip_prefix("ok ").and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
        if !status.success() || checks == 0 {
            let end: String = stdout.chars().rev().take(4000).collect();
            let end: String = end.chars().rev().collect();
            panic!("{words} ended with {status} after at most {patience:?}; it wrote:\n{end}\n{stderr}\n{}", more());
        }
        stdout
    }
}

/// Reads a pipe to its end beside the test, so that a client that writes much is not stopped by it.
fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    let mut pipe = pipe.expect("the pipe was asked for");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A client that was killed leaves its pipe to what it started; what was read until then is what is shown.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
