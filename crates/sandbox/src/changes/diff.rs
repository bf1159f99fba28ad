//! Diffs of a run's changes, with limits for all of them together: however much a program wrote, a bounded amount is read,
//! compared and reported.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use vambrace_core::change::Splice;
use vambrace_core::diff::{LineTokens, hunks};
use vambrace_core::quote::quoted;

use super::{ChangeKind, EntryChange, EntryMetadata, FileKind, RunChanges, digest};

/// Maximum size of a file that gets a diff, in bytes; larger ones are described by hash and size.
const MAX_DIFFED_FILE_BYTES: u64 = 1 << 20;
/// Maximum length of all diffs of one run together, in bytes.
const MAX_TOTAL_DIFF_BYTES: usize = 8 << 20;
const TOO_LONG: &str = " (diff omitted: more than 8 MiB in total)";
/// Maximum of removed lines times added lines, over all files: in the worst case each is compared with each.
const MAX_LINE_PAIRS: u64 = 2_500_000_000;
const TOO_MANY_LINES: &str = " (diff omitted: too many changed lines)";
/// Maximum number of bytes read from all files together, half of it from large ones; beyond it, a file is described by its
/// size.
const MAX_TOTAL_READ_BYTES: u64 = 2 << 30;

/// The diffs of one run's changes.
#[derive(Debug)]
pub struct Diffs<'a> {
    changes: &'a RunChanges,
    bytes_left: usize,
    pairs_left: u64,
    read_budget: u64,
}

impl<'a> Diffs<'a> {
    pub(super) fn of(changes: &'a RunChanges) -> Self {
        Self {
            changes,
            bytes_left: MAX_TOTAL_DIFF_BYTES,
            pairs_left: MAX_LINE_PAIRS,
            read_budget: MAX_TOTAL_READ_BYTES,
        }
    }

    /// A unified diff of a text file, as git writes it; one line with hash and size for anything else, and for what exceeds
    /// the limits together with the diffs before. Also returns the change with the hashes of what was read.
    ///
    /// Call it before the change is written back: after that, the workspace has the new content.
    pub fn next(&mut self, change: &EntryChange) -> (EntryChange, String) {
        let mut change = change.clone();
        let path = quoted_path(&change.path);
        let text = match &change.kind {
            ChangeKind::Renamed { from } => format!("rename {} -> {path}\n", quoted_path(from)),
            ChangeKind::Mode => {
                let changes = self.changes;
                self.text(change.after.as_mut(), || changes.open_after(&change.path));
                let hash = change.after.as_ref().and_then(|after| after.hash);
                change.before.iter_mut().for_each(|before| before.hash = hash);
                let mode = |facts: &Option<EntryMetadata>| facts.as_ref().map_or(0, |facts| facts.mode);
                format!("mode {:03o} -> {:03o} {path}\n", mode(&change.before), mode(&change.after))
            }
            ChangeKind::Created | ChangeKind::Modified | ChangeKind::Deleted => {
                self.read(&mut change).unwrap_or_else(|why| {
                    let (old, new) = (describe(change.before.as_ref()), describe(change.after.as_ref()));
                    format!("{} {path}: {old} -> {new}{why}\n", change.kind.as_str())
                })
            }
        };
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        (change, text)
    }

    /// The diff, or the reason that there is none.
    fn read(&mut self, change: &mut EntryChange) -> Result<String, &'static str> {
        let (changes, path) = (self.changes, &change.path);
        let old = self.text(change.before.as_mut(), || changes.open_before(path));
        let new = self.text(change.after.as_mut(), || changes.open_after(path));
        let (Some(old), Some(new)) = (old, new) else { return Err("") };
        if old.len().abs_diff(new.len()) > self.bytes_left {
            return Err(TOO_LONG);
        }
        let splices = Splice::between(&old, &new);
        self.pairs_left = self.pairs_left.checked_sub(pairs(&old, &splices)).ok_or(TOO_MANY_LINES)?;
        let hunks = hunks(&old, &splices).map_err(|_| "")?;
        let mut text = head(change, !hunks.is_empty()).into_bytes();
        hunks.iter().for_each(|hunk| text.extend_from_slice(&hunk.text));
        if text.len() > self.bytes_left { Err(TOO_LONG) } else { String::from_utf8(text).map_err(|_| "") }
    }

    /// Hashes a file and returns its text; `None` if it is too large, not a file, or not text.
    fn text(
        &mut self,
        facts: Option<&mut EntryMetadata>,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Option<Vec<u8>> {
        let Some(facts) = facts else { return Some(Vec::new()) };
        let short = facts.size <= MAX_DIFFED_FILE_BYTES;
        if facts.kind != FileKind::File || (!short && facts.hash.is_some()) {
            return None;
        }
        let rest = self.read_budget.checked_sub(facts.size);
        self.read_budget = rest.filter(|rest| short || *rest >= MAX_TOTAL_READ_BYTES / 2)?;
        let file = open().ok()?;
        if !short {
            facts.hash = digest(file).ok();
            return None;
        }
        let mut bytes = Vec::new();
        File::from(file).take(MAX_DIFFED_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
        // Another process changed it.
        if bytes.len() as u64 != facts.size {
            return None;
        }
        facts.hash.get_or_insert_with(|| Sha256::digest(&bytes).into());
        (!bytes.contains(&0) && std::str::from_utf8(&bytes).is_ok()).then_some(bytes)
    }
}

fn pairs(old: &[u8], splices: &[Splice]) -> u64 {
    let lines = |text: &[u8]| LineTokens(text).iter().count() as u64;
    let gone = |splice: &Splice| {
        let from = usize::try_from(splice.at).ok()?;
        old.get(from..from + usize::try_from(splice.remove).ok()?)
    };
    splices.iter().map(|splice| lines(gone(splice).unwrap_or(old)) * lines(&splice.insert)).sum()
}

/// The header in git's form, which also covers empty files and modes.
fn head(change: &EntryChange, differs: bool) -> String {
    let name = |side: &str| match quoted(&[side.as_bytes(), change.path.as_os_str().as_bytes()].concat()) {
        // `patch` ends an unquoted name at a space.
        name if name.contains(' ') && !name.starts_with('"') => format!("\"{name}\""),
        name => name,
    };
    let mode = |facts: &EntryMetadata| if facts.mode & 0o100 == 0 { "100644" } else { "100755" };
    let (mut old, mut new) = (name("a/"), name("b/"));
    let mut head = format!("diff --git {old} {new}\n");
    match (&change.before, &change.after) {
        (None, Some(after)) => {
            head += &format!("new file mode {}\n", mode(after));
            old = "/dev/null".to_owned();
        }
        (Some(before), None) => {
            // `patch` asks before it deletes an empty file, unless the index line has git's hash of the empty blob.
            let empty = if differs { "" } else { "index e69de29..0000000\n" };
            head += &format!("deleted file mode {}\n{empty}", mode(before));
            new = "/dev/null".to_owned();
        }
        (Some(before), Some(after)) if mode(before) != mode(after) => {
            head += &format!("old mode {}\nnew mode {}\n", mode(before), mode(after));
        }
        _ => {}
    }
    if differs { head + &format!("--- {old}\n+++ {new}\n") } else { head }
}

fn quoted_path(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes())
}

fn describe(facts: Option<&EntryMetadata>) -> String {
    let Some(facts) = facts else { return "nothing".to_owned() };
    match facts.kind {
        FileKind::Directory => "directory".to_owned(),
        FileKind::Special => "special".to_owned(),
        FileKind::Symlink => {
            format!("symlink to `{}`", quoted_path(facts.target.as_deref().unwrap_or_else(|| "".as_ref())))
        }
        FileKind::File => {
            let hash = facts.hash.map(|hash| hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect());
            format!(
                "{} bytes{}",
                facts.size,
                hash.map(|hash: String| format!(" sha256:{hash}")).unwrap_or_default()
            )
        }
    }
}
