//! What the unit tests share.

use http::{HeaderMap, HeaderName, HeaderValue};

/// A header section of these lines.
pub(crate) fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&str, &str)| {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a field name");
        (name, HeaderValue::from_bytes(value.as_bytes()).expect("a field value"))
    };
    fields.iter().map(field).collect()
}
