//! The file of those who may vouch for a database's server. Read once for every database alike, so that what is wrong with it is
//! said before anything is connected.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::error::Error;

/// The certificates of a file in PEM.
///
/// # Errors
/// When it cannot be read, or has none.
pub(crate) fn read(path: &Path) -> Result<RootCertStore, Error> {
    let bad = |why: String| Error::Settings(format!("{}: expected certificates in PEM: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("there are none in it".to_owned()));
    }
    Ok(roots)
}
