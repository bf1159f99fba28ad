//! What a program changed in the project, held back from it: the change that is judged and proposed like an edit, and what
//! cannot be part of it.

use serde_json::{Value, json};
use vambrace_core::change::ChangeSet;
use vambrace_core::error::CallError;
use vambrace_core::quote::quoted;
use vambrace_exec::{SplitChanges, split_changes};
use vambrace_sandbox::{EntryChange, RunChanges};

use crate::change::changed_files;
use crate::execute_command::RunMode;
use crate::program_run::{FinishedRun, programs};
use crate::tool::ToolContext;

/// How many names of one kind are listed.
const MAX_NAMES: usize = 50;

/// The changes of one run.
#[derive(Debug)]
pub(crate) struct HeldChanges {
    set: ChangeSet,
    /// Entries that no proposal can have: symlinks, directories, special files.
    left_out: Vec<String>,
    /// Names that no program may change, with the reason.
    withheld: Vec<String>,
    /// Why nothing is proposed.
    dropped: Option<String>,
}

/// The changes of a run; `None` if there are none.
pub(crate) fn of_run(
    context: &ToolContext,
    run: &FinishedRun,
    mode: RunMode,
) -> Result<Option<HeldChanges>, CallError> {
    let Some(changes) = run.report.changes().filter(|changes| !is_empty(changes)) else { return Ok(None) };
    let umask = programs(context)?.inherited.umask;
    let SplitChanges { set, rest } =
        split_changes(changes, &context.workspace, umask).map_err(CallError::from)?;
    let withheld =
        changes.withheld.iter().map(|one| format!("{}: {}", path(&one.path), one.why.as_str())).collect();
    let hosts = run.denied_hosts();
    let dropped = match (mode, hosts.is_empty(), run.facts.exit_code) {
        (RunMode::EffectsFirst, false, code) if code != 0 => Some(format!(
            "it failed and needed the network ({}), so its changes are discarded; repeat it once the host is allowed",
            hosts.join(", ")
        )),
        _ if set.is_empty() && !rest.is_empty() => {
            Some("the changes are too many or too large to be proposed, so they are discarded".to_owned())
        }
        _ => None,
    };
    let set = if dropped.is_some() { ChangeSet::default() } else { set };
    Ok(Some(HeldChanges { set, left_out: rest.iter().map(entry).collect(), withheld, dropped }))
}

fn is_empty(changes: &RunChanges) -> bool {
    changes.list.is_empty() && changes.withheld.is_empty()
}

fn path(path: &std::path::Path) -> String {
    quoted(path.as_os_str().as_encoded_bytes())
}

fn entry(change: &EntryChange) -> String {
    format!("{} {}", change.kind.as_str(), path(&change.path))
}

impl HeldChanges {
    /// For the result's payload.
    pub(crate) fn payload(&self) -> Value {
        let first = |names: &[String]| names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>();
        json!({
            "applied": false, "files": changed_files(&self.set), "not_proposed": first(&self.left_out),
            "withheld": first(&self.withheld), "dropped": self.dropped,
        })
    }

    /// For the result's text.
    pub(crate) fn text(&self) -> String {
        let mut lines = String::new();
        let mut line = |text: String| lines.push_str(&format!("\n[{text}]"));
        if let Some(dropped) = &self.dropped {
            line(dropped.clone());
        }
        if self.dropped.is_none() && !self.left_out.is_empty() {
            line(format!("not proposed: {}", listed(&self.left_out)));
        }
        if !self.withheld.is_empty() {
            line(format!("withheld: {}", listed(&self.withheld)));
        }
        lines
    }

    /// The change to propose.
    pub(crate) fn into_change(self) -> Option<ChangeSet> {
        Some(self.set).filter(|set| !set.is_empty())
    }
}

fn listed(names: &[String]) -> String {
    let mut text = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    text
}
