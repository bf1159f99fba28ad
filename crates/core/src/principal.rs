//! Who calls: the chain from the user down to the skill, and where the content of a result comes from.

use crate::id::Id;

/// The tenant of a machine that has only one.
pub const DEFAULT_TENANT: &str = "default";

/// The chain of delegation behind a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The tenant of the organisation; [`DEFAULT_TENANT`] on a single machine.
    pub tenant: String,
    /// The person the agent works for.
    pub user: String,
    /// The agent, as its client names itself.
    pub agent: String,
    /// The sub-agent, if the agent names one.
    pub sub_agent: Option<String>,
    /// The active skill.
    pub skill: Option<String>,
}

/// Where the content of a result comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance {
    /// A file of the workspace.
    File,
    /// Names and sizes of files.
    Listing,
    /// The web.
    Web,
    /// The output of a program.
    Program,
    /// The broker itself.
    Broker,
}

impl Provenance {
    /// The word in the provenance field.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Listing => "listing",
            Self::Web => "web",
            Self::Program => "program",
            Self::Broker => "broker",
        }
    }

    /// Whether others may have written it. File names count as content.
    #[must_use]
    pub fn untrusted(self) -> bool {
        !matches!(self, Self::Broker)
    }
}

/// A call as it arrives at an entry point, unchecked.
#[derive(Debug, Clone, PartialEq)]
pub struct RawCall {
    /// The tool's name or alias.
    pub tool: String,
    /// The arguments, unvalidated.
    pub args: serde_json::Value,
    /// The caller's own id for this call.
    pub tool_call_id: Option<String>,
    /// The caller's own id for its context.
    pub context_id: Option<String>,
}

/// The caller, as identified by the entry point; never taken from an agent's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The chain of delegation.
    pub principal: Principal,
    /// The session.
    pub session: Id,
    /// The entry point where the call arrived.
    pub entry_point: EntryPoint,
}

/// Where a call arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryPoint {
    /// The command line.
    Cli,
    /// An MCP client.
    Mcp,
    /// The REST API.
    Rest,
    /// A remote runner.
    Runner,
}

impl EntryPoint {
    /// The word in stored calls and session names.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Mcp => "mcp",
            Self::Rest => "rest",
            Self::Runner => "runner",
        }
    }

    /// The entry point with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Cli, Self::Mcp, Self::Rest, Self::Runner].into_iter().find(|point| point.as_str() == word)
    }
}
