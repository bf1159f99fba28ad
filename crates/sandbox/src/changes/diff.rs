//! Changes in words, bounded together: however much a program wrote, little of it is read, compared and told.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use vambrace_core::change::Splice;
use vambrace_core::diff::{Lines, blocks};
use vambrace_core::quote::quoted;

use super::{Change, ChangeKind, Changes, EntryKind, Facts, digest};

/// Larger files are named by hash and size.
const MOST_BYTES: u64 = 1 << 20;
/// So long are all diffs of one run together.
const MOST_TOGETHER: usize = 8 << 20;
const LEFT_OUT: &str = " (diff left out: more than 8 MiB together)";
/// Lines that go times lines that come, of all files together: where nothing is alike, each may be compared with each.
const MOST_PAIRS: u64 = 2_500_000_000;
const TOO_MANY: &str = " (diff left out: too many lines that differ)";
/// So much is read of all files together, half of it of large ones; what is more is named by its size.
const MOST_READ: u64 = 2 << 30;

/// The changes of one run in words.
#[derive(Debug)]
pub struct Diffs<'a> {
    changes: &'a Changes,
    left: usize,
    pairs: u64,
    unread: u64,
}

impl<'a> Diffs<'a> {
    pub(super) fn of(changes: &'a Changes) -> Self {
        Self { changes, left: MOST_TOGETHER, pairs: MOST_PAIRS, unread: MOST_READ }
    }

    /// A unified diff of text, as git writes it; a line with hash and size of anything else, and of what is too much with those
    /// before. And the change with the hashes of what was read for that.
    ///
    /// Only before it is taken over: then the workspace has the new content.
    pub fn next(&mut self, change: &Change) -> (Change, String) {
        let mut change = change.clone();
        let path = shown(&change.path);
        let text = match &change.kind {
            ChangeKind::Renamed { from } => format!("rename {} -> {path}\n", shown(from)),
            ChangeKind::Mode => {
                let changes = self.changes;
                self.text(change.after.as_mut(), || changes.open_after(&change.path));
                let hash = change.after.as_ref().and_then(|after| after.hash);
                change.before.iter_mut().for_each(|before| before.hash = hash);
                let mode = |facts: &Option<Facts>| facts.as_ref().map_or(0, |facts| facts.mode);
                format!("mode {:03o} -> {:03o} {path}\n", mode(&change.before), mode(&change.after))
            }
            ChangeKind::Created | ChangeKind::Modified | ChangeKind::Deleted => {
                self.read(&mut change).unwrap_or_else(|why| {
                    let (old, new) = (told(change.before.as_ref()), told(change.after.as_ref()));
                    format!("{} {path}: {old} -> {new}{why}\n", change.kind.as_str())
                })
            }
        };
        self.left = self.left.saturating_sub(text.len());
        (change, text)
    }

    /// The diff, or why there is none.
    fn read(&mut self, change: &mut Change) -> Result<String, &'static str> {
        let (changes, path) = (self.changes, &change.path);
        let old = self.text(change.before.as_mut(), || changes.open_before(path));
        let new = self.text(change.after.as_mut(), || changes.open_after(path));
        let (Some(old), Some(new)) = (old, new) else { return Err("") };
        if old.len().abs_diff(new.len()) > self.left {
            return Err(LEFT_OUT);
        }
        let splices = Splice::between(&old, &new);
        self.pairs = self.pairs.checked_sub(pairs(&old, &splices)).ok_or(TOO_MANY)?;
        let hunks = blocks(&old, &splices).map_err(|_| "")?;
        let mut text = head(change, !hunks.is_empty()).into_bytes();
        hunks.iter().for_each(|hunk| text.extend_from_slice(&hunk.text));
        if text.len() > self.left { Err(LEFT_OUT) } else { String::from_utf8(text).map_err(|_| "") }
    }

    /// Reads a file for its hash, and for its text: nothing when it is too large, no file, or no text.
    fn text(
        &mut self,
        facts: Option<&mut Facts>,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Option<Vec<u8>> {
        let Some(facts) = facts else { return Some(Vec::new()) };
        let short = facts.size <= MOST_BYTES;
        if facts.kind != EntryKind::File || (!short && facts.hash.is_some()) {
            return None;
        }
        let rest = self.unread.checked_sub(facts.size);
        self.unread = rest.filter(|rest| short || *rest >= MOST_READ / 2)?;
        let file = open().ok()?;
        if !short {
            facts.hash = digest(file).ok();
            return None;
        }
        let mut bytes = Vec::new();
        File::from(file).take(MOST_BYTES + 1).read_to_end(&mut bytes).ok()?;
        // Somebody else changed it.
        if bytes.len() as u64 != facts.size {
            return None;
        }
        facts.hash.get_or_insert_with(|| Sha256::digest(&bytes).into());
        (!bytes.contains(&0) && std::str::from_utf8(&bytes).is_ok()).then_some(bytes)
    }
}

fn pairs(old: &[u8], splices: &[Splice]) -> u64 {
    let lines = |text: &[u8]| Lines(text).iter().count() as u64;
    let gone = |splice: &Splice| {
        let from = usize::try_from(splice.at).ok()?;
        old.get(from..from + usize::try_from(splice.remove).ok()?)
    };
    splices.iter().map(|splice| lines(gone(splice).unwrap_or(old)) * lines(&splice.insert)).sum()
}

/// With git's own lines, which tell empty files and modes too.
fn head(change: &Change, differs: bool) -> String {
    let name = |side: &str| match quoted(&[side.as_bytes(), change.path.as_os_str().as_bytes()].concat()) {
        // `patch` takes a blank for the name's end.
        name if name.contains(' ') && !name.starts_with('"') => format!("\"{name}\""),
        name => name,
    };
    let mode = |facts: &Facts| if facts.mode & 0o100 == 0 { "100644" } else { "100755" };
    let (mut old, mut new) = (name("a/"), name("b/"));
    let mut head = format!("diff --git {old} {new}\n");
    match (&change.before, &change.after) {
        (None, Some(after)) => {
            head += &format!("new file mode {}\n", mode(after));
            old = "/dev/null".to_owned();
        }
        (Some(before), None) => {
            // Of a file that was empty `patch` asks whether it is the right one, unless git's name of nothing tells it.
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

fn shown(path: &Path) -> String {
    quoted(path.as_os_str().as_bytes())
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
            let hash = facts.hash.map(|hash| hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect());
            format!(
                "{} bytes{}",
                facts.size,
                hash.map(|hash: String| format!(" sha256:{hash}")).unwrap_or_default()
            )
        }
    }
}
