//! Pages with other people's programs: PHP's built-in server and nginx as origins, curl and Python's requests as clients,
//! over HTTP/1.1, HTTP/2 without TLS, and both with it.

use std::fs;
use std::process::Command;

use crate::common::tls::Authority;
use crate::common::{Client, address, eventually, start};
use crate::http::{pages_of, serve, settings_with};
use crate::program::Program;
use nuthatch_server::Running;
use nuthatch_testkit::origin::Origin;

/// What curl prints with these arguments.
fn curl(arguments: &[&str]) -> String {
    let output =
        Command::new("curl").args(["-s", "--max-time", "30"]).args(arguments).output().expect("curl is installed");
    assert!(output.status.success(), "curl {arguments:?}: {:?}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn url(server: &Running, path: &str) -> String {
    format!("http://{}{path}", address(server, 1))
}

#[test]
fn php_pages_are_made_once_and_saved_ones_are_made_anew() {
    let php = Program::start(|folder, port| {
        let page = "<?php\n$file = __DIR__ . '/count';\n$n = 1 + (int) @file_get_contents($file);\nfile_put_contents($file, $n);\nheader('Cache-Control: max-age=60');\necho $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['HTTP_HOST'], ' ', $n, ' ', strlen(file_get_contents('php://input'));\n";
        fs::write(folder.path().join("index.php"), page).expect("a file");
        let mut command = Command::new("php");
        command
            .args(["-S", &format!("127.0.0.1:{port}"), "-t"])
            .arg(folder.path())
            .arg(folder.path().join("index.php"));
        command
    });
    let server = start(settings_with(php.settings()));
    let page = url(&server, "/index.php?a=b");
    let ask = |more: &[&str]| curl(&[&["-H", "Host: wiki.example"], more, &[&page]].concat());
    assert_eq!([ask(&[]), ask(&[])], ["GET wiki.example 1 0", "GET wiki.example 1 0"]);
    assert_eq!(ask(&["-X", "PURGE"]), "purged\n");
    assert_eq!(ask(&[]), "GET wiki.example 2 0");
    assert_eq!(ask(&["--data-binary", "hello"]), "POST wiki.example 3 5");
    assert_eq!(ask(&[]), "GET wiki.example 4 0", "the page that was posted to is made anew");
    assert!(php.folder.path().join("count").exists());
}

/// nginx with a file, over TLS if `authority` is there.
fn nginx(authority: Option<&Authority>) -> Program {
    Program::start(|folder, port| {
        let root = folder.path();
        let tls = authority.map_or_else(String::new, |authority| {
            let (certificate, key) = (authority.file("server.pem"), authority.file("server.key"));
            format!("ssl_certificate {}; ssl_certificate_key {};", certificate.display(), key.display())
        });
        let ssl = if authority.is_some() { " ssl" } else { "" };
        fs::write(root.join("page.txt"), "0123456789".repeat(5000)).expect("a file");
        let place = root.display();
        let configuration = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/error.log;\n\
             events {{}}\n\
             http {{\n\
               access_log {place}/access.log;\n\
               client_body_temp_path {place}/a; proxy_temp_path {place}/b; fastcgi_temp_path {place}/c;\n\
               uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;\n\
               server {{ listen 127.0.0.1:{port}{ssl}; {tls} root {place}; expires 10s; gzip on; gzip_types text/plain; }}\n\
             }}\n"
        );
        fs::write(root.join("nginx.conf"), configuration).expect("a file");
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-p").arg(root).arg("-c").arg(root.join("nginx.conf"));
        command
    })
}

#[test]
fn nginx_is_an_origin_whose_files_are_revalidated_and_cut_over_tls_too() {
    let authority = Authority::new();
    for is_secure in [false, true] {
        let nginx = nginx(is_secure.then_some(&authority));
        let mut http = nginx.settings();
        if is_secure {
            http.origin.servers = vec![format!("https://localhost:{}", nginx.port).parse().expect("an address")];
            http.origin.tls.ca = Some(authority.file("ca.pem"));
        }
        let server = start(settings_with(http));
        let page = url(&server, "/page.txt");
        assert_eq!(curl(&[&page]).len(), 50_000);
        assert_eq!(curl(&["--compressed", &page]).len(), 50_000);
        assert_eq!(curl(&["-r", "10003-10005", &page]), "345");
        let head = curl(&["-I", &page]);
        assert!(head.contains("x-cache: HIT") && head.contains("content-length: 50000"), "{head}");
        Client::connect(&server).ask("debugtime 20\r\n", "OK\r\n");
        assert_eq!(curl(&[&page]).len(), 50_000);
        let log = || fs::read_to_string(nginx.folder.path().join("access.log")).unwrap_or_default();
        eventually(|| log().lines().count() == 2);
        assert!(log().lines().nth(1).is_some_and(|line| line.contains("\" 304 ")), "{}", log());
    }
}

/// Each answer is another one.
fn counting() -> Origin {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Origin::start(move |_, answer| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        answer.reply("200 OK", &["Cache-Control: max-age=60"], format!("page {number}"));
    })
}

#[test]
fn http2_is_spoken_with_prior_knowledge_and_by_alpn_and_new_certificates_are_used_after_a_reload() {
    let origin = counting();
    let server = serve(&[&origin]);
    let page = url(&server, "/page");
    let version = ["-w", " %{http_version}"];
    assert_eq!(curl(&[&version[..], &["--http2-prior-knowledge", &page]].concat()), "page 0 2");
    assert_eq!(curl(&[&version[..], &["--http1.1", &page]].concat()), "page 0 1.1");
    let oldest = curl(&[&version[..], &["--http1.0", &page]].concat());
    assert!(["page 0 1", "page 0 1.0"].contains(&oldest.as_str()), "{oldest}");
    // Several streams of one connection.
    let many: Vec<String> = (0..20).map(|n| format!("{page}?{}", n % 4)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let parallel = ["--http2-prior-knowledge", "--parallel", "--parallel-immediate"];
    let text = curl(&[&parallel[..], &many].concat());
    assert_eq!((text.matches("page ").count(), origin.count()), (20, 5));

    let authority = Authority::new();
    let mut settings = settings_with(pages_of(&[&origin]));
    let tls = nuthatch_server::settings::TlsSettings { is_http: true, ..authority.tls() };
    settings.listeners[1].tls = Some(tls);
    let server = start(settings.clone());
    let port = address(&server, 1).port();
    let page = format!("https://localhost:{port}/page");
    let (ca, resolve) = (authority.file("ca.pem").display().to_string(), format!("localhost:{port}:127.0.0.1"));
    let secure =
        |more: &[&str]| curl(&[&version[..], &["--cacert", &ca, "--resolve", &resolve], more, &[&page]].concat());
    assert_eq!(secure(&["--http2"]), "page 5 2");
    assert_eq!(secure(&["--http1.1"]), "page 5 1.1");
    let serial = || secure(&["-o", "/dev/null", "-w", "%{certs}"]);
    let before = serial();
    authority.install("server", &authority.sign("localhost"));
    server.reload(&settings).expect("a reload");
    assert_ne!(serial(), before, "the new certificate is shown");
}

#[test]
fn pythons_requests_keeps_its_connection_and_gets_what_it_takes() {
    let text = "what a page says, and says again. ".repeat(200);
    let sent = text.clone();
    let origin = Origin::start(move |_, answer| {
        answer.reply("200 OK", &["Cache-Control: max-age=60", "Content-Type: text/html"], &sent);
    });
    let server = serve(&[&origin]);
    let script = "import requests, sys\n\
        s = requests.Session()\n\
        for n in range(5):\n\
        \x20   r = s.get(sys.argv[1])\n\
        \x20   print(r.status_code, r.headers['X-Cache'].split()[0], r.headers.get('Content-Encoding'), len(r.text))\n\
        print(s.post(sys.argv[1], data='x' * 100000).status_code)\n\
        print(s.get(sys.argv[1], headers={'Accept-Encoding': 'identity'}).headers['X-Cache'].split()[0])\n";
    let output =
        Command::new("/usr/bin/python3").args(["-c", script, &url(&server, "/page")]).output().expect("Python");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected = format!("200 MISS None {}\n", text.len());
    expected.push_str(&format!("200 HIT gzip {}\n", text.len()).repeat(4));
    expected.push_str("200\nMISS\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    // One connection of the client's, and one of this test's.
    let mut cache = Client::connect(&server);
    assert_eq!(cache.number("total_connections"), 2);
}
