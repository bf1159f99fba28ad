//! The authority that the program inside believes: made for one run, its key never leaves this process, and it signs
//! names that the configuration lists and nothing else. A certificate a name, made when it is needed.

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

/// More names of one run have their certificate made anew each time.
const MOST: usize = 1000;

pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    made: Mutex<HashMap<HostName, Arc<ServerConfig>>>,
}

impl Authority {
    pub(super) fn new() -> Result<Self, String> {
        let fault = |error: rcgen::Error| error.to_string();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "Vambrace, for one run");
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(fault)?).map_err(fault)?;
        Ok(Self { issuer, made: Mutex::default() })
    }

    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// What is shown to a client that asks for this name. HTTP/1 is all that is spoken.
    pub(super) fn server(&self, name: &HostName) -> Result<Arc<ServerConfig>, String> {
        if let Some(made) = self.made.lock().get(name) {
            return Ok(Arc::clone(made));
        }
        let config = Arc::new(self.make(name)?);
        let mut made = self.made.lock();
        if made.len() < MOST {
            made.insert(name.clone(), Arc::clone(&config));
        }
        Ok(config)
    }

    fn make(&self, name: &HostName) -> Result<ServerConfig, String> {
        let fault = |error: rcgen::Error| error.to_string();
        let mut params = CertificateParams::new(vec![name.as_str().to_owned()]).map_err(fault)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().map_err(fault)?;
        let leaf = params.signed_by(&key, &self.issuer).map_err(fault)?;
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
