//! What the classifier says about a command line.

use vambrace_core::risk::RiskLevel;

/// Class of a command line. The order is the order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommandClass {
    /// Only reads and prints.
    ReadOnly,
    /// Changes something openly, runs project code, or cannot be proven to only read.
    Modifying,
    /// Must not run on a rule or a grant for a class of commands.
    Deny,
}

impl CommandClass {
    /// The word in results and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "readonly",
            Self::Modifying => "modifying",
            Self::Deny => "deny",
        }
    }
}

/// A program that a command line could start.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StartedProgram {
    /// Name or path, as written.
    pub name: String,
    /// All words, the name included. A word that a shell would expand is shown unexpanded.
    pub argv: Vec<String>,
}

/// The class of a command line, with reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classification {
    /// The class by what the command line could do. It says nothing about the paths that are read, and it does not
    /// include [`Self::forbidden`] and [`Self::typed_tool`]: see [`Self::is_refused`].
    pub class: CommandClass,
    /// The risk of running it.
    pub risk: RiskLevel,
    /// The reasons, most severe first, one sentence each.
    pub why: Vec<String>,
    /// Every program that it could start, as far as known.
    pub programs: Vec<StartedProgram>,
    /// Whether `programs` may be incomplete. The class is at least [`CommandClass::Modifying`] then.
    pub unparsed: bool,
    /// Whether it opens network connections, as far as known.
    pub connects: bool,
    /// The tool that must be used instead.
    pub typed_tool: Option<&'static str>,
    /// What to do instead, when there is an allowed form.
    pub suggestion: Option<String>,
    /// A program of the table of forbidden programs, or outside the programs allowed for this task.
    pub forbidden: Option<String>,
    /// The user or the organisation listed a forbidden program: each call is approved on its own.
    pub ask_singly: bool,
}

impl Classification {
    /// Whether `execute_command` answers `CommandNotAllowed`.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.class == CommandClass::Deny || self.forbidden.is_some() || self.typed_tool.is_some()
    }

    /// The message of the error `CommandNotAllowed`, if it is refused.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let reason = match (self.class, self.typed_tool, &self.forbidden) {
            (CommandClass::Deny, _, _) => self.why.first().cloned().unwrap_or_default(),
            (_, Some(tool), _) => format!("the tool `{tool}` does this"),
            (_, None, Some(program)) => format!("`{program}` is forbidden"),
            (_, None, None) => return None,
        };
        Some(format!("Command not allowed: {reason}"))
    }
}
