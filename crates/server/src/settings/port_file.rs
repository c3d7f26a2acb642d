//! The file named by `MEMCACHED_PORT_FILENAME`: which ports were bound, for programs that started the server on a free one.
//!
//! The program calls [`write()`] when every listener is bound, and again after a reload.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// One bound address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A TCP listener.
    Tcp(SocketAddr),
    /// A UDP listener.
    Udp(SocketAddr),
}

/// Writes one line per address, `TCP INET: 11211`, `UDP INET6: 11211` and so on, in memcached's form.
///
/// A reader that finds the file finds all of it: it is written beside its place as `<path>.lck` and moved there.
pub fn write(path: &Path, bound: &[Bound]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".lck");
    let mut file = fs::File::create(&unfinished)?;
    for address in bound {
        let (name, address) = match address {
            Bound::Tcp(address) => ("TCP", address),
            Bound::Udp(address) => ("UDP", address),
        };
        let family = if address.is_ipv4() { "INET" } else { "INET6" };
        writeln!(file, "{name} {family}: {}", address.port())?;
    }
    drop(file);
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_port_is_a_line_and_no_unfinished_file_stays() {
        let dir = std::env::temp_dir().join(format!("nuthatch-port-file-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("ports");
        let bound = [Bound::Tcp("127.0.0.1:4000".parse().unwrap()), Bound::Udp("[::1]:4001".parse().unwrap())];
        write(&path, &bound).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "TCP INET: 4000\nUDP INET6: 4001\n");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }
}
