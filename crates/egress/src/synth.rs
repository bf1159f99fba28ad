//! Synthetic addresses: what a program is told a name's address is. They lead nowhere but to the gate, and tell it
//! which name the program meant, for any protocol. Given out per session, so that a program that keeps an address
//! from one run to the next still means the same name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use parking_lot::Mutex;

use crate::names::HostName;

/// Of the range for benchmarks, RFC 2544: no network has them.
const FIRST_V4: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const LAST_V4: u32 = u32::from_be_bytes([198, 19, 255, 255]);
/// Of a unique local prefix of our own.
const PREFIX_V6: u128 = 0xfd76_616d_6272_6163_6500_0000_0000_0000;
/// More names than these nobody asks for in good faith.
const MOST: usize = 16_384;

/// Names and the addresses given out for them.
#[derive(Debug, Default)]
pub struct Book {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    numbers: HashMap<HostName, u32>,
    names: Vec<HostName>,
}

/// What an address means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// It was given out for this name.
    Name(HostName),
    /// It is one of ours that nobody was given.
    Nothing,
    /// It is not one of ours.
    Itself,
}

impl Book {
    /// The two addresses of a name; nothing when the book is full.
    pub fn addresses(&self, name: &HostName) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let mut pages = self.pages.lock();
        let number = match pages.numbers.get(name) {
            Some(number) => *number,
            None if pages.names.len() >= MOST => return None,
            None => {
                pages.names.push(name.clone());
                // The first address of the range is left out: some programs take `.0` for a network.
                let number = u32::try_from(pages.names.len()).ok()?;
                pages.numbers.insert(name.clone(), number);
                number
            }
        };
        let four = FIRST_V4.checked_add(number).filter(|four| *four <= LAST_V4)?;
        Some((Ipv4Addr::from(four), Ipv6Addr::from(PREFIX_V6 | u128::from(number))))
    }

    /// What an address means.
    pub fn meaning(&self, address: IpAddr) -> Meaning {
        let number = match address.to_canonical() {
            IpAddr::V4(address) => {
                let bits = u32::from(address);
                if !(FIRST_V4..=LAST_V4).contains(&bits) {
                    return Meaning::Itself;
                }
                Some(bits - FIRST_V4)
            }
            IpAddr::V6(address) => {
                let bits = u128::from(address);
                if bits >> 64 != PREFIX_V6 >> 64 {
                    return Meaning::Itself;
                }
                u32::try_from(bits ^ PREFIX_V6).ok()
            }
        };
        let at = number.and_then(|number| usize::try_from(number).ok()?.checked_sub(1));
        let pages = self.pages.lock();
        at.and_then(|at| pages.names.get(at)).cloned().map_or(Meaning::Nothing, Meaning::Name)
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
    fn a_name_keeps_its_addresses_and_they_mean_it() {
        let book = Book::default();
        let (four, six) = book.addresses(&name("a.example")).unwrap();
        let (other, _) = book.addresses(&name("b.example")).unwrap();
        assert_ne!(four, other);
        assert_eq!(book.addresses(&name("a.example")), Some((four, six)));
        assert_eq!(book.meaning(four.into()), Meaning::Name(name("a.example")));
        assert_eq!(book.meaning(six.into()), Meaning::Name(name("a.example")));
        assert_eq!(book.meaning(four.to_ipv6_mapped().into()), Meaning::Name(name("a.example")));
    }

    #[test]
    fn addresses_that_nobody_was_given_mean_nothing() {
        let book = Book::default();
        book.addresses(&name("a.example")).unwrap();
        for text in [
            "198.18.0.0",
            "198.18.0.2",
            "198.19.255.255",
            "fd76:616d:6272:6163:6500::2",
            "fd76:616d:6272:6163:6500::",
            "fd76:616d:6272:6163:ffff::1",
        ] {
            assert_eq!(book.meaning(text.parse().unwrap()), Meaning::Nothing, "{text}");
        }
        for text in ["198.17.255.255", "198.20.0.0", "93.184.216.34", "fd76:616d:6272:6164::1", "::1"] {
            assert_eq!(book.meaning(text.parse().unwrap()), Meaning::Itself, "{text}");
        }
    }

    #[test]
    fn a_flood_of_names_fills_the_book_and_nothing_else() {
        let book = Book::default();
        for number in 0..MOST {
            assert!(book.addresses(&name(&format!("n{number}.example"))).is_some());
        }
        assert_eq!(book.addresses(&name("one-more.example")), None);
        assert!(book.addresses(&name("n0.example")).is_some());
    }

    #[test]
    fn a_synthetic_address_is_never_dialled() {
        let (four, six) = Book::default().addresses(&name("a.example")).unwrap();
        assert!(special(four.into()).is_some() && special(six.into()).is_some());
    }
}
