//! The network decision: host name or address and port in, decision with rule or reason out. Pure; the gate calls it three
//! times for each connection (for the DNS query, for the host name hint, at accept), and once for each resolved address.
//!
//! **Invariants.** Only what a rule allows is allowed. A rule that denies wins. A resolved address is judged on its own:
//! allowing a name never makes a special address reachable.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::{IpNetwork, SpecialAddress, canonical, embedded_v4, special};
use super::host_name::HostName;
use super::rule::{BadNetworkRule, NetworkRule, NetworkSubject, PortSet};

/// In the lists of a configuration: every host.
pub const ANY_HOST: &str = "*";

/// A list of network rules, indexed by host name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkRules {
    /// Whether every address that is not special is allowed.
    open: bool,
    rules: Vec<NetworkRule>,
    /// Indices of the rules for exactly this name.
    hosts: HashMap<HostName, Vec<usize>>,
    /// Indices of the rules for every name below this one.
    below: HashMap<HostName, Vec<usize>>,
    /// Indices of the rules for addresses.
    networks: Vec<usize>,
}

/// The destination of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A host name.
    Name(HostName),
    /// A literal address.
    Address(IpAddr),
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Allow or deny, with the rule or the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkDecision {
    /// Allowed by this rule.
    Allow(Arc<str>),
    /// Denied for this reason.
    Deny(NetworkReason),
}

/// Why a destination is denied or cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NetworkReason {
    /// No rule allows the host.
    HostNotAllowed,
    /// A rule allows the host, but not on this port.
    PortNotAllowed,
    /// No rule allows the literal address.
    AddressNotAllowed,
    /// The address belongs to this host, for which only some requests are allowed: it must be reached by name.
    AddressOf(HostName),
    /// This rule denies it.
    DeniedByRule(Arc<str>),
    /// The address is special, and no rule lists it.
    Special(SpecialAddress),
    /// An address of the machine that the broker runs on.
    ThisMachine,
    /// A synthetic address that DNS never handed out.
    UnknownAddress,
    /// Not a host name.
    BadName,
    /// The connection itself names another host.
    NameMismatch(String),
    /// Only DNS datagrams are forwarded.
    Datagram,
    /// The host is allowed, but not this request.
    RequestNotAllowed(String),
    /// The gate cannot parse the protocol.
    NotUnderstood(&'static str),
    /// A limit of the run is reached.
    Cap(&'static str),
    /// The name has no address.
    NotFound,
    /// The connection failed.
    Unreachable(String),
}

impl NetworkReason {
    /// Whether policy denies it; `false` for failures of the network.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        !matches!(self, Self::NotFound | Self::Unreachable(_))
    }

    /// Stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::HostNotAllowed => "host_not_allowed",
            Self::PortNotAllowed => "port_not_allowed",
            Self::AddressNotAllowed | Self::AddressOf(_) => "address_not_allowed",
            Self::DeniedByRule(_) => "refused_by_rule",
            Self::Special(_) => "special_address",
            Self::ThisMachine => "this_machine",
            Self::UnknownAddress => "unknown_address",
            Self::BadName => "bad_name",
            Self::NameMismatch(_) => "name_mismatch",
            Self::Datagram => "datagram",
            Self::RequestNotAllowed(_) => "request_not_allowed",
            Self::NotUnderstood(_) => "not_understood",
            Self::Cap(_) => "cap",
            Self::NotFound => "not_found",
            Self::Unreachable(_) => "unreachable",
        }
    }
}

impl std::fmt::Display for NetworkReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HostNotAllowed => f.write_str("no rule allows this host"),
            Self::PortNotAllowed => f.write_str("no rule allows this port of the host"),
            Self::AddressNotAllowed => f.write_str("no rule allows this address; connect by host name"),
            Self::AddressOf(host) => write!(f, "an address of `{host}`, which must be reached by name"),
            Self::DeniedByRule(rule) => write!(f, "rule `{rule}` denies it"),
            Self::Special(kind) => write!(f, "{} that no rule lists", kind.as_str()),
            Self::ThisMachine => f.write_str("an address of this machine that no rule lists"),
            Self::UnknownAddress => f.write_str("an address that DNS never handed out"),
            Self::BadName => f.write_str("not a host name"),
            Self::NameMismatch(inside) => write!(f, "the connection itself names `{inside}`"),
            Self::Datagram => f.write_str("only DNS datagrams are forwarded"),
            Self::RequestNotAllowed(what) => write!(f, "`{what}` is not an allowed request"),
            Self::NotUnderstood(what) => f.write_str(what),
            Self::Cap(what) => write!(f, "the run's limit of {what} is reached"),
            Self::NotFound => f.write_str("the name has no address"),
            Self::Unreachable(why) => f.write_str(why),
        }
    }
}

impl NetworkRules {
    /// Parses rules; the word `allow` allows every address that is not special.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, BadNetworkRule> {
        let mut rules = Self::default();
        for text in texts {
            if text.trim() == "allow" {
                rules.open = true;
                continue;
            }
            let rule = NetworkRule::parse(text)?;
            let at = rules.rules.len();
            match &rule.subject {
                NetworkSubject::Host(name) => rules.hosts.entry(name.clone()).or_default().push(at),
                NetworkSubject::Below(name) => rules.below.entry(name.clone()).or_default().push(at),
                NetworkSubject::Network(_) => rules.networks.push(at),
            }
            rules.rules.push(rule);
        }
        Ok(rules)
    }

    /// From the allow and deny lists of a configuration; `*` means every host in both.
    pub fn configured(allow: &[String], deny: &[String]) -> Result<Self, BadNetworkRule> {
        if deny.iter().any(|entry| entry == ANY_HOST) {
            return Ok(Self::default());
        }
        let allow = allow.iter().map(|entry| match entry.as_str() {
            ANY_HOST => "allow".to_owned(),
            entry => entry.to_owned(),
        });
        let texts: Vec<String> = allow.chain(deny.iter().map(|entry| format!("!{entry}"))).collect();
        Self::parse(texts.iter().map(String::as_str))
    }

    /// Whether no destination is allowed.
    #[must_use]
    pub(crate) fn allows_nothing(&self) -> bool {
        !self.open && self.rules.iter().all(|rule| rule.denies)
    }

    /// Whether some rule allows something on this port.
    #[must_use]
    pub fn uses_port(&self, port: u16) -> bool {
        self.open || self.allowing_rules(port).next().is_some()
    }

    /// Warnings about rules that may allow more than intended.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.rules.iter().filter_map(NetworkRule::warning)
    }

    /// Judges a destination as the program named it. [`Self::judge_resolved`] judges the addresses that a name resolves
    /// to.
    #[must_use]
    pub fn judge(&self, destination: &Destination, port: u16) -> NetworkDecision {
        match destination {
            Destination::Name(name) => self.judge_name(name, port),
            Destination::Address(address) => self.judge_address(*address, port),
        }
    }

    /// Whether a name may be looked up: it must be allowed on some port. Returns the rule.
    pub fn allows_lookup(&self, name: &HostName) -> Result<Arc<str>, NetworkReason> {
        let rules = || self.rules_for(name);
        if let Some(rule) = rules().find(|rule| rule.denies && rule.ports == PortSet::Any) {
            return Err(NetworkReason::DeniedByRule(rule.text.as_str().into()));
        }
        match rules().find(|rule| !rule.denies) {
            Some(rule) => Ok(rule.text.as_str().into()),
            None if self.open => Ok("allow".into()),
            None => Err(NetworkReason::HostNotAllowed),
        }
    }

    /// Judges an address that an allowed name resolved to.
    pub fn judge_resolved(&self, address: IpAddr, port: u16) -> Result<(), NetworkReason> {
        let address = canonical(address);
        self.check_address(address, port)?;
        match special(address) {
            None => Ok(()),
            Some(kind) if self.lists_address(address, port) || self.allows_when_open(kind) => Ok(()),
            Some(kind) => Err(NetworkReason::Special(kind)),
        }
    }

    /// Whether a rule lists this address on purpose.
    #[must_use]
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        let address = canonical(address);
        let mut networks = self.networks.iter().filter_map(|at| self.rules.get(*at));
        networks.any(|rule| {
            let NetworkSubject::Network(network) = &rule.subject else { return false };
            !rule.denies
                && rule.ports.contain(port)
                && match special(address) {
                    Some(kind) => network.lists(address, kind),
                    None => network.contains(address),
                }
        })
    }

    /// Whether a rule lists exactly this address, not a network that contains it.
    #[must_use]
    pub(crate) fn lists_single_address(&self, address: IpAddr, port: u16) -> bool {
        let alone = NetworkSubject::Network(IpNetwork::single(address));
        self.allowing_rules(port).any(|rule| rule.subject == alone)
    }

    /// The host names that are allowed on this port.
    pub fn hosts_on(&self, port: u16) -> impl Iterator<Item = &HostName> {
        self.allowing_rules(port).filter_map(|rule| match &rule.subject {
            NetworkSubject::Host(name) => Some(name),
            _ => None,
        })
    }

    /// Whether a wildcard rule allows names on this port.
    #[must_use]
    pub fn has_wildcard_on(&self, port: u16) -> bool {
        self.allowing_rules(port).any(|rule| matches!(rule.subject, NetworkSubject::Below(_)))
    }

    /// An error if a rule denies this name on this port.
    pub fn check_name(&self, name: &HostName, port: u16) -> Result<(), NetworkReason> {
        let denying = self.rules_for(name).find(|rule| rule.denies && rule.ports.contain(port));
        denying.map_or(Ok(()), |rule| Err(NetworkReason::DeniedByRule(rule.text.as_str().into())))
    }

    /// Whether a rule denies names on this port.
    #[must_use]
    pub fn denies_names(&self, port: u16) -> bool {
        self.denying_rules(port).any(|rule| !matches!(rule.subject, NetworkSubject::Network(_)))
    }

    /// The host names that are denied on this port; names below a denied wildcard cannot be enumerated.
    pub fn denied_hosts(&self, port: u16) -> impl Iterator<Item = &HostName> {
        self.denying_rules(port).filter_map(|rule| match &rule.subject {
            NetworkSubject::Host(name) => Some(name),
            _ => None,
        })
    }

    fn denying_rules(&self, port: u16) -> impl Iterator<Item = &NetworkRule> {
        self.rules.iter().filter(move |rule| rule.denies && rule.ports.contain(port))
    }

    fn allowing_rules(&self, port: u16) -> impl Iterator<Item = &NetworkRule> {
        self.rules.iter().filter(move |rule| !rule.denies && rule.ports.contain(port))
    }

    fn judge_name(&self, name: &HostName, port: u16) -> NetworkDecision {
        if let Err(reason) = self.check_name(name, port) {
            return NetworkDecision::Deny(reason);
        }
        let mut known = false;
        for rule in self.rules_for(name).filter(|rule| !rule.denies) {
            if rule.ports.contain(port) {
                return NetworkDecision::Allow(rule.text.as_str().into());
            }
            known = true;
        }
        if self.open && port != 0 {
            return NetworkDecision::Allow("allow".into());
        }
        NetworkDecision::Deny(if known {
            NetworkReason::PortNotAllowed
        } else {
            NetworkReason::HostNotAllowed
        })
    }

    fn judge_address(&self, address: IpAddr, port: u16) -> NetworkDecision {
        let address = canonical(address);
        if let Err(reason) = self.check_address(address, port) {
            return NetworkDecision::Deny(reason);
        }
        let kind = special(address);
        let mut other_port = false;
        for rule in self.networks.iter().filter_map(|at| self.rules.get(*at)).filter(|rule| !rule.denies) {
            let NetworkSubject::Network(network) = &rule.subject else { continue };
            let listed = match kind {
                Some(kind) => network.lists(address, kind),
                None => network.contains(address),
            };
            if listed && rule.ports.contain(port) {
                return NetworkDecision::Allow(rule.text.as_str().into());
            }
            other_port |= listed;
        }
        if self.open && port != 0 && kind.is_none_or(|kind| self.allows_when_open(kind)) {
            return NetworkDecision::Allow("allow".into());
        }
        NetworkDecision::Deny(match kind {
            _ if other_port => NetworkReason::PortNotAllowed,
            Some(kind) => NetworkReason::Special(kind),
            None => NetworkReason::AddressNotAllowed,
        })
    }

    /// An open network allows private and shared addresses; other special ones (the machine itself, metadata, reserved)
    /// stay denied.
    fn allows_when_open(&self, kind: SpecialAddress) -> bool {
        self.open && matches!(kind, SpecialAddress::Private | SpecialAddress::Shared)
    }

    /// An error if a rule denies the address, or the IPv4 address that it embeds.
    fn check_address(&self, address: IpAddr, port: u16) -> Result<(), NetworkReason> {
        let inside = match address {
            IpAddr::V6(address) => embedded_v4(address).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let denying = self.networks.iter().filter_map(|at| self.rules.get(*at)).find(|rule| {
            let NetworkSubject::Network(network) = &rule.subject else { return false };
            let listed = network.contains(address) || inside.is_some_and(|inside| network.contains(inside));
            rule.denies && rule.ports.contain(port) && listed
        });
        denying.map_or(Ok(()), |rule| Err(NetworkReason::DeniedByRule(rule.text.as_str().into())))
    }

    /// The rules for a name: exact ones first, then wildcards of its parent names.
    fn rules_for(&self, name: &HostName) -> impl Iterator<Item = &NetworkRule> {
        let exact = self.hosts.get(name).into_iter().flatten();
        let above = name.parents().flat_map(|parent| self.below.get(parent).into_iter().flatten());
        exact.chain(above).filter_map(|at| self.rules.get(*at))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::network) fn rules(texts: &[&str]) -> NetworkRules {
        NetworkRules::parse(texts.iter().copied()).unwrap()
    }

    pub(in crate::network) fn to(text: &str) -> Destination {
        text.parse().map_or_else(|_| Destination::Name(HostName::parse(text).unwrap()), Destination::Address)
    }

    #[track_caller]
    fn check(texts: &[&str], destination: &str, port: u16, expected: &str) {
        let decision = match rules(texts).judge(&to(destination), port) {
            NetworkDecision::Allow(rule) => rule.to_string(),
            NetworkDecision::Deny(reason) => format!("deny: {}", reason.code()),
        };
        assert_eq!(decision, expected, "{destination}:{port} under {texts:?}");
    }

    // P3
    #[test]
    fn names_match_as_written() {
        let list = &["example.com", "*.example.org", "git.example.net:22"];
        check(list, "example.com", 443, "example.com");
        check(list, "example.com", 80, "example.com");
        check(list, "example.com", 22, "deny: port_not_allowed");
        check(list, "www.example.com", 443, "deny: host_not_allowed");
        check(list, "example.org", 443, "deny: host_not_allowed");
        check(list, "a.example.org", 443, "*.example.org");
        check(list, "a.b.c.example.org", 443, "*.example.org");
        check(list, "notexample.org", 443, "deny: host_not_allowed");
        check(list, "example.org.evil.com", 443, "deny: host_not_allowed");
        check(list, "git.example.net", 22, "git.example.net:22");
        check(list, "git.example.net", 443, "deny: port_not_allowed");
        check(list, "93.184.216.34", 443, "deny: address_not_allowed");
        check(&[], "example.com", 443, "deny: host_not_allowed");
    }

    // P3
    #[test]
    fn literal_addresses_match_network_rules_only() {
        let list = &["93.184.216.0/29", "10.1.0.0/16:5432", "0.0.0.0/0:9", "2606:4700::/32:443"];
        check(list, "93.184.216.0", 1, "93.184.216.0/29");
        check(list, "93.184.216.7", 65535, "93.184.216.0/29");
        check(list, "93.184.216.8", 80, "deny: port_not_allowed");
        check(&["93.184.216.0/29"], "93.184.216.8", 80, "deny: address_not_allowed");
        check(&["93.184.216.0/29"], "93.184.215.255", 80, "deny: address_not_allowed");
        check(list, "10.1.255.255", 5432, "10.1.0.0/16:5432");
        check(list, "10.1.255.255", 22, "deny: port_not_allowed");
        check(list, "10.2.0.0", 5432, "deny: special_address");
        check(list, "127.0.0.1", 9, "deny: special_address");
        check(list, "8.8.8.8", 9, "0.0.0.0/0:9");
        check(list, "::ffff:10.1.0.1", 5432, "10.1.0.0/16:5432");
        check(list, "2606:4700::1", 443, "2606:4700::/32:443");
        check(list, "64:ff9b::10.1.0.1", 5432, "deny: special_address");
    }

    // P2
    #[test]
    fn open_network_denies_metadata_and_loopback() {
        let open = &["allow"];
        check(open, "example.com", 22, "allow");
        check(open, "8.8.8.8", 53, "allow");
        check(open, "192.168.1.1", 80, "allow");
        for address in [
            "127.0.0.1",
            "::1",
            "0.0.0.0",
            "::",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            check(open, address, 80, "deny: special_address");
        }
        check(&["allow", "127.0.0.1:5432"], "127.0.0.1", 5432, "127.0.0.1:5432");
        check(&["allow", "127.0.0.1:5432"], "127.0.0.1", 5433, "deny: port_not_allowed");
        check(&["allow", "169.254.169.254"], "169.254.169.254", 80, "169.254.169.254");
    }

    // P3
    #[test]
    fn denied_address_is_denied_in_every_form() {
        for spelled in [
            "::ffff:93.184.216.34",
            "64:ff9b::93.184.216.34",
            "2002:5db8:d822::1",
            "2606:4700::200:5efe:5db8:d822",
            "::93.184.216.34",
        ] {
            check(&["allow", "::/0", "!93.184.216.34"], spelled, 443, "deny: refused_by_rule");
            check(&["allow", "::/0", "!93.184.0.0/16:443"], spelled, 443, "deny: refused_by_rule");
            let found = rules(&["allow", "!93.184.216.34"]).judge_resolved(spelled.parse().unwrap(), 443);
            assert!(matches!(found, Err(NetworkReason::DeniedByRule(_))), "{spelled} {found:?}");
        }
        check(&["allow", "!93.184.216.34"], "64:ff9b::93.184.216.35", 443, "allow");
        check(&["allow", "!93.184.216.34"], "2606:4700::5db8:d822", 443, "allow");
    }

    #[test]
    fn denying_rule_wins() {
        check(&["allow", "!*.evil.com"], "a.evil.com", 443, "deny: refused_by_rule");
        check(&["*.example.com", "!secret.example.com"], "secret.example.com", 443, "deny: refused_by_rule");
        check(&["*.example.com", "!secret.example.com"], "other.example.com", 443, "*.example.com");
        check(&["allow", "!10.0.0.0/8"], "10.1.1.1", 443, "deny: refused_by_rule");
        check(&["example.com:*", "!example.com:22"], "example.com", 22, "deny: refused_by_rule");
        check(&["example.com:*", "!example.com:22"], "example.com", 80, "example.com:*");
    }

    // P3: DNS rebinding
    #[test]
    fn allowed_name_does_not_make_special_addresses_reachable() {
        let list = rules(&["example.com", "10.1.0.0/16"]);
        let found = |address: &str| list.judge_resolved(address.parse().unwrap(), 443);
        assert_eq!(found("93.184.216.34"), Ok(()));
        assert_eq!(found("10.1.2.3"), Ok(()));
        for address in
            ["127.0.0.1", "10.2.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1", "0.0.0.0"]
        {
            assert!(matches!(found(address), Err(NetworkReason::Special(_))), "{address}");
        }
    }

    proptest! {
        #[test]
        fn adding_a_denying_rule_never_allows_more(
            host in "[a-c]{1,2}(\\.[a-c]{1,2}){0,3}", port in 1_u16..1000,
            texts in proptest::collection::vec("(\\*\\.)?[a-c]{1,2}(\\.[a-c]{1,2}){0,2}(:[1-9][0-9]{0,2})?", 0..6),
            refusing in "!(\\*\\.)?[a-c]{1,2}(\\.[a-c]{1,2}){0,2}",
        ) {
            let host = to(&host);
            let few = NetworkRules::parse(texts.iter().map(String::as_str)).unwrap();
            let more = NetworkRules::parse(texts.iter().map(String::as_str).chain([refusing.as_str()])).unwrap();
            if matches!(few.judge(&host, port), NetworkDecision::Deny(_)) {
                prop_assert!(matches!(more.judge(&host, port), NetworkDecision::Deny(_)));
            }
        }

        // P3
        #[test]
        fn wildcard_matches_names_below_and_not_the_name_itself(host in "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}", above in "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}") {
            let list = rules(&[&format!("*.{above}")]);
            let expected = host.ends_with(&format!(".{above}"));
            let allowed = matches!(list.judge(&to(&host), 443), NetworkDecision::Allow(_));
            prop_assert_eq!(allowed, expected);
            let itself = list.judge(&to(&above), 443);
            prop_assert!(matches!(itself, NetworkDecision::Deny(_)));
        }

        #[test]
        fn allowed_name_may_be_looked_up(host in "[a-c]{1,2}(\\.[a-c]{1,2}){0,3}", port in 1_u16..1000,
            texts in proptest::collection::vec("!?(\\*\\.)?[a-c]{1,2}(\\.[a-c]{1,2}){0,2}(:[1-9][0-9]{0,2})?", 0..6)) {
            let list = NetworkRules::parse(texts.iter().map(String::as_str)).unwrap();
            let name = HostName::parse(&host).unwrap();
            if matches!(list.judge(&Destination::Name(name.clone()), port), NetworkDecision::Allow(_)) {
                prop_assert!(list.allows_lookup(&name).is_ok());
            }
        }
    }
}
