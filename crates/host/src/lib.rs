//! Assembles brokers: project loading, settings, trust, secrets, the state directory, the approver key. Every entry point
//! (command line, MCP, later HTTP) opens a [`Host`], says who calls ([`Caller`]), and gets a [`ProjectContext`] with its
//! broker; a server uses [`Projects`] for many projects and users.
//!
//! Not here: arguments, output, prompts, exit codes and wire formats, which belong to the entry points. No decisions, which
//! belong to the broker.

mod administration;
mod approver;
mod caller;
mod catalogue;
mod config_files;
mod confirmation;
pub mod doctor;
mod error;
mod export;
mod host;
mod paths;
mod policy_check;
mod project_context;
mod project_files;
mod projects;
mod reader;
mod requests;
mod secret_store;
mod settings;
mod setup;
pub mod system;
mod trust;
mod trust_preview;
mod user_run;
mod witness_client;

pub use administration::{NewToken, change_session, create_token, revoke_grant, revoke_token};
pub use approver::{
    NewPassphrase, PassphraseSource, administrator, approver, approver_from_environment, approver_of_client,
    approver_with_passphrase, change_passphrase, has_approver_key, sign_trust,
};
pub use caller::{Caller, CallerOptions, ProjectKey};
pub use catalogue::built_in_catalogue;
pub use config_files::{ConfigFile, ConfigFiles, config_warnings};
pub use confirmation::{confirmation_name, short_digest};
pub use error::{HostError, HostErrorKind};
pub use export::{ExportCursor, ExportFile, RecordBatch, export_records};
pub use host::{Host, acknowledge_rollback, ledger_reader, no_ledger};
pub use paths::{Paths, organisation_config};
pub use policy_check::{PolicyProblem, PolicyReport, RuleTests, check_policy, test_rules};
pub use project_context::{ContextUse, ProjectContext};
pub use project_files::{CONFIG, OLDER_CONFIG, ProjectFiles};
pub use projects::{CHECK_INTERVAL, ProjectHandle, Projects};
pub use reader::Reader;
pub use requests::{approval_requests, read_request, request_context};
pub use secret_store::{SecretStore, invalid_rule};
pub use settings::Settings;
pub use setup::{McpClient, ProjectSetup, SetupMode, mcp_clients, set_up_project, shell_quoted};
pub use trust::{ProjectTrust, revoke_trust, trust_key, trust_project};
pub use trust_preview::{TrustGatedSetting, TrustPreview};
pub use user_run::UserRunContext;
pub use witness_client::configured_witness;
