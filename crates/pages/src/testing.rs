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

/// Asserts that `docs/pages-keys.md` names each of these, as code and in any case.
pub(crate) fn assert_documented<'a>(names: impl IntoIterator<Item = &'a &'a str>) {
    let document = include_str!("../../../docs/pages-keys.md").to_ascii_lowercase();
    for name in names {
        assert!(document.contains(&format!("`{}`", name.to_ascii_lowercase())), "docs/pages-keys.md lacks {name}");
    }
}
