//! The guard: every byte of an HTTP/1 client passes it before anything else reads it.
//!
//! It follows the framing of requests (RFC 9112 sections 2 to 7) and refuses what two readers could understand
//! differently, what is longer than the limits, and what is no HTTP/1 at all. It keeps no bytes and does no input or
//! output: [`Guard::check`] is shown what has arrived and says how much of it may be passed on. After a refusal nothing
//! passes any more: a connection is never resynchronised by guess.

use std::fmt;

/// Most fields of a head or a trailer.
pub const FIELDS_MAX: usize = 100;

/// Most bytes of a head.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a request target.
pub const TARGET_BYTES_MAX: usize = 16 * 1024;

/// Most bytes of a chunk's size line, extensions included, and of all trailer fields together.
const CHUNK_LINE_BYTES_MAX: usize = 1024;
const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Digits of a chunk's size: up to 2^52 bytes.
const CHUNK_DIGITS_MAX: u32 = 13;

/// Why a request is refused. Each is one sentence for the log and one status for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No request line.
    RequestLine,
    /// Another version than HTTP/1.0 and 1.1.
    Version,
    /// A target that is too long.
    TargetTooLong,
    /// A head that is too long.
    HeadTooLong,
    /// Too many fields.
    TooManyFields,
    /// A line that ends in LF alone, or a CR within one.
    BareLineEnd,
    /// A line that goes on in the next.
    Folded,
    /// A space before the colon, or no field at all.
    FieldName,
    /// A control character in a value.
    FieldValue,
    /// Both Content-Length and Transfer-Encoding.
    TwoLengths,
    /// More than one Content-Length.
    RepeatedLength,
    /// A Content-Length that is no number.
    BadLength,
    /// A Transfer-Encoding other than chunked.
    UnknownCoding,
    /// A Transfer-Encoding in HTTP/1.0.
    CodingInOldVersion,
    /// An HTTP/1.1 request without Host.
    NoHost,
    /// More than one Host.
    RepeatedHost,
    /// An expectation other than 100-continue.
    Expectation,
    /// Chunks that are not as they should be.
    Chunking,
    /// The head did not arrive in time.
    HeadTooSlow,
    /// The body did not arrive in time.
    BodyTooSlow,
}

impl Refusal {
    /// The status that the client is answered with.
    pub fn status(self) -> u16 {
        match self {
            Refusal::Version => 505,
            Refusal::TargetTooLong => 414,
            Refusal::HeadTooLong | Refusal::TooManyFields => 431,
            Refusal::UnknownCoding => 501,
            Refusal::Expectation => 417,
            Refusal::HeadTooSlow | Refusal::BodyTooSlow => 408,
            _ => 400,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::RequestLine => "expected a request line: METHOD TARGET HTTP/1.1",
            Refusal::Version => "expected HTTP/1.0 or HTTP/1.1",
            Refusal::TargetTooLong => "expected a request target of at most 16 KiB",
            Refusal::HeadTooLong => "expected a head of at most 64 KiB",
            Refusal::TooManyFields => "expected at most 100 header fields",
            Refusal::BareLineEnd => "expected CR LF at the end of each line and no CR elsewhere",
            Refusal::Folded => "expected each header field on one line",
            Refusal::FieldName => "expected NAME: VALUE without a space before the colon",
            Refusal::FieldValue => "expected no control characters in a header field",
            Refusal::TwoLengths => "expected either Content-Length or Transfer-Encoding, not both",
            Refusal::RepeatedLength => "expected Content-Length once",
            Refusal::BadLength => "expected Content-Length to be a number of bytes",
            Refusal::UnknownCoding => "expected no other Transfer-Encoding than chunked",
            Refusal::CodingInOldVersion => "expected no Transfer-Encoding in HTTP/1.0",
            Refusal::NoHost => "expected a Host",
            Refusal::RepeatedHost => "expected Host once",
            Refusal::Expectation => "expected no other expectation than 100-continue",
            Refusal::Chunking => "expected chunks of the sizes they announce",
            Refusal::HeadTooSlow => "expected the whole head sooner",
            Refusal::BodyTooSlow => "expected the body faster",
        })
    }
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A head; that many of its bytes were looked through and hold no end.
    Head {
        scanned: usize,
    },
    /// So many bytes of a body.
    Sized(u64),
    Chunks(Chunk),
    /// A client that asked for another protocol is not read before it has its answer.
    Upgrading,
    /// Another protocol.
    Tunnel,
    Refused(Refusal),
}

/// Where in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In the size line.
    Size {
        digits: u32,
        bytes: u64,
        line: usize,
        part: SizePart,
    },
    Data(u64),
    /// After data: CR and LF.
    DataEnd {
        has_cr: bool,
    },
    /// In the trailer: bytes so far, fields, where in the line.
    Trailer {
        bytes: usize,
        fields: usize,
        column: usize,
        has_cr: bool,
        has_colon: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizePart {
    Digits,
    Extension,
    LineFeed,
}

const CHUNK_BEGIN: Chunk = Chunk::Size { digits: 0, bytes: 0, line: 0, part: SizePart::Digits };

/// One connection's guard.
#[derive(Debug)]
pub struct Guard {
    state: State,
    heads: u64,
}

impl Default for Guard {
    fn default() -> Guard {
        Guard { state: State::Head { scanned: 0 }, heads: 0 }
    }
}

/// Where a refusal struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub why: Refusal,
    /// The head, or the body of a request whose head has passed?
    pub in_head: bool,
}

impl Guard {
    /// Heads that have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Is part of a head there?
    pub fn is_in_head(&self) -> bool {
        matches!(self.state, State::Head { scanned } if scanned > 0)
    }

    /// Is a body under way?
    pub fn is_in_body(&self) -> bool {
        matches!(self.state, State::Sized(_) | State::Chunks(_))
    }

    /// Has the client asked for another protocol, and no answer yet?
    pub fn is_upgrading(&self) -> bool {
        self.state == State::Upgrading
    }

    /// Is another protocol spoken?
    pub fn is_tunnel(&self) -> bool {
        self.state == State::Tunnel
    }

    /// The answer to a client that asked for another protocol: everything passes from now on, or HTTP goes on.
    pub fn upgraded(&mut self, is_tunnel: bool) {
        if self.state == State::Upgrading {
            self.state = if is_tunnel { State::Tunnel } else { State::Head { scanned: 0 } };
        }
    }

    /// Looks at what has arrived and not passed yet: how many of its first bytes pass now. Zero asks for more.
    ///
    /// # Errors
    /// The first bytes are refused. Nothing passes from then on.
    pub fn check(&mut self, input: &[u8]) -> Result<usize, Refused> {
        let mut at = 0;
        while at < input.len() {
            let before = self.state;
            match self.step(&input[at..]) {
                Ok(0) => break,
                Ok(bytes) => at += bytes,
                // What came before it is in order and passes first.
                Err(_) if at > 0 => {
                    self.state = before;
                    break;
                }
                Err(why) => {
                    let in_head = matches!(before, State::Head { .. });
                    self.state = State::Refused(why);
                    return Err(Refused { why, in_head });
                }
            }
        }
        Ok(at)
    }

    /// The same, but what would be refused is left for [`Guard::check`] to refuse: how many bytes pass.
    pub fn try_check(&mut self, input: &[u8]) -> usize {
        let (state, heads) = (self.state, self.heads);
        match self.check(input) {
            Ok(bytes) => bytes,
            Err(_) => {
                (self.state, self.heads) = (state, heads);
                0
            }
        }
    }

    /// Is the next byte the first of a head?
    pub fn is_between(&self) -> bool {
        self.state == State::Head { scanned: 0 }
    }

    /// The length of the whole head that `input` begins with, if it is in order and nothing but another head follows it.
    /// Whoever answers it says [`Guard::answered`]; else it passes like any other.
    pub fn whole_head(&self, input: &[u8]) -> Option<usize> {
        if !self.is_between() {
            return None;
        }
        let end = head_end(input, 0).filter(|end| *end <= HEAD_BYTES_MAX)?;
        (head(&input[..end]) == Ok(State::Head { scanned: 0 })).then_some(end)
    }

    /// A whole head has passed, and was answered.
    pub fn answered(&mut self) {
        self.heads += 1;
    }

    /// One piece: a whole head, or part of a body.
    fn step(&mut self, input: &[u8]) -> Result<usize, Refusal> {
        match self.state {
            State::Head { scanned } => {
                // A line end that is left over from an older client's body is no request (RFC 9112, section 2.2).
                if input.starts_with(b"\r\n") {
                    return Ok(2);
                }
                let Some(end) = head_end(input, scanned) else {
                    if input.len() > HEAD_BYTES_MAX {
                        return Err(too_long(input));
                    }
                    hopeless(input)?;
                    self.state = State::Head { scanned: input.len() };
                    return Ok(0);
                };
                if end > HEAD_BYTES_MAX {
                    return Err(too_long(input));
                }
                self.state = head(&input[..end])?;
                self.heads += 1;
                Ok(end)
            }
            State::Sized(left) => {
                let bytes = left.min(input.len() as u64);
                self.state = match left - bytes {
                    0 => State::Head { scanned: 0 },
                    left => State::Sized(left),
                };
                Ok(bytes as usize)
            }
            State::Chunks(chunk) => {
                let (bytes, next) = chunks(chunk, input)?;
                self.state = next;
                Ok(bytes)
            }
            State::Upgrading => Ok(0),
            State::Tunnel => Ok(input.len()),
            State::Refused(why) => Err(why),
        }
    }
}

/// The length of the head, up to and including the empty line. Looked for from a little before `scanned`.
fn head_end(input: &[u8], scanned: usize) -> Option<usize> {
    let mut at = scanned.saturating_sub(3);
    while let Some(found) = find(b'\n', &input[at..]) {
        at += found + 1;
        match &input[at..] {
            [b'\r', b'\n', ..] => return Some(at + 2),
            // Refused by who reads the lines, but it ends here.
            [b'\n', ..] => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// What began like no request never becomes one, so it is not waited for: binary protocols and TLS most of all.
fn hopeless(input: &[u8]) -> Result<(), Refusal> {
    match input.iter().position(|byte| !is_token(*byte)) {
        Some(0) => Err(Refusal::RequestLine),
        Some(end) if input[end] != b' ' => Err(Refusal::RequestLine),
        None if input.len() > METHOD_BYTES_MAX => Err(Refusal::RequestLine),
        Some(_) if find(b'\n', input).is_none() && input.len() > TARGET_BYTES_MAX + METHOD_BYTES_MAX => {
            Err(Refusal::TargetTooLong)
        }
        _ => Ok(()),
    }
}

/// Most bytes of a method; WebDAV's longest has 16.
const METHOD_BYTES_MAX: usize = 32;

fn too_long(input: &[u8]) -> Refusal {
    let line = find(b'\n', input).unwrap_or(input.len());
    if line > TARGET_BYTES_MAX + METHOD_BYTES_MAX { Refusal::TargetTooLong } else { Refusal::HeadTooLong }
}

/// Reads a whole head: what follows it.
fn head(head: &[u8]) -> Result<State, Refusal> {
    let mut lines = Lines(head);
    let is_http_11 = request_line(lines.next().ok_or(Refusal::RequestLine)??)?;
    let mut fields = 0;
    let mut length = None;
    let mut is_chunked = false;
    let mut hosts = 0;
    let (mut names_upgrade, mut has_upgrade) = (false, false);
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        fields += 1;
        if fields > FIELDS_MAX {
            return Err(Refusal::TooManyFields);
        }
        let (name, value) = field(line)?;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => hosts += 1,
            6 if name.eq_ignore_ascii_case(b"expect") && !value.eq_ignore_ascii_case(b"100-continue") => {
                return Err(Refusal::Expectation);
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => has_upgrade = true,
            10 if name.eq_ignore_ascii_case(b"connection") => {
                names_upgrade |= value
                    .split(|byte| *byte == b',')
                    .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let is_second = length.replace(content_length(value)?).is_some();
                if is_second {
                    return Err(Refusal::RepeatedLength);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if !is_http_11 {
                    return Err(Refusal::CodingInOldVersion);
                }
                if is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::UnknownCoding);
                }
                is_chunked = true;
            }
            _ => {}
        }
    }
    match (hosts, length, is_chunked) {
        (0, ..) if is_http_11 => Err(Refusal::NoHost),
        (2.., ..) => Err(Refusal::RepeatedHost),
        (_, Some(_), true) => Err(Refusal::TwoLengths),
        (_, _, true) => Ok(State::Chunks(CHUNK_BEGIN)),
        (_, Some(1..), _) => Ok(State::Sized(length.unwrap_or(0))),
        _ if has_upgrade && names_upgrade && is_http_11 => Ok(State::Upgrading),
        _ => Ok(State::Head { scanned: 0 }),
    }
}

/// Lines without their ends; an end other than CR LF is an error.
struct Lines<'a>(&'a [u8]);

impl<'a> Iterator for Lines<'a> {
    type Item = Result<&'a [u8], Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = find(b'\n', self.0)?;
        let line = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Some(line.strip_suffix(b"\r").ok_or(Refusal::BareLineEnd))
    }
}

/// Checks `METHOD TARGET HTTP/1.x`: whether it is HTTP/1.1.
fn request_line(line: &[u8]) -> Result<bool, Refusal> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Refusal::RequestLine);
    };
    if method.is_empty() || method.len() > METHOD_BYTES_MAX || !method.iter().all(|byte| is_token(*byte)) {
        return Err(Refusal::RequestLine);
    }
    if target.len() > TARGET_BYTES_MAX {
        return Err(Refusal::TargetTooLong);
    }
    // A fragment never leaves a user agent; whoever sends one means to be understood differently by somebody.
    if target.is_empty() || target.iter().any(|byte| matches!(byte, 0..=b' ' | 0x7f | b'#')) {
        return Err(if target.contains(&b'\r') { Refusal::BareLineEnd } else { Refusal::RequestLine });
    }
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        version if version.starts_with(b"HTTP/") => Err(Refusal::Version),
        _ => Err(Refusal::RequestLine),
    }
}

/// Checks a field line: its name, and its value without the spaces around it.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if matches!(line[0], b' ' | b'\t') {
        return Err(Refusal::Folded);
    }
    let colon = line.iter().position(|byte| !is_token(*byte)).ok_or(Refusal::FieldName)?;
    if colon == 0 || line[colon] != b':' {
        return Err(Refusal::FieldName);
    }
    let value = &line[colon + 1..];
    if let Some(wrong) = value.iter().find(|byte| matches!(byte, 0..=8 | 10..=31 | 127)) {
        return Err(if *wrong == b'\r' { Refusal::BareLineEnd } else { Refusal::FieldValue });
    }
    Ok((&line[..colon], value.trim_ascii()))
}

fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    // 18 digits are below 2^63, so nobody's arithmetic overflows.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::BadLength);
    }
    Ok(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Goes on in a chunked body: how many bytes, and to where.
fn chunks(mut chunk: Chunk, input: &[u8]) -> Result<(usize, State), Refusal> {
    let mut at = 0;
    while at < input.len() {
        let byte = input[at];
        chunk = match chunk {
            Chunk::Size { line, .. } if line >= CHUNK_LINE_BYTES_MAX => return Err(Refusal::Chunking),
            Chunk::Size { digits, bytes, line, part } => match (part, byte) {
                (SizePart::Digits, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < CHUNK_DIGITS_MAX => {
                    let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                    Chunk::Size { digits: digits + 1, bytes: bytes * 16 + digit, line: line + 1, part }
                }
                (SizePart::Digits, b';') if digits > 0 => {
                    Chunk::Size { digits, bytes, line: line + 1, part: SizePart::Extension }
                }
                (SizePart::Digits | SizePart::Extension, b'\r') if digits > 0 => {
                    Chunk::Size { digits, bytes, line: line + 1, part: SizePart::LineFeed }
                }
                (SizePart::Extension, b'\t' | b' '..=b'~') => Chunk::Size { digits, bytes, line: line + 1, part },
                (SizePart::LineFeed, b'\n') if bytes > 0 => Chunk::Data(bytes),
                (SizePart::LineFeed, b'\n') => TRAILER_BEGIN,
                _ => return Err(Refusal::Chunking),
            },
            Chunk::Data(left) => {
                let bytes = left.min((input.len() - at) as u64);
                at += bytes as usize;
                chunk = if left == bytes { Chunk::DataEnd { has_cr: false } } else { Chunk::Data(left - bytes) };
                continue;
            }
            Chunk::DataEnd { has_cr } => match (has_cr, byte) {
                (false, b'\r') => Chunk::DataEnd { has_cr: true },
                (true, b'\n') => CHUNK_BEGIN,
                _ => return Err(Refusal::Chunking),
            },
            Chunk::Trailer { bytes, fields, column, has_cr, has_colon } => {
                if bytes >= TRAILER_BYTES_MAX || fields > FIELDS_MAX {
                    return Err(Refusal::HeadTooLong);
                }
                match byte {
                    b'\n' if has_cr && column == 0 => return Ok((at + 1, State::Head { scanned: 0 })),
                    b'\n' if has_cr && has_colon => Chunk::Trailer {
                        bytes: bytes + 1,
                        fields: fields + 1,
                        column: 0,
                        has_cr: false,
                        has_colon: false,
                    },
                    _ if has_cr => return Err(Refusal::BareLineEnd),
                    b'\n' => return Err(Refusal::BareLineEnd),
                    b'\r' => Chunk::Trailer { bytes: bytes + 1, fields, column, has_cr: true, has_colon },
                    b':' if !has_colon && column > 0 => {
                        Chunk::Trailer { bytes: bytes + 1, fields, column: column + 1, has_cr, has_colon: true }
                    }
                    _ if !has_colon && !is_token(byte) => return Err(Refusal::FieldName),
                    0..=8 | 11..=31 | 127 => return Err(Refusal::FieldValue),
                    _ => Chunk::Trailer { bytes: bytes + 1, fields, column: column + 1, has_cr, has_colon },
                }
            }
        };
        at += 1;
    }
    Ok((at, State::Chunks(chunk)))
}

const TRAILER_BEGIN: Chunk = Chunk::Trailer { bytes: 0, fields: 0, column: 0, has_cr: false, has_colon: false };

/// A character of a method or a field's name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let c = byte as u8;
        table[byte] = c.is_ascii_alphanumeric()
            || matches!(
                c,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
};

fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    memchr::memchr(byte, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of `input` in one piece.
    fn whole(input: &[u8]) -> Result<usize, Refusal> {
        let mut guard = Guard::default();
        let mut at = 0;
        loop {
            match guard.check(&input[at..]).map_err(|refused| refused.why)? {
                0 => return Ok(at),
                bytes => at += bytes,
            }
        }
    }

    /// The same, shown as if it arrived in pieces of `bytes`.
    fn in_pieces(input: &[u8], bytes: usize) -> Result<usize, Refusal> {
        let mut guard = Guard::default();
        let (mut passed, mut there) = (0, 0);
        while there < input.len() {
            there = (there + bytes).min(input.len());
            loop {
                match guard.check(&input[passed..there]).map_err(|refused| refused.why)? {
                    0 => break,
                    bytes => passed += bytes,
                }
            }
        }
        Ok(passed)
    }

    #[track_caller]
    fn refused(input: &str, why: Refusal) {
        for bytes in [1, 2, 3, 7, 1000] {
            assert_eq!(in_pieces(input.as_bytes(), bytes), Err(why), "{input:?} in pieces of {bytes}");
        }
    }

    #[track_caller]
    fn passes(input: &str) {
        for bytes in [1, 2, 3, 7, 1000] {
            assert_eq!(in_pieces(input.as_bytes(), bytes), Ok(input.len()), "{input:?} in pieces of {bytes}");
        }
    }

    #[test]
    fn requests_pass_however_they_are_cut() {
        passes("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        passes("GET / HTTP/1.0\r\n\r\n");
        passes("PURGE http://a/b?c HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n\r\n");
        passes("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost:a\r\n\r\n");
        passes(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        );
        passes("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n");
    }

    #[test]
    fn what_two_readers_could_understand_differently_is_refused() {
        refused(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            Refusal::TwoLengths,
        );
        refused(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            Refusal::TwoLengths,
        );
        refused(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            Refusal::RepeatedLength,
        );
        refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", Refusal::BadLength);
        refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", Refusal::BadLength);
        refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n", Refusal::BadLength);
        refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", Refusal::BadLength);
        refused("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Refusal::UnknownCoding);
        refused(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            Refusal::UnknownCoding,
        );
        refused("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", Refusal::UnknownCoding);
        refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::CodingInOldVersion);
        refused("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n y: 2\r\n\r\n", Refusal::Folded);
        refused("GET / HTTP/1.1\r\nHost: a\r\nX : 1\r\n\r\n", Refusal::FieldName);
        refused("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", Refusal::FieldName);
        refused("GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n", Refusal::FieldName);
        refused("GET / HTTP/1.1\nHost: a\n\n", Refusal::BareLineEnd);
        refused("GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", Refusal::BareLineEnd);
        refused("GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", Refusal::BareLineEnd);
        refused("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", Refusal::FieldValue);
        refused("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Refusal::RepeatedHost);
        refused("GET / HTTP/1.1\r\n\r\n", Refusal::NoHost);
        refused("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::RequestLine);
        refused("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::RequestLine);
        refused("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::RequestLine);
        refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Refusal::Version);
        refused("GET /\r\n\r\n", Refusal::RequestLine);
        refused("GET / HTTP/1.1\r\nHost: a\r\nExpect: coffee\r\n\r\n", Refusal::Expectation);
    }

    #[test]
    fn chunks_that_are_not_as_announced_are_refused() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, why) in [
            ("5\r\nhelloX\r\n", Refusal::Chunking),
            ("5\nhello\r\n", Refusal::Chunking),
            ("\r\n", Refusal::Chunking),
            ("g\r\n", Refusal::Chunking),
            ("-1\r\n", Refusal::Chunking),
            ("0x5\r\n", Refusal::Chunking),
            ("5 \r\nhello\r\n", Refusal::Chunking),
            ("10000000000000\r\n", Refusal::Chunking),
            ("5;a\nb\r\nhello\r\n", Refusal::Chunking),
            ("5;\0\r\n", Refusal::Chunking),
            ("0\r\nA : b\r\n\r\n", Refusal::FieldName),
            ("0\r\n A: b\r\n\r\n", Refusal::FieldName),
            ("0\r\nA\r\n\r\n", Refusal::BareLineEnd),
            ("0\r\nA: b\n\r\n", Refusal::BareLineEnd),
        ] {
            refused(&format!("{head}{body}"), why);
        }
        refused(&format!("{head}5;{}\r\n", "x".repeat(2000)), Refusal::Chunking);
        refused(&format!("{head}0\r\n{}\r\n", "A: b\r\n".repeat(200)), Refusal::HeadTooLong);
    }

    #[test]
    fn floods_are_refused_before_they_are_whole() {
        let many = "X: y\r\n".repeat(FIELDS_MAX);
        refused(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"), Refusal::TooManyFields);
        let long = "y".repeat(HEAD_BYTES_MAX);
        assert_eq!(whole(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}").as_bytes()), Err(Refusal::HeadTooLong));
        assert_eq!(whole(format!("GET /{long}").as_bytes()), Err(Refusal::TargetTooLong));
        let longer = "y".repeat(TARGET_BYTES_MAX);
        refused(&format!("GET /{longer} HTTP/1.1\r\nHost: a\r\n\r\n"), Refusal::TargetTooLong);
        // TLS and memcached's binary protocol are told at their first byte.
        assert_eq!(whole(b"\x16\x03\x01"), Err(Refusal::RequestLine));
        assert_eq!(whole(b"\x80"), Err(Refusal::RequestLine));
        assert_eq!(whole(&[b'A'; 100]), Err(Refusal::RequestLine));
    }

    #[test]
    fn what_came_before_a_refused_request_passes_and_nothing_after_it() {
        let first = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let both = [&first[..], b"GET / HTTP/1.1\r\n\r\n", first].concat();
        let mut guard = Guard::default();
        assert_eq!(guard.check(&both), Ok(first.len()));
        let refused = Refused { why: Refusal::NoHost, in_head: true };
        assert_eq!(guard.check(&both[first.len()..]), Err(refused));
        assert_eq!(guard.check(first).map_err(|refused| refused.why), Err(Refusal::NoHost));
        assert_eq!(guard.heads(), 1);
    }

    #[test]
    fn a_client_that_changes_the_protocol_is_not_read_before_its_answer() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let bytes = [&head[..], b"\x81\x05hello"].concat();
        for is_tunnel in [true, false] {
            let mut guard = Guard::default();
            assert_eq!(guard.check(&bytes), Ok(head.len()));
            assert_eq!(guard.check(&bytes[head.len()..]), Ok(0));
            guard.upgraded(is_tunnel);
            let expected = if is_tunnel { Ok(7) } else { Err(Refusal::RequestLine) };
            assert_eq!(guard.check(&bytes[head.len()..]).map_err(|refused| refused.why), expected);
        }
    }

    #[test]
    fn no_bytes_make_it_panic_or_pass_more_than_there_are() {
        let mut seed = 7_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize
        };
        let alphabet = b"GET / HTTP/1.1\r\n\r\nHost:aTransfer-Encoding: chunkedContent-Length: 5;0\0\xff";
        for _ in 0..5000 {
            let bytes: Vec<u8> = (0..next() % 80).map(|_| alphabet[next() % alphabet.len()]).collect();
            let split = 1 + next() % 10;
            assert_eq!(whole(&bytes).is_ok(), in_pieces(&bytes, split).is_ok(), "{bytes:?} in pieces of {split}");
        }
    }
}
