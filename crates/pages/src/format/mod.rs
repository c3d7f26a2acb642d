//! How a page is stored: in Nuthatch's own form, or in one that other programs write and read.
//!
//! [`parse`] and [`encode_page`] are for the own form: versioned, self-describing, documented in `docs/pages-formats.md` down to the byte, so that any
//! memcached client can read, write and delete pages. [`foreign`] has the forms of nginx and Drupal, srcache and
//! mod_mcpage. What never happens here: no panic and no growth past the value's own length (or a stated limit, where a
//! value is compressed) whatever the bytes.

mod chunks;
pub mod foreign;
mod mcpage;
mod numbered;
mod page;
mod read;
mod srcache;

pub use chunks::{CHUNK_HEAD_BYTES, CHUNKS_MAX, Chunks};
pub use numbered::{NUMBERED_HEAD_BYTES, encode_numbered, parse_numbered};
pub use page::parse_head;
pub use page::{MAGIC, Page, Parts, VERSION, Value, encode_page, encode_variants, head_bytes, page_head, parse};

use std::fmt;

/// A value is no stored page, or a page does not fit a form.
#[derive(Debug)]
#[non_exhaustive]
pub enum FormatError {
    /// The value does not begin as the form does.
    NotThis(&'static str),
    /// The value is of a version that this program does not know.
    Version(u8),
    /// A number or a text of the value has no meaning.
    Meaningless(&'static str),
    /// The value ends within this.
    Short(&'static str),
    /// The value goes on behind its end.
    Long,
    /// The page's status, coding or size is none that the form can hold.
    DoesNotFit(&'static str),
    /// The value is compressed and cannot be undone.
    Coding(crate::negotiate::DecodeError),
    /// The page cannot be compressed.
    Compression(crate::negotiate::EncodeError),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotThis(form) => write!(f, "the value is no {form}"),
            Self::Version(version) => {
                write!(f, "the stored page is of version {version}, this program knows {VERSION}")
            }
            Self::Meaningless(what) => write!(f, "the stored page's {what} has no meaning"),
            Self::Short(what) => write!(f, "the stored page ends within its {what}"),
            Self::Long => f.write_str("the stored page goes on behind its end"),
            Self::DoesNotFit(why) => write!(f, "the page cannot be stored in this form: {why}"),
            Self::Coding(error) => write!(f, "the stored page cannot be read: {error}"),
            Self::Compression(error) => write!(f, "the page cannot be stored: {error}"),
        }
    }
}

impl std::error::Error for FormatError {}
