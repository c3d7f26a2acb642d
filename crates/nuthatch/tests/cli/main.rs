//! The built program, as an operator or a unit file runs it: what it prints, how it exits, what it leaves behind.

mod certificates;
mod privileges;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_nuthatch");

/// A directory of the test's own, and the program under a name in it.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The program, called `name`.
    fn command(&self, name: &str, args: &[&str]) -> Command {
        let program = if name == "nuthatch" {
            PathBuf::from(PROGRAM)
        } else {
            let link = self.path(name);
            let _ = symlink(PROGRAM, &link);
            link
        };
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("MEMCACHED_SASL_PWDB").env("MEMCACHED_PORT_FILENAME", self.path("ports"));
        command
    }

    fn run(&self, name: &str, args: &[&str]) -> Output {
        self.command(name, args).output().unwrap()
    }

    /// Starts a server and waits until it has written its ports.
    fn serve(&self, name: &str, args: &[&str]) -> Serving {
        let mut child = self.command(name, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the server writes its ports", || {
            assert!(child.try_wait().unwrap().is_none(), "the server ended: {}", rest(&mut child));
            self.path("ports").exists()
        });
        Serving { child }
    }

    fn port(&self) -> u16 {
        let ports = fs::read_to_string(self.path("ports")).unwrap();
        let line = ports.lines().find(|line| line.starts_with("TCP INET: ")).unwrap();
        line["TCP INET: ".len()..].parse().unwrap()
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port())).unwrap()
    }
}

/// A running server, killed if the test ends first.
struct Serving {
    child: Child,
}

impl Serving {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Its exit status and what it printed.
    fn end(mut self) -> (Option<i32>, String, String) {
        let status = self.child.wait().unwrap();
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (status.code(), out, rest(&mut self.child))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut text);
    }
    text
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited for 30 seconds until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a line and returns the first line of the answer.
fn ask(stream: &mut (impl Read + Write), line: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

/// One counter of `stats`.
fn stat(stream: &TcpStream, name: &str) -> String {
    let mut stream = stream;
    stream.write_all(b"stats\r\n").unwrap();
    let mut value = None;
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if let Some(rest) = line.strip_prefix(&format!("STAT {name} ")) {
            value = Some(rest.to_owned());
        }
        if line == "END" {
            break;
        }
    }
    value.unwrap_or_else(|| panic!("stats has no {name}"))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn what_only_prints_exits_with_0() {
    let place = Place::new();
    for (name, args, first_line) in [
        ("nuthatch", &["version"][..], "nuthatch 0.1.0 (speaks memcached 1.6.45)"),
        ("nuthatch", &["-V"], "nuthatch 0.1.0 (speaks memcached 1.6.45)"),
        ("nuthatch", &["serve", "-V"], "nuthatch 0.1.0 (speaks memcached 1.6.45)"),
        (
            "nuthatch",
            &["--help"],
            "Nuthatch is a caching server: any memcached client can be pointed at it, web sites put behind it, and SQL tables read through it.",
        ),
        ("nuthatch", &["help", "check"], "Usage: nuthatch check FILE"),
        ("nuthatch", &["serve", "--help"], "Usage: nuthatch serve [--config FILE] [FLAGS]"),
        (
            "nuthatch",
            &["serve", "-i"],
            "Nuthatch is licensed under either of the MIT licence or the Apache License 2.0, at your option.",
        ),
        ("memcached", &["-V"], "memcached 1.6.45 (Nuthatch 0.1.0)"),
        ("memcached", &["-h"], "memcached 1.6.45 (Nuthatch 0.1.0)"),
        ("memcached-debug", &["--version"], "memcached 1.6.45 (Nuthatch 0.1.0)"),
    ] {
        let output = place.run(name, args);
        assert_eq!(output.status.code(), Some(0), "{name} {args:?}");
        assert_eq!(text(&output.stdout).lines().next(), Some(first_line), "{name} {args:?}");
        assert_eq!(text(&output.stderr), "", "{name} {args:?}");
    }
}

#[test]
fn a_bad_command_line_is_one_sentence_and_an_exit_status() {
    let place = Place::new();
    for (name, args, status, sentence) in [
        ("nuthatch", &[][..], 2, "nuthatch: expected a command, such as serve; `nuthatch help` lists them\n"),
        ("nuthatch", &["serve", "-t", "0"], 2, "nuthatch: -t: expected a whole number from 1 to 1024, not 0\n"),
        ("memcached", &["-t", "0"], 1, "memcached: -t: expected a whole number from 1 to 1024, not 0\n"),
        ("memcached", &["-c", "-1"], 1, "memcached: -c: expected a whole number from 1 to 1048576, not -1\n"),
        ("memcached", &["-B", "http"], 1, "memcached: -B: expected one of auto, ascii, binary, not http\n"),
        (
            "memcached",
            &["-I", "64m"],
            64,
            "memcached: -I: expected an item limit of at most half of the memory, 32 MiB of 64 MiB, not 64 MiB\n",
        ),
        (
            "memcached",
            &["-Z"],
            64,
            "memcached: -Z: expected -o ssl_chain_cert=FILE with it, the file of the server's certificate\n",
        ),
        (
            "memcached",
            &["-Z", "-o", "ssl_chain_cert=/no/such/file"],
            64,
            "memcached: certificate file /no/such/file: No such file or directory (os error 2)\n",
        ),
    ] {
        let output = place.run(name, args);
        assert_eq!(text(&output.stderr), sentence);
        assert_eq!(output.status.code(), Some(status), "{name} {args:?}");
        assert_eq!(text(&output.stdout), "");
    }
    assert_eq!(place.run("memcached", &["-l", "no-such-host.invalid"]).status.code(), Some(71));
    let output = place.run("memcached", &["-p", "-1", "-Y", "no-such-file"]);
    assert!(text(&output.stderr).contains("no-such-file"), "{output:?}");
    assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(1), 1));
}

#[test]
fn check_says_what_a_file_would_start() {
    let place = Place::new();
    let good = place.file(
        "good.toml",
        "[pool.default]\nmemory = \"1GiB\"\n[pool.pages]\nevict = false\n\
         [[listen]]\nmemcached = \"127.0.0.1:11311\"\n[[listen]]\nmemcached = \"unix:/run/x\"\npool = \"pages\"\n\
         [[route]]\nprefix = \"page:\"\npool = \"pages\"\n",
    );
    let output = place.run("nuthatch", &["check", good.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        format!(
            "{}: right\n\n\
             \x20 listening  tcp 127.0.0.1:11311      auto    pool default\n\
             \x20 listening  unix /run/x (mode 0700)  auto    pool pages\n\
             \x20 pool       default: 1 GiB, items up to 1 MiB, evicting when full\n\
             \x20 pool       pages: 64 MiB, items up to 1 MiB, refusing when full\n\
             \x20 route      keys beginning \"page:\": pool pages\n\
             \x20 workers    4, up to 1024 connections\n",
            good.display()
        )
    );
    let bad = place.file("bad.toml", "[server]\nworkers = 0\n");
    let output = place.run("nuthatch", &["check", "bad.toml"]);
    assert_eq!(
        text(&output.stderr),
        "nuthatch: bad.toml:2: server.workers: expected a whole number from 1 to 1024, not 0\n"
    );
    assert_eq!(output.status.code(), Some(2));
    fs::remove_file(bad).unwrap();
    let output = place.run("nuthatch", &["check", "bad.toml"]);
    assert!(text(&output.stderr).starts_with("nuthatch: bad.toml: expected a configuration file: "));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_sample_file_that_help_prints_is_right() {
    let place = Place::new();
    let sample = place.run("nuthatch", &["help", "config"]).stdout;
    fs::write(place.path("sample.toml"), sample).unwrap();
    assert_eq!(place.run("nuthatch", &["check", "sample.toml"]).status.code(), Some(0));
}

#[test]
fn ring_says_where_keys_live_and_why() {
    let place = Place::new();
    place.file(
        "n.toml",
        "[fleet.a]\nservers = [\"10.0.1.1\", \"10.0.1.2\", \"10.0.1.3:11311\"]\n\
         [fleet.b]\nservers = [\"10.0.1.9\"]\ndistribution = \"modula\"\n",
    );
    let ring = |args: &[&str]| place.run("nuthatch", &[&["ring", "--config", "n.toml"], args].concat());
    let output = ring(&["session:abc", "k7"]);
    let expected = "\
session:abc  10.0.1.2:11211  fleet a, ketama_weighted, md5 226189362, point 231984018, then 10.0.1.3:11311
k7           10.0.1.3:11311  fleet a, ketama_weighted, md5 4158789890, point 4176534188, then 10.0.1.2:11211
session:abc  10.0.1.9:11211  fleet b, modula, the only server
k7           10.0.1.9:11211  fleet b, modula, the only server
";
    assert_eq!(text(&output.stdout), expected, "{output:?}");
    let output = ring(&["--fleet", "a", "--out", "10.0.1.2", "session:abc"]);
    assert!(text(&output.stdout).contains("session:abc  10.0.1.3:11311  fleet a"), "{output:?}");
    place.file("away.toml", "[fleet.d]\nservers = [\"etcd:http://127.0.0.1:1/p\"]\n");
    let output = place.run("nuthatch", &["ring", "--config", "away.toml", "k"]);
    assert_eq!(output.status.code(), Some(1));
    let sentence = "nuthatch: ring: fleet.d: etcd:http://127.0.0.1:1/p: expected a list of servers: Connection refused";
    assert!(text(&output.stderr).starts_with(sentence), "{output:?}");
    let output = ring(&["--fleet", "c", "k"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "nuthatch: ring: expected [fleet.c] in n.toml, there is [fleet.a], [fleet.b]\n");
    let output = ring(&["--fleet", "a", "--out", "10.0.1.7", "k"]);
    let sentence = "nuthatch: ring: --out: expected a server of fleet a, 10.0.1.7:11211 is not listed\n";
    assert_eq!(text(&output.stderr), sentence);
}

#[test]
fn serve_greets_and_memcached_is_silent() {
    let place = Place::new();
    let serving = place.serve("nuthatch", &["serve", "-p", "-1", "-l", "127.0.0.1"]);
    let port = place.port();
    assert_eq!(ask(&mut place.connect(), "version"), "VERSION 1.6.45");
    serving.signal(Signal::SIGTERM);
    let (status, out, err) = serving.end();
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(out.contains(&format!("  listening  tcp 127.0.0.1:{port}  auto    pool default\n")), "{out}");
    assert!(out.contains(&format!("| nc 127.0.0.1 {port}\n")), "{out}");

    let place = Place::new();
    let serving = place.serve("memcached", &["-p", "-1", "stray"]);
    serving.signal(Signal::SIGINT);
    assert_eq!(serving.end(), (Some(0), String::new(), String::new()));
}

#[test]
fn the_demonstration_shows_a_miss_and_then_a_hit_and_an_item_that_can_be_deleted() {
    let place = Place::new();
    let serving = place.serve("nuthatch", &["demo", "--http", "127.0.0.1:0", "--memcached", "127.0.0.1:0"]);
    let ports = fs::read_to_string(place.path("ports")).unwrap();
    let ports: Vec<u16> = ports.lines().filter_map(|line| line.strip_prefix("TCP INET: ")?.parse().ok()).collect();
    let [_, http] = ports[..] else { panic!("{ports:?}") };
    let get = || {
        let mut stream = TcpStream::connect(("127.0.0.1", http)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\nHost: wiki.example\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("<h1>Nuthatch</h1>"), "{answer}");
        let line = answer.lines().find_map(|line| line.strip_prefix("x-cache: ")).unwrap_or_default();
        line.split(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!([get(), get()], ["MISS", "HIT"]);
    assert_eq!(ask(&mut place.connect(), "delete page:http://wiki.example/"), "DELETED");
    assert_eq!([get(), get()], ["MISS", "HIT"]);
    serving.signal(Signal::SIGTERM);
    let (status, out, err) = serving.end();
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(out.contains(&format!("curl -si http://127.0.0.1:{http}/ | head -12\n")), "{out}");
}

#[test]
fn options_without_an_effect_are_said_at_v() {
    let place = Place::new();
    let serving = place.serve("memcached", &["-p", "-1", "-v", "-f", "1.5", "-o", "slab_reassign"]);
    serving.signal(Signal::SIGUSR1);
    let (status, _, err) = serving.end();
    assert_eq!(status, Some(0));
    assert!(err.contains("memcached: -f: accepted, nothing here for it to act on"), "{err}");
    assert!(err.contains("memcached: -o slab_reassign: accepted, nothing here for it to act on"), "{err}");
}

#[test]
fn a_port_in_use_is_one_sentence_and_memcached_s_status() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (name, args, status) in [
        ("nuthatch", &["serve", "-p", &port][..], 1),
        ("memcached", &["-p", &port], 71),
        ("memcached", &["-d", "-p", &port], 71),
    ] {
        let output = place.run(name, args);
        let said = text(&output.stderr);
        assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(output.status.code(), Some(status), "{name} {args:?}");
    }
}

#[test]
fn a_daemon_answers_and_has_its_pid_file_when_the_command_returns() {
    let place = Place::new();
    let output = place.run("memcached", &["-d", "-p", "-1", "-P", "pid"]);
    assert_eq!((output.status.code(), text(&output.stdout), text(&output.stderr)), (Some(0), "", ""));
    let pid: i32 = fs::read_to_string(place.path("pid")).unwrap().trim().parse().unwrap();
    assert_eq!(stat(&place.connect(), "pid"), pid.to_string());
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(
        text(&command_line).ends_with("memcached\0-d\0-p\0-1\0-P\0pid\0"),
        "it is found under the name it was started by"
    );
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    wait_until("the pid file is gone", || !place.path("pid").exists());
}

/// A server with the file `n.toml`, which tells what reloads come to.
struct Reloading {
    place: Place,
    serving: Serving,
    said: Box<dyn Iterator<Item = String>>,
}

impl Reloading {
    fn start(name: &str, file: &str, flags: &[&str]) -> Reloading {
        Reloading::start_in(Place::new(), name, file, flags)
    }

    fn start_in(place: Place, name: &str, file: &str, flags: &[&str]) -> Reloading {
        place.file("n.toml", file);
        let command: &[&str] = if name == "nuthatch" { &["serve"] } else { &[] };
        let mut serving = place.serve(name, &[command, &["--config", "n.toml"], flags].concat());
        let said = BufReader::new(serving.child.stderr.take().unwrap()).lines().map(Result::unwrap);
        Reloading { place, serving, said: Box::new(said) }
    }

    /// Sends SIGHUP once the file says `file`. Returns what is said until the server is done with it.
    fn reload(&mut self, file: &str) -> Vec<String> {
        self.place.file("n.toml", file);
        self.serving.signal(Signal::SIGHUP);
        let mut said = Vec::new();
        loop {
            let line = self.said.next().expect("the server goes on");
            let line = line.split_once(": reload: ").unwrap_or_else(|| panic!("{line}")).1.to_owned();
            if line == "done" {
                return said;
            }
            let is_over = line.starts_with("nothing changed");
            said.push(line);
            if is_over {
                return said;
            }
        }
    }

    /// Bytes of memory it has.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.serving.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

#[test]
fn a_reload_changes_what_can_change_and_closes_no_connection() {
    let listen = "[[listen]]\nmemcached = \"127.0.0.1:0\"\n";
    let mut server = Reloading::start("nuthatch", &format!("[pool.default]\nmemory = \"64MiB\"\n{listen}"), &[]);
    let mut stream = server.place.connect();
    assert_eq!(ask(&mut stream, "set kept 0 0 1\r\nx"), "STORED");
    assert_eq!(stat(&stream, "limit_maxbytes"), (64 << 20).to_string());
    let port = server.place.port();

    let said = server.reload(&format!(
        "[pool.default]\nmemory = \"32MiB\"\n[server]\nworkers = 9\nhash_seed = 7\n{listen}\
         [[listen]]\nmemcached = \"unix:beside\"\n"
    ));
    assert_eq!(
        said,
        [
            "workers: 4 to 9",
            "pool.default.memory: 64 MiB to 32 MiB",
            "listener unix:beside: opened",
            "after a restart: hash_seed: None to Some(7)"
        ]
    );
    assert_eq!(stat(&stream, "limit_maxbytes"), (32 << 20).to_string());
    assert_eq!(stat(&stream, "threads"), "9");
    assert_eq!(ask(&mut stream, "mg kept"), "HD");
    let mut beside = UnixStream::connect(server.place.path("beside")).unwrap();
    assert_eq!(ask(&mut beside, "mg kept"), "HD");

    let said = server.reload("[server]\nworkers = 0\n");
    assert_eq!(said, ["nothing changed: n.toml:2: server.workers: expected a whole number from 1 to 1024, not 0"]);
    assert_eq!(stat(&stream, "threads"), "9");

    let said = server.reload(&format!("[pool.default]\nmemory = \"32MiB\"\n{listen}"));
    assert_eq!(said, ["workers: 9 to 4", "listener unix:beside: closed, its connections live on"]);
    assert!(!server.place.path("beside").exists());
    for _ in 0..2 {
        assert_eq!(ask(&mut stream, "mg kept"), "HD");
        assert_eq!(ask(&mut beside, "mg kept"), "HD");
    }
    assert_eq!(server.place.port(), port);
    server.serving.signal(Signal::SIGTERM);
    assert_eq!(server.serving.end().0, Some(0));
}

#[test]
fn a_reload_is_carried_out_although_nobody_reads_what_it_says() {
    let listen = "[[listen]]\nmemcached = \"127.0.0.1:0\"\n";
    let mut server = Reloading::start("nuthatch", listen, &[]);
    // The reading end of its standard error closes.
    server.said = Box::new(std::iter::empty());
    for workers in [2, 3] {
        server.place.file("n.toml", &format!("[server]\nworkers = {workers}\n{listen}"));
        server.serving.signal(Signal::SIGHUP);
        wait_until("the workers are there", || stat(&server.place.connect(), "threads") == workers.to_string());
    }
}

#[test]
fn flags_override_the_file_at_a_reload_too() {
    let mut server = Reloading::start("memcached", "[server]\nworkers = 2\n", &["-p", "-1", "-t", "3", "-m", "32"]);
    let said = server.reload("[server]\nworkers = 5\nidle_timeout = 90\n[pool.default]\nmemory = \"64MiB\"\n");
    assert_eq!(said, ["idle_timeout: 0 to 90"]);
    assert_eq!(stat(&server.place.connect(), "threads"), "3");
}

#[test]
fn a_pool_that_is_removed_gives_its_memory_back() {
    let listen = "[[listen]]\nmemcached = \"127.0.0.1:0\"\npool = \"default\"\n";
    let with_side = format!(
        "[pool.default]\n[pool.side]\nmemory = \"64MiB\"\n{listen}[[route]]\nprefix = \"side:\"\npool = \"side\"\n"
    );
    let mut server = Reloading::start("nuthatch", &with_side, &[]);
    let mut stream = server.place.connect();
    let value = "x".repeat(100_000);
    for n in 0..600 {
        write!(stream, "set side:{n} 0 0 {} noreply\r\n{value}\r\n", value.len()).unwrap();
    }
    assert_eq!(ask(&mut stream, "mg side:599"), "HD");
    let before = server.resident();
    assert!(before > 55 << 20);
    let said = server.reload(&format!("[pool.default]\n{listen}"));
    assert_eq!(said, ["routes", "pool.side: removed, its memory goes back when no connection uses it"]);
    assert_eq!(ask(&mut stream, "mg side:599"), "EN");
    wait_until("the memory is back", || server.resident() < before - (50 << 20));
    assert_eq!(stat(&stream, "limit_maxbytes"), (64 << 20).to_string());
}

#[test]
fn what_the_user_may_not_is_said_and_the_rest_applied() {
    let lowest = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    let is_for_all = lowest.trim().parse::<u32>().unwrap() <= 1;
    if !Uid::effective().is_root() || is_for_all {
        // There is nobody to become who may do less.
        return;
    }
    let listen = "[[listen]]\nmemcached = \"127.0.0.1:0\"\n";
    let place = Place::new();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut server = Reloading::start_in(place, "nuthatch", listen, &["-u", "nobody"]);
    let mut stream = server.place.connect();
    let said = server.reload(&format!(
        "[server]\nuser = \"daemon\"\nidle_timeout = 90\nconnections_max = 1048576\n{listen}\
         [[listen]]\nmemcached = \"127.0.0.1:1\"\n[[listen]]\nmemcached = \"unix:beside\"\n"
    ));
    assert!(
        said[0].starts_with("connections_max stays at 1024: -c 1048576: expected a limit of open files"),
        "{said:?}"
    );
    assert_eq!(
        said[1..],
        [
            "idle_timeout: 0 to 90",
            "listener unix:beside: opened",
            "cannot listen on 127.0.0.1:1: Permission denied (os error 13)",
        ],
        "and -u on the command line overrides the file's user"
    );
    assert_eq!(stat(&stream, "max_connections"), "1024");
    assert!(ask(&mut stream, "version").starts_with("VERSION "));
    assert!(ask(&mut UnixStream::connect(server.place.path("beside")).unwrap(), "version").starts_with("VERSION "));
}

#[test]
fn fifty_sighups_lose_no_connection_and_answer_nothing_wrong() {
    let listen = "[[listen]]\nmemcached = \"127.0.0.1:0\"\npool = \"default\"\n";
    let files = [
        format!("[server]\nworkers = 3\n[pool.default]\nmemory = \"32MiB\"\n{listen}"),
        format!(
            "[server]\nworkers = 1\nrequests_per_event = 2\n[pool.side]\n[pool.default]\n{listen}\
             [[listen]]\nmemcached = \"unix:beside\"\npool = \"side\"\n[[route]]\nprefix = \"side:\"\npool = \"side\"\n"
        ),
    ];
    let mut server = Reloading::start("nuthatch", &files[0], &[]);
    let has_ended = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..6)
        .map(|number| {
            let (mut stream, has_ended) = (server.place.connect(), Arc::clone(&has_ended));
            std::thread::spawn(move || {
                let mut rounds = 0_u64;
                while !has_ended.load(Ordering::Relaxed) {
                    rounds += 1;
                    let key = format!("own-{number}");
                    write!(stream, "set {key} 0 0 8\r\n{rounds:08}\r\nget {key}\r\nincr {key} 1\r\nmn\r\n").unwrap();
                    let expected =
                        format!("STORED\r\nVALUE {key} 0 8\r\n{rounds:08}\r\nEND\r\n{}\r\nMN\r\n", rounds + 1);
                    let mut answer = vec![0; expected.len()];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(text(&answer), expected);
                }
                rounds
            })
        })
        .collect();
    let mut others = Vec::new();
    for flip in 1..=50 {
        let said = server.reload(&files[flip % 2]);
        assert!(!said.is_empty() && said.iter().all(|line| !line.contains("cannot")), "{said:?}");
        if flip % 2 == 1 {
            others.push(UnixStream::connect(server.place.path("beside")).unwrap());
        }
        for other in &mut others {
            assert_eq!(ask(other, &format!("set side:{flip} 0 0 1\r\nx")), "STORED");
        }
    }
    has_ended.store(true, Ordering::Relaxed);
    assert!(clients.into_iter().all(|client| client.join().expect("every answer was right") > 0));
    assert_eq!(stat(&server.place.connect(), "threads"), "3");
}

#[test]
fn a_unix_socket_has_the_mode_it_was_given_and_goes_with_the_server() {
    let place = Place::new();
    let serving = place.serve("memcached", &["-s", "sock", "-a", "0660"]);
    let socket = place.path("sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    assert!(ask(&mut UnixStream::connect(&socket).unwrap(), "version").starts_with("VERSION "));
    serving.signal(Signal::SIGTERM);
    assert_eq!(serving.end().0, Some(0));
    assert!(!socket.exists());
}

#[test]
fn root_becomes_the_user_it_is_told_to() {
    let place = Place::new();
    if !Uid::effective().is_root() {
        let serving = place.serve("memcached", &["-p", "-1", "-u", "no-such-user"]);
        serving.signal(Signal::SIGTERM);
        assert_eq!(serving.end().0, Some(0), "whoever is not root stays who they are, as in memcached");
        return;
    }
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let serving = place.serve("memcached", &["-p", "-1", "-u", "nobody"]);
    let status = fs::read_to_string(format!("/proc/{}/status", serving.child.id())).unwrap();
    let ids = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(ids("Uid:").iter().all(|id| id != "0"), "{status}");
    assert!(ids("Gid:").iter().all(|id| id != "0"), "{status}");
    assert!(ids("Groups:").is_empty(), "{status}");
    drop(serving);
    assert_eq!(place.run("memcached", &["-u", "no-such-user"]).status.code(), Some(67));
}

#[test]
fn debugtime_is_there_only_when_it_was_asked_for() {
    for (name, args, is_there) in [
        ("memcached", &["-p", "-1"][..], false),
        ("memcached-debug", &["-p", "-1"], true),
        ("nuthatch", &["serve", "-p", "-1", "--debug-commands"], true),
    ] {
        let place = Place::new();
        let _serving = place.serve(name, args);
        let answer = ask(&mut place.connect(), "debugtime 1");
        assert_eq!(answer == "OK", is_there, "{name}: {answer}");
    }
}

#[test]
fn listening_to_the_world_is_warned_of() {
    let place = Place::new();
    let output = place
        .run("nuthatch", &["check", place.file("n.toml", "[[listen]]\nmemcached = \"0.0.0.0:0\"\n").to_str().unwrap()]);
    assert!(
        text(&output.stdout).contains("note: 0.0.0.0:0: other machines can reach this and nothing authenticates them")
    );
    assert!(Path::new(PROGRAM).exists());
}

#[test]
fn check_connects_to_tables_and_says_what_does_not_fit_and_what_is_given_up() {
    let place = Place::new();
    let database = place.path("shop.db");
    let table = |value: &str| {
        let url = format!("sqlite://{}", database.display());
        format!("[pool.shop]\nbackend = \"shop\"\n[table.shop]\nurl = \"{url}\"\nkey = \"id\"\nvalue = \"{value}\"\n")
    };
    let run = |file: &Path| place.run("nuthatch", &["check", file.to_str().unwrap()]);
    let good = run(&place.file("good.toml", &table("name")));
    let text = String::from_utf8(good.stdout).unwrap();
    assert!(
        text.contains(&format!("table      shop: id to name of shop in sqlite://{}", database.display())),
        "{text}"
    );
    assert!(text.contains("note: table shop: without an expiry column, rows never expire"), "{text}");
    let bad = run(&place.file("bad.toml", &table("nome")));
    assert_eq!(bad.status.code(), Some(1));
    let sentence = "nuthatch: table.shop: table shop: value column nome does not exist, only id, name\n";
    assert_eq!(String::from_utf8(bad.stderr).unwrap(), sentence);
    let triggers = place.run("nuthatch", &["rows", "triggers", "--config", "good.toml"]);
    let none = "-- SQLite tells of changes by every connection to the file. No trigger is needed.\n";
    assert_eq!(String::from_utf8(triggers.stdout).unwrap(), none);
}
