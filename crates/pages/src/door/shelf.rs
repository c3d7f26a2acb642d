//! The shelf: pages as items of the pool, which any memcached client can read, replace and delete.
//!
//! | item | under | holds |
//! |---|---|---|
//! | page | the page's key | a response that varies with nothing |
//! | index | the page's key | the fields its responses vary with; its flags are the index's number |
//! | variant | a key made of the page's, the index's number and the request's fields | a response |
//! | marker | the page's or a variant's key | that such answers cannot be stored |
//! | page of an application | the page's key, or one with another prefix | a page in another program's form ([`crate::format::foreign`]) |
//! | guard | a key of its own ([`super::tags`]) | eight tags of a page that has more than an item |
//!
//! So deleting the one item under the page's key forgets all its variants, whoever deletes it: another index has another
//! number. An item that is marked stale (`md KEY I`, a soft purge) is served as a stale page is; so is one that a soft purge
//! of many covers: a page's flags are the second in which it was stored. The bytes are [`crate::format`]'s. Nothing here
//! asks an origin or decides on what may be served.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use nuthatch_store::{
    DeleteOptions, DeleteOutcome, Handle, Held, Hit, Reservation, Seconds, SetOptions, SetOutcome, TAGS_MAX,
};

use super::fetched::Fetched;
use super::site::{Foreign, Site};
use super::soft::SoftPurges;
use super::tags;
use crate::format::{Parts, Value, encode_variants, head_bytes, page_head, parse_head};
use crate::house::{Count, House};
use crate::key::{Cookies, ITEM_PREFIX, KEY_BYTES_MAX, variant_key};
use crate::negotiate::Coding;
use crate::rules::{Flags, Policy, UnixSeconds, partial, vary};

/// A stored response.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) policy: Policy,
    pub(crate) coding: Coding,
    /// Bytes of the body without the coding, where it was compressed here.
    pub(crate) plain_bytes: Option<u64>,
    /// The value, of which the body is `body_at..`.
    pub(crate) value: Arc<Held>,
    pub(crate) body_at: usize,
    /// The body of a page that an application has compressed together with its head; the value is of no use then.
    pub(crate) inflated: Option<Bytes>,
    /// The head of the value.
    head: Bytes,
    /// The second of the store's clock in which it was stored.
    stored_at: Seconds,
}

impl Page {
    /// Bytes of the body as it is stored.
    pub(crate) fn body_bytes(&self) -> usize {
        self.value.value_bytes() - self.body_at
    }

    /// Bytes of the body as the origin sent it.
    pub(crate) fn origin_bytes(&self) -> u64 {
        self.plain_bytes.unwrap_or(self.body_bytes() as u64)
    }

    /// Is it all of the representation, and not a part (206)?
    pub(crate) fn is_whole(&self) -> bool {
        !self.policy.flags.has(Flags::PARTIAL)
    }

    /// Of a part, its place in the whole and the whole's length; none if it is no part that can be used.
    pub(crate) fn place(&self) -> Option<(std::ops::Range<u64>, u64)> {
        let (range, whole) = partial::part(&self.headers)?;
        (!self.is_whole() && range.end - range.start == self.body_bytes() as u64).then_some((range, whole))
    }

    /// Its tags.
    fn tags(&self) -> Vec<&[u8]> {
        match parse_head(&self.head, self.value.value_bytes() as u64) {
            Ok(Value::Page(page)) => page.tags().collect(),
            _ => Vec::new(),
        }
    }
}

/// What lies under a page's key.
pub(crate) enum Found {
    /// A response for this request.
    Page(Box<Page>),
    /// Responses for other requests, which differ in these fields.
    OtherVariants(Vec<HeaderName>),
    /// Answers cannot be stored.
    Marker,
    /// Nothing, or nothing that is understood.
    Nothing,
}

/// What leads to variants.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Index {
    number: u32,
    /// Each way in which responses have varied, the newest first.
    ways: Vec<Vec<HeaderName>>,
}

/// Ways to vary that one page may have; an origin with more of them has its oldest forgotten.
const WAYS_MAX: usize = 4;

impl Index {
    /// The item key of the variant that `variant` ([`vary::variant`]) names.
    fn key(&self, page_key: &str, variant: &[u8]) -> String {
        variant_key(page_key, &[&self.number.to_be_bytes()[..], variant].concat())
    }
}

/// Longest that a page of an application is said to be fresh.
const YEAR_SECONDS: Seconds = 365 * 86_400;

impl Site {
    /// The key under which an application keeps a page, if it is another than ours.
    fn foreign_key(&self, page_key: &str) -> Option<String> {
        let prefix = &self.settings.foreign.as_ref()?.prefix;
        let form = page_key.strip_prefix(ITEM_PREFIX).filter(|form| !form.starts_with("sha256:"))?;
        (prefix != ITEM_PREFIX).then(|| format!("{prefix}{form}")).filter(|key| key.len() <= KEY_BYTES_MAX)
    }

    /// Looks for a response to a request with these fields.
    pub(crate) fn find(&self, page_key: &str, request: &HeaderMap, now: UnixSeconds) -> Found {
        let mut found = Found::Nothing;
        self.house.with_store(&mut |handle, seconds| {
            let look = Look { seconds, now, soft: &self.soft, foreign: self.settings.foreign.as_ref() };
            found = look.find(handle, page_key, request, self.cookies());
            // Where applications have keys of their own.
            if matches!(found, Found::Nothing)
                && let Some(key) = self.foreign_key(page_key)
            {
                found = look.find(handle, &key, request, self.cookies());
            }
        });
        found
    }
}

/// When, and what by, items are judged.
struct Look<'s> {
    seconds: Seconds,
    now: UnixSeconds,
    soft: &'s SoftPurges,
    foreign: Option<&'s Foreign>,
}

impl Look<'_> {
    /// What an item holds, in our form or in the one that applications write.
    fn decode(&self, hit: &Hit<'_>) -> Option<Item> {
        decode(hit, self.now).or_else(|| Some(Item::Page(Box::new(self.decode_foreign(hit)?), 0)))
    }

    /// A page that an application has put there: good for as long as its item lasts. Its body is not copied, unless it is
    /// compressed together with its head.
    fn decode_foreign(&self, hit: &Hit<'_>) -> Option<Page> {
        let form = &self.foreign?.form;
        let copied;
        let value: &[u8] = match hit.value_whole() {
            Some(whole) => whole,
            None => {
                copied = hit.value().fold(Vec::with_capacity(hit.value_bytes()), |mut value, piece| {
                    value.extend_from_slice(piece);
                    value
                });
                &copied[..]
            }
        };
        let page = form.decode(hit.flags(), value).ok()?;
        let (body_at, inflated) = match page.body {
            Cow::Borrowed(body) => (value.len() - body.len(), None),
            Cow::Owned(body) => (value.len(), Some(Bytes::from(body))),
        };
        let mut headers = page.headers;
        if page.coding != Coding::Identity {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(page.coding.token()));
        }
        let left = hit.expiry().saturating_sub(self.seconds).min(YEAR_SECONDS);
        let until = self.now + UnixSeconds::from(left);
        let policy = Policy {
            born: self.now,
            fresh_until: until,
            while_revalidate_until: until,
            if_error_until: until,
            keep_until: until,
            flags: Flags::default(),
        };
        Some(Page {
            status: page.status,
            headers,
            policy,
            coding: page.coding,
            plain_bytes: inflated.as_ref().map(|body| body.len() as u64),
            body_at,
            inflated,
            value: Arc::new(hit.hold()),
            head: Bytes::new(),
            stored_at: self.seconds,
        })
    }

    fn find(&self, handle: &mut Handle, page_key: &str, request: &HeaderMap, cookies: &Cookies) -> Found {
        let item = handle.get(page_key.as_bytes(), self.seconds);
        let (index, is_stale) = match item.and_then(|hit| Some((self.decode(&hit)?, hit.stale()))) {
            Some((Item::Page(page, tag_count), _)) => {
                return self.guarded(handle, page_key, page, tag_count).map_or(Found::Nothing, Found::Page);
            }
            Some((Item::Index(index), is_stale)) => (index, is_stale),
            Some((Item::Marker, _)) => return Found::Marker,
            None => return Found::Nothing,
        };
        let mut marker = false;
        for way in &index.ways {
            let key = index.key(page_key, &vary::variant(way, request, cookies));
            match handle.get(key.as_bytes(), self.seconds).and_then(|hit| decode(&hit, self.now)) {
                Some(Item::Page(page, tag_count)) => {
                    if let Some(mut page) = self.guarded(handle, &key, page, tag_count) {
                        if is_stale {
                            make_stale(&mut page.policy, self.now);
                        }
                        return Found::Page(page);
                    }
                }
                Some(Item::Marker) => marker = true,
                _ => {}
            }
        }
        match index.ways.into_iter().next() {
            _ if marker => Found::Marker,
            Some(way) => Found::OtherVariants(way),
            None => Found::Nothing,
        }
    }

    /// The page if none of its tags was forgotten; stale if one was made so.
    fn guarded(&self, handle: &mut Handle, key: &str, mut page: Box<Page>, tag_count: usize) -> Option<Box<Page>> {
        if tag_count > TAGS_MAX && !tags::is_guarded(handle, key.as_bytes(), page.stored_at, &page.tags(), self.seconds)
        {
            return None;
        }
        if self.soft.may_cover(page.stored_at)
            && let Some(since) = self.soft.cover(page.stored_at, page.tags())
        {
            make_stale(&mut page.policy, self.now - UnixSeconds::from(self.seconds.saturating_sub(since)));
        }
        Some(page)
    }
}

/// What is put on the shelf.
pub(crate) struct Put<'p> {
    pub(crate) page_key: &'p str,
    pub(crate) fetched: &'p Fetched,
    pub(crate) policy: &'p Policy,
    pub(crate) coding: Coding,
    /// Bytes of the body without its coding, where it was compressed here.
    pub(crate) plain_bytes: Option<u64>,
    pub(crate) body_bytes: usize,
    /// What lay under the page's key when it began to be fetched ([`seen`]).
    pub(crate) seen: Option<u64>,
}

impl Put<'_> {
    /// The value up to its body; none if it does not fit the form.
    fn head(&self) -> Option<Vec<u8>> {
        let tags: Vec<&[u8]> = self.fetched.tags.iter().map(Vec::as_slice).collect();
        let parts = Parts {
            status: self.fetched.status,
            policy: *self.policy,
            coding: self.coding,
            plain_bytes: self.plain_bytes,
            variant: &self.fetched.variant,
            tags: &tags,
            headers: &self.fetched.headers,
        };
        page_head(&parts, self.body_bytes as u64).ok()
    }
}

/// Notes what lies under a page's key, so that a fetch that begins now overwrites nothing that an application stores
/// meanwhile.
pub(crate) fn seen(house: &dyn House, page_key: &str) -> Option<u64> {
    let mut seen = None;
    house.with_store(&mut |handle, seconds| seen = handle.peek(page_key.as_bytes(), seconds).map(|hit| hit.cas()));
    seen
}

/// What was stored, for others to keep too.
pub(crate) struct Written {
    pub(crate) key: String,
    pub(crate) value: Bytes,
    pub(crate) flags: u32,
    pub(crate) expires_at: UnixSeconds,
    pub(crate) tags: Vec<Vec<u8>>,
    /// The index that leads to it, and its number.
    pub(crate) index: Option<(Vec<u8>, u32)>,
}

/// The key of the variant that a page's index with this number leads to.
pub(crate) fn variant_item_key(page_key: &str, number: u32, variant: &[u8]) -> String {
    Index { number, ways: Vec::new() }.key(page_key, variant)
}

/// A number that nobody can foresee.
pub(crate) fn number_at_random() -> u64 {
    RandomState::new().hash_one(0)
}

/// What lies elsewhere and is to lie here too.
pub(crate) struct Brought<'b> {
    pub(crate) value: &'b [u8],
    /// The number of an index.
    pub(crate) flags: Option<u32>,
    pub(crate) tags: &'b [Vec<u8>],
    /// It is there, and was purged softly.
    pub(crate) is_stale: bool,
}

/// Puts an item here that lies elsewhere, until `until` at most: whether there was room.
pub(crate) fn put_brought(house: &dyn House, key: &str, brought: &Brought<'_>, until: UnixSeconds) -> bool {
    let Brought { value, flags, tags, is_stale } = *brought;
    let expiry = house.store_seconds(until);
    let key = key.as_bytes();
    let mut is_stored = false;
    house.with_store(&mut |handle, seconds| {
        let flags = flags.unwrap_or(seconds);
        let Some(mut room) = reserve(handle, key, tags, (flags, value.len()), (expiry, seconds)) else { return };
        room.write(value);
        is_stored = commit(handle, room, (expiry, seconds));
        if is_stale {
            handle.delete(key, &DeleteOptions { invalidate: true, ..DeleteOptions::default() }, seconds);
        }
    });
    is_stored
}

/// Room for an item and its tags, of which those that it cannot have are on guards then. Of a page its flags are `seconds`.
fn reserve(
    handle: &mut Handle,
    key: &[u8],
    tags: &[Vec<u8>],
    (flags, value_bytes): (u32, usize),
    (expiry, seconds): (Seconds, Seconds),
) -> Option<Reservation> {
    let (own, _) = tags::split(tags);
    let marks = handle.store().tags(own.iter().map(Vec::as_slice)).ok()?;
    if !tags::guard(handle, key, seconds, tags, (expiry, seconds)) {
        return None;
    }
    handle.reserve_tagged(key, value_bytes, flags, expiry, &marks, seconds).ok()
}

/// Shows what was written, if all of it was: whether it is there.
fn commit(handle: &mut Handle, room: Reservation, (expiry, seconds): (Seconds, Seconds)) -> bool {
    let options = SetOptions { expiry, ..SetOptions::default() };
    room.remaining() == 0 && matches!(handle.commit(room, &options, seconds), SetOutcome::Stored { .. })
}

impl Put<'_> {
    /// What other hosts are to store, without its value.
    fn to_be_written(&self) -> Written {
        Written {
            key: self.page_key.to_owned(),
            value: Bytes::new(),
            flags: 0,
            expires_at: self.policy.keep_until,
            tags: self.fetched.tags.clone(),
            index: None,
        }
    }
}

/// Stores a response whose body is `pieces`. None when it is too large, no room can be made, or somebody else has stored
/// a page meanwhile. Where pages are shared with other hosts, with what they are to store.
pub(crate) fn put(
    house: &dyn House,
    put: &Put<'_>,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Option<Option<Written>> {
    let Some(head) = put.head() else {
        house.count(Count::TooLarge, 1);
        return None;
    };
    let Put { page_key, fetched, policy, body_bytes, seen, .. } = *put;
    let now = house.unix_seconds();
    let beyond = house.beyond();
    let until = match &beyond {
        Some(beyond) => policy.keep_until.min(now + i64::from(beyond.seconds_here())),
        None => policy.keep_until,
    };
    let expiry = house.store_seconds(until);
    let mut written = beyond.map(|_| put.to_be_written());
    let mut is_stored = false;
    let mut is_anothers = false;
    house.with_store(&mut |handle, seconds| {
        is_anothers = has_anothers(handle, page_key, seen, (seconds, now));
        if is_anothers {
            return;
        }
        let variant = (!fetched.varies.is_empty()).then(|| {
            let index = index_for(handle, page_key, &fetched.varies, expiry, seconds, now);
            let key = index.key(page_key, &fetched.variant);
            if let (Some(written), Ok(value)) = (&mut written, encode_variants(&index.ways)) {
                written.key.clone_from(&key);
                written.index = Some((value, index.number));
            }
            key
        });
        let key = variant.as_deref().unwrap_or(page_key).as_bytes();
        let of_item = (seconds, head.len() + body_bytes);
        let Some(mut room) = reserve(handle, key, &fetched.tags, of_item, (expiry, seconds)) else {
            // What is there is out of date.
            let _ = handle.delete(key, &DeleteOptions::default(), seconds);
            return;
        };
        let mut copy = Vec::new();
        let mut write = |piece: &[u8]| {
            room.write(piece);
            if written.is_some() {
                copy.extend_from_slice(piece);
            }
        };
        write(&head);
        pieces.for_each(&mut write);
        if let Some(written) = &mut written {
            (written.value, written.flags) = (copy.into(), seconds);
        }
        is_stored = commit(handle, room, (expiry, seconds));
    });
    if !is_anothers {
        house.count(if is_stored { Count::Stored } else { Count::TooLarge }, 1);
    }
    is_stored.then_some(written)
}

/// Has somebody else stored a page under a page's key since `seen` lay there ([`seen`])? It is not to be overwritten.
fn has_anothers(
    handle: &mut Handle,
    page_key: &str,
    seen: Option<u64>,
    (seconds, now): (Seconds, UnixSeconds),
) -> bool {
    handle.peek(page_key.as_bytes(), seconds).is_some_and(|hit| {
        // Indexes are shared, and parts and markers give way.
        let is_page = match decode(&hit, now) {
            Some(Item::Page(page, _)) => page.is_whole(),
            Some(Item::Index(_) | Item::Marker) => false,
            None => true,
        };
        is_page && Some(hit.cas()) != seen
    })
}

/// The index that leads to variants by `varies`: the one that is there, or another in its place.
fn index_for(
    handle: &mut Handle,
    page_key: &str,
    varies: &[HeaderName],
    expiry: Seconds,
    seconds: Seconds,
    now: UnixSeconds,
) -> Index {
    let there = handle.get(page_key.as_bytes(), seconds).and_then(|hit| match decode(&hit, now) {
        // Of a stale one, only what is fetched from now on is to be found.
        Some(Item::Index(index)) if !hit.stale() => Some((index, hit.expiry())),
        _ => None,
    });
    let (index, expiry) = match there {
        Some((index, lives_until)) if lives_until >= expiry && index.ways.iter().any(|way| way == varies) => {
            return index;
        }
        Some((mut index, lives_until)) => {
            if !index.ways.iter().any(|way| way == varies) {
                index.ways.insert(0, varies.to_vec());
                index.ways.truncate(WAYS_MAX);
            }
            (index, expiry.max(lives_until))
        }
        None => (Index { number: RandomState::new().hash_one(seconds) as u32, ways: vec![varies.to_vec()] }, expiry),
    };
    if let Ok(value) = encode_variants(&index.ways) {
        let options = SetOptions { flags: index.number, expiry, ..SetOptions::default() };
        handle.set(page_key.as_bytes(), &value, &options, seconds);
    }
    index
}

/// Remembers for so long that this page's answers cannot be stored, or those to requests of this variant. `seen` is what
/// lay there when the page began to be fetched: an application that answers may have stored the page itself.
pub(crate) fn mark_uncacheable(
    house: &dyn House,
    page_key: &str,
    seen: Option<u64>,
    (varies, variant): (&[HeaderName], &[u8]),
    for_seconds: u32,
) {
    if for_seconds == 0 {
        return;
    }
    let now = house.unix_seconds();
    house.with_store(&mut |handle, seconds| {
        // What an application has put there is good for those who take it, also if this client did not.
        let is_applications = handle.peek(page_key.as_bytes(), seconds).is_some_and(|hit| decode(&hit, now).is_none());
        if is_applications || has_anothers(handle, page_key, seen, (seconds, now)) {
            return;
        }
        let expiry = seconds.saturating_add(for_seconds);
        let of_variant = (!varies.is_empty())
            .then(|| index_for(handle, page_key, varies, expiry, seconds, now).key(page_key, variant));
        let key = of_variant.as_deref().unwrap_or(page_key).as_bytes();
        handle.set(key, MARKER, &SetOptions { expiry, ..SetOptions::default() }, seconds);
    });
}

/// Takes back what was just stored: it turned out to be out of date.
pub(crate) fn take_back(house: &dyn House, page_key: &str) {
    purge(house, page_key, false);
}

/// Forgets a page and its variants, or makes them stale: whether it was there.
pub(crate) fn purge(house: &dyn House, page_key: &str, is_soft: bool) -> bool {
    let mut was_there = false;
    house.with_store(&mut |handle, seconds| {
        let options = DeleteOptions { invalidate: is_soft, ..DeleteOptions::default() };
        was_there = handle.delete(page_key.as_bytes(), &options, seconds) == DeleteOutcome::Deleted;
    });
    was_there
}

/// The value of a marker. It is text, for whoever looks.
const MARKER: &[u8] = b"not cacheable\n";

enum Item {
    /// With how many tags.
    Page(Box<Page>, usize),
    Index(Index),
    Marker,
}

/// A page that is stale before its time, since `at`, may be served while it is refreshed for as long as one that is stale in
/// time. Of an item that was marked stale nobody knows since when: it counts as if it were now.
pub(crate) fn make_stale(policy: &mut Policy, at: UnixSeconds) {
    let early = policy.fresh_until.saturating_sub(at).max(0);
    policy.fresh_until -= early;
    policy.while_revalidate_until -= early;
}

/// Fields that an answer has besides those that are stored: `Age`, `Via`, `X-Cache`, and what else is announced.
const ADDED_FIELDS: usize = 5;

/// A head that is longer was not written by us.
const HEAD_BYTES_MAX: usize = 1024 * 1024;

/// What an item holds. Its head alone is copied, once, and the header's values are parts of that copy; the body stays
/// where it is, in however many pieces.
fn decode(hit: &Hit<'_>, now: UnixSeconds) -> Option<Item> {
    let first = hit.value_whole().or_else(|| hit.value().next())?;
    if first == MARKER {
        return Some(Item::Marker);
    }
    let head_bytes = head_bytes(first).ok()?;
    if head_bytes > hit.value_bytes().min(HEAD_BYTES_MAX) {
        return None;
    }
    let mut head = Vec::with_capacity(head_bytes);
    if let Some(whole) = first.get(..head_bytes) {
        head.extend_from_slice(whole);
    } else {
        for piece in hit.value() {
            head.extend_from_slice(&piece[..piece.len().min(head_bytes - head.len())]);
        }
    }
    let head = Bytes::from(head);
    // What a fleet's items have no room for is stored in chunks there, and nowhere else.
    match parse_head(&head, hit.value_bytes() as u64).ok()? {
        Value::Variants(ways) => Some(Item::Index(Index { number: hit.flags(), ways })),
        Value::Page(page) => {
            let mut headers = HeaderMap::with_capacity(page.fields().count() + ADDED_FIELDS);
            for (name, value) in page.fields() {
                let value = HeaderValue::from_maybe_shared(head.slice_ref(value)).ok()?;
                headers.append(HeaderName::from_bytes(name).ok()?, value);
            }
            let mut policy = page.policy;
            if hit.stale() {
                make_stale(&mut policy, now);
            }
            let (status, coding, plain_bytes) = (page.status, page.coding, page.plain_bytes);
            let tag_count = page.tag_count();
            let (value, stored_at) = (Arc::new(hit.hold()), hit.flags());
            let page = Page {
                status,
                headers,
                policy,
                coding,
                plain_bytes,
                value,
                body_at: head_bytes,
                inflated: None,
                head,
                stored_at,
            };
            Some(Item::Page(Box::new(page), tag_count))
        }
    }
}
