//! TLS to origins: the handshake, and what is said of one that fails. Files are read by whoever made the configuration.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error};

/// Who servers at `https` addresses are to be, and who we are to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTls {
    /// The file of the authorities that are trusted, in PEM; without it those that browsers trust.
    pub ca: Option<PathBuf>,
    /// For whom certificates are to be, and what servers are told (SNI); without it the host of each address.
    pub server_name: Option<ServerName<'static>>,
    /// The file of the certificate that servers are shown if they ask, in PEM.
    pub certificate: Option<PathBuf>,
    /// The file of its key; without it the same file.
    pub key: Option<PathBuf>,
    /// Whether any certificate will do.
    pub is_unverified: bool,
}

/// Comes to an understanding with a server that is to be called `name`.
pub(super) async fn shake_hands(
    trust: Arc<ClientConfig>,
    name: &ServerName<'static>,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    TlsConnector::from(trust).connect(name.clone(), stream).await
}

/// What was expected of a server when `error` came instead.
pub(super) fn sentence(error: &io::Error, name: &ServerName<'_>, settings: &OriginTls) -> String {
    let name = name.to_str();
    let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "expected a TLS handshake, it closes the connection instead".to_owned(),
            _ => format!("expected a TLS handshake: {error}"),
        };
    };
    match cause {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => match &settings.ca {
            Some(ca) => format!("expected a certificate that an authority in {} has signed (tls_ca)", ca.display()),
            None => {
                "expected a certificate that an authority browsers trust has signed (tls_ca names others)".to_owned()
            }
        },
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            let mut why = format!("expected a certificate for {name} (tls_server_name)");
            if !presented.is_empty() {
                // Each is a kind with the name in brackets.
                let names = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name));
                let _ = write!(why, ", not for {}", names.collect::<Vec<_>>().join(", "));
            }
            why
        }
        Error::InvalidCertificate(error) => format!("expected a certificate for {name} that is valid: {error}"),
        Error::InvalidMessage(_) => "expected a TLS handshake, what it sends is none".to_owned(),
        Error::AlertReceived(alert) => format!("expected it to accept our TLS handshake, it says {alert:?}"),
        other => format!("expected a TLS handshake: {other}"),
    }
}
