//! Rules as people write them: `example.com`, `*.example.com`, `10.1.0.0/16`, each with or without `:port`; `!` before
//! one refuses what others allow; `allow` opens everything that is not special.

use std::fmt;
use std::net::IpAddr;

use super::address::{BadNetwork, Network};
use super::names::{BadName, HostName};

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// What it is about.
    pub subject: Subject,
    /// On which ports.
    pub ports: Ports,
    /// Whether it refuses.
    pub refuses: bool,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Exactly this name.
    Host(HostName),
    /// Every name below this one, at any depth, and not the name itself.
    Below(HostName),
    /// These addresses.
    Network(Network),
}

/// The ports of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// 80 and 443: what a name means when no port is given.
    Web,
    /// All of them: what a network means when no port is given, or `:*`.
    Any,
    /// This one.
    One(u16),
}

impl Ports {
    /// Whether a port is among them.
    #[must_use]
    pub fn contain(self, port: u16) -> bool {
        match self {
            Self::Web => matches!(port, 80 | 443),
            Self::Any => port != 0,
            Self::One(one) => port == one,
        }
    }
}

impl Ports {
    /// Whether all of the other's are among them.
    #[must_use]
    pub fn cover(self, other: Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (one, Self::One(port)) => one.contain(port),
            (one, other) => one == other,
        }
    }
}

/// Why a text is no rule, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("network rule `{text}`: {why}")]
pub struct BadRule {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub why: String,
    /// What to write instead.
    pub suggestion: String,
}

impl Rule {
    /// One rule from its text.
    pub fn parse(text: &str) -> Result<Self, BadRule> {
        let fault = |why: String, suggestion: String| BadRule { text: text.to_owned(), why, suggestion };
        let trimmed = text.trim();
        let (refuses, body) = trimmed.strip_prefix('!').map_or((false, trimmed), |rest| (true, rest));
        if let Some(why) = misfit(body) {
            return Err(fault(why.0, why.1));
        }
        let (subject, port) = split(body);
        let given = match port {
            None => None,
            Some("*") => Some(Ports::Any),
            Some(port) => Some(Ports::One(number(port).ok_or_else(|| {
                fault(
                    format!("`{port}` is no port"),
                    "a number from 1 to 65535, or `*` for every port".to_owned(),
                )
            })?)),
        };
        let subject = match subject {
            Written::Network(address, length) => Subject::Network(
                Network::parse(address, length).map_err(|bad| fault(bad.to_string(), network_hint(&bad)))?,
            ),
            Written::Address(address) => Subject::Network(Network::single(address)),
            Written::Name(name) => {
                let named = |name: &str| {
                    HostName::parse(name).map_err(|bad| fault(bad.to_string(), name_hint(bad).to_owned()))
                };
                match name.strip_prefix("*.") {
                    Some(above) => Subject::Below(named(above)?),
                    None => Subject::Host(named(name)?),
                }
            }
        };
        let ports = given.unwrap_or(match &subject {
            Subject::Network(_) => Ports::Any,
            // What is refused is refused wholly.
            _ if refuses => Ports::Any,
            _ => Ports::Web,
        });
        Ok(Self { text: trimmed.to_owned(), subject, ports, refuses })
    }

    /// In one spelling: two rules that are the same are written the same.
    #[must_use]
    pub fn spelled(&self) -> String {
        let (subject, six) = match &self.subject {
            Subject::Host(name) => (name.to_string(), false),
            Subject::Below(name) => (format!("*.{name}"), false),
            Subject::Network(network) => (network.spelled(), network.is_six()),
        };
        let usual = match &self.subject {
            Subject::Network(_) => Ports::Any,
            _ => Ports::Web,
        };
        match self.ports {
            ports if ports == usual => subject,
            ports => {
                let port = match ports {
                    Ports::One(port) => port.to_string(),
                    Ports::Any | Ports::Web => "*".to_owned(),
                };
                if six { format!("[{subject}]:{port}") } else { format!("{subject}:{port}") }
            }
        }
    }

    /// Whether everything that the other allows is allowed by this one too. In doubt not.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let below = |above: &HostName, name: &HostName| name.parents().any(|parent| parent == above.as_str());
        let subject = match (&self.subject, &other.subject) {
            (Subject::Host(one), Subject::Host(two)) => one == two,
            (Subject::Below(above), Subject::Host(name)) => below(above, name),
            (Subject::Below(above), Subject::Below(name)) => above == name || below(above, name),
            (Subject::Network(one), Subject::Network(two)) => one.covers(two),
            _ => false,
        };
        subject && self.ports.cover(other.ports)
    }

    /// What its writer may not have meant.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match &self.subject {
            Subject::Below(name) if !self.refuses && name.is_public_suffix() => Some(format!(
                "`{}` allows names that anybody can register below `{name}`; name the hosts instead",
                self.text
            )),
            _ => None,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

enum Written<'a> {
    Name(&'a str),
    Address(IpAddr),
    Network(&'a str, &'a str),
}

/// Subject and port.
fn split(body: &str) -> (Written<'_>, Option<&str>) {
    if let Some((inside, after)) = body.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let subject = match inside.split_once('/') {
            Some((address, length)) => Written::Network(address, length),
            None => inside.parse().map_or(Written::Name(body), Written::Address),
        };
        return match after.strip_prefix(':') {
            Some(port) => (subject, Some(port)),
            None if after.is_empty() => (subject, None),
            None => (Written::Name(body), None),
        };
    }
    if let Some((address, rest)) = body.split_once('/') {
        return match rest.split_once(':') {
            Some((length, port)) => (Written::Network(address, length), Some(port)),
            None => (Written::Network(address, rest), None),
        };
    }
    if let Ok(address) = body.parse() {
        return (Written::Address(address), None);
    }
    match body.split_once(':') {
        Some((host, port)) if !port.contains(':') => {
            (host.parse().map_or(Written::Name(host), Written::Address), Some(port))
        }
        _ => (Written::Name(body), None),
    }
}

/// What is clearly something else than a rule.
fn misfit(body: &str) -> Option<(String, String)> {
    let said = |why: &str, hint: &str| Some((why.to_owned(), hint.to_owned()));
    if body.is_empty() {
        return said("nothing is named", "a host, `*.host`, an address or a network like `10.0.0.0/8`");
    }
    let word = body.split_once(':').map_or(body, |(word, _)| word);
    match word.to_ascii_lowercase().as_str() {
        "deny" => {
            return said(
                "`deny` stands alone, and is no host",
                "leave it out: what no entry names is refused",
            );
        }
        "loopback" => {
            return said(
                "`loopback` stands alone, and is no host",
                "leave it out: a list has the sandbox's own loopback",
            );
        }
        "allow" => {
            return said(
                "`allow` opens the network, and is no host",
                "`allow` without `!` and port on the command line, `*` in a configuration",
            );
        }
        _ => {}
    }
    if body == "*" || body.starts_with("*:") {
        return said(
            "a star alone would mean everything",
            "`allow` opens the network; `*.example.com` a domain",
        );
    }
    if let Some((scheme, rest)) = body.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        return Some((format!("`{scheme}://` is part of a URL"), format!("only the host: `{host}`")));
    }
    if body.get(1..).is_some_and(|rest| rest.contains('*')) && !body.ends_with(":*") {
        return said("a star stands only for whole labels at the beginning", "for example `*.example.com`");
    }
    if body.starts_with('*') && !body.starts_with("*.") {
        return said(
            "a star stands only for whole labels",
            "`*.example.com` means every name below `example.com`",
        );
    }
    None
}

fn number(text: &str) -> Option<u16> {
    let plain = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| plain && *port != 0)
}

fn network_hint(bad: &BadNetwork) -> String {
    match bad {
        BadNetwork::HostBits(network) => format!("write `{network}`"),
        _ => "for example `10.0.0.0/8`, `2001:db8::/32`, `[2001:db8::/32]:443`".to_owned(),
    }
}

fn name_hint(bad: BadName) -> &'static str {
    match bad {
        BadName::Numeric => "four decimal numbers, for example `93.184.216.34`",
        _ => "a host name like `api.example.com`, or `*.example.com` for every name below one",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let rule = Rule::parse(text).unwrap();
        let subject = match &rule.subject {
            Subject::Host(name) => format!("host {name}"),
            Subject::Below(name) => format!("below {name}"),
            Subject::Network(network) => format!("network {network}"),
        };
        let refuses = if rule.refuses { "refuse " } else { "" };
        assert_eq!(format!("{refuses}{subject} {:?}", rule.ports), expected, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, said: &str, hint: &str) {
        let bad = Rule::parse(text).unwrap_err();
        assert!(bad.to_string().contains(said), "{text}: {bad}");
        assert!(bad.suggestion.contains(hint), "{text}: {}", bad.suggestion);
    }

    // P3
    #[test]
    fn rules_are_read_in_every_form() {
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
        check("!example.com", "refuse host example.com Any");
        check("!10.0.0.0/8", "refuse network 10.0.0.0/8 Any");
    }

    #[test]
    fn faults_say_what_to_write_instead() {
        for word in ["deny", "!deny", "Deny:80", "loopback", "allow:443", "!allow"] {
            refused(word, "is no host", "");
        }
        refused("", "nothing is named", "a host");
        refused("*", "everything", "`allow`");
        refused("*:443", "everything", "`allow`");
        refused("https://example.com/path", "URL", "`example.com`");
        refused("a.*.com", "beginning", "*.example.com");
        refused("*example.com", "whole labels", "*.example.com");
        refused("example.com:0", "no port", "1 to 65535");
        refused("example.com:70000", "no port", "1 to 65535");
        refused("example.com:+80", "no port", "1 to 65535");
        refused("10.1.2.3/8", "behind the prefix", "10.0.0.0/8");
        refused("10.0.0.0/33", "prefix length", "10.0.0.0/8");
        refused("127.1", "spelling of a number", "four decimal");
        refused("0x7f.1", "spelling of a number", "four decimal");
        refused("2130706433", "spelling of a number", "four decimal");
        refused("exa mple.com", "character", "host name");
        refused("evil.com\0.google.com", "character", "host name");
        refused("[::1", "character", "host name");
        refused("[example.com]:80", "character", "host name");
    }

    #[test]
    fn wildcards_over_public_suffixes_are_warned_about() {
        for (text, warned) in
            [("*.com", true), ("*.github.io", true), ("*.example.com", false), ("com", false)]
        {
            assert_eq!(Rule::parse(text).unwrap().warning().is_some(), warned, "{text}");
        }
    }
}
