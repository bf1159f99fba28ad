//! Synthetic addresses: the addresses that the gate's DNS returns for allowed names. They lead to the gate only, and tell it
//! which name the program resolved, for any protocol. They are assigned per session, so that a program that caches an
//! address from one run to the next still reaches the same name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use parking_lot::Mutex;

use crate::host_name::HostName;

/// 198.18.0.0/15, the range for benchmarks (RFC 2544), which no network routes.
const FIRST_V4: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const LAST_V4: u32 = u32::from_be_bytes([198, 19, 255, 255]);
/// A unique local prefix of our own.
const PREFIX_V6: u128 = 0xfd76_616d_6272_6163_6500_0000_0000_0000;
/// Maximum number of names; a program that resolves more is flooding.
const MAX_NAMES: usize = 16_384;

/// Names and the synthetic addresses assigned to them.
#[derive(Debug, Default)]
pub struct SyntheticAddresses {
    table: Mutex<AddressTable>,
}

#[derive(Debug, Default)]
struct AddressTable {
    numbers: HashMap<HostName, u32>,
    names: Vec<HostName>,
}

/// What an address stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressMeaning {
    /// A synthetic address assigned to this name.
    Name(HostName),
    /// A synthetic address that was never assigned.
    Unassigned,
    /// Not a synthetic address.
    Real,
}

impl SyntheticAddresses {
    /// The IPv4 and IPv6 address of a name, assigned at the first call; `None` when the table is full.
    pub fn assign(&self, name: &HostName) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let mut table = self.table.lock();
        let number = match table.numbers.get(name) {
            Some(number) => *number,
            None if table.names.len() >= MAX_NAMES => return None,
            None => {
                table.names.push(name.clone());
                // The first address of the range is skipped: some programs take `.0` for a network address.
                let number = u32::try_from(table.names.len()).ok()?;
                table.numbers.insert(name.clone(), number);
                number
            }
        };
        let four = FIRST_V4.checked_add(number).filter(|four| *four <= LAST_V4)?;
        Some((Ipv4Addr::from(four), Ipv6Addr::from(PREFIX_V6 | u128::from(number))))
    }

    /// What an address stands for.
    pub fn lookup(&self, address: IpAddr) -> AddressMeaning {
        let number = match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = u32::from(address);
                if !(FIRST_V4..=LAST_V4).contains(&bits) {
                    return AddressMeaning::Real;
                }
                Some(bits - FIRST_V4)
            }
            IpAddr::V6(address) => {
                let bits = u128::from(address);
                if bits >> 64 != PREFIX_V6 >> 64 {
                    return AddressMeaning::Real;
                }
                u32::try_from(bits ^ PREFIX_V6).ok()
            }
        };
        let at = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
        let table = self.table.lock();
        at.and_then(|at| table.names.get(at))
            .cloned()
            .map_or(AddressMeaning::Unassigned, AddressMeaning::Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vambrace_core::network::special;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn name_keeps_its_addresses_and_they_map_back_to_it() {
        let table = SyntheticAddresses::default();
        let (four, six) = table.assign(&name("a.example")).unwrap();
        let (other, _) = table.assign(&name("b.example")).unwrap();
        assert_ne!(four, other);
        assert_eq!(table.assign(&name("a.example")), Some((four, six)));
        assert_eq!(table.lookup(four.into()), AddressMeaning::Name(name("a.example")));
        assert_eq!(table.lookup(six.into()), AddressMeaning::Name(name("a.example")));
        assert_eq!(table.lookup(four.to_ipv6_mapped().into()), AddressMeaning::Name(name("a.example")));
    }

    #[test]
    fn unassigned_synthetic_addresses_map_to_no_name() {
        let table = SyntheticAddresses::default();
        table.assign(&name("a.example")).unwrap();
        for text in [
            "198.18.0.0",
            "198.18.0.2",
            "198.19.255.255",
            "fd76:616d:6272:6163:6500::2",
            "fd76:616d:6272:6163:6500::",
            "fd76:616d:6272:6163:ffff::1",
        ] {
            assert_eq!(table.lookup(text.parse().unwrap()), AddressMeaning::Unassigned, "{text}");
        }
        for text in ["198.17.255.255", "198.20.0.0", "93.184.216.34", "fd76:616d:6272:6164::1", "::1"] {
            assert_eq!(table.lookup(text.parse().unwrap()), AddressMeaning::Real, "{text}");
        }
    }

    #[test]
    fn full_table_assigns_no_new_names_and_keeps_the_old_ones() {
        let table = SyntheticAddresses::default();
        for number in 0..MAX_NAMES {
            assert!(table.assign(&name(&format!("n{number}.example"))).is_some());
        }
        assert_eq!(table.assign(&name("one-more.example")), None);
        assert!(table.assign(&name("n0.example")).is_some());
    }

    #[test]
    fn synthetic_addresses_are_special_so_the_gate_never_dials_them() {
        let (four, six) = SyntheticAddresses::default().assign(&name("a.example")).unwrap();
        assert!(special(four.into()).is_some() && special(six.into()).is_some());
    }
}
