//! Certificates and keys: reads the files that the settings name and makes of them what a handshake needs.
//!
//! A listener has one configuration at a time; connections that are open keep the one they began with. Files are read
//! when the server starts, on a reload and by `refresh_certs`, never while a client connects. A file that cannot be
//! used changes nothing.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};

use crate::settings::{ClientCertificate, KeyFormat, ListenerSettings, TlsSettings, TlsVersion};
use crate::shared::Listener;

/// Bytes of a file of certificates or keys. A bundle of every public authority has a fifth of that.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Sessions kept for clients that come back. Each takes a few hundred bytes, and a client's certificates if it showed
/// some.
const SESSIONS_MAX: usize = 4096;

/// How the clients of all listeners with the same settings are served. They share a configuration, and with it their
/// clients' sessions; others share nothing, because a session that began where no certificate is asked for must not go
/// on where one is.
pub(crate) struct ListenerTls {
    /// Bytes of an answer that are encrypted at once.
    pub(crate) write_bytes: usize,
    settings: TlsSettings,
    config: Mutex<Arc<ServerConfig>>,
}

impl ListenerTls {
    /// Serves with `config`, which was made of `settings`.
    pub(crate) fn new(settings: &TlsSettings, config: Arc<ServerConfig>) -> ListenerTls {
        ListenerTls { write_bytes: settings.write_bytes, settings: settings.clone(), config: Mutex::new(config) }
    }

    /// What a new connection is served with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, config: Arc<ServerConfig>) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }
}

/// What clients of `listeners` are served with, each once.
pub(crate) fn in_force(listeners: &[Arc<Listener>]) -> Vec<Arc<ListenerTls>> {
    let mut found: Vec<Arc<ListenerTls>> = Vec::new();
    for tls in listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
        if !found.iter().any(|other| Arc::ptr_eq(other, tls)) {
            found.push(Arc::clone(tls));
        }
    }
    found
}

/// Reads the files of all of `in_force` again: new connections get what they say now. When any cannot be used, all
/// stays as it was.
pub(crate) fn refresh(in_force: &[Arc<ListenerTls>]) -> Result<(), TlsError> {
    let configs: Vec<_> = in_force.iter().map(|tls| configuration(&tls.settings)).collect::<Result<_, _>>()?;
    for (tls, config) in in_force.iter().zip(configs) {
        tls.replace(Arc::new(config));
    }
    Ok(())
}

/// Reads the files of `listeners`: what each is served with, in their order. Those of `in_force` that have the settings
/// of one get what was read; where that cannot be used, they stay as they were.
pub(crate) fn of_listeners(
    listeners: &[ListenerSettings],
    in_force: &[Arc<ListenerTls>],
) -> Vec<Result<Option<Arc<ListenerTls>>, TlsError>> {
    let mut read: Vec<(&TlsSettings, Result<Arc<ListenerTls>, TlsError>)> = Vec::new();
    let of_settings = |settings| {
        let Some(settings) = settings else { return Ok(None) };
        if let Some((_, done)) = read.iter().find(|(other, _)| *other == settings) {
            return done.clone().map(Some);
        }
        let done = configuration(settings).map(|config| {
            let config = Arc::new(config);
            match in_force.iter().find(|tls| tls.settings == *settings) {
                None => Arc::new(ListenerTls::new(settings, config)),
                Some(tls) => {
                    tls.replace(config);
                    Arc::clone(tls)
                }
            }
        });
        read.push((settings, done.clone()));
        done.map(Some)
    };
    listeners.iter().map(|listener| listener.tls.as_ref()).map(of_settings).collect()
}

fn configuration(settings: &TlsSettings) -> Result<ServerConfig, TlsError> {
    let chain = certificates(Part::Certificate, &settings.certificate)?;
    let key = private_key(&settings.key, settings.key_format)?;
    let roots = settings.client_ca.as_deref().map(|path| authorities(Part::ClientCa, path)).transpose()?.map(Arc::new);

    let mut provider = ring::default_provider();
    if let Some(ciphers) = &settings.ciphers {
        let offered = std::mem::take(&mut provider.cipher_suites);
        let named = |name| offered.iter().find(|suite| suite.suite() == name).copied();
        provider.cipher_suites = ciphers.suites.iter().filter_map(|name| named(*name)).collect();
    }
    let provider = Arc::new(provider);
    let versions = match settings.min_version {
        TlsVersion::Tls12 => &[&TLS13, &TLS12][..],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::new(Part::Certificate, &settings.certificate, &error))?;
    let builder = match (&roots, settings.client_certificate) {
        (_, ClientCertificate::None) => builder.with_no_client_auth(),
        (None, wanted) => builder.with_client_cert_verifier(Arc::new(NoneIsGood {
            mandatory: wanted == ClientCertificate::Required,
            schemes: provider.signature_verification_algorithms.supported_schemes(),
        })),
        (Some(roots), wanted) => builder.with_client_cert_verifier(verifier(settings, roots, &provider, wanted)?),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError::of_pair(&error, &settings.certificate, &settings.key))?;
    if settings.is_http {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    if settings.session_cache {
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    } else {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn verifier(
    settings: &TlsSettings,
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
    wanted: ClientCertificate,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
    let builder = if wanted == ClientCertificate::Required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| TlsError {
        part: Part::ClientCa,
        path: settings.client_ca.clone().unwrap_or_default(),
        why: error.to_string(),
    })
}

/// Asks clients for certificates where no authority is known that one could come from.
#[derive(Debug)]
struct NoneIsGood {
    /// Whether a client that shows none is refused too.
    mandatory: bool,
    schemes: Vec<SignatureScheme>,
}

const NOBODY_KNOWN: rustls::Error = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);

impl ClientCertVerifier for NoneIsGood {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Err(NOBODY_KNOWN)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(NOBODY_KNOWN)
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(NOBODY_KNOWN)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// The certificates in a file, of which there is at least one.
pub(crate) fn certificates(part: Part, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(part, path)?;
    let wrong = |why: String| TlsError { part, path: path.to_path_buf(), why };
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong("expected certificates in PEM, found none".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(format!("expected certificates in PEM: {error}"))),
    }
}

/// The private key in a file.
pub(crate) fn private_key(path: &Path, format: KeyFormat) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read(Part::Key, path)?;
    let wrong = |why| TlsError { part: Part::Key, path: path.to_path_buf(), why };
    match format {
        KeyFormat::Pem => {
            let named = PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
                pem::Error::NoItemsFound => {
                    wrong("expected a private key in PEM without a password, found none".to_owned())
                }
                error => wrong(format!("expected a private key in PEM: {error}")),
            })?;
            // Its first line may name another form than the key has; OpenSSL looks at the key too.
            Ok(PrivateKeyDer::try_from(named.secret_der().to_vec()).unwrap_or(named))
        }
        KeyFormat::Der => PrivateKeyDer::try_from(bytes)
            .map_err(|_| wrong("expected a private key in DER without a password".to_owned())),
    }
}

/// The authorities in a file.
pub(crate) fn authorities(part: Part, path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates(part, path)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| TlsError {
            part,
            path: path.to_path_buf(),
            why: format!("certificate {}: {}", index + 1, sentence(&error)),
        })?;
    }
    Ok(roots)
}

fn read(part: Part, path: &Path) -> Result<Vec<u8>, TlsError> {
    let wrong = |why: String| TlsError { part, path: path.to_path_buf(), why };
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong("expected at most 1 MiB".to_owned()));
    }
    Ok(bytes)
}

/// An error of rustls on one line. It calls every certificate a peer's.
fn sentence(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => format!("expected a certificate that can be read: {error}"),
        error => error.to_string().replace('\n', " "),
    }
}

/// A file of certificates or keys cannot be used.
#[derive(Clone, Debug)]
pub struct TlsError {
    part: Part,
    path: PathBuf,
    why: String,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Who we are.
    Certificate,
    /// That we are.
    Key,
    /// Both, which belong together.
    Pair,
    /// Who clients may be.
    ClientCa,
    /// Who origins may be.
    OriginCa,
}

impl TlsError {
    pub(crate) fn new(part: Part, path: &Path, error: &rustls::Error) -> TlsError {
        TlsError { part, path: path.to_path_buf(), why: sentence(error) }
    }

    /// A certificate and a key cannot be shown together.
    pub(crate) fn of_pair(error: &rustls::Error, certificate: &Path, key: &Path) -> TlsError {
        match error {
            rustls::Error::InconsistentKeys(_) => TlsError {
                part: Part::Pair,
                path: key.to_path_buf(),
                why: format!("expected the private key of the certificate in {}", certificate.display()),
            },
            rustls::Error::General(_) => TlsError::new(Part::Key, key, error),
            error => TlsError::new(Part::Certificate, certificate, error),
        }
    }

    /// The line that memcached answers `refresh_certs` with.
    pub(crate) fn as_wire(&self) -> String {
        let (path, why) = (self.path.display(), &self.why);
        match self.part {
            Part::Certificate => format!("Error loading the certificate chain: {path} : {why}\r\n"),
            Part::Key => format!("Error loading the key: {path} : {why}\r\n"),
            Part::Pair => format!("Error validating the certificate: {path} : {why}\r\n"),
            Part::ClientCa | Part::OriginCa => format!("Error loading the CA certificate: {path} : {why}\r\n"),
        }
    }
}

/// What memcached answers `refresh_certs` with where nothing speaks TLS.
pub(crate) const NOT_ENABLED: &[u8] = b"Error TLS not enabled\r\n";

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.part {
            Part::Certificate => "certificate file",
            Part::Key | Part::Pair => "key file",
            Part::ClientCa => "file of client authorities",
            Part::OriginCa => "file of origins' authorities",
        };
        write!(f, "{what} {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for TlsError {}
