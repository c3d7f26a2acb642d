//! Certificates made on the spot, and clients that speak TLS.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nuthatch_server::Running;
use nuthatch_server::settings::{ClientCertificate, KeyFormat, ListenerSettings, Settings, TlsSettings, TlsVersion};
use nuthatch_testkit::origin::{Answer, Link, Origin, Request};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
};

use super::{Client, PATIENCE, address, listener, settings};

/// Both versions spoken.
pub(crate) static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// An authority, and a directory for the files it signs.
pub(crate) struct Authority {
    pub(crate) folder: PathBuf,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
    der: CertificateDer<'static>,
    key_der: Vec<u8>,
}

impl Authority {
    /// One that nobody else trusts. Its own certificate is in `ca.pem`, and a server's in `server.pem` and
    /// `server.key`.
    pub(crate) fn new() -> Authority {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("nuthatch-tls-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.join("ca.pem"), certificate.pem()).expect("a file");
        let authority = Authority { folder, certificate: certificate.der().clone(), issuer: Issuer::new(params, key) };
        authority.install("server", &authority.sign("localhost"));
        authority
    }

    /// A certificate for `name`.
    pub(crate) fn sign(&self, name: &str) -> Identity {
        self.sign_with(name, |_| {})
    }

    /// The same with something different about it.
    pub(crate) fn sign_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        change(&mut params);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes an identity to `NAME.pem` and `NAME.key`.
    pub(crate) fn install(&self, name: &str, identity: &Identity) {
        fs::write(self.file(&format!("{name}.pem")), &identity.certificate).expect("a file");
        fs::write(self.file(&format!("{name}.key")), &identity.key).expect("a file");
        fs::write(self.file(&format!("{name}.der")), &identity.key_der).expect("a file");
    }

    /// What a listener with `server.pem` is served with.
    pub(crate) fn tls(&self) -> TlsSettings {
        TlsSettings {
            certificate: self.file("server.pem"),
            key: self.file("server.key"),
            key_format: KeyFormat::Pem,
            client_ca: None,
            client_certificate: ClientCertificate::None,
            ciphers: None,
            min_version: TlsVersion::Tls12,
            session_cache: false,
            write_bytes: 16 * 1024,
            is_http: false,
        }
    }

    /// A web server that shows `identity`, and wants certificates of this authority if `is_mutual`.
    pub(crate) fn origin(
        &self,
        identity: &Identity,
        is_mutual: bool,
        script: impl Fn(&Request, &mut Answer<'_>) + Send + Sync + 'static,
    ) -> Origin {
        let key = PrivateKeyDer::try_from(identity.key_der.clone()).expect("a key");
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = if is_mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.certificate.clone()).expect("an authority");
            let provider = Arc::new(ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        } else {
            builder.with_no_client_auth()
        };
        let config = Arc::new(builder.with_single_cert(vec![identity.der.clone()], key).expect("an identity"));
        let wrap = move |socket| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a server");
            Box::new(StreamOwned::new(connection, socket)) as Box<dyn Link>
        };
        Origin::start_over("https", wrap, script)
    }

    /// A listener whose clients speak TLS.
    pub(crate) fn listener(&self, tls: TlsSettings) -> ListenerSettings {
        ListenerSettings { tls: Some(tls), ..listener(0) }
    }

    /// A server whose first listener speaks TLS and whose second does not.
    pub(crate) fn settings(&self, tls: TlsSettings) -> Settings {
        Settings { listeners: vec![self.listener(tls), listener(0)], ..settings() }
    }

    /// A client that trusts this authority and shows `identity`.
    pub(crate) fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&Identity>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::try_from(identity.key_der.clone()).expect("a key");
                builder.with_client_auth_cert(vec![identity.der.clone()], key).expect("an identity")
            }
        })
    }

    /// A client of either version that shows nothing.
    pub(crate) fn any_client(&self) -> Arc<ClientConfig> {
        self.client(&VERSIONS, None)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Identity {
    /// Whether this is what `client` was shown.
    pub(crate) fn is_shown_to(&self, client: &TlsClient) -> bool {
        client.stream.conn.peer_certificates().is_some_and(|shown| shown[0] == self.der)
    }
}

pub(crate) type TlsClient<S = TcpStream> = Client<StreamOwned<ClientConnection, S>>;

/// Puts TLS over `socket`; nothing is sent before the first request.
pub(crate) fn over<S: Read + Write>(config: &Arc<ClientConfig>, socket: S) -> TlsClient<S> {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
    Client { stream: StreamOwned::new(connection, socket) }
}

/// A client of the server's first listener.
pub(crate) fn connect(server: &Running, config: &Arc<ClientConfig>) -> TlsClient {
    over(config, Client::connect(server).stream)
}

impl<S: Read + Write> TlsClient<S> {
    /// Sends a request and expects to be refused: by an alert, or by a connection that is gone before it arrives.
    #[track_caller]
    pub(crate) fn expect_refusal(&mut self) -> String {
        let sent = self.stream.write_all(b"mn\r\n").and_then(|()| self.stream.flush());
        let mut answer = [0; 16];
        match sent.and_then(|()| self.stream.read(&mut answer)) {
            Ok(bytes) => panic!("answered {bytes} bytes: {:?}", String::from_utf8_lossy(&answer[..bytes])),
            Err(error) => error.to_string(),
        }
    }

    /// Expects that the server says that it closes, and nothing else.
    #[track_caller]
    pub(crate) fn expect_close_notify(&mut self) {
        let mut rest = Vec::new();
        // Without it rustls makes an error of the end.
        self.stream.read_to_end(&mut rest).expect("close_notify");
        assert!(rest.is_empty(), "unexpected {:?}", String::from_utf8_lossy(&rest));
    }
}

/// A socket that takes one byte at a time, each in a segment of its own.
pub(crate) struct ByteByByte(pub(crate) TcpStream);

impl Read for ByteByByte {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let end = buffer.len().min(1);
        self.0.read(&mut buffer[..end])
    }
}

impl Write for ByteByByte {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// A plain client of the server's second listener, to look at it from beside.
pub(crate) fn beside(server: &Running) -> Client {
    let client = Client::connect_to(address(server, 1));
    client.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client
}

/// Writes `text` to a file.
pub(crate) fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
}
