//! The context of calls in one project: settings, policy, workspace, store and broker, opened for one user, role and skill. If
//! anything cannot be opened or read, that is an error and no call runs.

mod broker_parts;
mod deny_all;
mod web_tools;

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use vambrace_broker::{Broker, PolicySource};
use vambrace_core::config::{self, EffectiveConfig, FileConfig};
use vambrace_core::digest::Digest;
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;
use vambrace_core::tool::ToolDescriptor;
use vambrace_tools::Catalogue;
use vambrace_workspace::{ScopeRules, Workspace};

pub(crate) use self::broker_parts::broker_parts;
use crate::caller::ProjectKey;
use crate::catalogue::configured_catalogue;
use crate::config_files::{bytes_or_error, paths_above};
use crate::error::{HostError, HostErrorKind};
use crate::host::{Host, recover_write_backs};
use crate::project_files::ProjectFiles;
use crate::secret_store::SecretStore;
use crate::settings::{DAMAGED_HINT, Settings};
use crate::trust::trust_key;

/// An opened project: everything that calls with one key need.
#[derive(Debug)]
pub struct ProjectContext {
    host: Arc<Host>,
    key: ProjectKey,
    broker: Arc<Broker>,
    settings: EffectiveConfig,
    secrets: Arc<SecretStore>,
    /// Digest of everything that the configuration depends on.
    revision: Digest,
    /// Why every call is denied.
    damage: Option<String>,
}

/// What a context is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextUse {
    /// A process that runs a single call and ends. Another process that waits too long for its file lock may kill it.
    OneCall,
    /// A process that does more: a server, or a command of the user.
    Shared,
}

impl ProjectContext {
    /// Opens a project, and completes what a killed process left behind.
    pub async fn open(host: &Arc<Host>, key: &ProjectKey, usage: ContextUse) -> Result<Self, HostError> {
        let context = Self::assemble(host, key, usage).await?;
        context.broker.recover().await.map_err(HostError::of)?;
        Ok(context)
    }

    /// The broker.
    #[must_use]
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Whether decisions through this MCP client count. Only the user's own configuration can say so.
    #[must_use]
    pub fn trusts_client(&self, name: &str) -> bool {
        self.settings.approvals.trusted_clients.iter().any(|trusted| trusted == name)
    }

    /// Fails if the configuration is invalid.
    pub fn check(&self) -> Result<(), HostError> {
        match &self.damage {
            Some(why) => Err(HostError::denied(ErrorCode::PermissionDenied, why.clone(), DAMAGED_HINT)),
            None => Ok(()),
        }
    }

    /// Whether the configuration or its trust has changed.
    pub(crate) async fn is_outdated(&self) -> bool {
        // If a secret cannot be read any more, the redactor keeps the known values.
        let _ = self.secrets.reload();
        revision(&self.host, &self.key.project).await.ok() != Some(self.revision)
    }

    /// The same context with the current configuration. If it cannot be loaded, one that denies every call with the reason.
    pub(crate) async fn reload(&self) -> Result<Self, HostError> {
        match Self::assemble(&self.host, &self.key, ContextUse::Shared).await {
            Err(error) => self.closed(&error),
            reloaded => reloaded,
        }
    }

    async fn assemble(host: &Arc<Host>, key: &ProjectKey, usage: ContextUse) -> Result<Self, HostError> {
        let revision = revision(host, &key.project).await?;
        let loaded = match load(host, key, &Catalogue::built_in_descriptors()).await {
            Err(error) if error.kind == HostErrorKind::Usage => return Err(error),
            // With an invalid configuration every call is denied and recorded, with the reason.
            Err(error) => LoadedConfig::damaged(&key.project, &error)?,
            Ok(loaded) => loaded,
        };
        let damage = loaded.policy.damage.clone();
        let settings = loaded.settings.clone();
        let catalogue = configured_catalogue(&settings)?;
        let secrets = Arc::new(SecretStore::open(host.paths(), &settings.secrets)?);
        let mut parts = broker_parts(host, key, catalogue, loaded, &secrets, usage)?;
        let source = ConfigRevision { host: Arc::clone(host), project: key.project.clone(), revision };
        parts.policy_source = Some(Arc::new(source));
        recover_write_backs(host.paths(), parts.tool_context.changes.applier.as_ref());
        let broker = Broker::new(parts);
        Ok(Self { host: Arc::clone(host), key: key.clone(), broker, settings, secrets, revision, damage })
    }
}

/// A loaded configuration.
pub(crate) struct LoadedConfig {
    pub(crate) settings: EffectiveConfig,
    pub(crate) layers: Vec<FileConfig>,
    pub(crate) policy: Policy,
    pub(crate) workspace: Workspace,
}

async fn load(
    host: &Host,
    key: &ProjectKey,
    tools: &[Arc<ToolDescriptor>],
) -> Result<LoadedConfig, HostError> {
    let settings = Settings::load(host, &key.project).await?;
    let policy = settings.policy(key.role.as_deref(), key.skill.as_deref(), tools)?;
    let workspace = settings.workspace()?;
    Ok(LoadedConfig { settings: settings.effective, layers: settings.layers, policy, workspace })
}

impl LoadedConfig {
    /// A configuration that denies every call because of an error.
    pub(crate) fn damaged(project: &Path, error: &HostError) -> Result<Self, HostError> {
        let fault = |why: String| HostError::failed(why);
        let policy = Policy::damaged(&error.error.message).map_err(|bad| fault(bad.to_string()))?;
        let workspace = Workspace::open(project, ScopeRules::new("", policy.block.clone()))
            .map_err(|error| fault(error.to_string()))?;
        Ok(Self { settings: config::combine(None, None, None), layers: Vec::new(), policy, workspace })
    }
}

/// The revision of the configuration that a policy was compiled from.
struct ConfigRevision {
    host: Arc<Host>,
    project: PathBuf,
    revision: Digest,
}

impl PolicySource for ConfigRevision {
    fn is_current(&self) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(async { revision(&self.host, &self.project).await.ok() == Some(self.revision) })
    }
}

/// One digest of everything the configuration depends on: the bytes of every file and the trusted digest.
async fn revision(host: &Host, project: &Path) -> Result<Digest, HostError> {
    let own = match ProjectFiles::open(project) {
        Ok(files) => files.digest().map(|digest| digest.to_string()),
        Err(error) => Some(error.error.message),
    };
    let above = paths_above(host.paths())
        .into_iter()
        .flat_map(|(_, path, _)| [path.display().to_string().into_bytes(), bytes_or_error(&path)]);
    let trusted = host.store().trust(trust_key(project)).await?.map(|row| row.digest.to_string());
    let mut parts: Vec<Vec<u8>> = above.collect();
    parts.extend([own, trusted].map(|text| text.unwrap_or_default().into_bytes()));
    Ok(Digest::of_parts(parts.iter().map(Vec::as_slice)))
}
