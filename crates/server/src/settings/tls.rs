//! TLS as an operator asks for it: by `-Z` and memcached's `ssl_*` options for every TCP listener, by a `tls` table for
//! one listener of the file. Nothing is read here but words; the files are read when the server starts.

use std::path::PathBuf;

use super::ciphers::Ciphers;
use super::draft::{Draft, ListenDraft};
use super::listen::TlsWord;
use super::problem::{Note, Problem};
use super::{Address, ListenerSettings};

/// How a listener's clients are served over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// `-o ssl_chain_cert`: the server's certificate and those that lead from it to its authority, in PEM.
    pub certificate: PathBuf,
    /// `-o ssl_key`: its private key; may be the same file.
    pub key: PathBuf,
    /// `-o ssl_keyformat`: what the key is written in.
    pub key_format: KeyFormat,
    /// `-o ssl_ca_cert`: the authorities whose certificates clients may have, in PEM.
    pub client_ca: Option<PathBuf>,
    /// `-o ssl_verify_mode`: whether clients show one.
    pub client_certificate: ClientCertificate,
    /// `-o ssl_ciphers`; `None` is every suite that rustls has.
    pub ciphers: Option<Ciphers>,
    /// `-o ssl_min_version`: the oldest version spoken.
    pub min_version: TlsVersion,
    /// `-o ssl_session_cache`: whether a client that comes back may go on with an earlier session.
    pub session_cache: bool,
    /// `-o ssl_wbuf_size`: bytes of an answer that are encrypted and sent at once.
    pub write_bytes: usize,
    /// Whether HTTP/2 and HTTP/1.1 are offered by ALPN.
    pub is_http: bool,
}

/// What a key file is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFormat {
    /// Text between `BEGIN` and `END`.
    #[default]
    Pem,
    /// The bytes themselves.
    Der,
}

/// Whether a client shows a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    /// It is not asked for one.
    #[default]
    None,
    /// It is asked; one that it shows has to be good.
    Optional,
    /// It has to show a good one.
    Required,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2
    #[default]
    Tls12,
    /// TLS 1.3
    Tls13,
}

impl TlsVersion {
    /// The name `stats settings` shows.
    pub fn reported(self) -> &'static str {
        match self {
            TlsVersion::Tls12 => "tlsv1.2",
            TlsVersion::Tls13 => "tlsv1.3",
        }
    }
}

/// What `stats settings` shows of TLS: what `-Z` was given, or the first listener of the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedTls {
    /// Whether any listener speaks TLS.
    pub enabled: bool,
    /// `ssl_chain_cert`
    pub certificate: Option<PathBuf>,
    /// `ssl_key`
    pub key: Option<PathBuf>,
    /// `ssl_verify_mode`: 0 to 3.
    pub verify_mode: u8,
    /// `ssl_keyformat`: 1 is PEM, 2 is DER.
    pub key_format: u8,
    /// `ssl_ciphers`, as given.
    pub ciphers: Option<String>,
    /// `ssl_ca_cert`
    pub client_ca: Option<PathBuf>,
    /// `ssl_wbuf_size`, in bytes.
    pub write_bytes: usize,
    /// `ssl_session_cache`
    pub session_cache: bool,
    /// `ssl_kernel_tls`, which has nothing to act on.
    pub kernel_tls: bool,
    /// `ssl_min_version`
    pub min_version: TlsVersion,
}

impl Default for ReportedTls {
    fn default() -> ReportedTls {
        TlsDraft::default().reported(false)
    }
}

/// The largest `ssl_wbuf_size`: every worker has one, and a client that does not read keeps as much.
pub(super) const WRITE_BYTES_MAX: u64 = 16 << 20;
/// memcached's default: one TLS record.
const WRITE_BYTES_DEFAULT: usize = 16 * 1024;

/// Everything said of TLS, by flags or in one listener's table.
#[derive(Clone, Default, PartialEq)]
pub(super) struct TlsDraft {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) key_format: KeyFormat,
    pub(super) client_ca: Option<PathBuf>,
    pub(super) client_certificate: Option<ClientCertificate>,
    pub(super) ciphers: Option<Ciphers>,
    pub(super) write_bytes: Option<usize>,
    pub(super) session_cache: bool,
    pub(super) kernel_tls: bool,
    /// memcached's numbers: 0 is TLS 1.0, 3 is TLS 1.3.
    pub(super) min_version: Option<u8>,
    /// In the file, who names authorities wants certificates of them, and who wants certificates names authorities.
    /// memcached's options act each by itself.
    pub(super) is_of_file: bool,
    /// `ssl_verify_mode=3`, which is what 2 is.
    pub(super) verifies_once: bool,
}

impl TlsDraft {
    /// What it comes to; `at` says where it stands.
    pub(super) fn finish(&self, at: &str) -> Result<TlsSettings, Problem> {
        let Some(certificate) = self.certificate.clone() else {
            let name = if self.is_of_file { "the key certificate" } else { "-o ssl_chain_cert=FILE" };
            return Err(Problem::combination(format!(
                "{at}: expected {name} with it, the file of the server's certificate"
            )));
        };
        let client_certificate = self.client_certificate();
        if self.is_of_file && client_certificate != ClientCertificate::None && self.client_ca.is_none() {
            return Err(Problem::combination(format!(
                "{at}: expected the key client_ca with client_certificate, there is nothing to check client \
                 certificates against"
            )));
        }
        Ok(TlsSettings {
            key: self.key.clone().unwrap_or_else(|| certificate.clone()),
            certificate,
            key_format: self.key_format,
            client_ca: self.client_ca.clone(),
            client_certificate,
            ciphers: self.ciphers.clone(),
            min_version: self.min_version(),
            session_cache: self.session_cache,
            write_bytes: self.write_bytes.unwrap_or(WRITE_BYTES_DEFAULT),
            is_http: false,
        })
    }

    /// The same for a listener that says by itself whether clients show a certificate.
    pub(super) fn with_client_certificate(&self, wanted: ClientCertificate) -> TlsDraft {
        TlsDraft { client_certificate: Some(wanted), ..self.clone() }
    }

    /// What `stats settings` shows.
    pub(super) fn reported(&self, enabled: bool) -> ReportedTls {
        ReportedTls {
            enabled,
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            verify_mode: match self.client_certificate() {
                ClientCertificate::None => 0,
                ClientCertificate::Optional => 1,
                ClientCertificate::Required if self.verifies_once => 3,
                ClientCertificate::Required => 2,
            },
            key_format: match self.key_format {
                KeyFormat::Pem => 1,
                KeyFormat::Der => 2,
            },
            ciphers: self.ciphers.as_ref().map(|ciphers| ciphers.given.clone()),
            client_ca: self.client_ca.clone(),
            write_bytes: self.write_bytes.unwrap_or(WRITE_BYTES_DEFAULT),
            session_cache: self.session_cache,
            kernel_tls: self.kernel_tls,
            min_version: self.min_version(),
        }
    }

    /// Sentences about what was asked for and is otherwise here.
    pub(super) fn notes(&self, at: &str) -> Vec<Note> {
        let mut notes = Vec::new();
        if self.min_version.is_some_and(|version| version < 2) {
            notes.push(Note {
                always: true,
                text: format!(
                    "{at}: TLS 1.2 is the oldest version spoken here, clients that know only older ones cannot connect"
                ),
            });
        }
        if let Some(ciphers) = self.ciphers.as_ref().filter(|ciphers| !ciphers.passed_over.is_empty()) {
            let text = format!(
                "{at}: ciphers passed over, they name nothing that is offered here: {}",
                ciphers.passed_over.join(":")
            );
            notes.push(Note { always: true, text });
        }
        notes
    }

    fn client_certificate(&self) -> ClientCertificate {
        let unsaid = match self.is_of_file && self.client_ca.is_some() {
            true => ClientCertificate::Required,
            false => ClientCertificate::None,
        };
        self.client_certificate.unwrap_or(unsaid)
    }

    fn min_version(&self) -> TlsVersion {
        if self.min_version == Some(3) { TlsVersion::Tls13 } else { TlsVersion::Tls12 }
    }
}

impl Draft {
    /// Checks what `-Z` and its options say, before any listener asks for it.
    pub(super) fn finish_tls(&mut self) -> Result<(), Problem> {
        if !self.tls_enabled {
            if self.tls != TlsDraft::default() {
                let text = "-o ssl_…: these act only with -Z, without it clients are served in the clear".to_owned();
                self.notes.push(Note { always: true, text });
            }
            return Ok(());
        }
        self.tls.finish("-Z")?;
        self.notes.extend(self.tls.notes("-Z"));
        if self.tcp_port == Some(0) && self.socket.is_none() && self.interfaces.is_empty() {
            return Err(Problem::combination("-Z: expected a TCP port for it to act on, not -p 0"));
        }
        Ok(())
    }

    /// How TCP listeners are served that say nothing themselves, or `word` before their address in `-l`.
    pub(super) fn tls_of_flags(&self, word: Option<TlsWord>, spec: &str) -> Result<Option<TlsSettings>, Problem> {
        let wanted = match word {
            Some(word @ (TlsWord::Basic | TlsWord::Mutual)) if !self.tls_enabled => {
                return Err(Problem::combination(format!("-l: expected -Z with {}:, in {spec}", word.word())));
            }
            Some(TlsWord::None) => return Ok(None),
            None if !self.tls_enabled => return Ok(None),
            Some(TlsWord::Basic) => self.tls.with_client_certificate(ClientCertificate::None),
            Some(TlsWord::Mutual) => self.tls.with_client_certificate(ClientCertificate::Required),
            None => self.tls.clone(),
        };
        wanted.finish("-Z").map(Some)
    }

    /// How a listener of the file is served: as its own table says, or else as `-Z` does.
    pub(super) fn tls_of_listen(&self, listen: &ListenDraft, spec: &str) -> Result<Option<TlsSettings>, Problem> {
        let Some(own) = &listen.tls else { return self.tls_of_flags(None, spec) };
        let at = format!("{}: listen.tls", listen.place);
        if spec.starts_with("unix:") || spec.starts_with("udp:") {
            return Err(Problem::value(format!("{at}: expected only with a TCP address, not {spec:?}")));
        }
        own.finish(&at).map(Some)
    }

    /// What `stats settings` shows, and what is worth saying of it.
    pub(super) fn finish_reported_tls(&mut self, from_flags: bool, listeners: &[ListenerSettings]) {
        let is_plain = |listener: &&ListenerSettings| matches!(listener.address, Address::Udp(_));
        let enabled = listeners.iter().any(|listener| listener.tls.is_some());
        let own = self.listens.iter().filter(|_| !from_flags).filter_map(|listen| {
            let at = format!("{}: listen.tls", listen.place);
            listen.tls.as_ref().map(|tls| (tls, at))
        });
        let own: Vec<_> = own.collect();
        for (tls, at) in &own {
            self.notes.extend(tls.notes(at));
        }
        let shown = if self.tls_enabled { &self.tls } else { own.first().map_or(&self.tls, |(tls, _)| tls) };
        self.settings.reported.tls = shown.reported(enabled);
        // memcached starts like this too.
        for listener in listeners {
            let Some(tls) = listener.tls.as_ref().filter(|tls| tls.client_ca.is_none()) else { continue };
            let text = match tls.client_certificate {
                ClientCertificate::None => continue,
                ClientCertificate::Optional => "a client that shows a certificate is not let in",
                ClientCertificate::Required => "no client is let in, each has to show a certificate",
            };
            let text = format!("{}: without -o ssl_ca_cert=FILE {text}", listener.address);
            self.notes.push(Note { always: true, text });
        }
        if let Some(udp) = listeners.iter().find(is_plain).filter(|_| enabled) {
            self.notes.push(Note { always: true, text: format!("{}: UDP is not encrypted", udp.address) });
        }
    }
}

/// How a listener is served, for a summary.
impl std::fmt::Display for TlsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.client_certificate {
            ClientCertificate::None => "TLS",
            ClientCertificate::Optional => "TLS, client certificate optional",
            ClientCertificate::Required => "TLS, client certificate required",
        })
    }
}
