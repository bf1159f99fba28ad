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
//! looking inside TLS but for the hosts that `terminate` is given.

mod connect;
mod dns;
mod event;
mod fetch;
mod gate;
mod http;
mod pass;
mod proxy;
mod relay;
mod sniff;
mod synth;
mod terminate;
mod trust;

// The decisions are pure and live with the others.
use vambrace_core::network::{decide, names};

pub use connect::{Resolve, Resolving, SystemResolver};
pub use event::{Action, Event, Log};
pub use fetch::{Ask, BadUrl, Bounds, FetchFault, Fetcher, Method, Reply, Target};
pub use gate::{Gate, Setting};
pub use proxy::{BadProxy, PORT as PROXY_PORT, Upstream};
pub use relay::Caps;
pub use synth::Book;
pub use terminate::{BadTermination, Credential, Terminated, Termination};
pub use trust::{BadTrust, Trust};
pub use vambrace_core::network::{
    BadName, BadRule, Destination, HostName, Network, Ports, Reach, Reason, Rule, Rules, Special, Subject,
    Verdict, special,
};
