//! Purging: who may, and what for. Everything a purge forgets is forgotten at once, whatever is being fetched.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use http::HeaderMap;

use super::shelf;
use super::site::Site;
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

/// Does a purge only make stale what it names? Said by `Purge: soft`, `Fastly-Soft-Purge: 1` or `X-Purge-Mode: soft`.
pub(crate) fn is_soft(headers: &HeaderMap) -> bool {
    let says = |name: &str, word: &str| {
        headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(word.as_bytes()))
    };
    says("purge", "soft") || says("fastly-soft-purge", "1") || says("x-purge-mode", "soft")
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

impl Site {
    /// Forgets the page of an absolute URL, for somebody at `address`.
    pub fn purge_url(&self, address: Option<IpAddr>, url: &[u8]) -> Purged {
        if !self.may_purge(address) {
            return Purged::Denied;
        }
        match PageUrl::parse(url, &self.settings.urls) {
            Err(why) => Purged::NoUrl(why),
            Ok(url) if self.purge(&url, false) => Purged::Gone,
            Ok(_) => Purged::NotThere,
        }
    }

    /// Forgets a page and its variants, or makes them stale: whether there was one. The same under the other scheme:
    /// applications know one URL of a page, and a purge that leaves half of it is worse than none.
    pub(crate) fn purge(&self, url: &PageUrl, is_soft: bool) -> bool {
        let mut was_there = self.purge_one(url, is_soft);
        let other = if url.scheme() == "http" { "https" } else { "http" };
        if let Ok(other) = PageUrl::new(other, url.authority().as_bytes(), url.target().as_bytes(), &self.settings.urls)
        {
            was_there |= self.purge_one(&other, is_soft);
        }
        was_there
    }

    fn purge_one(&self, url: &PageUrl, is_soft: bool) -> bool {
        let key = item_key(url);
        let was_there = shelf::purge(&*self.house, &key, is_soft);
        // After the item: what a fetch stores in between is gone too, as it sees that it is spoiled before it stores.
        self.flights.spoil_page(key.as_bytes());
        was_there
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
}
