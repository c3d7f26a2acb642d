//! The guard: every byte of an HTTP/1 client passes it before anything else reads it.
//!
//! It follows the framing of requests (RFC 9112 sections 2 to 7) and refuses what two readers could understand
//! differently, what is longer than the limits, and what is no HTTP/1 at all. It keeps no bytes and does no input or
//! output: [`Guard::check`] is shown what has arrived and says how much of it may be passed on. After a refusal nothing
//! passes any more: a connection is never resynchronised by guess.

mod refusal;
#[cfg(test)]
mod tests;

pub use refusal::Refusal;

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

    /// Has the client asked for another protocol, and no answer yet? Its request was the last that passed. Nobody else
    /// decides which requests do.
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
            7 if name.eq_ignore_ascii_case(b"upgrade") => has_upgrade |= protocols(value).next().is_some(),
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

/// The protocols of an `Upgrade` that a client may come to speak: all but HTTP/2, which is begun with prior knowledge or by
/// ALPN since RFC 9113 (section 3.1).
pub(crate) fn protocols(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let named = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    named.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case(b"h2c") && !name.eq_ignore_ascii_case(b"h2"))
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
    // The forms of RFC 9112, section 3.2. A target in another is a relative reference to somebody, a host to somebody else.
    let is_absolute = || memchr::memmem::find(target, b"://").is_some();
    if !(target[0] == b'/' || target == b"*" || method == b"CONNECT" || is_absolute()) {
        return Err(Refusal::TargetForm);
    }
    // What hyper would refuse without a word.
    if target.iter().any(|byte| matches!(byte, b'<' | b'>')) || !target.is_ascii() && str::from_utf8(target).is_err() {
        return Err(Refusal::TargetByte);
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
