//! IP addresses and networks: which addresses are special (loopback, private, cloud metadata), in every form that leads
//! to them.
//!
//! **Invariant.** An address that embeds another one (IPv4-mapped, IPv4-compatible, NAT64, 6to4, ISATAP) is never less
//! special than the embedded one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not an ordinary internet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpecialAddress {
    /// `0.0.0.0`, `::` and "this network": most kernels connect to the machine itself.
    Unspecified,
    /// The machine itself.
    Loopback,
    /// A private network.
    Private,
    /// Valid on the local link only.
    LinkLocal,
    /// Carrier-grade NAT.
    Shared,
    /// A multicast group.
    Multicast,
    /// Documentation, benchmarks, unassigned, broadcast.
    Reserved,
    /// A cloud metadata service, which hands out credentials.
    Metadata,
}

impl SpecialAddress {
    /// Text for a message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::LinkLocal => "a link-local address",
            Self::Shared => "a shared carrier address",
            Self::Multicast => "a multicast address",
            Self::Reserved => "a reserved address",
            Self::Metadata => "a cloud metadata address",
        }
    }
}

/// Metadata services: AWS, GCP, Azure and many others; ECS tasks; EKS; AWS over IPv6; GCP over IPv6; Alibaba; Azure's
/// wire server; Oracle.
const METADATA_V4: &[Ipv4Addr] = &[
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    Ipv4Addr::new(169, 254, 169, 253),
    Ipv4Addr::new(169, 254, 42, 42),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
];

/// Converts an IPv4-mapped IPv6 address to that IPv4 address.
#[must_use]
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Why an address is special; `None` for ordinary internet addresses.
#[must_use]
pub fn special(address: IpAddr) -> Option<SpecialAddress> {
    match canonical(address) {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<SpecialAddress> {
    if METADATA_V4.contains(&address) {
        return Some(SpecialAddress::Metadata);
    }
    Some(match address.octets() {
        [0, ..] => SpecialAddress::Unspecified,
        [127, ..] => SpecialAddress::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => SpecialAddress::Private,
        [169, 254, ..] => SpecialAddress::LinkLocal,
        [100, 64..=127, ..] => SpecialAddress::Shared,
        [224..=239, ..] => SpecialAddress::Multicast,
        // Protocol assignments, three ranges for documentation, 6to4 relays, AMT; then benchmarks, future use, broadcast.
        [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [192, 88, 99, _] | [192, 52, 193, _] => {
            SpecialAddress::Reserved
        }
        [198, 18 | 19, ..] | [240..=255, ..] => SpecialAddress::Reserved,
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<SpecialAddress> {
    if METADATA_V6.contains(&address) {
        return Some(SpecialAddress::Metadata);
    }
    let inside = embedded_v4(address).and_then(special_v4);
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(SpecialAddress::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(SpecialAddress::Loopback),
        // IPv4-compatible and IPv4-translated: not routed, but the embedded address may still be reached.
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            Some(inside.unwrap_or(SpecialAddress::Reserved))
        }
        // NAT64, well-known prefix: as special as the embedded address.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => inside,
        // NAT64, local prefix: the network decides at which offset the IPv4 address is embedded.
        [0x64, 0xff9b, ..] => Some(worst_embedded(address).unwrap_or(SpecialAddress::Private)),
        [0xfe80..=0xfebf, ..] => Some(SpecialAddress::LinkLocal),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(SpecialAddress::Private),
        [0xff00..=0xffff, ..] => Some(SpecialAddress::Multicast),
        // 6to4.
        [0x2002, ..] => inside,
        // Teredo, ORCHID, documentation and other protocol assignments.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some(SpecialAddress::Reserved),
        // ISATAP, or an ordinary address.
        [0x2000..=0x3fff, ..] => inside,
        _ => Some(SpecialAddress::Reserved),
    }
}

/// The IPv4 address that an IPv6 address embeds, if any: IPv4-compatible, IPv4-translated, NAT64, 6to4, ISATAP.
/// ([`canonical`] converts IPv4-mapped addresses.)
pub(super) fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match address.segments() {
        [0, 0, 0, 0, 0, 0, a, b] | [0, 0, 0, 0, 0xffff, 0, a, b] => (a, b),
        [0x64, 0xff9b, .., a, b] => (a, b),
        [0x2002, a, b, ..] => (a, b),
        [_, _, _, _, 0 | 0x200, 0x5efe, a, b] => (a, b),
        _ => return None,
    };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Some(Ipv4Addr::new(a, b, c, d))
}

/// The most dangerous address that a NAT64 address may embed, at any of the offsets of RFC 6052.
fn worst_embedded(address: Ipv6Addr) -> Option<SpecialAddress> {
    let [.., six, seven, _, nine, ten, eleven, twelve, a, b, c] = address.octets();
    let candidates =
        [[twelve, a, b, c], [six, seven, nine, ten], [seven, nine, ten, eleven], [nine, ten, eleven, twelve]];
    candidates.into_iter().filter_map(|four| special_v4(four.into())).find(|kind| {
        matches!(kind, SpecialAddress::Metadata | SpecialAddress::Loopback | SpecialAddress::LinkLocal)
    })
}

/// A range of addresses in CIDR form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpNetwork {
    /// The first address.
    first: IpAddr,
    length: u8,
}

/// Why a text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadIpNetwork {
    /// The part before the slash is not an address.
    #[error("`{0}` is not an address")]
    Address(String),
    /// The part after the slash is not a prefix length.
    #[error("`{0}` is not a prefix length of that address")]
    Length(String),
    /// Bits are set after the prefix.
    #[error("bits are set after the prefix; the network is `{0}`")]
    HostBits(IpNetwork),
}

impl IpNetwork {
    /// The network of one address.
    #[must_use]
    pub fn single(address: IpAddr) -> Self {
        let first = canonical(address);
        Self { first, length: bits(first) }
    }

    /// Parses an address and a prefix length.
    pub fn parse(address: &str, length: &str) -> Result<Self, BadIpNetwork> {
        let written: IpAddr = address.parse().map_err(|_| BadIpNetwork::Address(address.to_owned()))?;
        let plain =
            !length.is_empty() && length.len() <= 3 && length.bytes().all(|byte| byte.is_ascii_digit());
        let bad = || BadIpNetwork::Length(length.to_owned());
        let mut length: u8 = if plain { length.parse().map_err(|_| bad())? } else { return Err(bad()) };
        if length > bits(written) {
            return Err(bad());
        }
        let first = canonical(written);
        if first.is_ipv4() != written.is_ipv4() {
            // `::ffff:10.0.0.0/104` is 10.0.0.0/8; a prefix below 96 contains more than IPv4.
            length = length.checked_sub(96).ok_or_else(bad)?;
        }
        let network = Self { first: masked(first, length), length };
        if network.first == first { Ok(network) } else { Err(BadIpNetwork::HostBits(network)) }
    }

    /// Whether the network contains an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        address.is_ipv4() == self.first.is_ipv4() && masked(address, self.length) == self.first
    }

    /// Whether the network lists a special address on purpose, not just because it is wide enough to contain it. A
    /// metadata address must be listed as a single address.
    #[must_use]
    pub fn lists(&self, address: IpAddr, kind: SpecialAddress) -> bool {
        if !self.contains(address) {
            return false;
        }
        let alone = self.length == bits(self.first);
        let (first, last) = (special(self.first), special(self.last()));
        alone || (kind != SpecialAddress::Metadata && first == Some(kind) && last == Some(kind))
    }

    /// Whether this network covers everything that the other one lists, special addresses included. `false` in doubt.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let inside = self.length <= other.length && self.contains(other.first);
        inside
            && match (special(other.first), special(other.last())) {
                _ if self == other => true,
                (None, None) => true,
                (Some(first), Some(last)) if first == last => self.lists(other.first, first),
                _ => false,
            }
    }

    /// Whether an open network reaches all of it: no loopback, metadata or otherwise special address, except private ones.
    #[must_use]
    pub(crate) fn is_ordinary(&self) -> bool {
        let ends = [special(self.first), special(self.last())];
        ends == [None, None]
            || [SpecialAddress::Private, SpecialAddress::Shared]
                .into_iter()
                .any(|kind| ends == [Some(kind), Some(kind)])
    }

    pub(super) fn is_ipv6_network(&self) -> bool {
        self.first.is_ipv6()
    }

    /// The text form; a single address without its prefix length.
    pub(super) fn canonical(&self) -> String {
        if self.length == bits(self.first) { self.first.to_string() } else { self.to_string() }
    }

    fn last(&self) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => {
                let rest = u32::MAX.checked_shr(self.length.into()).unwrap_or(0);
                Ipv4Addr::from(u32::from(first) | rest).into()
            }
            IpAddr::V6(first) => {
                let rest = u128::MAX.checked_shr(self.length.into()).unwrap_or(0);
                Ipv6Addr::from(u128::from(first) | rest).into()
            }
        }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = !u32::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = !u128::MAX.checked_shr(length.into()).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(address: &str, expected: Option<SpecialAddress>) {
        assert_eq!(special(address.parse().unwrap()), expected, "{address}");
    }

    #[test]
    fn special_ranges_are_exact() {
        use SpecialAddress::{
            LinkLocal, Loopback, Metadata, Multicast, Private, Reserved, Shared, Unspecified,
        };
        for (address, expected) in [
            ("0.0.0.0", Some(Unspecified)),
            ("0.255.255.255", Some(Unspecified)),
            ("1.0.0.0", None),
            ("9.255.255.255", None),
            ("10.0.0.0", Some(Private)),
            ("10.255.255.255", Some(Private)),
            ("11.0.0.0", None),
            ("100.63.255.255", None),
            ("100.64.0.0", Some(Shared)),
            ("100.127.255.255", Some(Shared)),
            ("100.128.0.0", None),
            ("126.255.255.255", None),
            ("127.0.0.0", Some(Loopback)),
            ("127.255.255.255", Some(Loopback)),
            ("128.0.0.0", None),
            ("169.253.255.255", None),
            ("169.254.0.0", Some(LinkLocal)),
            ("169.254.169.254", Some(Metadata)),
            ("169.254.170.2", Some(Metadata)),
            ("100.100.100.200", Some(Metadata)),
            ("168.63.129.16", Some(Metadata)),
            ("168.63.129.17", None),
            ("192.0.0.192", Some(Metadata)),
            ("169.255.0.0", None),
            ("172.15.255.255", None),
            ("172.16.0.0", Some(Private)),
            ("172.31.255.255", Some(Private)),
            ("172.32.0.0", None),
            ("192.167.255.255", None),
            ("192.168.0.0", Some(Private)),
            ("192.169.0.0", None),
            ("198.17.255.255", None),
            ("198.18.0.1", Some(Reserved)),
            ("198.19.255.255", Some(Reserved)),
            ("198.20.0.0", None),
            ("223.255.255.255", None),
            ("224.0.0.1", Some(Multicast)),
            ("240.0.0.0", Some(Reserved)),
            ("255.255.255.255", Some(Reserved)),
            ("::", Some(Unspecified)),
            ("::1", Some(Loopback)),
            ("fe80::1", Some(LinkLocal)),
            ("febf::1", Some(LinkLocal)),
            ("fec0::1", Some(Private)),
            ("fc00::1", Some(Private)),
            ("fd00:ec2::254", Some(Metadata)),
            ("fd20:ce::254", Some(Metadata)),
            ("ff02::1", Some(Multicast)),
            ("2001:db8::1", Some(Reserved)),
            ("2001:4860:4860::8888", None),
            ("2606:4700::1111", None),
            ("4000::1", Some(Reserved)),
            ("100::1", Some(Reserved)),
        ] {
            check(address, expected);
        }
    }

    // P3: judged by the embedded address
    #[test]
    fn embedded_addresses_are_judged() {
        use SpecialAddress::{Loopback, Metadata, Private, Reserved};
        for (address, expected) in [
            ("::ffff:127.0.0.1", Some(Loopback)),
            ("::ffff:169.254.169.254", Some(Metadata)),
            ("::ffff:8.8.8.8", None),
            ("::127.0.0.1", Some(Loopback)),
            ("::8.8.8.8", Some(Reserved)),
            ("::ffff:0:10.0.0.1", Some(Private)),
            ("64:ff9b::10.0.0.1", Some(Private)),
            ("64:ff9b::a9fe:a9fe", Some(Metadata)),
            ("64:ff9b::8.8.8.8", None),
            ("64:ff9b:1::8.8.8.8", Some(Private)),
            ("64:ff9b:1::169.254.169.254", Some(Metadata)),
            ("64:ff9b:1:a9fe:a9:fe00::", Some(Metadata)),
            ("64:ff9b:1:7f:0:1::", Some(Loopback)),
            ("64:ff9b:1::a9:fea9:fe00:0", Some(Metadata)),
            ("2002:7f00:1::", Some(Loopback)),
            ("2002:a9fe:a9fe::1", Some(Metadata)),
            ("2002:808:808::1", None),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Some(Reserved)),
            ("2606:4700::5efe:10.0.0.1", Some(Private)),
            ("2606:4700::200:5efe:127.0.0.1", Some(Loopback)),
        ] {
            check(address, expected);
        }
    }

    #[test]
    fn networks_are_exact() {
        let network = IpNetwork::parse("93.184.216.0", "29").unwrap();
        for (address, expected) in [
            ("93.184.215.255", false),
            ("93.184.216.0", true),
            ("93.184.216.7", true),
            ("93.184.216.8", false),
            ("::ffff:93.184.216.7", true),
        ] {
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{address}");
        }
        assert!(IpNetwork::parse("0.0.0.0", "0").unwrap().contains("255.255.255.255".parse().unwrap()));
        assert!(!IpNetwork::parse("::", "0").unwrap().contains("1.2.3.4".parse().unwrap()));
        assert_eq!(IpNetwork::parse("::ffff:10.0.0.0", "104").unwrap().to_string(), "10.0.0.0/8");
        assert!(IpNetwork::parse("::ffff:10.0.0.0", "90").is_err());
        let error = IpNetwork::parse("10.1.2.3", "8").unwrap_err();
        assert_eq!(error.to_string(), "bits are set after the prefix; the network is `10.0.0.0/8`");
        for (address, length) in [("010.0.0.0", "8"), ("10.0.0.0", "33"), ("10.0.0.0", "+8"), ("10.0.0", "8")]
        {
            assert!(IpNetwork::parse(address, length).is_err(), "{address}/{length}");
        }
    }

    #[test]
    fn wide_networks_do_not_list_special_addresses() {
        let check = |network: (&str, &str), address: &str, expected: bool| {
            let (network, address) =
                (IpNetwork::parse(network.0, network.1).unwrap(), address.parse().unwrap());
            assert_eq!(network.lists(address, special(address).unwrap()), expected, "{network} {address}");
        };
        check(("0.0.0.0", "0"), "10.0.0.1", false);
        check(("0.0.0.0", "0"), "127.0.0.1", false);
        check(("10.0.0.0", "8"), "10.1.2.3", true);
        check(("127.0.0.0", "8"), "127.0.0.1", true);
        check(("169.254.0.0", "16"), "169.254.1.1", true);
        check(("169.254.0.0", "16"), "169.254.169.254", false);
        check(("169.254.169.254", "32"), "169.254.169.254", true);
        check(("fd00::", "8"), "fd00:ec2::254", false);
        check(("fd00:ec2::254", "128"), "fd00:ec2::254", true);
    }

    proptest! {
        #[test]
        fn embedding_address_is_at_least_as_special(bits in any::<u32>(), prefix in any::<[u16; 2]>()) {
            let inner = Ipv4Addr::from(bits);
            let [a, b] = [(bits >> 16) as u16, bits as u16];
            let carriers = [
                inner.to_ipv6_mapped(),
                inner.to_ipv6_compatible(),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
                Ipv6Addr::new(0x2002, a, b, prefix[0], 0, 0, 0, prefix[1]),
                Ipv6Addr::new(0x2600, prefix[0], 0, 0, 0x200, 0x5efe, a, b),
            ];
            if let Some(kind) = special(inner.into()) {
                for carrier in carriers {
                    let embedded_v4 = special(carrier.into());
                    // `::` and `::1` have kinds of their own.
                    prop_assert!(embedded_v4 == Some(kind) || (embedded_v4.is_some() && u128::from(carrier) < 2), "{carrier}");
                }
            }
        }

        #[test]
        fn network_contains_its_ends_and_not_its_neighbours(bits in any::<u32>(), length in 1_u8..=32) {
            let first = masked(Ipv4Addr::from(bits).into(), length);
            let network = IpNetwork { first, length };
            let IpAddr::V4(low) = first else { panic!() };
            let IpAddr::V4(high) = network.last() else { panic!() };
            prop_assert!(network.contains(first) && network.contains(network.last()));
            if let Some(before) = u32::from(low).checked_sub(1) {
                prop_assert!(!network.contains(Ipv4Addr::from(before).into()));
            }
            if let Some(after) = u32::from(high).checked_add(1) {
                prop_assert!(!network.contains(Ipv4Addr::from(after).into()));
            }
        }
    }
}
