//! Cookies: which of them make a session, which mean nothing to the origin.
//!
//! Applications for anonymous readers answer `Vary: Cookie`, and every reader has a cookie of her own for statistics.
//! Taken literally no page would be served twice; so `Cookie` is reduced to what the origin looks at.

use super::name::NamePattern;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use std::borrow::Cow;

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visitor {
    /// None of her cookies makes a session: she gets the page that all get.
    Anonymous,
    /// One does.
    Session,
}

/// The applications whose cookies are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// MediaWiki, with CentralAuth.
    MediaWiki,
    /// Drupal.
    Drupal,
    /// WordPress, with WooCommerce.
    WordPress,
}

impl Preset {
    /// The preset of this name, as in the configuration.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "mediawiki" => Some(Self::MediaWiki),
            "drupal" => Some(Self::Drupal),
            "wordpress" => Some(Self::WordPress),
            _ => None,
        }
    }

    const fn sessions(self) -> &'static [&'static str] {
        match self {
            // What MediaWiki names in its own Vary options: the session, the token that starts one, the mark of a user who
            // has just logged out, and the wish for HTTPS; CentralAuth has its own token and session.
            Self::MediaWiki => {
                &["*_session", "*Session", "*Token", "*LoggedOut", "*UserID", "forceHTTPS", "centralauth_*"]
            }
            Self::Drupal => &["SESS*", "SSESS*", "NO_CACHE"],
            Self::WordPress => &[
                "wordpress_*",
                "wp-postpass_*",
                "comment_author_*",
                "wp_woocommerce_session_*",
                "woocommerce_items_in_cart",
                "woocommerce_cart_hash",
            ],
        }
    }

    const fn ignored(self) -> &'static [&'static str] {
        match self {
            Self::MediaWiki => &["*wmE-sessionTickLastTickTime", "*wmE-sessionTickTickCount", "WMF-*", "GeoIP"],
            Self::Drupal => &["has_js"],
            Self::WordPress => &["wordpress_test_cookie", "wp-settings-*"],
        }
    }
}

/// Cookies that scripts set for statistics and advertising, which the origin does not look at.
const ANALYTICS: &[&str] = &[
    "_ga",
    "_ga_*",
    "_gid",
    "_gat",
    "_gat_*",
    "_gcl_*",
    "_gac_*",
    "__utm*",
    "_fbp",
    "_fbc",
    "_hj*",
    "_pk_*",
    "_clck",
    "_clsk",
    "_uet*",
    "_ttp",
    "_scid",
    "_pin_unauth",
    "hubspotutk",
    "__hs*",
    "ajs_*",
    "__gads",
    "__gpi",
    "__qca",
];

/// What a site's cookies mean.
#[derive(Clone, Debug, Default)]
pub struct Cookies {
    sessions: Vec<NamePattern>,
    ignored: Vec<NamePattern>,
}

impl Cookies {
    /// The cookies of these applications, and further ones; the analytics that are known are ignored.
    #[must_use]
    pub fn new(presets: &[Preset], sessions: &[&str], ignored: &[&str]) -> Self {
        let all = |of: fn(Preset) -> &'static [&'static str], more: &[&str]| {
            let known = presets.iter().flat_map(|&preset| of(preset).iter().copied());
            known.chain(more.iter().copied()).map(NamePattern::new).collect::<Vec<_>>()
        };
        let mut ignored = all(Preset::ignored, ignored);
        ignored.extend(ANALYTICS.iter().copied().map(NamePattern::new));
        Self { sessions: all(Preset::sessions, sessions), ignored }
    }

    /// Whose request it is. Without any pattern for sessions, any cookie that is not ignored makes one.
    #[must_use]
    pub fn visitor(&self, request: &HeaderMap) -> Visitor {
        self.visitor_of(request.get_all(COOKIE).iter().map(HeaderValue::as_bytes))
    }

    /// The same of the lines of `Cookie`.
    pub fn visitor_of<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> Visitor {
        let session = pairs_of(lines).any(|pair| {
            let name = name(pair);
            !is(&self.ignored, name) && (self.sessions.is_empty() || is(&self.sessions, name))
        });
        if session { Visitor::Session } else { Visitor::Anonymous }
    }

    /// What a variant by `Cookie` is chosen by: nothing for an anonymous visitor; for one with a session, all her cookies
    /// that are not ignored, in order, for any of them may show in the page.
    #[must_use]
    pub fn reduced<'a>(&self, request: &'a HeaderMap) -> Option<Cow<'a, [u8]>> {
        if self.visitor(request) == Visitor::Anonymous {
            return None;
        }
        let mut kept = pairs(request).filter(|pair| !is(&self.ignored, name(pair)));
        let mut reduced = Cow::Borrowed(kept.next()?);
        for pair in kept {
            reduced.to_mut().extend_from_slice(b"; ");
            reduced.to_mut().extend_from_slice(pair);
        }
        Some(reduced)
    }
}

/// The cookies of all lines (HTTP/2 may send one each; RFC 9113, 8.2.3), as `name=value`.
fn pairs(request: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    pairs_of(request.get_all(COOKIE).iter().map(HeaderValue::as_bytes))
}

fn pairs_of<'a>(lines: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    lines.flat_map(|line| line.split(|&byte| byte == b';')).map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty())
}

fn name(pair: &[u8]) -> &[u8] {
    pair.split(|&byte| byte == b'=').next().unwrap_or(pair).trim_ascii_end()
}

fn is(patterns: &[NamePattern], name: &[u8]) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

#[cfg(test)]
mod tests {
    use super::{Cookies, Preset, Visitor};
    use crate::testing::headers;
    use http::HeaderMap;

    fn request(lines: &[&str]) -> HeaderMap {
        headers(&lines.iter().map(|&line| ("cookie", line)).collect::<Vec<_>>())
    }

    #[test]
    fn presets_are_documented() {
        for (name, preset) in
            [("mediawiki", Preset::MediaWiki), ("drupal", Preset::Drupal), ("wordpress", Preset::WordPress)]
        {
            assert_eq!(Preset::named(name), Some(preset));
            crate::testing::assert_documented([&name]);
            crate::testing::assert_documented(preset.sessions().iter().chain(preset.ignored()));
        }
        crate::testing::assert_documented(super::ANALYTICS);
        assert_eq!(Preset::named("joomla"), None);
    }

    #[test]
    fn presets_tell_a_session_from_a_visit() {
        for (preset, line, visitor) in [
            (Preset::MediaWiki, "enwiki_session=abc", Visitor::Session),
            (Preset::MediaWiki, "enwikiToken=abc", Visitor::Session),
            (Preset::MediaWiki, "centralauth_Session=abc", Visitor::Session),
            (Preset::MediaWiki, "enwikiUserName=Ann; GeoIP=DE; WMF-Last-Access=1", Visitor::Anonymous),
            (Preset::Drupal, "SSESSabcdef=x", Visitor::Session),
            (Preset::Drupal, "has_js=1; _ga=GA1.2.3", Visitor::Anonymous),
            (Preset::WordPress, "wordpress_logged_in_abc=x", Visitor::Session),
            (Preset::WordPress, "wordpress_test_cookie=WP+Cookie+check", Visitor::Anonymous),
            (Preset::WordPress, "woocommerce_items_in_cart=1", Visitor::Session),
            (Preset::WordPress, "_fbp=fb.1.2; cookie_notice_accepted=true", Visitor::Anonymous),
            (Preset::WordPress, "", Visitor::Anonymous),
        ] {
            assert_eq!(Cookies::new(&[preset], &[], &[]).visitor(&request(&[line])), visitor, "{preset:?} {line}");
        }
    }

    #[test]
    fn without_patterns_any_cookie_but_statistics_makes_a_session() {
        let cookies = Cookies::new(&[], &[], &["theme"]);
        assert_eq!(cookies.visitor(&request(&["_ga=1; theme=dark"])), Visitor::Anonymous);
        assert_eq!(cookies.visitor(&request(&["_ga=1", "id=7"])), Visitor::Session);
    }

    #[test]
    fn the_reduced_cookie_leaves_statistics_out() {
        let cookies = Cookies::new(&[], &["sid"], &[]);
        assert_eq!(cookies.reduced(&request(&["_ga=1; sid=7", "lang=de;;"])).as_deref(), Some(&b"sid=7; lang=de"[..]));
        assert_eq!(cookies.reduced(&request(&["lang=de"])), None);
        assert_eq!(cookies.reduced(&request(&[])), None);
    }
}
