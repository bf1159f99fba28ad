//! The smallest set of further grants that a failed program would need, from what was refused to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vambrace_sandbox::{Denial, Filesystem, Operation, Outcome, Rule, Spec};

use super::{MISSING, denial_json};
use crate::harmless::plain;
use crate::out::{Out, Tone, paint};

/// What was refused when everything was observed, and what would let it through.
#[derive(Debug)]
pub(super) struct Grants {
    exit_code: i32,
    denials: Vec<Denial>,
    /// Whether there may have been more.
    missing: bool,
    words: Vec<String>,
    /// What no grant lets through.
    never: BTreeSet<String>,
}

impl Grants {
    pub(super) fn of(outcome: &Outcome, spec: &Spec) -> Self {
        let mut read = BTreeSet::new();
        let mut write = BTreeSet::new();
        let mut words = BTreeSet::new();
        let mut never = BTreeSet::new();
        let workspace = spec.workspace.canonicalize().unwrap_or_else(|_| spec.workspace.clone());
        for denial in &outcome.denials {
            let path = &denial.path;
            let inside = path.starts_with(&workspace);
            match (denial.operation, denial.rule) {
                (Operation::Call, _) if path == Path::new("socket") => {
                    words.insert("--network loopback".to_owned());
                }
                (Operation::Call, _) | (_, Rule::Masked) => {
                    never.insert(path.display().to_string());
                }
                (Operation::Write | Operation::Delete, _) if inside => {
                    words.insert("--filesystem readwrite".to_owned());
                }
                (Operation::Write | Operation::Delete, _) => {
                    write.insert(existing(path));
                }
                (Operation::Read | Operation::Execute, _)
                    if inside && spec.filesystem == Filesystem::Deny =>
                {
                    words.insert("--filesystem read".to_owned());
                }
                (Operation::Read | Operation::Execute, _) => {
                    read.insert(path.clone());
                }
            }
        }
        let read =
            outermost(&read).into_iter().filter(|path| !write.iter().any(|outer| path.starts_with(outer)));
        words.extend(read.map(|path| format!("--read {}", path.display())));
        words.extend(outermost(&write).into_iter().map(|path| format!("--write {}", path.display())));
        Self {
            exit_code: outcome.exit.code(),
            denials: outcome.denials.clone(),
            missing: outcome.denials_missing,
            words: words.into_iter().collect(),
            never,
        }
    }

    pub(super) fn say(&self, out: Out) {
        out.say(paint(
            Tone::Strong,
            format!("explain: run again with everything observed, code {}", self.exit_code),
        ));
        for denial in &self.denials {
            let path = plain(&denial.path.display().to_string());
            out.say(format!("  refused: {} {path}: {}", denial.operation.as_str(), denial.rule.as_str()));
        }
        if self.missing {
            out.say(format!("  {}", paint(Tone::Care, MISSING)));
        } else if self.denials.is_empty() {
            out.say("  nothing was refused: the sandbox is not why it fails");
        }
        for words in &self.words {
            out.say(format!("  {} {}", paint(Tone::Care, "would need:"), plain(words)));
        }
        for name in &self.never {
            out.say(format!("  {} {}", paint(Tone::Care, "never granted:"), plain(name)));
        }
    }

    pub(super) fn as_json(&self) -> Value {
        json!({
            "exit_code": self.exit_code,
            "denials": self.denials.iter().map(denial_json).collect::<Vec<_>>(),
            "denials_missing": self.missing, "grants": self.words, "never": self.never,
        })
    }
}

/// The nearest folder upwards that is there: only what exists can be granted.
fn existing(path: &Path) -> PathBuf {
    let there = |path: &&Path| path.symlink_metadata().is_ok();
    path.ancestors().find(there).unwrap_or_else(|| Path::new("/")).to_owned()
}

/// Without those that lie in another one.
fn outermost(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let covered = |path: &PathBuf| paths.iter().any(|outer| outer != path && path.starts_with(outer));
    paths.iter().filter(|path| !covered(path)).cloned().collect()
}
