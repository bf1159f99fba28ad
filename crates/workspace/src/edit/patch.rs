//! Applies a patch to a file. Every line that the patch keeps or removes must be in the file, in order. A hunk may match
//! further up or down if there is exactly one such position, and that is noted. Nothing is fuzzy. Line endings are first
//! compared exactly; if that fails, their style is ignored and new lines take the file's style.

use std::ops::Range;
use std::sync::Arc;

use vambrace_core::change::{FileChange, Splice};
use vambrace_core::error::CallError;
use vambrace_core::path::{AskedPath, ScopedPath};

use super::base::{BaseContent, PathState, check_text};
use super::error::EditError;
use super::near_match::visible;
use super::normalized_text::LineEnding;
use super::{DraftNote, EditLimits, FileDraft, modified};
use crate::diff::LineTokens;
use crate::error::{FileError, display_path};
use crate::masking::{MaskedText, SecretFinder, TextSecrets};
use crate::workspace::Workspace;

mod parse;

pub(crate) use parse::parse;
use parse::{FilePatch, LineMark, PatchHunk};

/// The change that a patch makes to one file; `None` when it makes none.
pub(crate) fn draft(
    ws: &Workspace,
    file: &FilePatch,
    limits: &EditLimits,
    secrets: Option<&SecretFinder>,
    notes: &mut Vec<DraftNote>,
) -> Result<Option<FileDraft>, EditError> {
    let scoped =
        |name: &str| {
            AskedPath::new(name).parse().map_err(|CallError { message, suggestion, .. }| {
                EditError::PatchPath { line: file.line, why: message, suggestion }
            })
        };
    match (&file.old, &file.new) {
        (None, None) => Ok(None),
        (None, Some(new)) => {
            let path = free(ws, &scoped(new)?, limits)?;
            let content = added(file, &path)?;
            let (size, cap) = (content.len() as u64, limits.write_bytes);
            if size > cap {
                return Err(EditError::TooLarge { path: display_path(&path.to_string()), size, cap });
            }
            let mode = file.executable.filter(|program| *program).map(|_| 0o755);
            Ok(Some((FileChange::create(path, content, mode)?, Arc::default())))
        }
        (Some(old), None) => {
            let base = ws.base_content(&scoped(old)?, limits)?;
            let splices = splices(&base, &file.hunks, secrets, &mut Vec::new())?;
            let removed: u64 = splices.iter().map(|splice| splice.remove).sum();
            let left =
                removed != base.metadata.size || splices.iter().any(|splice| !splice.insert.is_empty());
            if left && base.metadata.size > 0 {
                let why = "the file has more lines than the patch removes".to_owned();
                return Err(EditError::HunkMismatch { hunk: 1, path: display_path(old), why });
            }
            Ok(Some((FileChange::delete(base.path, base.metadata)?, base.bytes)))
        }
        (Some(old), Some(new)) => {
            let base = ws.base_content(&scoped(old)?, limits)?;
            if !file.hunks.is_empty() {
                check_text(&base)?;
            }
            let to = if old == new { None } else { Some(free(ws, &scoped(new)?, limits)?) };
            let mut moved = Vec::new();
            let splices = splices(&base, &file.hunks, secrets, &mut moved)?;
            let path = to.as_ref().unwrap_or(&base.path);
            notes.extend(moved.iter().map(|(hunk, lines)| DraftNote::Moved {
                path: path.clone(),
                hunk: *hunk,
                lines: *lines,
            }));
            let mode = file.executable.map(|program| {
                let bits = base.metadata.mode;
                if program { bits | (bits & 0o444) >> 2 } else { bits & !0o111 }
            });
            Ok(modified(&base, splices, to, mode)?.map(|change| (change, base.bytes)))
        }
    }
}

fn free(ws: &Workspace, path: &ScopedPath, limits: &EditLimits) -> Result<ScopedPath, EditError> {
    match ws.path_state(path, limits)? {
        PathState::Vacant(path) => Ok(path),
        PathState::Existing(base) => {
            let why = "the patch creates a file that already exists".to_owned();
            Err(EditError::HunkMismatch { hunk: 1, path: display_path(&base.path.to_string()), why })
        }
    }
}

/// The content of a new file, which has only added lines.
fn added(file: &FilePatch, path: &ScopedPath) -> Result<Vec<u8>, EditError> {
    let mut content = Vec::new();
    for (mark, line) in file.hunks.iter().flat_map(|hunk| &hunk.lines) {
        if *mark != LineMark::Add {
            let why = "a new file has no lines to keep or remove".to_owned();
            return Err(EditError::HunkMismatch { hunk: 1, path: display_path(&path.to_string()), why });
        }
        content.extend_from_slice(line);
    }
    if memchr::memchr(0, &content).is_some() {
        return Err(FileError::Binary { path: display_path(&path.to_string()) }.into());
    }
    Ok(content)
}

/// How lines are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineEndMode {
    /// Byte for byte.
    Exact,
    /// `\r\n` is `\n`.
    Any,
}

/// The splices of all hunks. `moved` receives the number of each hunk that matched elsewhere, and its offset in lines.
fn splices(
    base: &BaseContent,
    hunks: &[PatchHunk],
    secrets: Option<&SecretFinder>,
    moved: &mut Vec<(usize, i64)>,
) -> Result<Vec<Splice>, EditError> {
    if hunks.is_empty() {
        return Ok(Vec::new());
    }
    let masked = MaskedText::new(&base.bytes, secrets);
    let exact = locate_hunks(base, hunks, &masked, LineEndMode::Exact, moved);
    // Without a line to compare, nothing shows that the patch uses the file's line endings.
    let no_context = !base.bytes.is_empty() && hunks.iter().any(|hunk| old_lines(hunk).next().is_none());
    if exact.is_ok() && !no_context {
        return exact;
    }
    moved.clear();
    locate_hunks(base, hunks, &masked, LineEndMode::Any, moved)
}

fn locate_hunks(
    base: &BaseContent,
    hunks: &[PatchHunk],
    masked: &MaskedText<'_>,
    ends: LineEndMode,
    moved: &mut Vec<(usize, i64)>,
) -> Result<Vec<Splice>, EditError> {
    let mut lines = Vec::new();
    let mut start = 0;
    for line in LineTokens(&base.bytes).iter() {
        lines.push(start..start + line.len());
        start += line.len();
    }
    let file =
        IndexedFile { base, lines, secrets: masked.secrets()?, ends, ending: LineEnding::of(&base.bytes) };
    let mut splices = Vec::new();
    let (mut free, mut shift) = (0, 0_isize);
    for (index, hunk) in hunks.iter().enumerate() {
        let count = old_lines(hunk).count();
        let stated = if count == 0 { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        let at = file.locate(hunk, index + 1, stated.saturating_add_signed(shift), free)?;
        let offset = at as i64 - stated as i64;
        if offset != 0 {
            moved.push((index + 1, offset));
        }
        shift = offset as isize;
        free = at + count;
        file.splice(hunk, at, &mut splices);
    }
    Ok(Splice::merged(splices))
}

fn old_lines(hunk: &PatchHunk) -> impl Iterator<Item = &Vec<u8>> {
    hunk.lines.iter().filter(|(mark, _)| *mark != LineMark::Add).map(|(_, line)| line)
}

struct IndexedFile<'a> {
    base: &'a BaseContent,
    lines: Vec<Range<usize>>,
    /// A line that overlaps one of them never matches a line of a patch.
    secrets: &'a TextSecrets,
    ends: LineEndMode,
    ending: LineEnding,
}

impl IndexedFile<'_> {
    fn line(&self, number: usize) -> Option<&[u8]> {
        self.lines.get(number).and_then(|range| self.base.bytes.get(range.clone()))
    }

    fn is_secret(&self, number: usize) -> bool {
        self.lines.get(number).is_some_and(|line| self.secrets.overlaps(line))
    }

    fn same(&self, number: usize, line: &[u8], wanted: &[u8]) -> bool {
        if self.is_secret(number) {
            return false;
        }
        match self.ends {
            LineEndMode::Exact => line == wanted,
            LineEndMode::Any => plain(line) == plain(wanted),
        }
    }

    fn fits(&self, hunk: &PatchHunk, at: usize) -> bool {
        old_lines(hunk)
            .enumerate()
            .all(|(n, wanted)| self.line(at + n).is_some_and(|line| self.same(at + n, line, wanted)))
    }

    /// The line where a hunk applies: the stated one, or else the only other match.
    fn locate(
        &self,
        hunk: &PatchHunk,
        number: usize,
        stated: usize,
        free: usize,
    ) -> Result<usize, EditError> {
        let count = old_lines(hunk).count();
        let fail = |why: String| EditError::HunkMismatch {
            hunk: number,
            path: display_path(&self.base.path.to_string()),
            why,
        };
        if count == 0 {
            let inside = (free..=self.lines.len()).contains(&stated);
            return if inside {
                Ok(stated)
            } else {
                Err(fail(format!("the file has {} lines", self.lines.len())))
            };
        }
        if stated >= free && self.fits(hunk, stated) {
            return Ok(stated);
        }
        let last = self.lines.len().saturating_sub(count);
        let mut places = (free..=last).filter(|at| self.fits(hunk, *at));
        match (places.next(), places.next()) {
            (Some(only), None) => Ok(only),
            (Some(one), Some(other)) => Err(fail(format!(
                "it does not match at line {}, and matches at several other lines, such as {} and {}",
                stated + 1,
                one + 1,
                other + 1
            ))),
            (None, _) => Err(fail(self.difference(hunk, stated))),
        }
    }

    fn difference(&self, hunk: &PatchHunk, stated: usize) -> String {
        let text = |line: &[u8]| visible(&String::from_utf8_lossy(plain(line).0));
        for (n, wanted) in old_lines(hunk).enumerate() {
            match self.line(stated + n) {
                None => {
                    return format!(
                        "line {} is past the end of the file, the patch has `{}`",
                        stated + n + 1,
                        text(wanted)
                    );
                }
                Some(_) if self.is_secret(stated + n) => {
                    return format!(
                        "line {} contains a secret and cannot be matched by a patch",
                        stated + n + 1
                    );
                }
                Some(line) if self.same(stated + n, line, wanted) => {}
                Some(line) if plain(line).0 == plain(wanted).0 => {
                    return format!("line {} differs in its final newline", stated + n + 1);
                }
                Some(line) => {
                    return format!(
                        "line {} is `{}`, the patch has `{}`",
                        stated + n + 1,
                        text(line),
                        text(wanted)
                    );
                }
            }
        }
        "its lines are before those of the previous hunk".to_owned()
    }

    fn splice(&self, hunk: &PatchHunk, at: usize, splices: &mut Vec<Splice>) {
        let offset = |line: usize| self.lines.get(line).map_or(self.base.bytes.len(), |range| range.start);
        let mut line = at;
        let mut lines = hunk.lines.iter().peekable();
        while let Some((mark, _)) = lines.peek() {
            if *mark == LineMark::Keep {
                lines.next();
                line += 1;
                continue;
            }
            let (from, mut gone, mut come) = (offset(line), 0, Vec::new());
            while let Some((mark, text)) = lines.next_if(|(mark, _)| *mark != LineMark::Keep) {
                match mark {
                    LineMark::Add => come.extend_from_slice(text),
                    _ => gone += 1,
                }
            }
            let end = offset(line + gone);
            let removed = self.base.bytes.get(from..end).unwrap_or_default();
            let insert = match self.ends {
                LineEndMode::Exact => come,
                LineEndMode::Any => self.ending.fit(&come, removed),
            };
            // The unchanged part of a long line is not part of the splice.
            let own = Splice::between(removed, &insert).into_iter();
            splices.extend(own.map(|splice| Splice { at: splice.at + from as u64, ..splice }));
            line += gone;
        }
    }
}

/// A line without its line ending, and whether it has one.
fn plain(line: &[u8]) -> (&[u8], bool) {
    match line.strip_suffix(b"\n") {
        Some(body) => (body.strip_suffix(b"\r").unwrap_or(body), true),
        None => (line, false),
    }
}
