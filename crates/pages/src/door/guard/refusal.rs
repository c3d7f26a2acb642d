//! Why requests are refused, each reason with its status and its sentence.

use std::fmt;

/// Why a request is refused. Each is one sentence for the log and one status for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No request line.
    RequestLine,
    /// Another version than HTTP/1.0 and 1.1.
    Version,
    /// A target that is neither a path nor a whole URL.
    TargetForm,
    /// A target with bytes that no URL has.
    TargetByte,
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
            Refusal::HeadTooSlow => 408,
            _ => 400,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::RequestLine => "expected a request line: METHOD TARGET HTTP/1.1",
            Refusal::Version => "expected HTTP/1.0 or HTTP/1.1",
            Refusal::TargetForm => "expected a request target that is a path or a whole URL",
            Refusal::TargetByte => "expected < and > as %3C and %3E in a request target, and UTF-8",
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
        })
    }
}
