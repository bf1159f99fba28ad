//! Host names in canonical form. Every name, whatever its source (a rule, a DNS query, SNI, a Host header, a CONNECT line,
//! SOCKS), becomes a [`HostName`] before anything is compared with it, so that the name that is judged is the name that
//! is connected to.
//!
//! **Invariants.** A `HostName` is lower-case ASCII (A-labels), without a trailing dot, at most 253 bytes; its labels have
//! letters, digits, `-` and `_`; no resolver can parse it as an address.

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

/// A host name in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(Arc<str>);

/// Why a text is not a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHostName {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// A NUL, a space, a control character, or one that means something in a URL.
    #[error("the name contains a character that is not valid in a host name")]
    Character,
    /// Two dots in a row, or a leading dot.
    #[error("the name has an empty label")]
    EmptyLabel,
    /// More than 63 bytes in a label or 253 in all.
    #[error("the name is too long")]
    TooLong,
    /// Not valid under Unicode's rules for domain names (UTS 46).
    #[error("the name is not a valid internationalized name")]
    International,
    /// Some programs would parse it as an address.
    #[error("the name is a number in another notation; write an address as four decimal numbers")]
    Numeric,
}

impl HostName {
    /// The canonical form of a name.
    pub fn parse(text: &str) -> Result<Self, BadHostName> {
        if text.is_empty() {
            return Err(BadHostName::Empty);
        }
        // Mapping cannot shorten a longer name to 253 bytes, except for contrived input.
        if text.len() > 1024 {
            return Err(BadHostName::TooLong);
        }
        if text.chars().any(|letter| letter.is_control() || letter.is_whitespace()) {
            return Err(BadHostName::Character);
        }
        if text.bytes().any(|byte| byte.is_ascii() && !plain(byte.to_ascii_lowercase()) && byte != b'.') {
            return Err(BadHostName::Character);
        }
        let mapped = Uts46::new()
            .to_ascii(text.as_bytes(), AsciiDenyList::URL, Hyphens::Allow, DnsLength::Ignore)
            .map_err(|_| BadHostName::International)?;
        // One trailing dot is the DNS root, which every name has.
        let name = mapped.strip_suffix('.').unwrap_or(&mapped);
        if name.is_empty() {
            return Err(BadHostName::Empty);
        }
        if name.len() > 253 {
            return Err(BadHostName::TooLong);
        }
        for label in name.split('.') {
            match label.len() {
                0 => return Err(BadHostName::EmptyLabel),
                1..=63 => {}
                _ => return Err(BadHostName::TooLong),
            }
            if !label.bytes().all(plain) {
                return Err(BadHostName::Character);
            }
        }
        if ends_in_a_number(name) {
            return Err(BadHostName::Numeric);
        }
        Ok(Self(name.into()))
    }

    /// The canonical form of a name given as bytes, as in DNS, SNI and SOCKS.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHostName> {
        Self::parse(std::str::from_utf8(bytes).map_err(|_| BadHostName::Character)?)
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

    /// Whether it names the local machine (RFC 6761).
    #[must_use]
    pub fn is_localhost(&self) -> bool {
        self.as_str() == "localhost" || self.as_str().ends_with(".localhost")
    }

    /// Whether it names a cloud metadata service.
    #[must_use]
    pub fn is_metadata(&self) -> bool {
        METADATA.contains(&self.as_str())
    }

    /// Whether anyone can register a name directly below it, as with `com` or `github.io`.
    #[must_use]
    pub(crate) fn is_public_suffix(&self) -> bool {
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

/// The URL standard's test for an IPv4 address in any notation: `127.1`, `0x7f.1`, `2130706433`, `0177.0.0.1`.
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
    fn rejected(text: &str, why: BadHostName) {
        assert_eq!(HostName::parse(text), Err(why), "{text:?}");
    }

    #[test]
    fn all_spellings_of_a_name_have_one_canonical_form() {
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
        // A homograph (Cyrillic a) is another name.
        check("ex\u{430}mple.com", "xn--exmple-4nf.com");
    }

    #[test]
    fn names_that_fool_suffix_checks_are_rejected() {
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
            rejected(text, BadHostName::Character);
        }
        rejected("", BadHostName::Empty);
        rejected(".", BadHostName::Empty);
        rejected("a..b", BadHostName::EmptyLabel);
        rejected(".a.b", BadHostName::EmptyLabel);
        rejected("example.com..", BadHostName::EmptyLabel);
        rejected(&format!("{}.com", "a".repeat(64)), BadHostName::TooLong);
        rejected(&format!("{}com", "abcdefg.".repeat(32)), BadHostName::TooLong);
        rejected("xn--a.com", BadHostName::International);
        rejected("evil.com\u{2024}\u{2100}.com", BadHostName::International);
    }

    #[test]
    fn numeric_addresses_are_not_host_names() {
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
            rejected(text, BadHostName::Numeric);
        }
    }

    #[test]
    fn public_suffixes_are_recognized() {
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
        fn canonical_form_is_stable(text in "\\PC{0,40}") {
            if let Ok(name) = HostName::parse(&text) {
                prop_assert_eq!(HostName::parse(name.as_str()), Ok(name.clone()));
                prop_assert!(name.as_str().bytes().all(|byte| plain(byte) || byte == b'.'));
                prop_assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
                prop_assert!(name.as_str().len() <= 253);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = HostName::from_bytes(&bytes);
        }
    }
}
