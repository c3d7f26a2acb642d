//! A client's byte stream: TCP, UNIX, or TLS over TCP. Used by the connection alone; it decodes nothing, and what
//! buffers TLS needs are [`super::tls`]'s.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::tls::TlsStream;

/// A connected socket. TLS is boxed, so that the others stay small.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Reads what is there into `buffer`: the number of bytes, 0 at the end of the stream. `AsyncRead` rather than
    /// `try_read`, because it clears the readiness after a short read and so saves the read that would say EAGAIN.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(buffer);
        let outcome = match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Stream::Tls(stream) => return stream.poll_read(cx, buffer.initialize_unfilled()),
        };
        outcome.map_ok(|()| buffer.filled().len())
    }

    /// Writes as much of `bytes` as the socket takes.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => stream.poll_write(cx, bytes),
        }
    }

    /// Writes as much of `slices`, in order, as the socket takes.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Tls(stream) => stream.poll_write_vectored(cx, slices),
        }
    }

    /// Sends what was taken by a write and is not on its way yet.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // The kernel has it.
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => stream.poll_flush(cx),
        }
    }

    /// Says to the client that nothing more comes, where that is not said by closing the socket; [`Stream::poll_flush`]
    /// tells when what is pending is on its way.
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(()),
            Stream::Tls(stream) => stream.poll_close(cx),
        }
    }

    /// Sends no more. What the client sends can still be read.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        let done = match self {
            Stream::Tcp(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
            Stream::Unix(stream) => SockRef::from(stream).shutdown(Shutdown::Write),
            Stream::Tls(stream) => SockRef::from(stream.socket()).shutdown(Shutdown::Write),
        };
        // A client that has gone is not waited for.
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected) { Ok(()) } else { done }
    }

    /// Whether client and server are still agreeing on how to talk.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.is_handshaking())
    }

    /// What client and server have agreed to speak, if they did so before they began (ALPN, RFC 7301).
    pub(crate) fn agreed(&self) -> Option<&[u8]> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => None,
            Stream::Tls(stream) => stream.agreed(),
        }
    }

    /// Memory that grows with what the client does.
    pub(crate) fn owned_bytes(&self) -> usize {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => 0,
            Stream::Tls(stream) => stream.owned_bytes(),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
            Stream::Tls(stream) => stream.socket().as_raw_fd(),
        }
    }
}
