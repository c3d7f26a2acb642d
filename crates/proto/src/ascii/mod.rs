//! Text commands, server side: a command line in, a [`Request`] that borrows from it out.
//!
//! Owns the grammar of memcached's text and meta command lines, what is refused and with which words, and what must then
//! be swallowed. The value of a storage command is not its business: [`Store::body_bytes`] and
//! [`meta::MetaSet::body_bytes`](crate::meta::MetaSet::body_bytes) say how much of the stream belongs to it. Permissions
//! (`-F`, `-X`, `-W`, `-A`) are not decided here either; where memcached looks at the permission before it looks at the
//! arguments, the request carries a `Result` and the caller checks in that order.
//!
//! ```
//! use nuthatch_proto::ascii::{Parsed, Request, parse};
//! let Parsed::Request { request: Request::Get(get), line_bytes } = parse(b"get a b\r\nget") else { panic!() };
//! assert_eq!(line_bytes, 9);
//! assert_eq!(get.keys.iter().collect::<Vec<_>>(), [b"a", b"b"]);
//! ```

mod admin;
mod arith;
pub mod auth;
mod delete;
mod get;
pub mod reply;
mod stats;
mod store;
mod touch;

pub use admin::{Classes, Crawler, DebugTime, Extstore, FlushAll, Lru, Shutdown, ShutdownMode, Slabs, WatchClasses};
pub use arith::Arith;
pub use delete::Delete;
pub use get::{Get, KeyStep, Keys, KeysContinuation};
pub use stats::{Detail, Stats};
pub use store::{Store, Verb};
pub use touch::Touch;

use crate::forget::Forget;
use crate::meta::{Meta, MetaArith, MetaDebug, MetaSet};
use crate::scan::{self, Tokens};
use crate::{KEY_BYTES_MAX, LINE_BYTES_MAX, WireError, meta};

/// What the front of a buffer holds.
//
// The wide tags of this and of `Request` keep every field at a multiple of its own size behind them; a one-byte tag lets
// small fields move up against it, and then each hand-over is copied in odd pieces that wait for each other.
#[derive(Debug)]
#[repr(u64)]
pub enum Parsed<'a> {
    /// No whole command line yet: read more and call again with at least these bytes.
    Incomplete,
    /// A command line. Its value, if it has one, follows it in the stream.
    Request {
        /// The command.
        request: Request<'a>,
        /// Bytes of the line with its line end, to be taken off the buffer (after the request is done with).
        line_bytes: usize,
    },
    /// A retrieval whose line has not ended after [`LINE_BYTES_MAX`] bytes: feed the rest to the continuation key by key.
    LongGet {
        /// Takes over from here until it says that the line has ended.
        keys: KeysContinuation,
        /// Bytes to take off the buffer before the continuation sees it.
        line_bytes: usize,
    },
    /// Not a command that can be carried out.
    Refused(Refusal),
}

/// Why a line is not carried out and how the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What to answer; `None`: nothing (a web browser, an endless line).
    pub error: Option<WireError>,
    /// The client asked for no reply, and memcached honours that for this error too.
    pub noreply: bool,
    /// Bytes of the line with its line end.
    pub line_bytes: usize,
    /// Bytes after the line that belong to the refused command and must be thrown away: value and closing `\r\n`.
    pub swallow_bytes: u32,
    /// Close the connection, after the answer if there is one.
    pub close: bool,
}

impl Refusal {
    /// The bytes to answer with; empty when nothing is answered.
    #[must_use]
    pub const fn reply(&self) -> &'static [u8] {
        match self.error {
            Some(error) if !self.noreply => error.as_wire(),
            _ => b"",
        }
    }
}

/// A text or meta command.
#[derive(Clone, Debug)]
#[repr(u64)]
pub enum Request<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get(Get<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Store<'a>),
    /// `delete`.
    Delete(Delete<'a>),
    /// `incr`, `decr`.
    Arith(Arith<'a>),
    /// `touch`.
    Touch(Touch<'a>),
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `ms`.
    MetaSet(MetaSet<'a>),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`.
    MetaArith(MetaArith<'a>),
    /// `mn`: answer `MN` and send what is buffered.
    MetaNoop,
    /// `me`.
    MetaDebug(MetaDebug<'a>),
    /// `flush_all [delay]`.
    FlushAll(FlushAll),
    /// `forget prefix|tag <name>`, which memcached does not know.
    Forget {
        /// What is to be forgotten.
        what: Forget<'a>,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `version`.
    Version,
    /// `quit`: close without an answer.
    Quit,
    /// `stats`.
    Stats(Stats<'a>),
    /// `verbosity <level>`.
    Verbosity {
        /// The level asked for; memcached keeps at most 2.
        level: u32,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `cache_memlimit <megabytes>`.
    CacheMemlimit {
        /// The limit asked for, in MiB.
        megabytes: u32,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `shutdown [graceful]`.
    Shutdown(Shutdown),
    /// `slabs reassign|automove`.
    Slabs {
        /// What is asked.
        command: Slabs,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `lru tune|mode|temp_ttl`.
    Lru {
        /// What is asked.
        command: Lru,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `lru_crawler …`, dumps included.
    Crawler {
        /// What is asked.
        command: Crawler,
        /// No answer is wanted.
        noreply: bool,
    },
    /// `watch [class…]`; an unknown class is [`WireError::Error`].
    Watch {
        /// The classes asked for; with none named, fetchers.
        classes: Result<WatchClasses, WireError>,
    },
    /// `extstore <knob> <value>`, a knob and value that memcached would accept.
    Extstore(Extstore<'a>),
    /// `refresh_certs`.
    RefreshCerts {
        /// No answer is wanted.
        noreply: bool,
    },
    /// `debugtime p|r|N`, which only a server started for debugging knows.
    DebugTime {
        /// What is asked.
        command: DebugTime,
        /// No answer is wanted.
        noreply: bool,
    },
}

/// Parses the command line at the front of `buf`. Looks at nothing after the line.
#[inline]
#[must_use]
pub fn parse(buf: &[u8]) -> Parsed<'_> {
    let Some(end) = scan::find(b'\n', buf) else { return unfinished(buf) };
    let line_bytes = end + 1;
    let line = match &buf[..end] {
        [line @ .., b'\r'] => line,
        line => line,
    };
    // The retrieval of most requests is recognised before anything else is.
    if let [b'g', b'e', b't', b' ', keys @ ..] = line {
        return finish(get::parse(keys, false), line_bytes);
    }
    finish(dispatch(line, line_bytes), line_bytes)
}

/// A command that parsed or the reason why it did not, before it is known how long the line was.
type Outcome<'a> = Result<Request<'a>, Reject>;

/// [`Refusal`] before it is known how long the line was.
#[derive(Debug)]
#[repr(align(8))]
struct Reject {
    error: Option<WireError>,
    noreply: bool,
    swallow_bytes: u32,
    close: bool,
}

impl Reject {
    /// Memcached's answer to a command with too few arguments and to much else; the line is over and nothing is swallowed.
    const FORMAT: Reject = Reject::new(WireError::BadCommandLineFormat);

    const fn new(error: WireError) -> Reject {
        Reject { error: Some(error), noreply: false, swallow_bytes: 0, close: false }
    }

    const fn quiet(error: WireError, noreply: bool) -> Reject {
        Reject { error: Some(error), noreply, swallow_bytes: 0, close: false }
    }
}

#[inline]
fn finish(outcome: Outcome<'_>, line_bytes: usize) -> Parsed<'_> {
    match outcome {
        Ok(request) => Parsed::Request { request, line_bytes },
        Err(Reject { error, noreply, swallow_bytes, close }) => {
            Parsed::Refused(Refusal { error, noreply, line_bytes, swallow_bytes, close })
        }
    }
}

/// No line end in sight: more may come, unless the line is already longer than any command but a retrieval.
#[cold]
fn unfinished(buf: &[u8]) -> Parsed<'_> {
    if buf.len() <= LINE_BYTES_MAX {
        return Parsed::Incomplete;
    }
    match KeysContinuation::start(buf) {
        Some((keys, line_bytes)) => Parsed::LongGet { keys, line_bytes },
        None => Parsed::Refused(Refusal {
            error: None,
            noreply: false,
            line_bytes: buf.len(),
            swallow_bytes: 0,
            close: true,
        }),
    }
}

fn dispatch(line: &[u8], line_bytes: usize) -> Outcome<'_> {
    // Two letters and `\r\n`: nothing shorter is a command, and memcached says so before it looks.
    if line_bytes < 4 {
        return Err(Reject::FORMAT);
    }
    let command_bytes = scan::find(b' ', line).unwrap_or(line.len());
    let (command, args) = line.split_at(command_bytes);
    match command {
        b"mg" => match meta::parse_plain(args) {
            Some(meta) => Ok(Request::MetaGet(meta)),
            None => Err(Reject::new(meta::blame(args))),
        },
        b"ms" => store::parse_meta(args),
        b"md" => match meta::parse_plain(args) {
            Some(meta) => Ok(Request::MetaDelete(meta)),
            None => Err(Reject::new(meta::blame(args))),
        },
        b"ma" => meta::parse_arith(args).map_err(Reject::new).map(Request::MetaArith),
        b"mn" => Ok(Request::MetaNoop),
        b"me" => meta::parse_debug(args).map_err(Reject::new).map(Request::MetaDebug),
        b"get" => get::parse(args, false),
        b"gets" => get::parse(args, true),
        b"gat" => get::parse_touching(args, false),
        b"gats" => get::parse_touching(args, true),
        b"set" => store::parse(args, Verb::Set),
        b"add" => store::parse(args, Verb::Add),
        b"replace" => store::parse(args, Verb::Replace),
        b"append" => store::parse(args, Verb::Append),
        b"prepend" => store::parse(args, Verb::Prepend),
        b"cas" => store::parse(args, Verb::Cas),
        b"incr" => arith::parse(args, false),
        b"decr" => arith::parse(args, true),
        b"delete" => delete::parse(args),
        b"touch" => touch::parse(args),
        b"quit" => Ok(Request::Quit),
        b"version" => Ok(Request::Version),
        b"stats" => Ok(Request::Stats(stats::parse(&Args::new(line)))),
        b"watch" => Ok(Request::Watch { classes: admin::watch(&Args::new(line)) }),
        _ => admin::parse(&Args::new(line)),
    }
}

/// Most tokens memcached splits a line into; what follows them is not looked at.
const ARGS_MAX: usize = 23;

/// The tokens of a line, the command among them, for the commands that are rare.
struct Args<'a> {
    list: [&'a [u8]; ARGS_MAX],
    count: usize,
}

impl<'a> Args<'a> {
    fn new(line: &'a [u8]) -> Self {
        let mut args = Args { list: [&[]; ARGS_MAX], count: 0 };
        for (slot, token) in args.list.iter_mut().zip(Tokens::new(line)) {
            *slot = token;
            args.count += 1;
        }
        args
    }

    fn all(&self) -> &[&'a [u8]] {
        &self.list[..self.count]
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.all().get(index).copied()
    }

    /// Whether the last token is `noreply`.
    fn noreply(&self) -> bool {
        self.all().last().is_some_and(|last| is_noreply(last))
    }
}

fn is_noreply(token: &[u8]) -> bool {
    token == b"noreply"
}

/// Memcached compares many words only as far as the client wrote them, so that `stats set` is `stats settings`.
fn abbreviates(token: &[u8], word: &[u8]) -> bool {
    word.starts_with(token)
}

/// The key a command names, or the refusal of one that is too long.
#[inline]
fn checked_key(key: &[u8], noreply: bool) -> Result<&[u8], Reject> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Reject::quiet(WireError::BadCommandLineFormat, noreply));
    }
    Ok(key)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn request(line: &[u8]) -> Request<'_> {
        match parse(line) {
            Parsed::Request { request, line_bytes } => {
                assert_eq!(line_bytes, line.len(), "the whole of {:?} is the line", line.escape_ascii().to_string());
                request
            }
            other => panic!("{}: {other:?}", line.escape_ascii()),
        }
    }

    pub(crate) fn refusal(line: &[u8]) -> Refusal {
        match parse(line) {
            Parsed::Refused(refusal) => refusal,
            other => panic!("{}: {other:?}", line.escape_ascii()),
        }
    }

    /// Refused with `error`, the line alone is taken, the connection stays.
    pub(crate) fn refused(line: &[u8], error: WireError) {
        let line_bytes = line.len();
        assert_eq!(
            refusal(line),
            Refusal { error: Some(error), noreply: false, line_bytes, swallow_bytes: 0, close: false },
            "{}",
            line.escape_ascii()
        );
    }

    #[test]
    fn a_line_ends_at_the_newline_and_one_carriage_return_before_it_is_not_part_of_it() {
        for line in [&b"get k\r\n"[..], b"get k\n"] {
            let Request::Get(get) = request(line) else { panic!() };
            assert_eq!(get.keys.iter().collect::<Vec<_>>(), [b"k"]);
        }
        let Request::Get(get) = request(b"get k\r\r\n") else { panic!() };
        assert_eq!(get.keys.iter().collect::<Vec<_>>(), [b"k\r"]);
    }

    #[test]
    fn unfinished_lines_wait_and_endless_ones_close() {
        assert!(matches!(parse(b""), Parsed::Incomplete));
        assert!(matches!(parse(b"set k 0 0 1\r"), Parsed::Incomplete));
        assert!(matches!(parse(&[b'x'; LINE_BYTES_MAX]), Parsed::Incomplete));
        let refusal = refusal(&[b'x'; LINE_BYTES_MAX + 1]);
        assert!(refusal.close);
        assert_eq!(refusal.reply(), b"");
    }

    #[test]
    fn lines_too_short_for_a_command_are_bad_format() {
        for line in [&b"\n"[..], b"\r\n", b"a\n", b"a\r\n", b"mn\n"] {
            refused(line, WireError::BadCommandLineFormat);
        }
        assert!(matches!(request(b"mn\r\n"), Request::MetaNoop));
        assert!(matches!(request(b"mn any thing\n"), Request::MetaNoop));
    }

    #[test]
    fn unknown_commands_are_errors_unless_no_reply_is_wanted() {
        for line in
            [&b"foo\r\n"[..], b"GET k\r\n", b"   \r\n", b" get k\r\n", b"misbehave\r\n", b"mx key\r\n", b"\0\0\0\r\n"]
        {
            refused(line, WireError::Error);
        }
        let refusal = refusal(b"foo noreply\r\n");
        assert_eq!(refusal.error, Some(WireError::Error));
        assert_eq!(refusal.reply(), b"");
    }

    #[test]
    fn a_web_browser_is_hung_up_on_without_a_word() {
        let line = b"POST / HTTP/1.1\r\nHost: x\r\n\r\n";
        let refusal = refusal(line);
        assert_eq!(refusal.error, None);
        assert!(refusal.close);
        assert_eq!(refusal.line_bytes, 17);
        refused(b"HTTP/1.1\r\n", WireError::Error);
    }

    #[test]
    fn commands_without_arguments_take_any() {
        for line in [&b"version\r\n"[..], b"version noreply\r\n", b"version 1 2\r\n"] {
            assert!(matches!(request(line), Request::Version));
        }
        for line in [&b"quit\r\n"[..], b"quit now\r\n"] {
            assert!(matches!(request(line), Request::Quit));
        }
    }

    #[test]
    fn only_the_first_line_is_looked_at() {
        let Parsed::Request { line_bytes, .. } = parse(b"version\r\nnonsense") else { panic!() };
        assert_eq!(line_bytes, 9);
    }
}
