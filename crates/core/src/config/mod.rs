//! Configuration: text in, typed values or errors out; no file is opened here. One table of keys
//! ([`keys`]) says what exists; [`parse`] reads one file and tells every fault with its place;
//! [`combine`] makes one [`Effective`] of the organisation's, the user's and the project's file, under the
//! rule that layers only narrow.
//!
//! Deliberately not here: where files lie, whether a project is trusted, what roles and rules mean.

mod check;
mod choice;
mod effective;
mod fault;
mod file;
mod grant;
mod guard;
pub mod key;
pub mod keys;
mod layers;
mod migrate;
mod older;
mod origin;
mod pattern;
mod rate;
mod reference;
mod role;
mod rule;
mod schema;
mod show;
#[cfg(test)]
mod tests;
mod tree;

pub use choice::{
    AuditSync, CommandApproval, Isolation, PackageInstall, Profile, SearchEngine, Tier, ViolationAction,
};
pub use effective::{
    Approvals, AuditExport, AuditWitness, Effective, Limits, Network, Sandbox, Secrets, Terminated, Tools,
    Violations,
};
pub use fault::{ConfigError, Note};
pub use file::{FileConfig, Setting, parse, parse_bytes};
pub use layers::combine;
pub use migrate::migrate;
pub use origin::{Origin, Sited, Source};
pub use rate::CallRates;
pub use reference::reference;
pub use role::{LayerRoles, Role};
pub use rule::{Case, Rule};
pub use schema::schema;
pub use show::ShownValue;

pub use crate::effect::EffectKind;
pub use crate::rule::Decision;
