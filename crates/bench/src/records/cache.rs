//! One connection to a memcached, with one request under way, in the text protocol.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;
use crate::failure::Failure;

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub(super) struct Cache {
    stream: Stream,
    address: String,
    said: Vec<u8>,
    heard: Vec<u8>,
}

impl Cache {
    pub(super) async fn connect(address: &Address) -> Result<Cache, Failure> {
        let failed = |error| Failure::run(format!("bench: expected a connection to {address}: {error}"));
        let stream = match address {
            Address::Tcp(text) => {
                let stream = TcpStream::connect(text).await.map_err(failed)?;
                stream.set_nodelay(true).map_err(failed)?;
                Stream::Tcp(stream)
            }
            Address::Unix(path) => Stream::Unix(UnixStream::connect(path).await.map_err(failed)?),
        };
        Ok(Cache { stream, address: address.to_string(), said: Vec::new(), heard: Vec::new() })
    }

    pub(super) async fn set(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        self.say(format_args!("set {key} 0 0 {}\r\n{value}\r\n", value.len())).await?;
        let line = self.line().await?;
        if self.heard[..line] == *b"STORED" { Ok(()) } else { Err(self.unexpected("STORED")) }
    }

    pub(super) async fn delete(&mut self, key: &str) -> Result<(), Failure> {
        self.say(format_args!("delete {key}\r\n")).await?;
        let line = self.line().await?;
        if matches!(&self.heard[..line], b"DELETED" | b"NOT_FOUND") { Ok(()) } else { Err(self.unexpected("DELETED")) }
    }

    pub(super) async fn get(&mut self, key: &str) -> Result<Option<String>, Failure> {
        self.say(format_args!("get {key}\r\n")).await?;
        let line = self.line().await?;
        if self.heard[..line] == *b"END" {
            return Ok(None);
        }
        let words = std::str::from_utf8(&self.heard[..line]).unwrap_or_default();
        let bytes = words.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next()?.parse::<usize>().ok());
        let Some(bytes) = bytes else { return Err(self.unexpected("VALUE")) };
        let (from, end) = (line + 2, b"\r\nEND\r\n");
        while self.heard.len() < from + bytes + end.len() {
            self.hear().await?;
        }
        if self.heard[from + bytes..] != *end {
            return Err(self.unexpected("END"));
        }
        match std::str::from_utf8(&self.heard[from..from + bytes]) {
            Ok(value) => Ok(Some(value.to_owned())),
            Err(_) => Err(self.unexpected("a value of characters")),
        }
    }

    async fn say(&mut self, request: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        use std::io::Write as _;
        self.said.clear();
        self.heard.clear();
        let written = write!(self.said, "{request}");
        let sent = match &mut self.stream {
            _ if written.is_err() => written,
            Stream::Tcp(stream) => stream.write_all(&self.said).await,
            Stream::Unix(stream) => stream.write_all(&self.said).await,
        };
        sent.map_err(|error| self.lost(&error))
    }

    async fn hear(&mut self) -> Result<(), Failure> {
        let heard = match &mut self.stream {
            Stream::Tcp(stream) => stream.read_buf(&mut self.heard).await,
            Stream::Unix(stream) => stream.read_buf(&mut self.heard).await,
        };
        match heard {
            Ok(0) => Err(self.lost(&"it was closed")),
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// How long the first line of the answer is.
    async fn line(&mut self) -> Result<usize, Failure> {
        loop {
            if let Some(at) = self.heard.windows(2).position(|two| two == b"\r\n") {
                return Ok(at);
            }
            self.hear().await?;
        }
    }

    fn lost(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::run(format!("bench: expected an answer from {}: {why}", self.address))
    }

    fn unexpected(&self, expected: &str) -> Failure {
        let heard = String::from_utf8_lossy(&self.heard);
        Failure::run(format!("bench: expected {expected} from {}, got {}", self.address, heard.trim_end()))
    }
}
