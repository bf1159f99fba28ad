//! What a tool needs to run programs: the process's sandbox, the configuration's settings, the environment that programs
//! inherit, the secrets and the redactor.

use std::sync::Arc;

use tokio::runtime::Handle;
use vambrace_commands::CommandTable;
use vambrace_core::fence::Fence;
use vambrace_exec::{
    ExecError, Inherited, PreparedRun, RunRequest, RunSettings, SecretSource, SharedSandbox,
};
use vambrace_redact::Redactor;

use crate::program_run::CommandLimits;
use crate::toolchain_run::ToolchainCommands;

/// For running programs in one project.
pub struct ProgramContext {
    /// The sandbox of this process.
    pub sandbox: Arc<SharedSandbox>,
    /// Limits, masks and hosts of the configuration.
    pub settings: RunSettings,
    /// What programs inherit from this process.
    pub inherited: Inherited,
    /// Values for the hosts whose TLS the gate terminates.
    pub secrets: Arc<dyn SecretSource>,
    /// Redacts output.
    pub redactor: Redactor,
    /// Runs the tasks of the egress gate.
    pub runtime: Handle,
    /// Classifies the commands of agents.
    pub commands: CommandTable,
    /// Limits of the commands of agents.
    pub limits: CommandLimits,
    /// Configured commands of run_test and run_lint.
    pub toolchain: ToolchainCommands,
}

impl std::fmt::Debug for ProgramContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProgramContext").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl ProgramContext {
    /// Narrows a request by the settings and the decided fence.
    pub fn prepare(&self, request: &RunRequest, fence: &Fence) -> Result<PreparedRun, ExecError> {
        let places = self.sandbox.places();
        let Self { settings, inherited, secrets, runtime, .. } = self;
        PreparedRun::new(request, settings, fence, inherited, places, &**secrets, runtime)
    }
}
