//! `stats` and its sub-commands, for the text and the binary protocol: memcached's names in memcached's order.
//! Everything is read from counters that are kept anyway; asking costs the one who asks. What each number means here is
//! in the reference page; [`super::stats_tables`] holds the long lists.

use std::fmt::{self, Display};
use std::io::Write as _;
use std::sync::PoisonError;

use nuthatch_proto::WireError;
use nuthatch_proto::ascii::{self, Detail, Parsed, Request, Stats, reply as text_reply};
use nuthatch_proto::binary::{Header, Status, reply as binary_reply};

use super::{Exec, dump, stats_tables};

/// Where counters go: `STAT` lines or binary packets.
pub(crate) struct Sink<'o> {
    out: &'o mut Vec<u8>,
    binary: Option<&'o Header>,
    value: Vec<u8>,
}

impl<'o> Sink<'o> {
    fn new(out: &'o mut Vec<u8>, binary: Option<&'o Header>) -> Sink<'o> {
        Sink { out, binary, value: Vec::with_capacity(32) }
    }

    /// One counter.
    pub(crate) fn stat(&mut self, name: impl AsRef<str>, value: impl Display) {
        self.value.clear();
        let _ = write!(self.value, "{value}");
        let name = name.as_ref().as_bytes();
        match self.binary {
            None => text_reply::stat(self.out, name, &self.value),
            Some(header) => binary_reply::stat(self.out, header, name, &self.value),
        }
    }

    /// One counter called `group:name`.
    pub(crate) fn stat_of(&mut self, group: impl Display, name: &str, value: impl Display) {
        self.stat(format!("{group}:{name}"), value);
    }

    fn end(&mut self) {
        match self.binary {
            None => self.out.extend_from_slice(text_reply::END),
            Some(header) => binary_reply::stat(self.out, header, b"", b""),
        }
    }
}

/// memcached's way to say yes and no.
pub(crate) struct YesNo(pub(crate) bool);

impl Display for YesNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "yes" } else { "no" })
    }
}

/// The text command.
pub(crate) fn text(exec: &mut Exec<'_>, command: &Stats<'_>) {
    if let Err(error) = answer(exec, command, None) {
        exec.out.bytes.extend_from_slice(error.as_wire());
    }
}

/// The binary request; `key` is what follows `stats` in text.
pub(crate) fn binary(exec: &mut Exec<'_>, header: &Header, key: &[u8]) {
    let line = [b"stats ", key, b"\r\n"].concat();
    let answered = match ascii::parse(&line) {
        Parsed::Request { request: Request::Stats(command), .. } => answer(exec, &command, Some(header)),
        _ => Err(WireError::Error),
    };
    if answered.is_err() {
        binary_reply::error(&mut exec.out.bytes, header, Status::KeyNotFound);
    }
}

fn answer(exec: &mut Exec<'_>, command: &Stats<'_>, binary: Option<&Header>) -> Result<(), WireError> {
    // Lists are made beside the output, because making them reads what the output is part of.
    let mut out = Vec::new();
    let mut sink = Sink::new(&mut out, binary);
    match command {
        Stats::General => stats_tables::general(exec, &mut sink),
        Stats::Settings => stats_tables::settings(exec, &mut sink),
        Stats::Items => stats_tables::items(exec, &mut sink),
        Stats::Slabs => stats_tables::slabs(exec, &mut sink),
        Stats::Conns => stats_tables::connections(exec, &mut sink),
        Stats::Sizes => stats_tables::sizes(exec, &mut sink),
        Stats::Reset => {
            reset(exec);
            if binary.is_none() {
                exec.out.bytes.extend_from_slice(text_reply::RESET);
                return Ok(());
            }
        }
        Stats::Detail(_) | Stats::CacheDump(_) if !exec.live.settings.dump_enabled => {
            return Err(match command {
                Stats::Detail(_) => WireError::DetailNotAllowed,
                _ => WireError::CacheDumpNotAllowed,
            });
        }
        Stats::Detail(detail) => {
            if detail_answer(exec, (*detail)?, &mut sink) {
                return Ok(());
            }
        }
        Stats::CacheDump(which) => {
            let (class, limit) = (*which)?;
            if binary.is_some() {
                return Err(WireError::Error);
            }
            dump::cachedump(exec, class, limit);
            return Ok(());
        }
        Stats::Other(b"pools") => stats_tables::pools(exec, &mut sink),
        Stats::Other(b"tables") => stats_tables::tables(exec, &mut sink),
        Stats::Other(b"fleet") => stats_tables::backends(exec, &mut sink),
        Stats::Other(b"listeners") => stats_tables::listeners(exec, &mut sink),
        Stats::Other(b"workers") => stats_tables::workers(exec, &mut sink),
        // Nothing to tell where no `ext_path` is given.
        Stats::Extstore => {}
        Stats::Other(_) => return Err(WireError::Error),
    }
    sink.end();
    exec.out.bytes.append(&mut out);
    Ok(())
}

/// Carries out `stats detail`; `true` when it is answered already.
fn detail_answer(exec: &mut Exec<'_>, detail: Detail, sink: &mut Sink<'_>) -> bool {
    let prefixes = &exec.shared.prefixes;
    match detail {
        Detail::On => prefixes.enable(true),
        Detail::Off => prefixes.enable(false),
        Detail::Dump if sink.binary.is_some() => {
            let mut dump = Vec::new();
            prefixes.dump(&mut dump);
            sink.stat("detailed", String::from_utf8_lossy(&dump));
            return false;
        }
        Detail::Dump => {
            prefixes.dump(&mut exec.out.bytes);
            return true;
        }
    }
    if sink.binary.is_none() {
        exec.out.bytes.extend_from_slice(text_reply::OK);
        return true;
    }
    false
}

fn reset(exec: &Exec<'_>) {
    exec.live.all_pools().iter().for_each(|pool| pool.reset());
    let books = &exec.shared.books;
    books.pools.reset();
    books.listeners.reset();
    books.tiers.reset();
    books.stores.lock().unwrap_or_else(PoisonError::into_inner).reset();
    exec.shared.prefixes.reset();
}
