//! What was refused: the words of an event, and the list of a run's.

use std::collections::HashSet;
use std::path::PathBuf;

/// More events than these tell nobody more.
const MOST: usize = 500;

/// Something that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Denial {
    /// What was attempted.
    pub operation: Operation,
    /// On which path, as the program would call it; a system call's name where there is no path.
    pub path: PathBuf,
    /// What refused it.
    pub rule: Rule,
    /// Who says so.
    pub source: Source,
    /// How sure that is.
    pub certainty: Certainty,
}

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening for reading.
    Read,
    /// Opening for writing, making, renaming, linking.
    Write,
    /// Removing.
    Delete,
    /// Starting a program.
    Execute,
    /// A system call that is never allowed.
    Call,
}

impl Operation {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Execute => "execute",
            Self::Call => "call",
        }
    }
}

/// What refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The place is shown read-only.
    ReadOnly,
    /// The path is not among those that may be written.
    NotGranted,
    /// The path exists on the machine and is not shown.
    NotShown,
    /// A secret's name.
    Masked,
    /// The system call filter.
    Filter,
}

impl Rule {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only here",
            Self::NotGranted => "not granted",
            Self::NotShown => "not shown to the program",
            Self::Masked => "secret name",
            Self::Filter => "system call filter",
        }
    }
}

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The observer, which refused the call itself or saw what the kernel would say.
    Observer,
}

impl Source {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observer => "observer",
        }
    }
}

/// How sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The observer refused the call.
    Refused,
    /// The kernel was left to refuse it; what it met was looked up just before.
    Seen,
}

impl Certainty {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Seen => "seen",
        }
    }
}

/// The refusals of one run, each once.
#[derive(Debug, Default)]
pub(crate) struct Told {
    seen: HashSet<Denial>,
    list: Vec<Denial>,
}

impl Told {
    pub(crate) fn add(&mut self, denial: Denial) {
        if self.list.len() < MOST && self.seen.insert(denial.clone()) {
            self.list.push(denial);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Denial> {
        std::mem::take(&mut self.list)
    }
}
