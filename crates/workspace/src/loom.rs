//! Loom, the edit engine: from the arguments of write_file, edit_file, apply_patch and delete_file to a ChangeSet and its
//! diff. Nothing is written here. Only the bytes that matched change, so encodings, line ends, byte order marks and a
//! missing last newline elsewhere stay what they are; what does not match exactly is explained, never guessed.
//!
//! Deliberately absent: policy (whether a file may be created there), secrets, storage, applying (`apply`).

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use vambrace_core::change::{BadChange, BadSplice, ChangeSet, FileChange, Splice, Target, pieces, spliced};
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use crate::diff;
use crate::fault::shown;
use crate::workspace::Workspace;

mod base;
mod exact;
mod fault;
mod found;
mod language;
mod near;
mod patch;
mod pattern;
mod reparse;
mod syntax;
mod template;
mod veil;
mod view;
mod weave;

pub(crate) use base::read_all;
use base::{Base, Spot, check_base_hash, check_text};
pub use fault::{LoomFault, Near, Place};
use found::{Matches, Parsed};
use language::Language;
pub use syntax::ParseReport;
use syntax::{Before, Changed, Parsing, Wanted};
pub use veil::{SECRET_REACH, Secrets};
use veil::{Veil, cut};
pub(crate) use veil::{blot, meet};
use view::Ending;

/// Folders that a new file may lie below.
const MAX_PATH_NAMES: usize = 64;

/// What an edit does with a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Content in its place.
    Replace,
    /// Content right behind it, as it is: line ends are part of the content.
    AppendAfter,
    /// Content right before it.
    PrependBefore,
    /// Nothing in its place.
    Delete,
}

/// How a match is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchMode {
    /// The text as it is, whatever its line ends.
    Exact,
    /// A regular expression; `content` may name its groups (`$1`, `${name}`, `\1`).
    Regex,
    /// A pattern of ast-grep; `content` may name its variables (`$NAME`).
    Ast,
}

/// One edit.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// What to do.
    pub operation: Operation,
    /// How to find.
    pub match_mode: MatchMode,
    /// What to find.
    pub spec: String,
    /// What to put in.
    pub content: String,
    /// How many matches there must be.
    pub count: usize,
    /// The language of an ast pattern; that of the file's extension when left out.
    pub language: Option<String>,
}

impl EditRequest {
    /// One exact match replaced.
    pub fn replace(spec: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            operation: Operation::Replace,
            match_mode: MatchMode::Exact,
            spec: spec.into(),
            content: content.into(),
            count: 1,
            language: None,
        }
    }
}

/// What write_file does with a file that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// The content instead of what is there, byte for byte as given.
    Write,
    /// The content behind what is there, with the file's line ends.
    Append,
}

/// How much is allowed.
#[derive(Debug, Clone)]
pub struct LoomLimits {
    /// Of the content of one write (B4).
    pub write_bytes: u64,
    /// Of a file that is changed.
    pub file_bytes: u64,
    /// T10, for 8 MiB of text.
    pub regex_budget: Duration,
    /// For parsing a file and matching a pattern of syntax.
    pub ast_budget: Duration,
    /// Larger files are not parsed to see whether they got worse.
    pub parse_bytes: u64,
}

impl Default for LoomLimits {
    fn default() -> Self {
        Self {
            write_bytes: 512 * 1024,
            file_bytes: 100 * 1024 * 1024,
            regex_budget: Duration::from_millis(100),
            ast_budget: Duration::from_secs(5),
            parse_bytes: 256 * 1024,
        }
    }
}

/// Something a reader of a draft should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A hunk of a patch was found elsewhere than it says.
    Moved {
        /// The file.
        path: ScopedPath,
        /// Of this file, from 1.
        hunk: usize,
        /// By how many lines; negative is further up.
        lines: i64,
    },
    /// How the file parses.
    Parse {
        /// The file.
        path: ScopedPath,
        /// Before and after.
        report: ParseReport,
    },
}

/// A change that was worked out and not made.
#[derive(Clone)]
pub struct Draft {
    /// What would change; empty when everything is already as asked.
    pub changes: ChangeSet,
    /// The same as a unified diff, without the middle of long runs of lines that go.
    pub diff: Vec<u8>,
    /// What a reader should know.
    pub notes: Vec<Note>,
    /// What the files hold now, in the order of `changes`; nothing for a new one.
    pub bases: Vec<Arc<Vec<u8>>>,
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without what the files hold.
        let changes = self.changes.summary();
        f.debug_struct("Draft").field("changes", &changes).field("notes", &self.notes).finish_non_exhaustive()
    }
}

impl Draft {
    /// B2: at most 8000 characters.
    #[must_use]
    pub fn preview(&self) -> String {
        diff::preview(&self.diff)
    }

    /// B2: the hash of the diff. What it leaves out is bound by the hash of the file.
    #[must_use]
    pub fn patch_hash(&self) -> Digest {
        diff::patch_hash(&self.diff)
    }
}

/// A change and the content it starts from.
type Drafted = (FileChange, Arc<Vec<u8>>);

impl Workspace {
    /// write_file: a new file, or new or more content for one (T7, A2).
    pub fn draft_write(
        &self,
        path: &ScopedPath,
        content: &[u8],
        mode: WriteMode,
        base_hash: Option<Digest>,
        limits: &LoomLimits,
    ) -> Result<Draft, LoomFault> {
        let (size, cap) = (content.len() as u64, limits.write_bytes);
        if size > cap {
            return Err(LoomFault::TooLarge { path: shown(&path.to_string()), size, cap });
        }
        match self.spot(path, limits)? {
            Spot::Free(path) => {
                if let Some(expected) = base_hash {
                    let now = Digest::of(b"");
                    return Err(LoomFault::Stale { path: shown(&path.to_string()), expected, now });
                }
                let change = FileChange::create(path, content.to_vec(), None)?;
                self.drafted(vec![(change, Arc::default())], Vec::new(), limits)
            }
            Spot::File(base) => {
                check_base_hash(&base, base_hash)?;
                check_text(&base)?;
                let splices = match mode {
                    WriteMode::Write => Splice::between(&base.bytes, content),
                    WriteMode::Append => {
                        let insert = Ending::of(&base.bytes).fit(content, b"");
                        let splice = Splice { at: base.bytes.len() as u64, remove: 0, insert };
                        Splice::merged(vec![splice])
                    }
                };
                self.drafted_splices(base, splices, None, limits)
            }
        }
    }

    /// edit_file: all edits or none (T8, T9).
    pub fn draft_edit(
        &self,
        path: &ScopedPath,
        edits: &[EditRequest],
        base_hash: Option<Digest>,
        limits: &LoomLimits,
    ) -> Result<Draft, LoomFault> {
        self.draft_edit_veiled(path, edits, base_hash, limits, &|_| Ok(Vec::new()))
    }

    /// The same for somebody who may not know the secrets of the file (T21): a match that cuts into one is none, and an
    /// exact one that holds one neither.
    pub fn draft_edit_veiled(
        &self,
        path: &ScopedPath,
        edits: &[EditRequest],
        base_hash: Option<Digest>,
        limits: &LoomLimits,
        secrets: Secrets<'_>,
    ) -> Result<Draft, LoomFault> {
        if edits.is_empty() {
            return Err(LoomFault::BadRequest { why: "`edits` is empty".to_owned() });
        }
        let base = self.base(path, limits)?;
        check_base_hash(&base, base_hash)?;
        check_text(&base)?;
        let name = shown(&base.path.to_string());
        let mut parsed = None;
        let veil = Veil::new(&base.bytes, secrets);
        let splices = weave::weave(&veil, &name, edits, |edit| match edit.match_mode {
            MatchMode::Exact => {
                let found = |text: &[u8]| exact::matches(text, &edit.spec, &edit.content, edit.count);
                let mut matches = found(&base.bytes);
                if veil.meets_any(&matches.found)? {
                    matches = found(veil.text()?);
                    let spans = veil.spans()?;
                    matches.found.retain(|found| !meet(spans, &found.span));
                }
                Ok(matches)
            }
            MatchMode::Regex => {
                let (spec, content) = (&edit.spec, &edit.content);
                let budget = limits.regex_budget;
                uncut(
                    &veil,
                    pattern::matches(self.strays(), veil.text()?, spec, content, edit.count, budget)?,
                )
            }
            MatchMode::Ast => {
                let wanted = Wanted {
                    language: language_of(edit, &base)?,
                    pattern: edit.spec.clone(),
                    content: edit.content.clone(),
                    expected: edit.count,
                    budget: limits.ast_budget,
                };
                let mut matches = syntax::matches(self.strays(), veil.text()?, &name, wanted)?;
                // A tree of another text is of no use for the second parse.
                parsed = matches.parsed.take().filter(|_| veil.spans().is_ok_and(<[_]>::is_empty));
                uncut(&veil, matches)
            }
        })?;
        self.drafted_splices(base, splices, parsed, limits)
    }

    /// delete_file: one file, of whatever content (T11).
    pub fn draft_delete(
        &self,
        path: &ScopedPath,
        base_hash: Option<Digest>,
        limits: &LoomLimits,
    ) -> Result<Draft, LoomFault> {
        let base = self.base(path, limits)?;
        check_base_hash(&base, base_hash)?;
        let change = FileChange::delete(base.path, base.facts)?;
        self.drafted(vec![(change, base.bytes)], Vec::new(), limits)
    }

    /// apply_patch: a unified diff over one or several files. Context must match exactly; a hunk that is found elsewhere
    /// than it says is noted (B7).
    pub fn draft_patch(&self, patch: &[u8], limits: &LoomLimits) -> Result<Draft, LoomFault> {
        self.draft_patch_veiled(patch, limits, &|_| Ok(Vec::new()))
    }

    /// The same for somebody who may not know the secrets of the files: no line that holds one is what a patch has.
    pub fn draft_patch_veiled(
        &self,
        patch: &[u8],
        limits: &LoomLimits,
        secrets: Secrets<'_>,
    ) -> Result<Draft, LoomFault> {
        let mut files = Vec::new();
        let mut notes = Vec::new();
        for file in patch::parse(patch)? {
            if let Some(drafted) = patch::draft(self, &file, limits, secrets, &mut notes)? {
                files.push(drafted);
            }
        }
        self.drafted(files, notes, limits)
    }

    fn drafted_splices(
        &self,
        base: Base,
        splices: Vec<Splice>,
        parsed: Option<Parsed>,
        limits: &LoomLimits,
    ) -> Result<Draft, LoomFault> {
        let files = match modified(&base, splices, None, None)? {
            Some(change) => vec![(change, base.bytes)],
            None => Vec::new(),
        };
        self.drafted_parsed(files, Vec::new(), parsed, limits)
    }

    fn drafted(
        &self,
        files: Vec<Drafted>,
        notes: Vec<Note>,
        limits: &LoomLimits,
    ) -> Result<Draft, LoomFault> {
        self.drafted_parsed(files, notes, None, limits)
    }

    /// The diff is made while the new files are parsed.
    fn drafted_parsed(
        &self,
        files: Vec<Drafted>,
        mut notes: Vec<Note>,
        mut parsed: Option<Parsed>,
        limits: &LoomLimits,
    ) -> Result<Draft, LoomFault> {
        let changes = ChangeSet::new(files.iter().map(|(change, _)| change.clone()).collect())?;
        let base_of = |change: &FileChange| {
            files.iter().find(|(own, _)| own.path() == change.path()).map(|(_, bytes)| bytes.as_slice())
        };
        let mut text = None;
        for (change, base) in &files {
            let parsing = self.parsing(change, base, parsed.take(), limits);
            if text.is_none() {
                text =
                    Some(diff::of_changes(&changes, base_of, diff::Showing::New).map_err(BadChange::from)?);
            }
            let note = |report| change.after().map(|after| Note::Parse { path: after.path.clone(), report });
            notes.extend(parsing.and_then(Parsing::end).and_then(note));
        }
        let base = |change: &FileChange| files.iter().find(|(own, _)| own.path() == change.path());
        let bases = changes.files().iter().filter_map(base).map(|(_, base)| Arc::clone(base)).collect();
        Ok(Draft { changes, diff: text.unwrap_or_default(), notes, bases })
    }

    /// For a known language and a file that is not too large.
    fn parsing(
        &self,
        change: &FileChange,
        base: &Arc<Vec<u8>>,
        parsed: Option<Parsed>,
        limits: &LoomLimits,
    ) -> Option<Parsing> {
        let after = change.after().filter(|after| !after.splices.is_empty())?;
        let language = Language::of_file(after.path.file_name()?)?;
        if after.size.max(base.len() as u64) > limits.parse_bytes {
            return None;
        }
        let new = spliced(base, &after.splices).ok()?;
        let before = match parsed {
            Some(parsed) if parsed.language == language => Before::Parsed(parsed),
            _ => Before::Unknown,
        };
        let changed = Changed { language, base: Arc::clone(base), splices: after.splices.clone(), new };
        Parsing::begin(self.strays(), before, changed, limits.ast_budget)
    }
}

/// Without the matches that cut into a secret.
fn uncut(veil: &Veil<'_>, mut matches: Matches) -> Result<Matches, LoomFault> {
    let spans = veil.spans()?;
    matches.found.retain(|found| !cut(spans, &found.span));
    Ok(matches)
}

fn language_of(edit: &EditRequest, base: &Base) -> Result<Language, LoomFault> {
    let name = base.path.file_name().unwrap_or_default();
    match &edit.language {
        Some(language) => {
            Language::named(language).ok_or_else(|| LoomFault::UnknownLanguage(shown(language)))
        }
        None => Language::of_file(name).ok_or_else(|| LoomFault::UnknownLanguage(shown(name))),
    }
}

/// The change of a file by splices, to another place or other permission bits; `None` when nothing changes.
fn modified(
    base: &Base,
    splices: Vec<Splice>,
    to: Option<ScopedPath>,
    mode: Option<u32>,
) -> Result<Option<FileChange>, LoomFault> {
    let moved = to.as_ref().is_some_and(|to| *to != base.path);
    let mode = mode.filter(|mode| *mode != base.facts.mode);
    let mut hash = Sha256::new();
    let mut size = 0;
    let bad = |bad: BadSplice| LoomFault::Change(bad.into());
    for piece in pieces(&base.bytes, &splices) {
        let piece = piece.map_err(bad)?;
        hash.update(piece);
        size += piece.len() as u64;
    }
    let hash = Digest::from_bytes(hash.finalize().into());
    // Splices that put back what they take are no change.
    let splices = if hash == base.facts.hash { Vec::new() } else { splices };
    if splices.is_empty() && !moved && mode.is_none() {
        return Ok(None);
    }
    let path = to.unwrap_or_else(|| base.path.clone());
    let target = Target { path, hash, size, mode, splices };
    Ok(Some(FileChange::modify(base.path.clone(), base.facts, target)?))
}
