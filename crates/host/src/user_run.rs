//! The broker of one `vambrace sandbox run`: a call of the local user. The block list, the rules and the limits of the
//! configuration hold; no role and no command table applies, because the user typed the command.

use std::path::Path;
use std::sync::Arc;

use vambrace_broker::{ApproverAvailability, Broker, CallContext, CallResult, DecisionWait, RawCall};
use vambrace_core::policy::Policy;
use vambrace_exec::{NetworkRequest, RunSettings};
use vambrace_redact::Redactor;
use vambrace_tools::{Catalogue, USER_RUN_TOOL, UserRun, UserRunJob};

use crate::caller::Caller;
use crate::config_files::listed;
use crate::error::{HostError, HostErrorKind};
use crate::host::{Host, recover_write_backs};
use crate::paths::Paths;
use crate::project_context::{ContextUse, LoadedConfig, broker_parts};
use crate::secret_store::SecretStore;
use crate::settings::{DAMAGED_HINT, Settings};

/// Everything that one run of the user needs.
#[derive(Debug)]
pub struct UserRunContext {
    host: Arc<Host>,
    caller: Caller,
    broker: Arc<Broker>,
    secrets: Arc<SecretStore>,
    job: Arc<UserRunJob>,
}

impl UserRunContext {
    /// The project directory of a run: the given one, the nearest parent that is set up, or the current directory.
    pub fn workspace(paths: &Paths, named: Option<&Path>) -> Result<std::path::PathBuf, HostError> {
        paths.project(named)
    }

    /// Opens the project of a run, which need not be set up. `approver` says whether somebody can answer at a terminal.
    pub async fn open(
        paths: Paths,
        job: UserRunJob,
        approver: ApproverAvailability,
    ) -> Result<Self, HostError> {
        let caller = Caller::of_user(&paths, Some(&job.request.workspace))?;
        let host = Host::open(paths)?;
        let loaded = match load(&host, &caller, &job).await {
            Err(error) if error.kind == HostErrorKind::Usage => return Err(error),
            // The run is denied and recorded, with the reason.
            Err(error) => LoadedConfig::damaged(&caller.key.project, &error)?,
            Ok(loaded) => loaded,
        };
        let secrets = Arc::new(SecretStore::open(host.paths(), &loaded.settings.secrets)?);
        let job = Arc::new(job);
        let catalogue = Catalogue::new(vec![Arc::new(UserRun::new(Arc::clone(&job)))]);
        let catalogue = Arc::new(catalogue.map_err(HostError::of)?);
        let mut parts = broker_parts(&host, &caller.key, catalogue, loaded, &secrets, ContextUse::Shared)?;
        // Under `profile: ci` nobody is asked, at a terminal either.
        if parts.approvals.approver == ApproverAvailability::Available {
            parts.approvals.approver = approver;
        }
        recover_write_backs(host.paths(), parts.tool_context.changes.applier.as_ref());
        Ok(Self { host, caller, broker: Broker::new(parts), secrets, job })
    }

    /// The run.
    #[must_use]
    pub fn job(&self) -> &UserRunJob {
        &self.job
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// The broker, for the decision about an approval request of the run.
    #[must_use]
    pub fn broker(&self) -> &Arc<Broker> {
        &self.broker
    }

    /// Redacts what is printed about the run.
    #[must_use]
    pub fn redactor(&self) -> &Redactor {
        self.secrets.redactor()
    }

    /// Runs the program through the pipeline. How it ended is in the job's result.
    pub async fn call(&self, context: CallContext) -> CallResult {
        let raw = RawCall {
            tool: USER_RUN_TOOL.to_owned(),
            args: UserRun::arguments(&self.job.request),
            tool_call_id: None,
            context_id: None,
        };
        self.broker.call_and_wait(raw, &self.caller.peer, DecisionWait::default(), context).await
    }
}

async fn load(host: &Host, caller: &Caller, job: &UserRunJob) -> Result<LoadedConfig, HostError> {
    let settings = Settings::load(host, &caller.key.project).await?;
    let network: &NetworkRequest = &job.request.network;
    let layers: Vec<_> = settings.layers.iter().collect();
    let hosts = RunSettings::of(&settings.effective, &layers, Arc::default()).hosts;
    let hosts = hosts.fence_of_user(network).map_err(|error| HostError::of(error.into()))?;
    let mut tools = Catalogue::built_in_descriptors();
    tools.push(UserRun::descriptor());
    let policy = Policy::for_user(&settings.effective, hosts, &tools).map_err(|errors| {
        let message = listed("invalid policy", &errors);
        HostError::denied(vambrace_core::error::ErrorCode::PermissionDenied, message, DAMAGED_HINT)
    })?;
    let workspace = settings.workspace()?;
    Ok(LoadedConfig { settings: settings.effective, layers: settings.layers, policy, workspace })
}
