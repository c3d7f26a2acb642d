//! The `Cache-Control` grammar (RFC 9111, 5.2), as lenient as a careful cache is: what cannot be understood makes a
//! response less cacheable, never more.

use super::settings::Rules;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Dictionary, ListEntry, Parser};
use std::borrow::Cow;

/// A stated freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    Seconds(u32),
    /// Stated, and no number: the response is stale (RFC 9111, 4.2.1).
    Invalid,
}

/// What a response's `Cache-Control`, or the targeted field in its place (RFC 9213), says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseDirectives {
    pub(super) no_store: bool,
    /// `private` without field names.
    pub(super) private: bool,
    /// `no-cache` without field names.
    pub(super) no_cache: bool,
    pub(super) public: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) immutable: bool,
    pub(super) max_age: Option<Lifetime>,
    pub(super) s_maxage: Option<Lifetime>,
    pub(super) stale_while_revalidate: Option<u32>,
    pub(super) stale_if_error: Option<u32>,
    /// The field names that `private="…"` and `no-cache="…"` list: not stored.
    pub(super) without: Vec<HeaderName>,
    /// They are of a targeted field: `Expires` has no say either.
    pub(super) targeted: bool,
}

impl ResponseDirectives {
    /// The freshness lifetime for a shared cache.
    pub(super) fn lifetime(&self) -> Option<Lifetime> {
        self.s_maxage.or(self.max_age)
    }

    fn add(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let lifetime = || argument.and_then(delta_seconds).map_or(Lifetime::Invalid, Lifetime::Seconds);
        if is("no-store") {
            self.no_store = true;
        } else if is("private") {
            self.private |= !self.list(argument);
        } else if is("no-cache") {
            self.no_cache |= !self.list(argument);
        } else if is("public") {
            self.public = true;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = true;
        } else if is("immutable") {
            self.immutable = true;
        } else if is("max-age") {
            self.max_age = first_valid(self.max_age, lifetime());
        } else if is("s-maxage") {
            self.s_maxage = first_valid(self.s_maxage, lifetime());
        } else if is("stale-while-revalidate") {
            self.stale_while_revalidate = self.stale_while_revalidate.or(argument.and_then(delta_seconds));
        } else if is("stale-if-error") {
            self.stale_if_error = self.stale_if_error.or(argument.and_then(delta_seconds));
        }
    }

    /// Notes the field names of an argument; `false` when it is not a list of field names, and the directive holds for
    /// the whole response.
    fn list(&mut self, argument: Option<&[u8]>) -> bool {
        let Some(argument) = argument else { return false };
        let names: Result<Vec<_>, _> = Elements::of(argument).map(HeaderName::from_bytes).collect();
        match names {
            Ok(names) if !names.is_empty() => {
                self.without.extend(names);
                true
            }
            _ => false,
        }
    }
}

/// Of several, the first counts, unless one is no number (RFC 9111, 4.2.1).
fn first_valid(before: Option<Lifetime>, next: Lifetime) -> Option<Lifetime> {
    match (before, next) {
        (None, next) => Some(next),
        (Some(Lifetime::Seconds(_)), Lifetime::Invalid) => Some(Lifetime::Invalid),
        (before, _) => before,
    }
}

/// What a response says to this cache: the first targeted field that is valid and not empty, or else `Cache-Control`.
pub(super) fn of_response(response: &HeaderMap, rules: &Rules) -> ResponseDirectives {
    if let Some(said) = rules.targeted.iter().find_map(|field| targeted(response, field)) {
        return said;
    }
    let mut said = ResponseDirectives::default();
    for directive in directives(response, &CACHE_CONTROL) {
        said.add(directive.name, directive.argument.as_deref());
    }
    said
}

/// The directives whose argument is a number of seconds.
const DELTAS: [&str; 4] = ["max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"];

/// A targeted field (RFC 9213, 2.1): a structured dictionary, ignored when it is empty or is none.
fn targeted(response: &HeaderMap, field: &HeaderName) -> Option<ResponseDirectives> {
    let mut lines = response.get_all(field).iter().map(http::HeaderValue::as_bytes);
    let mut joined = Cow::Borrowed(lines.next()?);
    for line in lines {
        joined.to_mut().extend_from_slice(b", ");
        joined.to_mut().extend_from_slice(line);
    }
    let dictionary: Dictionary = Parser::new(joined.as_ref()).parse().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut said = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
    for (name, entry) in &dictionary {
        let ListEntry::Item(item) = entry else { return None };
        let name = name.as_str();
        match &item.bare_item {
            BareItem::Integer(number) if DELTAS.contains(&name) => {
                said.add(name.as_bytes(), Some(number.to_string().as_bytes()));
            }
            // A number of another type makes it no field that this cache can read.
            _ if DELTAS.contains(&name) => return None,
            BareItem::Boolean(false) => {}
            BareItem::String(text) => said.add(name.as_bytes(), Some(text.as_str().as_bytes())),
            BareItem::Token(text) => said.add(name.as_bytes(), Some(text.as_str().as_bytes())),
            _ => said.add(name.as_bytes(), None),
        }
    }
    Some(said)
}

/// One directive: its name as sent (compare without case) and its argument, unquoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directive<'a> {
    pub(super) name: &'a [u8],
    pub(super) argument: Option<Cow<'a, [u8]>>,
}

impl Directive<'_> {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Every directive of every line of a field, in order.
pub(crate) fn directives<'a>(headers: &'a HeaderMap, field: &HeaderName) -> impl Iterator<Item = Directive<'a>> {
    headers.get_all(field).iter().flat_map(|line| Elements::of(line.as_bytes())).filter_map(directive)
}

/// A `delta-seconds` (RFC 9111, 1.2.2): digits only; more than fits is the largest there is.
pub(crate) fn delta_seconds(argument: &[u8]) -> Option<u32> {
    if argument.is_empty() || !argument.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = argument.iter().fold(0u64, |sum, digit| (sum * 10 + u64::from(digit - b'0')).min(1 << 40));
    Some(value.min(u64::from(DELTA_SECONDS_MAX)) as u32)
}

/// 2^31, which RFC 9111, 1.2.2 has an overflowing number become: 68 years.
pub(super) const DELTA_SECONDS_MAX: u32 = 1 << 31;

/// The elements of a comma-separated list, trimmed, empty ones left out; commas inside quotation marks separate nothing.
pub(crate) struct Elements<'a> {
    rest: &'a [u8],
    escapes: bool,
}

impl<'a> Elements<'a> {
    /// Of tokens and quoted strings (RFC 9110, 5.6.4), in which a backslash takes the next byte's meaning away.
    pub(crate) const fn of(rest: &'a [u8]) -> Self {
        Self { rest, escapes: true }
    }

    /// Of entity tags (RFC 9110, 8.8.3), in which a backslash is a byte as any other.
    pub(crate) const fn of_tags(rest: &'a [u8]) -> Self {
        Self { rest, escapes: false }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let (mut quoted, mut escaped) = (false, false);
            let end = self.rest.iter().position(|&byte| {
                match byte {
                    _ if escaped => escaped = false,
                    b'\\' if quoted && self.escapes => escaped = true,
                    b'"' => quoted = !quoted,
                    b',' if !quoted => return true,
                    _ => {}
                }
                false
            });
            let (element, rest) = match end {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            let element = element.trim_ascii();
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    }
}

fn directive(element: &[u8]) -> Option<Directive<'_>> {
    let Some(equals) = element.iter().position(|&byte| byte == b'=') else {
        return Some(Directive { name: element, argument: None });
    };
    let name = element[..equals].trim_ascii_end();
    // Blanks around the equals sign are not of the grammar: they stay in the argument, which makes it no number and no
    // list of names.
    let argument = if name.len() == equals { &element[equals + 1..] } else { &element[name.len()..] };
    (!name.is_empty()).then(|| Directive { name, argument: Some(unquote(argument)) })
}

/// The content of a quoted string, or the bytes as they are.
pub(super) fn unquote(argument: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', inner @ .., b'"'] = argument else { return Cow::Borrowed(argument) };
    if !inner.contains(&b'\\') {
        return Cow::Borrowed(inner);
    }
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
    }
    Cow::Owned(plain)
}
