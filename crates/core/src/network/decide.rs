//! The decision: name or address and port in, verdict with rule and reason out. Pure; asked three times on the way of
//! a connection (by DNS, by the hint, at accept), and once more about each address that a name leads to.
//!
//! **Invariants.** Nothing is allowed that no rule allows. A rule that refuses wins. An address that a name leads to
//! is judged on its own: a name never makes a special address reachable.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::{Network, Special, canonical, carried, special};
use super::names::HostName;
use super::rule::{BadRule, Ports, Rule, Subject};

/// In the lists of a configuration: everything.
pub const EVERYTHING: &str = "*";

/// What a run may reach.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// Everything that is not special.
    open: bool,
    rules: Vec<Rule>,
    /// Rules by the name that they are about.
    hosts: HashMap<HostName, Vec<usize>>,
    below: HashMap<HostName, Vec<usize>>,
    networks: Vec<usize>,
}

/// What is to be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A host by its name.
    Name(HostName),
    /// An address that was written out.
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

/// Yes or no, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// By this rule.
    Allow(Arc<str>),
    /// For this reason.
    Deny(Reason),
}

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No rule names the host.
    HostNotAllowed,
    /// A rule names the host, and not this port.
    PortNotAllowed,
    /// No network holds the address that was written out.
    AddressNotAllowed,
    /// The address of this host, of which not everything may be asked: it is reached by its name.
    AddressOf(HostName),
    /// This rule refuses it.
    Refused(Arc<str>),
    /// Special, and no network lists it.
    Special(Special),
    /// The machine that the broker runs on.
    ThisMachine,
    /// A synthetic address that was never given out.
    UnknownAddress,
    /// Not a name.
    BadName,
    /// The name inside the connection is another one.
    NameMismatch(String),
    /// Datagrams other than DNS are carried nowhere.
    Datagram,
    /// The host may be reached, and this may not be asked of it.
    RequestNotAllowed(String),
    /// What is said inside cannot be judged.
    NotUnderstood(&'static str),
    /// A cap of the run.
    Cap(&'static str),
    /// The name leads nowhere.
    NotFound,
    /// It could not be reached.
    Unreachable(String),
}

impl Reason {
    /// Whether policy says so, rather than the network.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::NotFound | Self::Unreachable(_))
    }

    /// In one word, for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::HostNotAllowed => "host_not_allowed",
            Self::PortNotAllowed => "port_not_allowed",
            Self::AddressNotAllowed | Self::AddressOf(_) => "address_not_allowed",
            Self::Refused(_) => "refused_by_rule",
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

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HostNotAllowed => f.write_str("no rule allows this host"),
            Self::PortNotAllowed => f.write_str("no rule allows this port of the host"),
            Self::AddressNotAllowed => f.write_str("no rule allows this address; names are asked for by DNS"),
            Self::AddressOf(host) => write!(f, "the address of `{host}`, which is reached by its name only"),
            Self::Refused(rule) => write!(f, "rule `{rule}` refuses it"),
            Self::Special(kind) => write!(f, "{} that no rule lists", kind.as_str()),
            Self::ThisMachine => f.write_str("an address of this machine that no rule lists"),
            Self::UnknownAddress => f.write_str("an address that DNS never gave out"),
            Self::BadName => f.write_str("not a host name"),
            Self::NameMismatch(inside) => write!(f, "the connection itself names `{inside}`"),
            Self::Datagram => f.write_str("no datagrams but DNS are carried"),
            Self::RequestNotAllowed(what) => write!(f, "`{what}` is not among the requests that pass"),
            Self::NotUnderstood(what) => f.write_str(what),
            Self::Cap(what) => write!(f, "the run's limit of {what} is reached"),
            Self::NotFound => f.write_str("the name has no address"),
            Self::Unreachable(why) => f.write_str(why),
        }
    }
}

impl Rules {
    /// From texts; the word `allow` opens everything that is not special.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, BadRule> {
        let mut rules = Self::default();
        for text in texts {
            if text.trim() == "allow" {
                rules.open = true;
                continue;
            }
            let rule = Rule::parse(text)?;
            let at = rules.rules.len();
            match &rule.subject {
                Subject::Host(name) => rules.hosts.entry(name.clone()).or_default().push(at),
                Subject::Below(name) => rules.below.entry(name.clone()).or_default().push(at),
                Subject::Network(_) => rules.networks.push(at),
            }
            rules.rules.push(rule);
        }
        Ok(rules)
    }

    /// From the lists of a configuration: in both `*` means everything, and an entry of the second refuses.
    pub fn configured(allow: &[String], deny: &[String]) -> Result<Self, BadRule> {
        if deny.iter().any(|entry| entry == EVERYTHING) {
            return Ok(Self::default());
        }
        let allow = allow.iter().map(|entry| match entry.as_str() {
            EVERYTHING => "allow".to_owned(),
            entry => entry.to_owned(),
        });
        let texts: Vec<String> = allow.chain(deny.iter().map(|entry| format!("!{entry}"))).collect();
        Self::parse(texts.iter().map(String::as_str))
    }

    /// Whether nothing can be reached.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        !self.open && self.rules.iter().all(|rule| rule.refuses)
    }

    /// Whether some rule allows something on this port.
    #[must_use]
    pub fn uses_port(&self, port: u16) -> bool {
        self.open || self.allowing(port).next().is_some()
    }

    /// What the writer may not have meant.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.rules.iter().filter_map(Rule::warning)
    }

    /// Whether the port may be used, for a destination as the program named it. What a name leads to is judged by
    /// [`Self::judge_found`].
    #[must_use]
    pub fn judge(&self, destination: &Destination, port: u16) -> Verdict {
        match destination {
            Destination::Name(name) => self.judge_name(name, port),
            Destination::Address(address) => self.judge_address(*address, port),
        }
    }

    /// Whether a name may be asked for at all: on some port it may be reached.
    pub fn knows(&self, name: &HostName) -> Result<Arc<str>, Reason> {
        let rules = || self.about(name);
        if let Some(rule) = rules().find(|rule| rule.refuses && rule.ports == Ports::Any) {
            return Err(Reason::Refused(rule.text.as_str().into()));
        }
        match rules().find(|rule| !rule.refuses) {
            Some(rule) => Ok(rule.text.as_str().into()),
            None if self.open => Ok("allow".into()),
            None => Err(Reason::HostNotAllowed),
        }
    }

    /// Whether an address that a name led to may be dialled.
    pub fn judge_found(&self, address: IpAddr, port: u16) -> Result<(), Reason> {
        let address = canonical(address);
        self.refused(address, port)?;
        match special(address) {
            None => Ok(()),
            Some(kind) if self.lists_address(address, port) || self.may_be_near(kind) => Ok(()),
            Some(kind) => Err(Reason::Special(kind)),
        }
    }

    /// Whether a network names this address on purpose.
    #[must_use]
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        let address = canonical(address);
        let mut networks = self.networks.iter().filter_map(|at| self.rules.get(*at));
        networks.any(|rule| {
            let Subject::Network(network) = &rule.subject else { return false };
            !rule.refuses
                && rule.ports.contain(port)
                && match special(address) {
                    Some(kind) => network.lists(address, kind),
                    None => network.contains(address),
                }
        })
    }

    /// Whether a rule names this one address, and not a network around it.
    #[must_use]
    pub fn names_alone(&self, address: IpAddr, port: u16) -> bool {
        let alone = Subject::Network(Network::single(address));
        self.allowing(port).any(|rule| rule.subject == alone)
    }

    /// The hosts that are allowed by name on this port.
    pub fn hosts_on(&self, port: u16) -> impl Iterator<Item = &HostName> {
        self.allowing(port).filter_map(|rule| match &rule.subject {
            Subject::Host(name) => Some(name),
            _ => None,
        })
    }

    /// Whether every host below some name is allowed on this port.
    #[must_use]
    pub fn has_wildcard_on(&self, port: u16) -> bool {
        self.allowing(port).any(|rule| matches!(rule.subject, Subject::Below(_)))
    }

    /// Whether a rule refuses this name on this port.
    pub fn refuses_name(&self, name: &HostName, port: u16) -> Result<(), Reason> {
        let refusing = self.about(name).find(|rule| rule.refuses && rule.ports.contain(port));
        refusing.map_or(Ok(()), |rule| Err(Reason::Refused(rule.text.as_str().into())))
    }

    /// Whether some name is refused on this port.
    #[must_use]
    pub fn has_refused_names(&self, port: u16) -> bool {
        self.refusing(port).any(|rule| !matches!(rule.subject, Subject::Network(_)))
    }

    /// The hosts that are refused by name on this port; those below a refused name are not known.
    pub fn refused_hosts(&self, port: u16) -> impl Iterator<Item = &HostName> {
        self.refusing(port).filter_map(|rule| match &rule.subject {
            Subject::Host(name) => Some(name),
            _ => None,
        })
    }

    fn refusing(&self, port: u16) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.refuses && rule.ports.contain(port))
    }

    fn allowing(&self, port: u16) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| !rule.refuses && rule.ports.contain(port))
    }

    fn judge_name(&self, name: &HostName, port: u16) -> Verdict {
        if let Err(reason) = self.refuses_name(name, port) {
            return Verdict::Deny(reason);
        }
        let mut known = false;
        for rule in self.about(name).filter(|rule| !rule.refuses) {
            if rule.ports.contain(port) {
                return Verdict::Allow(rule.text.as_str().into());
            }
            known = true;
        }
        if self.open && port != 0 {
            return Verdict::Allow("allow".into());
        }
        Verdict::Deny(if known { Reason::PortNotAllowed } else { Reason::HostNotAllowed })
    }

    fn judge_address(&self, address: IpAddr, port: u16) -> Verdict {
        let address = canonical(address);
        if let Err(reason) = self.refused(address, port) {
            return Verdict::Deny(reason);
        }
        let kind = special(address);
        let mut other_port = false;
        for rule in self.networks.iter().filter_map(|at| self.rules.get(*at)).filter(|rule| !rule.refuses) {
            let Subject::Network(network) = &rule.subject else { continue };
            let meant = match kind {
                Some(kind) => network.lists(address, kind),
                None => network.contains(address),
            };
            if meant && rule.ports.contain(port) {
                return Verdict::Allow(rule.text.as_str().into());
            }
            other_port |= meant;
        }
        if self.open && port != 0 && kind.is_none_or(|kind| self.may_be_near(kind)) {
            return Verdict::Allow("allow".into());
        }
        Verdict::Deny(match kind {
            _ if other_port => Reason::PortNotAllowed,
            Some(kind) => Reason::Special(kind),
            None => Reason::AddressNotAllowed,
        })
    }

    /// With an open network only what leads to the machine itself, to metadata, or nowhere, is special.
    fn may_be_near(&self, kind: Special) -> bool {
        self.open && matches!(kind, Special::Private | Special::Shared)
    }

    /// What carries a refused address inside leads there, whatever else it is.
    fn refused(&self, address: IpAddr, port: u16) -> Result<(), Reason> {
        let inside = match address {
            IpAddr::V6(address) => carried(address).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        let refusing = self.networks.iter().filter_map(|at| self.rules.get(*at)).find(|rule| {
            let Subject::Network(network) = &rule.subject else { return false };
            let meant = network.contains(address) || inside.is_some_and(|inside| network.contains(inside));
            rule.refuses && rule.ports.contain(port) && meant
        });
        refusing.map_or(Ok(()), |rule| Err(Reason::Refused(rule.text.as_str().into())))
    }

    /// The rules about a name: its own, then those of the names above it.
    fn about(&self, name: &HostName) -> impl Iterator<Item = &Rule> {
        let exact = self.hosts.get(name).into_iter().flatten();
        let above = name.parents().flat_map(|parent| self.below.get(parent).into_iter().flatten());
        exact.chain(above).filter_map(|at| self.rules.get(*at))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::network) fn rules(texts: &[&str]) -> Rules {
        Rules::parse(texts.iter().copied()).unwrap()
    }

    pub(in crate::network) fn to(text: &str) -> Destination {
        text.parse().map_or_else(|_| Destination::Name(HostName::parse(text).unwrap()), Destination::Address)
    }

    #[track_caller]
    fn check(texts: &[&str], destination: &str, port: u16, expected: &str) {
        let said = match rules(texts).judge(&to(destination), port) {
            Verdict::Allow(rule) => rule.to_string(),
            Verdict::Deny(reason) => format!("no: {}", reason.code()),
        };
        assert_eq!(said, expected, "{destination}:{port} under {texts:?}");
    }

    // P3
    #[test]
    fn names_match_as_written() {
        let list = &["example.com", "*.example.org", "git.example.net:22"];
        check(list, "example.com", 443, "example.com");
        check(list, "example.com", 80, "example.com");
        check(list, "example.com", 22, "no: port_not_allowed");
        check(list, "www.example.com", 443, "no: host_not_allowed");
        check(list, "example.org", 443, "no: host_not_allowed");
        check(list, "a.example.org", 443, "*.example.org");
        check(list, "a.b.c.example.org", 443, "*.example.org");
        check(list, "notexample.org", 443, "no: host_not_allowed");
        check(list, "example.org.evil.com", 443, "no: host_not_allowed");
        check(list, "git.example.net", 22, "git.example.net:22");
        check(list, "git.example.net", 443, "no: port_not_allowed");
        check(list, "93.184.216.34", 443, "no: address_not_allowed");
        check(&[], "example.com", 443, "no: host_not_allowed");
    }

    // P3
    #[test]
    fn addresses_match_networks_only() {
        let list = &["93.184.216.0/29", "10.1.0.0/16:5432", "0.0.0.0/0:9", "2606:4700::/32:443"];
        check(list, "93.184.216.0", 1, "93.184.216.0/29");
        check(list, "93.184.216.7", 65535, "93.184.216.0/29");
        check(list, "93.184.216.8", 80, "no: port_not_allowed");
        check(&["93.184.216.0/29"], "93.184.216.8", 80, "no: address_not_allowed");
        check(&["93.184.216.0/29"], "93.184.215.255", 80, "no: address_not_allowed");
        check(list, "10.1.255.255", 5432, "10.1.0.0/16:5432");
        check(list, "10.1.255.255", 22, "no: port_not_allowed");
        check(list, "10.2.0.0", 5432, "no: special_address");
        check(list, "127.0.0.1", 9, "no: special_address");
        check(list, "8.8.8.8", 9, "0.0.0.0/0:9");
        check(list, "::ffff:10.1.0.1", 5432, "10.1.0.0/16:5432");
        check(list, "2606:4700::1", 443, "2606:4700::/32:443");
        check(list, "64:ff9b::10.1.0.1", 5432, "no: special_address");
    }

    // P2
    #[test]
    fn an_open_network_has_no_metadata_and_no_loopback() {
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
            check(open, address, 80, "no: special_address");
        }
        check(&["allow", "127.0.0.1:5432"], "127.0.0.1", 5432, "127.0.0.1:5432");
        check(&["allow", "127.0.0.1:5432"], "127.0.0.1", 5433, "no: port_not_allowed");
        check(&["allow", "169.254.169.254"], "169.254.169.254", 80, "169.254.169.254");
    }

    // P3
    #[test]
    fn a_refused_address_is_refused_in_every_spelling() {
        for spelled in [
            "::ffff:93.184.216.34",
            "64:ff9b::93.184.216.34",
            "2002:5db8:d822::1",
            "2606:4700::200:5efe:5db8:d822",
            "::93.184.216.34",
        ] {
            check(&["allow", "::/0", "!93.184.216.34"], spelled, 443, "no: refused_by_rule");
            check(&["allow", "::/0", "!93.184.0.0/16:443"], spelled, 443, "no: refused_by_rule");
            let found = rules(&["allow", "!93.184.216.34"]).judge_found(spelled.parse().unwrap(), 443);
            assert!(matches!(found, Err(Reason::Refused(_))), "{spelled} {found:?}");
        }
        check(&["allow", "!93.184.216.34"], "64:ff9b::93.184.216.35", 443, "allow");
        check(&["allow", "!93.184.216.34"], "2606:4700::5db8:d822", 443, "allow");
    }

    #[test]
    fn a_refusing_rule_wins() {
        check(&["allow", "!*.evil.com"], "a.evil.com", 443, "no: refused_by_rule");
        check(&["*.example.com", "!secret.example.com"], "secret.example.com", 443, "no: refused_by_rule");
        check(&["*.example.com", "!secret.example.com"], "other.example.com", 443, "*.example.com");
        check(&["allow", "!10.0.0.0/8"], "10.1.1.1", 443, "no: refused_by_rule");
        check(&["example.com:*", "!example.com:22"], "example.com", 22, "no: refused_by_rule");
        check(&["example.com:*", "!example.com:22"], "example.com", 80, "example.com:*");
    }

    // P3: rebinding
    #[test]
    fn a_name_makes_no_special_address_reachable() {
        let list = rules(&["example.com", "10.1.0.0/16"]);
        let found = |address: &str| list.judge_found(address.parse().unwrap(), 443);
        assert_eq!(found("93.184.216.34"), Ok(()));
        assert_eq!(found("10.1.2.3"), Ok(()));
        for address in
            ["127.0.0.1", "10.2.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1", "0.0.0.0"]
        {
            assert!(matches!(found(address), Err(Reason::Special(_))), "{address}");
        }
    }

    proptest! {
        #[test]
        fn more_refusals_never_allow_more(
            host in "[a-c]{1,2}(\\.[a-c]{1,2}){0,3}", port in 1_u16..1000,
            texts in proptest::collection::vec("(\\*\\.)?[a-c]{1,2}(\\.[a-c]{1,2}){0,2}(:[1-9][0-9]{0,2})?", 0..6),
            refusing in "!(\\*\\.)?[a-c]{1,2}(\\.[a-c]{1,2}){0,2}",
        ) {
            let host = to(&host);
            let few = Rules::parse(texts.iter().map(String::as_str)).unwrap();
            let more = Rules::parse(texts.iter().map(String::as_str).chain([refusing.as_str()])).unwrap();
            if matches!(few.judge(&host, port), Verdict::Deny(_)) {
                prop_assert!(matches!(more.judge(&host, port), Verdict::Deny(_)));
            }
        }

        // P3
        #[test]
        fn a_wildcard_means_below_and_not_itself(host in "[a-z]{1,5}(\\.[a-z]{1,5}){0,3}", above in "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}") {
            let list = rules(&[&format!("*.{above}")]);
            let expected = host.ends_with(&format!(".{above}"));
            let allowed = matches!(list.judge(&to(&host), 443), Verdict::Allow(_));
            prop_assert_eq!(allowed, expected);
            let itself = list.judge(&to(&above), 443);
            prop_assert!(matches!(itself, Verdict::Deny(_)));
        }

        #[test]
        fn whoever_is_judged_yes_is_known_to_dns(host in "[a-c]{1,2}(\\.[a-c]{1,2}){0,3}", port in 1_u16..1000,
            texts in proptest::collection::vec("!?(\\*\\.)?[a-c]{1,2}(\\.[a-c]{1,2}){0,2}(:[1-9][0-9]{0,2})?", 0..6)) {
            let list = Rules::parse(texts.iter().map(String::as_str)).unwrap();
            let name = HostName::parse(&host).unwrap();
            if matches!(list.judge(&Destination::Name(name.clone()), port), Verdict::Allow(_)) {
                prop_assert!(list.knows(&name).is_ok());
            }
        }
    }
}
