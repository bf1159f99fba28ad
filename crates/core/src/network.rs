//! What of the network may be reached: names and addresses in one canonical form, rules over them, and the decision.
//! Pure; whoever resolves, dials and listens is the gate (`crates/egress`).
//!
//! **Invariants.** A name is compared only as a [`HostName`]. A name never makes a special address reachable. Several
//! lists reach only what every one of them reaches ([`Reach`]).

pub mod address;
pub mod decide;
pub mod names;
pub mod reach;
pub mod rule;

pub use address::{Network, Special, special};
pub use decide::{Destination, Reason, Rules, Verdict};
pub use names::{BadName, HostName};
pub use reach::Reach;
pub use rule::{BadRule, Ports, Rule, Subject};
