//! Keys live where published clients and a proxy put them: each is asked about a hundred thousand keys (fewer where it is slow) for
//! many lists of servers, and every answer has to be ours.
//!
//! Run by step `clients` of `scripts/check.sh`, which installs them. What is asked of which client is here, how it answers in `clients/`.

mod common;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Backend, Nutcracker};
use nuthatch_fleet::compress::{decode, encode};
use nuthatch_fleet::membership::{Members, Source, once};
use nuthatch_fleet::placement::Set;
use nuthatch_fleet::{Compression, Distribution, FleetSettings, Hash, Placement, PlacementSettings, ServerSpec};
use nuthatch_testkit::program::Program;
use nuthatch_testkit::{Etcd, Launch};

const PATIENCE: Duration = Duration::from_secs(300);
const KEYS: usize = 100_000;

/// One list of servers under one distribution.
#[derive(Clone)]
struct Case {
    name: String,
    settings: PlacementSettings,
    servers: Vec<ServerSpec>,
    out: Vec<usize>,
    /// Options of the client's program that are not in the settings.
    options: String,
}

impl Case {
    fn new(list: &str, distribution: Distribution, hash: Option<Hash>, servers: Vec<ServerSpec>) -> Case {
        let hash_name = hash.map_or("", Hash::name);
        let name = format!("{list}/{}/{hash_name}", distribution.name());
        let settings = PlacementSettings { distribution, hash, ..PlacementSettings::default() };
        Case { name, settings, servers, out: Vec::new(), options: String::new() }
    }

    /// The line its program is given.
    fn line(&self) -> String {
        let servers: Vec<String> =
            self.servers.iter().map(|server| format!("{} {} {}", server.host, server.port, server.weight)).collect();
        let hash = self.settings.hash.map_or("", Hash::name);
        let name = self.settings.distribution.name();
        format!("{}\t{name}\t{hash}\t{}\t{}\n", self.name, self.options, servers.join(";"))
    }

    fn placement(&self) -> Placement {
        let placement = Placement::new(&self.settings, &self.servers).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        placement.without(&self.out.iter().copied().collect::<Set>())
    }
}

/// Keys as programs have them, of 1 to about 60 bytes; with `bytes` also such as are no ASCII.
fn keys(count: usize, bytes: bool) -> Vec<Vec<u8>> {
    let key = |number: usize| match number % 5 {
        0 => format!("k{number}"),
        1 => format!("user:{}:profile", number * 7919),
        2 => format!("session.{:032x}", (number as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        3 if bytes => format!("straße/{number}/été"),
        3 => format!("{number:b}"),
        _ => format!("https://shop.example/article/{number}?page={}", number % 13),
    };
    (0..count).map(|number| key(number).into_bytes()).collect()
}

fn list(specs: &[&str]) -> Vec<ServerSpec> {
    specs.iter().map(|spec| ServerSpec::parse(spec).unwrap_or_else(|expected| panic!("{spec}: {expected}"))).collect()
}

/// Lists of servers.
fn lists() -> Vec<(&'static str, Vec<ServerSpec>)> {
    let many: Vec<String> = (0..60).map(|n| format!("10.1.{}.{}:{}", n / 7, n * 3 + 1, 11211 + n % 3)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let ten: Vec<String> = (1..=10).map(|n| format!("192.168.7.{n}:11300")).collect();
    let ten: Vec<&str> = ten.iter().map(String::as_str).collect();
    vec![
        ("equal", list(&["10.0.1.1", "10.0.1.2", "10.0.1.3"])),
        ("ten on another port", list(&ten)),
        (
            "weighted",
            list(&["10.0.1.1 weight=3", "10.0.1.2:11311 weight=1", "10.0.1.3 weight=2", "10.0.1.4:1 weight=9"]),
        ),
        ("one host", list(&["127.0.0.1:11211", "127.0.0.1:11212", "127.0.0.1:11213", "127.0.0.1:11214"])),
        ("one", list(&["10.0.1.1:11311"])),
        ("many", list(&many)),
        ("host names", list(&["cache-b.example", "cache-a.example:11311", "cache-c.example", "localhost"])),
        ("sockets", list(&["unix:/run/one.sock", "unix:/run/two.sock", "unix:/run/three.sock", "10.0.0.9"])),
        ("unequal", list(&["a weight=1", "b weight=1000", "c weight=77", "d weight=3", "e weight=50"])),
        (
            "odd",
            list(&[
                "CACHE-A.Example weight=65535",
                "cache-a.example",
                "Cache_B.:1 weight=32768",
                "cache-b:65535 weight=2",
                "010.0.0.001:11212 weight=7",
            ]),
        ),
        ("ipv6", list(&["[2001:db8::1]", "[2001:db8::2]:11311", "[::1]:11212"])),
    ]
}

/// Asks a program about each key in each case and holds our own answers against its.
fn compare(words: &[&str], cases: &[Case], keys: &[Vec<u8>]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    for key in keys {
        file.write_all(key).and_then(|()| file.write_all(b"\n")).expect("a key is written");
    }
    let path = file.path().to_str().expect("a path in UTF-8").to_owned();
    let words: Vec<&str> = words.iter().copied().chain([path.as_str()]).collect();
    let input: String = cases.iter().map(Case::line).collect();
    let output = Program::new(&words).input(input).run(PATIENCE, String::new);
    let mut lines = output.lines();
    for case in cases {
        let line = lines.next().unwrap_or_else(|| panic!("{}: no answer", case.name));
        let answers =
            line.strip_prefix(&format!("{} ", case.name)).unwrap_or_else(|| panic!("{}: {line:.200}", case.name));
        let placement = case.placement();
        let mut wrong = String::new();
        let (mut count, mut used) = (0, HashSet::new());
        for (key, answer) in keys.iter().zip(answers.split(' ')) {
            count += 1;
            used.insert(answer);
            let ours = match case.settings.distribution {
                // It gives up after twenty tries.
                Distribution::Dalli => placement.candidates(key).next().map_or("none".to_owned(), |s| s.to_string()),
                _ => placement.server_of(key).to_string(),
            };
            if ours != answer && wrong.len() < 500 {
                let _ = write!(wrong, "\n{}: theirs {answer}, ours {ours}", String::from_utf8_lossy(key));
            }
        }
        assert_eq!(count, keys.len(), "{}: not every key was answered", case.name);
        assert!(wrong.is_empty(), "{} is placed otherwise:{wrong}", case.name);
        println!("{}: {count} keys on {} of {} servers", case.name, used.len(), case.servers.len());
    }
    println!("{} cases of {} keys", cases.len(), keys.len());
}

/// Every hash that php-memcached and pylibmc both take: Debian's libmemcached has no `hsieh`, php-memcached alone can be told
/// `murmur3`, and two are twemproxy's.
fn hashes() -> impl Iterator<Item = Hash> {
    let others = [Hash::Hsieh, Hash::Murmur3, Hash::Crc16, Hash::Crc32a];
    Hash::ALL.into_iter().filter(move |hash| !others.contains(hash))
}

/// The cases of libmemcached's clients.
fn libmemcached_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, servers) in lists() {
        for (distribution, hash) in [
            (Distribution::Modula, None),
            (Distribution::Ketama, None),
            (Distribution::Ketama, Some(Hash::Md5)),
            (Distribution::KetamaSpy, None),
            (Distribution::KetamaWeighted, None),
        ] {
            cases.push(Case::new(name, distribution, hash, servers.clone()));
        }
        if matches!(name, "weighted" | "ten on another port") {
            for distribution in [Distribution::Modula, Distribution::Ketama] {
                cases.extend(hashes().map(|hash| Case::new(name, distribution, Some(hash), servers.clone())));
            }
        }
    }
    cases
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn php_memcached_places_keys_as_we_do() {
    let mut cases = libmemcached_cases();
    let [weighted, names] = ["weighted", "host names"].map(|wanted| {
        lists().into_iter().find(|(name, _)| *name == wanted).map(|(_, servers)| servers).expect("it is in the list")
    });
    // Hashes that only php-memcached can be told by number, and those it can choose over MD5 on the weighted ring.
    for (distribution, hash) in [
        (Distribution::Modula, Hash::Murmur3),
        (Distribution::Ketama, Hash::Murmur3),
        (Distribution::KetamaWeighted, Hash::OneAtATime),
        (Distribution::KetamaWeighted, Hash::Crc),
    ] {
        cases.push(Case::new("weighted", distribution, Some(hash), weighted.clone()));
    }
    for distribution in [Distribution::Modula, Distribution::Ketama, Distribution::KetamaWeighted] {
        let case = Case::new("sorted", distribution, None, names.clone());
        let settings = PlacementSettings { sort_hosts: true, ..case.settings.clone() };
        cases.push(Case { settings, options: "sort_hosts".to_owned(), ..case });
        for hashed in [false, true] {
            let case =
                Case::new(if hashed { "namespace" } else { "namespace aside" }, distribution, None, names.clone());
            let settings = PlacementSettings {
                namespace: b"shop:".to_vec(),
                hash_with_namespace: hashed,
                ..case.settings.clone()
            };
            let options = if hashed { "hash_with_namespace,namespace=shop:" } else { "namespace=shop:" };
            cases.push(Case { settings, options: options.to_owned(), ..case });
        }
    }
    compare(&["php", "php/placement.php"], &cases, &keys(KEYS, true));
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn php_memcached_places_keys_as_we_do_when_it_has_ejected_a_server() {
    let backends: Vec<Backend> = (0..4).map(Backend::start).collect();
    let mut cases = Vec::new();
    for weights in [[1, 1, 1, 1], [3, 5, 1, 7]] {
        let mut servers: Vec<ServerSpec> = backends
            .iter()
            .zip(weights)
            .map(|(b, weight)| ServerSpec::new("127.0.0.1", b.port()).weighing(weight))
            .collect();
        // Nobody listens there, and connecting is refused.
        servers[2].port = common::closed_port();
        for distribution in [Distribution::Ketama, Distribution::KetamaWeighted, Distribution::KetamaSpy] {
            let case = Case::new(&format!("one ejected {weights:?}"), distribution, None, servers.clone());
            cases.push(Case { out: vec![2], options: "dead=2".to_owned(), ..case });
        }
    }
    compare(&["php", "php/placement.php"], &cases, &keys(KEYS, true));
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn pylibmc_places_keys_as_we_do() {
    let mut cases = libmemcached_cases();
    // pylibmc lays out its ring after the servers are there, which makes libmemcached forget that some weigh more than others.
    cases.retain(|case| {
        let is_weighted = case.servers.iter().any(|server| server.weight > 1);
        let forgets = matches!(case.settings.distribution, Distribution::Ketama | Distribution::KetamaSpy);
        // It is given IPv6 addresses in another form, and sockets below.
        let is_other = ["ipv6", "sockets"].iter().any(|list| case.name.starts_with(list));
        !(is_other || is_weighted && forgets)
    });
    for distribution in [Distribution::Modula, Distribution::Ketama, Distribution::KetamaWeighted] {
        // pylibmc's sockets have port 0, which their labels show.
        let servers = list(&["unix:/run/one.sock port=0", "unix:/run/two.sock port=0", "unix:/run/three.sock port=0"]);
        cases.push(Case::new("sockets", distribution, None, servers));
    }
    compare(&["{clients}/python/bin/python", "python/placement.py", "pylibmc"], &cases, &keys(KEYS, true));
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn dalli_places_keys_as_we_do() {
    let mut cases: Vec<Case> =
        lists().into_iter().map(|(name, servers)| Case::new(name, Distribution::Dalli, None, servers)).collect();
    let (_, weighted) = lists().remove(2);
    let case = Case::new("namespace", Distribution::Dalli, None, weighted.clone());
    // Dalli puts a colon behind a namespace.
    let settings = PlacementSettings { namespace: b"shop:".to_vec(), ..case.settings.clone() };
    cases.push(Case { settings, options: "namespace=shop".to_owned(), ..case });
    for out in [vec![0], vec![3], vec![1, 3], vec![0, 1, 3]] {
        let dead: Vec<String> = out.iter().map(usize::to_string).collect();
        let case = Case::new(&format!("{} dead", dead.join("+")), Distribution::Dalli, None, weighted.clone());
        cases.push(Case { out, options: format!("dead={}", dead.join("+")), ..case });
    }
    compare(&["ruby", "ruby/placement.rb"], &cases, &keys(KEYS, true));
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn pymemcache_places_keys_as_we_do() {
    let mut cases: Vec<Case> = lists()
        .into_iter()
        .filter(|(name, _)| *name != "many")
        .map(|(name, servers)| Case::new(name, Distribution::Pymemcache, None, servers))
        .collect();
    let (_, equal) = lists().remove(0);
    let case = Case::new("one removed", Distribution::Pymemcache, None, equal);
    cases.push(Case { out: vec![1], options: "dead=1".to_owned(), ..case });
    // Its hash is written in Python.
    compare(&["{clients}/python/bin/python", "python/placement.py", "pymemcache"], &cases, &keys(KEYS / 10, false));
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn gomemcache_places_keys_as_we_do() {
    let cases: Vec<Case> = lists()
        .into_iter()
        // It looks the names of hosts up, and knows no weights.
        .filter(|(_, servers)| {
            servers
                .iter()
                .all(|server| server.weight == 1 && (server.is_unix() || server.host.parse::<IpAddr>().is_ok()))
        })
        .map(|(name, servers)| Case::new(name, Distribution::Modula, Some(Hash::Crc32a), servers))
        .collect();
    assert!(cases.len() >= 6, "{} lists", cases.len());
    compare(&["{clients}/go/gomemcache-test", "placement"], &cases, &keys(KEYS, true));
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn spymemcached_places_keys_as_we_do_where_servers_are_named_as_it_labels_them() {
    let labelled = |server: &ServerSpec| server.clone().named(&format!("{}:{}", server.host, server.port));
    let cases: Vec<Case> = lists()
        .into_iter()
        // It looks the names of hosts up and has both in its labels, writes IPv6 addresses at length, and knows no weights.
        .filter(|(_, servers)| {
            servers.iter().all(|server| server.weight == 1 && server.host.parse::<Ipv4Addr>().is_ok())
        })
        .map(|(name, servers)| {
            let servers = servers.iter().map(labelled).collect();
            Case::new(name, Distribution::Twemproxy, Some(Hash::Md5), servers)
        })
        .collect();
    assert!(cases.len() >= 5, "{} lists", cases.len());
    let program = ["java", "-cp", "{clients}/java/target/classes:{clients}/java/target/lib/*", "SpyPlacement"];
    compare(&program, &cases, &keys(KEYS, true));
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn nutcracker_places_keys_as_we_do() {
    let backends: Vec<Backend> = (0..4).map(Backend::start).collect();
    let plain: Vec<ServerSpec> = backends.iter().map(|backend| ServerSpec::new("127.0.0.1", backend.port())).collect();
    let weights = [1, 4, 2, 3];
    let weighted: Vec<ServerSpec> =
        plain.iter().cloned().zip(weights).map(|(server, weight)| server.weighing(weight)).collect();
    let named: Vec<ServerSpec> = weighted
        .iter()
        .cloned()
        .zip(["alpha", "beta", "gamma", "delta"])
        .map(|(server, name)| server.named(name))
        .collect();
    let mut cases = Vec::new();
    for hash in Hash::ALL.into_iter().filter(|hash| *hash != Hash::Murmur3) {
        cases.push(Case::new("plain", Distribution::Twemproxy, Some(hash), plain.clone()));
        cases.push(Case::new("weighted", Distribution::TwemproxyModula, Some(hash), weighted.clone()));
    }
    for (name, servers) in [("weighted", &weighted), ("named", &named)] {
        cases.push(Case::new(name, Distribution::Twemproxy, None, servers.clone()));
    }
    let case = Case::new("tagged", Distribution::Twemproxy, None, named.clone());
    let settings = PlacementSettings { hash_tag: Some((b'{', b'}')), ..case.settings.clone() };
    cases.push(Case { settings, ..case });

    let mut keys = keys(4000, true);
    keys.extend((0..1000).map(|n| format!("{{{}}}:{n}", n % 50).into_bytes()));
    keys.extend([&b"{}x"[..], b"a{b", b"a}b{c}", b"{a}{b}", b"{{a}}"].map(<[u8]>::to_vec));
    let pools: Vec<String> = cases.iter().map(|case| common::nutcracker_pool(&case.settings, &case.servers)).collect();
    let proxy = Nutcracker::start(&pools);
    for (pool, case) in cases.iter().enumerate() {
        let placement = case.placement();
        let answers = proxy.backends_of(pool, &keys);
        for (key, answer) in keys.iter().zip(&answers) {
            let key_text = String::from_utf8_lossy(key);
            assert_eq!(placement.server_of(key), *answer, "{}: {key_text}: ours, theirs", case.name);
        }
        println!("{}: {} keys", case.name, answers.len());
    }
}

#[tokio::test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
async fn a_list_in_etcd_is_followed_and_stays_when_etcd_goes() {
    let mut etcd = Etcd::start();
    for (key, value) in [("/nuthatch/shared/1", "10.0.0.1"), ("/nuthatch/shared/2", "10.0.0.2:11311 weight=2")] {
        etcd.put(key, value);
    }
    etcd.put("/nuthatch/sharee", "10.9.9.9");
    let settings = FleetSettings {
        servers: vec![Source::parse(&format!("etcd:{}/nuthatch/shared/", etcd.endpoint())).expect("it is a source")],
        // Asked again only when the watch says so.
        refresh: Duration::from_secs(600),
        settle: Duration::from_millis(10),
        ..FleetSettings::named("shared")
    };
    let expected = [ServerSpec::new("10.0.0.1", 11211), ServerSpec::new("10.0.0.2", 11311).weighing(2)];
    assert_eq!(once(&settings).await.expect("etcd answers"), expected);

    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let members = Members::follow(&settings, Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned())));
    let mut lists = members.lists();
    let hosts =
        |list: &Arc<Vec<ServerSpec>>| list.iter().map(|server| server.host.clone()).collect::<Vec<_>>().join(" ");
    let mut becomes = async |expected: &str| {
        let wanted =
            tokio::time::timeout(Duration::from_secs(20), lists.wait_for(|list| hosts(list) == expected)).await;
        assert!(wanted.is_ok(), "expected {expected}; {lines:?}");
    };
    becomes("10.0.0.1 10.0.0.2").await;
    etcd.put("/nuthatch/shared/3", "10.0.0.3");
    becomes("10.0.0.1 10.0.0.2 10.0.0.3").await;
    etcd.delete("/nuthatch/shared/1");
    becomes("10.0.0.2 10.0.0.3").await;

    etcd.stop();
    let said = async {
        while !lines.lock().unwrap().iter().any(|line| line.ends_with("; its last list stays")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), said).await.is_ok(), "{lines:?}");
    assert_eq!(hosts(&members.lists().borrow()), "10.0.0.2 10.0.0.3");
    assert!(members.counters().failures() > 0 && members.counters().changes() == 3, "{:?}", members.counters());
}

/// Has a client write values, expands them, stores our own and has the client read those.
fn exchange(how: Compression, program: &[&str], kind: &[&str]) {
    let server = Launch::memcached().start();
    let run = |what| {
        let words: Vec<&str> = program.iter().copied().chain([what]).chain(kind.iter().copied()).collect();
        Program::new(&words)
            .env("SERVER", server.address().to_string())
            .env("SERVERS", server.address().to_string())
            .run(PATIENCE, || server.stderr());
    };
    run("write");
    let mut conn = server.connect();
    let (mut expanded, mut packed) = (Vec::new(), Vec::new());
    let mut compressed = 0;
    for lines in [10usize, 300, 4000, 20_000] {
        let text: Vec<u8> =
            (0..lines).flat_map(|n| format!("line {} of {lines}\n", n * n % 9973).into_bytes()).collect();
        let head = conn.ask(format!("get theirs:{lines}"));
        let words: Vec<&str> = head.split(' ').collect();
        let [flags, length] = [2, 3].map(|word| words[word].parse::<usize>().expect("a number"));
        let value = conn.exactly(length);
        conn.expect("");
        conn.expect("END");
        match decode(how, 1 << 20, &value, flags as u32, &mut expanded).unwrap_or_else(|e| panic!("{how:?}: {e}")) {
            Some(_) => {
                compressed += 1;
                assert!(value.len() < text.len(), "{how:?}");
                assert_eq!(expanded, text, "{how:?} of {lines} lines");
            }
            None => assert_eq!(value, text, "{how:?} of {lines} lines"),
        }
        let plain_flags = flags as u32 & if how == Compression::Dalli { !2 } else { !0xf8 };
        let flags = encode(how, 400, &text, plain_flags, &mut packed);
        let stored = if flags.is_some() { &packed } else { &text };
        conn.send_line(format!("set ours:{lines} {} 0 {}", flags.unwrap_or(plain_flags), stored.len()));
        conn.send(stored);
        conn.send_line("");
        conn.expect("STORED");
        println!("{how:?}: {lines} lines, {} bytes: theirs {}, ours {}", text.len(), value.len(), stored.len());
    }
    assert!(compressed >= 3, "{how:?}: the client compressed {compressed} of 4 values");
    run("read");
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn clients_read_what_we_compress_and_we_what_they_do() {
    exchange(Compression::PhpZlib, &["php", "php/compression.php"], &["zlib"]);
    exchange(Compression::PhpFastlz, &["php", "php/compression.php"], &["fastlz"]);
    let python = ["{clients}/python/bin/python", "python/compression.py"];
    exchange(Compression::Pylibmc, &python, &["pylibmc"]);
    exchange(Compression::Pymemcache, &python, &["pymemcache"]);
    exchange(Compression::Dalli, &["ruby", "ruby/compression.rb"], &[]);
}
