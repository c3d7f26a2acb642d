//! A web server's address: `http://HOST[:PORT]` or `https://HOST[:PORT]`.

use std::fmt;
use std::str::FromStr;

use tokio_rustls::rustls::pki_types::ServerName;

/// Where a web server is. The name is looked up each time a connection is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    host: String,
    port: u16,
    /// For whom its certificate is to be; none where it is spoken to in the clear.
    tls_name: Option<ServerName<'static>>,
}

/// What was written is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerAddressError;

impl fmt::Display for ServerAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("http://HOST:PORT or https://HOST:PORT")
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

    /// Its host as the subject of a certificate, where TLS is spoken.
    pub fn tls_name(&self) -> Option<&ServerName<'static>> {
        self.tls_name.as_ref()
    }

    /// As a `Host` field names it.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.tls_name.is_some()) { host } else { format!("{host}:{}", self.port) }
    }
}

fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

impl FromStr for ServerAddress {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<ServerAddress, ServerAddressError> {
        let (is_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(ServerAddressError),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let uri: http::uri::Authority = rest.parse().map_err(|_| ServerAddressError)?;
        let host = uri.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let has_port = rest.rsplit_once(':').is_some_and(|(_, after)| !after.ends_with(']'));
        let port = match (uri.port_u16(), has_port) {
            (Some(port), _) => port,
            (None, false) => default_port(is_tls),
            (None, true) => return Err(ServerAddressError),
        };
        if host.is_empty() || rest.contains('@') || port == 0 {
            return Err(ServerAddressError);
        }
        let tls_name =
            is_tls.then(|| ServerName::try_from(host.clone())).transpose().map_err(|_| ServerAddressError)?;
        Ok(ServerAddress { host, port, tls_name })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.tls_name.is_some() { "https" } else { "http" }, self.authority())
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
            ("https://wiki.example", "wiki.example", 443, "https://wiki.example"),
            ("https://wiki.example:80", "wiki.example", 80, "https://wiki.example:80"),
            ("https://[::1]:443/", "::1", 443, "https://[::1]"),
        ] {
            let address: ServerAddress = text.parse().expect(text);
            assert_eq!((address.host(), address.port(), address.to_string().as_str()), (host, port, shown));
            assert_eq!(address.tls_name().is_some(), text.starts_with("https"), "{text}");
        }
        for wrong in [
            "",
            "127.0.0.1:8000",
            "ftp://a",
            "https://",
            "https://a.-",
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
