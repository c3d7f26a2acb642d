//! The task behind a link that has a connection: it connects, sends what the link has gathered, and reads the answers.
//!
//! Owns the socket and the two buffers that are in use with it. Deadlines are not its business: whoever keeps them ends
//! the link's generation, and the task notices when it is woken.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::Error;
use super::config::ServerAddr;
use super::link::{End, Link, Next};

/// How large the buffer for answers is at first.
const INPUT_BYTES: usize = 16 << 10;
/// How large it becomes when answers fill it.
const INPUT_BYTES_FULL: usize = 128 << 10;
/// Buffers beyond this are given back when they are empty.
const KEPT_BYTES: usize = 512 << 10;

/// Starts the connection of a link's generation.
pub(super) fn spawn(link: Arc<Link>, runtime: Handle, generation: u64) {
    let connecting = Box::pin(connect(link.server().addr.clone()));
    runtime.spawn(Driver {
        link,
        generation,
        connection: Connection::Opening(connecting),
        input: Input::new(),
        output: Vec::new(),
        output_sent: 0,
        wakers: Vec::new(),
    });
}

struct Driver {
    link: Arc<Link>,
    generation: u64,
    connection: Connection,
    input: Input,
    output: Vec<u8>,
    output_sent: usize,
    wakers: Vec<Waker>,
}

enum Connection {
    Opening(Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>),
    Open(Stream),
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Connection::Opening(connecting) = &mut this.connection {
            match connecting.as_mut().poll(context) {
                Poll::Ready(Ok(stream)) => {
                    this.link.opened(this.generation);
                    this.connection = Connection::Open(stream);
                }
                Poll::Ready(Err(error)) => {
                    let server = this.link.server().label.clone();
                    let error = Error::Connect { server, why: error.to_string().into() };
                    this.link.end(this.generation, End::Connect, &error);
                    return Poll::Ready(());
                }
                Poll::Pending => {
                    return match this.link.sleep(this.generation, context.waker()) {
                        Next::Over => Poll::Ready(()),
                        _ => Poll::Pending,
                    };
                }
            }
        }
        this.serve(context)
    }
}

impl Driver {
    fn serve(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Connection::Open(stream) = &mut self.connection else { return Poll::Ready(()) };
        while let Poll::Ready(read) = self.input.fill(stream, context) {
            match read {
                Ok(0) => {
                    self.link.closed(self.generation);
                    return Poll::Ready(());
                }
                Ok(_) => {
                    let goes_on = self.link.take_in(self.generation, &mut self.input, &mut self.wakers);
                    self.wakers.drain(..).for_each(Waker::wake);
                    if !goes_on {
                        return Poll::Ready(());
                    }
                }
                Err(error) => return self.failed(&error),
            }
        }
        loop {
            if self.output_sent == self.output.len() {
                self.output.clear();
                self.output_sent = 0;
                self.output.shrink_to(KEPT_BYTES);
                match self.link.take_out(self.generation, &mut self.output, context.waker()) {
                    Next::Send => {}
                    Next::Sleep => return Poll::Pending,
                    Next::Over => return Poll::Ready(()),
                }
            }
            match Pin::new(&mut *stream).poll_write(context, &self.output[self.output_sent..]) {
                Poll::Ready(Ok(sent_bytes)) => self.output_sent += sent_bytes,
                Poll::Ready(Err(error)) => return self.failed(&error),
                Poll::Pending => {
                    return match self.link.sleep(self.generation, context.waker()) {
                        Next::Over => Poll::Ready(()),
                        _ => Poll::Pending,
                    };
                }
            }
        }
    }

    fn failed(&self, error: &io::Error) -> Poll<()> {
        self.link.end(self.generation, End::Loss, &self.link.lost(error));
        Poll::Ready(())
    }
}

impl Drop for Driver {
    /// A runtime that ends drops its tasks; nobody shall wait for an answer that no one will read.
    fn drop(&mut self) {
        let server = self.link.server().label.clone();
        self.link.end(self.generation, End::Stop, &Error::Stopped { server });
    }
}

/// Bytes received and not yet understood.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    received: u64,
}

impl Input {
    fn new() -> Input {
        Input { buffer: vec![0; INPUT_BYTES], start: 0, end: 0, received: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// How many bytes have come since this was last asked.
    pub(super) fn take_received(&mut self) -> u64 {
        std::mem::take(&mut self.received)
    }

    /// So many bytes have been understood.
    pub(super) fn used(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.end);
    }

    /// Makes room for an answer of which at least this much is needed.
    pub(super) fn need(&mut self, need_bytes: usize) {
        if self.start + need_bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if need_bytes > self.buffer.len() {
                self.buffer.resize(need_bytes, 0);
            }
        }
    }

    fn fill(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.start == self.end {
            let was_full = self.end == self.buffer.len();
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > KEPT_BYTES {
                self.buffer = vec![0; INPUT_BYTES_FULL];
            } else if was_full && self.buffer.len() < INPUT_BYTES_FULL {
                self.buffer.resize(INPUT_BYTES_FULL, 0);
            }
        } else if self.end == self.buffer.len() {
            self.need(self.end - self.start + 1);
        }
        let mut buffer = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
        let read_bytes = buffer.filled().len();
        self.end += read_bytes;
        self.received += read_bytes as u64;
        Poll::Ready(Ok(read_bytes))
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

async fn connect(addr: ServerAddr) -> io::Result<Stream> {
    match addr {
        ServerAddr::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream))
        }
        ServerAddr::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
    }
}

impl AsyncRead for Stream {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
