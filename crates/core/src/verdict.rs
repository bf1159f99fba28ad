//! The verdict lattice: allow, then ask with obligations, then deny. A verdict is two sets that only grow when layers
//! are joined, so the result does not depend on their order, and adding something to a layer can never lower it.

use std::collections::BTreeSet;

use crate::error::ErrorCode;

/// The layer that a verdict comes from, in the order of explanations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerKind {
    /// Compiled in: blocked paths, self-protection.
    Floor,
    /// `/etc/vambrace/config.yaml`.
    Organisation,
    /// The user's configuration file.
    User,
    /// The project's configuration file.
    Project,
    /// The caller's role: the only layer that permits.
    Role,
    /// What the tool declares for itself.
    ToolPolicy,
    /// The manifest of the active skill.
    Skill,
    /// The state of the session.
    Session,
    /// The risk of the call.
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

/// The location of a rule: file and line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceLocation {
    /// The file name as shown to people, or `built in`.
    pub file: String,
    /// The line, from 1; 0 for the whole file.
    pub line: usize,
}

impl SourceLocation {
    /// Compiled in.
    #[must_use]
    pub fn built_in() -> Self {
        Self { file: "built in".to_owned(), line: 0 }
    }
}

impl std::fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 { write!(f, ":{}", self.line) } else { Ok(()) }
    }
}

/// Why a layer denies or asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reason {
    /// The layer.
    pub layer: LayerKind,
    /// Name of the rule.
    pub rule: String,
    /// Where the rule is written.
    pub at: SourceLocation,
    /// The effect or tool that the rule applies to.
    pub about: String,
    /// The reason as text.
    pub why: String,
}

/// One denial of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyDenial {
    /// Why the layer denies.
    pub reason: Reason,
    /// The error code that the caller gets.
    pub code: ErrorCode,
}

/// What must be discharged by a voucher before the call may start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Obligation {
    /// Why the layer asks.
    pub reason: Reason,
    /// Which grants discharge it, besides an approval of this one call.
    pub grantable: Grantable,
}

/// Which grants discharge an obligation, besides an approval of this one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Grantable {
    /// None.
    Never,
    /// Only rules in the file of the organisation or the user, not grants that a person gave interactively.
    ConfiguredOnly,
    /// Any grant of the same layer or above.
    AnyGrant,
}

/// Allow, ask or deny.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum VerdictKind {
    /// No denial and no obligation.
    Allow,
    /// Allowed once every obligation is discharged.
    Ask,
    /// Denied.
    Deny,
}

impl VerdictKind {
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

/// The verdict of one layer, or of all of them joined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    denials: BTreeSet<PolicyDenial>,
    obligations: BTreeSet<Obligation>,
}

impl Verdict {
    /// A verdict without denials and obligations.
    #[must_use]
    pub fn allow() -> Self {
        Self::default()
    }

    /// Adds a denial.
    pub fn deny(&mut self, code: ErrorCode, reason: Reason) {
        self.denials.insert(PolicyDenial { reason, code });
    }

    /// Adds an obligation.
    pub fn ask(&mut self, reason: Reason, grantable: Grantable) {
        self.obligations.insert(Obligation { reason, grantable });
    }

    /// Joins the verdict of another layer. Commutative, associative, idempotent; never lowers the verdict.
    pub fn join(&mut self, other: &Self) {
        self.denials.extend(other.denials.iter().cloned());
        self.obligations.extend(other.obligations.iter().cloned());
    }

    /// Deny if there is a denial, else ask if there is an obligation, else allow.
    #[must_use]
    pub fn kind(&self) -> VerdictKind {
        if !self.denials.is_empty() {
            VerdictKind::Deny
        } else if !self.obligations.is_empty() {
            VerdictKind::Ask
        } else {
            VerdictKind::Allow
        }
    }

    /// The denials, in the order of the layers.
    pub fn denials(&self) -> impl Iterator<Item = &PolicyDenial> {
        self.denials.iter()
    }

    /// The obligations, in the order of the layers.
    pub fn obligations(&self) -> impl Iterator<Item = &Obligation> {
        self.obligations.iter()
    }

    /// The reasons that decide: those of the denials if there are any, else those of the obligations.
    pub fn causes(&self) -> impl Iterator<Item = &Reason> {
        let asks = self.denials.is_empty();
        self.denials
            .iter()
            .map(|denial| &denial.reason)
            .chain(self.obligations.iter().filter(move |_| asks).map(|ask| &ask.reason))
    }
}
