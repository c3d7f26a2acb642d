//! A client's byte stream over TLS. Used by [`super::Stream`] alone, which looks the same to a connection with and
//! without.
//!
//! What arrives is read into a buffer that a worker's connections share, decrypted there and copied to where the
//! connection wants it; answers are encrypted into another one and written from there. A connection owns only what
//! cannot go on yet: a record that has not arrived whole, plaintext that was not asked for, a piece of an answer that
//! the socket did not take. All of that is bounded: by [`INCOMING_BYTES_KEPT_MAX`], by what one read brings, by the
//! size of one piece.
//!
//! | phase | reading brings | ends when |
//! |---|---|---|
//! | handshake | nothing; answers to it are sent on the way | it is done, failed, or took too long (`worker::sweep`) |
//! | open | plaintext | the client says so or leaves |
//! | closed by the client | the end | what is still to be sent is sent |

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::HandshakeKind;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::counters::{Counters, ListenerCounter};
use crate::tls::ListenerTls;

/// Encrypted bytes one read may bring, with those kept from before: nine records at most.
const INCOMING_BYTES: usize = 144 * 1024;

/// The most a client may send before a record or a message of the handshake is whole: the largest message is 64 KiB.
const INCOMING_BYTES_KEPT_MAX: usize = 80 * 1024;

/// The least that is read at once, however little plaintext is asked for: a record may be larger than its plaintext
/// that is missing.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Reads that may bring no plaintext before other connections get their turn.
const EMPTY_READS_MAX: usize = 8;

/// What a worker's connections share. Means nothing between two calls.
#[derive(Default)]
struct Scratch {
    /// Encrypted bytes as they arrive.
    incoming: Vec<u8>,
    /// Pieces of an answer, gathered to be encrypted as one.
    plain: Vec<u8>,
    /// What is to be sent.
    outgoing: Vec<u8>,
}

thread_local! {
    // Empty until the worker's first connection with TLS.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A TLS connection over a socket. What a connection calls of it is not inlined: the plain streams' path is to stay
/// small.
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: UnbufferedServerConnection,
    /// Received, and not whole.
    incoming: Vec<u8>,
    /// Decrypted, and not asked for yet.
    plain: Left,
    /// Encrypted, and not taken by the socket yet.
    outgoing: Left,
    write_bytes: usize,
    is_handshaking: bool,
    /// Whether the client has sent anything at all.
    has_begun: bool,
    /// The client sends no more.
    is_closed: bool,
    /// The client was told that no more is sent.
    has_said_so: bool,
    counters: Arc<Counters<ListenerCounter>>,
    worker: usize,
}

/// Bytes of which the first are done with.
#[derive(Default)]
struct Left {
    bytes: Vec<u8>,
    start: usize,
}

impl Left {
    fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Marks the next `n` bytes as done with, and gives the memory back after the last.
    fn advance(&mut self, n: usize) {
        self.start += n;
        if self.is_empty() {
            *self = Left::default();
        }
    }

    /// Copies what fits into `buffer`.
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let bytes = buffer.len().min(self.rest().len());
        buffer[..bytes].copy_from_slice(&self.rest()[..bytes]);
        self.advance(bytes);
        bytes
    }
}

/// Where plaintext goes: into the reader's buffer, and what does not fit beside it.
struct Sink<'a> {
    buffer: &'a mut [u8],
    filled: usize,
    left: &'a mut Left,
}

impl Sink<'_> {
    fn put(&mut self, payload: &[u8]) {
        let fits = payload.len().min(self.buffer.len() - self.filled);
        self.buffer[self.filled..self.filled + fits].copy_from_slice(&payload[..fits]);
        self.filled += fits;
        self.left.bytes.extend_from_slice(&payload[fits..]);
    }
}

/// What processing came to.
enum Progress {
    /// Everything whole is processed; nothing can be sent before the handshake is done.
    Blocked,
    /// The same, and plaintext may be sent: what was asked for was encrypted.
    Open,
    /// The client has said that it sends no more, in the bytes that were just processed.
    Closed,
}

/// What is to be sent once the session allows it.
#[derive(Clone, Copy)]
enum Payload<'a> {
    Nothing,
    Plain(&'a [u8]),
    CloseNotify,
}

impl TlsStream {
    /// A connection whose client has sent nothing yet. Counts handshakes and errors in its listener's `counters`, as
    /// thread `worker`.
    pub(crate) fn new(
        socket: TcpStream,
        tls: &ListenerTls,
        counters: Arc<Counters<ListenerCounter>>,
        worker: usize,
    ) -> io::Result<TlsStream> {
        Ok(TlsStream {
            socket,
            session: UnbufferedServerConnection::new(tls.config()).map_err(io::Error::other)?,
            incoming: Vec::new(),
            plain: Left::default(),
            outgoing: Left::default(),
            write_bytes: tls.write_bytes,
            is_handshaking: true,
            has_begun: false,
            is_closed: false,
            has_said_so: false,
            counters,
            worker,
        })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.is_handshaking
    }

    /// What client and server have agreed to speak, by ALPN.
    pub(crate) fn agreed(&self) -> Option<&[u8]> {
        self.session.alpn_protocol().filter(|_| !self.is_handshaking)
    }

    /// Memory of its own that it takes up beyond what it always has.
    pub(crate) fn owned_bytes(&self) -> usize {
        self.incoming.capacity() + self.plain.bytes.capacity() + self.outgoing.bytes.capacity()
    }

    /// Reads plaintext: the number of bytes, 0 at the end of the stream. Takes the handshake along until there is some.
    #[inline(never)]
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.plain.is_empty() {
            return Poll::Ready(Ok(self.plain.take(buffer)));
        }
        // A client that makes us answer on the level of TLS has to take the answers.
        ready!(self.poll_flush(cx))?;
        if self.is_closed {
            return Poll::Ready(Ok(0));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            if scratch.incoming.is_empty() {
                scratch.incoming = vec![0; INCOMING_BYTES];
            }
            for _ in 0..EMPTY_READS_MAX {
                let bytes = ready!(self.read_socket(cx, &mut scratch.incoming, buffer.len()))?;
                if bytes == 0 {
                    return Poll::Ready(self.end());
                }
                let mut sink = Sink { buffer, filled: 0, left: &mut self.plain };
                let Scratch { incoming, outgoing, .. } = scratch;
                outgoing.clear();
                let processed =
                    process(&mut self.session, &mut incoming[..bytes], &mut sink, outgoing, Payload::Nothing);
                let filled = sink.filled;
                // An alert goes out even if there is nothing to go on with.
                let sent = self.send(cx, outgoing);
                self.note_handshake();
                let (used, progress) = processed.map_err(|error| self.fail(error))?;
                sent?;
                self.keep(&scratch.incoming[used..bytes])?;
                self.is_closed |= matches!(progress, Progress::Closed);
                if filled > 0 || self.is_closed {
                    return Poll::Ready(Ok(filled));
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
    }

    /// Puts what was kept and what the socket has into `incoming`; the number of bytes there, 0 at the end of the
    /// stream.
    fn read_socket(&mut self, cx: &mut Context<'_>, incoming: &mut [u8], wanted: usize) -> Poll<io::Result<usize>> {
        let kept = self.incoming.len();
        let end = (kept + wanted.max(READ_BYTES_MIN)).min(incoming.len());
        let mut room = ReadBuf::new(&mut incoming[kept..end]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room)).map_err(|error| self.lost(error))?;
        let bytes = room.filled().len();
        if bytes == 0 {
            return Poll::Ready(Ok(0));
        }
        self.has_begun = true;
        incoming[..kept].copy_from_slice(&self.incoming);
        self.incoming = Vec::new();
        Poll::Ready(Ok(kept + bytes))
    }

    /// The socket has no more. Between two records that is how many clients leave; within one, or within a handshake,
    /// it is an error.
    fn end(&mut self) -> io::Result<usize> {
        if self.has_begun && (self.is_handshaking || !self.incoming.is_empty()) {
            return Err(
                self.fail(rustls::Error::General("the client left in the middle of a record or handshake".to_owned()))
            );
        }
        self.is_closed = true;
        Ok(0)
    }

    fn note_handshake(&mut self) {
        if self.is_handshaking && !self.session.is_handshaking() {
            self.is_handshaking = false;
            if self.session.handshake_kind() != Some(HandshakeKind::Resumed) {
                self.count(ListenerCounter::TlsSessions);
            }
        }
    }

    /// Keeps what has not arrived whole.
    fn keep(&mut self, rest: &[u8]) -> io::Result<()> {
        if rest.len() > INCOMING_BYTES_KEPT_MAX {
            return Err(self.fail(rustls::Error::General("a handshake message is too long".to_owned())));
        }
        self.incoming = rest.to_vec();
        Ok(())
    }

    /// Encrypts a piece of `bytes` and sends it; the number of bytes that are done with. They may still be on their
    /// way: [`TlsStream::poll_flush`] tells.
    #[inline(never)]
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let piece = &bytes[..bytes.len().min(self.write_bytes)];
        SCRATCH.with_borrow_mut(|scratch| self.encrypt(cx, Payload::Plain(piece), &mut scratch.outgoing))?;
        Poll::Ready(Ok(piece.len()))
    }

    /// [`TlsStream::poll_write`] of several slices.
    #[inline(never)]
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [first, ..] = slices
            && first.len() >= self.write_bytes
        {
            return self.poll_write(cx, first);
        }
        ready!(self.poll_flush(cx))?;
        SCRATCH.with_borrow_mut(|Scratch { plain, outgoing, .. }| {
            plain.clear();
            for slice in slices {
                let fits = slice.len().min(self.write_bytes - plain.len());
                plain.extend_from_slice(&slice[..fits]);
            }
            self.encrypt(cx, Payload::Plain(plain), outgoing)?;
            Poll::Ready(Ok(plain.len()))
        })
    }

    /// Sends what was encrypted and not taken.
    #[inline(never)]
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, self.outgoing.rest()))
                .map_err(|error| self.lost(error))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the client that nothing more will come, if there is still a way to. Pending while that is not on its way.
    #[inline(never)]
    pub(crate) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_handshaking || ready!(self.poll_flush(cx)).is_err() || self.has_said_so {
            return Poll::Ready(());
        }
        self.has_said_so = true;
        match SCRATCH.with_borrow_mut(|scratch| self.encrypt(cx, Payload::CloseNotify, &mut scratch.outgoing)) {
            Ok(()) if !self.outgoing.is_empty() => Poll::Pending,
            // The connection is over, whatever became of this.
            _ => Poll::Ready(()),
        }
    }

    /// Encrypts `payload` and sends it. Nothing may be left to be sent from before.
    fn encrypt(&mut self, cx: &mut Context<'_>, payload: Payload<'_>, outgoing: &mut Vec<u8>) -> io::Result<()> {
        outgoing.clear();
        let mut sink = Sink { buffer: &mut [], filled: 0, left: &mut self.plain };
        let processed = process(&mut self.session, &mut self.incoming, &mut sink, outgoing, payload);
        let sent = self.send(cx, outgoing);
        let (used, progress) = processed.map_err(|error| self.fail(error))?;
        self.incoming.drain(..used);
        match progress {
            Progress::Blocked => Err(io::ErrorKind::NotConnected.into()),
            Progress::Open | Progress::Closed => sent,
        }
    }

    /// Sends `bytes`, after what is still to be sent; keeps what the socket does not take.
    fn send(&mut self, cx: &mut Context<'_>, mut bytes: &[u8]) -> io::Result<()> {
        while self.outgoing.is_empty() && !bytes.is_empty() {
            match Pin::new(&mut self.socket).poll_write(cx, bytes) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => bytes = &bytes[written..],
                Poll::Ready(Err(error)) => return Err(self.lost(error)),
                Poll::Pending => break,
            }
        }
        self.outgoing.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// The client broke the rules of TLS, or was not let in. Only that its keys are used up is not its doing.
    #[cold]
    fn fail(&mut self, error: rustls::Error) -> io::Error {
        if error == rustls::Error::EncryptError {
            return io::Error::new(io::ErrorKind::InvalidData, "its keys have served for as long as is safe");
        }
        self.count(match self.is_handshaking {
            true => ListenerCounter::TlsHandshakeErrors,
            false => ListenerCounter::TlsProtocolErrors,
        });
        io::Error::new(io::ErrorKind::InvalidData, error)
    }

    /// The socket is gone. Whoever leaves during the handshake did not get through it.
    #[cold]
    fn lost(&mut self, error: io::Error) -> io::Error {
        if self.is_handshaking && self.has_begun {
            self.count(ListenerCounter::TlsHandshakeErrors);
        }
        error
    }

    fn count(&self, counter: ListenerCounter) {
        self.counters.add(self.worker, counter, 1);
    }
}

/// Processes what is whole in `incoming`, and then what is to be sent: plaintext goes to `sink`, encrypted bytes to
/// `outgoing`. Returns how many bytes of `incoming` are done with; the others have to stand in front the next time.
fn process(
    session: &mut UnbufferedServerConnection,
    incoming: &mut [u8],
    sink: &mut Sink<'_>,
    outgoing: &mut Vec<u8>,
    mut payload: Payload<'_>,
) -> Result<(usize, Progress), rustls::Error> {
    let mut used = 0;
    let mut is_closed = false;
    // TLS 1.2 has no way to change keys that have served for as long as is safe.
    let mut is_exhausted = false;
    loop {
        let UnbufferedStatus { discard, state } = session.process_tls_records(&mut incoming[used..]);
        used += discard;
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    used += record.discard;
                    sink.put(record.payload);
                }
            }
            Ok(ConnectionState::EncodeTlsData(mut message)) => {
                append(outgoing, 0, |room| message.encode(room).map_err(unencoded));
            }
            // `outgoing` is sent as soon as this returns.
            Ok(ConnectionState::TransmitTlsData(transmission)) => transmission.done(),
            Ok(ConnectionState::PeerClosed) => is_closed = true,
            Ok(ConnectionState::Closed) => return Ok((used, Progress::Closed)),
            Ok(ConnectionState::WriteTraffic(_)) if is_exhausted => return Err(rustls::Error::EncryptError),
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                let is_sent = match payload {
                    Payload::Nothing => true,
                    Payload::Plain(piece) => append(outgoing, encrypted_bytes(piece.len()), |room| {
                        traffic.encrypt(piece, room).map_err(unencrypted)
                    }),
                    Payload::CloseNotify => {
                        append(outgoing, 0, |room| traffic.queue_close_notify(room).map_err(unencrypted))
                    }
                };
                if is_sent {
                    return Ok((used, if is_closed { Progress::Closed } else { Progress::Open }));
                }
                // Once more, for the close_notify that rustls sends instead.
                is_exhausted = true;
                payload = Payload::Nothing;
            }
            Ok(ConnectionState::BlockedHandshake) => return Ok((used, Progress::Blocked)),
            // None is offered, so none can come; and states that are not known cannot be gone on from.
            Ok(_) => return Err(rustls::Error::General("unexpected state of the connection".to_owned())),
            Err(error) => {
                // What the client is told of it.
                while session.wants_write()
                    && let Ok(ConnectionState::EncodeTlsData(mut alert)) =
                        session.process_tls_records(&mut incoming[used..]).state
                {
                    append(outgoing, 0, |room| alert.encode(room).map_err(unencoded));
                }
                return Err(error);
            }
        }
    }
}

/// Room for so many bytes once they are encrypted: a record of TLS 1.2 adds 29 bytes, one of TLS 1.3 fewer.
fn encrypted_bytes(plain_bytes: usize) -> usize {
    plain_bytes + 32 * plain_bytes.div_ceil(16 * 1024)
}

/// The room that was missing, if that is what was missing.
fn unencoded(error: EncodeError) -> Option<InsufficientSizeError> {
    match error {
        EncodeError::InsufficientSize(size) => Some(size),
        EncodeError::AlreadyEncoded => None,
    }
}

/// The same of plaintext.
fn unencrypted(error: EncryptError) -> Option<InsufficientSizeError> {
    match error {
        EncryptError::InsufficientSize(size) => Some(size),
        EncryptError::EncryptExhausted => None,
    }
}

/// Has `encode` write behind the end of `outgoing`, with room for `bytes` or for as many as it then asks for. False
/// when there is nothing that it can write, whatever the room.
fn append(
    outgoing: &mut Vec<u8>,
    bytes: usize,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> bool {
    let end = outgoing.len();
    outgoing.resize(end + bytes, 0);
    let mut written = encode(&mut outgoing[end..]);
    if let Err(Some(InsufficientSizeError { required_size })) = written {
        outgoing.resize(end + required_size, 0);
        written = encode(&mut outgoing[end..]);
    }
    outgoing.truncate(end + written.unwrap_or(0));
    written.is_ok()
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::{Read, Write};

    use rustls::crypto::ring;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::version::{TLS12, TLS13};
    use rustls::{
        CipherSuiteCommon, ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
        SupportedCipherSuite, SupportedProtocolVersion, Tls12CipherSuite, Tls13CipherSuite,
    };
    use tokio::net::TcpListener;

    use super::*;
    use crate::settings::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};

    /// Records that keys may encrypt here; the real number takes minutes.
    const RECORDS_MAX: u64 = 100;

    fn limited(common: &CipherSuiteCommon) -> CipherSuiteCommon {
        CipherSuiteCommon { confidentiality_limit: RECORDS_MAX, ..*common }
    }

    fn soon_exhausted(suite: SupportedCipherSuite) -> SupportedCipherSuite {
        match suite {
            SupportedCipherSuite::Tls12(suite) => {
                let Tls12CipherSuite { prf_provider, kx, sign, aead_alg, .. } = *suite;
                let common = limited(&suite.common);
                SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                    common,
                    prf_provider,
                    kx,
                    sign,
                    aead_alg,
                })))
            }
            SupportedCipherSuite::Tls13(suite) => {
                let Tls13CipherSuite { hkdf_provider, aead_alg, quic, .. } = *suite;
                let common = limited(&suite.common);
                SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                    common,
                    hkdf_provider,
                    aead_alg,
                    quic,
                })))
            }
        }
    }

    /// Asks a server for echoes over one connection: how many lines come back before it says that it closes.
    fn echoes(version: &'static SupportedProtocolVersion, lines: usize) -> usize {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let mut provider = ring::default_provider();
        provider.cipher_suites = provider.cipher_suites.into_iter().map(soon_exhausted).collect();
        let mut server = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("an identity");
        server.send_tls13_tickets = 0;
        let tls = TlsSettings {
            certificate: "".into(),
            key: "".into(),
            key_format: KeyFormat::Pem,
            client_ca: None,
            client_certificate: ClientCertificate::None,
            ciphers: None,
            min_version: TlsVersion::Tls12,
            session_cache: false,
            write_bytes: 1024,
            is_http: false,
        };
        let tls = ListenerTls::new(&tls, Arc::new(server));
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("an authority");
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();

        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let acceptor = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = acceptor.local_addr().expect("an address");
            let asking = std::thread::spawn(move || {
                let name = "localhost".try_into().expect("a name");
                let connection = ClientConnection::new(Arc::new(client), name).expect("a client");
                let socket = std::net::TcpStream::connect(address).expect("connected");
                let mut stream = StreamOwned::new(connection, socket);
                for line in 0..lines {
                    stream.write_all(b"line\r\n").expect("sent");
                    let mut echo = [0; 6];
                    // Less than a line is an end that was announced: any other is an error.
                    match stream.read(&mut echo).expect("an answer or close_notify") {
                        6 => {}
                        bytes => {
                            assert_eq!(bytes, 0, "half an echo");
                            return line;
                        }
                    }
                }
                lines
            });
            let (socket, _) = acceptor.accept().await.expect("a client");
            let counters = Arc::<Counters<ListenerCounter>>::default();
            let mut stream = TlsStream::new(socket, &tls, Arc::clone(&counters), 0).expect("a stream");
            let mut buffer = [0; 100];
            while let Ok(bytes @ 1..) = poll_fn(|cx| stream.poll_read(cx, &mut buffer)).await {
                let written = poll_fn(|cx| stream.poll_write(cx, &buffer[..bytes])).await;
                if written.is_err() || poll_fn(|cx| stream.poll_flush(cx)).await.is_err() {
                    break;
                }
            }
            drop(stream);
            assert_eq!(counters.sum(ListenerCounter::TlsProtocolErrors), 0, "the client did nothing wrong");
            asking.join().expect("the client's claims hold")
        })
    }

    #[test]
    fn keys_that_have_served_for_long_are_changed_or_the_connection_is_closed() {
        assert_eq!(echoes(&TLS13, 1000), 1000, "TLS 1.3 changes keys");
        let before = echoes(&TLS12, 1000);
        assert!((RECORDS_MAX as usize - 5..=RECORDS_MAX as usize).contains(&before), "TLS 1.2 closes: {before}");
    }
}
