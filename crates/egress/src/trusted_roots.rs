//! Trusted root certificates for outgoing TLS: those of the machine, and optionally those of a PEM file. Loaded when the
//! first connection needs them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Root certificates that servers are verified against.
pub struct TrustedRoots {
    extra: Vec<CertificateDer<'static>>,
    client_config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

/// A certificate file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a PEM file with certificates: {0}")]
pub struct BadCertificateFile(String);

impl Default for TrustedRoots {
    /// The machine's certificates only.
    fn default() -> Self {
        Self { extra: Vec::new(), client_config: OnceLock::new() }
    }
}

impl TrustedRoots {
    /// The machine's certificates and these, in PEM.
    pub fn with_pem(pem: &[u8]) -> Result<Self, BadCertificateFile> {
        let extra: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let extra = extra.map_err(|error| BadCertificateFile(error.to_string()))?;
        if extra.is_empty() {
            return Err(BadCertificateFile("no certificate found".to_owned()));
        }
        Ok(Self { extra, ..Self::default() })
    }

    /// All certificates, the machine's first.
    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        let mut all = rustls_native_certs::load_native_certs().certs;
        all.extend(self.extra.iter().cloned());
        all
    }

    /// TLS configuration of a client that offers HTTP/1.1 and verifies the server.
    pub(crate) fn client_tls_config(&self) -> Result<Arc<ClientConfig>, String> {
        self.client_config.get_or_init(|| self.build_client_config()).clone()
    }

    fn build_client_config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        // Machines carry old certificates that no longer parse; they are skipped.
        let (added, _) = roots.add_parsable_certificates(self.certificates());
        if added == 0 {
            return Err("this machine has no trusted certificates".to_owned());
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

/// A certificate in PEM.
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

impl fmt::Debug for TrustedRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustedRoots").field("extra", &self.extra.len()).finish_non_exhaustive()
    }
}
