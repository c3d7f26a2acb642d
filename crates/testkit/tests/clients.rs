//! Programs that people already run work unchanged: each test starts a server and runs an unmodified client against it.
//!
//! The clients and what each test does are in `clients/`; `scripts/install-test-deps.sh` puts them in place, and `make test` runs
//! that first. `NUTHATCH_TEST_SERVER=target/clients/memcached-1.6.45/memcached-debug` runs the same tests against memcached, which is how
//! they are proved.

use std::path::PathBuf;
use std::time::Duration;

use nuthatch_testkit::program::{self, Program};
use nuthatch_testkit::{Launch, Spawned, spawn};

/// How long one client's test may take; most take a second or two, memcached's own tests a minute or two of mostly sleep.
const PATIENCE: Duration = Duration::from_secs(400);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Tcp,
    Unix,
    /// TCP, of a pool before three memcached, with copies.
    Fleet,
}

macro_rules! clients {
    ($($name:ident: $over:ident, $program:expr;)*) => {
        $(
            #[test]
            #[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
            fn $name() {
                run(Over::$over, &$program);
            }
        )*
    };
}

clients! {
    memcacheds_own_tests_pass_but_for_the_skip_list: Tcp, ["/usr/bin/python3", "memcached/suite_test.py"];
    memcacheds_own_tests_pass_over_tls_but_for_the_skip_list: Tcp, ["/usr/bin/python3", "memcached/suite_test.py", "tls"];
    memcapable_passes_text_and_binary: Tcp, ["bash", "libmemcached/memcapable_test.sh"];
    libmemcached_tools_work_over_tcp: Tcp, ["bash", "libmemcached/tools_test.sh"];
    libmemcached_tools_work_over_unix: Unix, ["bash", "libmemcached/tools_test.sh"];
    php_memcached_works_over_tcp: Tcp, ["php", "php/memcached_test.php"];
    php_memcached_works_over_unix: Unix, ["php", "php/memcached_test.php"];
    php_memcache_works_over_tcp: Tcp, ["php", "php/memcache_test.php"];
    php_memcache_works_over_unix: Unix, ["php", "php/memcache_test.php"];
    php_clients_forget_prefixes_over_tcp: Tcp, ["php", "php/forget_test.php"];
    php_clients_forget_prefixes_over_unix: Unix, ["php", "php/forget_test.php"];
    pylibmc_works_over_tcp: Tcp, ["{clients}/python/bin/python", "python/pylibmc_test.py"];
    pylibmc_works_over_unix: Unix, ["{clients}/python/bin/python", "python/pylibmc_test.py"];
    pymemcache_works_over_tcp: Tcp, ["{clients}/python/bin/python", "python/pymemcache_test.py"];
    pymemcache_works_over_unix: Unix, ["{clients}/python/bin/python", "python/pymemcache_test.py"];
    pymemcache_forgets_prefixes_and_tags_over_tcp: Tcp, ["{clients}/python/bin/python", "python/forget_test.py"];
    pymemcache_forgets_prefixes_and_tags_over_unix: Unix, ["{clients}/python/bin/python", "python/forget_test.py"];
    pymemcache_works_over_tls: Tcp, ["{clients}/python/bin/python", "python/tls_test.py"];
    python_binary_memcached_works_over_tcp: Tcp, ["{clients}/python/bin/python", "python/bmemcached_test.py"];
    python_binary_memcached_works_over_unix: Unix, ["{clients}/python/bin/python", "python/bmemcached_test.py"];
    python_memcached_works_over_tcp: Tcp, ["{clients}/python/bin/python", "python/python_memcached_test.py"];
    python_memcached_works_over_unix: Unix, ["{clients}/python/bin/python", "python/python_memcached_test.py"];
    meta_memcache_works_over_tcp: Tcp, ["{clients}/python/bin/python", "python/meta_memcache_test.py"];
    meta_memcache_works_over_unix: Unix, ["{clients}/python/bin/python", "python/meta_memcache_test.py"];
    emcache_works_over_tcp: Tcp, ["{clients}/python/bin/python", "python/emcache_test.py"];
    emcache_works_over_unix: Unix, ["{clients}/python/bin/python", "python/emcache_test.py"];
    gomemcache_works_over_tcp: Tcp, ["{clients}/go/gomemcache-test"];
    gomemcache_works_over_unix: Unix, ["{clients}/go/gomemcache-test"];
    spymemcached_works_over_tcp: Tcp, ["java", "-cp", "{clients}/java/target/classes:{clients}/java/target/lib/*", "SpyTest"];
    xmemcached_works_over_tcp: Tcp, ["java", "-cp", "{clients}/java/target/classes:{clients}/java/target/lib/*", "XmemcachedTest"];
    memjs_works_over_tcp: Tcp, ["node", "node/memjs_test.js"];
    node_memcached_works_over_tcp: Tcp, ["node", "node/memcached_test.js"];
    perl_cache_memcached_fast_works_over_tcp: Tcp, ["perl", "perl/fast_test.pl"];
    perl_cache_memcached_fast_works_over_unix: Unix, ["perl", "perl/fast_test.pl"];
    perl_cache_memcached_works_over_tcp: Tcp, ["perl", "perl/plain_test.pl"];
    perl_cache_memcached_works_over_unix: Unix, ["perl", "perl/plain_test.pl"];
    dalli_works_over_tcp: Tcp, ["ruby", "ruby/dalli_test.rb"];
    dalli_works_over_unix: Unix, ["ruby", "ruby/dalli_test.rb"];
    php_memcached_works_through_a_fleet: Fleet, ["php", "php/memcached_test.php"];
    php_memcache_works_through_a_fleet: Fleet, ["php", "php/memcache_test.php"];
    pylibmc_works_through_a_fleet: Fleet, ["{clients}/python/bin/python", "python/pylibmc_test.py"];
    pymemcache_works_through_a_fleet: Fleet, ["{clients}/python/bin/python", "python/pymemcache_test.py"];
    meta_memcache_works_through_a_fleet: Fleet, ["{clients}/python/bin/python", "python/meta_memcache_test.py"];
    nginx_serves_pages_that_php_stored_over_tcp: Tcp, ["/usr/bin/python3", "nginx/test.py"];
    nginx_serves_pages_that_php_stored_over_unix: Unix, ["/usr/bin/python3", "nginx/test.py"];
    httpd_caches_pages_by_socache_memcache: Tcp, ["/usr/bin/python3", "httpd/test.py"];
}

fn run(over: Over, program: &[&str]) {
    if program.contains(&"memcached/suite_test.py") && spawn::other_server().is_some() {
        println!("not run: memcached's own tests are for Nuthatch; memcached has run them itself");
        return;
    }
    let forgets = program.iter().any(|word| word.contains("forget_test"));
    if forgets && spawn::other_server().is_some() {
        println!("not run: memcached forgets no prefixes");
        return;
    }
    if over == Over::Fleet && spawn::other_server().is_some() {
        println!("not run: memcached stands before no fleet");
        return;
    }
    let launch = if forgets { Launch::debug().args(["-o", "reserved_keys"]) } else { Launch::debug() };
    let mut behind = Vec::new();
    let server = match over {
        Over::Tcp => launch.start(),
        Over::Unix => launch.unix().start(),
        Over::Fleet => {
            behind.extend((0..3).map(|_| Launch::real_memcached().start()));
            let servers: Vec<_> = behind.iter().map(|server: &Spawned| format!("\"{}\"", server.address())).collect();
            let file = format!(
                "[pool.default]\nbackend = \"shared\"\nttl_max = \"5s\"\n[fleet.shared]\nprotocol = \"meta\"\nservers = [{}]\n\
                 [[listen]]\nmemcached = \"127.0.0.1:0\"\n",
                servers.join(", ")
            );
            let args = ["serve", "--config", "{dir}/nuthatch.toml"];
            Launch::nuthatch().file("nuthatch.toml", file).args(args).start()
        }
    };
    // For clients that spread keys over several servers.
    let more: Vec<_> = (0..3).map(|_| Launch::memcached().start()).collect();
    let servers: Vec<_> = more.iter().map(|server| server.address().to_string()).collect();

    let clock = if spawn::other_server().is_some() || over == Over::Fleet { "real" } else { "debugtime" };
    let stdout = Program::new(program)
        .env("SERVER", server.address().to_string())
        .env("SERVERS", servers.join(" "))
        .env("CLOCK", clock)
        .env("UNIQUES", if over == Over::Fleet { "of several servers" } else { "of one" })
        .env("PROGRAM", server.program())
        .env("SUITE", memcached_source())
        .run(PATIENCE, || format!("the server wrote:\n{}", server.stderr()));
    print!("{stdout}");
}

/// Where memcached's own tests are: those of the release that is behaved like, or else of Debian's memcached.
fn memcached_source() -> PathBuf {
    let release = std::fs::read_to_string(program::repository().join("clients/memcached/release.txt"))
        .expect("the release is in the repository");
    let version = release.split(' ').next().unwrap_or_default();
    let clients = program::clients_dir();
    let built = clients.join(format!("memcached-{version}"));
    if built.join("memcached-debug").exists() { built } else { clients.join("memcached-source/source") }
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn php_stores_and_reads_through_the_example_for_drupal() {
    sidecar("drupal");
}

#[test]
#[ignore = "needs what scripts/install-test-deps.sh installs; `make test` runs it"]
fn php_stores_and_reads_through_the_example_for_mediawiki() {
    sidecar("mediawiki");
}

/// Starts an example's configuration file before servers of this test's, on sockets and ports of its own, and has PHP use it as
/// the example's PHP file says.
fn sidecar(example: &str) {
    if spawn::other_server().is_some() {
        println!("not run: memcached stands before no fleet");
        return;
    }
    let file = program::repository().join("examples").join(example).join("nuthatch.toml");
    let mut text = std::fs::read_to_string(&file).expect("the example is in the repository");
    let fleet: Vec<_> = (0..3).map(|_| Launch::real_memcached().start()).collect();
    for (number, server) in fleet.iter().enumerate() {
        text = text.replace(&format!("10.0.0.4{number}:11211"), &server.address().to_string());
    }
    for port in 11211..=11213 {
        text = text.replace(&format!("memcached = \"127.0.0.1:{port}\""), "memcached = \"127.0.0.1:0\"");
    }
    text = text.replace("/run/nuthatch/", "{dir}/");
    assert!(!text.contains("10.0.0.") && !text.contains(":1121"), "{text}");
    let server =
        Launch::nuthatch().file("nuthatch.toml", &text).args(["serve", "--config", "{dir}/nuthatch.toml"]).start();
    let listed = std::fs::read_to_string(server.dir().join("ports")).expect("the server wrote its ports");
    let ports: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("TCP INET: ")).collect();
    let stdout = Program::new(&["php", "php/sidecar_test.php", example])
        .env("SERVER", server.address().to_string())
        .env("SERVERS", fleet[0].address().to_string())
        .env("DIR", server.dir())
        .env("PORTS", ports.join(" "))
        .run(PATIENCE, || format!("the server wrote:\n{}", server.stderr()));
    print!("{stdout}");
}
