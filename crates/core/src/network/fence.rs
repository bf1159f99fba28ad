//! Several rule lists at once: the one that the caller asked for, and the one of the configuration. A destination is
//! allowed only if every list allows it, so a further list can only narrow. Without any list nothing is allowed.

use std::net::IpAddr;
use std::sync::Arc;

use super::address::{SpecialAddress, special};
use super::decide::{Destination, NetworkDecision, NetworkReason, NetworkRules};
use super::host_name::HostName;

/// The destinations that a call may reach: rule lists that must all allow.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NetworkFence {
    lists: Vec<Arc<NetworkRules>>,
}

impl NetworkFence {
    /// The intersection of these lists.
    #[must_use]
    pub fn of(lists: impl IntoIterator<Item = NetworkRules>) -> Self {
        Self { lists: lists.into_iter().map(Arc::new).collect() }
    }

    /// Narrows to what the other fence also allows.
    pub fn meet(&mut self, other: &Self) {
        self.lists.extend(other.lists.iter().cloned());
    }

    /// Whether no destination is allowed.
    #[must_use]
    pub(crate) fn allows_nothing(&self) -> bool {
        self.lists.is_empty() || self.lists.iter().any(|rules| rules.allows_nothing())
    }

    /// Judges a destination as the program named it. An allowing rule is the one of the first list.
    #[must_use]
    pub fn judge(&self, destination: &Destination, port: u16) -> NetworkDecision {
        let mut decision = NetworkDecision::Deny(not_allowed(destination));
        for rules in self.lists.iter().rev() {
            decision = rules.judge(destination, port);
            if matches!(decision, NetworkDecision::Deny(_)) {
                break;
            }
        }
        decision
    }

    /// Whether a name may be looked up.
    pub fn allows_lookup(&self, name: &HostName) -> Result<Arc<str>, NetworkReason> {
        let mut rule = Err(NetworkReason::HostNotAllowed);
        for rules in self.lists.iter().rev() {
            rule = rules.allows_lookup(name);
            if rule.is_err() {
                break;
            }
        }
        rule
    }

    /// Judges an address that an allowed name resolved to.
    pub fn judge_resolved(&self, address: IpAddr, port: u16) -> Result<(), NetworkReason> {
        if self.lists.is_empty() {
            return Err(NetworkReason::AddressNotAllowed);
        }
        self.lists.iter().try_for_each(|rules| rules.judge_resolved(address, port))
    }

    /// Whether some list lists this address on purpose.
    #[must_use]
    pub fn any_lists_address(&self, address: IpAddr, port: u16) -> bool {
        self.lists.iter().any(|rules| rules.lists_address(address, port))
    }

    /// Whether some list lists exactly this address, not a network that contains it.
    #[must_use]
    pub fn any_lists_single_address(&self, address: IpAddr, port: u16) -> bool {
        self.lists.iter().any(|rules| rules.lists_single_address(address, port))
    }

    /// An error if some list denies this name on this port.
    pub fn check_name(&self, name: &HostName, port: u16) -> Result<(), NetworkReason> {
        self.lists.iter().try_for_each(|rules| rules.check_name(name, port))
    }

    /// Whether some list denies names on this port.
    #[must_use]
    pub fn denies_names(&self, port: u16) -> bool {
        self.lists.iter().any(|rules| rules.denies_names(port))
    }

    /// The host names that some list denies on this port.
    pub fn denied_hosts(&self, port: u16) -> impl Iterator<Item = &HostName> {
        self.lists.iter().flat_map(move |rules| rules.denied_hosts(port))
    }

    /// Whether every list lists this address of the broker's own machine on purpose: alone or, for loopback, with
    /// other loopback addresses. A wider network, such as `0.0.0.0/0`, does not.
    #[must_use]
    pub fn lists_this_machine(&self, address: IpAddr, port: u16) -> bool {
        let loopback = special(address) == Some(SpecialAddress::Loopback);
        let lists = |rules: &Arc<NetworkRules>| {
            rules.lists_single_address(address, port) || loopback && rules.lists_address(address, port)
        };
        !self.lists.is_empty() && self.lists.iter().all(lists)
    }

    /// Whether every list lists this address on purpose.
    #[must_use]
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        !self.lists.is_empty() && self.lists.iter().all(|rules| rules.lists_address(address, port))
    }
}

impl From<NetworkRules> for NetworkFence {
    fn from(rules: NetworkRules) -> Self {
        Self::of([rules])
    }
}

fn not_allowed(destination: &Destination) -> NetworkReason {
    match destination {
        Destination::Name(_) => NetworkReason::HostNotAllowed,
        Destination::Address(_) => NetworkReason::AddressNotAllowed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::tests::{rules, to};
    use super::*;

    // P3
    #[test]
    fn fence_without_lists_allows_nothing() {
        let none = NetworkFence::default();
        assert!(none.allows_nothing());
        assert!(matches!(none.judge(&to("example.com"), 443), NetworkDecision::Deny(_)));
        assert!(matches!(none.judge(&to("8.8.8.8"), 443), NetworkDecision::Deny(_)));
        assert!(none.judge_resolved("8.8.8.8".parse().unwrap(), 443).is_err());
        assert!(none.allows_lookup(&HostName::parse("example.com").unwrap()).is_err());
        assert!(!none.lists_address("127.0.0.1".parse().unwrap(), 1));
        assert!(!none.lists_this_machine("127.0.0.1".parse().unwrap(), 1));
    }

    // P3
    #[test]
    fn wide_network_does_not_list_this_machine() {
        let lists = |list: &str, address: &str| {
            NetworkFence::from(rules(&[list])).lists_this_machine(address.parse().unwrap(), 443)
        };
        assert!(lists("9.9.1.1", "9.9.1.1") && lists("127.0.0.0/8", "127.0.0.2"));
        for wide in ["0.0.0.0/0", "9.9.1.0/24", "9.0.0.0/8", "9.9.1.2"] {
            assert!(!lists(wide, "9.9.1.1"), "{wide}");
        }
        assert!(!lists("10.0.0.0/8", "10.1.1.1") && !lists("::/0", "2600::1"));
    }

    // P3
    #[test]
    fn every_list_must_allow_a_destination() {
        let both =
            NetworkFence::of([rules(&["*.example.com", "127.0.0.1"]), rules(&["allow", "!a.example.com"])]);
        assert_eq!(both.judge(&to("b.example.com"), 443), NetworkDecision::Allow("*.example.com".into()));
        for denied in ["a.example.com", "other.com", "127.0.0.1", "8.8.8.8"] {
            assert!(matches!(both.judge(&to(denied), 443), NetworkDecision::Deny(_)), "{denied}");
        }
        // Only the first list lists the loopback address, which is not enough.
        assert!(both.judge_resolved("127.0.0.1".parse().unwrap(), 443).is_err());
        assert!(!both.lists_address("127.0.0.1".parse().unwrap(), 443));
        assert!(both.allows_lookup(&HostName::parse("a.example.com").unwrap()).is_err());
    }
}
