//! Sends one request over http or https: no redirects, no proxies, no connection reuse. The server may be hostile or dead:
//! the response is bounded in size and time.

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

/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;

/// The HTTP endpoint of a witness.
pub(crate) struct WitnessEndpoint {
    host: String,
    port: u16,
    /// The value of the `Host` header.
    authority: String,
    path: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A response of a witness.
#[derive(Debug)]
pub(crate) struct WitnessResponse {
    pub(crate) status: u16,
    body: Bytes,
}

impl WitnessEndpoint {
    /// For https, trusts the machine's certificates: a witness may belong to the user's own organisation.
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

    /// Sends a body and waits for the response, at most `left`. Runs on a thread of its own, so that it can also be called
    /// from inside another runtime.
    pub(crate) fn post(
        this: &Arc<Self>,
        body: String,
        left: &mut Duration,
    ) -> Result<WitnessResponse, String> {
        let (endpoint, time, began) = (Arc::clone(this), *left, Instant::now());
        let thread = thread::Builder::new().name("vambrace-witness".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
            let sent = runtime.block_on(async { tokio::time::timeout(time, endpoint.send(body)).await });
            // A name lookup cannot be interrupted; do not wait for it.
            runtime.shutdown_background();
            sent.unwrap_or_else(|_| Err("timed out".to_owned()))
        });
        let thread = thread.map_err(|error| format!("cannot start a thread: {error}"))?;
        let sent =
            thread.join().unwrap_or_else(|_| Err("internal error: the request thread panicked".to_owned()));
        *left = left.saturating_sub(began.elapsed());
        sent
    }

    async fn send(&self, body: String) -> Result<WitnessResponse, String> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| format!("cannot connect to `{}`: {error}", self.authority))?;
        match &self.tls {
            None => self.send_over(stream, body).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                let stream = stream
                    .map_err(|error| format!("TLS handshake with `{}` failed: {error}", self.authority))?;
                self.send_over(stream, body).await
            }
        }
    }

    async fn send_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: String,
    ) -> Result<WitnessResponse, String> {
        let broken = |error: &dyn fmt::Display| format!("no response from `{}`: {error}", self.authority);
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_RESPONSE_BYTES)
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
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        Ok(WitnessResponse { status, body: body.map_err(|error| broken(&error))?.to_bytes() })
    }
}

fn connector(certificates: Vec<CertificateDer<'static>>) -> Result<TlsConnector, BadWitness> {
    let mut roots = RootCertStore::empty();
    // Machines carry old certificates that no longer parse; they are skipped.
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(BadWitness::Certificates("none of them can be parsed".to_owned()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| BadWitness::Certificates(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

impl WitnessResponse {
    /// The body as text; empty if it is not UTF-8.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_default()
    }

    /// The size in the body of a conflict, in canonical decimal.
    pub(crate) fn size(&self) -> Option<u64> {
        let digits = self.text().strip_suffix('\n')?;
        digits.parse::<u64>().ok().filter(|size| size.to_string() == digits)
    }
}

impl fmt::Display for WitnessResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why: String = self.text().trim().chars().take(200).filter(|c| !c.is_control()).collect();
        write!(f, "status {}: {why}", self.status)
    }
}

impl fmt::Debug for WitnessEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_strictly() {
        let at =
            |url: &str| WitnessEndpoint::new(url).map(|end| (end.host, end.port, end.authority, end.path));
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
