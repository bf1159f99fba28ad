//! One governed run: prepared, then run behind its gate with redacted output.

use std::ops::ControlFlow;

use tokio::runtime::Handle;
use vambrace_core::fence::Fence;
use vambrace_core::redacted::RedactError;
use vambrace_redact::Redactor;
use vambrace_sandbox::{
    Filesystem, Input, OutputStream, RunChanges, RunOutcome, Sandbox, SandboxError, Spec, StateDirs,
    StopHandle,
};

use crate::error::ExecError;
use crate::inherited::Inherited;
use crate::network::{self, GateSetup, NetworkAttempts};
use crate::redacted_output::{RedactedOutput, RedactedSink};
use crate::request::{NetworkRequest, RunRequest};
use crate::settings::RunSettings;
use crate::spec;
use crate::tls_termination::{self, CertificateFile, SecretSource};

/// Input and output of a run.
pub struct RunIo<'s, 'a> {
    /// The program's standard input.
    pub input: Input<'a>,
    /// Receives the output as it arrives; `None` if only [`RunReport::text`] is read.
    pub output: Option<&'s mut RedactedSink<'a>>,
    /// Redacts the output.
    pub redactor: &'a Redactor,
    /// Lets the caller stop the run early.
    pub stop: Option<StopHandle>,
}

impl std::fmt::Debug for RunIo<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunIo").field("input", &self.input).field("stop", &self.stop).finish_non_exhaustive()
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct RunReport {
    /// The sandbox's outcome. Its output is not redacted: see [`Self::text`].
    pub outcome: RunOutcome,
    /// What the program tried to reach; `None` if it had no gate.
    pub attempts: Option<NetworkAttempts>,
}

impl RunReport {
    /// The redacted beginning of a stream.
    pub fn text(&self, stream: OutputStream, redactor: &Redactor) -> Result<String, RedactError> {
        let captured = match stream {
            OutputStream::Out => &self.outcome.stdout,
            OutputStream::Err => &self.outcome.stderr,
        };
        let (clean, _) = redactor.redact_bytes(&captured.bytes)?;
        Ok(String::from_utf8_lossy(&clean).into_owned())
    }

    /// What the program changed in the workspace, if it could.
    #[must_use]
    pub fn changes(&self) -> Option<&RunChanges> {
        self.outcome.changes.as_ref()
    }
}

/// A run that passed every check that needs no program. It can be run several times; dropping it removes its files.
#[derive(Debug)]
pub struct PreparedRun {
    pub(crate) spec: Spec,
    pub(crate) gate: Option<GateSetup>,
    pub(crate) network: NetworkRequest,
    runtime: Handle,
    warnings: Vec<String>,
    _certificates: Option<CertificateFile>,
}

impl PreparedRun {
    /// Narrows a request by the settings and the fence. `places` are the state directories of the sandbox that will run it;
    /// the tasks of its gate run on `runtime`.
    pub fn new(
        request: &RunRequest,
        settings: &RunSettings,
        fence: &Fence,
        inherited: &Inherited,
        places: &StateDirs,
        secrets: &dyn SecretSource,
        runtime: &Handle,
    ) -> Result<Self, ExecError> {
        let mut spec = spec::build(request, settings, fence, inherited)?;
        let (mut gate, warnings) =
            network::set_up(&request.network, &settings.hosts, fence, &mut spec, runtime)?;
        let mut certificates = None;
        if let Some(gate) = gate.as_mut().filter(|gate| !gate.only_observes())
            && let Some((termination, file)) =
                tls_termination::set_up(settings, fence, secrets, places, &mut spec)?
        {
            gate.terminate(termination);
            certificates = Some(file);
        }
        Ok(Self {
            spec,
            gate,
            network: request.network.clone(),
            runtime: runtime.clone(),
            warnings: warnings.into_iter().collect(),
            _certificates: certificates,
        })
    }

    /// Probable mistakes in the request.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The narrowed spec.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether what the program changes is meant for the workspace.
    #[must_use]
    pub fn writes_back(&self) -> bool {
        matches!(self.spec.filesystem, Filesystem::Write | Filesystem::ReadWrite)
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs the program and waits for its end. What it changed is in the outcome, and nowhere else yet.
    pub fn run(&self, sandbox: &Sandbox, io: RunIo<'_, '_>) -> Result<RunReport, ExecError> {
        let spec = Spec { stop: io.stop.clone(), ..self.spec.clone() };
        let mut output = RedactedOutput::new(io.redactor, io.output);
        let mut pass = |stream: OutputStream, bytes: &[u8]| -> ControlFlow<()> { output.pass(stream, bytes) };
        let done =
            behind(self.gate.as_ref(), &spec, &mut |spec| sandbox.run_while(spec, io.input, &mut pass));
        // The output is passed on even if the run failed.
        let finished = output.finish();
        let (outcome, attempts) = done?;
        finished?;
        Ok(RunReport { outcome, attempts })
    }
}

/// Runs a program, behind an egress gate if there is one.
pub(crate) fn behind(
    gate: Option<&GateSetup>,
    spec: &Spec,
    run: &mut dyn FnMut(&Spec) -> Result<RunOutcome, SandboxError>,
) -> Result<(RunOutcome, Option<NetworkAttempts>), ExecError> {
    Ok(match gate {
        Some(gate) => gate.run_behind(spec, run)?,
        None => (run(spec)?, None),
    })
}
