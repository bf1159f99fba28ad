//! Network rules as people write them: `example.com`, `*.example.com`, `10.1.0.0/16`, each with or without `:port`; a
//! leading `!` denies what other rules allow; `allow` allows every address that is not special.

use std::fmt;
use std::net::IpAddr;

use super::address::{BadIpNetwork, IpNetwork};
use super::host_name::{BadHostName, HostName};

/// One network rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRule {
    /// The rule as written.
    pub text: String,
    /// The hosts or addresses.
    pub subject: NetworkSubject,
    /// The ports.
    pub ports: PortSet,
    /// Whether it denies.
    pub denies: bool,
}

/// The hosts or addresses of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkSubject {
    /// Exactly this name.
    Host(HostName),
    /// Every name below this one, at any depth, and not the name itself.
    Below(HostName),
    /// These addresses.
    Network(IpNetwork),
}

/// The ports of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSet {
    /// 80 and 443: the default for a name without a port.
    Web,
    /// Every port: the default for a network without a port, or `:*`.
    Any,
    /// One port.
    One(u16),
}

impl PortSet {
    /// Whether the set contains a port.
    #[must_use]
    pub fn contain(self, port: u16) -> bool {
        match self {
            Self::Web => matches!(port, 80 | 443),
            Self::Any => port != 0,
            Self::One(one) => port == one,
        }
    }
}

impl PortSet {
    /// Whether the set contains all ports of the other.
    #[must_use]
    pub fn cover(self, other: Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (one, Self::One(port)) => one.contain(port),
            (one, other) => one == other,
        }
    }
}

/// Why a text is not a network rule, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("network rule `{text}`: {why}")]
pub struct BadNetworkRule {
    /// The text.
    pub text: String,
    /// The problem.
    pub why: String,
    /// What to write instead.
    pub suggestion: String,
}

impl NetworkRule {
    /// Parses one rule.
    pub fn parse(text: &str) -> Result<Self, BadNetworkRule> {
        let error =
            |why: String, suggestion: String| BadNetworkRule { text: text.to_owned(), why, suggestion };
        let trimmed = text.trim();
        let (denies, body) = trimmed.strip_prefix('!').map_or((false, trimmed), |rest| (true, rest));
        if let Some(why) = common_mistake(body) {
            return Err(error(why.0, why.1));
        }
        let (subject, port) = split(body);
        let given = match port {
            None => None,
            Some("*") => Some(PortSet::Any),
            Some(port) => Some(PortSet::One(port_number(port).ok_or_else(|| {
                error(
                    format!("`{port}` is not a port"),
                    "write a number from 1 to 65535, or `*` for every port".to_owned(),
                )
            })?)),
        };
        let subject = match subject {
            RawSubject::Network(address, length) => NetworkSubject::Network(
                IpNetwork::parse(address, length)
                    .map_err(|bad| error(bad.to_string(), network_hint(&bad)))?,
            ),
            RawSubject::Address(address) => NetworkSubject::Network(IpNetwork::single(address)),
            RawSubject::Name(name) => {
                let named = |name: &str| {
                    HostName::parse(name).map_err(|bad| error(bad.to_string(), name_hint(bad).to_owned()))
                };
                match name.strip_prefix("*.") {
                    Some(above) => NetworkSubject::Below(named(above)?),
                    None => NetworkSubject::Host(named(name)?),
                }
            }
        };
        let ports = given.unwrap_or(match &subject {
            NetworkSubject::Network(_) => PortSet::Any,
            // A denying rule without a port denies every port.
            _ if denies => PortSet::Any,
            _ => PortSet::Web,
        });
        Ok(Self { text: trimmed.to_owned(), subject, ports, denies })
    }

    /// Canonical text: equal rules have equal text.
    #[must_use]
    pub fn canonical(&self) -> String {
        let (subject, six) = match &self.subject {
            NetworkSubject::Host(name) => (name.to_string(), false),
            NetworkSubject::Below(name) => (format!("*.{name}"), false),
            NetworkSubject::Network(network) => (network.canonical(), network.is_ipv6_network()),
        };
        let usual = match &self.subject {
            NetworkSubject::Network(_) => PortSet::Any,
            _ => PortSet::Web,
        };
        match self.ports {
            ports if ports == usual => subject,
            ports => {
                let port = match ports {
                    PortSet::One(port) => port.to_string(),
                    PortSet::Any | PortSet::Web => "*".to_owned(),
                };
                if six { format!("[{subject}]:{port}") } else { format!("{subject}:{port}") }
            }
        }
    }

    /// Whether this rule allows everything that the other one allows. `false` in doubt.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let below = |above: &HostName, name: &HostName| name.parents().any(|parent| parent == above.as_str());
        let subject = match (&self.subject, &other.subject) {
            (NetworkSubject::Host(one), NetworkSubject::Host(two)) => one == two,
            (NetworkSubject::Below(above), NetworkSubject::Host(name)) => below(above, name),
            (NetworkSubject::Below(above), NetworkSubject::Below(name)) => {
                above == name || below(above, name)
            }
            (NetworkSubject::Network(one), NetworkSubject::Network(two)) => one.covers(two),
            _ => false,
        };
        subject && self.ports.cover(other.ports)
    }

    /// A warning if the rule may allow more than intended.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match &self.subject {
            NetworkSubject::Below(name) if !self.denies && name.is_public_suffix() => Some(format!(
                "`{}` allows names that anyone can register below `{name}`; list the hosts instead",
                self.text
            )),
            _ => None,
        }
    }
}

impl fmt::Display for NetworkRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

enum RawSubject<'a> {
    Name(&'a str),
    Address(IpAddr),
    Network(&'a str, &'a str),
}

/// Splits a rule into subject and port.
fn split(body: &str) -> (RawSubject<'_>, Option<&str>) {
    if let Some((inside, after)) = body.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let subject = match inside.split_once('/') {
            Some((address, length)) => RawSubject::Network(address, length),
            None => inside.parse().map_or(RawSubject::Name(body), RawSubject::Address),
        };
        return match after.strip_prefix(':') {
            Some(port) => (subject, Some(port)),
            None if after.is_empty() => (subject, None),
            None => (RawSubject::Name(body), None),
        };
    }
    if let Some((address, rest)) = body.split_once('/') {
        return match rest.split_once(':') {
            Some((length, port)) => (RawSubject::Network(address, length), Some(port)),
            None => (RawSubject::Network(address, rest), None),
        };
    }
    if let Ok(address) = body.parse() {
        return (RawSubject::Address(address), None);
    }
    match body.split_once(':') {
        Some((host, port)) if !port.contains(':') => {
            (host.parse().map_or(RawSubject::Name(host), RawSubject::Address), Some(port))
        }
        _ => (RawSubject::Name(body), None),
    }
}

/// Recognizes common mistakes; returns the problem and a hint.
fn common_mistake(body: &str) -> Option<(String, String)> {
    let mistake = |why: &str, hint: &str| Some((why.to_owned(), hint.to_owned()));
    if body.is_empty() {
        return mistake("it is empty", "write a host, `*.host`, an address or a network like `10.0.0.0/8`");
    }
    let word = body.split_once(':').map_or(body, |(word, _)| word);
    match word.to_ascii_lowercase().as_str() {
        "deny" => {
            return mistake(
                "`deny` must be the only entry, it is not a host",
                "remove it: every host that no entry allows is denied",
            );
        }
        "loopback" => {
            return mistake(
                "`loopback` must be the only entry, it is not a host",
                "remove it: a list includes the sandbox's own loopback",
            );
        }
        "allow" => {
            return mistake(
                "`allow` opens the network, it is not a host",
                "write `allow` without `!` and port on the command line, `*` in a configuration",
            );
        }
        _ => {}
    }
    if body == "*" || body.starts_with("*:") {
        return mistake(
            "a star alone would mean every host",
            "`allow` opens the network; `*.example.com` means every name below a domain",
        );
    }
    if let Some((scheme, rest)) = body.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        return Some((format!("`{scheme}://` is part of a URL"), format!("write the host only: `{host}`")));
    }
    if body.get(1..).is_some_and(|rest| rest.contains('*')) && !body.ends_with(":*") {
        return mistake("a star is allowed only as the first label", "for example `*.example.com`");
    }
    if body.starts_with('*') && !body.starts_with("*.") {
        return mistake(
            "a star must be a whole label",
            "`*.example.com` means every name below `example.com`",
        );
    }
    None
}

fn port_number(text: &str) -> Option<u16> {
    let plain = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| plain && *port != 0)
}

fn network_hint(bad: &BadIpNetwork) -> String {
    match bad {
        BadIpNetwork::HostBits(network) => format!("write `{network}`"),
        _ => "for example `10.0.0.0/8`, `2001:db8::/32`, `[2001:db8::/32]:443`".to_owned(),
    }
}

fn name_hint(bad: BadHostName) -> &'static str {
    match bad {
        BadHostName::Numeric => "write four decimal numbers, for example `93.184.216.34`",
        _ => "write a host name like `api.example.com`, or `*.example.com` for every name below one",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let rule = NetworkRule::parse(text).unwrap();
        let subject = match &rule.subject {
            NetworkSubject::Host(name) => format!("host {name}"),
            NetworkSubject::Below(name) => format!("below {name}"),
            NetworkSubject::Network(network) => format!("network {network}"),
        };
        let denies = if rule.denies { "deny " } else { "" };
        assert_eq!(format!("{denies}{subject} {:?}", rule.ports), expected, "{text}");
    }

    #[track_caller]
    fn rejected(text: &str, message: &str, hint: &str) {
        let bad = NetworkRule::parse(text).unwrap_err();
        assert!(bad.to_string().contains(message), "{text}: {bad}");
        assert!(bad.suggestion.contains(hint), "{text}: {}", bad.suggestion);
    }

    // P3
    #[test]
    fn rules_parse_in_every_form() {
        check("example.com", "host example.com Web");
        check(" EXAMPLE.com. ", "host example.com Web");
        check("example.com:22", "host example.com One(22)");
        check("example.com:*", "host example.com Any");
        check("*.example.com", "below example.com Web");
        check("*.example.com:8443", "below example.com One(8443)");
        check("bücher.example", "host xn--bcher-kva.example Web");
        check("93.184.216.34", "network 93.184.216.34/32 Any");
        check("93.184.216.34:443", "network 93.184.216.34/32 One(443)");
        check("10.0.0.0/8", "network 10.0.0.0/8 Any");
        check("10.0.0.0/8:5432", "network 10.0.0.0/8 One(5432)");
        check("2001:db8::/32", "network 2001:db8::/32 Any");
        check("2001:db8::1", "network 2001:db8::1/128 Any");
        check("[2001:db8::1]:443", "network 2001:db8::1/128 One(443)");
        check("[2001:db8::/32]:443", "network 2001:db8::/32 One(443)");
        check("2001:db8::/32:443", "network 2001:db8::/32 One(443)");
        check("::ffff:10.0.0.1", "network 10.0.0.1/32 Any");
        check("!example.com", "deny host example.com Any");
        check("!10.0.0.0/8", "deny network 10.0.0.0/8 Any");
    }

    #[test]
    fn errors_say_what_to_write_instead() {
        for word in ["deny", "!deny", "Deny:80", "loopback", "allow:443", "!allow"] {
            rejected(word, "is not a host", "");
        }
        rejected("", "it is empty", "a host");
        rejected("*", "every host", "`allow`");
        rejected("*:443", "every host", "`allow`");
        rejected("https://example.com/path", "URL", "`example.com`");
        rejected("a.*.com", "first label", "*.example.com");
        rejected("*example.com", "whole label", "*.example.com");
        rejected("example.com:0", "not a port", "1 to 65535");
        rejected("example.com:70000", "not a port", "1 to 65535");
        rejected("example.com:+80", "not a port", "1 to 65535");
        rejected("10.1.2.3/8", "after the prefix", "10.0.0.0/8");
        rejected("10.0.0.0/33", "prefix length", "10.0.0.0/8");
        rejected("127.1", "number in another notation", "four decimal");
        rejected("0x7f.1", "number in another notation", "four decimal");
        rejected("2130706433", "number in another notation", "four decimal");
        rejected("exa mple.com", "character", "host name");
        rejected("evil.com\0.google.com", "character", "host name");
        rejected("[::1", "character", "host name");
        rejected("[example.com]:80", "character", "host name");
    }

    #[test]
    fn wildcards_over_public_suffixes_give_a_warning() {
        for (text, warned) in
            [("*.com", true), ("*.github.io", true), ("*.example.com", false), ("com", false)]
        {
            assert_eq!(NetworkRule::parse(text).unwrap().warning().is_some(), warned, "{text}");
        }
    }
}
