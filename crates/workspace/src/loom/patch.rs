//! Working a patch into a file. Every line that the patch keeps or removes must be in the file, in order, as it says; a
//! hunk may be found further up or down when there is exactly one such place, and that is noted. Nothing is fuzzy. Line
//! ends are compared as they are first; when that fails, their style is ignored and new lines take the file's.

use std::ops::Range;
use std::sync::Arc;

use vambrace_core::change::{FileChange, Splice};
use vambrace_core::error::CallError;
use vambrace_core::path::{AskedPath, ScopedPath};

use super::base::{Base, Spot, check_text};
use super::fault::LoomFault;
use super::near::visible;
use super::veil::{Secrets, Veil, meet};
use super::view::Ending;
use super::{Drafted, LoomLimits, Note, modified};
use crate::diff::Lines;
use crate::fault::{FileFault, shown};
use crate::workspace::Workspace;

mod parse;

pub(crate) use parse::parse;
use parse::{FilePatch, Hunk, Mark};

/// The change that a patch makes to one file; `None` when it makes none.
pub(crate) fn draft(
    ws: &Workspace,
    file: &FilePatch,
    limits: &LoomLimits,
    secrets: Secrets<'_>,
    notes: &mut Vec<Note>,
) -> Result<Option<Drafted>, LoomFault> {
    let scoped =
        |name: &str| {
            AskedPath::new(name).parse().map_err(|CallError { message, suggestion, .. }| {
                LoomFault::PatchPath { line: file.line, why: message, suggestion }
            })
        };
    match (&file.old, &file.new) {
        (None, None) => Ok(None),
        (None, Some(new)) => {
            let path = free(ws, &scoped(new)?, limits)?;
            let content = added(file, &path)?;
            let (size, cap) = (content.len() as u64, limits.write_bytes);
            if size > cap {
                return Err(LoomFault::TooLarge { path: shown(&path.to_string()), size, cap });
            }
            let mode = file.executable.filter(|program| *program).map(|_| 0o755);
            Ok(Some((FileChange::create(path, content, mode)?, Arc::default())))
        }
        (Some(old), None) => {
            let base = ws.base(&scoped(old)?, limits)?;
            let splices = splices(&base, &file.hunks, secrets, &mut Vec::new())?;
            let removed: u64 = splices.iter().map(|splice| splice.remove).sum();
            let left = removed != base.facts.size || splices.iter().any(|splice| !splice.insert.is_empty());
            if left && base.facts.size > 0 {
                let why = "the file holds more than the patch removes".to_owned();
                return Err(LoomFault::HunkMismatch { hunk: 1, path: shown(old), why });
            }
            Ok(Some((FileChange::delete(base.path, base.facts)?, base.bytes)))
        }
        (Some(old), Some(new)) => {
            let base = ws.base(&scoped(old)?, limits)?;
            if !file.hunks.is_empty() {
                check_text(&base)?;
            }
            let to = if old == new { None } else { Some(free(ws, &scoped(new)?, limits)?) };
            let mut moved = Vec::new();
            let splices = splices(&base, &file.hunks, secrets, &mut moved)?;
            let path = to.as_ref().unwrap_or(&base.path);
            notes.extend(moved.iter().map(|(hunk, lines)| Note::Moved {
                path: path.clone(),
                hunk: *hunk,
                lines: *lines,
            }));
            let mode = file.executable.map(|program| {
                let bits = base.facts.mode;
                if program { bits | (bits & 0o444) >> 2 } else { bits & !0o111 }
            });
            Ok(modified(&base, splices, to, mode)?.map(|change| (change, base.bytes)))
        }
    }
}

fn free(ws: &Workspace, path: &ScopedPath, limits: &LoomLimits) -> Result<ScopedPath, LoomFault> {
    match ws.spot(path, limits)? {
        Spot::Free(path) => Ok(path),
        Spot::File(base) => {
            let why = "the patch makes a file that is already there".to_owned();
            Err(LoomFault::HunkMismatch { hunk: 1, path: shown(&base.path.to_string()), why })
        }
    }
}

/// The content of a new file: nothing but added lines.
fn added(file: &FilePatch, path: &ScopedPath) -> Result<Vec<u8>, LoomFault> {
    let mut content = Vec::new();
    for (mark, line) in file.hunks.iter().flat_map(|hunk| &hunk.lines) {
        if *mark != Mark::Add {
            let why = "a new file has no lines to keep or remove".to_owned();
            return Err(LoomFault::HunkMismatch { hunk: 1, path: shown(&path.to_string()), why });
        }
        content.extend_from_slice(line);
    }
    if memchr::memchr(0, &content).is_some() {
        return Err(FileFault::Binary { path: shown(&path.to_string()) }.into());
    }
    Ok(content)
}

/// How lines are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Byte for byte.
    Exact,
    /// `\r\n` is `\n`.
    Any,
}

/// The splices of all hunks; `moved` gets the number of each hunk that was found elsewhere, and by how many lines.
fn splices(
    base: &Base,
    hunks: &[Hunk],
    secrets: Secrets<'_>,
    moved: &mut Vec<(usize, i64)>,
) -> Result<Vec<Splice>, LoomFault> {
    if hunks.is_empty() {
        return Ok(Vec::new());
    }
    let veil = Veil::new(&base.bytes, secrets);
    let exact = worked_in(base, hunks, &veil, Ends::Exact, moved);
    // Without a line to compare, nothing shows that the patch knows the file's line ends.
    let blind = !base.bytes.is_empty() && hunks.iter().any(|hunk| olds(hunk).next().is_none());
    if exact.is_ok() && !blind {
        return exact;
    }
    moved.clear();
    worked_in(base, hunks, &veil, Ends::Any, moved)
}

fn worked_in(
    base: &Base,
    hunks: &[Hunk],
    veil: &Veil<'_>,
    ends: Ends,
    moved: &mut Vec<(usize, i64)>,
) -> Result<Vec<Splice>, LoomFault> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in Lines(&base.bytes).iter() {
        lines.push(start..start + line.len());
        start += line.len();
    }
    let file = Indexed { base, lines, secrets: veil.spans()?, ends, ending: Ending::of(&base.bytes) };
    let mut splices = Vec::new();
    let (mut free, mut shift) = (0, 0_isize);
    for (index, hunk) in hunks.iter().enumerate() {
        let count = olds(hunk).count();
        let told = if count == 0 { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        let at = file.locate(hunk, index + 1, told.saturating_add_signed(shift), free)?;
        let offset = at as i64 - told as i64;
        if offset != 0 {
            moved.push((index + 1, offset));
        }
        shift = offset as isize;
        free = at + count;
        file.splice(hunk, at, &mut splices);
    }
    Ok(Splice::merged(splices))
}

fn olds(hunk: &Hunk) -> impl Iterator<Item = &Vec<u8>> {
    hunk.lines.iter().filter(|(mark, _)| *mark != Mark::Add).map(|(_, line)| line)
}

struct Indexed<'a> {
    base: &'a Base,
    lines: Vec<Range<usize>>,
    /// No line with one of them is what a patch has, whatever that is.
    secrets: &'a [Range<usize>],
    ends: Ends,
    ending: Ending,
}

impl Indexed<'_> {
    fn line(&self, number: usize) -> Option<&[u8]> {
        self.lines.get(number).and_then(|range| self.base.bytes.get(range.clone()))
    }

    fn is_secret(&self, number: usize) -> bool {
        self.lines.get(number).is_some_and(|line| meet(self.secrets, line))
    }

    fn same(&self, number: usize, line: &[u8], wanted: &[u8]) -> bool {
        if self.is_secret(number) {
            return false;
        }
        match self.ends {
            Ends::Exact => line == wanted,
            Ends::Any => plain(line) == plain(wanted),
        }
    }

    fn fits(&self, hunk: &Hunk, at: usize) -> bool {
        olds(hunk)
            .enumerate()
            .all(|(n, wanted)| self.line(at + n).is_some_and(|line| self.same(at + n, line, wanted)))
    }

    /// Where a hunk applies: where it says, or else at the only other place.
    fn locate(&self, hunk: &Hunk, number: usize, told: usize, free: usize) -> Result<usize, LoomFault> {
        let count = olds(hunk).count();
        let fail = |why: String| LoomFault::HunkMismatch {
            hunk: number,
            path: shown(&self.base.path.to_string()),
            why,
        };
        if count == 0 {
            let inside = (free..=self.lines.len()).contains(&told);
            return if inside {
                Ok(told)
            } else {
                Err(fail(format!("the file has {} lines", self.lines.len())))
            };
        }
        if told >= free && self.fits(hunk, told) {
            return Ok(told);
        }
        let last = self.lines.len().saturating_sub(count);
        let mut places = (free..=last).filter(|at| self.fits(hunk, *at));
        match (places.next(), places.next()) {
            (Some(only), None) => Ok(only),
            (Some(one), Some(other)) => Err(fail(format!(
                "not in line {} where it says, and at several other places, such as lines {} and {}",
                told + 1,
                one + 1,
                other + 1
            ))),
            (None, _) => Err(fail(self.difference(hunk, told))),
        }
    }

    fn difference(&self, hunk: &Hunk, told: usize) -> String {
        let text = |line: &[u8]| visible(&String::from_utf8_lossy(plain(line).0));
        for (n, wanted) in olds(hunk).enumerate() {
            match self.line(told + n) {
                None => {
                    return format!(
                        "line {} is past the end of the file, the patch has `{}`",
                        told + n + 1,
                        text(wanted)
                    );
                }
                Some(_) if self.is_secret(told + n) => {
                    return format!("line {} holds a secret, and no patch can name it", told + n + 1);
                }
                Some(line) if self.same(told + n, line, wanted) => {}
                Some(line) if plain(line).0 == plain(wanted).0 => {
                    return format!("line {} differs in whether a newline ends it", told + n + 1);
                }
                Some(line) => {
                    return format!(
                        "line {} is `{}`, the patch has `{}`",
                        told + n + 1,
                        text(line),
                        text(wanted)
                    );
                }
            }
        }
        "its lines are before those of the hunk above it".to_owned()
    }

    fn splice(&self, hunk: &Hunk, at: usize, splices: &mut Vec<Splice>) {
        let offset = |line: usize| self.lines.get(line).map_or(self.base.bytes.len(), |range| range.start);
        let mut line = at;
        let mut lines = hunk.lines.iter().peekable();
        while let Some((mark, _)) = lines.peek() {
            if *mark == Mark::Keep {
                lines.next();
                line += 1;
                continue;
            }
            let (from, mut gone, mut come) = (offset(line), 0, Vec::new());
            while let Some((mark, text)) = lines.next_if(|(mark, _)| *mark != Mark::Keep) {
                match mark {
                    Mark::Add => come.extend_from_slice(text),
                    _ => gone += 1,
                }
            }
            let end = offset(line + gone);
            let removed = self.base.bytes.get(from..end).unwrap_or_default();
            let insert = match self.ends {
                Ends::Exact => come,
                Ends::Any => self.ending.fit(&come, removed),
            };
            // What a long line keeps is not new.
            let own = Splice::between(removed, &insert).into_iter();
            splices.extend(own.map(|splice| Splice { at: splice.at + from as u64, ..splice }));
            line += gone;
        }
    }
}

/// A line without its end, and whether it has one.
fn plain(line: &[u8]) -> (&[u8], bool) {
    match line.strip_suffix(b"\n") {
        Some(body) => (body.strip_suffix(b"\r").unwrap_or(body), true),
        None => (line, false),
    }
}
