//! Walks the tables: every flag, option and key is taken where it should be and refused with its sentence where it should not.

mod fleets;
mod pages;
mod tables;
mod tls;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::knob::{Action, Effect, Knob};
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

/// A value that a knob takes and, where there can be one, a value that it does not.
fn examples<T>(knob: &Knob<T>) -> (Option<String>, Option<String>) {
    let some = |value: &str| Some(value.to_owned());
    match (&knob.action, knob.name) {
        (Action::Switch(_), _) => (None, None),
        (Action::Integer { min, max, .. }, _) => {
            (Some(min.max(&1).to_string()), Some(max.checked_add(1).map_or("x".to_owned(), |over| over.to_string())))
        }
        (Action::Real { above, .. }, _) => (Some((above + 0.5).to_string()), Some(above.to_string())),
        (Action::Size { .. }, _) => (some("512k").filter(|_| knob.name != "memory-limit").or(some("64")), some("12q")),
        (Action::Seconds(_), _) => (some("90s"), some("soon")),
        (Action::Time { .. }, _) => (some("1500ms"), some("soon")),
        (Action::Text { .. }, "hash_tag") => (some("{}"), some("{")),
        (Action::Choice(words, _), _) => (some(words[0]), some("neither")),
        (Action::Text { .. }, "listen") => (some("127.0.0.1:0"), some("")),
        (Action::Text { .. }, "unix-mask") => (some("0660"), some("800")),
        (Action::Text { .. }, "slab_sizes") => (some("100-200-300"), some("100-104")),
        (Action::Text { .. }, "extended") => (some("modern"), some("no_such_option")),
        (Action::Text { .. }, "resp_obj_mem_limit") => (some("5"), None),
        (Action::Text { .. }, "ciphers" | "ssl_ciphers") => (some("HIGH"), some("RC4-MD5")),
        (Action::Text { .. }, "http" | "htcp") => (some("127.0.0.1:0"), some("")),
        (Action::Text { .. }, "decoded") => (some(":;@"), some("/")),
        (Action::Text { .. }, "health") => (some("/health"), some("health")),
        (Action::Text { .. }, _) => (some("x"), some("")),
        (Action::List { .. }, "anonymous") => (some("mediawiki"), some("joomla")),
        (Action::List { .. }, "purge_from") => (some("10.0.0.0/8"), some("10.0.0.0/33")),
        (Action::List { .. }, "refresh_patterns") => (some("^/images/ 1h 20% 3d"), some("( 1h 20% 3d")),
        (Action::List { .. }, "servers" | "origin") => (some("http://127.0.0.1:8000"), some("")),
        (Action::List { .. }, _) => (some("x"), some("")),
        (Action::Table { .. } | Action::Texts { .. }, _) => (None, None),
    }
}

#[test]
fn every_flag_is_taken_in_every_spelling_and_refuses_a_bad_value() {
    for knob in flags::all().filter(|knob| knob.effect == Effect::Works || knob.effect == Effect::Nothing) {
        if matches!(knob.name, "help" | "version" | "license" | "config" | "enable-sasl" | "enable-ssl") {
            continue; // They ask for more than a value; each has a test of its own.
        }
        let long = format!("--{}", knob.name);
        let (good, bad) = examples(knob);
        let Some(good) = good else {
            try_load(&[&long]).unwrap_or_else(|problem| panic!("{long}: {problem}"));
            let with_value = format!("{long}=1");
            assert_eq!(problem(&[&with_value]), format!("{long}: expected no value, it is on or left out"));
            continue;
        };
        let joined = format!("{long}={good}");
        let mut spellings = vec![vec![joined.as_str()]];
        if knob.needs_value() {
            spellings.push(vec![long.as_str(), good.as_str()]);
        }
        let (letter, clustered);
        if let Some(short) = knob.short.filter(|_| knob.needs_value()) {
            letter = format!("-{short}");
            clustered = format!("-v{short}{good}");
            spellings.push(vec![&letter, &good]);
            spellings.push(vec![&clustered]);
        }
        for spelling in &spellings {
            try_load(spelling).unwrap_or_else(|problem| panic!("{spelling:?}: {problem}"));
        }
        if knob.needs_value() {
            assert_eq!(problem(&[&long]), format!("{long}: expected {} after it, found the end", knob.expected()));
        }
        if let Some(bad) = bad.filter(|_| knob.name != "extended") {
            let given = if bad.is_empty() { "nothing" } else { &bad };
            let sentence = format!("{long}: expected {}, not {given}", knob.expected());
            assert_eq!(problem(&[&format!("{long}={bad}")]), sentence);
        }
    }
}

#[test]
fn every_option_of_o_is_taken_and_refuses_a_bad_value() {
    for knob in extended::all().filter(|knob| !matches!(knob.effect, Effect::Refused(_))) {
        let (good, bad) = examples(knob);
        let option = good.map_or(knob.name.to_owned(), |good| format!("{}={good}", knob.name));
        // Alone, an option of TLS is said to act on nothing.
        let with_tls = knob.name.starts_with("ssl_");
        let option = if with_tls { format!("ssl_chain_cert=/c,ssl_ca_cert=/c,{option}") } else { option };
        let args = if with_tls { &["-Z", "-o", &option][..] } else { &["-o", &option] };
        let (_, notes) = try_load(args).unwrap_or_else(|problem| panic!("-o {option}: {problem}"));
        match knob.effect {
            Effect::Works if knob.name == "ssl_min_version" => assert!(notes[0].text.contains("TLS 1.2"), "{notes:?}"),
            Effect::Works => assert_eq!(notes, [], "-o {option}"),
            Effect::Nothing => {
                assert!(!notes[0].always && notes[0].text.starts_with(&format!("-o {}: ", knob.name)), "{notes:?}")
            }
            _ => assert!(notes[0].always, "{notes:?}"),
        }
        if knob.needs_value() {
            assert_eq!(
                problem(&["-o", knob.name]),
                format!("-o {}: expected {}, after an equals sign", knob.name, knob.expected())
            );
        }
        if let Some(bad) = bad {
            let given = if bad.is_empty() { "nothing" } else { &bad };
            let sentence = format!("-o {}: expected {}, not {given}", knob.name, knob.expected());
            assert_eq!(problem(&["-o", &format!("{}={bad}", knob.name)]), sentence);
        }
    }
}

#[test]
fn what_would_lose_data_or_safety_is_refused_with_the_reason() {
    for (args, reason) in [
        (&["-o", "ext_path=/x:1g"][..], "-o ext_path /x:1g: this build has no external storage"),
        (&["-o", "proxy_config=x.lua"], "-o proxy_config x.lua: this build has no proxy"),
    ] {
        let sentence = problem(args);
        assert!(sentence.starts_with(reason), "{sentence}");
    }
}

/// Sets each key by itself, to what it takes and to what it does not; `text` makes a file of its line, which is the second.
fn walk<T>(what: &str, knobs: &[Knob<T>], text: impl Fn(&str) -> String) {
    for knob in knobs {
        let good = match (knob.name, &knob.action) {
            ("memcached", _) => "\"127.0.0.1:0\"".to_owned(),
            ("pool", _) => "\"default\"".to_owned(),
            ("memory", _) => "\"64MiB\"".to_owned(),
            ("mode", _) => "\"0660\"".to_owned(),
            ("tls", _) => "{ certificate = \"/c\" }".to_owned(),
            ("pages", _) => "{ grace = 30 }".to_owned(),
            ("url", _) => "\"sqlite:///a.db\"".to_owned(),
            ("separator", _) => "\"|\"".to_owned(),
            ("password_file", _) => "\"/dev/null\"".to_owned(),
            ("password_env", _) => "\"PATH\"".to_owned(),
            (_, Action::Texts { .. }) => "[\"127.0.0.1:1\"]".to_owned(),
            (_, Action::Switch(_)) => "true".to_owned(),
            (_, Action::Integer { .. }) => examples(knob).0.unwrap(),
            _ => format!("{:?}", examples(knob).0.unwrap()),
        };
        let file = File::new(&format!("{what}-{}", knob.name), &text(&format!("{} = {good}", knob.name)));
        let result = file.try_load(&[]);
        if let Effect::Refused(reason) = knob.effect {
            let sentence = result.expect_err(knob.name).to_string();
            assert!(sentence.ends_with(&format!(":2: {what}.{}: {reason}", knob.name)), "{sentence}");
            continue;
        }
        result.unwrap_or_else(|problem| panic!("{problem}"));
        let bad = text(&format!("{} = []", knob.name));
        assert_eq!(
            file_problem(&format!("bad-{what}-{}", knob.name), &bad),
            format!("n.toml:2: {what}.{}: expected {}, not []", knob.name, knob.expected())
        );
    }
}

#[test]
fn every_key_of_the_file_is_taken_and_refuses_a_bad_value() {
    walk("server", keys::SERVER, |line| format!("[server]\n{line}\n"));
    walk("pool.default", keys::POOL, |line| match line.starts_with("backend") {
        true => format!("[pool.default]\n{line}\n[fleet.x]\nservers = [\"127.0.0.1:1\"]\n"),
        false => format!("[pool.default]\n{line}\n"),
    });
    walk("table.a", super::table::KEYS, |line| {
        let name = line.split(' ').next();
        let others = [("url", "\"sqlite:///a.db\""), ("key", "\"k\""), ("value", "\"v\"")];
        let others =
            others.iter().filter(|(other, _)| Some(*other) != name).map(|(key, value)| format!("{key} = {value}\n"));
        format!("[table.a]\n{line}\n{}", others.collect::<String>())
    });
    walk("listen", keys::LISTEN, |line| match line.split(' ').next() {
        Some("memcached" | "htcp") => format!("[[listen]]\n{line}\n"),
        Some("http") => format!("[[listen]]\n{line}\norigin = \"http://a\"\n"),
        Some("origin") => format!("[[listen]]\n{line}\nhttp = \"127.0.0.1:0\"\n"),
        Some("pages") => format!("[[listen]]\n{line}\nhttp = \"127.0.0.1:0\"\norigin = \"http://a\"\n"),
        Some("mode") => format!("[[listen]]\n{line}\nmemcached = \"unix:/run/x\"\n"),
        _ => format!("[[listen]]\n{line}\nmemcached = \"127.0.0.1:0\"\n"),
    });
    walk("listen.tls", keys::LISTEN_TLS, |line| {
        let others = match line.split(' ').next() {
            Some("certificate") => "",
            Some("client_ca") => "tls.certificate = \"/c\"\n",
            _ => "tls.certificate = \"/c\"\ntls.client_ca = \"/c\"\n",
        };
        format!("[[listen]]\ntls.{line}\n{others}memcached = \"127.0.0.1:0\"\n")
    });
    walk("listen.pages", super::pages::LISTEN_PAGES, |line| {
        format!("[[listen]]\npages.{line}\nhttp = \"127.0.0.1:0\"\norigin = \"http://a\"\n")
    });
    walk("origin.a", super::pages::ORIGIN, |line| match line.starts_with("servers") {
        true => format!("[origin.a]\n{line}\n"),
        false => format!("[origin.a]\n{line}\nservers = \"http://a\"\n"),
    });
    walk("route", keys::ROUTE, |line| match line.starts_with("prefix") {
        true => format!("[[route]]\n{line}\npool = \"default\"\n"),
        false => format!("[[route]]\n{line}\nprefix = \"p\"\n"),
    });
}

#[test]
fn no_name_stands_twice() {
    let mut seen = HashSet::new();
    assert!(flags::all().all(|knob| seen.insert(knob.name)));
    let mut letters = HashSet::new();
    assert!(flags::all().filter_map(|knob| knob.short).all(|letter| letters.insert(letter)));
    let mut seen = HashSet::new();
    assert!(extended::all().all(|knob| seen.insert(knob.name)));
}

#[test]
fn every_default_in_the_table_is_the_default_in_force() {
    // A flag that is given its own default changes nothing but what it reports as given.
    for knob in flags::all().chain(extended::all()).filter(|knob| knob.needs_value() && !knob.default.is_empty()) {
        if matches!(knob.name, "listen" | "prefix-delimiter" | "temporary_ttl" | "hashpower" | "slab_chunk_max") {
            continue; // These also note that they were given.
        }
        let args = match flags::by_name(knob.name) {
            Some(_) => vec![format!("--{}={}", knob.name, knob.default)],
            None => vec!["-o".to_owned(), format!("{}={}", knob.name, knob.default)],
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert_eq!(load(&args), Settings::default(), "{args:?}");
    }
    let mut text = String::from("[server]\n");
    defaults(keys::SERVER, &mut text);
    text.push_str("[pool.default]\n");
    defaults(keys::POOL, &mut text);
    assert_eq!(File::new("defaults", &text).load(&[]), Settings::default());
}

/// Every key with its default, as TOML.
fn defaults<T>(knobs: &[Knob<T>], text: &mut String) {
    for knob in knobs.iter().filter(|knob| !knob.default.is_empty()) {
        let is_bare = matches!(knob.action, Action::Switch(_) | Action::Integer { .. });
        let value = if is_bare { knob.default.to_owned() } else { format!("{:?}", knob.default) };
        text.push_str(&format!("{} = {value}\n", knob.name));
    }
}

#[test]
fn the_sample_as_it_stands_is_a_bare_start() {
    let sample = File::new("sample", &reference::sample());
    let settings = sample.load(&[]);
    assert_eq!(settings.pools, Settings::default().pools);
    assert_eq!(settings.listeners[..], Settings::default().listeners[..1]);
}

#[test]
fn the_reference_page_and_the_sample_file_are_current() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, text) in [("reference.md", reference::page()), ("nuthatch.sample.toml", reference::sample())] {
        let path = docs.join(name);
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(written == text, "docs/{name} is stale: run UPDATE_REFERENCE=1 cargo test -p nuthatch-server settings");
    }
}

#[test]
fn help_of_memcached_names_nothing_that_is_not_there() {
    let help = reference::help_memcached();
    assert!(help.starts_with("memcached 1.6.45"), "{help}");
    for knob in flags::all().filter(|knob| !knob.hidden && !matches!(knob.effect, Effect::Refused(_))) {
        assert!(help.contains(&format!("--{}", knob.name)), "{}", knob.name);
    }
    // The words by which suites decide what to test.
    let lower = help.to_lowercase();
    for absent in ["sasl", "ext_path", "proxy_config", "no_drop_privileges"] {
        assert!(!lower.contains(absent), "{absent}");
    }
    assert!(help.contains("unix-socket"));
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn help_of_serve_names_every_flag_and_option() {
    let help = reference::help_serve();
    for knob in flags::all() {
        assert!(help.contains(&format!("--{}", knob.name)), "{}", knob.name);
    }
    for knob in extended::all() {
        assert!(help.contains(knob.name), "{}", knob.name);
    }
    assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
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
fn the_version_begins_with_the_release_clients_parse() {
    assert!(VERSION.starts_with("1.6.45-"), "{VERSION}");
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

const DESIGN: &str = r#"
[server]
workers = 2

[pool.default]
memory = "2GiB"

[pool.pages]
memory = "512MiB"
item_max = "8MiB"
evict = false

[[listen]]
memcached = "127.0.0.1:11311"

[[listen]]
memcached = "unix:/run/nuthatch/pages.sock"
mode = "0660"
pool = "pages"
protocol = "ascii"
tag = "pages"

[[route]]
prefix = "p:"
pool = "default"

[[route]]
prefix = "p:age:"
pool = "pages"
"#;

#[test]
fn a_file_gives_pools_listeners_and_routes() {
    let settings = File::new("design", DESIGN).load(&[]);
    assert_eq!(settings.workers, 2);
    assert_eq!(settings.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["default", "pages"]);
    assert_eq!(settings.pools[1].memory_bytes, 512 * MIB);
    assert_eq!((settings.pools[1].item_bytes_max, settings.pools[1].evict), (8 << 20, false));
    assert_eq!(listeners(&settings), ["127.0.0.1:11311", "unix:/run/nuthatch/pages.sock"]);
    let pages = &settings.listeners[1];
    assert_eq!(pages.address, Address::Unix { path: "/run/nuthatch/pages.sock".into(), mode: 0o660 });
    assert_eq!((pages.pool, pages.protocol, pages.tag.as_deref()), (1, Protocol::Ascii, Some("pages")));
    let routes: Vec<_> = settings.routes.iter().map(|route| (&route.prefix[..], route.pool)).collect();
    assert_eq!(routes, [(&b"p:age:"[..], 1), (&b"p:"[..], 0)], "the longest prefix is looked at first");
}

#[test]
fn flags_override_the_file() {
    let file = File::new("override", DESIGN);
    let settings = file.load(&["-m", "64", "-t", "3", "-p", "7"]);
    assert_eq!((settings.pools[0].memory_bytes, settings.pools[1].memory_bytes), (64 * MIB, 512 * MIB));
    assert_eq!(settings.workers, 3);
    assert_eq!(listeners(&settings), ["127.0.0.1:7", "[::1]:7"], "an address flag replaces the file's listeners");
    let file =
        File::new("override-named", "[pool.a]\n[pool.b]\n[[listen]]\nmemcached = \"127.0.0.1:1\"\npool = \"b\"\n");
    assert_eq!(file.problem(&["-m", "64"]), "-m: expected a pool called default for it to act on, n.toml has a, b");
    assert_eq!(file.load(&[]).listeners[0].pool, 1);
}

#[test]
fn a_bad_file_is_one_sentence_with_file_line_key_and_what_was_expected() {
    for (name, text, sentence) in [
        ("syntax", "[server\n", "n.toml:1: [server: expected TOML: unclosed table"),
        ("twice", "[server]\nworkers = 1\nworkers = 2\n", "n.toml:3: workers = 2: expected TOML: duplicate key"),
        (
            "table",
            "[servers]\n",
            "n.toml:1: servers: no such table, expected [server], [pool.NAME], [fleet.NAME], [origin.NAME], [table.NAME], [[listen]] or [[route]]",
        ),
        (
            "key",
            "[server]\n\nworker = 4\n",
            "n.toml:3: server.worker: no such key, expected one of workers, connections_max, ",
        ),
        (
            "size",
            "[pool.a]\nmemory = \"2 gigs\"\n",
            "n.toml:2: pool.a.memory: expected a size from 1 MiB up, such as 512k, 2m or 1GiB, not \"2 gigs\"",
        ),
        ("small", "[pool.a]\nmemory = 1000\n", "n.toml:2: pool.a.memory: expected a size from 1 MiB up"),
        (
            "half",
            "[pool.a]\nmemory = \"8MiB\"\nitem_max = \"5MiB\"\n",
            "n.toml:3: pool.a.item_max: expected an item limit of at most half of the memory, 4 MiB of 8 MiB, not 5 MiB",
        ),
        (
            "type",
            "[server]\nworkers = \"4\"\n",
            "n.toml:2: server.workers: expected a whole number from 1 to 1024, not \"4\"",
        ),
        ("bool", "[server]\nwatch = 1\n", "n.toml:2: server.watch: expected true or false, not 1"),
        ("pool-name", "[pool.\"a b\"]\n", "n.toml:1: pool.a b: expected a name of 1 to 64 letters, digits, - and _"),
        (
            "no-pool",
            "[pool.a]\n[[listen]]\nmemcached = \"127.0.0.1:1\"\npool = \"b\"\n",
            "n.toml:2: listen.pool: expected the name of a pool, one of a, not \"b\"",
        ),
        (
            "which-pool",
            "[pool.a]\n[pool.b]\n[[listen]]\nmemcached = \"127.0.0.1:1\"\n",
            "n.toml:3: listen.pool: expected the name of a pool, one of a, b, not nothing",
        ),
        (
            "which-default",
            "[pool.a]\n[pool.b]\n",
            "n.toml: listen: expected a pool called default to serve, there are a, b; name one in a [[listen]]",
        ),
        (
            "no-address",
            "[[listen]]\npool = \"default\"\n",
            "n.toml:1: listen: expected one of the keys memcached, http and htcp with an address",
        ),
        (
            "address",
            "[[listen]]\nmemcached = \"127.0.0.1:x\"\n",
            "n.toml:1: listen.memcached: expected a port from 0 to 65535 after the host, not \"127.0.0.1:x\"",
        ),
        (
            "mode",
            "[[listen]]\nmemcached = \"127.0.0.1:1\"\nmode = \"0700\"\n",
            "n.toml:1: listen.mode: expected only with a unix: address",
        ),
        (
            "one-listen",
            "[listen]\nmemcached = \"127.0.0.1:1\"\n",
            "n.toml:1: listen: expected an array of tables, each headed [[listen]], not table",
        ),
        (
            "prefix",
            "[[route]]\npool = \"default\"\n",
            "n.toml:1: route.prefix: expected the first 1 to 250 bytes of a key",
        ),
        ("route-pool", "[[route]]\nprefix = \"p\"\n", "n.toml:1: route: expected the key pool with one of default"),
        (
            "route-twice",
            "[[route]]\nprefix = \"p\"\npool = \"default\"\n[[route]]\nprefix = \"p\"\npool = \"default\"\n",
            "n.toml:4: route.prefix: expected each prefix once, \"p\" was routed before",
        ),
        (
            "backend",
            "[pool.a]\nbackend = \"shared\"\n",
            "n.toml:1: pool.a.backend: expected the name of a fleet or a table of the file (there is none), not \"shared\"",
        ),
    ] {
        let found = file_problem(name, text);
        assert!(found.starts_with(sentence), "{found}\n{sentence}");
        assert!(!found.contains('\n'), "{found}");
    }
    let file = File::new("utf-8", "");
    fs::write(&file.path, b"[server]\n# \xff\n").unwrap();
    assert_eq!(file.problem(&[]), "n.toml:2: expected TOML in UTF-8");
    let missing = problem(&["--config", "/no/such/file"]);
    assert!(missing.starts_with("/no/such/file: expected a configuration file: "), "{missing}");
}

#[test]
fn small_memory_in_a_file_lowers_an_item_limit_that_nobody_set() {
    let settings = File::new("small-memory", "[pool.a]\nmemory = \"1MiB\"\n").load(&[]);
    assert_eq!(settings.pools[0].item_bytes_max, 512 * 1024);
}
