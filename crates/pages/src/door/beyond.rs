//! Pages that several hosts share: what is not here may lie in a fleet of caches beyond, and what the origin sends is
//! written there as well.
//!
//! What comes from there lives here for a short while only, for nobody tells us when another host purges it. Values are
//! those of the shelf; one that is longer than the fleet's items is cut into chunks. A fleet that does not answer is like
//! one that has nothing.

use bytes::Bytes;

use super::fetch::Errand;
use super::shelf::{self, Written};
use super::site::Site;
use crate::format::{Chunks, Value, parse};
use crate::house::{Beyond, BeyondItem};
use crate::key::item_key;
use crate::rules::{Decision, Policy, UnixSeconds, vary};

/// What an item's key and head may take of what the fleet's servers hold.
const ITEM_ALLOWANCE_BYTES: usize = 512;

impl Errand {
    /// Looks beyond for a fresh page for this request, and puts it on the shelf: whether there was one.
    pub(super) async fn bring(&self, beyond: &dyn Beyond) -> bool {
        let Some(item) = get(beyond, &self.key).await else { return false };
        let now = self.site.house.unix_seconds();
        let ways = match parse(&item.value) {
            Ok(Value::Page(page)) => {
                let (policy, tags) = (page.policy, page.tags().map(<[u8]>::to_vec).collect::<Vec<_>>());
                return self.is_of_use(&policy, item.flags, &tags, now) && self.put_here(beyond, &self.key, &item, now);
            }
            Ok(Value::Variants(ways)) => ways,
            Err(_) => return false,
        };
        if !self.put_here(beyond, &self.key, &item, now) {
            return false;
        }
        for way in &ways {
            let variant = vary::variant(way, self.request(), self.site.cookies());
            let key = shelf::variant_item_key(&self.key, item.flags, &variant);
            let Some(item) = get(beyond, &key).await else { continue };
            let policy = match parse(&item.value) {
                Ok(Value::Page(page)) => page.policy,
                _ => continue,
            };
            if self.is_of_use(&policy, item.flags, &[], now) {
                return self.put_here(beyond, &key, &item, now);
            }
        }
        false
    }

    fn is_of_use(&self, policy: &Policy, stored_at: u32, tags: &[Vec<u8>], now: UnixSeconds) -> bool {
        let soft = &self.site.soft;
        policy.decide(self.asked(), now) == Decision::Hit
            && !(soft.may_cover(stored_at) && soft.cover(stored_at, tags.iter().map(Vec::as_slice)))
    }

    fn put_here(&self, beyond: &dyn Beyond, key: &str, item: &BeyondItem, now: UnixSeconds) -> bool {
        if self.leader.is_spoiled() {
            return false;
        }
        let house = &*self.site.house;
        let is_there = shelf::put_item(house, key, item, now + i64::from(beyond.seconds_here()));
        if self.leader.is_spoiled() {
            shelf::take_back(house, &self.key);
            return false;
        }
        is_there
    }

    /// Writes what was put on the shelf to the fleet, if there is one.
    pub(super) async fn write_through(&self, written: Option<Written>) {
        let (Some(written), Some(beyond)) = (written, self.site.house.beyond()) else { return };
        let Written { key, value, flags, expires_at, index } = written;
        let item_bytes_max = beyond.item_bytes_max().saturating_sub(ITEM_ALLOWANCE_BYTES);
        let item = |key: String, flags: u32, value: Bytes| BeyondItem { key: key.into_bytes(), flags, value };
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
            beyond.delete(self.key.clone().into_bytes()).await;
        }
    }
}

/// An item, put together if it lies there in chunks.
async fn get(beyond: &dyn Beyond, key: &str) -> Option<BeyondItem> {
    let mut item = beyond.get(vec![key.as_bytes().to_vec()]).await.pop()??;
    if let Ok(chunks) = Chunks::parse(&item.value) {
        let keys = chunks.keys(key).into_iter().map(String::into_bytes).collect();
        let cut: Option<Vec<BeyondItem>> = beyond.get(keys).await.into_iter().collect();
        item.value = chunks.join(cut?.iter().map(|chunk| &*chunk.value)).ok()?.into();
    }
    Some(item)
}

impl Site {
    /// Forgets a page in the fleet, if there is one: whether it was there, when that is known.
    pub(crate) fn forget_beyond(&self, url: &crate::key::PageUrl) -> Option<tokio::task::JoinHandle<bool>> {
        let beyond = self.house.beyond()?;
        let key = item_key(url).into_bytes();
        Some(tokio::spawn(async move { beyond.delete(key).await }))
    }
}
