//! `stats` and its sub-commands. Memcached compares most of their names only as far as the client wrote them.

use super::admin::SLAB_CLASSES;
use super::{Args, abbreviates};
use crate::WireError;
use crate::num::strict_u32;

/// A `stats` command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stats<'a> {
    /// The general counters.
    General,
    /// Counters back to zero; answered with `RESET`.
    Reset,
    /// `stats detail on|off|dump`; check that dumps are allowed before looking at the word.
    Detail(Result<Detail, WireError>),
    /// The settings in force.
    Settings,
    /// `stats cachedump <class> <limit>`; check that dumps are allowed before looking at the numbers.
    CacheDump(Result<(u32, u32), WireError>),
    /// Open connections.
    Conns,
    /// Flash storage.
    Extstore,
    /// Items by class.
    Items,
    /// Memory by class.
    Slabs,
    /// Histogram of sizes.
    Sizes,
    /// None that memcached knows: [`WireError::Error`], unless the server has more.
    Other(&'a [u8]),
}

/// What `stats detail` is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Start counting by prefix.
    On,
    /// Stop counting.
    Off,
    /// Show the counts.
    Dump,
}

pub(super) fn parse<'a>(args: &Args<'a>) -> Stats<'a> {
    let Some(word) = args.get(1) else { return Stats::General };
    // The order decides what an abbreviation means.
    for (name, stats) in [
        (&b"reset"[..], Stats::Reset),
        (b"detail", Stats::Detail(detail(args))),
        (b"settings", Stats::Settings),
        (b"cachedump", Stats::CacheDump(cachedump(args))),
        (b"conns", Stats::Conns),
        (b"extstore", Stats::Extstore),
    ] {
        if abbreviates(word, name) {
            return stats;
        }
    }
    match word {
        b"items" => Stats::Items,
        b"slabs" => Stats::Slabs,
        b"sizes" => Stats::Sizes,
        _ => Stats::Other(word),
    }
}

fn detail(args: &Args<'_>) -> Result<Detail, WireError> {
    let word = args.get(2).ok_or(WireError::DetailUsage)?;
    [(&b"on"[..], Detail::On), (b"off", Detail::Off), (b"dump", Detail::Dump)]
        .into_iter()
        .find(|(name, _)| abbreviates(word, name))
        .map(|(_, detail)| detail)
        .ok_or(WireError::DetailUsage)
}

fn cachedump(args: &Args<'_>) -> Result<(u32, u32), WireError> {
    let (Some(class), Some(limit)) = (args.get(2), args.get(3)) else { return Err(WireError::BadCommandLine) };
    match (strict_u32(class), strict_u32(limit)) {
        (Some(class), Some(_)) if class >= SLAB_CLASSES => Err(WireError::IllegalSlabId),
        (Some(class), Some(limit)) => Ok((class, limit)),
        _ => Err(WireError::BadCommandLineFormat),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::super::tests::request;
    use super::*;

    fn stats(line: &[u8]) -> Stats<'_> {
        let Request::Stats(stats) = request(line) else { panic!() };
        stats
    }

    #[test]
    fn sub_commands_and_their_abbreviations() {
        for (line, expected) in [
            (&b"stats\r\n"[..], Stats::General),
            (b"stats reset\r\n", Stats::Reset),
            (b"stats settings\r\n", Stats::Settings),
            (b"stats s\r\n", Stats::Settings),
            (b"stats slabs\r\n", Stats::Slabs),
            (b"stats items\r\n", Stats::Items),
            (b"stats sizes\r\n", Stats::Sizes),
            (b"stats sizes_enable\r\n", Stats::Other(b"sizes_enable")),
            (b"stats conns\r\n", Stats::Conns),
            (b"stats co\r\n", Stats::Conns),
            (b"stats extstore\r\n", Stats::Extstore),
            (b"stats item\r\n", Stats::Other(b"item")),
            (b"stats noreply\r\n", Stats::Other(b"noreply")),
            (b"stats settingsx\r\n", Stats::Other(b"settingsx")),
            (b"stats detail on\r\n", Stats::Detail(Ok(Detail::On))),
            (b"stats detail of\r\n", Stats::Detail(Ok(Detail::Off))),
            (b"stats detail dump\r\n", Stats::Detail(Ok(Detail::Dump))),
            (b"stats detail\r\n", Stats::Detail(Err(WireError::DetailUsage))),
            (b"stats detail bogus\r\n", Stats::Detail(Err(WireError::DetailUsage))),
            (b"stats cachedump 1 0\r\n", Stats::CacheDump(Ok((1, 0)))),
            (b"stats c 63 100\r\n", Stats::CacheDump(Ok((63, 100)))),
            (b"stats cachedump\r\n", Stats::CacheDump(Err(WireError::BadCommandLine))),
            (b"stats cachedump 1\r\n", Stats::CacheDump(Err(WireError::BadCommandLine))),
            (b"stats cachedump a 0\r\n", Stats::CacheDump(Err(WireError::BadCommandLineFormat))),
            (b"stats cachedump 1 -1\r\n", Stats::CacheDump(Err(WireError::BadCommandLineFormat))),
            (b"stats cachedump 64 0\r\n", Stats::CacheDump(Err(WireError::IllegalSlabId))),
        ] {
            assert_eq!(stats(line), expected, "{}", line.escape_ascii());
        }
    }
}
