//! A web server's address: `http://HOST[:PORT]`.

use std::fmt;
use std::str::FromStr;

/// Where a web server is. The name is looked up each time a connection is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    host: String,
    port: u16,
}

/// What was written is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAddressError;

impl fmt::Display for ServerAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("http://HOST or http://HOST:PORT")
    }
}

impl std::error::Error for ServerAddressError {}

impl ServerAddress {
    /// Name or literal address, IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// As a `Host` field names it.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == 80 { host } else { format!("{host}:{}", self.port) }
    }
}

impl FromStr for ServerAddress {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<ServerAddress, ServerAddressError> {
        let rest = text.strip_prefix("http://").ok_or(ServerAddressError)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let uri: http::uri::Authority = rest.parse().map_err(|_| ServerAddressError)?;
        let host = uri.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let has_port = rest.rsplit_once(':').is_some_and(|(_, after)| !after.ends_with(']'));
        let port = match (uri.port_u16(), has_port) {
            (Some(port), _) => port,
            (None, false) => 80,
            (None, true) => return Err(ServerAddressError),
        };
        match host.is_empty() || rest.contains('@') || port == 0 {
            true => Err(ServerAddressError),
            false => Ok(ServerAddress { host, port }),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_without_a_path() {
        for (text, host, port, shown) in [
            ("http://127.0.0.1:8000", "127.0.0.1", 8000, "http://127.0.0.1:8000"),
            ("http://wiki.example", "wiki.example", 80, "http://wiki.example"),
            ("http://wiki.example:80/", "wiki.example", 80, "http://wiki.example"),
            ("http://[::1]:81", "::1", 81, "http://[::1]:81"),
            ("http://[::1]", "::1", 80, "http://[::1]"),
        ] {
            let address: ServerAddress = text.parse().expect(text);
            assert_eq!((address.host(), address.port(), address.to_string().as_str()), (host, port, shown));
        }
        for wrong in [
            "",
            "127.0.0.1:8000",
            "https://a",
            "http://",
            "http://a/b",
            "http://a:",
            "http://a:99999",
            "http://a:0",
            "http://u@a",
            "http://a b",
        ] {
            assert_eq!(wrong.parse::<ServerAddress>(), Err(ServerAddressError), "{wrong}");
        }
    }
}
