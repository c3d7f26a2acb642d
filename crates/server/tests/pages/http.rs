//! A server with a page listener in front of a scripted origin, and a plain client of HTTP/1.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use nuthatch_pages::origin::OriginSettings;
use nuthatch_server::Running;
use nuthatch_server::settings::{HttpSettings, PagesSettings, Protocol, Settings};
use nuthatch_testkit::origin::Origin;

use crate::common::{PATIENCE, address, listener, settings, start};

/// What listener 1 serves: pages of these origins.
pub(crate) fn pages_of(origins: &[&Origin]) -> HttpSettings {
    let servers = origins.iter().map(|origin| origin.url().parse().expect("an address")).collect();
    let origin = OriginSettings { name: "site".to_owned(), servers, ..OriginSettings::default() };
    HttpSettings { origin, pages: PagesSettings::default() }
}

/// Listener 0 speaks memcached, listener 1 serves `http`; both are of one pool.
pub(crate) fn settings_with(http: HttpSettings) -> Settings {
    let mut settings = settings();
    settings.pools[0].item_bytes_max = 8 << 20;
    let mut page_listener = listener(0);
    page_listener.protocol = Protocol::Http;
    page_listener.http = Some(http);
    settings.listeners.push(page_listener);
    settings
}

/// A server in front of `origins`, with everything else as it is by default.
pub(crate) fn serve(origins: &[&Origin]) -> Running {
    start(settings_with(pages_of(origins)))
}

/// The same with other settings of its pages.
pub(crate) fn serve_with(origins: &[&Origin], change: impl FnOnce(&mut HttpSettings)) -> Running {
    let mut http = pages_of(origins);
    change(&mut http);
    start(settings_with(http))
}

/// A connection.
pub(crate) struct Http {
    pub(crate) reader: BufReader<TcpStream>,
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// HIT or MISS.
    pub(crate) fn cache(&self) -> &str {
        self.field("x-cache").split(' ').next().unwrap_or_default()
    }
}

impl Http {
    pub(crate) fn connect(server: &Running) -> Http {
        Http::connect_to(address(server, 1))
    }

    pub(crate) fn connect_to(address: SocketAddr) -> Http {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Http { reader: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.reader.get_mut().write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Asks for `target` of a.example with further header lines.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, target: &str, lines: &[&str]) -> Reply {
        self.send(request(method, target, lines));
        self.reply(method == "HEAD")
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Reply {
        self.ask("GET", target, &[])
    }

    #[track_caller]
    pub(crate) fn head_of_reply(&mut self) -> Reply {
        let status_line = self.line().unwrap_or_else(|| panic!("closed before an answer"));
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {status_line:?}"));
        let mut fields = Vec::new();
        loop {
            let line = self.line().expect("a whole head");
            if line.is_empty() {
                return Reply { status, fields, body: Vec::new() };
            }
            let (name, value) = line.split_once(':').expect("a field");
            fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    #[track_caller]
    pub(crate) fn reply(&mut self, is_head: bool) -> Reply {
        let mut reply = self.head_of_reply();
        if is_head || reply.status == 304 || reply.status == 204 || reply.status < 200 {
            return reply;
        }
        reply.body = self.try_body(&reply).unwrap_or_else(|| panic!("the body of {reply:?} breaks off"));
        reply
    }

    /// Asks for what its origin breaks off: that is a 502, or an answer that breaks off as well. Which of both is the
    /// kernel's business: whether the end is there as early as the beginning.
    #[track_caller]
    pub(crate) fn expect_cut_short(&mut self, target: &str) {
        self.send(request("GET", target, &[]));
        let head = self.head_of_reply();
        let body = self.try_body(&head);
        assert!(matches!((head.status, &body), (502, Some(_)) | (200, None)), "{target}: {head:?} {body:?}");
    }

    /// The body that belongs to a head; `None` when it breaks off.
    pub(crate) fn try_body(&mut self, reply: &Reply) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        if reply.field("transfer-encoding") == "chunked" {
            loop {
                let bytes = usize::from_str_radix(&self.line()?, 16).ok()?;
                let mut chunk = vec![0; bytes];
                self.reader.read_exact(&mut chunk).ok()?;
                body.extend_from_slice(&chunk);
                self.line()?;
                if bytes == 0 {
                    return Some(body);
                }
            }
        }
        match reply.field("content-length").parse() {
            Ok(bytes) => {
                body.resize(bytes, 0);
                self.reader.read_exact(&mut body).ok()?;
            }
            Err(_) => {
                self.reader.read_to_end(&mut body).ok()?;
            }
        }
        Some(body)
    }

    /// A line without its end; `None` at the end of the stream.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }

    /// Expects that the server closes, without another byte.
    #[track_caller]
    pub(crate) fn expect_close(&mut self) {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "unexpected {:?}", String::from_utf8_lossy(&rest)),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error}, expecting the server to close"),
        }
    }
}

/// A request without a body.
pub(crate) fn request(method: &str, target: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n")
}
