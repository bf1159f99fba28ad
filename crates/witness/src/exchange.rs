//! One question and its answer over http or https: no redirects, no proxies, no kept connection. The other end may
//! be hostile or dead: what it sends is bounded, and so is the time.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::client::BadWitness;

/// Longer answers are not read.
const MAX_ANSWER: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// Where a witness listens.
pub(crate) struct Endpoint {
    host: String,
    port: u16,
    /// As in the `Host` header.
    authority: String,
    path: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    body: Bytes,
}

impl Endpoint {
    /// For https the certificates are those that the machine trusts: a witness of one's own organisation is as
    /// likely as a public one.
    pub(crate) fn new(url: &str) -> Result<Self, BadWitness> {
        Self::build(url, || {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                let why = found.errors.first().map_or("the store is empty".to_owned(), ToString::to_string);
                return Err(BadWitness::Certificates(why));
            }
            Ok(found.certs)
        })
    }

    pub(crate) fn trusting(url: &str, certificates: Vec<Vec<u8>>) -> Result<Self, BadWitness> {
        Self::build(url, || Ok(certificates.into_iter().map(CertificateDer::from).collect()))
    }

    fn build(
        url: &str,
        certificates: impl FnOnce() -> Result<Vec<CertificateDer<'static>>, BadWitness>,
    ) -> Result<Self, BadWitness> {
        let bad = || BadWitness::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(bad()) };
        if uri.query().is_some() || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(bad());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let (port, tls) = match scheme {
            "http" => (80, None),
            "https" => {
                let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
                (443, Some((connector(certificates()?)?, name)))
            }
            _ => return Err(bad()),
        };
        let path = format!("{}/add-checkpoint", uri.path().trim_end_matches('/'));
        let port = authority.port_u16().unwrap_or(port);
        Ok(Self { host, port, authority: authority.to_string(), path, tls })
    }

    /// Sends a body and waits for the answer, as long as there is time left. The runtime lives on a thread of its
    /// own, so that it does not matter what kind of thread asks.
    pub(crate) fn post(this: &Arc<Self>, body: String, left: &mut Duration) -> Result<Reply, String> {
        let (endpoint, time, began) = (Arc::clone(this), *left, Instant::now());
        let asking = thread::Builder::new().name("vambrace-witness".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
            let asked = runtime.block_on(async { tokio::time::timeout(time, endpoint.ask(body)).await });
            // Resolving a name cannot be interrupted; nobody waits for it.
            runtime.shutdown_background();
            asked.unwrap_or_else(|_| Err("no answer in time".to_owned()))
        });
        let asking = asking.map_err(|error| format!("cannot start a thread: {error}"))?;
        let asked = asking.join().unwrap_or_else(|_| Err("internal fault".to_owned()));
        *left = left.saturating_sub(began.elapsed());
        asked
    }

    async fn ask(&self, body: String) -> Result<Reply, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| format!("cannot connect to `{}`: {error}", self.authority))?;
        match &self.tls {
            None => self.converse(stream, body).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                let stream = stream.map_err(|error| format!("no TLS with `{}`: {error}", self.authority))?;
                self.converse(stream, body).await
            }
        }
    }

    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: String,
    ) -> Result<Reply, String> {
        let broken = |error: &dyn fmt::Display| format!("`{}` does not answer: {error}", self.authority);
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_ANSWER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        tokio::spawn(connection);
        let request = Request::post(&self.path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "text/plain; charset=utf-8")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| broken(&error))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        Ok(Reply { status, body: body.map_err(|error| broken(&error))?.to_bytes() })
    }
}

fn connector(certificates: Vec<CertificateDer<'static>>) -> Result<TlsConnector, BadWitness> {
    let mut roots = RootCertStore::empty();
    // Machines carry old certificates that no longer parse; the others count.
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(BadWitness::Certificates("none of them can be read".to_owned()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| BadWitness::Certificates(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl Reply {
    /// The text, or nothing where it is none.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }

    /// The size that a conflict names, written plainly.
    pub(crate) fn size(&self) -> Option<u64> {
        let digits = self.text().strip_suffix('\n')?;
        digits.parse::<u64>().ok().filter(|size| size.to_string() == digits)
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why: String = self.text().trim().chars().take(200).filter(|c| !c.is_control()).collect();
        write!(f, "status {}: {why}", self.status)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_strictly() {
        let at = |url: &str| Endpoint::new(url).map(|end| (end.host, end.port, end.authority, end.path));
        let is = |url: &str, host: &str, port: u16, authority: &str, path: &str| {
            assert_eq!(at(url).unwrap(), (host.into(), port, authority.into(), path.into()), "{url}");
        };
        is("http://w.example", "w.example", 80, "w.example", "/add-checkpoint");
        is("http://127.0.0.1:81/a/b/", "127.0.0.1", 81, "127.0.0.1:81", "/a/b/add-checkpoint");
        is("http://[::1]:81", "::1", 81, "[::1]:81", "/add-checkpoint");
        for bad in
            ["", "w.example", "ftp://w.example", "http://", "http://u:p@w.example", "http://w/?a=b", "/x"]
        {
            assert!(matches!(at(bad), Err(BadWitness::Url(_))), "{bad}");
        }
    }
}
