//! Unified diffs. If the splices of a change are known, only the lines they touch are compared, so the diff of one edit
//! is cheap however long the file is; otherwise one splice is computed between the two contents. Within these lines the
//! histogram algorithm of `imara-diff` finds the smaller changes.
//!
//! Bytes in, bytes out: line endings, byte order marks and other encodings are kept as they are. Escaping for a terminal
//! is not done here.

use std::ops::Range;

use crate::change::{BadSplice, ChangeSet, FileChange, FileChangeKind, Splice, check_splices};
use crate::digest::Digest;
use crate::path::ScopedPath;
use imara_diff::{Algorithm, Diff, InternedInput, TokenSource};
use memchr::{memchr, memchr_iter, memrchr};

mod omission;

pub use omission::{DiffDetail, Omission};
use omission::{LineRun, OmittedHunks};

/// Number of context lines around a change.
const CONTEXT_LINES: usize = 3;
/// B2: maximum length of a preview, in characters.
pub const PREVIEW_CHARS: usize = 8000;

/// One hunk of a unified diff; it can be shown, accepted or rejected on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffHunk {
    /// The text, from its `@@` line to the next hunk.
    pub text: Vec<u8>,
    /// The edits of the old content, in whole lines.
    pub splices: Vec<Splice>,
}

/// The diff of one file, with its header; empty if nothing changes.
pub fn of_file(change: &FileChange, base: &[u8]) -> Result<Vec<u8>, BadSplice> {
    let mut out = Vec::new();
    write(&mut out, change, base, HeaderStyle::Plain, DiffDetail::Full)?;
    Ok(out)
}

/// Whether each file header starts with a `diff --git` line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeaderStyle {
    /// Only if the header needs it (modes, renames, empty files).
    Plain,
    /// Always, so that the headers of several files stay apart.
    Git,
}

fn write(
    out: &mut Vec<u8>,
    change: &FileChange,
    base: &[u8],
    form: HeaderStyle,
    detail: DiffDetail,
) -> Result<(), BadSplice> {
    out.extend(header(change, form));
    let binary = |bytes: &[u8]| memchr(0, bytes).is_some();
    match change.after() {
        None if binary(base) => out.extend_from_slice(b"Binary file is deleted\n"),
        None if base.is_empty() => {}
        None => {
            let all = [Splice { at: 0, remove: base.len() as u64, insert: Vec::new() }];
            write_hunks(out, base, &all, detail)?;
        }
        Some(after) if after.splices.iter().any(|splice| binary(&splice.insert)) => {
            out.extend_from_slice(b"Binary files differ\n");
        }
        Some(after) => write_hunks(out, base, &after.splices, detail)?,
    }
    Ok(())
}

/// The diff of several files; `base` returns the old content of each, `None` for a new one.
pub fn of_changes<'a>(
    changes: &ChangeSet,
    base: impl Fn(&FileChange) -> Option<&'a [u8]>,
    detail: DiffDetail,
) -> Result<Vec<u8>, BadSplice> {
    let form = if changes.files().len() > 1 { HeaderStyle::Git } else { HeaderStyle::Plain };
    let mut out = Vec::new();
    for change in changes.files() {
        write(&mut out, change, base(change).unwrap_or_default(), form, detail)?;
    }
    Ok(out)
}

/// The hunks between two contents, without a header.
#[must_use]
pub fn between(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // Cannot fail: a splice computed from the two contents fits the first.
    let _ = write_hunks(&mut out, old, &Splice::between(old, new), DiffDetail::Full);
    out
}

/// The first 8000 characters; the last line says so if the diff was cut. Invalid UTF-8 is replaced.
#[must_use]
pub fn preview(diff: &[u8]) -> String {
    const END: &str = "\n... cut: the diff goes on\n";
    let most = diff.get(..PREVIEW_CHARS * 4 + 4).unwrap_or(diff);
    let text = String::from_utf8_lossy(most);
    if most.len() == diff.len() && text.chars().count() <= PREVIEW_CHARS {
        return text.into_owned();
    }
    let mut cut: String = text.chars().take(PREVIEW_CHARS - END.len()).collect();
    cut.push_str(END);
    cut
}

/// Whether a preview shows the whole change: the preview is not cut, and the diff omits nothing.
#[must_use]
pub fn preview_is_complete(diff: &str) -> bool {
    preview(diff.as_bytes()) == diff && !diff.lines().any(|line| Omission::parse(line.as_bytes()).is_some())
}

/// Number of hunks that a diff only counts; the reader has not seen the lines that they add.
#[must_use]
pub fn omitted_hunks(diff: &str) -> u64 {
    diff.lines().filter_map(|line| Omission::parse(line.as_bytes())).map(|gap| gap.hunks).sum()
}

/// The hash that identifies a diff (B2: `patch_hash`).
#[must_use]
pub fn patch_hash(diff: &[u8]) -> Digest {
    Digest::of(diff)
}

/// The hunks of a list of splices.
pub fn hunks(base: &[u8], splices: &[Splice]) -> Result<Vec<DiffHunk>, BadSplice> {
    let mut hunks = Vec::new();
    each_hunk(base, splices, (DiffDetail::Full, 0), &mut |hunk| hunks.push(hunk))?;
    Ok(hunks)
}

/// Calls `take` for every hunk; `before` is the length of the diff so far, in bytes.
fn each_hunk(
    base: &[u8],
    splices: &[Splice],
    (detail, mut before): (DiffDetail, usize),
    take: &mut dyn FnMut(DiffHunk),
) -> Result<(), BadSplice> {
    let regions = regions(base, splices)?;
    let mut changes = Vec::new();
    let mut shift = 0_isize;
    for region in &regions {
        shift = region.compare(base, shift, &mut changes);
    }
    let mut rest = changes.as_slice();
    while let Some(first) = rest.first() {
        let mut last = first;
        let mut count = 1;
        while let Some(next) = rest.get(count)
            && next.old_line - last.old_line_end() <= CONTEXT_LINES * 2
        {
            last = next;
            count += 1;
        }
        let (group, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        let hunk = format_hunk(base, group, detail, before);
        before += hunk.text.len();
        take(hunk);
        rest = others;
    }
    Ok(())
}

fn write_hunks(
    out: &mut Vec<u8>,
    base: &[u8],
    splices: &[Splice],
    detail: DiffDetail,
) -> Result<(), BadSplice> {
    let mut omitted = OmittedHunks::new();
    each_hunk(base, splices, (detail, out.len()), &mut |hunk| match OmittedHunks::is_due(out, detail) {
        true => omitted.take(&hunk.text),
        false => out.extend_from_slice(&hunk.text),
    })?;
    omitted.write_marker(out);
    Ok(())
}

/// The `---` and `+++` lines; with git's extended header lines where those two are not enough.
fn header(change: &FileChange, form: HeaderStyle) -> Vec<u8> {
    let old = quoted("a/", change.path());
    let new = quoted("b/", change.after().map_or(change.path(), |after| &after.path));
    let mode = |bits: u32| if bits & 0o111 == 0 { "100644" } else { "100755" };
    let kind = change.kind();
    let size = change.after().map_or(0, |after| after.size).max(change.before().map_or(0, |b| b.size));
    let new_mode = change.after().and_then(|after| after.mode);
    let mut extended = String::new();
    match (kind, change.before()) {
        (FileChangeKind::Create, _)
            if size == 0 || form == HeaderStyle::Git || new_mode.is_some_and(|bits| bits & 0o111 != 0) =>
        {
            extended = format!("new file mode {}\n", mode(new_mode.unwrap_or(0o644)));
        }
        (FileChangeKind::Delete, Some(before)) if size == 0 || form == HeaderStyle::Git => {
            extended = format!("deleted file mode {}\n", mode(before.mode));
        }
        (_, Some(before)) if new_mode.is_some_and(|bits| mode(bits) != mode(before.mode)) => {
            extended =
                format!("old mode {}\nnew mode {}\n", mode(before.mode), mode(new_mode.unwrap_or_default()));
        }
        _ => {}
    }
    if kind == FileChangeKind::Rename
        && let Some(after) = change.after()
    {
        extended +=
            &format!("rename from {}\nrename to {}\n", quoted("", change.path()), quoted("", &after.path));
    }
    let mut out = Vec::new();
    if !extended.is_empty() || form == HeaderStyle::Git {
        out.extend_from_slice(format!("diff --git {old} {new}\n{extended}").as_bytes());
    }
    let content = change.after().map_or(size > 0, |after| !after.splices.is_empty());
    if content {
        let (old, new) = match kind {
            FileChangeKind::Create => ("/dev/null", new.as_str()),
            FileChangeKind::Delete => (old.as_str(), "/dev/null"),
            _ => (old.as_str(), new.as_str()),
        };
        out.extend_from_slice(format!("--- {old}\n+++ {new}\n").as_bytes());
    }
    out
}

fn quoted(prefix: &str, path: &ScopedPath) -> String {
    crate::quote::quoted(format!("{prefix}{path}").as_bytes())
}

/// A range of whole lines that contains changes; nothing changes outside of the regions.
struct Region {
    old: Range<usize>,
    /// Number of the first line, from 0.
    line: usize,
    new: Vec<u8>,
}

/// Consecutive lines that are removed, and the lines that are added in their place.
struct LineChange<'r> {
    old_line: usize,
    new_line: usize,
    old: Range<usize>,
    old_count: usize,
    new: &'r [u8],
}

impl LineChange<'_> {
    fn old_line_end(&self) -> usize {
        self.old_line + self.old_count
    }
}

fn regions(base: &[u8], splices: &[Splice]) -> Result<Vec<Region>, BadSplice> {
    let inserted: u64 = splices.iter().map(|splice| splice.insert.len() as u64).sum();
    let removed: u64 = splices.iter().map(|splice| splice.remove).sum();
    let size = (base.len() as u64).checked_sub(removed).ok_or(BadSplice)? + inserted;
    check_splices(splices, base.len() as u64, size)?;
    let mut regions: Vec<Region> = Vec::new();
    let (mut line, mut counted) = (0, 0);
    for splice in splices {
        let at = usize::try_from(splice.at).map_err(|_| BadSplice)?;
        let end = at + usize::try_from(splice.remove).map_err(|_| BadSplice)?;
        let upto = line_end(base, end);
        match regions.last_mut() {
            Some(last) if last.old.end > line_start(base, at) => {
                // The end of the last region was copied from the base; insert the splice there.
                let kept = last.old.end - at;
                last.new.truncate(last.new.len() - kept);
                last.new.extend_from_slice(&splice.insert);
                last.new.extend_from_slice(base.get(end..upto).ok_or(BadSplice)?);
                last.old.end = upto;
            }
            _ => {
                let from = line_start(base, at);
                line += memchr_iter(b'\n', base.get(counted..from).ok_or(BadSplice)?).count();
                counted = from;
                let mut new = base.get(from..at).ok_or(BadSplice)?.to_vec();
                new.extend_from_slice(&splice.insert);
                new.extend_from_slice(base.get(end..upto).ok_or(BadSplice)?);
                regions.push(Region { old: from..upto, line, new });
            }
        }
    }
    Ok(regions)
}

impl Region {
    /// Appends its line changes; returns by how many lines everything after it has moved.
    fn compare<'r>(&'r self, base: &[u8], shift: isize, hunks: &mut Vec<LineChange<'r>>) -> isize {
        let old = base.get(self.old.clone()).unwrap_or_default();
        if self.new.is_empty() && !old.is_empty() {
            // Everything is removed: there is nothing to compare.
            let removed = line_count(old);
            let new_line = self.line.saturating_add_signed(shift);
            let (old_line, old) = (self.line, self.old.clone());
            hunks.push(LineChange { old_line, new_line, old, old_count: removed, new: &[] });
            return shift - removed as isize;
        }
        let input = InternedInput::new(LineTokens(old), LineTokens(&self.new));
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let (old_starts, new_starts) = (line_starts(old), line_starts(&self.new));
        let at = |starts: &[usize], line: u32, end: usize| starts.get(line as usize).copied().unwrap_or(end);
        for hunk in diff.hunks() {
            let bytes =
                at(&old_starts, hunk.before.start, old.len())..at(&old_starts, hunk.before.end, old.len());
            let new = at(&new_starts, hunk.after.start, self.new.len())
                ..at(&new_starts, hunk.after.end, self.new.len());
            hunks.push(LineChange {
                old_line: self.line + hunk.before.start as usize,
                new_line: (self.line + hunk.after.start as usize).saturating_add_signed(shift),
                old: self.old.start + bytes.start..self.old.start + bytes.end,
                old_count: hunk.before.len(),
                new: self.new.get(new).unwrap_or_default(),
            });
        }
        shift + new_starts.len() as isize - old_starts.len() as isize
    }
}

/// Writes a group of line changes as one hunk, with the context lines around and between them.
fn format_hunk(base: &[u8], group: &[LineChange<'_>], detail: DiffDetail, before: usize) -> DiffHunk {
    let mut body = Vec::new();
    let mut splices = Vec::new();
    let (mut old_count, mut new_count) = (0, 0);
    let first = group.first();
    let (from, context_lines) = context_start(base, first.map_or(0, |hunk| hunk.old.start));
    let mut at = from;
    for hunk in group {
        let between = base.get(at..hunk.old.start).unwrap_or_default();
        let unchanged = LineRun::unchanged(between, detail).write(&mut body);
        let old = base.get(hunk.old.clone()).unwrap_or_default();
        let pair = LineRun::pair(old, hunk.new, detail, before + body.len());
        let [removed, added] = pair.map(|run| run.write(&mut body));
        old_count += unchanged + removed;
        new_count += unchanged + added;
        at = hunk.old.end;
        let remove = hunk.old.len() as u64;
        splices.push(Splice { at: hunk.old.start as u64, remove, insert: hunk.new.to_vec() });
    }
    let tail = base.get(at..context_end(base, at)).unwrap_or_default();
    let unchanged = LineRun::unchanged(tail, detail).write(&mut body);
    old_count += unchanged;
    new_count += unchanged;
    let start = |line: usize, count: usize| if count == 0 { line } else { line + 1 };
    let (old_line, new_line) =
        first.map_or((0, 0), |hunk| (hunk.old_line - context_lines, hunk.new_line - context_lines));
    let range = |line, count| match count {
        1 => format!("{}", start(line, 1)),
        count => format!("{},{count}", start(line, count)),
    };
    let mut text =
        format!("@@ -{} +{} @@\n", range(old_line, old_count), range(new_line, new_count)).into_bytes();
    text.extend_from_slice(&body);
    DiffHunk { text, splices: Splice::merged(splices) }
}

/// Start of the context before an offset, and its number of lines.
fn context_start(base: &[u8], at: usize) -> (usize, usize) {
    let (mut from, mut lines) = (at, 0);
    while from > 0 && lines < CONTEXT_LINES {
        from = line_start(base, from - 1);
        lines += 1;
    }
    (from, lines)
}

fn context_end(base: &[u8], at: usize) -> usize {
    let mut end = at;
    for _ in 0..CONTEXT_LINES {
        if end < base.len() {
            end = line_end(base, end);
        }
    }
    end
}

/// The start of the line that contains an offset.
pub fn line_start(text: &[u8], at: usize) -> usize {
    memrchr(b'\n', text.get(..at).unwrap_or_default()).map_or(0, |newline| newline + 1)
}

/// The end of the line that contains an offset, past its newline.
pub fn line_end(text: &[u8], at: usize) -> usize {
    memchr(b'\n', text.get(at..).unwrap_or_default()).map_or(text.len(), |newline| at + newline + 1)
}

fn line_count(text: &[u8]) -> usize {
    memchr_iter(b'\n', text).count() + usize::from(!text.is_empty() && !text.ends_with(b"\n"))
}

fn line_starts(text: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    if !text.is_empty() {
        starts.push(0);
        starts.extend(memchr_iter(b'\n', text).map(|at| at + 1).filter(|at| *at < text.len()));
    }
    starts
}

/// A text as lines with their line endings.
#[derive(Debug, Clone, Copy)]
pub struct LineTokens<'a>(pub &'a [u8]);

impl<'a> LineTokens<'a> {
    pub fn iter(self) -> LineIter<'a> {
        LineIter(self.0)
    }
}

/// Iterator over lines.
#[derive(Debug)]
pub struct LineIter<'a>(&'a [u8]);

impl<'a> Iterator for LineIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let (line, rest) = self.0.split_at_checked(line_end(self.0, 0))?;
        self.0 = rest;
        Some(line)
    }
}

impl<'a> TokenSource for LineTokens<'a> {
    type Token = &'a [u8];
    type Tokenizer = LineIter<'a>;

    fn tokenize(&self) -> Self::Tokenizer {
        self.iter()
    }

    fn estimate_tokens(&self) -> u32 {
        u32::try_from(self.0.len() / 40).unwrap_or(u32::MAX)
    }
}
