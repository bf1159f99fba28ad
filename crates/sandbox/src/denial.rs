//! What the sandbox denied: [`SandboxDenial`], and the deduplicated log of one run.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Maximum number of denials that a run reports.
const MAX_DENIALS: usize = 500;

/// One denied operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SandboxDenial {
    /// What was attempted.
    pub operation: DeniedOperation,
    /// The path as the program sees it; the name of the system call if there is no path.
    pub path: PathBuf,
    /// Why it was denied.
    pub rule: DenialRule,
    /// Landlock's name of the missing right, if the kernel reported it.
    pub right: Option<&'static str>,
    /// What reported it.
    pub source: DenialSource,
    /// How certain the report is.
    pub certainty: Certainty,
}

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeniedOperation {
    /// Reading its metadata.
    Look,
    /// Opening for reading.
    Read,
    /// Opening for writing, creating, linking.
    Write,
    /// Deleting.
    Delete,
    /// Renaming it.
    Move,
    /// Renaming something else to its name.
    MoveTo,
    /// Starting a program.
    Execute,
    /// Making a system call that is never allowed.
    Call,
}

impl DeniedOperation {
    /// Whether it changes something.
    #[must_use]
    pub fn changes(self) -> bool {
        self == Self::Write || self.changes_directory()
    }

    /// Whether it changes the directory that contains the name.
    #[must_use]
    pub fn changes_directory(self) -> bool {
        matches!(self, Self::Delete | Self::Move | Self::MoveTo)
    }

    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Look => "look at",
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Move => "move",
            Self::MoveTo => "move to",
            Self::Execute => "execute",
            Self::Call => "call",
        }
    }
}

/// Why an operation was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DenialRule {
    /// The path is on a read-only mount.
    ReadOnly,
    /// The path, or the right to it, was not granted.
    NotGranted,
    /// The path exists on the host and is not visible in the sandbox.
    NotShown,
    /// It is masked: a secret, a blocked path, or one that a rule denies.
    Masked,
    /// The system call filter.
    Filter,
}

impl DenialRule {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only here",
            Self::NotGranted => "not granted",
            Self::NotShown => "not shown to the program",
            Self::Masked => "masked name",
            Self::Filter => "system call filter",
        }
    }
}

/// What reported a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DenialSource {
    /// The observer, which denied the call itself or predicted the kernel's answer.
    Observer,
    /// The kernel's audit record of a Landlock denial.
    Landlock,
}

impl DenialSource {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Landlock => "landlock audit",
        }
    }
}

/// How certain a report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The source denied the call itself.
    Denied,
    /// The call went on to the kernel; the observer looked the path up just before and predicts the denial.
    Predicted,
}

impl Certainty {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "refused",
            Self::Predicted => "seen",
        }
    }
}

/// The denials of one run, each once.
#[derive(Debug, Default)]
pub(crate) struct DenialLog {
    seen: HashSet<SandboxDenial>,
    list: Vec<SandboxDenial>,
    /// Whether there were more.
    overflowed: bool,
    /// Whether the observer thread is still inspecting a call.
    inspecting: bool,
}

impl DenialLog {
    pub(crate) fn add(&mut self, denial: SandboxDenial) {
        if self.list.len() >= MAX_DENIALS {
            self.overflowed |= !self.seen.contains(&denial);
        } else if self.seen.insert(denial.clone()) {
            self.list.push(denial);
        }
    }

    /// Notes a call whose path could not be read: denials may be missing.
    pub(crate) fn mark_missing(&mut self) {
        self.overflowed = true;
    }

    /// Set while the observer thread inspects a path: it may hang in a file system forever.
    pub(crate) fn inspecting(&mut self, inspecting: bool) {
        self.inspecting = inspecting;
    }

    /// Removes predicted denials of a path that is visible after all.
    pub(crate) fn remove_predicted(&mut self, path: &Path, rule: DenialRule) {
        if self.list.iter().any(|one| one.rule == rule && one.path == path) {
            self.list.retain(|one| one.rule != rule || one.path != path);
            self.seen.retain(|one| one.rule != rule || one.path != path);
        }
    }

    /// Merges the kernel's records. A denial that the observer predicted is reported once: with the observer's rule and
    /// the kernel's certainty.
    pub(crate) fn confirm(&mut self, denied: Vec<SandboxDenial>) {
        // The program may have used another name for the path.
        let real = |one: &SandboxDenial| one.path.canonicalize().unwrap_or_else(|_| one.path.clone());
        let paths: Vec<Option<PathBuf>> =
            self.list.iter().map(|one| (one.certainty == Certainty::Predicted).then(|| real(one))).collect();
        for denial in denied {
            let mut known = false;
            for (one, path) in self.list.iter_mut().zip(&paths) {
                if path.as_ref() == Some(&denial.path) && one.operation == denial.operation {
                    (one.right, one.source, one.certainty) = (denial.right, denial.source, denial.certainty);
                    known = true;
                }
            }
            if !known {
                self.add(denial);
            }
        }
    }

    /// The list, and whether there were more.
    pub(crate) fn take(&mut self) -> (Vec<SandboxDenial>, bool) {
        (std::mem::take(&mut self.list), self.overflowed || self.inspecting)
    }
}

#[cfg(test)]
mod tests {
    use super::{Certainty, DenialLog, DenialRule, DenialSource, DeniedOperation, SandboxDenial};

    #[test]
    fn denial_of_observer_and_kernel_is_reported_once() {
        let seen = SandboxDenial {
            operation: DeniedOperation::Read,
            path: "/usr/../etc/hosts".into(),
            rule: DenialRule::Masked,
            right: None,
            source: DenialSource::Observer,
            certainty: Certainty::Predicted,
        };
        let denied = SandboxDenial {
            path: "/etc/hosts".into(),
            rule: DenialRule::NotGranted,
            right: Some("fs.read_file"),
            source: DenialSource::Landlock,
            certainty: Certainty::Denied,
            ..seen.clone()
        };
        let other = SandboxDenial { path: "/etc/group".into(), ..denied.clone() };
        let written = SandboxDenial {
            operation: DeniedOperation::Write,
            right: Some("fs.write_file"),
            ..denied.clone()
        };
        let mut log = DenialLog::default();
        log.add(seen.clone());
        log.confirm(vec![denied.clone(), other.clone(), written.clone(), other.clone()]);
        let both = SandboxDenial { path: seen.path, rule: DenialRule::Masked, ..denied };
        assert_eq!(log.take(), (vec![both, other, written], false));
    }

    // A flood hides nothing silently
    #[test]
    fn overflow_of_the_denial_log_is_reported() {
        let one = |number: usize| SandboxDenial {
            operation: DeniedOperation::Write,
            path: format!("/{number}").into(),
            rule: DenialRule::ReadOnly,
            right: None,
            source: DenialSource::Observer,
            certainty: Certainty::Denied,
        };
        let mut log = DenialLog::default();
        (0..super::MAX_DENIALS).for_each(|number| log.add(one(number)));
        log.add(one(7));
        assert!(!log.overflowed, "a repeated denial is not an overflow");
        log.add(one(super::MAX_DENIALS));
        let (list, overflowed) = log.take();
        assert_eq!((list.len(), overflowed), (super::MAX_DENIALS, true));
    }
}
