//! The shelf: pages as items of the pool, which any memcached client can read, replace and delete.
//!
//! | item | under | holds |
//! |---|---|---|
//! | page | the page's key | a response that varies with nothing |
//! | index | the page's key | the fields its responses vary with; its flags are the index's number |
//! | variant | a key made of the page's, the index's number and the request's fields | a response |
//! | marker | the page's or a variant's key | that such answers cannot be stored |
//!
//! So deleting the one item under the page's key forgets all its variants, whoever deletes it: another index has another
//! number. An item that is marked stale (`md KEY I`, a soft purge) is served as a stale page is. The bytes are
//! [`crate::format`]'s. Nothing here asks an origin or decides on what may be served.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use nuthatch_store::{DeleteOptions, DeleteOutcome, Handle, Held, Hit, Seconds, SetOptions, SetOutcome};

use super::fetched::Fetched;
use crate::format::{Parts, Value, encode_variants, head_bytes, page_head, parse_head};
use crate::house::{Count, House};
use crate::key::{Cookies, variant_key};
use crate::negotiate::Coding;
use crate::rules::{Policy, UnixSeconds, vary};

/// A stored response.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) policy: Policy,
    pub(crate) coding: Coding,
    /// The value, of which the body is `body_at..`.
    pub(crate) value: Arc<Held>,
    pub(crate) body_at: usize,
}

impl Page {
    /// Bytes of the body as it is stored.
    pub(crate) fn body_bytes(&self) -> usize {
        self.value.value_bytes() - self.body_at
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

/// Looks for a response to a request with these fields.
pub(crate) fn find(
    house: &dyn House,
    page_key: &str,
    request: &HeaderMap,
    cookies: &Cookies,
    now: UnixSeconds,
) -> Found {
    let mut found = Found::Nothing;
    house.with_store(&mut |handle, seconds| found = find_with(handle, seconds, now, page_key, request, cookies));
    found
}

fn find_with(
    handle: &mut Handle,
    seconds: Seconds,
    now: UnixSeconds,
    page_key: &str,
    request: &HeaderMap,
    cookies: &Cookies,
) -> Found {
    let (index, is_stale) = match handle.get(page_key.as_bytes(), seconds) {
        None => return Found::Nothing,
        Some(hit) => match decode(&hit, now) {
            Some(Item::Page(page)) => return Found::Page(page),
            Some(Item::Index(index)) => (index, hit.stale()),
            Some(Item::Marker) => return Found::Marker,
            None => return Found::Nothing,
        },
    };
    let mut marker = false;
    for way in &index.ways {
        let key = index.key(page_key, &vary::variant(way, request, cookies));
        match handle.get(key.as_bytes(), seconds).and_then(|hit| decode(&hit, now)) {
            Some(Item::Page(mut page)) => {
                if is_stale {
                    make_stale(&mut page.policy, now);
                }
                return Found::Page(page);
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

/// Stores a response whose body is `pieces`. False when it is too large or no room can be made.
pub(crate) fn put(
    house: &dyn House,
    page_key: &str,
    fetched: &Fetched,
    policy: &Policy,
    (coding, plain_bytes): (Coding, Option<u64>),
    pieces: &mut dyn Iterator<Item = &[u8]>,
    body_bytes: usize,
) -> bool {
    let parts = Parts {
        status: fetched.status,
        policy: *policy,
        coding,
        plain_bytes,
        variant: &fetched.variant,
        tags: &[],
        headers: &fetched.headers,
    };
    let Ok(head) = page_head(&parts, body_bytes as u64) else {
        house.count(Count::TooLarge, 1);
        return false;
    };
    let now = house.unix_seconds();
    let expiry = house.store_seconds(policy.keep_until);
    let mut is_stored = false;
    house.with_store(&mut |handle, seconds| {
        let variant = (!fetched.varies.is_empty()).then(|| {
            index_for(handle, page_key, &fetched.varies, expiry, seconds, now).key(page_key, &fetched.variant)
        });
        let key = variant.as_deref().unwrap_or(page_key).as_bytes();
        let Ok(mut room) = handle.reserve(key, head.len() + body_bytes, 0, expiry, seconds) else {
            // What is there is out of date.
            let _ = handle.delete(key, &DeleteOptions::default(), seconds);
            return;
        };
        room.write(&head);
        for piece in &mut *pieces {
            room.write(piece);
        }
        if room.remaining() == 0 {
            let outcome = handle.commit(room, &SetOptions { expiry, ..SetOptions::default() }, seconds);
            is_stored = matches!(outcome, SetOutcome::Stored { .. });
        }
    });
    house.count(if is_stored { Count::Stored } else { Count::TooLarge }, 1);
    is_stored
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

/// Remembers for so long that this page's answers cannot be stored, or those to requests of this variant.
pub(crate) fn mark_uncacheable(
    house: &dyn House,
    page_key: &str,
    varies: &[HeaderName],
    variant: &[u8],
    for_seconds: u32,
) {
    if for_seconds == 0 {
        return;
    }
    let now = house.unix_seconds();
    house.with_store(&mut |handle, seconds| {
        let expiry = seconds.saturating_add(for_seconds);
        let of_variant = (!varies.is_empty())
            .then(|| index_for(handle, page_key, varies, expiry, seconds, now).key(page_key, variant));
        let key = of_variant.as_deref().unwrap_or(page_key).as_bytes();
        handle.set(key, MARKER, &SetOptions { expiry, ..SetOptions::default() }, seconds);
    });
}

/// Forgets a page and its variants, or makes them stale: whether it was there.
pub(crate) fn purge(house: &dyn House, page_key: &str, is_soft: bool) -> bool {
    let mut was_there = false;
    house.with_store(&mut |handle, seconds| {
        let options = DeleteOptions { invalidate: is_soft, ..DeleteOptions::default() };
        was_there = handle.delete(page_key.as_bytes(), &options, seconds) == DeleteOutcome::Deleted;
    });
    house.count(if was_there { Count::Purged } else { Count::PurgedNothing }, 1);
    was_there
}

/// The value of a marker. It is text, for whoever looks.
const MARKER: &[u8] = b"not cacheable\n";

enum Item {
    Page(Box<Page>),
    Index(Index),
    Marker,
}

/// A page that is stale before its time may be served while it is refreshed for as long as one that is stale in time.
fn make_stale(policy: &mut Policy, now: UnixSeconds) {
    let early = policy.fresh_until.saturating_sub(now).max(0);
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
            let (status, coding) = (page.status, page.coding);
            let value = Arc::new(hit.hold());
            Some(Item::Page(Box::new(Page { status, headers, policy, coding, value, body_at: head_bytes })))
        }
    }
}
