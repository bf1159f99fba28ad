//! The egress gate: which hosts, addresses and ports a sandboxed program can reach, whatever protocol or library it uses.
//!
//! A sandbox's network namespace has no route out; its sockets belong to an [`EgressGate`] (see `network` in
//! `crates/sandbox`). The gate answers DNS with synthetic addresses, and only for names that a rule allows. It accepts
//! every connection, maps the address back to its name, checks the name against the rules and against the names inside the
//! connection (SNI, Host), resolves and dials the server from outside the namespace, and relays the bytes.
//!
//! **Invariants.** Nothing about a denied name leaves the machine. The gate dials the address that it checked. Names are
//! compared only as [`HostName`]. Traffic that cannot be parsed is denied. Every attempt is recorded as an [`EgressEvent`].
//!
//! Deliberately absent: `unsafe`; the namespace itself (`sandbox`); ledger records (the caller writes them); decrypting TLS,
//! except for the hosts that [`TlsTermination`] is configured for.

mod connect;
mod connection;
mod detect;
mod dns;
mod event;
mod fetch;
mod gate;
mod http;
mod proxy;
mod relay;
mod synthetic_dns;
mod tls_termination;
mod trusted_roots;

// The decision functions are pure and live in `core`.
use vambrace_core::network::{decide, host_name};

pub use connect::{Resolve, ResolveFuture, SystemResolver};
pub use event::{EgressAction, EgressEvent, EgressLog};
pub use fetch::{BadUrl, FetchError, FetchLimits, FetchRequest, FetchResponse, FetchUrl, Fetcher, Method};
pub use gate::{EgressGate, GateConfig};
pub use proxy::{BadProxy, PORT as PROXY_PORT, UpstreamProxy};
pub use relay::TrafficCaps;
pub use synthetic_dns::SyntheticAddresses;
pub use tls_termination::{BadTermination, Credential, TerminatedHosts, TlsTermination};
pub use trusted_roots::{BadCertificateFile, TrustedRoots};
pub use vambrace_core::network::{
    BadHostName, BadNetworkRule, Destination, HostName, IpNetwork, NetworkDecision, NetworkFence,
    NetworkReason, NetworkRule, NetworkRules, NetworkSubject, PortSet, SpecialAddress, special,
};
