//! Addresses to listen on, as `-l` and the file write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use super::Protocol;
use super::problem::{Kind, Problem};

/// One element of a `-l` list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) tls: Option<TlsWord>,
    pub(super) protocol: Option<Protocol>,
    pub(super) tag: Option<String>,
    pub(super) host: Host,
    pub(super) port: Option<i32>,
}

/// What stands before an address and says how it is served, whatever the other addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsWord {
    /// `notls:` without TLS.
    None,
    /// `btls:` with TLS; clients show no certificate.
    Basic,
    /// `mtls:` with TLS; clients have to show a certificate.
    Mutual,
}

impl TlsWord {
    /// As it is written.
    pub(super) fn word(self) -> &'static str {
        match self {
            TlsWord::None => "notls",
            TlsWord::Basic => "btls",
            TlsWord::Mutual => "mtls",
        }
    }
}

/// Whose address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// `*`: every address of the machine.
    Any,
    /// A name or a literal address.
    Named(String),
}

/// Takes one element of a `-l` list apart: `[notls:|btls:|mtls:][proto[NAME]:][tag[NAME]:|tag_NAME_:]HOST[:PORT]`. The error ends the sentence
/// "expected …".
pub(super) fn parse_interface(spec: &str) -> Result<Interface, String> {
    let mut rest = spec;
    let mut tls = None;
    for word in [TlsWord::None, TlsWord::Basic, TlsWord::Mutual] {
        if let Some(after) = rest.strip_prefix(word.word()).and_then(|after| after.strip_prefix(':')) {
            if tls.is_some() {
                return Err("one of notls:, btls: and mtls: before the host".to_owned());
            }
            tls = Some(word);
            rest = after;
        }
    }
    let mut protocol = None;
    if let Some(after) = rest.strip_prefix("proto[") {
        let (word, after) = after.split_once("]:").ok_or("proto[NAME]: before the host")?;
        protocol = Some(match word {
            "negotiating" => Protocol::Auto,
            word => {
                Protocol::named(word).ok_or("one of proto[ascii], proto[binary], proto[auto] or proto[negotiating]")?
            }
        });
        rest = after;
    }
    let mut tag = None;
    for (open, close) in [("tag[", "]:"), ("tag_", "_:")] {
        if let Some(after) = rest.strip_prefix(open) {
            let (name, after) = after.split_once(close).ok_or("tag[NAME]: or tag_NAME_: before the host")?;
            if !is_tag(name) {
                return Err("a tag of 1 to 8 bytes".to_owned());
            }
            tag = Some(name.to_owned());
            rest = after;
        }
    }
    let (host, port) = parse_host_port(rest)?;
    Ok(Interface { tls, protocol, tag, host, port })
}

/// Takes `HOST`, `HOST:PORT`, `[V6]`, `[V6]:PORT` or a bare IPv6 address apart.
pub(super) fn parse_host_port(text: &str) -> Result<(Host, Option<i32>), String> {
    let (host, port) = if let Some(after) = text.strip_prefix('[') {
        let (host, after) = after.split_once(']').ok_or("a ] after an IPv6 address")?;
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err("[ADDRESS] or [ADDRESS]:PORT".to_owned()),
        }
    } else {
        match text.split_once(':') {
            // Two colons or more without brackets are an IPv6 address that names no port.
            Some((_, port)) if port.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let port = match port {
        Some(port) => match port.parse::<i32>() {
            Ok(number) if (-1..=65535).contains(&number) => Some(number),
            _ => return Err("a port from 0 to 65535 after the host".to_owned()),
        },
        None => None,
    };
    match host {
        "" => Err("a host name or an address".to_owned()),
        "*" => Ok((Host::Any, port)),
        host => Ok((Host::Named(host.to_owned()), port)),
    }
}

/// A port as it is bound: -1 asks for any free one, as 0 does.
pub(super) fn port_number(port: i32) -> u16 {
    u16::try_from(port).unwrap_or(0)
}

/// memcached's bounds on a tag.
pub(super) fn is_tag(name: &str) -> bool {
    (1..=8).contains(&name.len())
}

/// A host name the system does not know.
#[derive(Debug)]
pub(super) struct Unresolved {
    host: String,
    reason: String,
}

impl Unresolved {
    /// The problem, said of `place`.
    pub(super) fn at(self, place: &str) -> Problem {
        let Unresolved { host, reason } = self;
        Problem::new(
            Kind::System,
            format!("{place}: expected a host name or an address, {host:?} is not known: {reason}"),
        )
    }
}

/// The addresses of a host, and whether each has to be there: of a name's addresses the first must (IPv4 before IPv6, since a machine
/// without IPv6 still has names that say otherwise).
pub(super) fn resolve(host: &Host, port: u16) -> Result<Vec<(SocketAddr, bool)>, Unresolved> {
    let name = match host {
        Host::Any => {
            let all = [(IpAddr::V4(Ipv4Addr::UNSPECIFIED), true), (IpAddr::V6(Ipv6Addr::UNSPECIFIED), false)];
            return Ok(all.map(|(ip, required)| (SocketAddr::new(ip, port), required)).into());
        }
        Host::Named(name) => name,
    };
    if let Ok(ip) = name.parse::<IpAddr>() {
        return Ok(vec![(SocketAddr::new(ip, port), true)]);
    }
    let unresolved = |reason: String| Unresolved { host: name.clone(), reason };
    let found = (name.as_str(), port).to_socket_addrs().map_err(|error| unresolved(error.to_string()))?;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(unresolved("it has no address".to_owned()));
    }
    addresses.sort_by_key(SocketAddr::is_ipv6);
    Ok(addresses.into_iter().enumerate().map(|(index, address)| (address, index == 0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(spec: &str) -> (Option<Protocol>, Option<String>, String, Option<i32>) {
        let Interface { protocol, tag, host, port, .. } =
            parse_interface(spec).unwrap_or_else(|e| panic!("{spec}: {e}"));
        let host = match host {
            Host::Any => "*".to_owned(),
            Host::Named(name) => name,
        };
        (protocol, tag, host, port)
    }

    #[test]
    fn every_form_of_an_interface_is_taken_apart() {
        let host = |name: &str| name.to_owned();
        assert_eq!(parsed("127.0.0.1"), (None, None, host("127.0.0.1"), None));
        assert_eq!(parsed("localhost:11212"), (None, None, host("localhost"), Some(11212)));
        assert_eq!(parsed("::1"), (None, None, host("::1"), None));
        assert_eq!(parsed("[::1]"), (None, None, host("::1"), None));
        assert_eq!(parsed("[::1]:0"), (None, None, host("::1"), Some(0)));
        assert_eq!(parsed("*:5"), (None, None, host("*"), Some(5)));
        assert_eq!(parsed("notls:10.0.0.1:5"), (None, None, host("10.0.0.1"), Some(5)));
        for (spec, tls) in [("h", None), ("notls:h", Some(TlsWord::None)), ("btls:tag_x_:h", Some(TlsWord::Basic))] {
            assert_eq!(parse_interface(spec).expect(spec).tls, tls, "{spec}");
        }
        assert_eq!(parse_interface("mtls:proto[ascii]:h:5").expect("mtls").tls, Some(TlsWord::Mutual));
        assert_eq!(parsed("proto[ascii]:h:5"), (Some(Protocol::Ascii), None, host("h"), Some(5)));
        assert_eq!(parsed("proto[negotiating]:h"), (Some(Protocol::Auto), None, host("h"), None));
        assert_eq!(
            parsed("proto[binary]:tag[web]:[::1]:5"),
            (Some(Protocol::Binary), Some(host("web")), host("::1"), Some(5))
        );
        assert_eq!(parsed("tag_web_:h:5"), (None, Some(host("web")), host("h"), Some(5)));
    }

    #[test]
    fn a_malformed_interface_says_what_was_expected() {
        for (spec, expected) in [
            ("notls:mtls:127.0.0.1", "one of notls:, btls: and mtls:"),
            ("mtls:", "host"),
            ("proto[http]:h", "proto[ascii]"),
            ("proto[ascii", "before the host"),
            ("tag[]:h", "1 to 8"),
            ("tag[ninechars]:h", "1 to 8"),
            ("tag_x", "before the host"),
            ("[::1", "]"),
            ("[::1]x", "[ADDRESS]"),
            ("h:", "port"),
            ("h:x", "port"),
            ("h:65536", "port"),
            ("h:-2", "port"),
            ("proto[ascii]:", "host"),
            (":1", "host"),
        ] {
            let error = parse_interface(spec).expect_err(spec);
            assert!(error.contains(expected), "{spec}: {error}");
        }
    }

    #[test]
    fn one_address_of_a_name_has_to_be_there() {
        let addresses = resolve(&Host::Named("localhost".to_owned()), 7).unwrap();
        assert_eq!(addresses.iter().filter(|(_, required)| *required).count(), 1);
        assert!(addresses.iter().all(|(address, _)| address.ip().is_loopback() && address.port() == 7));
        let any = resolve(&Host::Any, 7).unwrap();
        assert_eq!(any[0], ("0.0.0.0:7".parse().unwrap(), true));
    }
}
