//! Runs transcripts: text files that say what a client sends and what the server must answer, one behaviour each.
//!
//! Each file runs over TCP and over a UNIX socket, with one worker and with four, and in three ways: block by block; with the
//! client's bytes cut at random places; and pipelined, everything the client says sent at once.
//!
//! ```text
//! # append_keeps_the_flags: what stands after `#` is for the reader
//! ! flags -I 2m               flags the server is started with (before the first line sent)
//! > set bird 5 0 4            the client sends this and CR LF
//! > nuth
//! < STORED                    the server answers exactly this and CR LF
//! >> get b                    the client sends this without CR LF
//! > ird
//! <? VALUE bird 5 *           `*` stands for any run of bytes
//! < nuth
//! < END
//! ! clock 5                   moves the server's clock on by 5 seconds (the server is then a memcached-debug)
//! ! connection 2              what follows happens on a second connection
//! ! ours REASON               what follows is not memcached's behaviour: another server is not asked for it
//! <...                        any lines until one fits the next `<`
//! <!                          the server closes the connection
//! ```
//!
//! In sent and expected lines `\r \n \t \0 \\ \s` (a space), `\xNN` and `\{COUNT*TEXT}` (TEXT, escapes and all, COUNT times)
//! are escapes. Leading and trailing spaces of a line do not count; write them `\s`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::spawn::{self, Launch, Spawned};
use crate::wire::{Conn, quoted};

/// Seeds of the runs that cut the client's bytes; each is run over either transport.
const CUT_SEEDS: [u64; 2] = [1, 20_090_102];
/// Pause after a piece in cut runs, so that most pieces reach the server by themselves. It is no wait for a result.
const BETWEEN_PIECES: Duration = Duration::from_micros(200);
/// Bytes sent in one block above which cutting it up proves nothing more.
const PIECES_MAX: usize = 64;

/// A parsed transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcript {
    name: String,
    flags: Vec<String>,
    steps: Vec<(usize, Step)>,
    /// How many steps come before what is not memcached's behaviour.
    theirs: Option<usize>,
}

/// What a transcript is played on: a server, or several that pass for one.
pub trait Stage {
    /// A new connection.
    fn connect(&self) -> Conn;

    /// Moves the stopped clock on, everywhere.
    fn move_clock(&self, seconds: u32);
}

impl Stage for Spawned {
    fn connect(&self) -> Conn {
        Spawned::connect(self)
    }

    fn move_clock(&self, seconds: u32) {
        Spawned::move_clock(self, seconds);
    }
}

/// A transcript that is answered otherwise on some stage, and has to be.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The transcript's name.
    pub name: &'static str,
    /// Part of the sentence that running it ends with.
    pub said: &'static str,
    /// Why it must be so.
    pub because: &'static str,
}

/// Runs what is memcached's behaviour in every `*.txt` of a directory, whole and pipelined, on stages that `start` makes
/// for the flags it is given; but for the `differences`, which have to be as they are said to be.
///
/// # Panics
/// After all have run, naming each that failed or did not differ.
pub fn run_directory_on(directory: &Path, start: impl Fn(&[String]) -> Box<dyn Stage>, differences: &[Difference]) {
    let mut failures = Vec::new();
    let mut count = 0;
    let transcripts = read_directory(directory, &mut failures);
    for transcript in transcripts.into_iter().filter_map(Transcript::theirs) {
        count += 1;
        let mut ways = vec![Delivery::Blocks];
        ways.extend(transcript.is_one_connection().then_some(Delivery::Pipelined));
        for way in ways {
            let stage = start(&transcript.flags);
            let failure = Run::new(&transcript, &*stage, way).all().err().map(|failure| failure.to_string());
            let difference = differences.iter().find(|difference| difference.name == transcript.name);
            match (failure, difference) {
                (None, None) => {}
                (Some(failure), Some(difference)) if failure.contains(difference.said) => {}
                (failure, difference) => {
                    let failure = failure.unwrap_or_else(|| "nothing went wrong".to_owned());
                    let expected = difference.map_or(String::new(), |d| format!(", expected \"{}\"", d.said));
                    failures.push(format!("{} ({way:?}): {failure}{expected}", transcript.name));
                }
            }
        }
    }
    for difference in differences {
        println!("{}: {}, because {}", difference.name, difference.said, difference.because);
    }
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
    println!("{count} transcripts, {} differ", differences.len());
}

fn read_directory(directory: &Path, failures: &mut Vec<String>) -> Vec<Transcript> {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|error| panic!("cannot read {}: {error}", directory.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a directory can be listed").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(!files.is_empty(), "{} holds no transcript", directory.display());
    let mut transcripts = Vec::new();
    for path in &files {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match Transcript::parse(&name, &text) {
            Ok(transcript) => transcripts.push(transcript),
            Err(failure) => failures.push(format!("{name}: {failure}")),
        }
    }
    transcripts
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Send(Vec<u8>),
    Expect(Vec<u8>),
    ExpectLike(Vec<u8>),
    SkipLines,
    ExpectClose,
    Clock(u32),
    Connection(u32),
}

/// How the client's bytes are handed to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Blocks,
    Cut(u64),
    Pipelined,
}

/// What is wrong with a transcript, or what went wrong running it.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    line: usize,
    sentence: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.sentence)
    }
}

/// Runs every `*.txt` in a directory in every way.
///
/// # Panics
/// After all have run, naming each file, line and way that failed; or when the directory holds no transcript.
pub fn run_directory(directory: &Path) {
    let mut failures = Vec::new();
    let transcripts = read_directory(directory, &mut failures);
    failures.extend(transcripts.iter().flat_map(Transcript::failures));
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    println!(
        "{} transcripts, each over TCP and UNIX, one worker and four, whole, cut and pipelined",
        transcripts.len()
    );
}

impl Transcript {
    /// Reads a transcript.
    ///
    /// # Errors
    /// The line that is not understood and what was expected of it.
    pub fn parse(name: &str, text: &str) -> Result<Transcript, Failure> {
        let mut transcript = Transcript { name: name.to_owned(), flags: Vec::new(), steps: Vec::new(), theirs: None };
        for (index, raw) in text.lines().enumerate() {
            let line = index + 1;
            let fail = |sentence: String| Failure { line, sentence };
            let raw = raw.trim();
            if raw.is_empty() || raw.starts_with('#') {
                continue;
            }
            let (mark, rest) = raw.split_once(' ').unwrap_or((raw, ""));
            let rest = rest.trim();
            let bytes = || unescape(rest).map_err(fail);
            let step = match mark {
                ">" => Step::Send([&bytes()?[..], b"\r\n"].concat()),
                ">>" => Step::Send(bytes()?),
                "<" => Step::Expect(bytes()?),
                "<?" => Step::ExpectLike(bytes()?),
                "<..." if rest.is_empty() => Step::SkipLines,
                "<!" if rest.is_empty() => Step::ExpectClose,
                "!" => match rest.split_once(' ').unwrap_or((rest, "")) {
                    ("flags", flags) if transcript.steps.is_empty() => {
                        transcript.flags.extend(flags.split_whitespace().map(str::to_owned));
                        continue;
                    }
                    ("flags", _) => return Err(fail("flags must stand before anything is sent".to_owned())),
                    ("clock", seconds) => Step::Clock(
                        seconds
                            .trim()
                            .parse()
                            .map_err(|_| fail(format!("a clock moves by whole seconds, not by {seconds:?}")))?,
                    ),
                    ("ours", reason) if !reason.is_empty() => {
                        transcript.theirs.get_or_insert(transcript.steps.len());
                        continue;
                    }
                    ("connection", number) => Step::Connection(
                        number
                            .trim()
                            .parse()
                            .map_err(|_| fail(format!("a connection has a number, not {number:?}")))?,
                    ),
                    (other, _) => {
                        return Err(fail(format!(
                            "expected `! flags`, `! clock`, `! connection` or `! ours REASON`, not {other:?}"
                        )));
                    }
                },
                _ => {
                    return Err(fail(format!(
                        "expected a line that starts with # ! > >> < <? <... or <!, not {raw:?}"
                    )));
                }
            };
            transcript.steps.push((line, step));
        }
        if transcript.steps.is_empty() {
            return Err(Failure { line: 1, sentence: "the transcript is empty".to_owned() });
        }
        Ok(transcript)
    }

    /// Without what is not memcached's behaviour; `None` where nothing else is in it.
    fn theirs(mut self) -> Option<Transcript> {
        self.steps.truncate(self.theirs.unwrap_or(usize::MAX));
        (!self.steps.is_empty()).then_some(self)
    }

    fn is_one_connection(&self) -> bool {
        !self.steps.iter().any(|(_, step)| matches!(step, Step::Clock(_) | Step::Connection(_)))
    }

    /// Runs it in every way and returns a sentence per failure. Against a `NUTHATCH_TEST_SERVER` that is no debug build, a
    /// transcript that moves the clock is not run.
    pub fn failures(&self) -> Vec<String> {
        if spawn::other_server().is_some() && self.theirs.is_some() {
            let theirs = self.clone().theirs();
            return theirs.map_or_else(Vec::new, |theirs| Transcript { theirs: None, ..theirs }.failures());
        }
        let moves_clock = self.steps.iter().any(|(_, step)| matches!(step, Step::Clock(_)));
        if moves_clock && !spawn::moves_clock() {
            println!("{}: not run, since NUTHATCH_TEST_SERVER cannot be asked to move its clock", self.name);
            return Vec::new();
        }
        let mut ways = vec![Delivery::Blocks];
        ways.extend(CUT_SEEDS.map(Delivery::Cut));
        // One connection's answers do not depend on how many requests are under way; several connections' do.
        if self.is_one_connection() {
            ways.push(Delivery::Pipelined);
        }

        let mut failures = Vec::new();
        for unix in [false, true] {
            for workers in [1, 4] {
                for &way in &ways {
                    let mut launch = if moves_clock { Launch::debug() } else { Launch::memcached() };
                    if unix {
                        launch = launch.unix();
                    }
                    let server = launch.workers(workers).args(&self.flags).start();
                    if moves_clock {
                        server.stop_clock();
                    }
                    if let Err(failure) = Run::new(self, &server, way).all() {
                        let transport = if unix { "UNIX" } else { "TCP" };
                        failures.push(format!("{} ({transport}, {workers} workers, {way:?}): {failure}", self.name));
                        // Other ways of the same transport and workers would mostly repeat it.
                        break;
                    }
                }
            }
        }
        failures
    }

    /// Runs it in every way.
    ///
    /// # Panics
    /// Naming the line and the way it failed in.
    pub fn run(&self) {
        let failures = self.failures();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}

/// One run of a transcript.
struct Run<'a> {
    transcript: &'a Transcript,
    server: &'a dyn Stage,
    way: Delivery,
    rng: fastrand::Rng,
    connections: BTreeMap<u32, Conn>,
    current: u32,
}

impl<'a> Run<'a> {
    fn new(transcript: &'a Transcript, server: &'a dyn Stage, way: Delivery) -> Run<'a> {
        let seed = if let Delivery::Cut(seed) = way { seed } else { 0 };
        let connections = BTreeMap::from([(1, server.connect())]);
        Run { transcript, server, way, rng: fastrand::Rng::with_seed(seed), connections, current: 1 }
    }

    fn all(mut self) -> Result<(), Failure> {
        if self.way == Delivery::Pipelined {
            let sends = self
                .transcript
                .steps
                .iter()
                .filter_map(|(_, step)| if let Step::Send(bytes) = step { Some(bytes) } else { None });
            let bytes: Vec<u8> = sends.flatten().copied().collect();
            // Sending all before reading must not stall both sides: another thread sends what the sockets do not hold at once.
            // A server that closes half-way refuses the rest; what it answered is judged below all the same.
            let mut sender = self.conn().share();
            let sending = std::thread::spawn(move || drop(sender.try_send(bytes)));
            let judged = self.steps();
            drop(self.connections);
            sending.join().expect("a send does not panic");
            return judged;
        }
        self.steps()
    }

    fn steps(&mut self) -> Result<(), Failure> {
        let transcript = self.transcript;
        let mut block = Vec::new();
        let mut skipping = false;
        for (line, step) in &transcript.steps {
            if let Step::Send(bytes) = step {
                block.extend(bytes);
                continue;
            }
            self.send(std::mem::take(&mut block));
            let fail = |sentence: String| Failure { line: *line, sentence };
            match step {
                Step::Send(_) => unreachable!("sent lines are gathered above"),
                Step::Expect(expected) => self.expect(&mut skipping, expected, |got| got == expected).map_err(fail)?,
                Step::ExpectLike(pattern) => {
                    self.expect(&mut skipping, pattern, |got| fits(pattern, got)).map_err(fail)?
                }
                Step::SkipLines => skipping = true,
                Step::ExpectClose => {
                    let rest =
                        self.conn().try_rest().map_err(|error| fail(format!("the server did not close: {error}")))?;
                    if !skipping && !rest.is_empty() {
                        return Err(fail(format!("expected the connection to be closed and got {}", quoted(&rest))));
                    }
                    skipping = false;
                }
                Step::Clock(seconds) => self.server.move_clock(*seconds),
                Step::Connection(number) => {
                    self.current = *number;
                    self.connections.entry(*number).or_insert_with(|| self.server.connect());
                }
            }
        }
        self.send(block);
        Ok(())
    }

    fn conn(&mut self) -> &mut Conn {
        self.connections.get_mut(&self.current).expect("the current connection is open")
    }

    /// Sends a block. A server that has closed by now refuses it, which the next expectation notices and tells better.
    fn send(&mut self, block: Vec<u8>) {
        match self.way {
            Delivery::Pipelined => {}
            Delivery::Blocks => drop(self.conn().try_send(block)),
            Delivery::Cut(_) => {
                let mut rest = &block[..];
                for _ in 0..PIECES_MAX {
                    if rest.len() < 2 {
                        break;
                    }
                    // Small pieces mostly: commands are short, and that is where the states are.
                    let most = if self.rng.u8(..4) == 0 { rest.len() - 1 } else { 12.min(rest.len() - 1) };
                    let (piece, after) = rest.split_at(self.rng.usize(1..=most));
                    if self.conn().try_send(piece).is_err() {
                        return;
                    }
                    std::thread::sleep(BETWEEN_PIECES);
                    rest = after;
                }
                drop(self.conn().try_send(rest));
            }
        }
    }

    fn expect(&mut self, skipping: &mut bool, expected: &[u8], fits: impl Fn(&[u8]) -> bool) -> Result<(), String> {
        let mut skipped = 0;
        loop {
            let got = self.conn().try_line().map_err(|why| {
                let after = if *skipping { format!(" after {skipped} skipped lines") } else { String::new() };
                format!("expected {}{after} and {why}", quoted(expected))
            })?;
            if fits(&got) {
                *skipping = false;
                return Ok(());
            }
            if !*skipping {
                return Err(format!("expected {} and got {}", quoted(expected), quoted(&got)));
            }
            skipped += 1;
        }
    }
}

/// Whether `text` fits a pattern in which `*` stands for any run of bytes.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.iter().position(|&byte| byte == b'*') {
        None => pattern == text,
        Some(star) => {
            let (head, tail) = (&pattern[..star], &pattern[star + 1..]);
            text.starts_with(head) && (star..=text.len()).any(|at| fits(tail, &text[at..]))
        }
    }
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let mut chars = rest.chars();
        let escape = chars.next().ok_or("a line ends in a lone backslash")?;
        rest = chars.as_str();
        match escape {
            'r' => out.push(b'\r'),
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            's' => out.push(b' '),
            '0' => out.push(0),
            '\\' => out.push(b'\\'),
            'x' => {
                let digits = rest.get(..2).ok_or("\\x needs two hexadecimal digits")?;
                out.push(u8::from_str_radix(digits, 16).map_err(|_| format!("\\x{digits} is not a hexadecimal byte"))?);
                rest = &rest[2..];
            }
            '{' => {
                let (inner, after) = rest.split_once('}').ok_or("\\{ has no closing }")?;
                let (count, repeated) = inner.split_once('*').ok_or("\\{ is followed by COUNT*TEXT}")?;
                let count: usize = count.parse().map_err(|_| format!("{count:?} is not a count"))?;
                out.extend(unescape(repeated)?.repeat(count));
                rest = after;
            }
            other => {
                return Err(format!(
                    "\\{other} is no escape; there are \\r \\n \\t \\s \\0 \\\\ \\xNN \\{{COUNT*TEXT}}"
                ));
            }
        }
    }
    out.extend(rest.as_bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_steps_with_their_numbers() {
        let parsed = Transcript::parse(
            "t",
            "# why\n! flags -C -I 2m\n\n> get a\n>> b\n< END\n<...\n<? V*\n<!\n! clock 3\n! connection 2\n",
        )
        .unwrap();
        assert_eq!(parsed.flags, ["-C", "-I", "2m"]);
        let expected = vec![
            (4, Step::Send(b"get a\r\n".to_vec())),
            (5, Step::Send(b"b".to_vec())),
            (6, Step::Expect(b"END".to_vec())),
            (7, Step::SkipLines),
            (8, Step::ExpectLike(b"V*".to_vec())),
            (9, Step::ExpectClose),
            (10, Step::Clock(3)),
            (11, Step::Connection(2)),
        ];
        assert_eq!(parsed.steps, expected);
    }

    #[test]
    fn mistakes_are_named_by_line() {
        let fails = |text: &str| Transcript::parse("t", text).unwrap_err().to_string();
        assert_eq!(fails("> a\n= b"), "line 2: expected a line that starts with # ! > >> < <? <... or <!, not \"= b\"");
        assert_eq!(fails("> a\n! flags -C"), "line 2: flags must stand before anything is sent");
        assert_eq!(fails("! clock soon"), "line 1: a clock moves by whole seconds, not by \"soon\"");
        assert_eq!(fails("> \\q"), "line 1: \\q is no escape; there are \\r \\n \\t \\s \\0 \\\\ \\xNN \\{COUNT*TEXT}");
        assert_eq!(fails("# nothing"), "line 1: the transcript is empty");
    }

    #[test]
    fn escapes_become_bytes() {
        assert_eq!(unescape(r"a\x00\s\r\n\\\{3*\xffz}").unwrap(), b"a\0 \r\n\\\xffz\xffz\xffz");
    }

    #[test]
    fn star_stands_for_any_run() {
        assert!(fits(b"VALUE * 3 *", b"VALUE a 3 77"));
        assert!(fits(b"*", b""));
        assert!(!fits(b"VALUE * 3", b"VALUE a 4"));
        assert!(!fits(b"a", b"ab"));
    }
}
