//! The list of tools that a client sees, and its changes while the connection is open: a changed configuration, changed trust
//! or another role can add and remove tools.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::Value;
use tokio::time::{Interval, MissedTickBehavior};
use vambrace_broker::envelope_schema;
use vambrace_core::digest::Digest;
use vambrace_core::tool::ToolGroup;
use vambrace_host::{CHECK_INTERVAL, ProjectContext, ProjectHandle};

/// The tool list of one connection.
#[derive(Debug)]
pub(crate) struct ToolList {
    project: ProjectHandle,
    /// Digest of the list that the client read last.
    listed: Mutex<Option<Digest>>,
}

impl ToolList {
    pub(crate) fn new(project: ProjectHandle) -> Self {
        Self { project, listed: Mutex::new(None) }
    }

    /// The tools, for a `tools/list` request.
    pub(crate) fn list(&self, project: &ProjectContext) -> Vec<Tool> {
        let tools = tools(project);
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest(&tools));
        tools
    }

    /// Watches the list from now on.
    pub(crate) async fn changes(self: &Arc<Self>) -> ToolListChanges {
        let seen = self.project.context().await.ok();
        let known = seen.as_ref().map(|context| digest(&tools(context)));
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ToolListChanges { list: Arc::clone(self), seen, known, check }
    }
}

/// Changes of a tool list.
#[derive(Debug)]
pub(crate) struct ToolListChanges {
    list: Arc<ToolList>,
    /// The context that was compared last, and the digest of its tools.
    seen: Option<Arc<ProjectContext>>,
    known: Option<Digest>,
    check: Interval,
}

impl ToolListChanges {
    /// Returns when the list has changed and the client has not read it since. Cancel safe.
    pub(crate) async fn next(&mut self) {
        loop {
            self.check.tick().await;
            let Ok(context) = self.list.project.context().await else { continue };
            if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &context)) {
                continue;
            }
            let now = Some(digest(&tools(&context)));
            let changed = std::mem::replace(&mut self.known, now) != now;
            self.seen = Some(context);
            if changed && *self.list.listed.lock().unwrap_or_else(PoisonError::into_inner) != now {
                return;
            }
        }
    }
}

fn tools(project: &ProjectContext) -> Vec<Tool> {
    project.broker().offered().into_iter().map(|tool| described(&**tool)).collect()
}

fn digest(tools: &[Tool]) -> Digest {
    // A list that cannot be serialized is not sent either.
    Digest::of(&serde_json::to_vec(tools).unwrap_or_default())
}

fn described(tool: &dyn vambrace_tools::Tool) -> Tool {
    let object = |value: &Value| Arc::new(value.as_object().cloned().unwrap_or_default());
    let (facts, about) = (tool.descriptor(), tool.description());
    let annotations = ToolAnnotations::new()
        .read_only(facts.read_only)
        .destructive(!facts.read_only)
        .idempotent(facts.read_only)
        .open_world(facts.group == ToolGroup::Web);
    let mut described =
        Tool::new(facts.name.to_string(), about.description.to_string(), object(&about.input));
    described.title = Some(about.title.to_string());
    described.output_schema = Some(object(&envelope_schema(&about.output)));
    described.annotations = Some(annotations);
    described
}
