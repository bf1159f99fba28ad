//! Changes in words, bounded together.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};

use vambrace_core::quote::quoted;

use super::{Change, ChangeKind, Changes, EntryKind, Facts};

/// Larger files are named by hash and size.
const MOST_BYTES: u64 = 1 << 20;

const LEFT_OUT: &str = " (diff left out: more than 8 MiB together)";
/// So long are all diffs of one run together.
const MOST_TOGETHER: usize = 8 << 20;

/// The changes of one run in words.
#[derive(Debug)]
pub struct Diffs<'a> {
    changes: &'a Changes,
    left: usize,
}

impl<'a> Diffs<'a> {
    pub(super) fn of(changes: &'a Changes) -> Self {
        Self { changes, left: MOST_TOGETHER }
    }

    /// A unified diff of text; a line with hash and size of anything else, and of what is more than 8 MiB with those before.
    pub fn next(&mut self, change: &Change) -> String {
        let text = diff(self.changes, change, self.left);
        self.left = self.left.saturating_sub(text.len());
        text
    }
}

fn diff(changes: &Changes, change: &Change, most: usize) -> String {
    let path = shown(&change.path);
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    match &change.kind {
        ChangeKind::Renamed { from } => format!("rename {} -> {path}\n", shown(from)),
        ChangeKind::Mode => {
            let mode = |facts: Option<&Facts>| facts.map_or(0, |facts| facts.mode);
            format!("mode {:03o} -> {:03o} {path}\n", mode(before), mode(after))
        }
        ChangeKind::Created | ChangeKind::Modified | ChangeKind::Deleted => {
            let why = match texts(changes, change) {
                (Some(old), Some(new)) => {
                    let name = |there: bool, side: &str| match there {
                        true => quoted(&[side.as_bytes(), change.path.as_os_str().as_bytes()].concat()),
                        false => "/dev/null".to_owned(),
                    };
                    let (from, to) = (name(before.is_some(), "a/"), name(after.is_some(), "b/"));
                    let text = format!("--- {from}\n+++ {to}\n{}", unified(&old, &new));
                    if text.len() <= most {
                        return text;
                    }
                    LEFT_OUT
                }
                _ => "",
            };
            let after = after.map(|facts| Facts { hash: changes.hash_after(change), ..facts.clone() });
            let (old, new) = (told(before), told(after.as_ref()));
            format!("{} {path}: {old} -> {new}{why}\n", change.kind.as_str())
        }
    }
}

fn texts(changes: &Changes, change: &Change) -> (Option<String>, Option<String>) {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let old =
        before.map_or(Some(String::new()), |facts| text(facts, || changes.open_before(&change.path).ok()));
    let new =
        after.map_or(Some(String::new()), |facts| text(facts, || changes.open_after(&change.path).ok()));
    (old, new)
}

fn shown(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes())
}

/// The text of a file; `None` when it is too large, no file, or no text.
fn text(facts: &Facts, open: impl FnOnce() -> Option<OwnedFd>) -> Option<String> {
    if facts.kind != EntryKind::File || facts.size > MOST_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    File::from(open()?).take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

fn told(facts: Option<&Facts>) -> String {
    let Some(facts) = facts else { return "nothing".to_owned() };
    match facts.kind {
        EntryKind::Folder => "folder".to_owned(),
        EntryKind::Special => "special".to_owned(),
        EntryKind::Link => {
            format!("link to `{}`", shown(facts.target.as_deref().unwrap_or_else(|| "".as_ref())))
        }
        EntryKind::File => {
            let hash: String =
                facts.hash.iter().flatten().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("{} bytes sha256:{hash}", facts.size)
        }
    }
}

fn unified(old: &str, new: &str) -> String {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    diff.unified_diff(&BasicLineDiffPrinter(&input.interner), UnifiedDiffConfig::default(), &input)
        .to_string()
}
