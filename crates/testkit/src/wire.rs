//! A blocking connection that sends any bytes and says exactly what it expected when something else comes back.
//!
//! For tests only. It knows no protocol beyond "lines end in CR LF" and the binary protocol's 24-byte header; every wait has a
//! deadline, so a server that never answers fails a test instead of hanging it.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::spawn::Address;

/// How long one read or write may take.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A connection to a server.
#[derive(Debug)]
pub struct Conn {
    stream: Stream,
    /// Bytes received and not yet taken start at `taken`.
    received: Vec<u8>,
    taken: usize,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// One frame of the binary protocol, request or response (memcached's binary protocol document, "Packet structure").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// 0x80 for requests, 0x81 for responses.
    pub magic: u8,
    /// The command.
    pub opcode: u8,
    /// Bytes 6 and 7: vbucket in a request, status in a response.
    pub status: u16,
    /// Echoed by the server.
    pub opaque: u32,
    /// The CAS unique.
    pub cas: u64,
    /// What stands between header and key.
    pub extras: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl Frame {
    /// A request with this opcode and nothing else in it.
    pub fn request(opcode: u8) -> Frame {
        Frame { magic: 0x80, opcode, ..Frame::default() }
    }

    /// Sets the key.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Frame {
        self.key = key.as_ref().to_vec();
        self
    }

    /// Sets the value.
    pub fn value(mut self, value: impl AsRef<[u8]>) -> Frame {
        self.value = value.as_ref().to_vec();
        self
    }

    /// Sets the extras.
    pub fn extras(mut self, extras: impl AsRef<[u8]>) -> Frame {
        self.extras = extras.as_ref().to_vec();
        self
    }

    /// Sets the CAS unique.
    pub fn cas(mut self, cas: u64) -> Frame {
        self.cas = cas;
        self
    }

    /// Sets the opaque.
    pub fn opaque(mut self, opaque: u32) -> Frame {
        self.opaque = opaque;
        self
    }

    /// The frame as it is sent.
    ///
    /// # Panics
    /// When a part does not fit its length field.
    pub fn bytes(&self) -> Vec<u8> {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut out = vec![self.magic, self.opcode];
        out.extend(u16::try_from(self.key.len()).expect("a key's length fits 16 bits").to_be_bytes());
        out.extend([u8::try_from(self.extras.len()).expect("the extras' length fits 8 bits"), 0]);
        out.extend(self.status.to_be_bytes());
        out.extend(u32::try_from(body).expect("a body's length fits 32 bits").to_be_bytes());
        out.extend(self.opaque.to_be_bytes());
        out.extend(self.cas.to_be_bytes());
        out.extend(&self.extras);
        out.extend(&self.key);
        out.extend(&self.value);
        out
    }
}

impl Conn {
    /// Connects.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn try_open(address: &Address) -> io::Result<Conn> {
        let stream = match address {
            Address::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(DEADLINE))?;
                stream.set_write_timeout(Some(DEADLINE))?;
                Stream::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(DEADLINE))?;
                stream.set_write_timeout(Some(DEADLINE))?;
                Stream::Unix(stream)
            }
        };
        Ok(Conn { stream, received: Vec::new(), taken: 0 })
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot send {}: {error}", quoted(bytes)));
    }

    /// Sends bytes as they are, or tells that the server does not take them (it closed, or does not read).
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes.as_ref()),
            Stream::Unix(stream) => stream.write_all(bytes.as_ref()),
        }
    }

    /// Sends bytes and CR LF, in one write.
    pub fn send_line(&mut self, line: impl AsRef<[u8]>) {
        let mut bytes = line.as_ref().to_vec();
        bytes.extend(b"\r\n");
        self.send(bytes);
    }

    /// Sends a line and returns the one line that answers it.
    pub fn ask(&mut self, line: impl AsRef<[u8]>) -> String {
        self.send_line(line);
        self.line()
    }

    /// The next line, without its CR LF, bytes that are not UTF-8 replaced.
    pub fn line(&mut self) -> String {
        String::from_utf8_lossy(&self.line_bytes()).into_owned()
    }

    /// The next line, without its CR LF.
    ///
    /// # Panics
    /// When the server closes, or sends no whole line in time.
    pub fn line_bytes(&mut self) -> Vec<u8> {
        self.try_line().unwrap_or_else(|why| panic!("a line was expected and {why}"))
    }

    /// The next line, without its CR LF.
    ///
    /// # Errors
    /// A sentence's end that says why there is none.
    pub fn try_line(&mut self) -> Result<Vec<u8>, String> {
        self.forget_taken();
        let mut searched = self.taken;
        loop {
            if let Some(at) = self.received[searched..].windows(2).position(|pair| pair == b"\r\n") {
                let end = searched + at;
                let line = self.received[self.taken..end].to_vec();
                self.taken = end + 2;
                return Ok(line);
            }
            searched = self.received.len().saturating_sub(1).max(self.taken);
            self.more()?;
        }
    }

    /// The next `count` bytes.
    ///
    /// # Panics
    /// When the server closes, or sends fewer in time.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        self.try_exactly(count).unwrap_or_else(|why| panic!("{count} bytes were expected and {why}"))
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// A sentence's end that says why there are none.
    pub fn try_exactly(&mut self, count: usize) -> Result<Vec<u8>, String> {
        self.forget_taken();
        while self.received.len() - self.taken < count {
            self.more()?;
        }
        let bytes = self.received[self.taken..self.taken + count].to_vec();
        self.taken += count;
        Ok(bytes)
    }

    /// The decimal number that comes next; the byte after it stays unread.
    ///
    /// # Errors
    /// A sentence's end that says why there is none.
    pub fn try_number(&mut self) -> Result<u64, String> {
        loop {
            let waiting = &self.received[self.taken..];
            if let Some(digits) = waiting.iter().position(|byte| !byte.is_ascii_digit()) {
                let text = String::from_utf8_lossy(&waiting[..digits]);
                let number = text.parse().map_err(|_| format!("got {}", quoted(&waiting[..waiting.len().min(40)])))?;
                self.taken += digits;
                return Ok(number);
            }
            self.more()?;
        }
    }

    /// Requires the next line to be this one.
    pub fn expect(&mut self, line: impl AsRef<[u8]>) {
        let got = self.line_bytes();
        assert!(got == line.as_ref(), "expected {} and got {}", quoted(line.as_ref()), quoted(&got));
    }

    /// Requires the next lines to be these.
    pub fn expect_all<I: IntoIterator<Item = S>, S: AsRef<[u8]>>(&mut self, lines: I) {
        for line in lines {
            self.expect(line);
        }
    }

    /// The lines up to and without the line `last`, such as `END`.
    pub fn lines_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            if line == last {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Sends a `stats` command and returns its names and values, in order.
    ///
    /// # Panics
    /// When a line is not `STAT name value`.
    pub fn stats(&mut self, command: &str) -> Vec<(String, String)> {
        self.send_line(command);
        let split = |line: String| {
            let rest = line.strip_prefix("STAT ").unwrap_or_else(|| panic!("{command} answered {line:?}"));
            let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
            (name.to_owned(), value.to_owned())
        };
        self.lines_until("END").into_iter().map(split).collect()
    }

    /// One number out of `stats`.
    ///
    /// # Panics
    /// When it is not there or not a number.
    pub fn stat(&mut self, name: &str) -> u64 {
        let stats = self.stats("stats");
        let value = &stats.iter().find(|(key, _)| key == name).unwrap_or_else(|| panic!("stats has no {name}")).1;
        value.parse().unwrap_or_else(|_| panic!("stats says {name} is {value:?}, which is no number"))
    }

    /// Requires that nothing is waiting to be read: the server answers a question asked now with the very next line.
    /// Works in the text protocol only.
    pub fn expect_nothing_more(&mut self) {
        self.send_line("mn");
        self.expect("MN");
    }

    /// Requires the server to close the connection without sending anything more.
    pub fn expect_close(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "expected the connection to be closed and got {}", quoted(&rest));
    }

    /// Everything the server sends until it closes. A reset counts as closing.
    ///
    /// # Panics
    /// When it does not close in time.
    pub fn rest(&mut self) -> Vec<u8> {
        self.try_rest().unwrap_or_else(|error| {
            panic!("the server did not close: {error}; unread: {}", quoted(&self.received[self.taken..]))
        })
    }

    /// Everything the server sends until it closes. A reset counts as closing.
    ///
    /// # Errors
    /// What the operating system answered, a timeout for example.
    pub fn try_rest(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error),
            }
        }
        let rest = self.received[self.taken..].to_vec();
        self.taken = self.received.len();
        Ok(rest)
    }

    /// A second handle on the same socket, for sending from another thread.
    ///
    /// # Panics
    /// When the operating system has no descriptor left.
    pub fn share(&self) -> Conn {
        let stream = match &self.stream {
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
        };
        let stream = stream.unwrap_or_else(|error| panic!("cannot share a connection: {error}"));
        Conn { stream, received: Vec::new(), taken: 0 }
    }

    /// Tells the server that nothing more will be sent.
    ///
    /// # Panics
    /// When the server has closed already.
    pub fn finish_sending(&mut self) {
        self.try_finish_sending().expect("an open connection can be half closed");
    }

    /// Tells the server that nothing more will be sent.
    ///
    /// # Errors
    /// What the operating system answered, when the server has closed already.
    pub fn try_finish_sending(&mut self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Sends a frame of the binary protocol.
    pub fn send_frame(&mut self, frame: &Frame) {
        self.send(frame.bytes());
    }

    /// The next frame of the binary protocol.
    ///
    /// # Panics
    /// When it is not a response, or its lengths contradict each other.
    pub fn frame(&mut self) -> Frame {
        self.try_frame().unwrap_or_else(|why| panic!("a binary response was expected and {why}"))
    }

    /// The next frame of the binary protocol.
    ///
    /// # Errors
    /// A sentence's end that says why there is none.
    pub fn try_frame(&mut self) -> Result<Frame, String> {
        let header = self.try_exactly(24)?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let long = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        if header[0] != 0x81 {
            return Err(format!("what came does not start with 0x81: {}", quoted(&header)));
        }
        let (key_bytes, extras_bytes, body_bytes) = (word(2) as usize, header[4] as usize, long(8) as usize);
        if key_bytes + extras_bytes > body_bytes {
            return Err(format!("its body is shorter than its parts: {}", quoted(&header)));
        }
        let body = self.try_exactly(body_bytes)?;
        Ok(Frame {
            magic: header[0],
            opcode: header[1],
            status: word(6),
            opaque: long(12),
            cas: u64::from_be_bytes(header[16..24].try_into().expect("eight bytes")),
            extras: body[..extras_bytes].to_vec(),
            key: body[extras_bytes..extras_bytes + key_bytes].to_vec(),
            value: body[extras_bytes + key_bytes..].to_vec(),
        })
    }

    fn more(&mut self) -> Result<(), String> {
        let (before, taken) = (self.received.len(), self.taken);
        let unread = |conn: &Conn| quoted(&conn.received[conn.taken..]);
        match self.fill() {
            Ok(0) => Err(format!("the server closed the connection; unread: {}", unread(self))),
            Ok(_) => Ok(()),
            Err(error) if before == taken => Err(format!("there was no answer ({error})")),
            Err(error) => Err(format!("the answer stopped ({error}); unread: {}", unread(self))),
        }
    }

    /// Gives back the room of what was taken, once it is worth the copy.
    fn forget_taken(&mut self) {
        if self.taken > 1 << 16 {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Reads once into `received`.
    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 64 * 1024];
        let count = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut piece)?,
            Stream::Unix(stream) => stream.read(&mut piece)?,
        };
        self.received.extend(&piece[..count]);
        Ok(count)
    }
}

/// Bytes as a person reads them: quoted, escaped, the middle of long ones left out.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 300;
    let mut text = String::from("\"");
    let escape =
        |text: &mut String, bytes: &[u8]| write!(text, "{}", bytes.escape_ascii()).expect("a String takes all");
    if bytes.len() <= 2 * SHOWN {
        escape(&mut text, bytes);
    } else {
        escape(&mut text, &bytes[..SHOWN]);
        write!(text, "\" … {} bytes … \"", bytes.len() - 2 * SHOWN).expect("a String takes all");
        escape(&mut text, &bytes[bytes.len() - SHOWN..]);
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bytes_are_quoted_by_their_ends() {
        assert_eq!(quoted(b"a\r\n\0"), r#""a\r\n\x00""#);
        let long = quoted(&vec![b'x'; 1000]);
        assert!(long.contains("… 400 bytes …"), "{long}");
    }

    #[test]
    fn frame_lengths_count_every_part() {
        let bytes = Frame::request(1).key("ab").extras([0; 8]).value("xyz").opaque(7).cas(9).bytes();
        assert_eq!(&bytes[..12], &[0x80, 1, 0, 2, 8, 0, 0, 0, 0, 0, 0, 13]);
        assert_eq!(bytes.len(), 24 + 13);
    }
}
