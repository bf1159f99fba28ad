//! A URL that can be fetched: http or https, with a canonical host name or an address, and without user or password. The
//! host is parsed once; the same value is checked and dialled.

use std::fmt;

use url::{Host, Url};
use vambrace_core::network::{Destination, HostName};

/// Maximum length of a URL in bytes.
const MAX_URL_BYTES: usize = 8 << 10;

/// A parsed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchUrl {
    url: Url,
    host: Destination,
    port: u16,
}

/// Why a URL cannot be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Not a URL.
    #[error("not a URL: {0}")]
    Form(String),
    /// Another scheme than http and https.
    #[error("scheme `{0}:` is not supported, only `http:` and `https:`")]
    Scheme(String),
    /// It has a user or password.
    #[error("a URL with a user or password is not allowed")]
    Userinfo,
    /// No host, or an invalid one.
    #[error("it has no valid host name")]
    Host,
    /// Longer than the limit.
    #[error("longer than 8 KiB")]
    TooLong,
}

impl FetchUrl {
    /// Parses a URL.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.len() > MAX_URL_BYTES {
            return Err(BadUrl::TooLong);
        }
        Self::of(Url::parse(text).map_err(|error| BadUrl::Form(error.to_string()))?)
    }

    /// Resolves the location of a redirect against this URL.
    pub fn join(&self, location: &str) -> Result<Self, BadUrl> {
        if location.len() > MAX_URL_BYTES {
            return Err(BadUrl::TooLong);
        }
        Self::of(self.url.join(location).map_err(|error| BadUrl::Form(error.to_string()))?)
    }

    fn of(mut url: Url) -> Result<Self, BadUrl> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BadUrl::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadUrl::Userinfo);
        }
        let host = match url.host() {
            Some(Host::Domain(name)) => Destination::Name(HostName::parse(name).map_err(|_| BadUrl::Host)?),
            // The URL parser has turned every numeric spelling (hexadecimal, octal, short forms) into an address.
            Some(Host::Ipv4(address)) => Destination::Address(address.into()),
            Some(Host::Ipv6(address)) => Destination::Address(std::net::IpAddr::from(address).to_canonical()),
            None => return Err(BadUrl::Host),
        };
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(BadUrl::Host)?;
        url.set_fragment(None);
        Ok(Self { url, host, port })
    }

    /// The URL, without its fragment.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Destination {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is https.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    pub(super) fn same_origin(&self, other: &Self) -> bool {
        self.url.scheme() == other.url.scheme() && self.host == other.host && self.port == other.port
    }

    /// Host and port, for messages.
    #[must_use]
    pub fn host_and_port(&self) -> String {
        match &self.host {
            Destination::Address(address @ std::net::IpAddr::V6(_)) => format!("[{address}]:{}", self.port),
            host => format!("{host}:{}", self.port),
        }
    }

    /// Path and query, as in the request line.
    pub(super) fn path(&self) -> String {
        match self.url.query() {
            Some(query) => format!("{}?{query}", self.url.path()),
            None => self.url.path().to_owned(),
        }
    }

    /// The value of the `Host` header.
    pub(super) fn authority(&self) -> String {
        let usual = if self.is_secure() { 443 } else { 80 };
        match (&self.host, self.port == usual) {
            (Destination::Address(address @ std::net::IpAddr::V6(_)), true) => format!("[{address}]"),
            (host, true) => host.to_string(),
            (_, false) => self.host_and_port(),
        }
    }
}

impl fmt::Display for FetchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let read = FetchUrl::parse(text)
            .map(|target| format!("{} {} {}", target.host_and_port(), target.authority(), target.path()));
        assert_eq!(read.unwrap_or_else(|bad| format!("no: {bad}")), expected, "{text}");
    }

    // S13, P3: a URL has exactly one interpretation
    #[test]
    fn url_is_parsed_to_exactly_one_host() {
        check("https://Example.COM/a?b=c#d", "example.com:443 example.com /a?b=c");
        check("http://example.com:8080", "example.com:8080 example.com:8080 /");
        check("http://bücher.example/", "xn--bcher-kva.example:80 xn--bcher-kva.example /");
        check("https://example.com./", "example.com:443 example.com /");
        for numeric in ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "0x7f000001", "１２７.０.０.１"]
        {
            check(&format!("http://{numeric}/"), "127.0.0.1:80 127.0.0.1 /");
        }
        check("http://[::ffff:169.254.169.254]/", "169.254.169.254:80 169.254.169.254 /");
        check("http://[::1]:81/", "[::1]:81 [::1]:81 /");
        check("http://good.example\\@evil.example/", "good.example:80 good.example /@evil.example/");
        check("http://good.example#@evil.example/", "good.example:80 good.example /");
    }

    // S13
    #[test]
    fn urls_that_must_not_be_fetched_are_rejected() {
        for text in [
            "http://user@evil.example/",
            "http://good.example:80@evil.example/",
            "http://user:pass@good.example/",
            "file:///etc/passwd",
            "gopher://good.example/",
            "javascript:alert(1)",
            "data:text/html,x",
            "good.example",
            "http://",
            "http://good.example:0/",
            "http://good.example:99999/",
            "http://good example/",
            "http://good.example%00.evil.example/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
        ] {
            assert!(FetchUrl::parse(text).is_err(), "{text}: {:?}", FetchUrl::parse(text));
        }
        assert_eq!(FetchUrl::parse(&format!("http://a/{}", "x".repeat(9000))), Err(BadUrl::TooLong));
    }
}
