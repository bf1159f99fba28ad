//! Generates a self-signed certificate and the configuration of a TLS server that uses it.
//!
//! For tests only: panics on invalid names.
#![expect(clippy::unwrap_used, reason = "for tests, which fail by panicking")]

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

/// A self-signed certificate.
#[derive(Debug)]
pub struct SelfSigned {
    /// In DER.
    pub der: Vec<u8>,
    /// In PEM.
    pub pem: String,
    /// Configuration of a server that uses it.
    pub config: ServerConfig,
}

/// Generates a certificate for these names.
#[must_use]
pub fn for_names(names: &[&str]) -> SelfSigned {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let packed = STANDARD.encode(made.cert.der());
    let pem = format!("-----BEGIN CERTIFICATE-----\n{packed}\n-----END CERTIFICATE-----\n");
    SelfSigned { der: made.cert.der().to_vec(), pem, config }
}
