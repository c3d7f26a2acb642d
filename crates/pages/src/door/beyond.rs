//! Pages that several hosts share: what is not here may lie in a fleet of caches beyond, and what the origin sends is
//! written there as well.
//!
//! What comes from there lives here for a short while only, for nobody tells us when another host purges it; until then
//! [`marks`] tell whether it was. Values are those of the shelf with a number before them; one that is longer than the
//! fleet's items is cut into chunks. A fleet that does not answer is like one that has nothing.

use std::sync::Arc;

use bytes::Bytes;

use super::fetch::Errand;
use super::marks::{self, Admission, Seen, Standing};
use super::shelf::{self, Brought, Written};
use crate::format::{self, Chunks, NUMBERED_HEAD_BYTES, Value};
use crate::house::{Beyond, BeyondItem, Change};
use crate::rules::{Decision, Policy, UnixSeconds, vary};

/// What an item's key and head may take of what the fleet's servers hold.
const ITEM_ALLOWANCE_BYTES: usize = 512;

/// A page as it lies in the fleet.
struct Shared {
    /// As it lies on a shelf.
    value: Bytes,
    policy: Policy,
    tags: Vec<Vec<u8>>,
    standing: Standing,
}

impl Errand {
    /// Looks beyond for a page for this request that can be served, and puts it on the shelf: whether there was one. If
    /// not, makes ready for one that is fetched.
    pub(super) async fn bring(&mut self, beyond: &Arc<dyn Beyond>) -> bool {
        let marks = marks::of_url(&self.form);
        let Ok(seen) = marks::look(&**beyond, &marks, Some(&self.key)).await else { return false };
        if self.bring_seen(&**beyond, &marks, &seen).await {
            return true;
        }
        self.begun = marks::begin(beyond, &marks, &seen).await;
        false
    }

    /// Makes ready for a page that is to be fetched whatever lies beyond.
    pub(super) async fn make_ready(&mut self, beyond: &Arc<dyn Beyond>) {
        let marks = marks::of_url(&self.form);
        if let Ok(seen) = marks::look(&**beyond, &marks, None).await {
            self.begun = marks::begin(beyond, &marks, &seen).await;
        }
    }

    async fn bring_seen(&self, beyond: &dyn Beyond, marks: &[String], seen: &Seen) -> bool {
        let Some(item) = &seen.item else { return false };
        let Ok(Value::Variants(ways)) = format::parse(&item.value) else {
            return self.bring_page(beyond, &self.key, item, (marks, seen)).await;
        };
        let index = Brought { value: &item.value, flags: Some(item.flags), tags: &[], is_stale: false };
        if !self.put_here(beyond, &self.key, &index) {
            return false;
        }
        for way in &ways {
            let variant = vary::variant(way, self.request(), self.site.cookies());
            let key = shelf::variant_item_key(&self.key, item.flags, &variant);
            let found = beyond.get(vec![key.clone().into_bytes()]).await.pop();
            if let Some(Ok(Some(item))) = found
                && self.bring_page(beyond, &key, &item, (marks, seen)).await
            {
                return true;
            }
        }
        false
    }

    /// Puts a page here that lies there in `item`, if it is of use.
    async fn bring_page(
        &self,
        beyond: &dyn Beyond,
        key: &str,
        item: &BeyondItem,
        (marks, seen): (&[String], &Seen),
    ) -> bool {
        let Some(page) = shared(beyond, key, item, (marks, seen)).await else { return false };
        let is_stale = match page.standing {
            Standing::Good => false,
            Standing::Stale => true,
            Standing::Gone => return false,
        };
        let now = self.site.house.unix_seconds();
        let mut policy = page.policy;
        if is_stale {
            shelf::make_stale(&mut policy, now);
        }
        let is_of_use = match policy.decide(self.asked(), now) {
            Decision::Hit => true,
            Decision::HitWhileRevalidate => is_stale,
            _ => false,
        };
        let brought = Brought { value: &page.value, flags: None, tags: &page.tags, is_stale };
        is_of_use && self.put_here(beyond, key, &brought)
    }

    fn put_here(&self, beyond: &dyn Beyond, key: &str, brought: &Brought<'_>) -> bool {
        if self.leader.is_spoiled() {
            return false;
        }
        let house = &*self.site.house;
        let until = house.unix_seconds() + UnixSeconds::from(beyond.seconds_here());
        let is_there = shelf::put_brought(house, key, brought, until);
        if self.leader.is_spoiled() {
            shelf::take_back(house, &self.key);
            return false;
        }
        is_there
    }

    /// Writes what was put on the shelf to the fleet, if there is one.
    pub(super) async fn write_through(&mut self, written: Option<Written>) {
        let (Some(written), Some(beyond)) = (written, self.site.house.beyond()) else { return };
        let Some(begun) = self.begun.take() else { return };
        let of_url = marks::of_url(&self.form);
        let of_tags = marks::of_tags(written.tags.iter().map(Vec::as_slice), &of_url);
        let (admission, purges) = marks::admit(&*beyond, &of_url, &of_tags, begun).await;
        match admission {
            Admission::Shared => {}
            Admission::Unknown => return,
            // By another host, while it was fetched.
            Admission::Purged => return shelf::take_back(&*self.site.house, &self.key),
        }
        let Written { key, value, flags, expires_at, index, tags: _ } = written;
        let Ok(value) = format::encode_numbered(purges, &value).map(Bytes::from) else { return };
        let item_bytes_max = beyond.item_bytes_max().saturating_sub(ITEM_ALLOWANCE_BYTES);
        let item = |key: String, flags: u32, value: Bytes| BeyondItem { key: key.into_bytes(), flags, value, cas: 0 };
        let mut items = Vec::new();
        if value.len() > item_bytes_max {
            let Ok(chunks) = Chunks::of(&value, item_bytes_max, shelf::number_at_random()) else { return };
            let (Ok(cut), Ok(list)) = (chunks.cut(&value), chunks.list()) else { return };
            let keys = chunks.keys(&key).into_iter();
            items.extend(keys.zip(cut).map(|(key, chunk)| item(key, 0, chunk.into())));
            items.push(item(key, flags, list.into()));
        } else {
            items.push(item(key, flags, value));
        }
        // The index last: what it leads to is there by then.
        if let Some((index, number)) = index {
            items.push(item(self.key.clone(), number, index.into()));
        }
        beyond.put(items, expires_at).await;
        if self.leader.is_spoiled() {
            beyond.change(vec![(self.key.clone().into_bytes(), Change::Delete)]).await;
        }
    }
}

/// The page in `item`, put together if it lies there in chunks, and what its marks make of it: those that were `seen` with
/// it, and those of its tags.
async fn shared(
    beyond: &dyn Beyond,
    key: &str,
    item: &BeyondItem,
    (marks, seen): (&[String], &Seen),
) -> Option<Shared> {
    let numbered = match Chunks::parse(&item.value) {
        Err(_) => item.value.clone(),
        Ok(chunks) => {
            let keys = chunks.keys(key).into_iter().map(String::into_bytes).collect();
            let cut: Option<Vec<BeyondItem>> =
                beyond.get(keys).await.into_iter().map(|found| found.ok().flatten()).collect();
            chunks.join(cut?.iter().map(|chunk| &*chunk.value)).ok()?.into()
        }
    };
    let number = format::parse_numbered(&numbered).ok()?;
    let value = numbered.slice(NUMBERED_HEAD_BYTES..);
    let Ok(Value::Page(page)) = format::parse(&value) else { return None };
    let (policy, tags) = (page.policy, page.tags().map(<[u8]>::to_vec).collect::<Vec<_>>());
    let mut standing = marks::standing(&seen.marks, number);
    let of_tags = marks::of_tags(tags.iter().map(Vec::as_slice), marks);
    if standing != Standing::Gone && !of_tags.is_empty() {
        let seen = marks::look(beyond, &of_tags, None).await.ok()?;
        standing = standing.max(marks::standing(&seen.marks, number));
    }
    Some(Shared { value, policy, tags, standing })
}
