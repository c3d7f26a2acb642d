//! Where a server is, and opening a connection to it.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The port of a memcached that was not told another.
const PORT_DEFAULT: u16 = 11211;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `HOST` or `HOST:PORT`, as it was given.
    Tcp(String),
    /// The path of a UNIX stream socket.
    Unix(PathBuf),
}

impl Address {
    /// From the command line: `unix:PATH`, a path with a slash, `HOST:PORT` or `HOST`.
    pub(crate) fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("expected a path after unix:".to_owned()),
                path => Ok(Address::Unix(path.into())),
            };
        }
        if text.contains('/') {
            return Ok(Address::Unix(text.into()));
        }
        match text.rsplit_once(':') {
            _ if text.is_empty() => Err("expected HOST:PORT or the path of a UNIX socket, it is empty".to_owned()),
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse::<u16>() {
                Ok(1..) => Ok(Address::Tcp(text.to_owned())),
                _ => Err(format!("expected a port of 1 to 65535 after the colon, it is {port:?}")),
            },
            // An IPv6 address without a port has to be told from one with it.
            Some(_) if !text.ends_with(']') => Ok(Address::Tcp(format!("[{text}]:{PORT_DEFAULT}"))),
            _ => Ok(Address::Tcp(format!("{text}:{PORT_DEFAULT}"))),
        }
    }

    /// Opens a connection whose writes leave at once.
    pub(crate) fn connect(&self) -> io::Result<OwnedFd> {
        match self {
            Address::Tcp(text) => {
                let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                for place in text.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&place, CONNECT_TIMEOUT) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(stream.into());
                        }
                        Err(error) => failed = error,
                    }
                }
                Err(failed)
            }
            Address::Unix(path) => Ok(UnixStream::connect(path)?.into()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(text) => f.write_str(text),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart_by_their_shape() {
        for (text, shown) in [
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("cache.example", "cache.example:11211"),
            ("[::1]:7", "[::1]:7"),
            ("[::1]", "[::1]:11211"),
            ("::1", "[::1]:11211"),
            ("/run/cache.sock", "unix:/run/cache.sock"),
            ("unix:cache.sock", "unix:cache.sock"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), shown);
        }
        assert_eq!(Address::parse("host:0").unwrap_err(), "expected a port of 1 to 65535 after the colon, it is \"0\"");
        assert_eq!(Address::parse("unix:").unwrap_err(), "expected a path after unix:");
        assert!(Address::parse("").is_err());
    }
}
