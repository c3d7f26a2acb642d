//! Opening listening sockets: TCP over IPv4 and IPv6, UNIX, UDP. Nothing is opened but what was asked for, and nothing is
//! accepted here.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::settings::Address;

/// An open listening socket, or the one socket of a UDP listener; non-blocking.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) socket: Socket,
    /// The address it really has: the port the system chose instead of 0.
    pub(crate) address: Address,
    /// The file of a UNIX socket.
    pub(crate) file: Option<SocketFile>,
}

/// The file of a UNIX socket, told from another that may have taken its place since.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<SocketFile> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(SocketFile { path: path.to_path_buf(), device: file.dev(), inode: file.ino() })
    }

    /// Whether clients that connect to the path still come to this socket.
    pub(crate) fn is_there(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }

    /// Changes the permission bits.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(mode & 0o777))
    }
}

/// The file goes with the socket, unless it is another one by then.
impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there() {
            // Nobody connects to what nobody listens on: a file that stays is replaced by the next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens `address`. The error says what could not be opened and why.
pub(crate) fn bind(address: &Address, backlog: i32) -> Result<Bound, BindError> {
    let error = |source| BindError { address: address.clone(), source };
    match address {
        Address::Tcp(wanted) => bind_tcp(*wanted, backlog).map_err(error),
        Address::Udp(wanted) => bind_udp(*wanted).map_err(error),
        Address::Unix { path, mode } => bind_unix(path, *mode, backlog).map_err(error),
    }
}

/// A listening socket could not be opened.
#[derive(Debug)]
pub struct BindError {
    address: Address,
    source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.source)
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

fn bind_tcp(wanted: SocketAddr, backlog: i32) -> io::Result<Bound> {
    let socket = Socket::new(Domain::for_address(wanted), Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_address(true)?;
    if wanted.is_ipv6() {
        // An IPv6 wildcard must not take the IPv4 port as well: that listener is opened on its own.
        socket.set_only_v6(true)?;
    }
    socket.bind(&wanted.into())?;
    socket.listen(backlog)?;
    let address = Address::Tcp(local_address(&socket)?);
    Ok(Bound { socket, address, file: None })
}

/// A datagram that finds the receive buffer full is lost; ask for as much as the system lets us have.
const UDP_BUFFER_BYTES: usize = 8 * 1024 * 1024;

fn bind_udp(wanted: SocketAddr) -> io::Result<Bound> {
    let socket = Socket::new(Domain::for_address(wanted), Type::DGRAM.nonblocking(), None)?;
    if wanted.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_recv_buffer_size(UDP_BUFFER_BYTES)?;
    socket.bind(&wanted.into())?;
    let address = Address::Udp(local_address(&socket)?);
    Ok(Bound { socket, address, file: None })
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("the socket has no internet address"))
}

fn bind_unix(path: &Path, mode: u32, backlog: i32) -> io::Result<Bound> {
    remove_stale_socket(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::at(path)?;
    // Before listen(): until then nobody can connect, whatever the file's permissions.
    file.set_mode(mode)?;
    socket.listen(backlog)?;
    Ok(Bound { socket, address: Address::Unix { path: path.to_path_buf(), mode }, file: Some(file) })
}

/// The descriptor of a listening socket, for `stats conns`.
pub(crate) fn descriptor(socket: &Socket) -> i32 {
    socket.as_raw_fd()
}

/// Removes the socket file a dead server left behind. One that a live server answers on, or a file that is no socket,
/// is left alone and is an error.
fn remove_stale_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file exists and is not a socket"))
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server answers there")),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("nuthatch-listen-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        folder.join(name)
    }

    #[test]
    fn the_system_chooses_a_port_and_a_second_listener_on_it_is_refused() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let first = bind(&Address::Tcp(any), 16).expect("a free port");
        let Address::Tcp(taken) = first.address else { panic!("a TCP listener has a TCP address") };
        assert_ne!(taken.port(), 0);
        let error = bind(&Address::Tcp(taken), 16).expect_err("the port is in use").to_string();
        assert!(error.starts_with(&format!("cannot listen on {taken}: ")), "{error}");
    }

    #[test]
    fn a_dead_servers_socket_file_is_replaced_and_a_live_ones_is_not() {
        let path = scratch("stale.sock");
        let address = Address::Unix { path: path.clone(), mode: 0o640 };
        let mut dead = bind(&address, 16).expect("a new socket file");
        std::mem::forget(dead.file.take());
        drop(dead);
        let live = bind(&address, 16).expect("the stale file is replaced");
        let mode = std::fs::metadata(&path).expect("the socket file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let error = bind(&address, 16).expect_err("a live server listens").to_string();
        assert!(error.ends_with("another server answers there"), "{error}");
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_file_that_took_the_place_of_ours_is_left_alone() {
        let path = scratch("taken.sock");
        let address = Address::Unix { path: path.clone(), mode: 0o600 };
        let first = bind(&address, 16).expect("a new socket file");
        std::fs::remove_file(&path).expect("the socket file");
        let second = bind(&address, 16).expect("another socket file");
        let is_there = |bound: &Bound| bound.file.as_ref().is_some_and(SocketFile::is_there);
        assert!(!is_there(&first) && is_there(&second));
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let path = scratch("precious.txt");
        std::fs::write(&path, "data").expect("a file");
        let error = bind(&Address::Unix { path: path.clone(), mode: 0o700 }, 16).expect_err("not a socket");
        assert!(error.to_string().ends_with("the file exists and is not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "data");
        std::fs::remove_file(path).expect("the file is there");
    }
}
