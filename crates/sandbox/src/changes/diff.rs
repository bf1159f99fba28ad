//! A change in words.

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

pub(super) fn diff(changes: &Changes, change: &Change) -> String {
    let path = shown(&change.path);
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    match &change.kind {
        ChangeKind::Renamed { from } => format!("rename {} -> {path}\n", shown(from)),
        ChangeKind::Mode => {
            let mode = |facts: Option<&Facts>| facts.map_or(0, |facts| facts.mode);
            format!("mode {:03o} -> {:03o} {path}\n", mode(before), mode(after))
        }
        ChangeKind::Created | ChangeKind::Modified | ChangeKind::Deleted => {
            let old = before
                .map_or(Some(String::new()), |facts| text(facts, || changes.open_before(&change.path).ok()));
            let new = after
                .map_or(Some(String::new()), |facts| text(facts, || changes.open_after(&change.path).ok()));
            match (old, new) {
                (Some(old), Some(new)) => {
                    let name = |there: bool, side: &str| match there {
                        true => quoted(&[side.as_bytes(), change.path.as_os_str().as_bytes()].concat()),
                        false => "/dev/null".to_owned(),
                    };
                    let (from, to) = (name(before.is_some(), "a/"), name(after.is_some(), "b/"));
                    format!("--- {from}\n+++ {to}\n{}", unified(&old, &new))
                }
                _ => {
                    let after =
                        after.map(|facts| Facts { hash: changes.hash_after(change), ..facts.clone() });
                    let (old, new) = (told(before), told(after.as_ref()));
                    format!("{} {path}: {old} -> {new}\n", change.kind.as_str())
                }
            }
        }
    }
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
