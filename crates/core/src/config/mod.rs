//! Configuration: text in, typed values or errors out; no file is opened here. One table ([`keys`]) defines all keys;
//! [`parse`] reads one file and reports every error with its position; [`combine`] merges the files of the organisation,
//! the user and the project into one [`EffectiveConfig`], under the rule that layers only narrow.
//!
//! Deliberately not here: where the files are, whether a project is trusted, how roles and rules are applied.

mod check;
mod choice;
mod effective;
mod error;
mod file;
mod granted_roles;
mod input_limits;
pub mod key;
pub mod keys;
mod layers;
mod list_item;
mod migrate;
mod older_layout;
mod origin;
mod rate;
mod reference;
mod role;
mod rule;
mod schema;
mod show;
#[cfg(test)]
mod tests;
mod yaml_tree;

pub use choice::{
    AuditSync, CommandApproval, Isolation, PackageInstall, Profile, SearchEngine, Tier, ViolationAction,
};
pub use effective::{
    ApprovalConfig, AuditExportSettings, AuditWitnessSettings, EffectiveConfig, LimitSettings,
    NetworkSettings, SandboxSettings, SecretSettings, TerminateSettings, ToolSettings, ViolationSettings,
};
pub use error::{ConfigError, ConfigNote};
pub use file::{FileConfig, SettingValue, parse, parse_bytes};
pub use layers::combine;
pub use migrate::migrate;
pub use origin::{ConfigSource, Located, ValueOrigin};
pub use rate::CallRates;
pub use reference::reference;
pub use role::{LayerRoles, RoleSettings};
pub use rule::{RuleCase, RuleSettings};
pub use schema::schema;
pub use show::ShownValue;

pub use crate::effect::EffectKind;
pub use crate::rule::RuleDecision;
