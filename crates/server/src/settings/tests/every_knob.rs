//! Walks the tables: every flag, option and key is taken where it should be and refused with its sentence where it should not;
//! what is printed of them is what they are.

use std::collections::HashSet;
use std::fs;

use super::super::knob::{Action, Effect, Knob};
use super::super::*;
use super::{File, file_problem, load, problem, try_load};

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
        (Action::Texts { .. }, "anonymous") => (some("mediawiki"), some("joomla")),
        (Action::Texts { .. }, "purge_from") => (some("10.0.0.0/8"), some("10.0.0.0/33")),
        (Action::List { .. }, "accept_encoding") => (some("gzip"), some("deflate")),
        (Action::Texts { .. }, "refuse_statuses") => (some("404"), some("1000")),
        (Action::Texts { .. }, "refresh_patterns") => (some("^/images/ 1h 20% 3d"), some("( 1h 20% 3d")),
        (Action::List { expected, .. } | Action::Texts { expected, .. }, _) if expected.contains("http://") => {
            (some("http://127.0.0.1:8000"), some(""))
        }
        (Action::List { .. } | Action::Texts { .. }, _) => (some("127.0.0.1:1"), some("")),
        (Action::Table { .. }, _) => (None, None),
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
pub(super) fn walk<T>(what: &str, knobs: &[Knob<T>], text: impl Fn(&str) -> String) {
    for knob in knobs {
        let good = match (knob.name, &knob.action) {
            ("memcached", _) => "\"127.0.0.1:0\"".to_owned(),
            ("pool", _) => "\"default\"".to_owned(),
            ("memory", _) => "\"64MiB\"".to_owned(),
            ("mode", _) => "\"0660\"".to_owned(),
            ("tls", _) => "{ certificate = \"/c\" }".to_owned(),
            ("pages", _) => "{ grace = 30 }".to_owned(),
            ("url", _) => "\"sqlite:///a.db\"".to_owned(),
            ("separator" | "delimiter", _) => "\"|\"".to_owned(),
            ("password_file", _) => "\"/dev/null\"".to_owned(),
            ("password_env", _) => "\"PATH\"".to_owned(),
            (_, Action::List { .. }) => format!("[{:?}]", examples(knob).0.unwrap()),
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
    walk("table.a", super::super::table::KEYS, |line| {
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
    walk("listen.pages", super::super::pages::LISTEN_PAGES, |line| {
        format!("[[listen]]\npages.{line}\nhttp = \"127.0.0.1:0\"\norigin = \"http://a\"\n")
    });
    walk("origin.a", super::super::pages::ORIGIN, |line| match line.split(' ').next() {
        Some("servers") => format!("[origin.a]\n{line}\n"),
        Some("tls_key") => format!("[origin.a]\n{line}\nservers = \"https://a\"\ntls_certificate = \"/c\"\n"),
        _ => format!("[origin.a]\n{line}\nservers = \"https://a\"\n"),
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
pub(super) fn defaults<T>(knobs: &[Knob<T>], text: &mut String) {
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
