//! `get`, `gets`, `gat`, `gats`: one line, any number of keys, of any length.
//!
//! Owns the key list. A line that fits the buffer is checked whole before the first key is looked up, so that a bad key
//! in the middle is refused without half an answer. A longer one comes through [`KeysContinuation`] in bounded memory.

use super::{Outcome, Reject, Request};
use crate::num::strict_i32;
use crate::scan::{self, Tokens};
use crate::{KEY_BYTES_MAX, WireError};

/// A retrieval.
#[derive(Clone, Copy, Debug)]
pub struct Get<'a> {
    /// The keys asked for, at least one, each of 1 to [`KEY_BYTES_MAX`] bytes.
    pub keys: Keys<'a>,
    /// `gets` and `gats` show the CAS unique.
    pub with_cas: bool,
    /// `gat` and `gats` set this expiry time: seconds, as the client wrote them.
    pub touch: Option<i32>,
}

/// The keys of a retrieval in the order asked.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    list: &'a [u8],
}

impl<'a> Keys<'a> {
    /// Walks the keys.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Tokens::new(self.list)
    }
}

#[inline]
pub(super) fn parse(args: &[u8], with_cas: bool) -> Outcome<'_> {
    Ok(Request::Get(Get { keys: keys(args)?, with_cas, touch: None }))
}

pub(super) fn parse_touching(args: &[u8], with_cas: bool) -> Outcome<'_> {
    let mut tokens = Tokens::new(args);
    let exptime = tokens.next().ok_or(Reject::FORMAT)?;
    let list = tokens.rest();
    if list.is_empty() {
        return Err(Reject::FORMAT);
    }
    let exptime = strict_i32(exptime).ok_or(Reject::new(WireError::InvalidExptime))?;
    Ok(Request::Get(Get { keys: keys(list)?, with_cas, touch: Some(exptime) }))
}

#[inline]
fn keys(args: &[u8]) -> Result<Keys<'_>, Reject> {
    let mut tokens = Tokens::new(args);
    let list = tokens.rest();
    if list.is_empty() {
        return Err(Reject::FORMAT);
    }
    // Nothing on a short line can be too long a key.
    if list.len() > KEY_BYTES_MAX && tokens.any(|key| key.len() > KEY_BYTES_MAX) {
        return Err(Reject::FORMAT);
    }
    Ok(Keys { list })
}

/// A retrieval whose line is longer than the buffer that receives it: keys are taken as they arrive.
///
/// Answers to the first keys may have to be sent before the last key is seen, so a key that is too long makes the answer
/// end in an error where `END` would stand, instead of making it that error alone.
#[derive(Clone, Copy, Debug)]
pub struct KeysContinuation {
    with_cas: bool,
    touch: Option<i32>,
    any_key: bool,
    bad_key: bool,
}

/// What [`KeysContinuation::next`] found at the front of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStep<'b> {
    /// The next key. Take `used` bytes off the buffer when done with it.
    Key {
        /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
        key: &'b [u8],
        /// Bytes of the buffer that it and the spaces around it took.
        used: usize,
    },
    /// No whole key: take `used` bytes off, read more, call again. What stays is at most [`KEY_BYTES_MAX`] + 1 bytes.
    NeedMore {
        /// Bytes of the buffer that are done with.
        used: usize,
    },
    /// The line has ended. Answer `error` if there is one and `END` if not.
    Finished {
        /// Bytes of the buffer that are done with.
        used: usize,
        /// A key was too long or there was none.
        error: Option<WireError>,
    },
}

impl KeysContinuation {
    /// Recognises the beginning of a retrieval in `buf` and returns the bytes that it took. `None` when `buf` begins
    /// something else, or does not reach past the expiry time of a `gat`, or that is not a number.
    #[must_use]
    pub fn start(buf: &[u8]) -> Option<(KeysContinuation, usize)> {
        let command_bytes = scan::find(b' ', buf)?;
        let (command, rest) = buf.split_at(command_bytes);
        let (with_cas, touching) = match command {
            b"get" => (false, false),
            b"gets" => (true, false),
            b"gat" => (false, true),
            b"gats" => (true, true),
            _ => return None,
        };
        let mut tokens = Tokens::new(rest);
        let mut touch = None;
        if touching {
            let token = tokens.next()?;
            if tokens.rest().is_empty() {
                return None;
            }
            touch = Some(strict_i32(token)?);
        }
        let used = buf.len() - tokens.rest().len();
        Some((KeysContinuation { with_cas, touch, any_key: false, bad_key: false }, used))
    }

    /// Whether the CAS unique is to be shown.
    #[must_use]
    pub const fn with_cas(&self) -> bool {
        self.with_cas
    }

    /// The expiry time to set on what is found.
    #[must_use]
    pub const fn touch(&self) -> Option<i32> {
        self.touch
    }

    /// The next step with `buf`, which begins where the last step's `used` bytes ended.
    pub fn next<'b>(&mut self, buf: &'b [u8]) -> KeyStep<'b> {
        let mut start = 0;
        loop {
            start += buf[start..].iter().take_while(|&&byte| byte == b' ').count();
            let rest = &buf[start..];
            if let [b'\n', ..] | [b'\r', b'\n', ..] = rest {
                let used = start + if rest[0] == b'\n' { 1 } else { 2 };
                let refused = self.bad_key || !self.any_key;
                return KeyStep::Finished { used, error: refused.then_some(WireError::BadCommandLineFormat) };
            }
            let Some(end) = rest.iter().position(|&byte| byte == b' ' || byte == b'\n') else {
                // 250 bytes and a `\r` may still turn out to be a key and half a line end.
                if rest.len() <= KEY_BYTES_MAX + 1 && !self.bad_key {
                    return KeyStep::NeedMore { used: start };
                }
                self.bad_key = true;
                // A `\r` must stay in sight of the `\n` that may follow it.
                let keep = usize::from(rest.last() == Some(&b'\r'));
                return KeyStep::NeedMore { used: buf.len() - keep };
            };
            let key = match &rest[..end] {
                [key @ .., b'\r'] if rest[end] == b'\n' => key,
                key => key,
            };
            if key.len() > KEY_BYTES_MAX {
                self.bad_key = true;
            }
            if self.bad_key {
                // The key that broke the line is skipped like all after it.
                start += key.len();
                continue;
            }
            self.any_key = true;
            let after = key.len() + usize::from(rest[end] == b' ');
            return KeyStep::Key { key, used: start + after };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refused, request};
    use super::super::{Parsed, parse};
    use super::*;
    use crate::LINE_BYTES_MAX;

    fn get(line: &[u8]) -> (Vec<&[u8]>, bool, Option<i32>) {
        let Request::Get(get) = request(line) else { panic!() };
        (get.keys.iter().collect(), get.with_cas, get.touch)
    }

    #[test]
    fn keys_come_in_the_order_asked() {
        assert_eq!(get(b"get k\r\n"), (vec![&b"k"[..]], false, None));
        assert_eq!(get(b"get  a   bb c \r\n"), (vec![&b"a"[..], b"bb", b"c"], false, None));
        assert_eq!(get(b"gets a a\r\n"), (vec![&b"a"[..], b"a"], true, None));
        assert_eq!(get(b"gat 10 a b\r\n"), (vec![&b"a"[..], b"b"], false, Some(10)));
        assert_eq!(get(b"gats -1 a\r\n"), (vec![&b"a"[..]], true, Some(-1)));
        assert_eq!(get(b"get noreply\r\n"), (vec![&b"noreply"[..]], false, None));
    }

    #[test]
    fn retrievals_without_keys_are_bad_format() {
        for line in
            [&b"get\r\n"[..], b"get \r\n", b"get    \r\n", b"gets\r\n", b"gat\r\n", b"gat 1\r\n", b"gats 1 \r\n"]
        {
            refused(line, WireError::BadCommandLineFormat);
        }
    }

    #[test]
    fn gat_wants_a_32_bit_expiry_time() {
        for line in [&b"gat x k\r\n"[..], b"gat 2147483648 k\r\n", b"gats 1x k\r\n", b"gat 99999999999999999999 k\r\n"]
        {
            refused(line, WireError::InvalidExptime);
        }
    }

    #[test]
    fn a_key_too_long_anywhere_refuses_the_whole_line() {
        let longest = "k".repeat(KEY_BYTES_MAX);
        let too_long = "k".repeat(KEY_BYTES_MAX + 1);
        assert_eq!(get(format!("get a {longest} b\r\n").as_bytes()).0.len(), 3);
        refused(format!("get a {too_long} b\r\n").as_bytes(), WireError::BadCommandLineFormat);
        refused(format!("gat 0 a b {too_long}\r\n").as_bytes(), WireError::BadCommandLineFormat);
        refused(format!("gets {too_long}\r\n").as_bytes(), WireError::BadCommandLineFormat);
    }

    /// Feeds `stream` to a continuation `step` bytes at a time through a small window.
    fn walk(stream: &[u8], step: usize) -> (Vec<Vec<u8>>, Option<WireError>, usize) {
        let (mut keys, mut at) = KeysContinuation::start(&stream[..stream.len().min(LINE_BYTES_MAX + 1)]).unwrap();
        let mut seen = Vec::new();
        let mut end = at;
        loop {
            match keys.next(&stream[at..end]) {
                KeyStep::Key { key, used } => {
                    seen.push(key.to_vec());
                    at += used;
                }
                KeyStep::NeedMore { used } => {
                    at += used;
                    assert!(end - at <= KEY_BYTES_MAX + 1, "bounded memory");
                    assert!(end < stream.len(), "the stream ends its line");
                    end = (end + step).min(stream.len());
                }
                KeyStep::Finished { used, error } => return (seen, error, at + used),
            }
        }
    }

    #[test]
    fn a_line_of_any_length_gives_the_same_keys_however_it_is_cut() {
        let mut line = b"get ".to_vec();
        let mut expected = Vec::new();
        for i in 0..2000 {
            let key = format!("key:{i}:{}", "x".repeat(i % 240));
            line.extend_from_slice(key.as_bytes());
            line.extend_from_slice(if i % 7 == 0 { b"   " } else { b" " });
            expected.push(key.into_bytes());
        }
        line.extend_from_slice(b"last\r\n");
        expected.push(b"last".to_vec());
        let line_bytes = line.len();
        line.extend_from_slice(b"version\r\n");
        for step in [1, 2, 3, 7, 64, 1000, 100_000] {
            assert_eq!(walk(&line, step), (expected.clone(), None, line_bytes), "{step}");
        }
    }

    #[test]
    fn parse_hands_a_long_line_over_and_nothing_is_lost() {
        let mut line = b"gats 60 ".to_vec();
        line.extend(std::iter::repeat_n(*b"key ", 1000).flatten());
        let Parsed::LongGet { keys, line_bytes } = parse(&line[..LINE_BYTES_MAX + 1]) else { panic!() };
        assert_eq!((keys.with_cas(), keys.touch(), line_bytes), (true, Some(60), 8));
    }

    #[test]
    fn a_bad_key_on_a_long_line_ends_in_an_error_and_the_next_line_is_intact() {
        let filler = "key ".repeat(600);
        for bad in ["k".repeat(251), "k".repeat(252), "k".repeat(5000)] {
            for tail in ["\r\n", "\n", " more keys\r\n", " \r\n"] {
                let line = format!("get {filler}{bad}{tail}");
                let stream = format!("{line}mn\r\n");
                for step in [1, 13, 100_000] {
                    let (keys, error, used) = walk(stream.as_bytes(), step);
                    assert_eq!(keys.len(), 600);
                    assert_eq!(error, Some(WireError::BadCommandLineFormat));
                    assert_eq!(used, line.len());
                }
            }
        }
        let fits = format!("get {filler}{}\r\n", "k".repeat(250));
        assert_eq!(walk(fits.as_bytes(), 1).1, None);
    }

    #[test]
    fn a_long_line_without_a_key_is_bad_format() {
        let line = format!("get {}\r\n", " ".repeat(3000));
        assert_eq!(walk(line.as_bytes(), 5), (vec![], Some(WireError::BadCommandLineFormat), line.len()));
    }

    #[test]
    fn only_retrievals_continue() {
        let long = "k".repeat(3000);
        let spaces = " ".repeat(3000);
        for line in [
            format!("set {long}"),
            format!("getx {long}"),
            format!("mg {long}"),
            format!("get{long}"),
            format!("gat x {long}"),
            format!("gat {spaces}5"),
            format!("gat 5{spaces}"),
        ] {
            assert!(KeysContinuation::start(line.as_bytes()).is_none(), "{}", &line[..10]);
        }
    }
}
