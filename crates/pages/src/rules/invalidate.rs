//! What an unsafe request makes invalid (RFC 9111, 4.4).

use crate::key::{PageUrl, UrlRules};
use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, StatusCode};

/// The pages that the answer to an unsafe request makes invalid, with all their variants: after a 2xx or 3xx the request's
/// own, and those that `Location` and `Content-Location` name, if they are of the same origin (scheme, host and port), so
/// that nobody empties another's cache. After anything else none.
#[must_use]
pub fn targets(url: &PageUrl, status: StatusCode, response: &HeaderMap, rules: &UrlRules) -> Vec<PageUrl> {
    if !(status.is_success() || status.is_redirection()) {
        return Vec::new();
    }
    let mut targets = vec![url.clone()];
    for name in [LOCATION, CONTENT_LOCATION] {
        let named = response.get(name).and_then(|value| url.same_origin(value.as_bytes(), rules));
        if let Some(named) = named
            && !targets.contains(&named)
        {
            targets.push(named);
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::targets;
    use crate::key::{PageUrl, UrlRules};
    use crate::testing::headers;
    use http::StatusCode;

    fn forms(status: u16, fields: &[(&str, &str)]) -> Vec<String> {
        let rules = UrlRules::default();
        let url = PageUrl::parse(b"http://a.test/dir/page?x=1", &rules).expect("a URL");
        let status = StatusCode::from_u16(status).expect("a status");
        targets(&url, status, &headers(fields), &rules).iter().map(|url| url.form().to_owned()).collect()
    }

    #[test]
    fn only_answers_without_error_make_anything_invalid() {
        for status in [200, 201, 204, 302, 304] {
            assert_eq!(forms(status, &[]), ["http://a.test/dir/page?x=1"], "{status}");
        }
        for status in [400, 403, 404, 412, 500, 503] {
            assert_eq!(forms(status, &[("location", "/other")]), [""; 0], "{status}");
        }
    }

    #[test]
    fn locations_of_the_same_origin_are_invalid_too() {
        for (reference, form) in [
            ("/other", "http://a.test/other"),
            ("other", "http://a.test/dir/other"),
            ("../other?y", "http://a.test/other?y"),
            ("?x=2", "http://a.test/dir/page?x=2"),
            ("http://A.test:80/other#top", "http://a.test/other"),
            ("//a.test/other", "http://a.test/other"),
        ] {
            for name in ["location", "content-location"] {
                assert_eq!(
                    forms(201, &[(name, reference)]),
                    ["http://a.test/dir/page?x=1", form],
                    "{name} {reference}"
                );
            }
        }
        for reference in ["http://b.test/", "https://a.test/", "//b.test/x", "http://a.test:81/", "mailto:a@b.test", ""]
        {
            assert_eq!(forms(201, &[("location", reference)]), ["http://a.test/dir/page?x=1"], "{reference}");
        }
    }
}
