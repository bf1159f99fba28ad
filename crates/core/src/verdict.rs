//! The verdict lattice: allow, then ask with obligations, then deny. A verdict is two sets that only grow when
//! layers are joined, so the result does not depend on their order, and nothing added to a layer can lower it.

use std::collections::BTreeSet;

use crate::error::ErrorCode;

/// Where a judgement comes from, in the order in which explanations tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerKind {
    /// Compiled in: blocked zones, self-protection.
    Floor,
    /// `/etc/vambrace/config.yaml`.
    Organisation,
    /// The user's own file.
    User,
    /// The project's file.
    Project,
    /// The caller's role: the only layer that permits.
    Role,
    /// What the tool declares for itself.
    ToolPolicy,
    /// The manifest of the active skill.
    Skill,
    /// The state of the session.
    Session,
    /// How much harm it could do.
    Risk,
}

impl LayerKind {
    /// The word in explanations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Organisation => "organisation",
            Self::User => "user",
            Self::Project => "project",
            Self::Role => "role",
            Self::ToolPolicy => "tool_policy",
            Self::Skill => "skill",
            Self::Session => "session",
            Self::Risk => "risk",
        }
    }
}

/// Where a rule is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The file as a person would name it, or `built in`.
    pub file: String,
    /// The line, from 1; 0 when the whole file is meant.
    pub line: usize,
}

impl Site {
    /// Compiled in.
    #[must_use]
    pub fn built_in() -> Self {
        Self { file: "built in".to_owned(), line: 0 }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 { write!(f, ":{}", self.line) } else { Ok(()) }
    }
}

/// Why a layer said what it said.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reason {
    /// Who says so.
    pub layer: LayerKind,
    /// Which rule.
    pub rule: String,
    /// Where it is written.
    pub at: Site,
    /// The effect it speaks about, or the tool.
    pub about: String,
    /// In words.
    pub why: String,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Denial {
    /// Why.
    pub reason: Reason,
    /// The code for the caller.
    pub code: ErrorCode,
}

/// A question that somebody must answer first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Obligation {
    /// Why.
    pub reason: Reason,
    /// What may answer it beside a person for this one call.
    pub grantable: Grantable,
}

/// What may answer a question beside a person for this one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Grantable {
    /// Nothing.
    Never,
    /// Only what stands in the organisation's or the user's file, not what somebody clicked.
    Written,
    /// Any grant of the same layer or above.
    Freely,
}

/// Allow, ask or deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// Nothing stands against it.
    Allow,
    /// A person must agree.
    Ask,
    /// No.
    Deny,
}

impl Answer {
    /// The word in explanations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// What one layer, or all of them together, say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    denials: BTreeSet<Denial>,
    obligations: BTreeSet<Obligation>,
}

impl Verdict {
    /// Nothing stands against it.
    #[must_use]
    pub fn allow() -> Self {
        Self::default()
    }

    /// Adds a refusal.
    pub fn deny(&mut self, code: ErrorCode, reason: Reason) {
        self.denials.insert(Denial { reason, code });
    }

    /// Adds a question.
    pub fn ask(&mut self, reason: Reason, grantable: Grantable) {
        self.obligations.insert(Obligation { reason, grantable });
    }

    /// Adds what another layer says. Commutative, associative, idempotent, never lowering.
    pub fn join(&mut self, other: &Self) {
        self.denials.extend(other.denials.iter().cloned());
        self.obligations.extend(other.obligations.iter().cloned());
    }

    /// The strictest of all that was said.
    #[must_use]
    pub fn answer(&self) -> Answer {
        if !self.denials.is_empty() {
            Answer::Deny
        } else if !self.obligations.is_empty() {
            Answer::Ask
        } else {
            Answer::Allow
        }
    }

    /// The refusals, in the order of the layers.
    pub fn denials(&self) -> impl Iterator<Item = &Denial> {
        self.denials.iter()
    }

    /// The questions, in the order of the layers.
    pub fn obligations(&self) -> impl Iterator<Item = &Obligation> {
        self.obligations.iter()
    }

    /// Every reason that contributes to the answer: of the refusals if there are any, else of the questions.
    pub fn causes(&self) -> impl Iterator<Item = &Reason> {
        let asks = self.denials.is_empty();
        self.denials
            .iter()
            .map(|denial| &denial.reason)
            .chain(self.obligations.iter().filter(move |_| asks).map(|ask| &ask.reason))
    }
}
