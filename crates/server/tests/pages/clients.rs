//! Pages with programs that put them under load or look closely: wrk, Chromium over HTTP/1.1 and HTTP/2, h2spec, and a site whose
//! PHP stores pages and deletes those that it changes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::tls::Authority;
use crate::common::{address, start};
use crate::http::{Http, pages_of, serve, settings_with};
use crate::program::Program;
use nuthatch_server::Running;
use nuthatch_server::settings::{HttpSettings, TlsSettings};
use nuthatch_testkit::origin::Origin;
use nuthatch_testkit::program::clients_dir;

fn run(program: impl AsRef<Path>, words: &[&str]) -> Output {
    let program = program.as_ref();
    Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

#[test]
fn wrk_is_answered_without_an_error_and_the_origin_asked_once_for_each_page() {
    let origin = Origin::start(|request, answer| {
        let bytes = request.target.trim_start_matches('/').parse().unwrap_or(0);
        answer.reply("200 OK", &["Cache-Control: max-age=600"], vec![b'x'; bytes]);
    });
    let server = serve(&[&origin]);
    for target in ["/0", "/1000", "/300000"] {
        let url = format!("http://{}{target}", address(&server, 1));
        let said = run("wrk", &["-t2", "-c40", "-d1s", &url]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(" requests in ") && !said.contains("Non-2xx"), "{target}: {said}");
        assert!(!said.contains("Socket errors"), "{target}: {said}");
    }
    assert_eq!(origin.count(), 3);
}

/// A page with twenty scripts that count themselves; its title tells what it came by.
fn site() -> Origin {
    Origin::start(|request, answer| {
        let fresh = "Cache-Control: max-age=600";
        if request.target.starts_with("/script") {
            let script = "window.scripts = (window.scripts || 0) + 1;";
            return answer.reply("200 OK", &[fresh, "Content-Type: text/javascript"], script);
        }
        let scripts: String = (0..20).map(|n| format!("<script src=\"/script{n}.js\"></script>")).collect();
        let last = "<script>document.title = performance.getEntriesByType('navigation')[0].nextHopProtocol + ' ' + window.scripts\
                    </script>";
        let html =
            format!("<!DOCTYPE html><html><head><link rel=\"icon\" href=\"data:,\">{scripts}{last}</head></html>");
        answer.reply("200 OK", &[fresh, "Content-Type: text/html"], html);
    })
}

/// The title of the page at `url` as Chromium sees it.
fn title(url: &str) -> String {
    let profile = tempfile::tempdir().expect("a folder");
    let profile = format!("--user-data-dir={}", profile.path().display());
    let words = [
        "60",
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--no-proxy-server",
        "--ignore-certificate-errors",
        &profile,
        "--dump-dom",
        url,
    ];
    let output = run("timeout", &words);
    let html = String::from_utf8_lossy(&output.stdout).into_owned();
    let title = html.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    match title {
        Some((title, _)) => title.to_owned(),
        None => panic!("{url}: no title in {html:?}; {}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn chromium_shows_a_page_and_all_it_needs_over_http1_and_http2() {
    let origin = site();
    let server = serve(&[&origin]);
    assert_eq!(title(&format!("http://{}/", address(&server, 1))), "http/1.1 20");
    assert_eq!(origin.count(), 21);

    let authority = Authority::new();
    let mut settings = settings_with(pages_of(&[&origin]));
    settings.listeners[1].tls = Some(TlsSettings { is_http: true, ..authority.tls() });
    let server = start(settings);
    assert_eq!(title(&format!("https://localhost:{}/", address(&server, 1).port())), "h2 20");
    assert_eq!(origin.count(), 42, "each page is asked for once by either scheme");
}

#[test]
fn h2spec_finds_nothing_wrong() {
    let h2spec = clients_dir().join("go/h2spec");
    if !h2spec.exists() {
        println!("skipped: h2spec is not installed; scripts/install-test-deps.sh builds it where Go is");
        return;
    }
    // It takes an answer that is on its way for one to what it sends meanwhile, so none is on its way that soon.
    let origin = Origin::start(|_, answer| {
        thread::sleep(Duration::from_millis(50));
        answer.reply("200 OK", &["Cache-Control: no-store"], "page");
    });
    let server = serve(&[&origin]);
    let port = address(&server, 1).port().to_string();
    // All but 3.5/2: what does not begin as HTTP/2 on a port that speaks both is HTTP/1, and refused as such before it is closed.
    let sections = ["generic", "hpack", "http2/3.5/1", "http2/4", "http2/5", "http2/6", "http2/7", "http2/8"];
    let more = ["-h", "127.0.0.1", "-p", &port, "-o", "10"];
    let output = run(h2spec, &[&sections[..], &more].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(" 0 failed") && output.status.success(), "{said}");
    let passed = said.split_once(" passed").and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    assert!(passed.is_some_and(|passed: u32| passed >= 142), "{said}");
}

/// The site in `clients/php/site.php`, behind a server whose pages are changed by `change`.
fn php_site(form: &str, change: impl FnOnce(&mut HttpSettings)) -> (Program, Running) {
    let site = Program::start(|folder, port| {
        let index = folder.path().join("index.php");
        fs::write(&index, include_str!("../../../../clients/php/site.php")).expect("a file");
        fs::write(folder.path().join("form"), form).expect("a file");
        let mut command = Command::new("php");
        command.args(["-S", &format!("127.0.0.1:{port}"), "-t"]).arg(folder.path()).arg(index);
        command
    });
    let mut http = site.settings();
    change(&mut http);
    let server = start(settings_with(http));
    fs::write(site.folder.path().join("memcached"), address(&server, 0).port().to_string()).expect("a file");
    (site, server)
}

/// Whether a page came from memory, and what it says.
fn read(reader: &mut Http, page: &str) -> (String, String) {
    let reply = reader.get(page);
    (reply.cache().to_owned(), reply.text())
}

fn seen(cache: &str, text: &str) -> (String, String) {
    (cache.to_owned(), text.to_owned())
}

/// Changes a page out of the cache's sight: only the site's own delete tells of it.
fn edit(site: &Program, page: &str) -> String {
    let edit = format!("http://127.0.0.1:{}/edit?page={page}", site.port);
    let said = run("curl", &["-s", "--max-time", "30", "-H", "Host: a.example", "-d", "text=x", &edit]);
    String::from_utf8_lossy(&said.stdout).into_owned()
}

#[test]
fn a_site_deletes_the_pages_it_changes_by_php_memcached() {
    let (site, server) = php_site("raw", |_| {});
    let reader = &mut Http::connect(&server);
    assert_eq!(read(reader, "/wiki/Bird"), seen("MISS", "Bird, revision 0"));
    assert_eq!(read(reader, "/wiki/Bird"), seen("HIT", "Bird, revision 0"));
    assert_eq!(read(reader, "/wiki/Tree"), seen("MISS", "Tree, revision 0"));
    assert_eq!(edit(&site, "Bird"), "deleted 1");
    assert_eq!(read(reader, "/wiki/Bird"), seen("MISS", "Bird, revision 1"));
    assert_eq!(read(reader, "/wiki/Tree"), seen("HIT", "Tree, revision 0"));
}

#[test]
fn a_site_stores_its_pages_by_php_memcached_as_it_makes_them_and_deletes_them() {
    for form in ["raw", "srcache"] {
        let (site, server) = php_site(form, |http| {
            http.pages.foreign = Some(form.to_owned());
            http.pages.foreign_gzip_flag = 1 << 16;
        });
        let reader = &mut Http::connect(&server);
        for revision in 0..2 {
            let text = format!("Bird, revision {revision}");
            // Its answer may not be stored, and does not take the place of what it has stored.
            assert_eq!(read(reader, "/own/Bird"), seen("MISS", &text), "{form}");
            assert_eq!(read(reader, "/own/Bird"), seen("HIT", &text), "{form}");
            let stored = reader.ask("GET", "/own/Bird", &["Accept-Encoding: gzip"]);
            let shown = (stored.cache(), stored.field("content-encoding"), stored.field("x-stored-by"));
            assert_eq!(
                shown,
                ("HIT", if form == "raw" { "gzip" } else { "" }, if form == "raw" { "" } else { "site" })
            );
            assert_eq!(edit(&site, "Bird"), "deleted 1", "{form}");
        }
        assert_eq!(edit(&site, "Bird"), "deleted 0", "{form}");
    }
}
