//! Purging: who may, and what for. Everything a purge forgets is forgotten here at once, whatever is being fetched, and in
//! the fleet behind the pool when that has been told ([`marks`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderMap;
use tokio::task::JoinHandle;

use super::marks::{self, Target, Told};
use super::shelf;
use super::site::Site;
use super::tags;
use crate::house::Count;
use crate::key::{PageUrl, UrlError, item_key};

/// Addresses that begin alike: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// `127.0.0.0/8`
    pub const LOOPBACK_4: Network = Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), bits: 8 };
    /// `::1`
    pub const LOOPBACK_6: Network = Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 };

    /// Is `address` one of them? An IPv4 address in IPv6's clothes is what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = u32::from(network) ^ u32::from(address);
                differ.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = u128::from(network) ^ u128::from(address);
                differ.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Network, ()> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| ()))?;
        if bits <= all { Ok(Network { address, bits }) } else { Err(()) }
    }
}

/// What a `PURGE` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) what: What,
    /// Make it stale, and do not forget it.
    pub(crate) is_soft: bool,
}

/// See [`Wanted`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The page of the URL.
    Page,
    /// Pages whose URLs begin with the URL.
    Prefix,
    /// Pages that have one of these tags.
    Tags(Vec<Vec<u8>>),
    /// All pages, and whatever else is in the pool.
    Everything,
}

impl Wanted {
    /// What the fields of a `PURGE` say: `Purge: soft`, `prefix` or `all`, or two of them; tags in `Surrogate-Key` and its
    /// kin; softly also by Fastly's and Varnish's fields. None for a word in `Purge` that means nothing.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Wanted> {
        let says = |name: &str, word: &str| {
            headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(word.as_bytes()))
        };
        let is_there = |name: &str| headers.contains_key(name);
        let is_soft = says("fastly-soft-purge", "1") || says("x-purge-mode", "soft") || is_there("xkey-softpurge");
        let mut wanted = Wanted { what: What::Page, is_soft };
        let tags = tags::of_purge(headers);
        if !tags.is_empty() {
            wanted.what = What::Tags(tags);
        }
        for word in headers.get_all("purge").iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b',')) {
            match word.trim_ascii().to_ascii_lowercase().as_slice() {
                b"soft" => wanted.is_soft = true,
                b"prefix" => wanted.what = What::Prefix,
                b"all" => wanted.what = What::Everything,
                _ => return None,
            }
        }
        Some(wanted)
    }
}

/// What became of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// It was there.
    Gone,
    /// It was not.
    NotThere,
    /// Whoever asked may not.
    Denied,
    /// What was asked for is no page's URL.
    NoUrl(UrlError),
}

/// A purge that was done here, and of which the fleet is being told, if there is one.
pub(crate) struct Purging {
    was_here: bool,
    elsewhere: Option<JoinHandle<Told>>,
}

impl Purging {
    /// Waits for the fleet: whether there was something to forget anywhere, and why not all of the fleet could be told.
    pub(crate) async fn everywhere(self) -> Told {
        let mut told = match self.elsewhere {
            Some(elsewhere) => elsewhere.await.unwrap_or_default(),
            None => Told::default(),
        };
        told.was_there |= self.was_here;
        told
    }
}

impl Site {
    /// Forgets the page of an absolute URL, for somebody at `address`. Where pages are shared with other hosts, the fleet is
    /// told afterwards.
    pub fn purge_url(self: &Arc<Site>, address: Option<IpAddr>, url: &[u8]) -> Purged {
        if !self.may_purge(address) {
            return Purged::Denied;
        }
        match PageUrl::parse(url, &self.settings.urls) {
            Err(why) => Purged::NoUrl(why),
            Ok(url) => match self.purge_page(&url, false).was_here {
                true => Purged::Gone,
                false => Purged::NotThere,
            },
        }
    }

    /// Forgets a page and its variants, or makes them stale. The same under the other scheme: applications know one URL of a
    /// page, and a purge that leaves half of it is worse than none.
    pub(crate) fn purge_page(self: &Arc<Site>, url: &PageUrl, is_soft: bool) -> Purging {
        let other = if url.scheme() == "http" { "https" } else { "http" };
        let other = PageUrl::new(other, url.authority().as_bytes(), url.target().as_bytes(), &self.settings.urls);
        self.purge(Target::Pages([url.clone()].into_iter().chain(other).collect()), is_soft)
    }

    /// Forgets all pages whose URLs begin with `url`, or makes them stale; under both schemes, as [`Site::purge_page`]. None
    /// if that is no prefix: `is_query` says that a question mark stood at its end.
    pub(crate) fn purge_prefix(self: &Arc<Site>, url: &PageUrl, is_query: bool, is_soft: bool) -> Option<Purging> {
        let (_, rest) = url.form().split_once("://").unwrap_or_default();
        let end = if is_query { "?" } else { "" };
        let tags = ["http", "https"].map(|scheme| tags::of_prefix(&format!("{scheme}://{rest}{end}")));
        let tags: Vec<Vec<u8>> = tags.into_iter().flatten().collect();
        (!tags.is_empty()).then(|| self.purge(Target::Tags(tags), is_soft))
    }

    /// Forgets what `target` says, or makes it stale. In constant time.
    pub(crate) fn purge(self: &Arc<Site>, target: Target, is_soft: bool) -> Purging {
        let was_here = self.forget_here(&target, is_soft);
        self.house.count(if was_here { Count::Purged } else { Count::PurgedNothing }, 1);
        let elsewhere = self.house.beyond().map(|beyond| {
            let site = Arc::clone(self);
            tokio::spawn(async move {
                let told = marks::tell(&*beyond, &target, is_soft).await;
                // What was brought from there before it knew may be what is to be forgotten.
                site.forget_here(&target, is_soft);
                if let Some(why) = &told.untold {
                    site.house.warn(format_args!("purge: not all of the fleet could be told: {why}"));
                }
                told
            })
        });
        Purging { was_here, elsewhere }
    }

    /// Whether it was here. Of many pages nobody knows: it was.
    fn forget_here(&self, target: &Target, is_soft: bool) -> bool {
        match target {
            Target::Pages(urls) => urls.iter().fold(false, |was_here, url| {
                let key = item_key(url);
                // Before the item: who stores looks at this afterwards, and takes back what it stored in between.
                self.flights.spoil_page(key.as_bytes());
                shelf::purge(&*self.house, &key, is_soft) || was_here
            }),
            Target::Tags(tags) => {
                // What is being fetched may have them: nobody knows before its head is there.
                self.flights.spoil_everything();
                self.forget_tags(tags, is_soft);
                true
            }
            Target::Everything => {
                self.flights.spoil_everything();
                self.house.with_store(&mut |handle, seconds| match is_soft {
                    true => {
                        self.soft.mark_everything(seconds);
                        self.soft.note(handle, seconds);
                    }
                    false => handle.store().flush(seconds),
                });
                true
            }
        }
    }

    fn forget_tags(&self, tags: &[Vec<u8>], is_soft: bool) {
        let mut refused = None;
        self.house.with_store(&mut |handle, seconds| {
            for tag in tags {
                if is_soft {
                    self.soft.mark(tag, seconds);
                } else if let Err(error) = handle.store().forget_tag(tag) {
                    refused = Some(error);
                }
            }
            if is_soft {
                self.soft.note(handle, seconds);
            }
        });
        if let Some(error) = refused {
            self.house.warn(format_args!("purge: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_the_addresses_that_begin_alike() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "2001:db8::", "10.0.0.1"),
            ("127.0.0.0/8", "::ffff:127.0.0.1", "::1"),
        ] {
            let network: Network = network.parse().expect(network);
            assert!(network.contains(inside.parse().expect(inside)), "{network:?} {inside}");
            assert!(!network.contains(outside.parse().expect(outside)), "{network:?} {outside}");
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "::/129", "host", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_purge_says_what_it_is_for_and_how_hard() {
        let wanted = |fields: &[(&str, &str)]| Wanted::of(&crate::testing::headers(fields));
        let tags = |names: &[&str]| What::Tags(names.iter().map(|name| name.as_bytes().to_vec()).collect());
        for (fields, what, is_soft) in [
            (&[][..], What::Page, false),
            (&[("purge", "soft")], What::Page, true),
            (&[("fastly-soft-purge", "1")], What::Page, true),
            (&[("x-purge-mode", "Soft")], What::Page, true),
            (&[("purge", "prefix")], What::Prefix, false),
            (&[("purge", "soft, Prefix")], What::Prefix, true),
            (&[("purge", "all")], What::Everything, false),
            (&[("surrogate-key", "a b")], tags(&["a", "b"]), false),
            (&[("cache-tags", "a,b"), ("purge", "soft")], tags(&["a", "b"]), true),
            (&[("xkey-softpurge", "a")], tags(&["a"]), true),
        ] {
            assert_eq!(wanted(fields), Some(Wanted { what, is_soft }), "{fields:?}");
        }
        assert_eq!(wanted(&[("purge", "hard")]), None);
    }
}
