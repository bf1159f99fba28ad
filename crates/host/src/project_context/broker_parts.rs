//! What a broker is built from, out of the configuration: limits, deadlines, rate limits, the tool context.
#![expect(clippy::disallowed_methods, reason = "opens the state directory for locks and journals")]

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use vambrace_broker::{ApprovalSettings, ApproverAvailability, BrokerParts, RateLimits, ViolationLimits};
use vambrace_commands::CommandTable;
use vambrace_core::config::{EffectiveConfig, FileConfig, Profile, SettingValue, ViolationAction};
use vambrace_core::redacted::Redact;
use vambrace_core::session::SessionState;
use vambrace_core::tool::ToolDescriptor;
use vambrace_egress::TrustedRoots;
use vambrace_exec::{Inherited, RunSettings, SecretSource};
use vambrace_tools::{
    CallContext, Catalogue, ChangeContext, CommandLimits, ProgramContext, ToolContext, ToolLimits,
    ToolchainCommands,
};
use vambrace_workspace::{Applier, EditLimits, Workspace};

use super::{ContextUse, LoadedConfig, web_tools};
use crate::caller::ProjectKey;
use crate::catalogue::descriptors;
use crate::error::HostError;
use crate::host::Host;
use crate::secret_store::SecretStore;
use crate::system::{SystemClock, SystemRandom};

/// Time limit of a search.
const SEARCH_DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn broker_parts(
    host: &Host,
    key: &ProjectKey,
    catalogue: Arc<Catalogue>,
    loaded: LoadedConfig,
    secrets: &Arc<SecretStore>,
    usage: ContextUse,
) -> Result<BrokerParts, HostError> {
    let LoadedConfig { settings, layers, policy, workspace } = loaded;
    let redactor: Arc<dyn Redact> = Arc::new(secrets.redactor().clone());
    let trusted_roots = web_tools::tls_trust(&settings)?;
    Ok(BrokerParts {
        approvals: approval_settings(&settings),
        requested_role: key.role.clone(),
        role: policy.role.as_ref().map_or_else(|_| "none".to_owned(), |role| role.name().to_string()),
        policy: Arc::new(policy),
        tool_context: ToolContext {
            changes: changes(host, &workspace, &settings, Arc::clone(&redactor), usage)?,
            limits: limits(&settings),
            web: web_tools::web(&settings, secrets, Arc::clone(&trusted_roots))?,
            programs: programs(host, &settings, &layers, trusted_roots, secrets, &workspace),
            call: CallContext::default(),
            workspace: Arc::new(workspace),
        },
        store: Arc::clone(host.store()),
        redactor,
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemRandom),
        project: key.project.display().to_string(),
        sync: settings.audit_sync,
        violations: violations(&settings),
        rate_limits: rate_limits(&settings, &descriptors(&catalogue)),
        policy_source: None,
        catalogue,
    })
}

/// What tools need to run programs; `None` outside an async runtime, where the egress gate cannot run.
fn programs(
    host: &Host,
    settings: &EffectiveConfig,
    layers: &[FileConfig],
    trusted_roots: Arc<TrustedRoots>,
    secrets: &Arc<SecretStore>,
    workspace: &Workspace,
) -> Option<Arc<ProgramContext>> {
    let layers: Vec<&FileConfig> = layers.iter().collect();
    Some(Arc::new(ProgramContext {
        sandbox: Arc::clone(host.sandbox()),
        settings: RunSettings::of(settings, &layers, trusted_roots),
        inherited: Inherited::of_this_process(),
        secrets: Arc::clone(secrets) as Arc<dyn SecretSource>,
        redactor: secrets.redactor().clone(),
        runtime: Handle::try_current().ok()?,
        commands: command_table(settings, &layers, workspace),
        limits: CommandLimits {
            time: Duration::from_secs(settings.limits.command_sec.min(settings.limits.command_sec_hard)),
            max_time: Duration::from_secs(settings.limits.command_sec_hard),
            output_bytes: usize::try_from(settings.limits.output_bytes).unwrap_or(usize::MAX),
            approval: settings.approvals.commands,
        },
        toolchain: ToolchainCommands { test: settings.tools.test.clone(), lint: settings.tools.lint.clone() },
    }))
}

/// The commands that agents may run. A forbidden program that the user or the organisation list is asked about each time.
fn command_table(settings: &EffectiveConfig, layers: &[&FileConfig], workspace: &Workspace) -> CommandTable {
    let above = layers.iter().filter(|file| !file.source.is_project());
    let lifted =
        above.filter_map(|file| file.get("tools.whitelisted_binaries")).flat_map(|own| match &own.value {
            SettingValue::List(items) => items.iter().map(|item| item.value.clone()).collect(),
            _ => Vec::new(),
        });
    CommandTable::built_in()
        .with_listed(settings.tools.whitelisted_binaries.iter().cloned())
        .with_lifted(lifted)
        .in_workspace(workspace.directory().to_string_lossy())
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

/// Applies changes to a workspace. Locks and journals are in the state directory; all processes share them.
fn open_applier(state: &Path, workspace: &Workspace) -> Result<Applier, HostError> {
    let error = |error: std::io::Error| HostError::failed(format!("state directory: {error}"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(error)?;
    let state = std::fs::File::open(state).map_err(error)?;
    let dir = |name: &str| vambrace_workspace::open_state_dir(&state, name).map_err(error);
    Ok(Applier::new(workspace.clone(), dir("locks")?, dir("journals")?))
}

fn changes(
    host: &Host,
    workspace: &Workspace,
    settings: &EffectiveConfig,
    redactor: Arc<dyn Redact>,
    usage: ContextUse,
) -> Result<ChangeContext, HostError> {
    let limits = EditLimits {
        write_bytes: settings.limits.write_bytes,
        regex_budget: Duration::from_millis(settings.limits.regex_ms),
        ..EditLimits::default()
    };
    let applier = open_applier(host.state_dir().path(), workspace)?;
    let applier = match usage {
        ContextUse::OneCall => applier.as_worker(),
        ContextUse::Shared => applier,
    };
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
        let aliases = tool.aliases.iter().map(String::as_str);
        let names: Vec<&str> = [tool.name.as_str(), &group].into_iter().chain(aliases).collect();
        if let Some(rate) = settings.calls_per_minute(&names) {
            limits.insert(tool.name.to_string(), u32::try_from(rate.value).unwrap_or(u32::MAX));
        }
    }
    RateLimits { default: None, tools: limits }
}
