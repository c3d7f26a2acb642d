//! Which page a request is for: the one form of a URL that is keyed and forwarded, the item keys made of it, and the
//! cookies that make a session.
//!
//! What is keyed is what is forwarded: [`PageUrl`] is made once, of a request or of a purge, and both the item key and
//! the target that the origin sees are read from it. A cache whose key folds two URLs that its origin tells apart
//! poisons itself; one whose origin folds what its key tells apart can be flooded. What never happens here: no I/O, no
//! panic whatever the bytes.

mod cookies;
mod item;
mod name;
mod url;

pub use cookies::{Cookies, Preset, Visitor};
pub(crate) use item::push_hex;
pub use item::{ITEM_PREFIX, KEY_BYTES_MAX, VARIANT_BYTES, item_key, variant_key};
pub use name::NamePattern;
pub use url::{MARKETING, PageUrl, UrlError, UrlRules};
