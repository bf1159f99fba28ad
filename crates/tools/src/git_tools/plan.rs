//! What the git tools have in common before they run: descriptors, paths from arguments, plans.

use std::sync::Arc;

use serde_json::{Value, json};
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::id::ToolName;
use vambrace_core::path::{AskedPath, ScopedPath, Zone};
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{ToolDescriptor, ToolGroup, ToolPolicy};
use vambrace_store::StartReceipt;

use super::session::GitSession;
use crate::tool::{ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, Weight};

/// A definition of a git tool that only reads.
pub(super) fn reading_tool(name: &str, description: ToolDescription) -> ToolDefinition {
    definition(name, description, RiskLevel::Low, ToolPolicy::READ_FILES)
}

/// A definition of a git tool that writes the repository.
pub(super) fn writing_tool(name: &str, description: ToolDescription, risk: RiskLevel) -> ToolDefinition {
    definition(name, description, risk, ToolPolicy::EDIT_FILES)
}

fn definition(
    name: &str,
    description: ToolDescription,
    risk: RiskLevel,
    policy: ToolPolicy,
) -> ToolDefinition {
    let descriptor = Arc::new(ToolDescriptor {
        name: ToolName::new(name),
        aliases: Vec::new(),
        group: ToolGroup::Git,
        read_only: policy == ToolPolicy::READ_FILES,
        policy,
        required_role: None,
        risk,
    });
    ToolDefinition { descriptor, description, planning: Weight::Light }
}

/// The schema of a payload with these fields.
pub(super) fn payload_schema(fields: &[(&str, &str, &str)]) -> Value {
    let property = |(name, kind, meaning): &(&str, &str, &str)| {
        ((*name).to_owned(), json!({"type": kind, "description": meaning}))
    };
    json!({"type": "object", "properties": fields.iter().map(property).collect::<serde_json::Map<_, _>>()})
}

/// A path of the service that is in scope and not blocked; it need not exist, since git knows deleted files too.
pub(super) fn path_argument(context: &ToolContext, asked: &str) -> Result<ScopedPath, CallError> {
    let path = AskedPath::new(asked).parse()?;
    if context.workspace.writable(&path) {
        return Ok(path);
    }
    // The workspace knows why.
    context.workspace.resolve(&path)?;
    Err(CallError::new(ErrorCode::ScopeViolation, format!("`{path}` is outside the service root")))
}

/// The plan of a tool that reads below a path, or below the service root.
pub(super) fn reading_plan<F>(path: Option<ScopedPath>, run: F) -> ToolPlan
where
    F: FnOnce(&GitSession<'_>) -> Result<ToolOutput, CallError> + Send + 'static,
{
    let tree = path.clone().unwrap_or_else(|| ScopedPath::root(Zone::Service));
    let effects = vec![Effect::read_tree(tree)];
    ToolPlan {
        effects,
        risk: Risk::low("it only reads the repository"),
        path,
        weight: Weight::Heavy,
        work: Box::new(GitWork(run)),
    }
}

/// The plan of a tool that writes the repository. `argv` is what a person is shown.
pub(super) fn writing_plan<F>(argv: Vec<String>, reads: Vec<Effect>, risk: Risk, run: F) -> ToolPlan
where
    F: FnOnce(&GitSession<'_>) -> Result<ToolOutput, CallError> + Send + 'static,
{
    let mut effects = vec![Effect::Execute { argv }];
    effects.extend(reads);
    ToolPlan { effects, risk, path: None, weight: Weight::Heavy, work: Box::new(GitWork(run)) }
}

struct GitWork<F>(F);

impl<F> ToolWork for GitWork<F>
where
    F: FnOnce(&GitSession<'_>) -> Result<ToolOutput, CallError> + Send,
{
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let session = GitSession::open(context, fence)?;
        (self.0)(&session)
    }
}
