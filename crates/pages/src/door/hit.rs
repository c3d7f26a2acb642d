//! A hit: the answer to a plain request for a page that is there and fresh, rendered from the request's bytes and the
//! store's, without a header map on either side.
//!
//! It decides nothing of its own. The guard has read the head; URL, cookies, codings, policy and what is announced are
//! judged by the same functions as every other request's ([`super::visit`]), and whatever is not the plain case (another
//! method, preconditions, ranges, directives, sessions, variants, stale pages, stored forms of others) is declined here
//! and answered there. Which of both answered cannot be told from an answer (`tests/pages/hits.rs`). Nothing here waits.

use std::io::{IoSlice, Write as _};

use http::{HeaderName, HeaderValue, StatusCode};
use nuthatch_store::{Held, Hit, TAGS_MAX};

use super::answer::{Adding, How, announced};
use super::body::PagePiece;
use super::client::Client;
use super::log::{Asking, Entry, ResultCode, shown};
use super::site::Site;
use crate::format::{Page, Value, head_bytes, parse_head};
use crate::house::Count;
use crate::key::{PageUrl, Visitor, item_key};
use crate::negotiate::{Accepted, Coding};
use crate::rules::{Asked, Decision, UnixSeconds, format_date};

/// A rendered hit: its head is in the caller's buffer, its body in the store's memory.
pub struct RenderedHit {
    body: PagePiece<Held>,
    /// Is written when all is sent, or given up.
    _entry: Option<Box<Entry>>,
}

impl RenderedHit {
    /// Bytes of the body that are not sent yet.
    pub fn remaining(&self) -> usize {
        self.body.remaining()
    }

    /// The next pieces of it: how many of `slices` were filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.body.slices(slices)
    }

    /// So many bytes are sent.
    pub fn advance(&mut self, bytes: usize) {
        self.body.advance(bytes);
    }
}

/// What a plain request says: a `GET` of HTTP/1.1 whose answer, if it is there and fresh, is the whole page.
struct Plain<'a> {
    target: &'a [u8],
    host: &'a [u8],
    cookies: Option<&'a [u8]>,
    accepted: Option<&'a [u8]>,
    referer: &'a [u8],
    user_agent: &'a [u8],
}

impl<'a> Plain<'a> {
    /// Reads a head that has passed the guard; `None` if it may be more than plain.
    fn read(head: &'a [u8]) -> Option<Plain<'a>> {
        let rest = head.strip_prefix(b"GET ")?;
        let line = memchr::memchr(b'\r', rest)?;
        let target = rest[..line].strip_suffix(b" HTTP/1.1").filter(|target| target.first() == Some(&b'/'))?;
        let mut plain = Plain { target, host: &[], cookies: None, accepted: None, referer: &[], user_agent: &[] };
        let mut rest = rest.get(line + 2..)?;
        loop {
            let end = memchr::memchr(b'\r', rest)?;
            if end == 0 {
                return (!plain.host.is_empty()).then_some(plain);
            }
            let line = &rest[..end];
            let colon = memchr::memchr(b':', line)?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            match name.len() {
                4 if name.eq_ignore_ascii_case(b"host") => plain.host = value,
                6 if name.eq_ignore_ascii_case(b"cookie") && plain.cookies.replace(value).is_some() => return None,
                7 if name.eq_ignore_ascii_case(b"referer") && plain.referer.is_empty() => plain.referer = value,
                10 if name.eq_ignore_ascii_case(b"user-agent") && plain.user_agent.is_empty() => {
                    plain.user_agent = value;
                }
                10 if name.eq_ignore_ascii_case(b"connection") && !value.eq_ignore_ascii_case(b"keep-alive") => {
                    return None;
                }
                15 if name.eq_ignore_ascii_case(b"accept-encoding") && plain.accepted.replace(value).is_some() => {
                    return None;
                }
                _ if asks_for_more(name) => return None,
                _ => {}
            }
            rest = rest.get(end + 2..)?;
        }
    }
}

/// Fields by which a request is more than plain: what [`crate::rules::classify`], ranges and preconditions look at.
const MORE: [&[u8]; 10] = [
    b"te",
    b"range",
    b"pragma",
    b"expect",
    b"upgrade",
    b"if-match",
    b"authorization",
    b"cache-control",
    b"content-length",
    b"transfer-encoding",
];

fn asks_for_more(name: &[u8]) -> bool {
    let is_conditional = name.get(..3).is_some_and(|begin| begin.eq_ignore_ascii_case(b"if-"));
    is_conditional || MORE.iter().any(|more| more.len() == name.len() && more.eq_ignore_ascii_case(name))
}

impl Site {
    /// Answers the request whose head, which has passed the guard, is `request`, if it is a plain one for a page that is
    /// there and fresh: `head` then has the head of the answer. Otherwise nothing has happened.
    pub fn hit(&self, client: &Client, request: &[u8], head: &mut Vec<u8>) -> Option<RenderedHit> {
        let plain = Plain::read(request)?;
        if let Some(cookies) = &self.settings.cookies
            && cookies.visitor_of(plain.cookies.into_iter()) == Visitor::Session
        {
            return None;
        }
        let scheme = if client.is_tls { "https" } else { "http" };
        let url = PageUrl::new(scheme, plain.host, plain.target, &self.settings.urls).ok()?;
        let key = item_key(&url);
        let now = self.house.unix_seconds();
        let mut rendered = None;
        self.house.with_store(&mut |handle, seconds| {
            let Some(hit) = handle.get(key.as_bytes(), seconds) else { return };
            head.clear();
            rendered = self.render(client, &plain, &hit, now, head);
        });
        let (body, status, content_type) = rendered?;
        client.count_request();
        self.house.count(Count::Lookup, 1);
        self.house.count(Count::Hit, 1);
        self.house.count(Count::Answered(ResultCode::MemHit), 1);
        let entry = self.log.as_ref().map(|log| {
            let url = format!("{scheme}://{}{}", shown(plain.host), shown(plain.target));
            let asking = Asking { method: "GET", url, referer: plain.referer, user_agent: plain.user_agent };
            let mut entry = Entry::begin(log, client.address, http::Version::HTTP_11, asking);
            entry.answered(status.as_u16(), ResultCode::MemHit, head.get(content_type));
            entry.add_bytes(body.remaining() as u64);
            entry
        });
        Some(RenderedHit { body, _entry: entry })
    }

    /// The page of an item, and where its body begins, if it may be served to such a request.
    fn servable<'h>(&self, plain: &Plain<'_>, hit: &'h Hit<'_>, now: UnixSeconds) -> Option<(Page<'h>, usize)> {
        if hit.stale() {
            return None;
        }
        let first = hit.value_whole().or_else(|| hit.value().next())?;
        let body_at = head_bytes(first).ok()?;
        let Value::Page(page) = parse_head(first.get(..body_at)?, hit.value_bytes() as u64).ok()? else { return None };
        // What else its tags or a soft purge have to say is looked up there.
        if page.tag_count() > TAGS_MAX || self.soft.may_cover(hit.flags()) {
            return None;
        }
        // The others have no body, or are for who asked for a part.
        if matches!(page.status.as_u16(), 100..=199 | 204..=206 | 304)
            || page.policy.decide(&Asked::default(), now) != Decision::Hit
            || page.coding != Coding::Identity && !Accepted::of_lines(plain.accepted.into_iter()).takes(page.coding)
        {
            return None;
        }
        Some((page, body_at))
    }

    /// Renders the head of an item's page, if it may be served to such a request. Besides the body, its status and where
    /// in the head its Content-Type is.
    fn render(
        &self,
        client: &Client,
        plain: &Plain<'_>,
        hit: &Hit<'_>,
        now: UnixSeconds,
        head: &mut Vec<u8>,
    ) -> Option<(PagePiece<Held>, StatusCode, std::ops::Range<usize>)> {
        let (page, body_at) = self.servable(plain, hit, now)?;
        let mut announcements = Announcements::default();
        let how = How::hit(ResultCode::MemHit, page.policy.fresh_until - now);
        announced(self.settings.announce, how, client.port, page.status, &mut |adding, name, value| {
            announcements.add(adding, name, value);
        });

        head.extend_from_slice(b"HTTP/1.1 ");
        head.extend_from_slice(page.status.as_str().as_bytes());
        head.push(b' ');
        head.extend_from_slice(page.status.canonical_reason()?.as_bytes());
        head.extend_from_slice(b"\r\n");
        let Written { has_date, content_type } = push_fields(head, &page, &announcements)?;
        let body_bytes = hit.value_bytes() - body_at;
        // A vector takes every write.
        let _ = write!(head, "age: {}\r\n", page.policy.age_seconds(now));
        head.extend_from_slice(&announcements.lines);
        if !has_date {
            let _ = write!(head, "date: {}\r\n", format_date(now));
        }
        let _ = write!(head, "content-length: {body_bytes}\r\n\r\n");
        Some((PagePiece::new(hit.hold(), body_at, body_at + body_bytes), page.status, content_type))
    }
}

/// What of a page's fields is of use once they are written.
struct Written {
    has_date: bool,
    /// Where in the head the value of its Content-Type is.
    content_type: std::ops::Range<usize>,
}

/// Writes a page's fields, but those that are written for each answer; `None` if one of them cannot stand in a head.
fn push_fields(head: &mut Vec<u8>, page: &Page<'_>, announcements: &Announcements) -> Option<Written> {
    let mut written = Written { has_date: false, content_type: 0..0 };
    for (name, value) in page.fields() {
        // Whoever may write items may have written this one.
        if name.is_empty() || !name.iter().all(|byte| is_name(*byte)) || !value.iter().all(|byte| is_value(*byte)) {
            return None;
        }
        match name {
            b"age" | b"content-length" => continue,
            b"connection" | b"transfer-encoding" | b"upgrade" | b"trailer" => return None,
            b"date" => written.has_date = true,
            name if announcements.replaces(name) => continue,
            _ => {}
        }
        head.extend_from_slice(name);
        head.extend_from_slice(b": ");
        if name == b"content-type" && written.content_type.is_empty() {
            written.content_type = head.len()..head.len() + value.len();
        }
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    }
    Some(written)
}

/// What an answer says of itself, as lines.
#[derive(Default)]
struct Announcements {
    lines: Vec<u8>,
    /// Fields that take the place of stored ones.
    replacing: [Option<HeaderName>; 4],
}

impl Announcements {
    fn add(&mut self, adding: Adding, name: HeaderName, value: HeaderValue) {
        if self.lines.capacity() == 0 {
            self.lines.reserve(128);
        }
        self.lines.extend_from_slice(name.as_str().as_bytes());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value.as_bytes());
        self.lines.extend_from_slice(b"\r\n");
        if adding == Adding::InPlace
            && let Some(free) = self.replacing.iter_mut().find(|name| name.is_none())
        {
            *free = Some(name);
        }
    }

    fn replaces(&self, name: &[u8]) -> bool {
        self.replacing.iter().flatten().any(|other| other.as_str().as_bytes() == name)
    }
}

/// Bytes of a field's name as they are stored.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_!#$%&'*+.^`|~".contains(&byte)
}

fn is_value(byte: u8) -> bool {
    byte == b'\t' || byte >= b' ' && byte != 0x7f
}
