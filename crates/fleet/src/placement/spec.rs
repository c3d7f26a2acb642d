//! A server of a fleet, as an operator writes it.

use std::fmt;

/// memcached's port.
pub(crate) const PORT_DEFAULT: u16 = 11211;

/// The heaviest a server can be: weights are parts of their sum, which 24 bits of a float have to tell apart.
pub(crate) const WEIGHT_MAX: u32 = 65_535;

/// One server. Where keys go depends on the host as it was written, never on what it resolves to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerSpec {
    /// A name, an IPv4 address, an IPv6 address without brackets, or, beginning with `/`, the path of a UNIX socket.
    pub host: String,
    /// The TCP port. For a UNIX socket only libmemcached's labels have one: 0, or what php's `addServer` was given, 11211 in place of 0.
    pub port: u16,
    /// Its share of the keys beside the others'; 0 takes none. 1 when nothing is said.
    pub weight: u32,
    /// What Dalli and twemproxy may call it; labels are made of it there.
    pub name: Option<String>,
}

impl ServerSpec {
    /// A server of weight 1 without a name.
    pub fn new(host: &str, port: u16) -> ServerSpec {
        ServerSpec { host: host.to_owned(), port, weight: 1, name: None }
    }

    /// The same with a weight.
    pub fn weighing(mut self, weight: u32) -> ServerSpec {
        self.weight = weight;
        self
    }

    /// The same with a name.
    pub fn named(mut self, name: &str) -> ServerSpec {
        self.name = Some(name.to_owned());
        self
    }

    /// Whether it is a UNIX socket.
    pub fn is_unix(&self) -> bool {
        self.host.starts_with('/')
    }

    /// `HOST:PORT` without brackets, or the path: what clients other than libmemcached make their labels of.
    pub(super) fn label(&self) -> String {
        if self.is_unix() { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Its name where it has one.
    pub(super) fn label_or_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.label())
    }

    /// Whether both are one server: weights and names do not tell servers apart.
    pub fn is_same_server(&self, other: &ServerSpec) -> bool {
        self.host == other.host && (self.is_unix() || self.port == other.port)
    }

    /// Reads `HOST[:PORT]`, `[IPV6][:PORT]` or `unix:PATH`, followed by any of `weight=N`, `name=WORD` and, for a UNIX socket, `port=N`.
    /// The error ends the sentence "expected …".
    pub fn parse(text: &str) -> Result<ServerSpec, String> {
        let mut words = text.split_whitespace();
        let address = words.next().ok_or("a server, such as \"10.0.0.40:11211 weight=2\"")?;
        let mut server = match address.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') && path.len() <= 107 => ServerSpec::new(path, 0),
            Some(_) => return Err("unix: and the whole path of a socket, at most 107 bytes".to_owned()),
            None => {
                let (host, port) = parse_host_port(address)?;
                ServerSpec::new(host, port.unwrap_or(PORT_DEFAULT))
            }
        };
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "weight" => {
                    let weight = value.parse().ok().filter(|weight| *weight <= WEIGHT_MAX);
                    server.weight = weight.ok_or(format!("a weight from 0 to {WEIGHT_MAX} after {address}"))?;
                }
                "name" if value.is_empty() => return Err(format!("a name after name= of {address}")),
                "name" => server.name = Some(value.to_owned()),
                "port" if server.is_unix() => {
                    server.port = value.parse().map_err(|_| format!("a port from 0 to 65535 after {address}"))?;
                }
                _ => return Err(format!("nothing but weight=N and name=WORD after {address}")),
            }
        }
        Ok(server)
    }
}

/// Takes `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT` apart. The error ends the sentence "expected …".
pub(crate) fn parse_host_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let expected = || "HOST, HOST:PORT, [IPV6]:PORT or unix:PATH".to_owned();
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(expected)?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("an IPv6 address between the brackets".to_owned());
            }
            let port = rest.strip_prefix(':');
            if port.is_none() && !rest.is_empty() {
                return Err(expected());
            }
            (host, port)
        }
        None if text.matches(':').count() > 1 => return Err("brackets around an IPv6 address".to_owned()),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
    if host.is_empty() || host.len() > 255 || !host.bytes().all(is_host) {
        return Err(expected());
    }
    match port {
        None => Ok((host, None)),
        Some(port) => {
            let number =
                port.parse().ok().filter(|number| *number != 0 && port.bytes().all(|byte| byte.is_ascii_digit()));
            Ok((host, Some(number.ok_or_else(|| format!("a port from 1 to 65535 after {host}:"))?)))
        }
    }
}

/// `HOST:PORT`, with brackets around an IPv6 address, or `unix:PATH`; neither weight nor name.
impl fmt::Display for ServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match () {
            () if self.is_unix() => write!(f, "unix:{}", self.host),
            () if self.host.contains(':') => write!(f, "[{}]:{}", self.host, self.port),
            () => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_in_every_spelling() {
        let read = |text| ServerSpec::parse(text).unwrap_or_else(|expected| panic!("{text}: expected {expected}"));
        assert_eq!(read("10.0.0.40"), ServerSpec::new("10.0.0.40", 11211));
        assert_eq!(read("cache-1.example:11311 weight=2"), ServerSpec::new("cache-1.example", 11311).weighing(2));
        assert_eq!(read("[2001:db8::1]:1 name=a weight=0"), ServerSpec::new("2001:db8::1", 1).weighing(0).named("a"));
        assert_eq!(read("[::1]"), ServerSpec::new("::1", 11211));
        assert_eq!(read("unix:/run/m.sock"), ServerSpec::new("/run/m.sock", 0));
        assert_eq!(read("unix:/run/m.sock port=11211"), ServerSpec::new("/run/m.sock", 11211));
        for text in ["10.0.0.40:11211", "[::1]:5", "unix:/run/m.sock"] {
            assert_eq!(read(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_server_says_what_was_expected() {
        for (text, expected) in [
            ("", "a server, such as \"10.0.0.40:11211 weight=2\""),
            ("a:b", "a port from 1 to 65535 after a:"),
            ("a:0", "a port from 1 to 65535 after a:"),
            ("a:+1", "a port from 1 to 65535 after a:"),
            (":1", "HOST, HOST:PORT, [IPV6]:PORT or unix:PATH"),
            ("a b:1", "nothing but weight=N and name=WORD after a"),
            ("a,b", "HOST, HOST:PORT, [IPV6]:PORT or unix:PATH"),
            ("::1", "brackets around an IPv6 address"),
            ("[x]:1", "an IPv6 address between the brackets"),
            ("[::1]1", "HOST, HOST:PORT, [IPV6]:PORT or unix:PATH"),
            ("unix:run", "unix: and the whole path of a socket, at most 107 bytes"),
            ("a weight=-1", "a weight from 0 to 65535 after a"),
            ("a weight=65536", "a weight from 0 to 65535 after a"),
            ("a name=", "a name after name= of a"),
            ("a port=5", "nothing but weight=N and name=WORD after a"),
        ] {
            assert_eq!(ServerSpec::parse(text), Err(expected.to_owned()), "{text}");
        }
    }
}
