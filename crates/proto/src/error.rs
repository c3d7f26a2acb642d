//! Every line memcached answers when it will not do what was asked, exactly as it is sent.
//!
//! One table, so that a client that matches on the text (many do) sees the same text.

macro_rules! wire_errors {
    ($($name:ident = $text:literal,)*) => {
        /// An answer that says no. The text is the wire's, byte for byte that of memcached 1.6.45 (which has nothing like
        /// `forget` and tags).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum WireError {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        impl WireError {
            /// Every error there is, for tests and documentation.
            pub const ALL: &'static [WireError] = &[$(WireError::$name,)*];

            /// The answer with its closing `\r\n`, ready to be sent.
            #[must_use]
            pub const fn as_wire(self) -> &'static [u8] {
                match self { $(WireError::$name => concat!($text, "\r\n").as_bytes(),)* }
            }

            /// The answer without `\r\n`.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(WireError::$name => $text,)* }
            }
        }
    };
}

wire_errors! {
    Error = "ERROR",
    BadCommandLineFormat = "CLIENT_ERROR bad command line format",
    BadCommandLine = "CLIENT_ERROR bad command line",
    BadDataChunk = "CLIENT_ERROR bad data chunk",
    BadToken = "CLIENT_ERROR bad token in command line format",
    InvalidExptime = "CLIENT_ERROR invalid exptime argument",
    InvalidDelta = "CLIENT_ERROR invalid numeric delta argument",
    NonNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric value",
    InvalidFlag = "CLIENT_ERROR invalid flag",
    DuplicateFlag = "CLIENT_ERROR duplicate flag",
    InvalidOrDuplicateFlag = "CLIENT_ERROR invalid or duplicate flag",
    TooManyFlags = "CLIENT_ERROR options flags are too long",
    OpaqueTooLong = "CLIENT_ERROR opaque token too long",
    KeyDecoding = "CLIENT_ERROR error decoding key",
    InvalidMetaSetMode = "CLIENT_ERROR invalid mode for ms M token",
    InvalidMetaArithMode = "CLIENT_ERROR invalid mode for ma M token",
    InvalidMetaInitial = "CLIENT_ERROR invalid numeric initial value",
    InvalidMetaDelta = "CLIENT_ERROR invalid numeric delta value",
    ForgetUsage = "CLIENT_ERROR usage: forget prefix|tag <name> [noreply]",
    NotAPrefix = "CLIENT_ERROR a prefix ends with the delimiter, the fourth one at the latest",
    BadTags = "CLIENT_ERROR an item has at most 8 tags of at most 250 bytes",
    FlushAllNotAllowed = "CLIENT_ERROR flush_all not allowed",
    WatchNotAllowed = "CLIENT_ERROR watch commands not allowed",
    CacheDumpNotAllowed = "CLIENT_ERROR stats cachedump not allowed",
    DetailNotAllowed = "CLIENT_ERROR stats detail not allowed",
    DetailUsage = "CLIENT_ERROR usage: stats detail on|off|dump",
    IllegalSlabId = "CLIENT_ERROR Illegal slab id",
    CrawlerDisabled = "CLIENT_ERROR lru crawler disabled",
    CrawlerSleepTooLong = "CLIENT_ERROR sleep must be one second or less",
    ReassignDisabled = "CLIENT_ERROR slab reassignment disabled",
    AutomoveWindow = "CLIENT_ERROR automove window too low or too high",
    InvalidShutdownMode = "CLIENT_ERROR invalid shutdown mode",
    Unauthenticated = "CLIENT_ERROR unauthenticated",
    AuthenticationFailure = "CLIENT_ERROR authentication failure",
    AuthTokenTooLong = "CLIENT_ERROR auth token too long",
    BadAuthToken = "CLIENT_ERROR bad authentication token format",
    BadAuthTermination = "CLIENT_ERROR bad command line termination",
    TooLarge = "SERVER_ERROR object too large for cache",
    OutOfMemoryStoring = "SERVER_ERROR out of memory storing object",
    OutOfMemoryGet = "SERVER_ERROR out of memory writing get response",
    OutOfMemoryStats = "SERVER_ERROR out of memory writing stats",
    OutOfMemoryRequest = "SERVER_ERROR out of memory reading request",
    OutOfMemoryRead = "SERVER_ERROR Out of memory during read",
    OutOfMemory = "SERVER_ERROR out of memory",
    OutOfMemoryNewItem = "SERVER_ERROR Out of memory allocating new item",
    OutputLineTooLong = "SERVER_ERROR output line too long",
    RefcountOverflow = "SERVER_ERROR refcount overflow during fetch",
    UnhandledStorage = "SERVER_ERROR Unhandled storage type.",
    ShutdownNotEnabled = "SERVER_ERROR: shutdown not enabled",
    PipelinedWatch = "ERROR cannot pipeline other commands before watch",
    PipelinedMetadump = "ERROR cannot pipeline other commands before metadump",
    PipelinedMgdump = "ERROR cannot pipeline other commands before mgdump",
    MetadumpNotAllowed = "ERROR metadump not allowed",
    KeyDumpNotAllowed = "ERROR key dump not allowed",
    HotWarmPercent = "ERROR hot and warm pcts must not exceed 80",
    HotWarmFactor = "ERROR hot/warm age factors must be greater than 0",
    CrawlerStart = "ERROR failed to start lru crawler thread",
    CrawlerStop = "ERROR failed to stop lru crawler thread",
    CrawlerUnknown = "ERROR an unknown error happened",
    TooManyConnections = "ERROR Too many open connections",
    CrawlerBusy = "BUSY currently processing crawler request",
    ReassignBusy = "BUSY currently processing reassign request",
    BadClass = "BADCLASS invalid class id",
    BadClassPair = "BADCLASS invalid src or dst class id",
    NothingToCrawl = "NOTSTARTED no items to crawl",
    NoSparePage = "NOSPARE source class has no spare pages",
    SameClass = "SAME src and dst class are identical",
    TooManyWatchers = "WATCHER_TOO_MANY log watcher limit reached",
    WatcherFailed = "WATCHER_FAILED failed to add log watcher",
    MemlimitTooSmall = "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
    MemlimitNotMegabytes = "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes",
    MemlimitOutOfBounds = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for WireError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_is_one_distinct_line() {
        let mut seen = std::collections::HashSet::new();
        for error in WireError::ALL {
            let wire = error.as_wire();
            assert_eq!(&wire[..wire.len() - 2], error.text().as_bytes());
            assert!(wire.ends_with(b"\r\n"));
            assert!(!error.text().contains(['\r', '\n']));
            assert!(seen.insert(error.text()), "{error} twice");
        }
    }

    #[test]
    fn display_is_the_text() {
        assert_eq!(WireError::TooLarge.to_string(), "SERVER_ERROR object too large for cache");
    }
}
