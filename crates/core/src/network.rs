//! Which destinations a program may connect to: host names and addresses in canonical form, rules over them, and the
//! decision. Pure: the egress gate (`crates/egress`) resolves names, connects and listens.
//!
//! **Invariants.** Names are compared only as [`HostName`]. Allowing a name never makes a special address reachable.
//! A [`NetworkFence`] of several rule lists allows only what each of them allows.

pub mod address;
pub mod decide;
pub mod fence;
pub mod host_name;
pub mod rule;

pub use address::{IpNetwork, SpecialAddress, special};
pub use decide::{Destination, NetworkDecision, NetworkReason, NetworkRules};
pub use fence::NetworkFence;
pub use host_name::{BadHostName, HostName};
pub use rule::{BadNetworkRule, NetworkRule, NetworkSubject, PortSet};
