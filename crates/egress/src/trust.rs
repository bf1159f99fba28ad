//! Whom we believe on the other side of TLS: the certificates that the machine trusts, and those of a file beside
//! them. They are read when the first connection needs them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Certificates of authorities.
pub struct Trust {
    more: Vec<CertificateDer<'static>>,
    client: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// A file of certificates that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a file of certificates in PEM: {0}")]
pub struct BadTrust(String);

impl Default for Trust {
    /// Those of the machine.
    fn default() -> Self {
        Self { more: Vec::new(), client: OnceLock::new() }
    }
}

impl Trust {
    /// Those of the machine and these, in PEM.
    pub fn with(pem: &[u8]) -> Result<Self, BadTrust> {
        let more: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let more = more.map_err(|error| BadTrust(error.to_string()))?;
        if more.is_empty() {
            return Err(BadTrust("it holds none".to_owned()));
        }
        Ok(Self { more, ..Self::default() })
    }

    /// All of them, the machine's first.
    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let mut all = rustls_native_certs::load_native_certs().certs;
        all.extend(self.more.iter().cloned());
        all
    }

    /// For a client that speaks HTTP/1.1 and verifies the other side.
    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, String> {
        self.client.get_or_init(|| self.make()).clone()
    }

    fn make(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        // Machines carry old certificates that no longer parse; the others count.
        let (added, _) = roots.add_parsable_certificates(self.certificates());
        if added == 0 {
            return Err("no certificates are trusted on this machine".to_owned());
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// A certificate as text.
pub(crate) fn pem(certificate: &CertificateDer<'_>) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let packed = base64::engine::general_purpose::STANDARD.encode(certificate);
    for (at, letter) in packed.chars().enumerate() {
        text.push(letter);
        if at % 64 == 63 {
            text.push('\n');
        }
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("more", &self.more.len()).finish_non_exhaustive()
    }
}
