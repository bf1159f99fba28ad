//! The gate to the network: what a confined program may reach, by name, address and port, whatever the program is and
//! however it asks.
//!
//! A sandbox's network namespace has no way out; its sockets are handed over to a [`Gate`] (`crates/sandbox`,
//! `network`). DNS is answered here, with synthetic addresses and only for names that a rule allows; every connection
//! is accepted here, judged by the name that its address stands for, compared with the names that it says itself
//! (SNI, Host), dialled from outside to an address that was judged as well, and passed on.
//!
//! **Invariants.** Nothing about a refused name leaves the machine. The address that was judged is the one that is
//! dialled. A name is compared only as a [`HostName`]. What cannot be judged is refused. Every attempt is an [`Event`].
//!
//! Deliberately absent: `unsafe`, the namespace itself (`sandbox`), records (whoever runs the program keeps them),
//! looking inside TLS.

mod address;
mod connect;
mod decide;
mod dns;
mod event;
mod gate;
mod http;
mod names;
mod pass;
mod proxy;
mod relay;
mod rule;
mod sniff;
mod synth;

pub use address::{Network, Special, special};
pub use connect::{Resolve, Resolving, SystemResolver};
pub use decide::{Destination, Reason, Rules, Verdict};
pub use event::{Action, Event, Log};
pub use gate::{Gate, Setting};
pub use names::{BadName, HostName};
pub use proxy::{BadProxy, PORT as PROXY_PORT, Upstream};
pub use relay::Caps;
pub use rule::{BadRule, Ports, Rule, Subject};
pub use synth::Book;
