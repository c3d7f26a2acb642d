//! Marks: how purges reach the other hosts before a fleet. A purge is constant work and touches no page but the one it
//! names; whoever takes a page from the fleet looks at its marks.
//!
//! | item of the fleet | under | holds |
//! |---|---|---|
//! | the count | `page:purges` | how many purges there were, in its lower half; the upper is another after each loss |
//! | a mark | `page:mark:` and a hash: of a tag, of a URL, of what all pages have | the count when it was made, and that of the last soft purge |
//!
//! A page in the fleet carries the count of the moment before its origin was asked. It is good while each of its marks is
//! there and none is younger than the page; one that was purged softly since makes it stale. A purge counts first and
//! takes the marks away then. So a page that was being fetched meanwhile, by whichever host, finds a mark missing or too young.
//!
//! Who makes a mark that is missing makes it of the present count, and takes it away again if the count has changed by
//! then: a purge of that moment may have looked for it in vain. The origin is asked meanwhile, and the page is written when
//! that is over and its marks still hold. What is lost (evicted, or with its server) is a mark that is
//! missing: more is forgotten than was asked for.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use super::tags;
use crate::house::{Beyond, BeyondItem, Change, Silent};
use crate::key::{PageUrl, item_key, push_hex};

/// The key of the count.
const COUNT: &str = "page:purges";

/// A soft purge that is disturbed by others as often as this becomes a hard one.
const TRIES_MAX: usize = 3;

/// What a mark is of.
#[derive(Clone, Copy)]
enum Of<'a> {
    Everything,
    Url(&'a str),
    Tag(&'a [u8]),
}

impl Of<'_> {
    fn key(self) -> String {
        let (kind, name) = match self {
            Of::Everything => (b'*', &b""[..]),
            Of::Url(form) => (b'u', form.as_bytes()),
            Of::Tag(tag) => (b't', tag),
        };
        let mut hash = Sha256::new();
        hash.update([kind]);
        hash.update(name);
        let mut key = "page:mark:".to_owned();
        push_hex(&mut key, &hash.finalize()[..16]);
        key
    }
}

/// The marks that a page has by its URL of this form: those that are known before it is there.
pub(super) fn of_url(form: &str) -> Vec<String> {
    let directories = tags::of_url(form);
    let directories = directories.iter().map(|tag| Of::Tag(tag));
    [Of::Everything, Of::Url(form)].into_iter().chain(directories).map(Of::key).collect()
}

/// The marks of these tags that are not among `known`.
pub(super) fn of_tags<'t>(tags: impl Iterator<Item = &'t [u8]>, known: &[String]) -> Vec<String> {
    tags.map(|tag| Of::Tag(tag).key()).filter(|key| !known.contains(key)).collect()
}

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    since: u64,
    softly: u64,
}

/// What its marks make of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Good,
    /// Purged softly.
    Stale,
    /// Purged, or nobody knows.
    Gone,
}

/// Whether two counts can be compared.
fn is_of_life(one: u64, other: u64) -> bool {
    one >> 32 == other >> 32
}

/// Whether a purge with the count `purge` came before a page with the count `page` was asked for. Of another life of the
/// count nothing is known.
fn was_before(purge: u64, page: u64) -> bool {
    is_of_life(purge, page) && purge <= page
}

impl Mark {
    fn new(count: u64) -> Mark {
        Mark { since: count, softly: count }
    }

    fn parse(value: &[u8]) -> Option<Mark> {
        let (since, softly) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        Some(Mark { since: since.parse().ok()?, softly: softly.parse().ok()? })
    }

    fn value(self) -> Bytes {
        format!("{} {}", self.since, self.softly).into()
    }

    fn standing(self, page: u64) -> Standing {
        match (was_before(self.since, page), was_before(self.softly, page)) {
            (false, _) => Standing::Gone,
            (true, false) => Standing::Stale,
            (true, true) => Standing::Good,
        }
    }
}

/// The standing of a page with this count and these marks.
pub(super) fn standing(marks: &[Option<Mark>], page: u64) -> Standing {
    let all = marks.iter().map(|mark| mark.map_or(Standing::Gone, |mark| mark.standing(page)));
    all.max().unwrap_or(Standing::Good)
}

/// What was found at one look.
pub(super) struct Seen {
    pub(super) count: Option<u64>,
    pub(super) marks: Vec<Option<Mark>>,
    /// The item that was looked for besides.
    pub(super) item: Option<BeyondItem>,
}

/// Looks for the count, for marks, and for an item besides. An item that nothing is known of is not there.
///
/// # Errors
/// Nothing is known of one of the marks, or of the count.
pub(super) async fn look(beyond: &dyn Beyond, marks: &[String], item: Option<&str>) -> Result<Seen, Silent> {
    let keys = [COUNT].into_iter().chain(marks.iter().map(String::as_str)).chain(item);
    let mut found = beyond.get(keys.map(|key| key.as_bytes().to_vec()).collect()).await;
    let item = item.and_then(|_| found.pop()).and_then(Result::ok).flatten();
    let mut found = found.into_iter();
    let count = found.next().unwrap_or(Err(Silent))?.and_then(|item| number(&item.value));
    let marks = found.map(|mark| Ok(mark?.and_then(|item| Mark::parse(&item.value)))).collect::<Result<_, Silent>>()?;
    Ok(Seen { count, marks, item })
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// A page that is about to be fetched, and shared then.
pub(super) struct Begun {
    /// The count that it is to carry.
    count: u64,
    /// The marks that it has by its URL are being made.
    made: Option<JoinHandle<Admission>>,
}

/// Begins to make the marks that a page to be fetched has by its URL and that were not `seen`; none if it cannot be shared.
/// Its origin need not wait for them: they are there, or are known to be in vain, before the page is admitted.
pub(super) async fn begin(beyond: &Arc<dyn Beyond>, keys: &[String], seen: &Seen) -> Option<Begun> {
    let count = match seen.count {
        Some(count) => count,
        None => first(&**beyond).await.ok()?,
    };
    let missing = missing(keys, &seen.marks, count);
    if missing.is_empty() {
        return Some(Begun { count, made: None });
    }
    let beyond = Arc::clone(beyond);
    Some(Begun { count, made: Some(tokio::spawn(async move { make(&*beyond, missing, count).await })) })
}

/// The marks that are not there, or are of another life of the count and so of no use any more.
fn missing(keys: &[String], marks: &[Option<Mark>], count: u64) -> Vec<(Vec<u8>, Change)> {
    let value = || Mark::new(count).value();
    let change = |(key, mark): (&String, &Option<Mark>)| match mark {
        None => Some((key.clone().into_bytes(), Change::Add(value()))),
        Some(mark) if !is_of_life(mark.since, count) => Some((key.clone().into_bytes(), Change::Set(value()))),
        Some(_) => None,
    };
    keys.iter().zip(marks).filter_map(change).collect()
}

/// Makes marks of this count. What a page may become that has them: they are in vain if something was purged meanwhile.
async fn make(beyond: &dyn Beyond, marks: Vec<(Vec<u8>, Change)>, count: u64) -> Admission {
    if marks.is_empty() {
        return Admission::Shared;
    }
    let keys: Vec<Vec<u8>> = marks.iter().map(|(key, _)| key.clone()).collect();
    let made = beyond.change(marks).await;
    let still = look(beyond, &[], None).await;
    let outcome = match still {
        Ok(seen) if seen.count != Some(count) => Admission::Purged,
        Ok(_) if made.iter().all(Result::is_ok) => return Admission::Shared,
        Ok(_) | Err(Silent) => Admission::Unknown,
    };
    let own = keys.into_iter().zip(made).filter(|(_, made)| *made == Ok(true)).map(|(key, _)| (key, Change::Delete));
    beyond.change(own.collect()).await;
    outcome
}

/// What becomes of a page that was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is to be written to the fleet.
    Shared,
    /// It was purged since its origin was asked, or may have been: it is to be kept nowhere.
    Purged,
    /// Nobody knows: it is not to be written.
    Unknown,
}

/// Whether a page that was begun so may be shared, with the marks of its URL and of its tags; and the count it is to carry.
pub(super) async fn admit(
    beyond: &dyn Beyond,
    of_url: &[String],
    of_tags: &[String],
    Begun { count, made }: Begun,
) -> (Admission, u64) {
    let made = match made {
        None => Admission::Shared,
        // The task ends with its worker at the earliest.
        Some(made) => made.await.unwrap_or(Admission::Unknown),
    };
    let admission = match made {
        Admission::Shared => admit_marked(beyond, of_url, of_tags, count).await,
        not_marked => not_marked,
    };
    (admission, count)
}

/// The same when the marks of its URL were made.
async fn admit_marked(beyond: &dyn Beyond, of_url: &[String], of_tags: &[String], count: u64) -> Admission {
    let keys = [of_url, of_tags].concat();
    let Ok(seen) = look(beyond, &keys, None).await else { return Admission::Unknown };
    // The count was there when the origin was asked: everything was purged since, or it was lost.
    let Some(present) = seen.count else { return Admission::Purged };
    let (url_marks, tag_marks) = seen.marks.split_at(of_url.len());
    let missing = missing(of_tags, tag_marks, present);
    // Those of the URL were there when its origin was asked. Of the others it is not known, unless there was no purge at all.
    let was_purged = standing(url_marks, count) == Standing::Gone
        || tag_marks.iter().flatten().any(|mark| is_of_life(mark.since, count) && mark.since > count)
        || present != count && !missing.is_empty();
    // The marks are there for the next in any case.
    match make(beyond, missing, present).await {
        _ if was_purged => Admission::Purged,
        made => made,
    }
}

/// What a purge is of.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The pages of these URLs.
    Pages(Vec<PageUrl>),
    /// All pages that have one of these tags.
    Tags(Vec<Vec<u8>>),
    /// All pages, and whatever else there is.
    Everything,
}

/// What telling the fleet of a purge came to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// A page was there.
    pub(crate) was_there: bool,
    /// Why some of it could not be told.
    pub(crate) untold: Option<String>,
}

impl Told {
    fn note<T>(&mut self, outcome: Result<T, String>) -> Option<T> {
        outcome.map_err(|why| self.untold.get_or_insert(why)).ok()
    }
}

/// Tells the fleet of a purge.
pub(super) async fn tell(beyond: &dyn Beyond, target: &Target, is_soft: bool) -> Told {
    let mut told = Told::default();
    let (pages, marks): (Vec<String>, Vec<String>) = match target {
        Target::Pages(urls) => urls.iter().map(|url| (item_key(url), Of::Url(url.form()).key())).unzip(),
        Target::Tags(tags) => (Vec::new(), tags.iter().map(|tag| Of::Tag(tag).key()).collect()),
        Target::Everything if is_soft => (Vec::new(), vec![Of::Everything.key()]),
        Target::Everything => {
            told.was_there = told.note(beyond.flush().await).is_some();
            return told;
        }
    };
    let bytes = |keys: Vec<String>| keys.into_iter().map(String::into_bytes).collect::<Vec<_>>();
    let count = told.note(purge_counted(beyond).await);
    let (pages, mut marks) = (bytes(pages), bytes(marks));
    // Without a count nobody could tell what came before: it is a hard purge then.
    if let Some(count) = count.filter(|_| is_soft) {
        marks = soften(beyond, marks, count, &mut told).await;
        if marks.is_empty() {
            return told;
        }
    }
    let deleted = pages.into_iter().chain(marks).map(|key| (key, Change::Delete)).collect::<Vec<_>>();
    let page_count = if let Target::Pages(urls) = target { urls.len() } else { 0 };
    for (at, outcome) in beyond.change(deleted).await.into_iter().enumerate() {
        told.was_there |= told.note(outcome).is_some_and(|was_there| was_there && at < page_count);
    }
    told
}

/// Notes a soft purge in marks: those that are to be taken away instead.
async fn soften(beyond: &dyn Beyond, mut keys: Vec<Vec<u8>>, count: u64, told: &mut Told) -> Vec<Vec<u8>> {
    let mut given_up = Vec::new();
    for _ in 0..TRIES_MAX {
        let found = beyond.get(keys.clone()).await;
        let mut changes = Vec::new();
        for (key, found) in std::mem::take(&mut keys).into_iter().zip(found) {
            match found {
                // Nothing has it, or nothing that could be served.
                Ok(None) => {}
                Ok(Some(item)) => {
                    told.was_there = true;
                    let mark = Mark::parse(&item.value).unwrap_or(Mark::new(count));
                    let value = Mark { softly: count, ..mark }.value();
                    changes.push((key, Change::Replace { value, cas: item.cas }));
                }
                // Whoever takes it away says why that cannot be.
                Err(Silent) => given_up.push(key),
            }
        }
        let asked: Vec<Vec<u8>> = changes.iter().map(|(key, _)| key.clone()).collect();
        for (key, outcome) in asked.into_iter().zip(beyond.change(changes).await) {
            if told.note(outcome) == Some(false) {
                keys.push(key);
            }
        }
        if keys.is_empty() {
            break;
        }
    }
    given_up.extend(keys);
    given_up
}

/// Counts a purge: the count that it has.
async fn purge_counted(beyond: &dyn Beyond) -> Result<u64, String> {
    if let Some(count) = beyond.count(COUNT.as_bytes().to_vec()).await? {
        return Ok(count);
    }
    first(beyond).await?;
    let count = beyond.count(COUNT.as_bytes().to_vec()).await?;
    count.ok_or_else(|| "the count of purges went as soon as it was made".to_owned())
}

/// Begins another life of the count, unless somebody has.
async fn first(beyond: &dyn Beyond) -> Result<u64, String> {
    let life = RandomState::new().hash_one(0) & 0x7fff_ffff_0000_0000;
    let change = Change::Add(life.to_string().into());
    let made = beyond.change(vec![(COUNT.as_bytes().to_vec(), change)]).await.pop();
    if made.unwrap_or(Ok(false))? {
        return Ok(life);
    }
    let found = look(beyond, &[], None).await.ok().and_then(|seen| seen.count);
    found.ok_or_else(|| "the count of purges is no number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::Later;

    const LIFE: u64 = 7 << 32;

    /// A fleet in which nothing is, or which says nothing.
    struct Bare(Result<(), Silent>);

    impl Beyond for Bare {
        fn seconds_here(&self) -> u32 {
            1
        }

        fn item_bytes_max(&self) -> usize {
            1024
        }

        fn get(&self, keys: Vec<Vec<u8>>) -> Later<Vec<Result<Option<BeyondItem>, Silent>>> {
            let answers = keys.iter().map(|_| self.0.map(|()| None)).collect();
            Box::pin(async { answers })
        }

        fn put(&self, _: Vec<BeyondItem>, _: crate::rules::UnixSeconds) -> Later<()> {
            Box::pin(async {})
        }

        fn change(&self, changes: Vec<(Vec<u8>, Change)>) -> Later<Vec<Result<bool, String>>> {
            Box::pin(async move { changes.iter().map(|_| Ok(true)).collect() })
        }

        fn count(&self, _: Vec<u8>) -> Later<Result<Option<u64>, String>> {
            Box::pin(async { Ok(None) })
        }

        fn flush(&self) -> Later<Result<(), String>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[test]
    fn a_page_is_purged_whose_fleet_was_emptied_and_unknown_is_one_whose_fleet_is_silent() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let admitted = |fleet: Bare| {
            let begun = Begun { count: LIFE + 5, made: None };
            runtime.block_on(async { admit(&fleet, &["page:mark:u".to_owned()], &[], begun).await })
        };
        assert_eq!(admitted(Bare(Ok(()))), (Admission::Purged, LIFE + 5));
        assert_eq!(admitted(Bare(Err(Silent))), (Admission::Unknown, LIFE + 5));
    }

    #[test]
    fn a_page_is_as_good_as_the_worst_of_its_marks() {
        let (old, young, soft) = (Mark::new(LIFE + 3), Mark::new(LIFE + 6), Mark { since: LIFE, softly: LIFE + 6 });
        let other_life = Mark::new((6 << 32) + 1);
        for (marks, expected) in [
            (&[Some(old)][..], Standing::Good),
            (&[Some(old), Some(soft)], Standing::Stale),
            (&[Some(soft), Some(young)], Standing::Gone),
            (&[Some(old), None], Standing::Gone),
            (&[Some(other_life)], Standing::Gone),
            (&[Some(Mark { softly: 9 << 32, ..old })], Standing::Stale),
        ] {
            assert_eq!(standing(marks, LIFE + 5), expected, "{marks:?}");
        }
    }

    #[test]
    fn a_mark_is_text_and_nothing_else_is_one() {
        let mark = Mark { since: 1, softly: u64::MAX };
        assert_eq!(&mark.value()[..], b"1 18446744073709551615");
        assert_eq!(Mark::parse(&mark.value()), Some(mark));
        for wrong in [&b""[..], b"1", b"1 ", b"1 x", b"1 2 3", b"1 18446744073709551616", b"\xff 1"] {
            assert_eq!(Mark::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_url_a_tag_and_a_directory_of_one_name_have_marks_of_their_own() {
        let marks = of_url("http://a.test/");
        assert_eq!(marks.len(), 3);
        let tags = of_tags([&b"http://a.test/"[..], b"x"].into_iter(), &marks);
        assert_eq!(tags.len(), 1, "its directory is known");
        let all: std::collections::HashSet<&String> = marks.iter().chain(&tags).collect();
        assert_eq!(all.len(), 4);
        assert!(all.iter().all(|key| key.starts_with("page:mark:") && key.len() == 42));
    }
}
