//! What a page can be forgotten by besides its URL: the tags that its origin gives it (`Surrogate-Key`, `Cache-Tag`,
//! `xkey`), and its directories, by which a prefix of URLs is forgotten.
//!
//! They are tags of the store's items, so a memcached client's `forget tag` means the same. An item has room for
//! [`TAGS_MAX`] of them; what a page has beyond that is on *guards*, small items of eight tags each, without which the
//! page is not found. Forgetting any of its tags is thus the same one entry in the store's table.

use std::borrow::Cow;
use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use nuthatch_store::{FORGET_BYTES_MAX, Handle, Seconds, SetOptions, TAGS_MAX};
use sha2::{Digest, Sha256};

use crate::key::push_hex;

/// Tags of one page; a response with more is not stored.
pub(crate) const PAGE_TAGS_MAX: usize = 512;

/// Directories of one page that count, from the top.
const DIRECTORIES_MAX: usize = 8;

/// Fields of responses that name tags.
const TAG_FIELDS: [HeaderName; 3] =
    [HeaderName::from_static("surrogate-key"), HeaderName::from_static("cache-tag"), HeaderName::from_static("xkey")];

/// Fields of a `PURGE` that name tags. The last two are Varnish's.
const PURGE_FIELDS: [HeaderName; 6] = [
    HeaderName::from_static("surrogate-key"),
    HeaderName::from_static("cache-tag"),
    HeaderName::from_static("cache-tags"),
    HeaderName::from_static("xkey"),
    HeaderName::from_static("xkey-purge"),
    HeaderName::from_static("xkey-softpurge"),
];

/// The tags of a response to a request for the URL of this form: those of its fields, then its directories. None when
/// there are too many.
pub(crate) fn of_response(headers: &HeaderMap, form: &str) -> Option<Vec<Vec<u8>>> {
    let mut tags = named(headers, &TAG_FIELDS);
    tags.extend(of_url(form));
    (tags.len() <= PAGE_TAGS_MAX).then_some(tags)
}

/// The tags of every response to a request for the URL of this form: its directories.
pub(crate) fn of_url(form: &str) -> Vec<Vec<u8>> {
    directories(form).map(|directory| tag_of(directory.as_bytes()).into_owned()).collect()
}

/// The tags that a `PURGE` names.
pub(crate) fn of_purge(headers: &HeaderMap) -> Vec<Vec<u8>> {
    named(headers, &PURGE_FIELDS)
}

/// The tag of all URLs that begin with `form`, which ends with `/` or `?`; none if it does not, or lies too deep.
pub(crate) fn of_prefix(form: &str) -> Option<Vec<u8>> {
    directories(form).find(|directory| directory.len() == form.len()).map(|tag| tag_of(tag.as_bytes()).into_owned())
}

/// Tags are separated by blanks (`Surrogate-Key`, `xkey`) or commas (`Cache-Tag`), and have neither.
fn named(headers: &HeaderMap, fields: &[HeaderName]) -> Vec<Vec<u8>> {
    let lines = fields.iter().flat_map(|field| headers.get_all(field)).map(HeaderValue::as_bytes);
    let names = lines.flat_map(|line| line.split(|byte| b" \t,".contains(byte))).filter(|name| !name.is_empty());
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).map(|name| tag_of(name).into_owned()).collect()
}

/// A name as a tag: itself, or its hash where it is longer than a tag may be.
fn tag_of(name: &[u8]) -> Cow<'_, [u8]> {
    if name.len() <= FORGET_BYTES_MAX {
        return Cow::Borrowed(name);
    }
    let mut hashed = "sha256:".to_owned();
    push_hex(&mut hashed, &Sha256::digest(name));
    Cow::Owned(hashed.into_bytes())
}

/// What a URL's form begins with, up to each slash of its path and to its question mark.
fn directories(form: &str) -> impl Iterator<Item = &str> {
    let path_at = form.find("://").map_or(0, |at| at + 3);
    let path_at = form[path_at..].find('/').map_or(form.len(), |at| path_at + at);
    let query_at = form[path_at..].find('?').map(|at| path_at + at);
    let path_end = query_at.unwrap_or(form.len());
    let slashes = form[path_at..path_end].bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    let slashes = slashes.map(move |(at, _)| path_at + at).take(DIRECTORIES_MAX);
    slashes.chain(query_at).map(|at| &form[..=at])
}

/// The tags of an item of a page, and those for which there is no room in it, guard by guard.
pub(crate) fn split(tags: &[Vec<u8>]) -> (&[Vec<u8>], std::slice::Chunks<'_, Vec<u8>>) {
    let (own, others) = tags.split_at(tags.len().min(TAGS_MAX));
    (own, others.chunks(TAGS_MAX))
}

/// The key of the guard of these tags of the item under `key` that was stored with this number.
fn guard_key(key: &[u8], number: u32, tags: &[impl AsRef<[u8]>]) -> String {
    let mut hash = Sha256::new();
    hash.update(key);
    hash.update(number.to_be_bytes());
    for tag in tags {
        hash.update((tag.as_ref().len() as u64).to_be_bytes());
        hash.update(tag);
    }
    let mut guard = "page:tags:".to_owned();
    push_hex(&mut guard, &hash.finalize()[..16]);
    guard
}

/// Puts up the guards of an item that is about to be stored: whether there was room for them.
pub(crate) fn guard(handle: &mut Handle, key: &[u8], number: u32, tags: &[Vec<u8>], at: (Seconds, Seconds)) -> bool {
    let (expiry, now) = at;
    split(tags).1.all(|tags| {
        let Ok(marks) = handle.store().tags(tags.iter().map(Vec::as_slice)) else { return false };
        let options = SetOptions { expiry, ..SetOptions::default() };
        let outcome = handle.set_tagged(guard_key(key, number, tags).as_bytes(), GUARD, &options, &marks, now);
        matches!(outcome, nuthatch_store::SetOutcome::Stored { .. })
    })
}

/// Whether all guards of an item are there.
pub(crate) fn is_guarded(handle: &mut Handle, key: &[u8], number: u32, tags: &[&[u8]], now: Seconds) -> bool {
    let others = &tags[tags.len().min(TAGS_MAX)..];
    others.chunks(TAGS_MAX).all(|tags| handle.get(guard_key(key, number, tags).as_bytes(), now).is_some())
}

/// The value of a guard, for whoever looks.
const GUARD: &[u8] = b"tags of a page\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn text(tags: &[Vec<u8>]) -> Vec<String> {
        tags.iter().map(|tag| String::from_utf8_lossy(tag).into_owned()).collect()
    }

    #[test]
    fn a_page_has_the_tags_that_its_origin_names_and_its_directories() {
        let fields = headers(&[
            ("surrogate-key", "node-1  node-2"),
            ("cache-tag", "node-2,menu, list "),
            ("xkey", "user:3"),
            ("xkey", "user:4"),
        ]);
        let tags = of_response(&fields, "http://a.test:81/wiki/A/b?x=/y/?").expect("few");
        let expected = [
            "node-1",
            "node-2",
            "menu",
            "list",
            "user:3",
            "user:4",
            "http://a.test:81/",
            "http://a.test:81/wiki/",
            "http://a.test:81/wiki/A/",
            "http://a.test:81/wiki/A/b?",
        ];
        assert_eq!(text(&tags), expected);
    }

    #[test]
    fn a_prefix_ends_with_a_slash_or_a_question_mark_and_is_not_too_deep() {
        for prefix in ["http://a.test/", "http://a.test/wiki/", "http://a.test/search?"] {
            assert_eq!(of_prefix(prefix).expect(prefix), prefix.as_bytes());
        }
        for none in ["http://a.test/wiki", "http://a.test/search?q", "http://a.test/1/2/3/4/5/6/7/8/"] {
            assert_eq!(of_prefix(none), None, "{none}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_for_a_tag_is_hashed_alike_where_it_is_given_and_where_it_is_purged() {
        let long = "t".repeat(300);
        let stored = of_response(&headers(&[("surrogate-key", &long)]), "http://a.test/").expect("few");
        let purged = of_purge(&headers(&[("xkey-purge", &long)]));
        assert_eq!((stored[0].len(), &stored[0]), (71, &purged[0]));
    }

    #[test]
    fn more_tags_than_a_page_may_have_are_none() {
        let names = |count: usize| (0..count).map(|number| format!("t{number}")).collect::<Vec<_>>().join(" ");
        let count = |count: usize| of_response(&headers(&[("xkey", &names(count))]), "http://a.test/").map(|t| t.len());
        assert_eq!((count(511), count(512)), (Some(512), None));
    }
}
