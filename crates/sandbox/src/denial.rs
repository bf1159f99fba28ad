//! What was refused: the words of an event, and the list of a run's.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

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
    /// Landlock's own name of the right that was missing, where the kernel told it.
    pub right: Option<&'static str>,
    /// Who says so.
    pub source: Source,
    /// How sure that is.
    pub certainty: Certainty,
}

/// What was attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asking whether it is there, and what it is.
    Look,
    /// Opening for reading.
    Read,
    /// Opening for writing, making, linking.
    Write,
    /// Removing.
    Delete,
    /// Giving it another name.
    Move,
    /// Giving its name to something else.
    MoveTo,
    /// Starting a program.
    Execute,
    /// A system call that is never allowed.
    Call,
}

impl Operation {
    /// Whether it is meant to change something.
    #[must_use]
    pub fn changes(self) -> bool {
        self == Self::Write || self.changes_folder()
    }

    /// Whether what it changes is the folder that the name lies in.
    #[must_use]
    pub fn changes_folder(self) -> bool {
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

/// What refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The place is shown read-only.
    ReadOnly,
    /// The path, or the right to it, is not among what was granted.
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
    /// The kernel's record of what Landlock refused.
    Landlock,
}

impl Source {
    /// As shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Landlock => "landlock audit",
        }
    }
}

/// How sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// Who says so refused the call.
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
    /// Whether there were more.
    more: bool,
    /// Whether somebody still looks what a call is about.
    looking: bool,
}

impl Told {
    pub(crate) fn add(&mut self, denial: Denial) {
        if self.list.len() >= MOST {
            self.more |= !self.seen.contains(&denial);
        } else if self.seen.insert(denial.clone()) {
            self.list.push(denial);
        }
    }

    /// Somebody asked, and nobody knows for what.
    pub(crate) fn miss(&mut self) {
        self.more = true;
    }

    /// Of who may not come back.
    pub(crate) fn looking(&mut self, looking: bool) {
        self.looking = looking;
    }

    /// What was only seen, and did not stay so.
    pub(crate) fn forget(&mut self, path: &Path, rule: Rule) {
        if self.list.iter().any(|one| one.rule == rule && one.path == path) {
            self.list.retain(|one| one.rule != rule || one.path != path);
            self.seen.retain(|one| one.rule != rule || one.path != path);
        }
    }

    /// What the kernel says it refused. What the observer saw coming is told once: with its rule, as surely as the
    /// kernel knows it.
    pub(crate) fn confirm(&mut self, refused: Vec<Denial>) {
        // A program may have called it by another name.
        let real = |one: &Denial| one.path.canonicalize().unwrap_or_else(|_| one.path.clone());
        let paths: Vec<Option<PathBuf>> =
            self.list.iter().map(|one| (one.certainty == Certainty::Seen).then(|| real(one))).collect();
        for denial in refused {
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
    pub(crate) fn take(&mut self) -> (Vec<Denial>, bool) {
        (std::mem::take(&mut self.list), self.more || self.looking)
    }
}

#[cfg(test)]
mod tests {
    use super::{Certainty, Denial, Operation, Rule, Source, Told};

    // Issue 6, 4
    #[test]
    fn what_observer_and_kernel_both_tell_is_told_once() {
        let seen = Denial {
            operation: Operation::Read,
            path: "/usr/../etc/hosts".into(),
            rule: Rule::Masked,
            right: None,
            source: Source::Observer,
            certainty: Certainty::Seen,
        };
        let refused = Denial {
            path: "/etc/hosts".into(),
            rule: Rule::NotGranted,
            right: Some("fs.read_file"),
            source: Source::Landlock,
            certainty: Certainty::Refused,
            ..seen.clone()
        };
        let other = Denial { path: "/etc/group".into(), ..refused.clone() };
        let written = Denial { operation: Operation::Write, right: Some("fs.write_file"), ..refused.clone() };
        let mut told = Told::default();
        told.add(seen.clone());
        told.confirm(vec![refused.clone(), other.clone(), written.clone(), other.clone()]);
        let both = Denial { path: seen.path, rule: Rule::Masked, ..refused };
        assert_eq!(told.take(), (vec![both, other, written], false));
    }

    // Issue 6, 4: a flood hides nothing silently
    #[test]
    fn more_than_are_kept_is_said() {
        let one = |number: usize| Denial {
            operation: Operation::Write,
            path: format!("/{number}").into(),
            rule: Rule::ReadOnly,
            right: None,
            source: Source::Observer,
            certainty: Certainty::Refused,
        };
        let mut told = Told::default();
        (0..super::MOST).for_each(|number| told.add(one(number)));
        told.add(one(7));
        assert!(!told.more, "the same again is no more");
        told.add(one(super::MOST));
        let (list, more) = told.take();
        assert_eq!((list.len(), more), (super::MOST, true));
    }
}
