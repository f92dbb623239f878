//! The certificate of the server: from a directory, or generated at the start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring},
};

/// Names of the files in the directory, as in a Secret of type `kubernetes.io/tls`.
const FILES: [&str; 2] = ["tls.crt", "tls.key"];

/// The protocol of a connection that the client and the server agree on.
pub(crate) const HTTP_2: &[u8] = b"h2";

/// The reason why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or unreadable.
    #[error("cannot read '{0}': {1}")]
    Unreadable(PathBuf, #[source] io::Error),
    /// A file has no certificate, or no key that fits.
    #[error("the certificate or its key is not usable: {0}")]
    Invalid(String),
}

/// The TLS settings of the server.
pub struct Tls {
    acceptor: TlsAcceptor,
    /// The directory, and the contents of its files. `None` for a generated certificate.
    source: Option<(PathBuf, [Vec<u8>; 2])>,
}

impl Tls {
    /// Reads `tls.crt` and `tls.key` in this directory.
    ///
    /// # Errors
    /// A file is missing or has no usable content.
    pub fn from_directory(directory: &Path) -> Result<Self, TlsError> {
        let contents = read(directory)?;
        Ok(Self {
            acceptor: acceptor_of(&contents)?,
            source: Some((directory.to_owned(), contents)),
        })
    }

    /// Generates a certificate for these names. Clients cannot verify it: it is different in each
    /// process.
    ///
    /// # Errors
    /// A name is not valid.
    pub fn generate(names: Vec<String>) -> Result<Self, TlsError> {
        let invalid = |error: rcgen::Error| TlsError::Invalid(error.to_string());
        let made = rcgen::generate_simple_self_signed(names).map_err(invalid)?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self {
            acceptor: acceptor(vec![made.cert.der().clone()], key.into())?,
            source: None,
        })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Reads the files again, and uses a changed certificate for new connections. Returns whether
    /// it changed.
    ///
    /// # Errors
    /// As [`Tls::from_directory`]. Then the certificate stays as it was.
    pub(crate) fn reload(&mut self) -> Result<bool, TlsError> {
        let Some((directory, known)) = &mut self.source else {
            return Ok(false);
        };
        let contents = read(directory)?;
        if *known == contents {
            return Ok(false);
        }
        self.acceptor = acceptor_of(&contents)?;
        *known = contents;
        Ok(true)
    }
}

fn read(directory: &Path) -> Result<[Vec<u8>; 2], TlsError> {
    let [certificate, key] = FILES.map(|name| {
        let path = directory.join(name);
        fs::read(&path).map_err(|error| TlsError::Unreadable(path, error))
    });
    Ok([certificate?, key?])
}

fn acceptor_of([certificate, key]: &[Vec<u8>; 2]) -> Result<TlsAcceptor, TlsError> {
    let mut chain = Vec::new();
    for one in CertificateDer::pem_slice_iter(certificate) {
        chain.push(one.map_err(|error| TlsError::Invalid(error.to_string()))?);
    }
    // The error has no part of the key.
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| TlsError::Invalid(format!("the key: {error}")))?;
    acceptor(chain, key)
}

fn acceptor(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, TlsError> {
    let invalid = |error: tokio_rustls::rustls::Error| TlsError::Invalid(error.to_string());
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(invalid)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(invalid)?;
    config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(directory.join("tls.crt"), made.cert.pem()).unwrap();
        fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_changed_certificate_is_read_again_and_a_broken_one_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(matches!(
            Tls::from_directory(path),
            Err(TlsError::Unreadable(..))
        ));
        write(path);
        let mut tls = Tls::from_directory(path).unwrap();
        assert!(!tls.reload().unwrap());
        write(path);
        assert!(tls.reload().unwrap());
        assert!(!tls.reload().unwrap());
        fs::write(path.join("tls.key"), "no key").unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Invalid(_))));
        write(path);
        assert!(tls.reload().unwrap(), "it is mended");
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(one.path());
        write(other.path());
        fs::copy(other.path().join("tls.key"), one.path().join("tls.key")).unwrap();
        assert!(matches!(
            Tls::from_directory(one.path()),
            Err(TlsError::Invalid(_))
        ));
    }

    #[test]
    fn a_generated_certificate_needs_no_file() {
        let mut tls = Tls::generate(vec!["gateway.example".to_owned()]).unwrap();
        assert!(!tls.reload().unwrap());
    }
}
