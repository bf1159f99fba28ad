//! TLS termination at the gate for configured hosts: their requests can be checked by method and path, and the gate can add a
//! credential that the program never sees. Off unless configured.
//!
//! **Invariants.** The server is verified with real certificates before any byte of the program is forwarded. A request that
//! two servers could parse differently is denied. A credential's value goes only into the configured header, only to the
//! configured host, only over TLS, and is redacted from every response before the program sees it.

mod certificate_authority;
mod decompress;
mod path_rules;
mod prefixed_stream;
mod request;
mod response;
mod session;
mod websocket;

use std::fmt;
use std::sync::Arc;

use vambrace_core::network::{
    BadNetworkRule, Destination, HostName, NetworkDecision, NetworkFence, NetworkReason, NetworkRule,
    NetworkRules, PortSet,
};
use vambrace_redact::{KnownValue, Redactor, RuleSet as Nothing, SecretBytes};

use crate::connect::Lookups;
use crate::trusted_roots::{TrustedRoots, pem};
use certificate_authority::CertificateAuthority;
pub(crate) use session::TerminatedSession;

/// The hosts whose TLS the gate terminates, and the certificate authority that issues their certificates for the program.
pub struct TlsTermination {
    entries: Vec<TerminatedHosts>,
    /// Redacts every known value from responses; `None` where there is no known value.
    redactor: Option<Redactor>,
    authority: CertificateAuthority,
    trust: Arc<TrustedRoots>,
}

/// Hosts, and the methods and paths that are allowed there.
#[derive(Debug)]
pub struct TerminatedHosts {
    hosts: NetworkRules,
    /// Empty allows all.
    methods: Vec<String>,
    /// Empty allows all.
    paths: Vec<String>,
    credential: Option<Credential>,
}

/// A secret for which the program holds a placeholder.
pub struct Credential {
    /// The header's name, in lower case.
    header: String,
    placeholder: String,
    value: SecretBytes,
}

/// An invalid configuration of TLS termination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTermination {
    /// The host rule is invalid.
    #[error(transparent)]
    Host(#[from] BadNetworkRule),
    /// The value could not be redacted from responses.
    #[error("the value for header `{0}` is too short to be redacted from responses")]
    Value(String),
    /// The header's name or value is invalid.
    #[error(
        "`{0}` is not a valid header name, or its value is empty or has characters that a header cannot hold"
    )]
    Header(String),
    /// The certificate could not be generated.
    #[error("cannot generate a certificate: {0}")]
    Certificate(String),
}

impl TerminatedHosts {
    /// Hosts in rule syntax, allowed methods and paths, and an optional credential.
    pub fn new(
        hosts: &[String],
        methods: Vec<String>,
        paths: Vec<String>,
        credential: Option<Credential>,
    ) -> Result<Self, BadTermination> {
        // A host without a port is terminated on every port: another port would bypass the checks.
        let whole = |host: &String| {
            let rule = NetworkRule::parse(host)?;
            Ok(if rule.ports == PortSet::Web { format!("{}:*", rule.canonical()) } else { rule.text })
        };
        let hosts: Vec<String> = hosts.iter().map(whole).collect::<Result<_, BadNetworkRule>>()?;
        let hosts = NetworkRules::parse(hosts.iter().map(String::as_str))?;
        Ok(Self { hosts, methods, paths, credential })
    }
}

/// Whether a literal address could bypass termination, since it carries no name to match. On the ports of terminated hosts,
/// an address is allowed only if a rule names it, not because everything is allowed; and where the hosts are a wildcard,
/// whose addresses cannot be known, only if a rule names exactly this address. [`deny_address_of_terminated_host`] checks
/// whether it is the address of a host that is listed by name.
pub(crate) fn bypasses_termination(
    entries: &[TerminatedHosts],
    reach: &NetworkFence,
    host: &Destination,
    port: u16,
) -> bool {
    let Destination::Address(address) = host else { return false };
    let mut here = entries.iter().filter(|entry| entry.hosts.uses_port(port)).peekable();
    here.peek().is_some()
        && (!reach.any_lists_address(*address, port)
            || here.any(|entry| entry.hosts.has_wildcard_on(port))
                && !reach.any_lists_single_address(*address, port))
}

/// Denies the literal address of a terminated host: a rule that lists the address lets the name resolve to it, which must
/// not bypass the checks by name. When the host cannot be resolved the address is denied, except behind an upstream proxy,
/// which resolves names itself.
pub(crate) async fn deny_address_of_terminated_host(
    entries: &[TerminatedHosts],
    lookups: &Lookups,
    host: &Destination,
    port: u16,
    resolves: NameResolution,
) -> Result<(), NetworkReason> {
    let Destination::Address(address) = host else { return Ok(()) };
    for name in entries.iter().flat_map(|entry| entry.hosts.hosts_on(port)) {
        match lookups.resolve(name).await {
            Ok(found) if found.iter().any(|one| one.to_canonical() == *address) => {
                return Err(NetworkReason::AddressOf(name.clone()));
            }
            Err(_) if resolves == NameResolution::Local => {
                return Err(NetworkReason::Unreachable(format!(
                    "`{name}` does not resolve, so the gate cannot tell whether this is its address"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where names are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameResolution {
    Local,
    UpstreamProxy,
}

/// Checks a request of the broker's own HTTP client by the same rules as a program's.
pub(crate) fn check_fetch(
    entries: &[TerminatedHosts],
    host: &Destination,
    port: u16,
    asked: (bool, &str, &str),
) -> Result<(), NetworkReason> {
    let (is_secure, method, path) = asked;
    let Some(entry) = entry_for(entries, host, port) else { return Ok(()) };
    if !is_secure {
        return Err(NetworkReason::NotUnderstood("this host accepts only TLS"));
    }
    request::check_allowed(method, path, entry)
}

/// The first entry that matches the host.
fn entry_for<'a>(
    entries: &'a [TerminatedHosts],
    host: &Destination,
    port: u16,
) -> Option<&'a TerminatedHosts> {
    entries.iter().find(|entry| matches!(entry.hosts.judge(host, port), NetworkDecision::Allow(_)))
}

impl Credential {
    /// A header name, the placeholder that the program holds, and the value that replaces it.
    pub fn new(header: &str, placeholder: String, value: &SecretBytes) -> Result<Self, BadTermination> {
        let name =
            !header.is_empty() && header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let value = SecretBytes::new(value.expose().trim_ascii());
        let plain = value.expose().iter().all(|byte| matches!(byte, b' '..=b'~'));
        if !name || !plain || value.expose().is_empty() {
            return Err(BadTermination::Header(header.to_owned()));
        }
        let own = Self { header: header.to_ascii_lowercase(), placeholder, value };
        // The output of this redactor is discarded, so any key works.
        let redactor = Redactor::new(Nothing::empty(), &[own.known_value()], &[], &[0; 32]);
        let found = redactor.redact_bytes(own.value.expose()).is_ok_and(|(_, count)| count > 0);
        if found { Ok(own) } else { Err(BadTermination::Value(header.to_owned())) }
    }

    fn known_value(&self) -> KnownValue {
        KnownValue { kind: "credential".to_owned(), value: self.value.clone() }
    }
}

impl TlsTermination {
    /// Terminates TLS for these hosts and verifies servers against `trust`. The values of all credentials, and `further` ones,
    /// are redacted from the responses of every host; `key` is the key of the placeholders.
    pub fn new(
        entries: Vec<TerminatedHosts>,
        trust: Arc<TrustedRoots>,
        further: &[KnownValue],
        key: &[u8; 32],
    ) -> Result<Self, BadTermination> {
        let authority = CertificateAuthority::new().map_err(BadTermination::Certificate)?;
        let own = entries.iter().filter_map(|entry| entry.credential.as_ref()).map(Credential::known_value);
        let known: Vec<KnownValue> = own.chain(further.iter().cloned()).collect();
        let redactor = (!known.is_empty()).then(|| Redactor::new(Nothing::empty(), &known, &[], key));
        Ok(Self { entries, redactor, authority, trust })
    }

    /// The entries; the first match wins.
    pub(crate) fn entries(&self) -> &[TerminatedHosts] {
        &self.entries
    }

    /// The certificates that a program in the sandbox must trust, in PEM: the machine's and the gate's own.
    #[must_use]
    pub fn certificate_bundle(&self) -> String {
        let all = self.trust.certificates();
        all.iter().chain([self.authority.certificate()]).map(pem).collect()
    }

    /// The entry for a host; `None` where its TLS is not terminated.
    pub(crate) fn entry_for_host(&self, host: &HostName, port: u16) -> Option<&TerminatedHosts> {
        entry_for(&self.entries, &Destination::Name(host.clone()), port)
    }

    /// Whether a head holds a placeholder of another host's credential.
    pub(crate) fn has_foreign_placeholder(&self, head: &[u8], meant: Option<&TerminatedHosts>) -> bool {
        let meant = meant.and_then(|entry| entry.credential.as_ref()).map(|own| own.placeholder.as_str());
        let all = self.entries.iter().filter_map(|entry| entry.credential.as_ref());
        let mut others = all.filter(|one| Some(one.placeholder.as_str()) != meant);
        others.any(|one| contains_placeholder(head, one.placeholder.as_bytes()))
    }
}

/// Whether a head contains a placeholder, also inside Basic authentication.
fn contains_placeholder(head: &[u8], placeholder: &[u8]) -> bool {
    let inside = |text: &[u8]| text.windows(placeholder.len()).any(|part| part == placeholder);
    inside(head)
        || head.split(|byte| *byte == b'\n').any(|line| {
            let word = line.trim_ascii().rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            request::decode_base64(word).is_some_and(|plain| inside(&plain))
        })
}

impl fmt::Debug for TlsTermination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTermination").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("header", &self.header).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
