//! The `Tool` trait: facts for policy, a description for the model, a plan, and the work that carries it out.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use vambrace_core::change::ChangeSet;
use vambrace_core::digest::Digest;
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::{Fence, PathFence};
use vambrace_core::id::ToolName;
use vambrace_core::path::{AskedPath, ScopedPath};
use vambrace_core::principal::Provenance;
use vambrace_core::redacted::Redact;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{ExecutionEnvironment, ToolDescriptor, ToolGroup, ToolPolicy};
use vambrace_egress::{EgressEvent, EgressLog};
use vambrace_store::StartReceipt;
use vambrace_workspace::{
    AppliedFile, Applier, Draft, EditLimits, PathFilter, Resolved, ResolvedKind, Workspace,
};

use crate::call_context::CallContext;
use crate::program_context::ProgramContext;
use crate::web::WebConfig;

/// A governed tool.
pub trait Tool: Send + Sync {
    /// Its static definition.
    fn definition(&self) -> &ToolDefinition;

    /// Facts for policy.
    fn descriptor(&self) -> &Arc<ToolDescriptor> {
        &self.definition().descriptor
    }

    /// Description for a model or a user.
    fn description(&self) -> &ToolDescription {
        &self.definition().description
    }

    /// Where its work runs.
    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::InProcess
    }

    /// Turns arguments that match the schema into effects and work. May read files, but changes and returns nothing.
    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError>;
}

/// Static definition of a tool.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// For policy.
    pub descriptor: Arc<ToolDescriptor>,
    /// For a model or a user.
    pub description: ToolDescription,
    /// How long planning occupies a thread.
    pub planning: Weight,
}

/// A tool's description.
#[derive(Debug, Clone)]
pub struct ToolDescription {
    /// A short title for users.
    pub title: Arc<str>,
    /// Method name in the ledger, such as `fs.read`.
    pub method: Arc<str>,
    /// For a model: what it does, when to use it, what it returns.
    pub description: Arc<str>,
    /// JSON Schema of the arguments.
    pub input: Value,
    /// JSON Schema of the payload.
    pub output: Value,
}

/// What a running tool may use.
#[derive(Debug, Clone)]
pub struct ToolContext {
    /// The project's files.
    pub workspace: Arc<Workspace>,
    /// Configured limits.
    pub limits: ToolLimits,
    /// For drafting and applying changes of files.
    pub changes: ChangeContext,
    /// HTTP client configuration of the web tools.
    pub web: WebConfig,
    /// For running programs; `None` where none may run.
    pub programs: Option<Arc<ProgramContext>>,
    /// The call that is planned or runs: cancellation, deadline, progress, output.
    pub call: CallContext,
}

/// What drafting and applying changes needs.
#[derive(Clone)]
pub struct ChangeContext {
    /// Applies changes; `None` where files are read-only.
    pub applier: Option<Applier>,
    /// Detects secrets in new content.
    pub redactor: Arc<dyn Redact>,
    /// Limits of the edit engine.
    pub limits: EditLimits,
}

impl std::fmt::Debug for ChangeContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeContext").field("applier", &self.applier.is_some()).finish_non_exhaustive()
    }
}

/// Configured limits of the tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLimits {
    /// Default maximum of a read, in bytes.
    pub read_bytes: u64,
    /// Maximum of a read that no caller can exceed, in bytes.
    pub read_bytes_hard: u64,
    /// Maximum entries of a listing.
    pub list_entries: usize,
    /// Maximum size of a search result, in bytes.
    pub output_bytes: usize,
    /// Time for one pattern on one file.
    pub regex: Duration,
    /// Time for one search.
    pub search: Duration,
}

/// A tool's plan, with the work that carries it out.
pub struct ToolPlan {
    /// What it would do.
    pub effects: Vec<Effect>,
    /// Risk level and reason.
    pub risk: Risk,
    /// The path it concerns, symlinks resolved; for the result and the record.
    pub path: Option<ScopedPath>,
    /// Whether it needs a thread of its own.
    pub weight: Weight,
    /// The work.
    pub work: Box<dyn ToolWork>,
}

impl ToolPlan {
    /// The plan of a call that policy denies by the tool's name alone.
    #[must_use]
    pub fn nothing() -> Self {
        struct Nothing;
        impl ToolWork for Nothing {
            fn run(
                self: Box<Self>,
                _: &ToolContext,
                _: &Fence,
                _: &StartReceipt,
            ) -> Result<ToolOutput, CallError> {
                Err(CallError::new(ErrorCode::PermissionDenied, "this tool is not available"))
            }
        }
        Self {
            effects: Vec::new(),
            risk: Risk::low("does nothing"),
            path: None,
            weight: Weight::Light,
            work: Box::new(Nothing),
        }
    }
}

impl std::fmt::Debug for ToolPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolPlan")
            .field("effects", &self.effects)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// How long work occupies a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Microseconds: runs on the caller's thread.
    Light,
    /// Longer: runs on a blocking thread.
    Heavy,
}

/// Planned work that is not started yet.
pub trait ToolWork: Send {
    /// The change of files that it would make, if any.
    fn change(&self) -> Option<&Draft> {
        None
    }

    /// Makes the last checks before the start is recorded and takes the locks that keep them valid. Changes nothing; returns
    /// the reverse change.
    fn ready(&mut self, _context: &ToolContext, _fence: &Fence) -> Result<Option<ChangeSet>, CallError> {
        Ok(None)
    }

    /// The log of the connections that it attempts, if any. Read after it has ended, also after an error.
    fn attempts(&self) -> Option<Arc<EgressLog>> {
        None
    }

    /// Does the work inside the fence. The receipt proves that the start was committed.
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        started: &StartReceipt,
    ) -> Result<ToolOutput, CallError>;
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// The payload, according to the output schema.
    pub data: Value,
    /// The `details` of the result envelope (docs/contract.md, Result envelope).
    pub details: Value,
    /// For a model: the payload as text; `None` where that is the payload's `content`.
    pub text: Option<String>,
    /// A remark of the broker, for example that the content was truncated.
    pub note: Option<String>,
    /// Where the content comes from.
    pub provenance: Provenance,
    /// Whether something was left out.
    pub truncated: bool,
    /// What the call read or changed, for the record.
    pub touched: TouchedFiles,
}

/// What a call read or changed, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TouchedFiles {
    /// First and last line returned.
    pub lines: Option<(u64, u64)>,
    /// Digest of the whole file.
    pub base_hash: Option<Digest>,
    /// Changed files.
    pub files: Vec<AppliedFile>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
    /// Number of secrets that the tool itself replaced with placeholders.
    pub masked: u32,
    /// What the sandbox reports about a run.
    pub run: Option<RunFacts>,
    /// What a program changed, and what is not applied yet.
    pub held: Option<ChangeSet>,
}

/// What the sandbox reports about a run, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The tier that confined it.
    pub tier: &'static str,
    /// The program's exit code.
    pub exit_code: i32,
    /// What the sandbox denied, one line each.
    pub denials: Vec<String>,
    /// Network attempts, and how many more were dropped.
    pub attempts: (Vec<EgressEvent>, u64),
    /// How many changes were written back by the run itself.
    pub written: usize,
    /// Written entries that are not files of a ChangeSet: directories, symlinks, bulk changes.
    pub other_entries: Vec<String>,
}

/// Opens a path and returns the effect of reading all of it.
pub(crate) fn resolve_for_reading(
    context: &ToolContext,
    path: String,
) -> Result<(Resolved, Effect), CallError> {
    let found = context.workspace.resolve(&AskedPath::new(path).parse()?)?;
    let effect = match found.kind {
        ResolvedKind::File => Effect::read(found.path.clone()),
        ResolvedKind::Directory => Effect::read_tree(found.path.clone()),
    };
    Ok((found, effect))
}

/// The fence as a path filter; `None` when it admits everything in scope.
pub(crate) fn path_filter(fence: &PathFence) -> Option<PathFilter> {
    let fence = fence.clone();
    (!fence.is_open()).then(|| PathFilter::new(move |path| fence.admits(path)))
}

/// Facts of a tool that only reads files.
pub(crate) fn read_tool_descriptor(name: &str, aliases: &[&str]) -> Arc<ToolDescriptor> {
    Arc::new(ToolDescriptor {
        name: ToolName::new(name),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        group: ToolGroup::Fs,
        policy: ToolPolicy::READ_FILES,
        required_role: None,
        risk: RiskLevel::Low,
        read_only: true,
    })
}

/// Facts of a tool that changes files.
pub(crate) fn write_tool_descriptor(name: &str, aliases: &[&str], risk: RiskLevel) -> Arc<ToolDescriptor> {
    Arc::new(ToolDescriptor {
        name: ToolName::new(name),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        group: ToolGroup::Fs,
        policy: ToolPolicy::EDIT_FILES,
        required_role: None,
        risk,
        read_only: false,
    })
}
