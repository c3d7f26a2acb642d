//! Where a part of the list of servers comes from, as an operator writes it.

use std::fmt;

use crate::placement::ServerSpec;
use crate::placement::spec::{PORT_DEFAULT, parse_host_port};

/// One entry of `servers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This server.
    Server(ServerSpec),
    /// `dns:HOST[:PORT]`: a server for each address of the name, in the order of the addresses.
    Dns {
        /// The name.
        host: String,
        /// The port of each.
        port: u16,
    },
    /// `srv:NAME`: the targets of the SRV records of the lowest priority, with their ports and weights.
    Srv {
        /// The name, such as `_memcached._tcp.example`.
        name: String,
    },
    /// `etcd:URL/PREFIX`: a server in the value of each key that begins with the prefix.
    Etcd {
        /// `http://HOST:PORT`
        endpoint: String,
        /// Keys' first bytes.
        prefix: String,
    },
}

impl Source {
    /// Reads a server (see [`ServerSpec::parse`]) or one of the forms above. The error ends the sentence "expected …".
    pub fn parse(text: &str) -> Result<Source, String> {
        if let Some(rest) = text.strip_prefix("dns:") {
            let (host, port) = parse_host_port(rest).map_err(|_| "dns: and HOST or HOST:PORT")?;
            return Ok(Source::Dns { host: host.to_owned(), port: port.unwrap_or(PORT_DEFAULT) });
        }
        if let Some(name) = text.strip_prefix("srv:") {
            let (name, _) = parse_host_port(name)
                .ok()
                .filter(|(name, port)| port.is_none() && name.starts_with('_'))
                .ok_or("srv: and the name of SRV records, such as srv:_memcached._tcp.example")?;
            return Ok(Source::Srv { name: name.to_owned() });
        }
        if let Some(url) = text.strip_prefix("etcd:") {
            let expected = "etcd:http://HOST:PORT/PREFIX";
            let rest = url.strip_prefix("http://").ok_or(expected)?;
            let (authority, prefix) = rest.split_once('/').ok_or(expected)?;
            parse_host_port(authority).ok().and_then(|(_, port)| port).ok_or(expected)?;
            if prefix.is_empty() {
                return Err(expected.to_owned());
            }
            // As etcd's own tools write it: the slash belongs to the key.
            return Ok(Source::Etcd { endpoint: format!("http://{authority}"), prefix: format!("/{prefix}") });
        }
        ServerSpec::parse(text).map(Source::Server)
    }
}

/// As it is written in the file.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Server(server) => write!(f, "{server}"),
            Source::Dns { host, port } if host.contains(':') => write!(f, "dns:[{host}]:{port}"),
            Source::Dns { host, port } => write!(f, "dns:{host}:{port}"),
            Source::Srv { name } => write!(f, "srv:{name}"),
            Source::Etcd { endpoint, prefix } => write!(f, "etcd:{endpoint}{prefix}"),
        }
    }
}

/// The servers, if nothing but servers is listed.
pub fn sources_are_fixed(sources: &[Source]) -> Option<Vec<ServerSpec>> {
    let server = |source: &Source| match source {
        Source::Server(server) => Some(server.clone()),
        _ => None,
    };
    sources.iter().map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_read_and_written_alike() {
        for text in [
            "10.0.0.1:11211",
            "dns:cache.example:11311",
            "srv:_memcached._tcp.example",
            "etcd:http://127.0.0.1:2379/nuthatch/shared/",
        ] {
            assert_eq!(Source::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Source::parse("dns:cache"), Ok(Source::Dns { host: "cache".to_owned(), port: 11211 }));
        let prefix = Source::parse("etcd:http://h:1/p").unwrap();
        assert_eq!(prefix, Source::Etcd { endpoint: "http://h:1".to_owned(), prefix: "/p".to_owned() });
    }

    #[test]
    fn what_is_no_source_says_what_was_expected() {
        for (text, expected) in [
            ("dns:", "dns: and HOST or HOST:PORT"),
            ("srv:memcached", "srv: and the name of SRV records, such as srv:_memcached._tcp.example"),
            ("srv:_m._tcp:5", "srv: and the name of SRV records, such as srv:_memcached._tcp.example"),
            ("etcd:127.0.0.1:2379/p", "etcd:http://HOST:PORT/PREFIX"),
            ("etcd:http://127.0.0.1:2379", "etcd:http://HOST:PORT/PREFIX"),
            ("etcd:http://127.0.0.1:2379/", "etcd:http://HOST:PORT/PREFIX"),
            ("", "a server, such as \"10.0.0.40:11211 weight=2\""),
        ] {
            assert_eq!(Source::parse(text), Err(expected.to_owned()), "{text}");
        }
    }
}
