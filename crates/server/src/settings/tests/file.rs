//! The configuration file as a whole: pools, listeners and routes, and one sentence for every bad one.

use std::fs;

use super::super::*;
use super::{File, file_problem, listeners, problem};

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
