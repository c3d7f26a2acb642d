//! Whom sites trust at the `https` addresses of their origins, and who they are to them: the files that the settings name,
//! read when the server starts and by each reload, never while a connection is made. Handshakes are `nuthatch-pages`'.

use std::sync::Arc;

use nuthatch_pages::origin::OriginTls;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::settings::{KeyFormat, Settings};
use crate::tls::{self, Part, TlsError};

/// What connections to origins are made with, each once.
#[derive(Clone, Default)]
pub(crate) struct Trusts(Vec<(OriginTls, Arc<ClientConfig>)>);

impl Trusts {
    /// Reads what the origins of `settings` name. What cannot be used is an error, unless `before` has it: that stays as it
    /// was, and is told of.
    pub(crate) fn read(settings: &Settings, before: &Trusts) -> Result<(Trusts, Vec<String>), TlsError> {
        let (mut trusts, mut failed) = (Trusts::default(), Vec::new());
        for origin in settings.listeners.iter().filter_map(|listener| Some(&listener.http.as_ref()?.origin)) {
            if trusts.of(&origin.tls).is_some() {
                continue;
            }
            let trust = match (configuration(&origin.tls), before.of(&origin.tls)) {
                (Ok(read), _) => Arc::new(read),
                (Err(error), Some(before)) => {
                    failed.push(format!("origin {}: TLS stays as it was: {error}", origin.name));
                    before
                }
                (Err(error), None) => return Err(error),
            };
            trusts.0.push((origin.tls.clone(), trust));
        }
        Ok((trusts, failed))
    }

    /// What was made of `tls`, if that is in the settings.
    pub(crate) fn of(&self, tls: &OriginTls) -> Option<Arc<ClientConfig>> {
        self.0.iter().find(|(other, _)| other == tls).map(|(_, trust)| Arc::clone(trust))
    }

    /// Is anything of this read from files?
    pub(crate) fn has_files(&self) -> bool {
        self.0.iter().any(|(tls, _)| tls.ca.is_some() || tls.certificate.is_some())
    }
}

fn configuration(settings: &OriginTls) -> Result<ClientConfig, TlsError> {
    let roots = match &settings.ca {
        Some(path) => tls::authorities(Part::OriginCa, path)?,
        None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
    };
    let ca = settings.ca.as_deref().unwrap_or_else(|| "webpki-roots".as_ref());
    let wrong = |error: &rustls::Error| TlsError::new(Part::OriginCa, ca, error);
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match settings.is_unverified {
        true => Arc::new(AnyCertificate(Arc::clone(&provider))),
        false => WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| wrong(&rustls::Error::General(error.to_string())))?,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &settings.certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => {
            let key = settings.key.as_ref().unwrap_or(certificate);
            let chain = tls::certificates(Part::Certificate, certificate)?;
            builder
                .with_client_auth_cert(chain, tls::private_key(key, KeyFormat::Pem)?)
                .map_err(|error| TlsError::of_pair(&error, certificate, key))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Takes every certificate, from whoever has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
