//! A client of HTTP/1.1 that measures: one connection to one server, one request at a time, and nothing that is done behind
//! one's back. Heads are read by `httparse`; no TLS, no redirects, no cookies.

use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a server may say nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most bytes of an answer's head, and of a line of chunks.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A page's URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Url {
    /// Host and port, as Host says them.
    pub(crate) authority: String,
    /// Where to connect to: with the port.
    pub(crate) address: String,
    /// Path and query.
    pub(crate) target: String,
}

impl Url {
    /// Reads `http://HOST[:PORT][/PATH]`.
    pub(crate) fn parse(text: &str) -> Result<Url, String> {
        let rest = text.strip_prefix("http://").ok_or("expected a URL such as http://127.0.0.1:8080/page")?;
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if authority.is_empty() || authority.contains('@') || !is_plain(authority) || !is_plain(target) {
            return Err("expected a host and a path without blanks behind http://".to_owned());
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let target = match target.strip_prefix('?') {
            Some(_) => format!("/{target}"),
            None if target.is_empty() => "/".to_owned(),
            None => target.to_owned(),
        };
        let address = if has_port { authority.to_owned() } else { format!("{authority}:80") };
        Ok(Url { authority: authority.to_owned(), address, target })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.target)
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Bytes received, head and body, before any coding is undone.
    pub(crate) bytes: u64,
}

/// A connection.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Received, and no part of an answer yet.
    received: Vec<u8>,
    is_open: bool,
}

impl Connection {
    pub(crate) fn open(url: &Url) -> Result<Connection, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", url.address);
        let mut last = None;
        for address in url.address.to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(failed)?;
                    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
                    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
                    return Ok(Connection { stream, received: Vec::new(), is_open: true });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.map_or_else(|| format!("{}: it has no address", url.address), failed))
    }

    /// Can it be used for another request?
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Asks for a page and takes all of it.
    pub(crate) fn get(&mut self, url: &Url) -> Result<Answer, String> {
        let outcome = self.exchange(url);
        self.is_open &= outcome.is_ok();
        outcome.map_err(|error| format!("{url}: {error}"))
    }

    fn exchange(&mut self, url: &Url) -> Result<Answer, String> {
        let Url { authority, target, .. } = url;
        let request = format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: nuthatch-bench\r\n\r\n");
        self.stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        loop {
            let head = self.head()?;
            if head.status < 200 {
                continue;
            }
            let bytes = head.bytes + self.body(&head)?;
            return Ok(Answer { status: head.status, bytes });
        }
    }

    fn head(&mut self) -> Result<Head, String> {
        loop {
            if let Some(head) = Head::read(&self.received)? {
                self.received.drain(..head.bytes as usize);
                self.is_open &= !head.is_last;
                return Ok(head);
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err("expected a head of at most 64 KiB".to_owned());
            }
            self.receive()?;
        }
    }

    /// Takes the body: its bytes.
    fn body(&mut self, head: &Head) -> Result<u64, String> {
        match head.length {
            Length::Bytes(bytes) => self.take(bytes).map(|()| bytes),
            Length::Chunks => {
                let mut taken = 0;
                loop {
                    let line = self.line()?;
                    taken += line.len() as u64 + 2;
                    let size = line.split(';').next().unwrap_or_default().trim();
                    let bytes = u64::from_str_radix(size, 16).map_err(|_| format!("expected a chunk, got {line:?}"))?;
                    if bytes == 0 {
                        while !self.line()?.is_empty() {}
                        return Ok(taken + 2);
                    }
                    self.take(bytes + 2)?;
                    taken += bytes + 2;
                }
            }
            Length::ToTheEnd => {
                self.is_open = false;
                let mut taken = self.received.len() as u64;
                loop {
                    self.received.clear();
                    match self.fill()? {
                        0 => return Ok(taken),
                        bytes => taken += bytes as u64,
                    }
                }
            }
        }
    }

    fn line(&mut self) -> Result<String, String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|bytes| bytes == b"\r\n") {
                let line = String::from_utf8_lossy(&self.received[..end]).into_owned();
                self.received.drain(..end + 2);
                return Ok(line);
            }
            if self.received.len() > HEAD_BYTES_MAX {
                return Err("expected the line of a chunk".to_owned());
            }
            self.receive()?;
        }
    }

    /// Takes so many bytes.
    fn take(&mut self, mut bytes: u64) -> Result<(), String> {
        loop {
            let here = (self.received.len() as u64).min(bytes);
            self.received.drain(..here as usize);
            bytes -= here;
            if bytes == 0 {
                return Ok(());
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        match self.fill()? {
            0 => Err("the server closed before the end of its answer".to_owned()),
            _ => Ok(()),
        }
    }

    fn fill(&mut self) -> Result<usize, String> {
        let mut buffer = [0; 64 * 1024];
        let bytes = self.stream.read(&mut buffer).map_err(|error| error.to_string())?;
        self.received.extend_from_slice(&buffer[..bytes]);
        Ok(bytes)
    }
}

/// What a head says of its answer.
struct Head {
    status: u16,
    bytes: u64,
    length: Length,
    /// Does the server close behind it?
    is_last: bool,
}

enum Length {
    Bytes(u64),
    Chunks,
    ToTheEnd,
}

impl Head {
    /// Reads one, if all of it is there.
    fn read(bytes: &[u8]) -> Result<Option<Head>, String> {
        let mut fields = [httparse::EMPTY_HEADER; 128];
        let mut response = httparse::Response::new(&mut fields);
        let head_bytes = match response.parse(bytes) {
            Ok(httparse::Status::Complete(bytes)) => bytes as u64,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("expected an answer of HTTP/1: {error}")),
        };
        let status = response.code.unwrap_or(0);
        let field = |name: &str| {
            let field = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(field.value).ok().map(str::trim)
        };
        let is_chunked = field("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        let length = match field("content-length").and_then(|value| value.parse().ok()) {
            _ if status < 200 || matches!(status, 204 | 304) => Length::Bytes(0),
            _ if is_chunked => Length::Chunks,
            Some(bytes) => Length::Bytes(bytes),
            None => Length::ToTheEnd,
        };
        let stays = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("keep-alive"));
        let is_last = match response.version {
            Some(0) => !stays,
            _ => field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        };
        Ok(Some(Head { status, bytes: head_bytes, length, is_last }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_url_has_a_host_and_a_path() {
        let url = Url::parse("http://a.example?x").unwrap();
        assert_eq!((url.address.as_str(), url.target.as_str()), ("a.example:80", "/?x"));
        assert_eq!(Url::parse("http://[::1]:81/b?c=d").unwrap().to_string(), "http://[::1]:81/b?c=d");
        for text in ["https://a/", "a/b", "http:///x", "http://me@a/", "http://a/b c"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_way_of_ending_a_body_is_understood() {
        let answers: [&str; 4] = [
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nto the end",
        ];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    asked.push(byte[0]);
                }
                // In two parts, so that each has to be waited for.
                let (one, other) = answer.as_bytes().split_at(answer.len() / 2);
                stream.write_all(one).unwrap();
                stream.write_all(other).unwrap();
            }
        });
        let mut connection = Connection::open(&url).unwrap();
        let mut told = Vec::new();
        for _ in answers {
            assert!(connection.is_open());
            told.push(connection.get(&url).unwrap().status);
        }
        assert_eq!(told, [200, 404, 304, 200]);
        assert!(!connection.is_open());
        server.join().unwrap();
        assert!(Connection::open(&url).is_err());
    }
}
