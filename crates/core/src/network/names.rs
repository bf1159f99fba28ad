//! Host names in one canonical form. Every name, from whatever mouth (a rule, a DNS query, SNI, a Host header, a
//! CONNECT line, SOCKS), becomes a [`HostName`] here before anything is compared with it, so a spelling can never be
//! judged in one place and dialled in another.
//!
//! **Invariants.** A `HostName` is lower-case ASCII (A-labels), without a trailing dot, at most 253 bytes, of labels
//! of letters, digits, `-` and `_`, and cannot be read as an address by any resolver.

use std::fmt;
use std::sync::Arc;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// Names of metadata services: GCP (three), AWS (two), Azure, Tencent, Equinix (two), Rancher.
const METADATA: &[&str] = &[
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.azure.internal",
    "metadata.tencentyun.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "rancher-metadata",
];

/// A name in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Arc<str>);

/// Why a text is no host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Nothing is left of it.
    #[error("the name is empty")]
    Empty,
    /// A NUL, a space, a control character, or one that means something in a URL.
    #[error("the name holds a character that no host name has")]
    Character,
    /// Two dots in a row, or one at the beginning.
    #[error("the name has an empty label")]
    EmptyLabel,
    /// Past 63 bytes a label or 253 in all.
    #[error("the name is too long")]
    TooLong,
    /// Not a name that Unicode's rules for domain names accept.
    #[error("the name is no valid international name")]
    International,
    /// Some programs would read it as an address.
    #[error("the name is a spelling of a number; write an address as four decimal numbers")]
    Numeric,
}

impl HostName {
    /// The canonical form of a name.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        if text.is_empty() {
            return Err(BadName::Empty);
        }
        // Longer ones cannot become shorter than the limit by mapping alone, and nobody writes them in good faith.
        if text.len() > 1024 {
            return Err(BadName::TooLong);
        }
        if text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
            return Err(BadName::Character);
        }
        if text.bytes().any(|byte| byte.is_ascii() && !plain(byte.to_ascii_lowercase()) && byte != b'.') {
            return Err(BadName::Character);
        }
        let mapped = Uts46::new()
            .to_ascii(text.as_bytes(), AsciiDenyList::URL, Hyphens::Allow, DnsLength::Ignore)
            .map_err(|_| BadName::International)?;
        // One dot at the end means the root, which every name has.
        let name = mapped.strip_suffix('.').unwrap_or(&mapped);
        if name.is_empty() {
            return Err(BadName::Empty);
        }
        if name.len() > 253 {
            return Err(BadName::TooLong);
        }
        for label in name.split('.') {
            match label.len() {
                0 => return Err(BadName::EmptyLabel),
                1..=63 => {}
                _ => return Err(BadName::TooLong),
            }
            if !label.bytes().all(plain) {
                return Err(BadName::Character);
            }
        }
        if ends_in_a_number(name) {
            return Err(BadName::Numeric);
        }
        Ok(Self(name.into()))
    }

    /// The canonical form of a name given as bytes, as in DNS, SNI and SOCKS.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadName> {
        Self::parse(std::str::from_utf8(bytes).map_err(|_| BadName::Character)?)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names above this one, nearest first: `b.c` and `c` for `a.b.c`.
    pub fn parents(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.as_str()), |name| name.split_once('.').map(|(_, above)| above))
            .skip(1)
    }

    /// Whether it names the machine that asks (RFC 6761).
    #[must_use]
    pub fn is_localhost(&self) -> bool {
        self.as_str() == "localhost" || self.as_str().ends_with(".localhost")
    }

    /// Whether a cloud tells machines their credentials under it.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        METADATA.contains(&self.as_str())
    }

    /// Whether everybody may register a name directly below it, like `com` or `github.io`.
    #[must_use]
    pub fn is_public_suffix(&self) -> bool {
        psl::suffix(self.as_str().as_bytes())
            .is_some_and(|suffix| suffix.is_known() && suffix.as_bytes() == self.as_str().as_bytes())
    }
}

impl std::borrow::Borrow<str> for HostName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
}

/// As the URL standard decides whether a host is meant to be an IPv4 address: `127.1`, `0x7f.1`, `2130706433`, `0177.0.0.1`.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(HostName::parse(text).as_ref().map(HostName::as_str), Ok(expected), "{text:?}");
    }

    #[track_caller]
    fn refused(text: &str, why: BadName) {
        assert_eq!(HostName::parse(text), Err(why), "{text:?}");
    }

    #[test]
    fn spellings_of_one_name_become_one_name() {
        check("example.com", "example.com");
        check("EXAMPLE.Com.", "example.com");
        check("bücher.example", "xn--bcher-kva.example");
        check("BÜCHER.example", "xn--bcher-kva.example");
        check("xn--bcher-kva.example", "xn--bcher-kva.example");
        check("ｅｘａｍｐｌｅ.com", "example.com");
        check("example。com", "example.com");
        check("exam\u{ad}ple.com", "example.com");
        check("_dmarc.example.com", "_dmarc.example.com");
        check("r3---sn-abc.example", "r3---sn-abc.example");
        check("1e100.net", "1e100.net");
        // A homograph is another name, not this one (Cyrillic a).
        check("ex\u{430}mple.com", "xn--exmple-4nf.com");
    }

    #[test]
    fn what_has_fooled_suffix_checks_is_refused() {
        for text in [
            "evil.com\0.google.com",
            "evil.com%00.google.com",
            "evil.com .google.com",
            "evil.com\t.google.com",
            "evil.com\r\nHost: google.com",
            "evil.com#.google.com",
            "evil.com/.google.com",
            "evil.com\\.google.com",
            "evil.com?.google.com",
            "user@google.com",
            "evil.com:80",
            "[::1]",
            "fe80::1%eth0",
            "\u{85}google.com",
            "evil.com\u{a0}.google.com",
            "a*b.com",
        ] {
            refused(text, BadName::Character);
        }
        refused("", BadName::Empty);
        refused(".", BadName::Empty);
        refused("a..b", BadName::EmptyLabel);
        refused(".a.b", BadName::EmptyLabel);
        refused("example.com..", BadName::EmptyLabel);
        refused(&format!("{}.com", "a".repeat(64)), BadName::TooLong);
        refused(&format!("{}com", "abcdefg.".repeat(32)), BadName::TooLong);
        refused("xn--a.com", BadName::International);
        refused("evil.com\u{2024}\u{2100}.com", BadName::International);
    }

    #[test]
    fn numbers_are_no_names() {
        for text in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0177.0.0.1",
            "127.0.0.1.",
            "1.2.3",
            "１２７.０.０.１",
            "a.0x",
            "a.1",
            "①②⑦.⓪.⓪.①",
            "0X7F.0X1",
        ] {
            refused(text, BadName::Numeric);
        }
    }

    #[test]
    fn public_suffixes_are_known() {
        for (name, expected) in [
            ("com", true),
            ("github.io", true),
            ("co.uk", true),
            ("example.com", false),
            ("no-such-tld", false),
        ] {
            assert_eq!(HostName::parse(name).unwrap().is_public_suffix(), expected, "{name}");
        }
    }

    proptest! {
        // P3
        #[test]
        fn a_canonical_name_stays_itself(text in "\\PC{0,40}") {
            if let Ok(name) = HostName::parse(&text) {
                prop_assert_eq!(HostName::parse(name.as_str()), Ok(name.clone()));
                prop_assert!(name.as_str().bytes().all(|byte| plain(byte) || byte == b'.'));
                prop_assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
                prop_assert!(name.as_str().len() <= 253);
            }
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = HostName::from_bytes(&bytes);
        }
    }
}
