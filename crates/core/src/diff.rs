//! Unified diffs. Where the splices of a change are known, only the lines they touch are compared, so the diff of one
//! edit costs little however long the file is; where they are not, one splice between the two contents is. Inside that,
//! `imara-diff`'s histogram finds what a reader would call the change.
//!
//! Bytes in, bytes out: line ends, byte order marks and odd encodings come through as they are. Making the text harmless
//! for a terminal is not done here.

use std::ops::Range;

use crate::change::{BadSplice, ChangeSet, FileChange, Kind, Splice, check_splices};
use crate::digest::Digest;
use crate::path::ScopedPath;
use imara_diff::{Algorithm, Diff, InternedInput, TokenSource};
use memchr::{memchr, memchr_iter, memrchr};

mod gap;

pub use gap::{Gap, Showing};
use gap::{Rest, Run};

/// Lines shown around a change.
const CONTEXT: usize = 3;
/// B2: characters of a preview.
pub const PREVIEW_CHARS: usize = 8000;

/// A piece of a diff that stands for itself: it can be shown, taken or left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// From `@@` to the next block.
    pub text: Vec<u8>,
    /// What it does to the old content, in whole lines.
    pub splices: Vec<Splice>,
}

/// The diff of one file, with its header; empty when nothing changes.
pub fn of_file(change: &FileChange, base: &[u8]) -> Result<Vec<u8>, BadSplice> {
    let mut out = Vec::new();
    write(&mut out, change, base, Form::Plain, Showing::Whole)?;
    Ok(out)
}

/// Whether every file starts with a line of git's own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Only where it must.
    Plain,
    /// So that the headers of several files cannot run together.
    Git,
}

fn write(
    out: &mut Vec<u8>,
    change: &FileChange,
    base: &[u8],
    form: Form,
    showing: Showing,
) -> Result<(), BadSplice> {
    out.extend(header(change, form));
    let binary = |bytes: &[u8]| memchr(0, bytes).is_some();
    match change.after() {
        None if binary(base) => out.extend_from_slice(b"Binary file is deleted\n"),
        None if base.is_empty() => {}
        None => {
            let all = [Splice { at: 0, remove: base.len() as u64, insert: Vec::new() }];
            write_blocks(out, base, &all, showing)?;
        }
        Some(after) if after.splices.iter().any(|splice| binary(&splice.insert)) => {
            out.extend_from_slice(b"Binary files differ\n");
        }
        Some(after) => write_blocks(out, base, &after.splices, showing)?,
    }
    Ok(())
}

/// The diff of several files; `base` gives the old content of each, nothing for a new one.
pub fn of_changes<'a>(
    changes: &ChangeSet,
    base: impl Fn(&FileChange) -> Option<&'a [u8]>,
    showing: Showing,
) -> Result<Vec<u8>, BadSplice> {
    let form = if changes.files().len() > 1 { Form::Git } else { Form::Plain };
    let mut out = Vec::new();
    for change in changes.files() {
        write(&mut out, change, base(change).unwrap_or_default(), form, showing)?;
    }
    Ok(out)
}

/// The hunks between two contents, without a header.
#[must_use]
pub fn between(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // A splice made of the two contents fits the first.
    let _ = write_blocks(&mut out, old, &Splice::between(old, new), Showing::Whole);
    out
}

/// The first 8000 characters; what is cut is said in the last line. What is not UTF-8 is shown as such.
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

/// Whether a preview shows all of a change: nothing is cut, and nothing was left out before.
#[must_use]
pub fn previewed_whole(diff: &str) -> bool {
    preview(diff.as_bytes()) == diff && !diff.lines().any(|line| Gap::told(line.as_bytes()).is_some())
}

/// How many hunks a diff only counts: with what comes in them, nobody has seen them.
#[must_use]
pub fn unseen_hunks(diff: &str) -> u64 {
    diff.lines().filter_map(|line| Gap::told(line.as_bytes())).map(|gap| gap.hunks).sum()
}

/// What names a diff (B2: `patch_hash`).
#[must_use]
pub fn patch_hash(diff: &[u8]) -> Digest {
    Digest::of(diff)
}

/// The hunks that a list of splices amounts to.
pub fn blocks(base: &[u8], splices: &[Splice]) -> Result<Vec<Block>, BadSplice> {
    let mut blocks = Vec::new();
    each_block(base, splices, (Showing::Whole, 0), &mut |block| blocks.push(block))?;
    Ok(blocks)
}

/// Every hunk, behind so much of the diff.
fn each_block(
    base: &[u8],
    splices: &[Splice],
    (showing, mut before): (Showing, usize),
    take: &mut dyn FnMut(Block),
) -> Result<(), BadSplice> {
    let regions = regions(base, splices)?;
    let mut hunks = Vec::new();
    let mut shift = 0_isize;
    for region in &regions {
        shift = region.compare(base, shift, &mut hunks);
    }
    let mut rest = hunks.as_slice();
    while let Some(first) = rest.first() {
        let mut last = first;
        let mut taken = 1;
        while let Some(next) = rest.get(taken)
            && next.old_line - last.old_line_end() <= CONTEXT * 2
        {
            last = next;
            taken += 1;
        }
        let (group, others) = rest.split_at_checked(taken).unwrap_or((rest, &[]));
        let block = block(base, group, showing, before);
        before += block.text.len();
        take(block);
        rest = others;
    }
    Ok(())
}

fn write_blocks(
    out: &mut Vec<u8>,
    base: &[u8],
    splices: &[Splice],
    showing: Showing,
) -> Result<(), BadSplice> {
    let mut rest = Rest::new();
    each_block(base, splices, (showing, out.len()), &mut |block| match Rest::begins(out, showing) {
        true => rest.take(&block.text),
        false => out.extend_from_slice(&block.text),
    })?;
    rest.tell(out);
    Ok(())
}

/// `---` and `+++`; the extended lines of git where those two cannot say it.
fn header(change: &FileChange, form: Form) -> Vec<u8> {
    let old = quoted("a/", change.path());
    let new = quoted("b/", change.after().map_or(change.path(), |after| &after.path));
    let mode = |bits: u32| if bits & 0o111 == 0 { "100644" } else { "100755" };
    let kind = change.kind();
    let size = change.after().map_or(0, |after| after.size).max(change.before().map_or(0, |b| b.size));
    let new_mode = change.after().and_then(|after| after.mode);
    let mut extended = String::new();
    match (kind, change.before()) {
        (Kind::Create, _)
            if size == 0 || form == Form::Git || new_mode.is_some_and(|bits| bits & 0o111 != 0) =>
        {
            extended = format!("new file mode {}\n", mode(new_mode.unwrap_or(0o644)));
        }
        (Kind::Delete, Some(before)) if size == 0 || form == Form::Git => {
            extended = format!("deleted file mode {}\n", mode(before.mode));
        }
        (_, Some(before)) if new_mode.is_some_and(|bits| mode(bits) != mode(before.mode)) => {
            extended =
                format!("old mode {}\nnew mode {}\n", mode(before.mode), mode(new_mode.unwrap_or_default()));
        }
        _ => {}
    }
    if kind == Kind::Rename
        && let Some(after) = change.after()
    {
        extended +=
            &format!("rename from {}\nrename to {}\n", quoted("", change.path()), quoted("", &after.path));
    }
    let mut out = Vec::new();
    if !extended.is_empty() || form == Form::Git {
        out.extend_from_slice(format!("diff --git {old} {new}\n{extended}").as_bytes());
    }
    let content = change.after().map_or(size > 0, |after| !after.splices.is_empty());
    if content {
        let (old, new) = match kind {
            Kind::Create => ("/dev/null", new.as_str()),
            Kind::Delete => (old.as_str(), "/dev/null"),
            _ => (old.as_str(), new.as_str()),
        };
        out.extend_from_slice(format!("--- {old}\n+++ {new}\n").as_bytes());
    }
    out
}

fn quoted(prefix: &str, path: &ScopedPath) -> String {
    crate::quote::quoted(format!("{prefix}{path}").as_bytes())
}

/// A stretch of whole lines outside of which nothing changes.
struct Region {
    old: Range<usize>,
    /// Number of the first line, from 0.
    line: usize,
    new: Vec<u8>,
}

/// Lines that go and lines that come.
struct Hunk<'r> {
    old_line: usize,
    new_line: usize,
    old: Range<usize>,
    old_count: usize,
    new: &'r [u8],
}

impl Hunk<'_> {
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
                // The tail of the last region was taken over from the base; put the splice into it.
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
    /// Appends its hunks; returns by how many lines everything after it has moved.
    fn compare<'r>(&'r self, base: &[u8], shift: isize, hunks: &mut Vec<Hunk<'r>>) -> isize {
        let old = base.get(self.old.clone()).unwrap_or_default();
        if self.new.is_empty() && !old.is_empty() {
            // Nothing to compare it with, however long it is.
            let gone = line_count(old);
            let new_line = self.line.saturating_add_signed(shift);
            let (old_line, old) = (self.line, self.old.clone());
            hunks.push(Hunk { old_line, new_line, old, old_count: gone, new: &[] });
            return shift - gone as isize;
        }
        let input = InternedInput::new(Lines(old), Lines(&self.new));
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let (old_starts, new_starts) = (line_starts(old), line_starts(&self.new));
        let at = |starts: &[usize], line: u32, end: usize| starts.get(line as usize).copied().unwrap_or(end);
        for hunk in diff.hunks() {
            let bytes =
                at(&old_starts, hunk.before.start, old.len())..at(&old_starts, hunk.before.end, old.len());
            let new = at(&new_starts, hunk.after.start, self.new.len())
                ..at(&new_starts, hunk.after.end, self.new.len());
            hunks.push(Hunk {
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

/// Prints a group of hunks with the lines around and between them.
fn block(base: &[u8], group: &[Hunk<'_>], showing: Showing, before: usize) -> Block {
    let mut body = Vec::new();
    let mut splices = Vec::new();
    let (mut old_count, mut new_count) = (0, 0);
    let first = group.first();
    let (from, led) = back(base, first.map_or(0, |hunk| hunk.old.start));
    let mut at = from;
    for hunk in group {
        let between = base.get(at..hunk.old.start).unwrap_or_default();
        let kept = Run::kept(between, showing).write(&mut body);
        let old = base.get(hunk.old.clone()).unwrap_or_default();
        let pair = Run::pair(old, hunk.new, showing, before + body.len());
        let [gone, come] = pair.map(|run| run.write(&mut body));
        old_count += kept + gone;
        new_count += kept + come;
        at = hunk.old.end;
        let remove = hunk.old.len() as u64;
        splices.push(Splice { at: hunk.old.start as u64, remove, insert: hunk.new.to_vec() });
    }
    let tail = base.get(at..forth(base, at)).unwrap_or_default();
    let kept = Run::kept(tail, showing).write(&mut body);
    old_count += kept;
    new_count += kept;
    let start = |line: usize, count: usize| if count == 0 { line } else { line + 1 };
    let (old_line, new_line) = first.map_or((0, 0), |hunk| (hunk.old_line - led, hunk.new_line - led));
    let range = |line, count| match count {
        1 => format!("{}", start(line, 1)),
        count => format!("{},{count}", start(line, count)),
    };
    let mut text =
        format!("@@ -{} +{} @@\n", range(old_line, old_count), range(new_line, new_count)).into_bytes();
    text.extend_from_slice(&body);
    Block { text, splices: Splice::merged(splices) }
}

/// Where the context before an offset begins, and how many lines it has.
fn back(base: &[u8], at: usize) -> (usize, usize) {
    let (mut from, mut lines) = (at, 0);
    while from > 0 && lines < CONTEXT {
        from = line_start(base, from - 1);
        lines += 1;
    }
    (from, lines)
}

fn forth(base: &[u8], at: usize) -> usize {
    let mut end = at;
    for _ in 0..CONTEXT {
        if end < base.len() {
            end = line_end(base, end);
        }
    }
    end
}

/// The start of the line that an offset lies in.
pub fn line_start(text: &[u8], at: usize) -> usize {
    memrchr(b'\n', text.get(..at).unwrap_or_default()).map_or(0, |newline| newline + 1)
}

/// The end of the line that an offset lies in, past its newline.
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

/// A text as lines with their ends.
#[derive(Debug, Clone, Copy)]
pub struct Lines<'a>(pub &'a [u8]);

impl<'a> Lines<'a> {
    pub fn iter(self) -> LineIter<'a> {
        LineIter(self.0)
    }
}

/// The lines, one by one.
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

impl<'a> TokenSource for Lines<'a> {
    type Token = &'a [u8];
    type Tokenizer = LineIter<'a>;

    fn tokenize(&self) -> Self::Tokenizer {
        self.iter()
    }

    fn estimate_tokens(&self) -> u32 {
        u32::try_from(self.0.len() / 40).unwrap_or(u32::MAX)
    }
}
