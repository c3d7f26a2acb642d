//! The configuration files of `examples/` are right, and say what they are said to say.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nuthatch_testkit::origin::Origin;
use nuthatch_testkit::ports::free_port;

/// Where an example's files are.
fn directory(example: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(example)
}

/// What `nuthatch check` prints of an example's file.
fn checked(example: &str) -> String {
    let file = directory(example).join("nuthatch.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_nuthatch")).arg("check").arg(&file).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{}", file.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_one_for_drupal_has_its_bins_on_two_sockets() {
    let told = checked("drupal");
    for (socket, pool) in [("/run/nuthatch/default.sock", "pool default"), ("/run/nuthatch/page.sock", "pool page")] {
        let line = told.lines().find(|line| line.contains(socket)).unwrap_or_else(|| panic!("{socket}: {told}"));
        assert!(line.contains(pool), "{line}");
    }
}

#[test]
fn the_one_for_mediawiki_has_a_pool_for_each_kind_of_cache() {
    let told = checked("mediawiki");
    for (port, pool) in [("11211", "pool default"), ("11212", "pool sessions"), ("11213", "pool parser")] {
        let line = told.lines().find(|line| line.contains(port)).unwrap_or_else(|| panic!("{port}: {told}"));
        assert!(line.contains(pool), "{line}");
    }
}

#[test]
fn those_for_pages_listen_for_readers_and_for_memcacheds_clients() {
    for site in ["mediawiki", "drupal", "wordpress"] {
        let told = checked(&format!("pages-{site}"));
        for listener in ["tcp 0.0.0.0:8080", "tcp 127.0.0.1:11211"] {
            let line =
                told.lines().find(|line| line.contains(listener)).unwrap_or_else(|| panic!("{listener}: {told}"));
            assert!(line.contains("pool pages"), "{line}");
        }
    }
}

/// A page cache that runs as an example says, but for its ports, its origin and where its log is.
struct PageCache {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl PageCache {
    fn start(example: &str, origin: &Origin) -> PageCache {
        let folder = tempfile::tempdir().expect("a folder");
        let ports = [free_port(), free_port()];
        let text = fs::read_to_string(directory(example).join("nuthatch.toml")).expect("the example's file");
        let text: String = text
            .replace("0.0.0.0:8080", &format!("127.0.0.1:{}", ports[0]))
            .replace("127.0.0.1:11211", &format!("127.0.0.1:{}", ports[1]))
            .replace("127.0.0.1:4827", "127.0.0.1:0")
            .replace("/var/log/nuthatch", &folder.path().display().to_string())
            .lines()
            .filter(|line| !line.starts_with("health"))
            .map(|line| match line.starts_with("servers") {
                true => format!("servers = [\"{}\"]\n", origin.url()),
                false => format!("{line}\n"),
            })
            .collect();
        let file = folder.path().join("nuthatch.toml");
        fs::write(&file, text).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nuthatch"));
        let child = command.arg("serve").arg("--config").arg(file).spawn().expect("the program runs");
        let cache = PageCache { child, port: ports[0], _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", cache.port)).is_err() {
            assert!(Instant::now() < deadline, "{example}: it does not listen");
            std::thread::yield_now();
        }
        cache
    }

    /// The status of the answer to a request, and HIT or MISS.
    fn ask(&self, method: &str, target: &str, cookie: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: www.example.org\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let cache = answer.split_once("x-cache: ").and_then(|(_, rest)| rest.split(' ').next()).unwrap_or_default();
        (status, cache.to_owned())
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn those_for_pages_share_what_anonymous_readers_see_and_nothing_else() {
    for (site, session, says) in [
        ("mediawiki", "wiki_session=1", "s-maxage=86400, must-revalidate, max-age=0"),
        ("drupal", "SSESS0123=1", "max-age=86400, public"),
        // WordPress says nothing.
        ("wordpress", "wordpress_logged_in_0123=ann", ""),
    ] {
        let origin = Origin::start(move |_, answer| {
            let line = format!("Cache-Control: {says}");
            let lines: &[&str] = if says.is_empty() { &[] } else { &[&line, "Vary: Accept-Encoding, Cookie"] };
            answer.reply("200 OK", lines, "page");
        });
        let cache = PageCache::start(&format!("pages-{site}"), &origin);
        let ask = |method, target, cookie| cache.ask(method, target, cookie);
        let got = |status, cache: &str| (status, cache.to_owned());
        assert_eq!(ask("GET", "/page", "_ga=1"), got(200, "MISS"), "{site}");
        assert_eq!(ask("GET", "/page?utm_source=mail", "_ga=2; theme=dark"), got(200, "HIT"), "{site}");
        assert_eq!(ask("GET", "/page", session), got(200, "MISS"), "{site}: a session's page is its own");
        assert_eq!(ask("GET", "/page", ""), got(200, "HIT"), "{site}");
        assert_eq!(ask("PURGE", "/page", "").0, 200, "{site}");
        assert_eq!(ask("GET", "/page", ""), got(200, "MISS"), "{site}");
        let cookies =
            origin.requests().iter().filter(|request| request.field("cookie").is_some_and(|c| !c.is_empty())).count();
        assert_eq!(cookies, 1, "{site}: what all see is asked for without cookies");
    }
}
