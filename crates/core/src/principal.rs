//! Who calls: the chain from the user down to the skill, and the labels of the session. Carried by every call
//! from the first version on, also where nothing is enforced on it yet.

use crate::id::Id;

/// The chain of who acts for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The organisation's part; `default` on one machine.
    pub tenant: String,
    /// The person the agent works for.
    pub user: String,
    /// The agent, as its client names itself.
    pub agent: String,
    /// The agent's own helper, if it said so.
    pub sub_agent: Option<String>,
    /// The active skill.
    pub skill: Option<String>,
}

/// How far the content of a session can be trusted. Only falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Integrity {
    /// Nothing from outside has been read.
    #[default]
    Trusted,
    /// Something that somebody else wrote has been read.
    Untrusted,
}

/// How confidential the content of a session is. Only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Confidentiality {
    /// Fit for everybody.
    #[default]
    Public,
    /// Of this project.
    Internal,
    /// A secret was used.
    Secret,
}

/// What a session has touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels {
    /// The least trusted content so far.
    pub integrity: Integrity,
    /// The most confidential content so far.
    pub confidentiality: Confidentiality,
}

impl Labels {
    /// Both together: labels only rise.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            integrity: self.integrity.max(other.integrity),
            confidentiality: self.confidentiality.max(other.confidentiality),
        }
    }
}

/// Where a result's content comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance {
    /// A file of the workspace.
    File,
    /// Names and sizes of files.
    Listing,
    /// The web.
    Web,
    /// The broker's own words.
    Broker,
}

impl Provenance {
    /// The word in the provenance mark.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Listing => "listing",
            Self::Web => "web",
            Self::Broker => "broker",
        }
    }

    /// Whether somebody else may have written it. File names are content too.
    #[must_use]
    pub fn untrusted(self) -> bool {
        !matches!(self, Self::Broker)
    }

    /// What reading it does to a session.
    #[must_use]
    pub fn labels(self) -> Labels {
        match self {
            Self::File | Self::Listing => {
                Labels { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Internal }
            }
            Self::Web => Labels { integrity: Integrity::Untrusted, confidentiality: Confidentiality::Public },
            Self::Broker => Labels::default(),
        }
    }
}

/// A call as it comes through a door: words of an agent, nothing checked.
#[derive(Debug, Clone, PartialEq)]
pub struct RawCall {
    /// The tool's name or alias.
    pub tool: String,
    /// The arguments, unvalidated.
    pub args: serde_json::Value,
    /// The caller's own id of this call.
    pub tool_call_id: Option<String>,
    /// The caller's own id of its context.
    pub context_id: Option<String>,
}

/// Who stands at the door. Made by the door, never from an agent's arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The chain of principals.
    pub principal: Principal,
    /// The session.
    pub session: Id,
    /// Which door.
    pub door: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_only_rise() {
        let read = Provenance::File.labels();
        assert_eq!(read.join(Labels::default()), read);
        assert_eq!(Labels::default().join(read), read);
        assert_eq!(read.join(read), read);
    }
}
