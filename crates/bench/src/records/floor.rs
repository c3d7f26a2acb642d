//! The least that a cache in another process takes: a thread that answers every `get` with the record it names and every `set`
//! with `STORED`, and does nothing else. The same event loop as Nuthatch's workers have, the same bytes on the same kind of socket.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
    _scratch: Scratch,
}

impl Floor {
    pub(super) fn start() -> Result<Floor, Failure> {
        let failed = |error: io::Error| Failure::run(format!("bench: expected a thread that answers: {error}"));
        let scratch = Scratch::new()?;
        let address = scratch.socket("floor");
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
                    () = accept(listener) => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("floor".to_owned()).spawn(serving).map_err(failed)?;
        Ok(Floor { address, thread: Some((stop, thread)), _scratch: scratch })
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

async fn accept(listener: UnixListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // A client that goes ends its connection.
        tokio::spawn(async { drop(serve(stream).await) });
    }
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
