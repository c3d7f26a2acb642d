//! The one form of a page's URL.

use super::name::NamePattern;
use std::fmt;

/// Parameters that advertisers and mailers add to links and that no origin looks at.
pub const MARKETING: &[&str] = &[
    "utm_*",
    "gclid",
    "gclsrc",
    "gbraid",
    "wbraid",
    "dclid",
    "fbclid",
    "msclkid",
    "yclid",
    "ysclid",
    "ttclid",
    "twclid",
    "li_fat_id",
    "igshid",
    "mc_cid",
    "mc_eid",
    "_ga",
    "_gl",
    "_hsenc",
    "_hsmi",
    "_openstat",
    "mkt_tok",
    "epik",
    "srsltid",
    "vero_id",
    "oly_anon_id",
    "oly_enc_id",
    "s_kwcid",
];

/// The longest path and query in bytes, before and after it is brought into form.
const TARGET_BYTES_MAX: usize = 8192;

/// What a site decides about its URLs. The default folds nothing but what RFC 3986, 6.2.2 calls the same, and drops
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct UrlRules {
    /// Query parameters that are left out of key and forwarded target alike; [`MARKETING`] is a list to begin with.
    pub dropped: Vec<NamePattern>,
    /// Whether parameters are sorted by name; those of one name keep their order.
    pub sort_query: bool,
    /// Reserved bytes that are decoded in a path, because the application takes `%3A` for `:`. Only `:;,!$&'()*+=@` have
    /// effect. MediaWiki: `:;@$!*(),`, which it leaves as they are in the URLs it purges.
    pub decoded: String,
}

/// A page's URL in its one form: `scheme://host[:port]/path[?query]`.
///
/// - scheme and host in lower case, a dot at the host's end removed, the port only where it is not the scheme's own;
/// - `%XX` of letters, digits and `-._~` decoded, other `%XX` with capital digits, so `%2F` and `/` stay two; bytes that
///   no URI has (above 127, blanks, `"<>\^{|}` and the backtick) as `%XX`;
/// - dot segments applied, `//` and `;` left as they are;
/// - an empty query is none; parameters dropped and sorted as [`UrlRules`] has it, others untouched and in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PageUrl {
    form: String,
    /// Where the host begins.
    host_at: usize,
    /// Where the path begins.
    path_at: usize,
}

/// A URL that is no page's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UrlError {
    /// Neither `http` nor `https`.
    Scheme,
    /// The host is empty or has a byte that no host has, or the port is no number.
    Authority,
    /// There are several hosts, which are not the same.
    Hosts,
    /// The target does not begin with `/`.
    NoPath,
    /// The target has a control byte, raw or as `%XX`.
    Control,
    /// The path has a `%` that two hexadecimal digits do not follow.
    Percent,
    /// The target has a `#`.
    Fragment,
    /// The target is longer than 8192 bytes.
    Long,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "the URL's scheme must be http or https",
            Self::Authority => "the URL's host must be a name or an address, with a number for a port if any",
            Self::Hosts => "the request must name one host",
            Self::NoPath => "the request target must begin with a slash",
            Self::Control => "the request target must have no control character, not even as %XX",
            Self::Percent => "each % in the path must be followed by two hexadecimal digits",
            Self::Fragment => "the request target must have no #",
            Self::Long => "the request target must have at most 8192 bytes",
        })
    }
}

impl std::error::Error for UrlError {}

impl PageUrl {
    /// The form of the URL that a request is for: `scheme` and `authority` (the `Host` field, or `:authority`) as the
    /// listener knows them, `target` in origin form, `/path?query`.
    ///
    /// # Errors
    /// It is no page's; answer 400.
    pub fn new(scheme: &str, authority: &[u8], target: &[u8], rules: &UrlRules) -> Result<Self, UrlError> {
        let scheme = if scheme.eq_ignore_ascii_case("http") {
            "http"
        } else if scheme.eq_ignore_ascii_case("https") {
            "https"
        } else {
            return Err(UrlError::Scheme);
        };
        if target.len() > TARGET_BYTES_MAX {
            return Err(UrlError::Long);
        }
        if target.contains(&b'#') {
            return Err(UrlError::Fragment);
        }
        let mut form = String::with_capacity(scheme.len() + 4 + authority.len() + target.len());
        form.push_str(scheme);
        form.push_str("://");
        let host_at = form.len();
        push_authority(&mut form, scheme, authority)?;
        let path_at = form.len();
        let (path, query) = match target.iter().position(|&byte| byte == b'?') {
            Some(at) => (&target[..at], &target[at + 1..]),
            None => (target, &[][..]),
        };
        push_path(&mut form, path, rules)?;
        push_query(&mut form, query, rules)?;
        if form.len() - path_at > TARGET_BYTES_MAX {
            return Err(UrlError::Long);
        }
        Ok(Self { form, host_at, path_at })
    }

    /// The form of an absolute URL, as a purge through a proxy names it (`PURGE http://host/path HTTP/1.1`).
    ///
    /// # Errors
    /// It is no page's.
    pub fn parse(url: &[u8], rules: &UrlRules) -> Result<Self, UrlError> {
        let colon = url.windows(3).position(|bytes| bytes == b"://").ok_or(UrlError::Scheme)?;
        let scheme = std::str::from_utf8(&url[..colon]).map_err(|_| UrlError::Scheme)?;
        let rest = &url[colon + 3..];
        let path_at = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(path_at);
        match target.first() {
            Some(b'/') => Self::new(scheme, authority, target, rules),
            // RFC 9112, 3.2.1: an empty path is sent as `/`.
            _ => Self::new(scheme, authority, &[b"/", target].concat(), rules),
        }
    }

    /// The form of what a URI reference in a response to this URL names (RFC 3986, 5.2), if it is of the same origin:
    /// scheme, host and port.
    #[must_use]
    pub fn same_origin(&self, reference: &[u8], rules: &UrlRules) -> Option<Self> {
        let reference = reference.trim_ascii();
        let reference = &reference[..reference.iter().position(|&byte| byte == b'#').unwrap_or(reference.len())];
        let scheme_end = reference.iter().position(|byte| b":/?".contains(byte));
        let url = if scheme_end.is_some_and(|at| reference[at] == b':') {
            Self::parse(reference, rules)
        } else if reference.starts_with(b"//") {
            Self::parse(&[self.scheme().as_bytes(), b":", reference].concat(), rules)
        } else {
            let path = self.target().split('?').next().unwrap_or("/");
            let base = match reference.first() {
                None => self.target(),
                Some(b'/') => "",
                Some(b'?') => path,
                Some(_) => &path[..=path.rfind('/').unwrap_or(0)],
            };
            Self::new(self.scheme(), self.authority().as_bytes(), &[base.as_bytes(), reference].concat(), rules)
        };
        url.ok().filter(|url| url.form[..url.path_at] == self.form[..self.path_at])
    }

    /// The whole form.
    #[must_use]
    pub fn form(&self) -> &str {
        &self.form
    }

    /// `http` or `https`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.form[..self.host_at - 3]
    }

    /// Host, and port where it is not the scheme's own: the `Host` field to forward.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.form[self.host_at..self.path_at]
    }

    /// Path and query: the target to forward.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.form[self.path_at..]
    }
}

fn push_authority(form: &mut String, scheme: &str, authority: &[u8]) -> Result<(), UrlError> {
    let bracket = authority.first() == Some(&b'[');
    let host_end = if bracket {
        authority.iter().position(|&byte| byte == b']').ok_or(UrlError::Authority)? + 1
    } else {
        authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(host_end);
    let name = if bracket { &host[1..host.len() - 1] } else { host.strip_suffix(b".").unwrap_or(host) };
    let fits = |byte: &u8| match bracket {
        true => byte.is_ascii_hexdigit() || b":.".contains(byte),
        false => byte.is_ascii_alphanumeric() || b"-._".contains(byte),
    };
    let empty_label = !bracket && name.split(|&byte| byte == b'.').any(<[u8]>::is_empty);
    if name.is_empty() || name.len() > 255 || empty_label || !name.iter().all(fits) {
        return Err(UrlError::Authority);
    }
    form.extend(bracket.then_some('['));
    form.extend(name.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
    form.extend(bracket.then_some(']'));
    let number = match port {
        [] | [b':'] => return Ok(()),
        [b':', digits @ ..] if digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
            digits.iter().fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0'))
        }
        _ => return Err(UrlError::Authority),
    };
    if !(1..=65535).contains(&number) {
        return Err(UrlError::Authority);
    }
    if number != if scheme == "http" { 80 } else { 443 } {
        form.push_str(&format!(":{number}"));
    }
    Ok(())
}

/// RFC 3986, 5.2.4, on segments that are in form already.
fn push_path(form: &mut String, path: &[u8], rules: &UrlRules) -> Result<(), UrlError> {
    let segments = path.strip_prefix(b"/").ok_or(UrlError::NoPath)?;
    let path_at = form.len();
    let mut segments = segments.split(|&byte| byte == b'/').peekable();
    while let Some(raw) = segments.next() {
        let slash = form.len();
        form.push('/');
        push_encoded(form, raw, Part::Path, rules)?;
        match &form[slash + 1..] {
            "." => form.truncate(slash),
            ".." => {
                form.truncate(slash);
                form.truncate(form[path_at..].rfind('/').map_or(path_at, |before| path_at + before));
            }
            _ => continue,
        }
        if segments.peek().is_none() {
            form.push('/');
        }
    }
    Ok(())
}

fn push_query(form: &mut String, query: &[u8], rules: &UrlRules) -> Result<(), UrlError> {
    let query_at = form.len();
    let mut is_empty = true;
    for parameter in query.split(|&byte| byte == b'&') {
        let separator = form.len();
        form.push(if separator == query_at { '?' } else { '&' });
        push_encoded(form, parameter, Part::Query, rules)?;
        let parameter = &form[separator + 1..];
        if rules.dropped.iter().any(|pattern| pattern.matches(parameter_name(parameter).as_bytes())) {
            form.truncate(separator);
        } else {
            is_empty &= parameter.is_empty();
        }
    }
    if is_empty {
        form.truncate(query_at);
    } else if rules.sort_query {
        let unsorted = form.split_off(query_at);
        let mut parameters: Vec<&str> = unsorted[1..].split('&').filter(|text| !text.is_empty()).collect();
        parameters.sort_by(|one, other| parameter_name(one).cmp(parameter_name(other)));
        for (at, parameter) in parameters.into_iter().enumerate() {
            form.push(if at == 0 { '?' } else { '&' });
            form.push_str(parameter);
        }
    }
    Ok(())
}

fn parameter_name(parameter: &str) -> &str {
    parameter.split('=').next().unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Query,
}

fn push_encoded(form: &mut String, raw: &[u8], part: Part, rules: &UrlRules) -> Result<(), UrlError> {
    let mut rest = raw;
    loop {
        let run = rest.iter().position(|&byte| !AS_IT_IS[usize::from(byte)]).unwrap_or(rest.len());
        // It is ASCII.
        form.push_str(std::str::from_utf8(&rest[..run]).unwrap_or_default());
        let [byte, after @ ..] = &rest[run..] else { return Ok(()) };
        rest = after;
        let (byte, was_encoded) = match (byte, after) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = after;
                (hex_value(*high) << 4 | hex_value(*low), true)
            }
            // Applications are sent a bare percent sign in queries; it can only mean itself.
            (b'%', _) if part == Part::Query => (b'%', true),
            (b'%', _) => return Err(UrlError::Percent),
            (&byte, _) => (byte, false),
        };
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let kept = !was_encoded && RESERVED.contains(&byte);
        let decoded =
            was_encoded && part == Part::Path && DECODABLE.contains(&byte) && rules.decoded.as_bytes().contains(&byte);
        if byte.is_ascii_control() && (part == Part::Path || !was_encoded) {
            return Err(UrlError::Control);
        }
        if plain || kept || decoded {
            form.push(char::from(byte));
        } else {
            form.push('%');
            form.push(char::from(b"0123456789ABCDEF"[usize::from(byte >> 4)]));
            form.push(char::from(b"0123456789ABCDEF"[usize::from(byte & 15)]));
        }
    }
}

/// What is in form wherever it stands.
const AS_IT_IS: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let c = byte as u8;
        table[byte] = c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

/// Bytes that are sent as they are and stay so: RFC 3986's reserved ones that a path or a query may have, and the
/// brackets that queries have.
const RESERVED: &[u8] = b":/?@!$&'()*+,;=[]";

/// What [`UrlRules::decoded`] may name: nothing that ends a segment, a path or a query.
const DECODABLE: &[u8] = b":;,!$&'()*+=@";

const fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::{MARKETING, NamePattern, PageUrl, UrlError, UrlRules};

    fn form(url: &str, rules: &UrlRules) -> Result<String, UrlError> {
        PageUrl::parse(url.as_bytes(), rules).map(|url| url.form().to_owned())
    }

    #[test]
    fn urls_that_are_the_same_have_one_form() {
        for (url, expected) in [
            ("HTTP://WWW.Example.ORG:80/", "http://www.example.org/"),
            ("https://example.org.:443/", "https://example.org/"),
            ("https://example.org:80/", "https://example.org:80/"),
            ("http://example.org:/", "http://example.org/"),
            ("http://example.org:0080/", "http://example.org/"),
            ("http://[2001:DB8::1]:8080/", "http://[2001:db8::1]:8080/"),
            ("http://example.org", "http://example.org/"),
            ("http://example.org?x", "http://example.org/?x"),
            ("http://a/b/../c/./d", "http://a/c/d"),
            ("http://a/../../b", "http://a/b"),
            ("http://a/b/..", "http://a/"),
            ("http://a/b/.", "http://a/b/"),
            ("http://a/%2e%2E/b/%2e", "http://a/b/"),
            ("http://a/b/../..//c", "http://a//c"),
            ("http://a//b//", "http://a//b//"),
            ("http://a/b//../c", "http://a/b/c"),
            ("http://a/...", "http://a/..."),
            ("http://a/%7euser/%41%2d%5F", "http://a/~user/A-_"),
            ("http://a/b%2fc/%3f%23", "http://a/b%2Fc/%3F%23"),
            ("http://a/b;c=1;d", "http://a/b;c=1;d"),
            ("http://a/%3A:%2C,", "http://a/%3A:%2C,"),
            ("http://a/\u{e9} |\"", "http://a/%C3%A9%20%7C%22"),
            ("http://a/\\..\\b", "http://a/%5C..%5Cb"),
            ("http://a/b?", "http://a/b"),
            ("http://a/b?&&", "http://a/b"),
            ("http://a/b?a=1&&b=%7E%2f&c", "http://a/b?a=1&&b=~%2F&c"),
            ("http://a/b?x=/../?y", "http://a/b?x=/../?y"),
            ("http://a/b?x=100%&y=%zz", "http://a/b?x=100%25&y=%25zz"),
            ("http://a/b?x=%0a%00", "http://a/b?x=%0A%00"),
            ("http://a/b?x[]=1&x[]=2", "http://a/b?x[]=1&x[]=2"),
        ] {
            assert_eq!(form(url, &UrlRules::default()).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn what_is_no_pages_url_is_refused() {
        for (url, error) in [
            ("ftp://a/", UrlError::Scheme),
            ("/path", UrlError::Scheme),
            ("http:///", UrlError::Authority),
            ("http://a b/", UrlError::Authority),
            ("http://user@a/", UrlError::Authority),
            ("http://a:x/", UrlError::Authority),
            ("http://a:0/", UrlError::Authority),
            ("http://a:65536/", UrlError::Authority),
            ("http://a:80:80/", UrlError::Authority),
            ("http://[::1/", UrlError::Authority),
            ("http://[]/", UrlError::Authority),
            ("http://[::1]x/", UrlError::Authority),
            ("http://./", UrlError::Authority),
            ("http://a../", UrlError::Authority),
            ("http://.a/", UrlError::Authority),
            ("http://\u{e9}/", UrlError::Authority),
            ("http://a/%", UrlError::Percent),
            ("http://a/%4", UrlError::Percent),
            ("http://a/%zz", UrlError::Percent),
            ("http://a/%00", UrlError::Control),
            ("http://a/b\tc", UrlError::Control),
            ("http://a/b?c\u{7f}", UrlError::Control),
            ("http://a/b#c", UrlError::Fragment),
        ] {
            assert_eq!(form(url, &UrlRules::default()), Err(error), "{url}");
        }
        let long = format!("http://a/{}", "b".repeat(8192));
        assert_eq!(form(&long, &UrlRules::default()), Err(UrlError::Long));
        let growing = format!("http://a/{}", " ".repeat(3000));
        assert_eq!(form(&growing, &UrlRules::default()), Err(UrlError::Long));
        assert_eq!(PageUrl::new("http", b"a", b"*", &UrlRules::default()), Err(UrlError::NoPath));
        assert_eq!(PageUrl::new("http", b"a", b"", &UrlRules::default()), Err(UrlError::NoPath));
    }

    #[test]
    fn the_parameters_of_advertisers_are_documented() {
        crate::testing::assert_documented(MARKETING);
    }

    #[test]
    fn parameters_of_advertisers_are_dropped_and_others_sorted_if_told() {
        let dropped: Vec<NamePattern> = MARKETING.iter().map(|&name| NamePattern::new(name)).collect();
        let dropping = UrlRules { dropped, ..UrlRules::default() };
        let sorting = UrlRules { sort_query: true, ..dropping.clone() };
        for (query, dropped, sorted) in [
            ("?utm_source=x&b=2&fbclid=y&a=1", "?b=2&a=1", "?a=1&b=2"),
            ("?utm_source=x", "", ""),
            ("?UTM_source=x", "?UTM_source=x", "?UTM_source=x"),
            ("?%75tm_source=x&b", "?b", "?b"),
            ("?b=utm_source&&a=1", "?b=utm_source&&a=1", "?a=1&b=utm_source"),
            ("?x[]=2&a&x[]=1", "?x[]=2&a&x[]=1", "?a&x[]=2&x[]=1"),
        ] {
            let url = format!("http://a/p{query}");
            assert_eq!(form(&url, &dropping), Ok(format!("http://a/p{dropped}")), "{query}");
            assert_eq!(form(&url, &sorting), Ok(format!("http://a/p{sorted}")), "{query}");
        }
    }

    #[test]
    fn a_site_may_take_encoded_punctuation_for_plain() {
        let rules = UrlRules { decoded: ":;@$!*(),/?%#".to_owned(), ..UrlRules::default() };
        let url = form("http://a/Talk%3AA%2C_B%28c%29%2f%3F%25?x=%3A", &rules);
        assert_eq!(url.as_deref(), Ok("http://a/Talk:A,_B(c)%2F%3F%25?x=%3A"));
    }

    #[test]
    fn the_parts_of_a_form_are_what_is_forwarded() {
        let url = PageUrl::new("https", b"A:8443", b"/b/../c?d", &UrlRules::default()).expect("a URL");
        assert_eq!((url.scheme(), url.authority(), url.target()), ("https", "a:8443", "/c?d"));
        assert_eq!(url.form(), "https://a:8443/c?d");
    }
}
