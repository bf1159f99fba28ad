//! The context of calls in one project: settings, policy, workspace, store and broker, opened for one caller. If anything
//! cannot be opened or read, that is a failure and no call runs.
#![expect(
    clippy::disallowed_methods,
    reason = "reads the files of the organisation and the user by their path"
)]

mod deny_all;
mod web_tools;

pub(crate) use web_tools::tls_trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vambrace_broker::{
    ApprovalSettings, ApproverAvailability, Broker, BrokerParts, RateLimits, RequestedCall, ViolationLimits,
};
use vambrace_core::config::{self, ConfigError, EffectiveConfig, Isolation, Profile, ViolationAction};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::id::Id;
use vambrace_core::policy::Policy;
use vambrace_core::policy::compile::{BadPolicy, glob_roots};
use vambrace_core::principal::{Peer, Principal};
use vambrace_core::redacted::{Redact, Redacted};
use vambrace_core::session::SessionState;
use vambrace_core::skill::Skill;
use vambrace_core::tool::ToolDescriptor;
use vambrace_core::verdict::{LayerKind, SourceLocation};
use vambrace_redact::Redactor;
use vambrace_sandbox::{JournaledWriteBack, StateDirs};
use vambrace_store::{RedactedText, SqliteStore, StateDir, Store as _, StoreOptions};
use vambrace_tools::{Catalogue, ChangeContext, ToolContext, ToolLimits};
use vambrace_workspace::{Applier, EditLimits, ScopeRules, Workspace};

use crate::args::CallerOptions;
use crate::config_files;
use crate::failure::{Failure, exit};
use crate::paths;
use crate::project_files::ProjectFiles;
use crate::secrets::SecretStore;
use crate::system::{self, SystemChance, SystemClock};
use crate::witness_client;

/// Time limit of a search.
const SEARCH_DEADLINE: Duration = Duration::from_secs(30);

/// Whether the project's own files are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProjectTrust {
    /// The project has no files.
    NoFiles,
    /// Trusted, and not changed since.
    Trusted,
    /// Never trusted.
    Untrusted,
    /// Changed since they were trusted.
    Changed,
}

/// The configuration of one project.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) project: PathBuf,
    pub(crate) files: ProjectFiles,
    pub(crate) trust: ProjectTrust,
    pub(crate) effective: EffectiveConfig,
}

/// An opened project: everything that the calls of one caller need.
pub(crate) struct ProjectContext {
    pub(crate) broker: Broker,
    pub(crate) peer: Peer,
    project: PathBuf,
    store: Arc<SqliteStore>,
    revision: Digest,
    damage: Option<String>,
    secrets: Arc<SecretStore>,
    trusted_clients: Vec<String>,
}

/// Opens the store.
pub(crate) fn open_store() -> Result<Arc<SqliteStore>, Failure> {
    open_with(StoreOptions::new(Arc::new(SystemClock)))
}

/// Opens a ledger that was rolled back or rewritten; the store records this.
pub(crate) fn acknowledge_rollback() -> Result<(), Failure> {
    open_with(StoreOptions { acknowledge_rollback: true, ..StoreOptions::new(Arc::new(SystemClock)) })
        .map(drop)
}

fn open_with(options: StoreOptions) -> Result<Arc<SqliteStore>, Failure> {
    let options =
        StoreOptions { anchors: paths::anchors(), witness: witness_client::configured()?, ..options };
    Ok(Arc::new(SqliteStore::open(StateDir::open(paths::state()?)?, &options)?))
}

/// The key of a project in the trust table.
pub(crate) fn project_key(project: &Path) -> Digest {
    Digest::of(project.as_os_str().as_encoded_bytes())
}

impl Settings {
    /// Reads the three files and combines them.
    pub(crate) async fn load(project: &Path, store: &SqliteStore) -> Result<Self, Failure> {
        let files = ProjectFiles::open(project)?;
        let (trust, _) = config_files::trust_state(project, &files, store).await?;
        let effective = config_files::combine(&config_files::find(&files, trust == ProjectTrust::Trusted)?)
            .map_err(|errors| bad_configuration(&errors))?;
        Ok(Self { project: project.to_owned(), files, trust, effective })
    }

    /// The policy for a caller, or all its errors.
    pub(crate) fn policy(
        &self,
        caller: &CallerOptions,
        tools: &[Arc<ToolDescriptor>],
    ) -> Result<Policy, Failure> {
        let skill = caller.skill.as_deref().map(|name| self.skill(name)).transpose()?;
        let mut policy = Policy::compile(&self.effective, caller.role.as_deref(), skill, tools)
            .map_err(|faults| bad_policy(&faults))?;
        if policy.role.is_err() && caller.role.is_none() {
            let why = match self.trust {
                ProjectTrust::Untrusted => {
                    "the project's configuration is not trusted, so no role is active; review it, then run `vambrace trust`"
                }
                ProjectTrust::Changed => {
                    "the project's configuration has changed since it was trusted, so no role is active; review it, then run `vambrace trust`"
                }
                ProjectTrust::NoFiles | ProjectTrust::Trusted => return Ok(policy),
            };
            policy.role = Err(why.to_owned());
        }
        Ok(policy)
    }

    fn skill(&self, name: &str) -> Result<Skill, Failure> {
        let at = SourceLocation { file: format!(".vambrace/skills/{name}/manifest.json"), line: 0 };
        let manifest = self.files.manifest(name)?.ok_or_else(|| {
            let hint = "a skill is a directory with a manifest.json in `.vambrace/skills`";
            Failure::denied(ErrorCode::PermissionDenied, format!("there is no skill `{name}`"), hint)
        })?;
        let ground = glob_roots(&self.effective, Some(LayerKind::Project));
        Skill::from_manifest(name, at, &manifest, &ground)
            .map_err(|bad| Failure::denied(ErrorCode::PermissionDenied, bad.to_string(), "fix the manifest"))
    }

    /// The project's files, with the access rules for tools.
    pub(crate) fn workspace(&self) -> Result<Workspace, Failure> {
        let settings = &self.effective;
        let block = settings.block_list().map_err(|bad| Failure::failed(bad.to_string()))?;
        let rules = ScopeRules {
            service_root: settings.service_root.clone(),
            isolation: match settings.isolation {
                Isolation::Strict => vambrace_workspace::Isolation::Strict,
                Isolation::Shared => vambrace_workspace::Isolation::Shared,
            },
            shared_paths: settings.shared_paths.clone(),
            block,
        };
        Workspace::open(&self.project, rules).map_err(|error| {
            Failure::denied(ErrorCode::ScopeViolation, error.to_string(), "run `vambrace doctor`")
        })
    }
}

impl ProjectContext {
    /// Opens a project for a caller.
    pub(crate) async fn open(
        caller: &CallerOptions,
        agent: &str,
        door: &'static str,
    ) -> Result<Self, Failure> {
        let project = paths::project(caller.workspace.as_deref())?;
        let store = open_store()?;
        let principal = Principal {
            tenant: "default".to_owned(),
            user: system::user(),
            agent: agent.to_owned(),
            sub_agent: None,
            skill: caller.skill.clone(),
        };
        let peer = Peer { principal, session: session(caller, &project, door)?, entry_point: door };
        let context = Self::assemble(caller, project, store, peer, door == "cli").await?;
        context.broker.recover().await.map_err(Failure::of)?;
        Ok(context)
    }

    /// The context of a call that waits for a decision: its project, role, skill and session, with the current
    /// configuration.
    pub(crate) async fn for_request(call: &RequestedCall, store: Arc<SqliteStore>) -> Result<Self, Failure> {
        let project = PathBuf::from(&call.project);
        let caller = CallerOptions {
            workspace: Some(project.clone()),
            role: call.role.clone(),
            skill: call.peer.principal.skill.clone(),
            session: Some(call.peer.session.to_string()),
        };
        let context = Self::assemble(&caller, project, store, call.peer.clone(), false).await?;
        context.broker.recover().await.map_err(Failure::of)?;
        Ok(context)
    }

    /// The context of a project for commands of the user.
    pub(crate) async fn for_project(
        caller: &CallerOptions,
        store: Arc<SqliteStore>,
    ) -> Result<Self, Failure> {
        let project = paths::project(caller.workspace.as_deref())?;
        let principal = Principal {
            tenant: "default".to_owned(),
            user: system::user(),
            agent: "command-line".to_owned(),
            sub_agent: None,
            skill: None,
        };
        let peer = Peer { principal, session: session(caller, &project, "cli")?, entry_point: "cli" };
        let context = Self::assemble(caller, project, store, peer, false).await?;
        context.broker.recover().await.map_err(Failure::of)?;
        Ok(context)
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<SqliteStore> {
        &self.store
    }

    /// Whether decisions through this MCP client count. Only the user's own configuration can say so.
    pub(crate) fn trusts_client(&self, name: &str) -> bool {
        self.trusted_clients.iter().any(|trusted| trusted == name)
    }

    /// The same context with the current configuration.
    pub(crate) async fn reload(&self, caller: &CallerOptions) -> Result<Self, Failure> {
        Self::assemble(caller, self.project.clone(), Arc::clone(&self.store), self.peer.clone(), false).await
    }

    async fn assemble(
        caller: &CallerOptions,
        project: PathBuf,
        store: Arc<SqliteStore>,
        peer: Peer,
        one_call: bool,
    ) -> Result<Self, Failure> {
        // Completes or undoes the write-back of a sandbox run that was killed.
        JournaledWriteBack::recover(&StateDirs::below(&paths::state()?));
        let revision = revision(&project, &store).await?;
        let catalogue = catalogue()?;
        let facts = facts(&catalogue);
        let loaded = match load(caller, &project, &store, &facts).await {
            Err(failure) if failure.exit == exit::BAD_USAGE => return Err(failure),
            // With an invalid configuration every call is denied and recorded, with the reason.
            Err(failure) => LoadedConfig::damaged(&project, &failure)?,
            Ok(loaded) => loaded,
        };
        let LoadedConfig { settings, policy, workspace } = loaded;
        let damage = policy.damage.clone();
        let secrets = Arc::new(SecretStore::open(&settings.secrets)?);
        let redactor: Arc<dyn Redact> = Arc::new(secrets.redactor().clone());
        let trusted_clients = settings.approvals.trusted_clients.clone();
        let parts = BrokerParts {
            approvals: approval_settings(&settings),
            requested_role: caller.role.clone(),
            role: policy.role.as_ref().map_or_else(|_| "none".to_owned(), |role| role.name().to_string()),
            policy: Arc::new(policy),
            tool_context: ToolContext {
                changes: changes(&workspace, &settings, Arc::clone(&redactor), &store, one_call)?,
                workspace: Arc::new(workspace),
                limits: limits(&settings),
                web: web_tools::web(&settings, &secrets)?,
            },
            store: store.clone(),
            redactor,
            clock: Arc::new(SystemClock),
            chance: Arc::new(SystemChance),
            project: project.display().to_string(),
            sync: settings.audit_sync,
            violations: violations(&settings),
            rate_limits: rate_limits(&settings, &facts),
            catalogue,
        };
        let broker = Broker::new(parts);
        Ok(Self { broker, peer, project, store, revision, damage, secrets, trusted_clients })
    }

    /// Whether the configuration or its trust has changed.
    pub(crate) async fn is_outdated(&self) -> bool {
        // If a secret cannot be read any more, the redactor keeps the known values.
        let _ = self.secrets.reload();
        revision(&self.project, &self.store).await.ok() != Some(self.revision)
    }

    /// Fails if the configuration is invalid.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match &self.damage {
            Some(why) => Err(Failure::denied(ErrorCode::PermissionDenied, why.clone(), DAMAGED_HINT)),
            None => Ok(()),
        }
    }
}

const DAMAGED_HINT: &str =
    "no call runs with an invalid policy: fix the errors; `vambrace policy check` lists them";

/// A loaded configuration.
struct LoadedConfig {
    settings: EffectiveConfig,
    policy: Policy,
    workspace: Workspace,
}

async fn load(
    caller: &CallerOptions,
    project: &Path,
    store: &SqliteStore,
    facts: &[Arc<ToolDescriptor>],
) -> Result<LoadedConfig, Failure> {
    let settings = Settings::load(project, store).await?;
    let policy = settings.policy(caller, facts)?;
    let workspace = settings.workspace()?;
    Ok(LoadedConfig { settings: settings.effective, policy, workspace })
}

impl LoadedConfig {
    fn damaged(project: &Path, failure: &Failure) -> Result<Self, Failure> {
        let fault = |why: String| Failure::failed(why);
        let policy = Policy::damaged(&failure.error.message).map_err(|bad| fault(bad.to_string()))?;
        let workspace = Workspace::open(project, ScopeRules::new("", policy.block.clone()))
            .map_err(|error| fault(error.to_string()))?;
        Ok(Self { settings: config::combine(None, None, None), policy, workspace })
    }
}

/// One digest of everything the configuration depends on: the bytes of every file and the trusted digest.
async fn revision(project: &Path, store: &SqliteStore) -> Result<Digest, Failure> {
    let own = match ProjectFiles::open(project) {
        Ok(files) => files.digest().map(|digest| digest.to_string()),
        Err(failure) => Some(failure.error.message),
    };
    let above = config_files::paths_above()
        .into_iter()
        .flat_map(|(_, path, _)| [path.display().to_string().into_bytes(), bytes(&path)]);
    let trusted = store.trust(project_key(project)).await?.map(|row| row.digest.to_string());
    let mut parts: Vec<Vec<u8>> = above.collect();
    parts.extend([own, trusted].map(|text| text.unwrap_or_default().into_bytes()));
    Ok(Digest::of_parts(parts.iter().map(Vec::as_slice)))
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| error.to_string().into_bytes())
}

/// The built-in tools.
pub(crate) fn catalogue() -> Result<Arc<Catalogue>, Failure> {
    Catalogue::built_in().map(Arc::new).map_err(|error| Failure::failed(error.message))
}

/// The facts about the tools that policy needs.
pub(crate) fn facts(catalogue: &Catalogue) -> Vec<Arc<ToolDescriptor>> {
    catalogue.tools().map(|tool| Arc::clone(tool.descriptor())).collect()
}

fn session(caller: &CallerOptions, project: &Path, door: &'static str) -> Result<Id, Failure> {
    if let Some(id) = &caller.session {
        return Id::new(id).map_err(|bad| {
            Failure::usage(format!("session `{id}` is {bad}"), "use letters, digits, `-`, `_`")
        });
    }
    if door == "mcp" {
        let mut random = [0; 10];
        let chance = vambrace_core::clock::RandomSource::random_u128(&SystemChance).to_be_bytes();
        random.iter_mut().zip(chance).for_each(|(to, from)| *to = from);
        let now = vambrace_core::clock::Clock::now(&SystemClock).millis().unsigned_abs();
        return Ok(Id::time_ordered("mcp-", now, random));
    }
    let key = Digest::of_parts([system::user().as_bytes(), project.as_os_str().as_encoded_bytes()]);
    let hex: String = key.hex().iter().take(12).map(|digit| char::from(*digit)).collect();
    Id::new(&format!("{door}-{hex}")).map_err(|bad| Failure::failed(bad.to_string()))
}

fn approval_settings(settings: &EffectiveConfig) -> ApprovalSettings {
    let ms = |seconds: u64| i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
    let approvals = &settings.approvals;
    ApprovalSettings {
        medium_ms: ms(approvals.medium_sec),
        high_ms: ms(approvals.high_sec),
        proposal_ms: ms(approvals.proposal_ttl_sec),
        grant_ms: ms(approvals.grant_sec),
        flood_limit: u32::try_from(approvals.flood_limit).unwrap_or(u32::MAX),
        approver: if settings.profile == Profile::Ci {
            ApproverAvailability::Unavailable
        } else {
            ApproverAvailability::Available
        },
    }
}

/// Locks and journals are in the state directory; all processes share them.
fn changes(
    workspace: &Workspace,
    settings: &EffectiveConfig,
    redactor: Arc<dyn Redact>,
    store: &SqliteStore,
    one_call: bool,
) -> Result<ChangeContext, Failure> {
    let fault = |error: std::io::Error| Failure::failed(format!("state directory: {error}"));
    let state = std::fs::File::open(store.dir().path()).map_err(fault)?;
    let dir = |name: &str| vambrace_workspace::open_state_dir(&state, name).map_err(fault);
    let limits = EditLimits {
        write_bytes: settings.limits.write_bytes,
        regex_budget: Duration::from_millis(settings.limits.regex_ms),
        ..EditLimits::default()
    };
    let applier = Applier::new(workspace.clone(), dir("locks")?, dir("journals")?);
    // A process that runs a single call may be killed by another one that waits too long for its file lock; a server or
    // `approvals watch` may not.
    let applier = if one_call { applier.as_worker() } else { applier };
    Ok(ChangeContext { applier: Some(applier), redactor, limits })
}

fn limits(settings: &EffectiveConfig) -> ToolLimits {
    let caps = &settings.limits;
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    ToolLimits {
        read_bytes: caps.read_bytes,
        read_bytes_hard: caps.read_bytes_hard,
        list_entries: count(caps.list_entries),
        output_bytes: count(caps.output_bytes),
        regex: Duration::from_millis(caps.regex_ms),
        search: SEARCH_DEADLINE,
    }
}

fn violations(settings: &EffectiveConfig) -> ViolationLimits {
    let rules = &settings.violations;
    ViolationLimits {
        limit: rules.limit,
        window_ms: i64::try_from(rules.window_sec.saturating_mul(1000)).unwrap_or(i64::MAX),
        action: match rules.action {
            ViolationAction::Alert => SessionState::Alert,
            ViolationAction::Suspend => SessionState::Suspended,
            ViolationAction::End => SessionState::Ended,
        },
    }
}

fn rate_limits(settings: &EffectiveConfig, tools: &[Arc<ToolDescriptor>]) -> RateLimits {
    let mut limits = BTreeMap::new();
    for tool in tools {
        let group = format!("group:{}", tool.group.as_str());
        let names: Vec<&str> =
            [tool.name.as_str(), &group].into_iter().chain(tool.aliases.iter().copied()).collect();
        if let Some(rate) = settings.calls_per_minute(&names) {
            limits.insert(tool.name.to_string(), u32::try_from(rate.value).unwrap_or(u32::MAX));
        }
    }
    RateLimits { default: None, tools: limits }
}

/// Redacts text for a record: nothing is written that the redactor has not seen.
pub(crate) fn redact_text(text: &str) -> Result<RedactedText, Failure> {
    Redacted::text(text, &redactor()?).map_err(|error| Failure::failed(error.to_string()))
}

/// The redactor without a configuration: the built-in rules and the secrets of this environment.
pub(crate) fn redactor() -> Result<Redactor, Failure> {
    Ok(SecretStore::open(&config::combine(None, None, None).secrets)?.redactor().clone())
}

fn bad_configuration(errors: &[ConfigError]) -> Failure {
    let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let message = format!("invalid configuration:\n{}", list.join("\n"));
    Failure::denied(ErrorCode::PermissionDenied, message, DAMAGED_HINT)
}

fn bad_policy(faults: &[BadPolicy]) -> Failure {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let message = format!("invalid policy:\n{}", list.join("\n"));
    Failure::denied(
        ErrorCode::PermissionDenied,
        message,
        "fix the rules; `vambrace policy test` runs their test cases",
    )
}
