//! TLS that ends at the gate, for hosts that the configuration names: what is asked of them can then be judged by method
//! and path, and a credential that the program never sees can be put into a header. Off unless configured.
//!
//! **Invariants.** The other side is verified with real certificates before anything of the program goes out. A request
//! that two servers could read differently is refused. A credential's value goes into the named header of the named
//! host only, over TLS only, and is taken out of everything that comes back before the program sees it.

mod authority;
mod borrowed;
mod path;
mod request;
mod response;
mod session;
mod unpack;
mod websocket;

use std::fmt;
use std::sync::Arc;

use vambrace_core::network::{BadRule, Destination, HostName, Ports, Reach, Reason, Rule, Rules, Verdict};
use vambrace_redact::{KnownValue, Redactor, Rules as Nothing, Secret};

use crate::connect::Lookups;
use crate::trust::{Trust, pem};
use authority::Authority;
pub(crate) use session::Session;

/// The hosts whose TLS ends here, and the authority that stands in for theirs.
pub struct Termination {
    entries: Vec<Terminated>,
    /// Takes every known value out of what comes back; nothing where there is none.
    scrubber: Option<Redactor>,
    authority: Authority,
    trust: Arc<Trust>,
}

/// Some hosts and what may be asked of them.
#[derive(Debug)]
pub struct Terminated {
    hosts: Rules,
    /// All where none is named.
    methods: Vec<String>,
    /// All where none is named.
    paths: Vec<String>,
    credential: Option<Credential>,
}

/// A secret that the program knows by a placeholder.
pub struct Credential {
    /// The header, in lower case.
    header: String,
    placeholder: String,
    value: Secret,
}

/// Why TLS cannot end here as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTermination {
    /// A host.
    #[error(transparent)]
    Host(#[from] BadRule),
    /// A value that could not be taken out of answers.
    #[error("the value for header `{0}` is too short to be found again in what comes back")]
    Value(String),
    /// A header's name or value.
    #[error("`{0}` is no header, or its value holds a line end")]
    Header(String),
    /// No certificate could be made.
    #[error("no certificate could be made: {0}")]
    Certificate(String),
}

impl Terminated {
    /// Hosts as rules name them, the methods and paths that pass, and perhaps a credential.
    pub fn new(
        hosts: &[String],
        methods: Vec<String>,
        paths: Vec<String>,
        credential: Option<Credential>,
    ) -> Result<Self, BadTermination> {
        // Without a port every port is meant: another one would be a way around.
        let whole = |host: &String| {
            let rule = Rule::parse(host)?;
            Ok(if rule.ports == Ports::Web { format!("{}:*", rule.spelled()) } else { rule.text })
        };
        let hosts: Vec<String> = hosts.iter().map(whole).collect::<Result<_, BadRule>>()?;
        let hosts = Rules::parse(hosts.iter().map(String::as_str))?;
        Ok(Self { hosts, methods, paths, credential })
    }
}

/// Whether an address would be a way around: who writes one out says no name that could be looked for. So where TLS of
/// some hosts ends here, an address is reached on their ports only if a rule names it, not because everything is allowed;
/// and where they are all those below a name, so that nobody knows their addresses, only if a rule names it alone. Whether
/// it is the address of a host that is known by name is for [`refuse_address_of_a_host`].
pub(crate) fn is_way_around(entries: &[Terminated], reach: &Reach, host: &Destination, port: u16) -> bool {
    let Destination::Address(address) = host else { return false };
    let mut here = entries.iter().filter(|entry| entry.hosts.uses_port(port)).peekable();
    here.peek().is_some()
        && (!reach.means_address(*address, port)
            || here.any(|entry| entry.hosts.has_wildcard_on(port)) && !reach.means_alone(*address, port))
}

/// Refuses the address of a host whose TLS ends here: a rule that names it lets the name lead there, which must not open a
/// way around the name. What cannot be found out is refused, unless somebody else resolves names.
pub(crate) async fn refuse_address_of_a_host(
    entries: &[Terminated],
    lookups: &Lookups,
    host: &Destination,
    port: u16,
    resolves: Resolves,
) -> Result<(), Reason> {
    let Destination::Address(address) = host else { return Ok(()) };
    for name in entries.iter().flat_map(|entry| entry.hosts.hosts_on(port)) {
        match lookups.find_in_time(name).await {
            Ok(found) if found.iter().any(|one| one.to_canonical() == *address) => {
                return Err(Reason::AddressOf(name.clone()));
            }
            Err(_) if resolves == Resolves::Here => {
                return Err(Reason::Unreachable(format!(
                    "`{name}` is not resolved, so whether this is its address cannot be told"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Who knows where names lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolves {
    Here,
    Upstream,
}

/// Whether this may be asked of a host, for who asks it without a program in between: as a program would be judged.
pub(crate) fn may_ask(
    entries: &[Terminated],
    host: &Destination,
    port: u16,
    asked: (bool, &str, &str),
) -> Result<(), Reason> {
    let (is_secure, method, path) = asked;
    let Some(entry) = entry_for(entries, host, port) else { return Ok(()) };
    if !is_secure {
        return Err(Reason::NotUnderstood("only TLS is spoken with this host"));
    }
    request::allowed(method, path, entry)
}

/// The first that names the host counts.
fn entry_for<'a>(entries: &'a [Terminated], host: &Destination, port: u16) -> Option<&'a Terminated> {
    entries.iter().find(|entry| matches!(entry.hosts.judge(host, port), Verdict::Allow(_)))
}

impl Credential {
    /// A header, the placeholder that the program holds, and the value behind it.
    pub fn new(header: &str, placeholder: String, value: &Secret) -> Result<Self, BadTermination> {
        let name =
            !header.is_empty() && header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let value = Secret::new(value.expose().trim_ascii());
        let plain = value.expose().iter().all(|byte| matches!(byte, b' '..=b'~'));
        if !name || !plain || value.expose().is_empty() {
            return Err(BadTermination::Header(header.to_owned()));
        }
        let own = Self { header: header.to_ascii_lowercase(), placeholder, value };
        // Nothing of this one is shown to anybody, so any key will do.
        let scrubber = Redactor::new(Nothing::bare(), &[own.known()], &[], &[0; 32]);
        let found = scrubber.redact_bytes(own.value.expose()).is_ok_and(|(_, count)| count > 0);
        if found { Ok(own) } else { Err(BadTermination::Value(header.to_owned())) }
    }

    fn known(&self) -> KnownValue {
        KnownValue { kind: "credential".to_owned(), value: self.value.clone() }
    }
}

impl Termination {
    /// For these hosts; the other side is believed as `trust` says. The values of all credentials, and these further
    /// ones, are taken out of what any of the hosts answers; `key` marks them.
    pub fn new(
        entries: Vec<Terminated>,
        trust: Arc<Trust>,
        further: &[KnownValue],
        key: &[u8; 32],
    ) -> Result<Self, BadTermination> {
        let authority = Authority::new().map_err(BadTermination::Certificate)?;
        let own = entries.iter().filter_map(|entry| entry.credential.as_ref()).map(Credential::known);
        let known: Vec<KnownValue> = own.chain(further.iter().cloned()).collect();
        let scrubber = (!known.is_empty()).then(|| Redactor::new(Nothing::bare(), &known, &[], key));
        Ok(Self { entries, scrubber, authority, trust })
    }

    /// The hosts, in the order in which they count.
    pub(crate) fn entries(&self) -> &[Terminated] {
        &self.entries
    }

    /// Every certificate that a program inside should trust, in PEM: the machine's and the gate's own.
    #[must_use]
    pub fn bundle(&self) -> String {
        let all = self.trust.certificates();
        all.iter().chain([self.authority.certificate()]).map(pem).collect()
    }

    /// What holds for a host, where its TLS ends here.
    pub(crate) fn of(&self, host: &HostName, port: u16) -> Option<&Terminated> {
        entry_for(&self.entries, &Destination::Name(host.clone()), port)
    }

    /// Whether a head holds a placeholder that is not meant for whom it goes to.
    pub(crate) fn strays(&self, head: &[u8], meant: Option<&Terminated>) -> bool {
        let meant = meant.and_then(|entry| entry.credential.as_ref()).map(|own| own.placeholder.as_str());
        let all = self.entries.iter().filter_map(|entry| entry.credential.as_ref());
        let mut others = all.filter(|one| Some(one.placeholder.as_str()) != meant);
        others.any(|one| holds(head, one.placeholder.as_bytes()))
    }
}

/// Whether a placeholder stands in a head, also inside Basic authentication.
fn holds(head: &[u8], placeholder: &[u8]) -> bool {
    let inside = |text: &[u8]| text.windows(placeholder.len()).any(|part| part == placeholder);
    inside(head)
        || head.split(|byte| *byte == b'\n').any(|line| {
            let word = line.trim_ascii().rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            request::unpacked(word).is_some_and(|plain| inside(&plain))
        })
}

impl fmt::Debug for Termination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Termination").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("header", &self.header).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
