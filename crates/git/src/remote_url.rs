//! Addresses of remotes: `https` and `ssh` only, taken apart so that host and port can be judged.
//!
//! **Invariant.** A [`RemoteUrl`] as text is put together from the checked parts; git and ssh get that text, never the original.
//! No part of it can be an option of ssh, start a helper (`ext::`, `name::`) or name a local path.

use std::net::IpAddr;

use vambrace_core::network::{BadHostName, Destination, HostName};

/// Maximum length of an address, in bytes.
const MAX_URL_BYTES: usize = 1000;

/// How git reaches a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteTransport {
    /// Over TLS.
    Https,
    /// Without TLS; only to this machine, and only if allowed.
    Http,
    /// By ssh.
    Ssh,
}

impl RemoteTransport {
    /// The name of the protocol.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Ssh => "ssh",
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
            Self::Ssh => 22,
        }
    }
}

/// Whether `http` without TLS is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainHttp {
    /// Never.
    Deny,
    /// To loopback addresses.
    LoopbackOnly,
}

/// A checked address of a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    transport: RemoteTransport,
    user: Option<String>,
    host: Destination,
    /// If it is not the usual one.
    port: Option<u16>,
    /// Starts with `/`, except in the form `user@host:path`, which has a user and no port.
    path: String,
}

/// Why an address is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RemoteUrlError {
    /// Longer than 1000 bytes.
    #[error("the address is too long")]
    TooLong,
    /// A control character, a space, or one that is not ASCII.
    #[error("the address contains a character that is not allowed")]
    Character,
    /// A local path, `file:`, `git:`, `ext::` or another helper.
    #[error("only `https://` and `ssh://` addresses are allowed")]
    Transport,
    /// `http:` where it is not allowed.
    #[error("`http://` sends everything unencrypted; use `https://`")]
    PlainHttp,
    /// A password in the address.
    #[error("the address contains a password")]
    Password,
    /// The user name.
    #[error("the user name in the address is not valid")]
    User,
    /// The host.
    #[error("the host in the address is not valid: {0}")]
    Host(#[from] BadHostName),
    /// The port.
    #[error("the port in the address is not valid")]
    Port,
    /// The path.
    #[error("the path in the address is not valid")]
    Path,
}

impl RemoteUrl {
    /// Checks an address: `https://host/path`, `ssh://user@host:port/path` or `user@host:path`.
    pub fn parse(text: &str, plain_http: PlainHttp) -> Result<Self, RemoteUrlError> {
        if text.len() > MAX_URL_BYTES {
            return Err(RemoteUrlError::TooLong);
        }
        let (transport, authority, path) = match text.split_once("://") {
            Some((scheme, rest)) => {
                let (authority, path) = rest.split_once('/').ok_or(RemoteUrlError::Path)?;
                (transport_of(scheme)?, authority, format!("/{path}"))
            }
            None => scp_form(text)?,
        };
        if text.contains(|c: char| !c.is_ascii_graphic() || matches!(c, '"' | '\'' | '\\' | '`' | '<' | '>'))
        {
            return Err(RemoteUrlError::Character);
        }
        let (user, host) = split_user(authority)?;
        let (host, port) = split_port(host)?;
        let port = port.filter(|port| *port != transport.default_port());
        check_path(transport, &path)?;
        let url = Self { transport, user, host, port, path };
        if transport == RemoteTransport::Http && (plain_http == PlainHttp::Deny || !url.is_loopback()) {
            return Err(RemoteUrlError::PlainHttp);
        }
        Ok(url)
    }

    /// How git reaches it.
    #[must_use]
    pub fn transport(&self) -> RemoteTransport {
        self.transport
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Destination {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(self.transport.default_port())
    }

    fn is_loopback(&self) -> bool {
        match &self.host {
            Destination::Name(name) => name.is_localhost(),
            Destination::Address(address) => address.to_canonical().is_loopback(),
        }
    }
}

impl std::fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let relative = !self.path.starts_with('/');
        if !relative {
            write!(f, "{}://", self.transport.as_str())?;
        }
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match &self.host {
            Destination::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
            host => write!(f, "{host}")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if relative {
            f.write_str(":")?;
        }
        f.write_str(&self.path)
    }
}

fn transport_of(scheme: &str) -> Result<RemoteTransport, RemoteUrlError> {
    match scheme {
        "https" => Ok(RemoteTransport::Https),
        "http" => Ok(RemoteTransport::Http),
        "ssh" => Ok(RemoteTransport::Ssh),
        _ => Err(RemoteUrlError::Transport),
    }
}

/// `user@host:path`. A relative path has no form as a URL that every server accepts.
fn scp_form(text: &str) -> Result<(RemoteTransport, &str, String), RemoteUrlError> {
    let (authority, path) = text.split_once(':').ok_or(RemoteUrlError::Transport)?;
    // A colon after a slash is a local path, two colons name a helper, a bracket holds an address.
    let local = authority.contains(['/', '[', ']']) || authority.len() == 1 || path.starts_with(':');
    if local || path.is_empty() || !authority.contains('@') {
        return Err(RemoteUrlError::Transport);
    }
    Ok((RemoteTransport::Ssh, authority, path.to_owned()))
}

fn split_user(authority: &str) -> Result<(Option<String>, &str), RemoteUrlError> {
    let Some((user, host)) = authority.rsplit_once('@') else { return Ok((None, authority)) };
    if user.contains(':') {
        return Err(RemoteUrlError::Password);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    if user.is_empty() || user.starts_with('-') || !user.chars().all(plain) {
        return Err(RemoteUrlError::User);
    }
    Ok((Some(user.to_owned()), host))
}

fn split_port(host: &str) -> Result<(Destination, Option<u16>), RemoteUrlError> {
    let (host, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').ok_or(BadHostName::Character)?;
            let address = address.parse().map_err(|_| BadHostName::Character)?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(RemoteUrlError::Port)?),
            };
            (Destination::Address(IpAddr::V6(address)), port)
        }
        None => {
            let (host, port) = host.split_once(':').map_or((host, None), |(host, port)| (host, Some(port)));
            if host.starts_with('-') {
                return Err(BadHostName::Character.into());
            }
            match host.parse() {
                Ok(address) => (Destination::Address(IpAddr::V4(address)), port),
                Err(_) => (Destination::Name(HostName::parse(host)?), port),
            }
        }
    };
    let port = port.map(|port| match port.parse() {
        Ok(number) if number != 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
        _ => Err(RemoteUrlError::Port),
    });
    Ok((host, port.transpose()?))
}

fn check_path(transport: RemoteTransport, path: &str) -> Result<(), RemoteUrlError> {
    let climbs = path.split('/').any(|name| name == "..");
    let query = transport != RemoteTransport::Ssh && path.contains(['?', '#']);
    let shell = path.contains(['$', ';', '|', '&', '(', ')', '{', '}', '*', '!']);
    let option = path.split('/').any(|name| name.starts_with('-'));
    if path == "/" || climbs || query || shell || option { Err(RemoteUrlError::Path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: Result<(&str, &str, u16), RemoteUrlError>) {
        let url = RemoteUrl::parse(text, PlainHttp::LoopbackOnly);
        let parts = url.map(|url| (url.to_string(), url.host().to_string(), url.port()));
        assert_eq!(
            parts,
            expected.map(|(url, host, port)| (url.to_owned(), host.to_owned(), port)),
            "{text}"
        );
    }

    #[test]
    fn https_and_ssh_addresses_are_taken_apart() {
        check("https://github.com/a/b.git", Ok(("https://github.com/a/b.git", "github.com", 443)));
        check("https://u@GitHub.com:8443/a", Ok(("https://u@github.com:8443/a", "github.com", 8443)));
        check("https://a.b:443/x", Ok(("https://a.b/x", "a.b", 443)));
        check("ssh://git@host:2222/srv/x.git", Ok(("ssh://git@host:2222/srv/x.git", "host", 2222)));
        check("git@github.com:a/b.git", Ok(("git@github.com:a/b.git", "github.com", 22)));
        check("git@h.x:/srv/r", Ok(("ssh://git@h.x/srv/r", "h.x", 22)));
        check("ssh://[::1]:2222/r", Ok(("ssh://[::1]:2222/r", "::1", 2222)));
        check("http://127.0.0.1:8080/r", Ok(("http://127.0.0.1:8080/r", "127.0.0.1", 8080)));
        check("http://localhost/r", Ok(("http://localhost/r", "localhost", 80)));
    }

    // T15
    #[test]
    fn other_transports_and_tricks_are_rejected() {
        for text in [
            "ext::sh -c touch% x",
            "file:///srv/x",
            "/srv/x",
            "../x",
            "git://h/x",
            "ftp://h/x",
            "http::https://x/y",
            "ext::x",
            "transport::user@host:x",
            "C:/x",
            "host:path",
            "ssh+git://h/x",
            "HTTPS://h/x",
        ] {
            assert_eq!(RemoteUrl::parse(text, PlainHttp::Deny), Err(RemoteUrlError::Transport), "{text}");
        }
        check("ssh://-oProxyCommand=x/y", Err(RemoteUrlError::Host(BadHostName::Character)));
        check("-oProxyCommand=x@h:y", Err(RemoteUrlError::User));
        check("ssh://-x@h/y", Err(RemoteUrlError::User));
        check("ssh://h/-x", Err(RemoteUrlError::Path));
        check("git@h:-x", Err(RemoteUrlError::Path));
        check("https://u:p@h/x", Err(RemoteUrlError::Password));
        check("https://h/x?y", Err(RemoteUrlError::Path));
        check("ssh://h/x;id", Err(RemoteUrlError::Path));
        check("ssh://h/../x", Err(RemoteUrlError::Path));
        check("https://h", Err(RemoteUrlError::Path));
        check("https://h/", Err(RemoteUrlError::Path));
        check("https:///x", Err(RemoteUrlError::Host(BadHostName::Empty)));
        check("https://h:0/x", Err(RemoteUrlError::Port));
        check("https://h:+1/x", Err(RemoteUrlError::Port));
        check("https://0x7f.1/x", Err(RemoteUrlError::Host(BadHostName::Numeric)));
        check("https://a%2eb/x", Err(RemoteUrlError::Host(BadHostName::Character)));
        check("http://example.com/x", Err(RemoteUrlError::PlainHttp));
        check("https://h/a b", Err(RemoteUrlError::Character));
        check("https://h/\n", Err(RemoteUrlError::Character));
        check(&format!("https://h/{}", "a".repeat(1000)), Err(RemoteUrlError::TooLong));
        assert_eq!(RemoteUrl::parse("http://localhost/x", PlainHttp::Deny), Err(RemoteUrlError::PlainHttp));
    }

    proptest! {
        #[test]
        fn accepted_addresses_are_stable_and_plain(text in "(https://|ssh://|git@|)[-a-z0-9.:@/~\\[\\]%+_]{0,30}") {
            if let Ok(url) = RemoteUrl::parse(&text, PlainHttp::Deny) {
                let again = RemoteUrl::parse(&url.to_string(), PlainHttp::Deny).unwrap();
                prop_assert_eq!(&again, &url);
                prop_assert!(!url.host().to_string().starts_with('-'));
                prop_assert!(!url.to_string().contains("::") || url.to_string().contains('['));
            }
        }
    }
}
