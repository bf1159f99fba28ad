//! The certificate authority that programs in the sandbox trust. It is generated for one run, its key never leaves this
//! process, and it issues certificates only for configured names, one per name, on demand.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};
use vambrace_core::network::HostName;

/// Maximum number of cached certificates.
const MAX_CACHED: usize = 1000;

pub(super) struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    made: Mutex<HashMap<HostName, Arc<ServerConfig>>>,
}

impl CertificateAuthority {
    pub(super) fn new() -> Result<Self, String> {
        let message = |error: rcgen::Error| error.to_string();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Vambrace, for one run");
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(message)?).map_err(message)?;
        Ok(Self { issuer, made: Mutex::default() })
    }

    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// TLS server configuration for a name. Offers HTTP/1 only.
    pub(super) fn server_config(&self, name: &HostName) -> Result<Arc<ServerConfig>, String> {
        if let Some(made) = self.made.lock().get(name) {
            return Ok(Arc::clone(made));
        }
        let config = Arc::new(self.issue(name)?);
        let mut made = self.made.lock();
        if made.len() < MAX_CACHED {
            made.insert(name.clone(), Arc::clone(&config));
        }
        Ok(config)
    }

    fn issue(&self, name: &HostName) -> Result<ServerConfig, String> {
        let message = |error: rcgen::Error| error.to_string();
        let mut params = CertificateParams::new(vec![name.as_str().to_owned()]).map_err(message)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(message)?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(message)?;
        let chain = vec![leaf.der().clone(), self.certificate().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        Ok(config)
    }
}
