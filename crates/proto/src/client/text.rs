//! Text requests. Each is appended whole or, when it cannot be sent, not at all.

use super::{BadRequest, check_text_key, check_value};
use crate::ascii::Verb;
use crate::forget::Forget;
use crate::num::{push_i64, push_u64};

/// `get`; at least one key.
pub fn get(out: &mut Vec<u8>, keys: &[&[u8]]) -> Result<(), BadRequest> {
    retrieve(out, b"get", None, keys)
}

/// `gets`, which shows CAS uniques.
pub fn gets(out: &mut Vec<u8>, keys: &[&[u8]]) -> Result<(), BadRequest> {
    retrieve(out, b"gets", None, keys)
}

/// `gat`, which also sets the expiry time.
pub fn gat(out: &mut Vec<u8>, exptime: i32, keys: &[&[u8]]) -> Result<(), BadRequest> {
    retrieve(out, b"gat", Some(exptime), keys)
}

/// `gats`: both.
pub fn gats(out: &mut Vec<u8>, exptime: i32, keys: &[&[u8]]) -> Result<(), BadRequest> {
    retrieve(out, b"gats", Some(exptime), keys)
}

fn retrieve(out: &mut Vec<u8>, word: &[u8], touch: Option<i32>, keys: &[&[u8]]) -> Result<(), BadRequest> {
    if keys.is_empty() {
        return Err(BadRequest::KeyEmpty);
    }
    keys.iter().try_for_each(|key| check_text_key(key))?;
    out.extend_from_slice(word);
    if let Some(exptime) = touch {
        out.push(b' ');
        push_i64(out, i64::from(exptime));
    }
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key);
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// What a storage command says besides key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The client's flags.
    pub flags: u32,
    /// Expiry time, seconds.
    pub exptime: i32,
    /// For [`Verb::Cas`] the CAS unique that the item must still have.
    pub cas: u64,
    /// No answer is wanted.
    pub noreply: bool,
}

/// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
pub fn store(out: &mut Vec<u8>, verb: Verb, key: &[u8], value: &[u8], options: StoreOptions) -> Result<(), BadRequest> {
    check_text_key(key)?;
    check_value(value)?;
    out.reserve(key.len() + value.len() + 80);
    out.extend_from_slice(match verb {
        Verb::Set => b"set ",
        Verb::Add => b"add ",
        Verb::Replace => b"replace ",
        Verb::Append => b"append ",
        Verb::Prepend => b"prepend ",
        Verb::Cas => b"cas ",
    });
    out.extend_from_slice(key);
    out.push(b' ');
    push_u64(out, u64::from(options.flags));
    out.push(b' ');
    push_i64(out, i64::from(options.exptime));
    out.push(b' ');
    push_u64(out, value.len() as u64);
    if verb == Verb::Cas {
        out.push(b' ');
        push_u64(out, options.cas);
    }
    end(out, options.noreply);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// `delete`.
pub fn delete(out: &mut Vec<u8>, key: &[u8], noreply: bool) -> Result<(), BadRequest> {
    begin(out, b"delete ", key)?;
    end(out, noreply);
    Ok(())
}

/// `incr`.
pub fn incr(out: &mut Vec<u8>, key: &[u8], delta: u64, noreply: bool) -> Result<(), BadRequest> {
    begin(out, b"incr ", key)?;
    out.push(b' ');
    push_u64(out, delta);
    end(out, noreply);
    Ok(())
}

/// `decr`.
pub fn decr(out: &mut Vec<u8>, key: &[u8], delta: u64, noreply: bool) -> Result<(), BadRequest> {
    begin(out, b"decr ", key)?;
    out.push(b' ');
    push_u64(out, delta);
    end(out, noreply);
    Ok(())
}

/// `touch`.
pub fn touch(out: &mut Vec<u8>, key: &[u8], exptime: i32, noreply: bool) -> Result<(), BadRequest> {
    begin(out, b"touch ", key)?;
    out.push(b' ');
    push_i64(out, i64::from(exptime));
    end(out, noreply);
    Ok(())
}

/// `flush_all`, at once or after a delay in seconds.
pub fn flush_all(out: &mut Vec<u8>, delay: Option<i32>, noreply: bool) {
    out.extend_from_slice(b"flush_all");
    if let Some(delay) = delay {
        out.push(b' ');
        push_i64(out, i64::from(delay));
    }
    end(out, noreply);
}

/// `forget`, which a memcached answers with `ERROR`.
pub fn forget(out: &mut Vec<u8>, what: Forget<'_>, noreply: bool) -> Result<(), BadRequest> {
    check_text_key(what.name())?;
    out.extend_from_slice(b"forget ");
    out.extend_from_slice(what.word().as_bytes());
    out.push(b' ');
    out.extend_from_slice(what.name());
    end(out, noreply);
    Ok(())
}

/// `version`.
pub const VERSION: &[u8] = b"version\r\n";

/// `quit`, which is not answered.
pub const QUIT: &[u8] = b"quit\r\n";

/// `stats` with its arguments, none for the general counters.
pub fn stats(out: &mut Vec<u8>, arguments: &[&[u8]]) -> Result<(), BadRequest> {
    if !arguments.iter().all(|argument| super::is_text(argument)) {
        return Err(BadRequest::KeyNotText);
    }
    out.extend_from_slice(b"stats");
    for argument in arguments {
        out.push(b' ');
        out.extend_from_slice(argument);
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

fn begin(out: &mut Vec<u8>, word: &[u8], key: &[u8]) -> Result<(), BadRequest> {
    check_text_key(key)?;
    out.extend_from_slice(word);
    out.extend_from_slice(key);
    Ok(())
}

fn end(out: &mut Vec<u8>, noreply: bool) {
    out.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii::tests::request;
    use crate::ascii::{Arith, Delete, FlushAll, Request, Stats, Store, Touch};
    use crate::client::tests::sent;

    #[test]
    fn retrievals_arrive_as_they_were_meant() {
        type Send = fn(&mut Vec<u8>, &[&[u8]]) -> Result<(), BadRequest>;
        let forms: [(Send, bool, Option<i32>); 4] = [
            (get, false, None),
            (gets, true, None),
            (|out, keys| gat(out, -1, keys), false, Some(-1)),
            (|out, keys| gats(out, i32::MAX, keys), true, Some(i32::MAX)),
        ];
        for (send, with_cas, touch) in forms {
            let keys = [&b"a"[..], b"bb", "\u{f6}".as_bytes()];
            let line = sent(|out| send(out, &keys));
            let Request::Get(get) = request(&line) else { panic!() };
            assert_eq!(get.keys.iter().collect::<Vec<_>>(), keys);
            assert_eq!((get.with_cas, get.touch), (with_cas, touch));
        }
    }

    #[test]
    fn storage_commands_arrive_as_they_were_meant() {
        for verb in [Verb::Set, Verb::Add, Verb::Replace, Verb::Append, Verb::Prepend, Verb::Cas] {
            for (flags, exptime, cas, noreply) in [(0, 0, 0, false), (u32::MAX, i32::MIN, u64::MAX, true)] {
                let bytes =
                    sent(|out| store(out, verb, b"key", b"\r\nval", StoreOptions { flags, exptime, cas, noreply }));
                let line_bytes = bytes.len() - 7;
                assert_eq!(bytes[line_bytes..], *b"\r\nval\r\n");
                let Request::Store(got) = request(&bytes[..line_bytes]) else { panic!() };
                let cas = if verb == Verb::Cas { cas } else { 0 };
                assert_eq!(got, Store { verb, key: b"key", flags, exptime, value_bytes: 5, cas, noreply });
            }
        }
    }

    #[test]
    fn short_commands_arrive_as_they_were_meant() {
        for noreply in [false, true] {
            let line = sent(|out| delete(out, b"k", noreply));
            let Request::Delete(got) = request(&line) else { panic!() };
            assert_eq!(got, Delete { key: b"k", noreply });
            let line = sent(|out| incr(out, b"k", u64::MAX, noreply));
            let Request::Arith(got) = request(&line) else { panic!() };
            assert_eq!(got, Arith { key: b"k", delta: u64::MAX, decrement: false, noreply });
            let line = sent(|out| decr(out, b"k", 0, noreply));
            let Request::Arith(got) = request(&line) else { panic!() };
            assert_eq!(got, Arith { key: b"k", delta: 0, decrement: true, noreply });
            let line = sent(|out| touch(out, b"k", -5, noreply));
            let Request::Touch(got) = request(&line) else { panic!() };
            assert_eq!(got, Touch { key: b"k", exptime: -5, noreply });
            for what in [Forget::Prefix(b"bin:"), Forget::Tag(b"noreply")] {
                let line = sent(|out| forget(out, what, noreply));
                let Request::Forget { what: got, noreply: quiet } = request(&line) else { panic!() };
                assert_eq!((got, quiet), (what, noreply));
            }
            for delay in [None, Some(0), Some(30)] {
                let mut line = Vec::new();
                flush_all(&mut line, delay, noreply);
                let Request::FlushAll(got) = request(&line) else { panic!() };
                assert_eq!(got, FlushAll { delay: Ok(delay.unwrap_or(0)), noreply });
            }
        }
        assert!(matches!(request(VERSION), Request::Version));
        assert!(matches!(request(QUIT), Request::Quit));
        assert!(matches!(request(&sent(|out| stats(out, &[]))), Request::Stats(Stats::General)));
        let line = sent(|out| stats(out, &[b"cachedump", b"1", b"2"]));
        assert!(matches!(request(&line), Request::Stats(Stats::CacheDump(Ok((1, 2))))));
    }

    #[test]
    fn what_cannot_be_sent_leaves_nothing_behind() {
        let mut out = b"before".to_vec();
        assert_eq!(get(&mut out, &[]), Err(BadRequest::KeyEmpty));
        assert_eq!(get(&mut out, &[b"a", b"b c"]), Err(BadRequest::KeyNotText));
        assert_eq!(store(&mut out, Verb::Set, b"a\r\nb", b"v", StoreOptions::default()), Err(BadRequest::KeyNotText));
        assert_eq!(delete(&mut out, b"", false), Err(BadRequest::KeyEmpty));
        assert_eq!(forget(&mut out, Forget::Tag(b"a b"), false), Err(BadRequest::KeyNotText));
        assert_eq!(incr(&mut out, &[b'k'; 251], 1, false), Err(BadRequest::KeyTooLong { key_bytes: 251 }));
        assert_eq!(decr(&mut out, b" ", 1, false), Err(BadRequest::KeyNotText));
        assert_eq!(touch(&mut out, b"\n", 1, false), Err(BadRequest::KeyNotText));
        assert_eq!(stats(&mut out, &[b"a b"]), Err(BadRequest::KeyNotText));
        assert_eq!(out, b"before");
    }
}
