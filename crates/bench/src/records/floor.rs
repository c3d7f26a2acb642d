//! The least that a cache in another process takes: a thread that answers every `get` with the record it names and every `set`
//! with `STORED` and does nothing else; and the least that anything between a client and its database takes: a thread that passes
//! bytes on. The same event loop as Nuthatch's workers have, the same kind of socket.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use super::CHARACTERS;
use crate::address::Address;
use crate::failure::Failure;
use crate::launch::Scratch;

/// Ends with the value.
pub(super) struct Floor {
    pub(super) address: Address,
    thread: Option<(oneshot::Sender<()>, std::thread::JoinHandle<()>)>,
    scratch: Scratch,
}

/// What a thread does with who connects.
#[derive(Clone, Debug)]
enum Part {
    Answer,
    /// To the server on this socket, and back.
    PassOn(PathBuf),
}

impl Floor {
    /// A thread that answers.
    pub(super) fn answering() -> Result<Floor, Failure> {
        Floor::start("floor", Part::Answer)
    }

    /// A thread that passes bytes on to the server on the socket `target`, and the URL of `database` by way of it; `None` where the
    /// URL names no socket.
    pub(super) fn passing_on(database: &str) -> Result<Option<(Floor, String)>, Failure> {
        const SOCKET: &str = "?socket=";
        let Some((before, target)) = database.split_once(SOCKET) else { return Ok(None) };
        // PostgreSQL's sockets are named by their directory.
        let name = if database.starts_with("postgres:") { ".s.PGSQL.5432" } else { "sock" };
        let target = if name == "sock" { PathBuf::from(target) } else { Path::new(target).join(name) };
        let floor = Floor::start(name, Part::PassOn(target))?;
        let path = floor.scratch.path();
        let socket = if name == "sock" { path.join(name) } else { path.to_owned() };
        let url = format!("{before}{SOCKET}{}", socket.display());
        Ok(Some((floor, url)))
    }

    fn start(name: &str, part: Part) -> Result<Floor, Failure> {
        let failed = |error: io::Error| Failure::run(format!("bench: expected a thread that listens: {error}"));
        let scratch = Scratch::new()?;
        let address = scratch.socket(name);
        let Address::Unix(path) = &address else { unreachable!("a scratch directory's sockets are UNIX sockets") };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(path).map_err(failed)?
        };
        let (stop, stopped) = oneshot::channel();
        let serving = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, &part) => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("floor".to_owned()).spawn(serving).map_err(failed)?;
        Ok(Floor { address, thread: Some((stop, thread)), scratch })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

async fn accept(listener: UnixListener, part: &Part) {
    while let Ok((stream, _)) = listener.accept().await {
        // A client that goes ends its connection.
        match part.clone() {
            Part::Answer => tokio::spawn(async { drop(serve(stream).await) }),
            Part::PassOn(target) => tokio::spawn(async move { drop(pass_on(stream, &target).await) }),
        };
    }
}

async fn pass_on(mut stream: UnixStream, target: &Path) -> io::Result<()> {
    let mut server = UnixStream::connect(target).await?;
    copy_bidirectional(&mut stream, &mut server).await.map(drop)
}

async fn serve(mut stream: UnixStream) -> io::Result<()> {
    let mut asked = Vec::with_capacity(4096);
    let mut answer = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut asked).await? == 0 {
            return Ok(());
        }
        let lines = asked.iter().filter(|&&byte| byte == b'\n').count();
        let is_get = asked.starts_with(b"get ");
        if lines < if is_get { 1 } else { 2 } {
            continue;
        }
        answer.clear();
        if is_get {
            let key = asked[4..].trim_ascii_end();
            let number = key.rsplit(|&byte| byte == b'-').next().unwrap_or_default();
            answer.extend_from_slice(b"VALUE ");
            answer.extend_from_slice(key);
            answer.extend_from_slice(format!(" 0 {CHARACTERS}\r\n").as_bytes());
            let (from, half) = (answer.len(), CHARACTERS / 2);
            answer.resize(from + CHARACTERS, b'0');
            answer[from + half - number.len().min(half)..from + half]
                .copy_from_slice(&number[..number.len().min(half)]);
            answer.extend_from_slice(b"\r\nEND\r\n");
        } else {
            answer.extend_from_slice(b"STORED\r\n");
        }
        asked.clear();
        stream.write_all(&answer).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_passed_on_arrives_and_so_does_its_answer() {
        let floor = Floor::answering().unwrap();
        let target = floor.scratch.path().join("floor");
        let database = format!("mysql://root@localhost/test?socket={}", target.display());
        let (passing, url) = Floor::passing_on(&database).unwrap().unwrap();
        let (before, socket) = url.split_once("?socket=").unwrap();
        assert_eq!(before, "mysql://root@localhost/test");
        assert_eq!(passing.address, Address::Unix(socket.into()));
        let mut client = UnixStream::connect(socket).unwrap();
        client.write_all(b"set key-1 0 0 1\r\nx\r\n").unwrap();
        let mut answer = [0; 8];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"STORED\r\n");
    }

    #[test]
    fn a_database_without_a_socket_is_not_passed_on_to() {
        assert!(Floor::passing_on("mysql://root@localhost/test").unwrap().is_none());
    }
}
