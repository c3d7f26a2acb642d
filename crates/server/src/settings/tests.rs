//! What settings become: a command line, its defaults, and what is said of one that cannot be.

mod every_knob;
mod file;
mod fleets;
mod pages;
mod tables;
mod tls;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use self::every_knob::{defaults, walk};
use super::*;

/// Settings and notes of a command line.
fn try_load(args: &[&str]) -> Result<(Settings, Vec<Note>), Problem> {
    let sources = Sources { args: args.iter().map(OsString::from).collect(), ..Sources::default() };
    match sources.load()? {
        Loaded::Serve(settings, notes) => Ok((*settings, notes)),
        Loaded::Print(asked) => panic!("{args:?} asks for {asked:?}"),
    }
}

fn load(args: &[&str]) -> Settings {
    try_load(args).unwrap_or_else(|problem| panic!("{args:?}: {problem}")).0
}

fn problem(args: &[&str]) -> String {
    match try_load(args) {
        Ok(_) => panic!("{args:?} is accepted"),
        Err(problem) => problem.to_string(),
    }
}

/// A configuration file in a directory of its own.
struct File {
    dir: PathBuf,
    path: PathBuf,
}

impl File {
    fn new(name: &str, text: &str) -> File {
        let dir = std::env::temp_dir().join(format!("nuthatch-settings-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("n.toml");
        fs::write(&path, text).unwrap();
        File { dir, path }
    }

    fn try_load(&self, flags: &[&str]) -> Result<(Settings, Vec<Note>), Problem> {
        let mut args = vec!["--config", self.path.to_str().unwrap()];
        args.extend(flags);
        try_load(&args)
    }

    fn load(&self, flags: &[&str]) -> Settings {
        self.try_load(flags).unwrap_or_else(|problem| panic!("{problem}")).0
    }

    /// The sentence, without the directory.
    fn problem(&self, flags: &[&str]) -> String {
        let sentence = self.try_load(flags).expect_err("the file is accepted").to_string();
        sentence.replace(&format!("{}/", self.dir.display()), "")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn file_problem(name: &str, text: &str) -> String {
    File::new(name, text).problem(&[])
}

fn listeners(settings: &Settings) -> Vec<String> {
    settings.listeners.iter().map(|listener| listener.address.to_string()).collect()
}

#[test]
fn a_bare_start_listens_on_loopback_alone() {
    let (settings, notes) = try_load(&[]).unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(listeners(&settings), ["127.0.0.1:11211", "[::1]:11211"]);
    assert_eq!(settings.listeners.iter().map(|listener| listener.required).collect::<Vec<_>>(), [true, false]);
    assert_eq!(notes, []);
}

#[test]
fn the_version_is_three_numbers_because_clients_parse_it() {
    let numbers: Vec<Result<u32, _>> = VERSION.split('.').map(str::parse).collect();
    assert_eq!(numbers, [Ok(1), Ok(6), Ok(45)]);
}

#[test]
fn ports_follow_memcached() {
    for (args, expected, tcp, udp) in [
        (&["-p", "5000"][..], &["127.0.0.1:5000", "[::1]:5000"][..], 5000, 0),
        (&["-p", "-1"], &["127.0.0.1:0", "[::1]:0"], -1, 0),
        (&["-p", "0", "-U", "5000"], &["udp:127.0.0.1:5000", "udp:[::1]:5000"], 0, 5000),
        (&["-U", "5000", "-l", "127.0.0.1"], &["127.0.0.1:5000", "udp:127.0.0.1:5000"], 5000, 5000),
        (&["-U", "5001", "-p", "5000", "-l", "::1"], &["[::1]:5000", "udp:[::1]:5001"], 5000, 5001),
        (&["-l", "127.0.0.1:1,127.0.0.2;[::1]:3", "-p", "2"], &["127.0.0.1:1", "127.0.0.2:2", "[::1]:3"], 2, 0),
        (&["-l", "127.0.0.1", "-l", "127.0.0.1", "-l", "::1"], &["127.0.0.1:11211", "[::1]:11211"], 11211, 0),
        (&["-l", "*:7"], &["0.0.0.0:7", "[::]:7"], 7, 0),
        (&["-s", "/run/m.sock", "-p", "5000"], &["unix:/run/m.sock"], 5000, 0),
    ] {
        let settings = load(args);
        assert_eq!(listeners(&settings), expected, "{args:?}");
        assert_eq!((settings.reported.tcp_port, settings.reported.udp_port), (tcp, udp), "{args:?}");
    }
    let (settings, notes) = try_load(&["-p", "0"]).unwrap();
    assert_eq!(settings.listeners, []);
    assert!(notes[0].always && notes[0].text.contains("nobody can connect"), "{notes:?}");
    assert_eq!(problem(&["-p", "70000"]), "-p: expected a whole number from -1 to 65535, not 70000");
}

#[test]
fn a_listener_carries_its_protocol_tag_and_mode() {
    let settings = load(&["-B", "binary", "-l", "proto[ascii]:tag[web]:127.0.0.1:1,127.0.0.1:2"]);
    let of = |index: usize| (settings.listeners[index].protocol, settings.listeners[index].tag.as_deref());
    assert_eq!([of(0), of(1)], [(Protocol::Ascii, Some("web")), (Protocol::Binary, None)]);
    assert_eq!(settings.reported.interface.as_deref(), Some("proto[ascii]:tag[web]:127.0.0.1:1,127.0.0.1:2"));
    let settings = load(&["-s", "/run/m.sock", "-a", "0660"]);
    assert_eq!(settings.listeners[0].address, Address::Unix { path: "/run/m.sock".into(), mode: 0o660 });
    assert_eq!((settings.reported.unix_mode, settings.reported.domain_socket), (0o660, Some("/run/m.sock".into())));
}

#[test]
fn an_unknown_host_stops_the_start_as_the_system_s_fault() {
    let problem = try_load(&["-l", "no-such-host.invalid"]).unwrap_err();
    assert!(
        problem
            .to_string()
            .starts_with("-l: expected a host name or an address, \"no-such-host.invalid\" is not known"),
        "{problem}"
    );
    assert_eq!((problem.exit_status(), problem.exit_status_memcached()), (1, 71));
}

#[test]
fn listening_to_the_world_is_warned_of_unless_clients_authenticate() {
    let (_, notes) = try_load(&["-l", "0.0.0.0", "-p", "1"]).unwrap();
    assert!(notes[0].always && notes[0].text.starts_with("0.0.0.0:1: other machines can reach this"), "{notes:?}");
    assert_eq!(try_load(&["-l", "0.0.0.0", "-Y", "/etc/users"]).unwrap().1, []);
    assert_eq!(try_load(&["-l", "127.0.0.1,::1"]).unwrap().1, []);
}

#[test]
fn an_auth_file_leaves_text_alone() {
    let settings = load(&["-Y", "/etc/users"]);
    assert!(settings.listeners.iter().all(|listener| listener.protocol == Protocol::Ascii));
    assert_eq!(settings.reported.protocol, Protocol::Ascii);
    for (args, sentence) in [
        (&["-Y", "f", "-B", "auto"][..], "-B: expected ascii with -Y"),
        (&["-Y", "f", "-B", "binary"], "-B: expected ascii with -Y"),
        (&["-Y", "f", "-l", "proto[binary]:127.0.0.1:1"], "127.0.0.1:1: expected protocol ascii with -Y"),
        (&["-Y", "f", "-U", "1"], "-U: expected 0 with -Y"),
        (&["-Y", "f", "-S"], "-S: expected the environment variable MEMCACHED_SASL_PWDB"),
    ] {
        assert!(problem(args).starts_with(sentence), "{args:?}: {}", problem(args));
    }
}

#[test]
fn sasl_leaves_binary_alone_and_needs_its_file() {
    let with_file = |args: &[&str]| {
        let args = args.iter().map(OsString::from).collect();
        Sources { args, sasl_file: Some("/etc/users".into()), ..Sources::default() }.load()
    };
    let Ok(Loaded::Serve(settings, _)) = with_file(&["-S"]) else { panic!("-S is refused") };
    assert!(settings.listeners.iter().all(|listener| listener.protocol == Protocol::Binary));
    assert_eq!(settings.sasl_file, Some("/etc/users".into()));
    let Ok(Loaded::Serve(settings, _)) = with_file(&[]) else { panic!("refused") };
    assert_eq!(settings.sasl_file, None, "without -S the variable means nothing");
    for args in [&["-S", "-B", "ascii"][..], &["-S", "-Y", "f"], &["-S", "-U", "1"]] {
        assert!(with_file(args).is_err(), "{args:?}");
    }
}

#[test]
fn sizes_and_their_relations_follow_memcached() {
    let pool = |args: &[&str]| load(args).pools.remove(0);
    assert_eq!(pool(&["-m", "1024"]).memory_bytes, 1024 * MIB);
    assert_eq!(pool(&["-m1024"]).memory_bytes, 1024 * MIB);
    assert_eq!(pool(&["-m", "64M"]).memory_bytes, 64 * MIB);
    for (size, bytes) in [("2m", 2 << 20), ("2M", 2 << 20), ("1k", 1024), ("1500000", 1_500_000), ("32m", 32 << 20)] {
        assert_eq!(pool(&["-I", size]).item_bytes_max, bytes, "-I {size}");
    }
    assert_eq!(pool(&["-I", "1024m", "-m", "2048"]).item_bytes_max, 1 << 30);
    for (args, sentence) in [
        (&["-I", "1023"][..], "-I: expected a size from 1 KiB to 1 GiB, such as 512k, 2m or 1GiB, not 1023"),
        (
            &["-I", "1025m", "-m", "4096"],
            "-I: expected a size from 1 KiB to 1 GiB, such as 512k, 2m or 1GiB, not 1025m",
        ),
        (&["-I", "33m"], "-I: expected an item limit of at most half of the memory, 32 MiB of 64 MiB, not 33 MiB"),
        (&["-m", "1"], "-m: expected an item limit of at most half of the memory, 512 KiB of 1 MiB, not 1 MiB"),
        (&["-m", "0"], "-m: expected a size from 1 MiB up (a bare number is MiB), not 0"),
        (
            &["-o", "slab_chunk_max=1000"],
            "-o slab_chunk_max: expected a divisor of 1 MiB and of the item limit 1 MiB, not 1000 KiB",
        ),
        (&["-N", "5"], "-N: expected at most as many as there are workers (-t 4), not 5"),
        (&["-o", "hot_lru_pct=41"], "-o hot_lru_pct and warm_lru_pct: expected at most 80 together, not 81"),
        (
            &["-o", "temporary_ttl=5,no_lru_maintainer"],
            "-o temporary_ttl: expected lru_maintainer with it, not no_lru_maintainer",
        ),
    ] {
        assert_eq!(problem(args), sentence);
    }
}

#[test]
fn the_largest_chunk_is_given_in_bytes_as_memcached_reads_it() {
    for (args, bytes) in [
        (&["-I", "1024", "-o", "slab_chunk_max=1"][..], 1024),
        (&["-I", "512k", "-o", "slab_chunk_max=16"], 16384),
        (&["-o", "slab_chunk_max=1024"], 1024 * 1024),
        (&["-o", "slab_chunk_max=4096"], 4096),
    ] {
        assert_eq!(load(args).reported.slab_chunk_bytes_max, bytes, "{args:?}");
    }
}

#[test]
fn a_memory_file_is_the_default_pool_s() {
    for args in [&["-e", "/dev/shm/x"][..], &["-e/dev/shm/x"], &["--memory-file=/dev/shm/x"]] {
        assert_eq!(load(args).pools[0].file.as_deref(), Some(Path::new("/dev/shm/x")), "{args:?}");
    }
    assert_eq!(load(&[]).pools[0].file, None);
    assert_eq!(problem(&["-e", ""]), "-e: expected the path of a file, not nothing");
}

#[test]
fn switches_do_what_memcached_s_do() {
    let settings =
        load(&["-CFXWAMLrkd", "-D", "|", "-vvv", "-R3", "-c", "10", "-b", "7", "-t", "2", "-P", "/p", "-u", "nobody"]);
    assert!(!settings.cas_enabled && !settings.flush_enabled && !settings.dump_enabled && !settings.watch_enabled);
    assert!(
        settings.shutdown_enabled
            && settings.detail_enabled
            && !settings.pools[0].evict
            && settings.pools[0].huge_pages
    );
    assert_eq!((settings.prefix_delimiter, settings.verbosity, settings.requests_per_event), (b'|', 3, 3));
    assert_eq!((settings.connections_max, settings.backlog, settings.workers), (10, 7, 2));
    let process = &settings.process;
    assert!(process.core_dumps && process.lock_memory && process.daemonize);
    assert_eq!((process.pid_file.clone(), process.user.as_deref()), (Some("/p".into()), Some("nobody")));
    let settings =
        load(&["-o", "no_modern", "-o", "idle_timeout=5,read_buf_mem_limit=2,watcher_logbuf_size=1", "--verbose=2"]);
    assert!(!settings.connections_max_fast && !settings.reported.lru_crawler);
    assert_eq!((settings.idle_timeout_seconds, settings.verbosity), (5, 2));
    assert_eq!((settings.buffers.read_bytes_max, settings.buffers.watcher_log_bytes), (2 << 20, 1024));
    assert_eq!(load(&["-vvvvv"]).verbosity, 3);
    assert!(
        load(&["-o", "maxconns_fast=1"]).connections_max_fast,
        "memcached takes a value there and looks at the name alone"
    );
}

#[test]
fn a_malformed_command_line_says_what_was_expected() {
    for (args, sentence) in [
        (&["-Q"][..], "-Q: no such flag, expected one that -h lists"),
        (&["-vQ"], "-Q: no such flag, expected one that -h lists"),
        (&["--no-such"], "--no-such: no such flag, expected one that -h lists"),
        (&["-o", "foo=1"], "-o \"foo\": no such option, expected one that -h lists"),
        (&["-o", ""], "-o \"\": no such option, expected one that -h lists"),
        (&["-m"], "-m: expected a size from 1 MiB up (a bare number is MiB) after it, found the end"),
        (&["stray"], "\"stray\": expected a flag, such as -m 1024 or --config FILE"),
        (&["-D", ""], "-D: expected a character, not nothing"),
    ] {
        assert_eq!(problem(args), sentence);
    }
    let sources =
        Sources { args: vec!["stray".into(), "-m".into(), "128".into()], as_memcached: true, ..Sources::default() };
    let Ok(Loaded::Serve(settings, notes)) = sources.load() else { panic!("memcached passes a stray word over") };
    assert_eq!(settings.pools[0].memory_bytes, 128 * MIB);
    assert_eq!(notes[0].text, "\"stray\": not a flag, passed over");
}

#[test]
fn flags_that_print_end_the_command_line() {
    for (args, asked) in
        [(&["-h", "--no-such"][..], Asked::Help), (&["-vV"], Asked::Version), (&["--license"], Asked::License)]
    {
        let sources = Sources { args: args.iter().map(OsString::from).collect(), ..Sources::default() };
        assert_eq!(sources.load(), Ok(Loaded::Print(asked)));
    }
}
