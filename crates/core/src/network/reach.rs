//! Several lists of rules at once: what the caller asked for, what the configuration allows. Something is reached only
//! where every list agrees, so a further list can only narrow. No list at all reaches nothing.

use std::net::IpAddr;
use std::sync::Arc;

use super::decide::{Destination, Reason, Rules, Verdict};
use super::names::HostName;

/// Lists that must all agree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reach {
    lists: Vec<Arc<Rules>>,
}

impl Reach {
    /// Whatever each of these reaches.
    #[must_use]
    pub fn of(lists: impl IntoIterator<Item = Rules>) -> Self {
        Self { lists: lists.into_iter().map(Arc::new).collect() }
    }

    /// Narrows to what the other also reaches.
    pub fn meet(&mut self, other: &Self) {
        self.lists.extend(other.lists.iter().cloned());
    }

    /// Whether nothing at all can be reached.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.lists.is_empty() || self.lists.iter().any(|rules| rules.is_nothing())
    }

    /// Whether the port may be used, for a destination as it was named. The rule is the first list's.
    #[must_use]
    pub fn judge(&self, destination: &Destination, port: u16) -> Verdict {
        let mut said = Verdict::Deny(nobody(destination));
        for rules in self.lists.iter().rev() {
            said = rules.judge(destination, port);
            if matches!(said, Verdict::Deny(_)) {
                break;
            }
        }
        said
    }

    /// Whether a name may be asked for at all.
    pub fn knows(&self, name: &HostName) -> Result<Arc<str>, Reason> {
        let mut said = Err(Reason::HostNotAllowed);
        for rules in self.lists.iter().rev() {
            said = rules.knows(name);
            if said.is_err() {
                break;
            }
        }
        said
    }

    /// Whether an address that a name led to may be dialled.
    pub fn judge_found(&self, address: IpAddr, port: u16) -> Result<(), Reason> {
        if self.lists.is_empty() {
            return Err(Reason::AddressNotAllowed);
        }
        self.lists.iter().try_for_each(|rules| rules.judge_found(address, port))
    }

    /// Whether a network of some list names this address on purpose.
    #[must_use]
    pub fn means_address(&self, address: IpAddr, port: u16) -> bool {
        self.lists.iter().any(|rules| rules.lists_address(address, port))
    }

    /// Whether some list names this one address, and not a network around it.
    #[must_use]
    pub fn means_alone(&self, address: IpAddr, port: u16) -> bool {
        self.lists.iter().any(|rules| rules.names_alone(address, port))
    }

    /// Whether some list refuses this name on this port.
    pub fn refuses_name(&self, name: &HostName, port: u16) -> Result<(), Reason> {
        self.lists.iter().try_for_each(|rules| rules.refuses_name(name, port))
    }

    /// Whether some list refuses names on this port.
    #[must_use]
    pub fn has_refused_names(&self, port: u16) -> bool {
        self.lists.iter().any(|rules| rules.has_refused_names(port))
    }

    /// The hosts that some list refuses by name on this port.
    pub fn refused_hosts(&self, port: u16) -> impl Iterator<Item = &HostName> {
        self.lists.iter().flat_map(move |rules| rules.refused_hosts(port))
    }

    /// Whether networks of every list name this address on purpose.
    #[must_use]
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        !self.lists.is_empty() && self.lists.iter().all(|rules| rules.lists_address(address, port))
    }
}

impl From<Rules> for Reach {
    fn from(rules: Rules) -> Self {
        Self::of([rules])
    }
}

fn nobody(destination: &Destination) -> Reason {
    match destination {
        Destination::Name(_) => Reason::HostNotAllowed,
        Destination::Address(_) => Reason::AddressNotAllowed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::tests::{rules, to};
    use super::*;

    // P3
    #[test]
    fn no_list_reaches_nothing() {
        let none = Reach::default();
        assert!(none.is_nothing());
        assert!(matches!(none.judge(&to("example.com"), 443), Verdict::Deny(_)));
        assert!(matches!(none.judge(&to("8.8.8.8"), 443), Verdict::Deny(_)));
        assert!(none.judge_found("8.8.8.8".parse().unwrap(), 443).is_err());
        assert!(none.knows(&HostName::parse("example.com").unwrap()).is_err());
        assert!(!none.lists_address("127.0.0.1".parse().unwrap(), 1));
    }

    // P3
    #[test]
    fn every_list_must_agree() {
        let both = Reach::of([rules(&["*.example.com", "127.0.0.1"]), rules(&["allow", "!a.example.com"])]);
        assert_eq!(both.judge(&to("b.example.com"), 443), Verdict::Allow("*.example.com".into()));
        for refused in ["a.example.com", "other.com", "127.0.0.1", "8.8.8.8"] {
            assert!(matches!(both.judge(&to(refused), 443), Verdict::Deny(_)), "{refused}");
        }
        // The second list does not name the loopback address, so the first one's word is not enough.
        assert!(both.judge_found("127.0.0.1".parse().unwrap(), 443).is_err());
        assert!(!both.lists_address("127.0.0.1".parse().unwrap(), 443));
        assert!(both.knows(&HostName::parse("a.example.com").unwrap()).is_err());
    }
}
