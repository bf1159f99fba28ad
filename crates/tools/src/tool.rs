//! What a tool is: facts for the decisions, words for a model, a plan, and the work itself.

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
use vambrace_core::risk::{Level, Risk};
use vambrace_core::tool::{Group, ToolFacts, ToolPolicy};
use vambrace_egress::Log;
use vambrace_store::StartReceipt;
use vambrace_workspace::{AppliedFile, Applier, Draft, Kind, LoomLimits, Resolved, Visible, Workspace};

use crate::web::Web;

/// A governed tool.
pub trait Tool: Send + Sync {
    /// What is known of it before it is called.
    fn card(&self) -> &Card;

    /// What the decisions need to know.
    fn facts(&self) -> &Arc<ToolFacts> {
        &self.card().facts
    }

    /// What a model or a person needs to know.
    fn about(&self) -> &About {
        &self.card().about
    }

    /// Turns arguments that fit the schema into effects and work. Reads, but changes nothing and tells nothing.
    fn plan(&self, args: &Value, room: &Room) -> Result<Prepared, CallError>;
}

/// What is known of a tool before it is called.
#[derive(Debug, Clone)]
pub struct Card {
    /// For the decisions.
    pub facts: Arc<ToolFacts>,
    /// For a model or a person.
    pub about: About,
}

/// A tool's description.
#[derive(Debug, Clone)]
pub struct About {
    /// A short name for people.
    pub title: &'static str,
    /// What is done, in the words of the contract: `fs.read`.
    pub method: &'static str,
    /// For a model: what it does, when to use it, what to expect.
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub input: Value,
    /// JSON Schema of the payload.
    pub output: Value,
}

/// Where tools work.
#[derive(Debug, Clone)]
pub struct Room {
    /// The files.
    pub workspace: Arc<Workspace>,
    /// The caps.
    pub limits: Limits,
    /// What it takes to change files.
    pub changes: Changes,
    /// What it takes to ask servers.
    pub web: Web,
}

/// What it takes to draft and make changes.
#[derive(Clone)]
pub struct Changes {
    /// Makes them; `None` where nothing may be changed.
    pub applier: Option<Applier>,
    /// Looks for secrets in what is new.
    pub redactor: Arc<dyn Redact>,
    /// The caps.
    pub limits: LoomLimits,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("applier", &self.applier.is_some()).finish_non_exhaustive()
    }
}

/// The configured caps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a read when the caller names none.
    pub read_bytes: u64,
    /// Bytes of a read that no caller can exceed.
    pub read_bytes_hard: u64,
    /// Entries of a listing.
    pub list_entries: usize,
    /// Bytes of a search result.
    pub output_bytes: usize,
    /// Time for one pattern on one file.
    pub regex: Duration,
    /// Time for one search.
    pub search: Duration,
}

/// A plan with the work that carries it out.
pub struct Prepared {
    /// What it would do.
    pub effects: Vec<Effect>,
    /// How risky.
    pub risk: Risk,
    /// What it is about, after links are followed; for the answer and the record.
    pub path: Option<ScopedPath>,
    /// How long it may hold a thread.
    pub weight: Weight,
    /// The work.
    pub work: Box<dyn Work>,
}

impl Prepared {
    /// The plan of a call that will be refused by its name alone.
    #[must_use]
    pub fn nothing() -> Self {
        struct Nothing;
        impl Work for Nothing {
            fn run(self: Box<Self>, _: &Room, _: &Fence, _: &StartReceipt) -> Result<Output, CallError> {
                Err(CallError::new(ErrorCode::PermissionDenied, "this tool is not offered"))
            }
        }
        Self {
            effects: Vec::new(),
            risk: Risk::low("nothing is done"),
            path: None,
            weight: Weight::Light,
            work: Box::new(Nothing),
        }
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("effects", &self.effects)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// How long work may hold a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Microseconds: done where it stands.
    Light,
    /// Longer: done on a thread of its own.
    Heavy,
}

/// Work that waits for its start.
pub trait Work: Send {
    /// The change it would make, where it makes one.
    fn change(&self) -> Option<&Draft> {
        None
    }

    /// The last checks before the start is recorded, and the locks that keep their result true. Changes nothing; gives
    /// what would undo the change.
    fn ready(&mut self, _room: &Room, _fence: &Fence) -> Result<Option<ChangeSet>, CallError> {
        Ok(None)
    }

    /// Where the connections that it attempts are entered, where it makes any. Read when it has ended, however it ended.
    fn attempts(&self) -> Option<Arc<Log>> {
        None
    }

    /// Does it, inside the fence. The receipt is the proof that the start was committed.
    fn run(self: Box<Self>, room: &Room, fence: &Fence, started: &StartReceipt) -> Result<Output, CallError>;
}

/// What work brings back.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The payload, as the output schema says.
    pub data: Value,
    /// What the contract puts beside the payload.
    pub details: Value,
    /// For a model: the payload as text; `None` where that is the payload's `content`.
    pub text: Option<String>,
    /// The broker's own words about it, for example that it was cut.
    pub note: Option<String>,
    /// Where the content comes from.
    pub provenance: Provenance,
    /// Whether something was left out.
    pub truncated: bool,
    /// What was touched, for the record.
    pub touched: Touched,
}

/// What was touched, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    /// First and last line.
    pub lines: Option<(u64, u64)>,
    /// The whole file's digest.
    pub base_hash: Option<Digest>,
    /// Files that were changed.
    pub files: Vec<AppliedFile>,
    /// What whoever keeps the machine should know; for the record.
    pub warnings: Vec<String>,
    /// Secrets that are marks already.
    pub masked: u32,
}

/// Opens what a path names, and says what looking through it would be.
pub(crate) fn look(room: &Room, path: String) -> Result<(Resolved, Effect), CallError> {
    let found = room.workspace.resolve(&AskedPath::new(path).parse()?)?;
    let effect = match found.kind {
        Kind::File => Effect::read(found.path.clone()),
        Kind::Folder => Effect::read_tree(found.path.clone()),
    };
    Ok((found, effect))
}

/// The fence as the walkers want it; `None` where everything in scope is inside.
pub(crate) fn visible(fence: &PathFence) -> Option<Visible> {
    let fence = fence.clone();
    (!fence.is_open()).then(|| Visible::new(move |path| fence.admits(path)))
}

/// The facts of a tool that only reads files.
pub(crate) fn reader(name: &str, aliases: &'static [&'static str]) -> Arc<ToolFacts> {
    Arc::new(ToolFacts {
        name: ToolName::new(name),
        aliases,
        group: Group::Fs,
        policy: ToolPolicy::READS_FILES,
        required_role: None,
        risk: Level::Low,
        read_only: true,
    })
}

/// The facts of a tool that changes files.
pub(crate) fn writer(name: &str, aliases: &'static [&'static str], risk: Level) -> Arc<ToolFacts> {
    Arc::new(ToolFacts {
        name: ToolName::new(name),
        aliases,
        group: Group::Fs,
        policy: ToolPolicy::CHANGES_FILES,
        required_role: None,
        risk,
        read_only: false,
    })
}
