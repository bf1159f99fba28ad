//! The edit engine: turns the arguments of write_file, edit_file, apply_patch and delete_file into a ChangeSet and its diff.
//! It writes nothing. Only matched bytes change, so encodings, line endings, byte order marks and a missing last newline
//! stay as they are elsewhere. A text that does not match exactly is explained in the error, never guessed.
//!
//! Deliberately absent: policy (whether a file may be created there), secret detection, storage, applying (`apply`).

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use vambrace_core::change::{
    BadChange, BadSplice, ChangeSet, FileChange, Splice, TargetFile, pieces, spliced,
};
use vambrace_core::digest::Digest;
use vambrace_core::path::ScopedPath;

use crate::diff;
use crate::error::display_path;
use crate::masking::{MaskedText, SecretFinder, TextSecrets};
use crate::workspace::Workspace;

mod ast_match;
mod base;
mod error;
mod exact_match;
mod language;
mod matches;
mod near_match;
mod normalized_text;
mod patch;
mod regex_match;
mod reparse;
mod splice;
mod template;

pub use ast_match::ParseReport;
use ast_match::{ChangedFile, ParseBase, ParseComparison, SyntaxQuery};
pub(crate) use base::read_all;
use base::{BaseContent, PathState, check_base_hash, check_text};
pub use error::{EditError, MatchLine, NearMatch};
use language::Language;
use matches::{Matches, ParsedFile};
use normalized_text::LineEnding;

/// Maximum depth of a new file's path.
const MAX_PATH_NAMES: usize = 64;

/// What an edit does with a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditOperation {
    /// Replaces it with the content.
    Replace,
    /// Inserts the content directly after it; line endings are part of the content.
    AppendAfter,
    /// Inserts the content directly before it.
    PrependBefore,
    /// Removes it.
    Delete,
}

/// How a match is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchMode {
    /// Literal text; line ending styles are ignored.
    Exact,
    /// A regular expression; `content` may refer to its groups (`$1`, `${name}`, `\1`).
    Regex,
    /// An ast-grep pattern; `content` may refer to its variables (`$NAME`).
    Ast,
}

/// One edit.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// What to do with a match.
    pub operation: EditOperation,
    /// How to find matches.
    pub match_mode: MatchMode,
    /// Text or pattern to find.
    pub spec: String,
    /// New text.
    pub content: String,
    /// Required number of matches.
    pub count: usize,
    /// Language of an ast-grep pattern; taken from the file's extension when left out.
    pub language: Option<String>,
}

impl EditRequest {
    /// Replaces one exact match.
    pub fn replace(spec: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            operation: EditOperation::Replace,
            match_mode: MatchMode::Exact,
            spec: spec.into(),
            content: content.into(),
            count: 1,
            language: None,
        }
    }
}

/// What write_file does with an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Replaces the content, byte for byte as given.
    Write,
    /// Appends the content, with the file's line endings.
    Append,
}

/// Limits of the edit engine.
#[derive(Debug, Clone)]
pub struct EditLimits {
    /// Maximum content of one write (B4).
    pub write_bytes: u64,
    /// Maximum size of a file that is changed.
    pub file_bytes: u64,
    /// Time to match a regular expression, per 8 MiB of text (T10).
    pub regex_budget: Duration,
    /// Time to parse a file and match a syntax pattern.
    pub ast_budget: Duration,
    /// Larger files are not parsed to compare syntax errors before and after.
    pub parse_bytes: u64,
}

impl Default for EditLimits {
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

/// A remark for the reader of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftNote {
    /// A hunk of a patch matched at another line than its header says.
    Moved {
        /// The file.
        path: ScopedPath,
        /// Number of the hunk in this file, from 1.
        hunk: usize,
        /// Offset in lines; negative is further up.
        lines: i64,
    },
    /// Syntax errors of the file before and after.
    Parse {
        /// The file.
        path: ScopedPath,
        /// Before and after the change.
        report: ParseReport,
    },
}

/// A change that is computed but not applied.
#[derive(Clone)]
pub struct Draft {
    /// What would change; empty when the files are already as requested.
    pub changes: ChangeSet,
    /// The change as a unified diff, without the middle of long runs of removed lines.
    pub diff: Vec<u8>,
    /// Remarks for the reader.
    pub notes: Vec<DraftNote>,
    /// Current content of the files, in the order of `changes`; empty for a new file.
    pub bases: Vec<Arc<Vec<u8>>>,
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the content of the files.
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

    /// B2: the hash of the diff. What the diff leaves out is covered by the hash of the file.
    #[must_use]
    pub fn patch_hash(&self) -> Digest {
        diff::patch_hash(&self.diff)
    }
}

/// A change and its base content.
type FileDraft = (FileChange, Arc<Vec<u8>>);

impl Workspace {
    /// write_file: creates a file, or replaces or appends content (T7, A2).
    pub fn draft_write(
        &self,
        path: &ScopedPath,
        content: &[u8],
        mode: WriteMode,
        base_hash: Option<Digest>,
        limits: &EditLimits,
    ) -> Result<Draft, EditError> {
        let (size, cap) = (content.len() as u64, limits.write_bytes);
        if size > cap {
            return Err(EditError::TooLarge { path: display_path(&path.to_string()), size, cap });
        }
        match self.path_state(path, limits)? {
            PathState::Vacant(path) => {
                if let Some(expected) = base_hash {
                    let now = Digest::of(b"");
                    return Err(EditError::Stale { path: display_path(&path.to_string()), expected, now });
                }
                let change = FileChange::create(path, content.to_vec(), None)?;
                self.finish_draft(vec![(change, Arc::default())], Vec::new(), limits)
            }
            PathState::Existing(base) => {
                check_base_hash(&base, base_hash)?;
                check_text(&base)?;
                let splices = match mode {
                    WriteMode::Write => Splice::between(&base.bytes, content),
                    WriteMode::Append => {
                        let insert = LineEnding::of(&base.bytes).fit(content, b"");
                        let splice = Splice { at: base.bytes.len() as u64, remove: 0, insert };
                        Splice::merged(vec![splice])
                    }
                };
                self.draft_from_splices(base, splices, None, limits)
            }
        }
    }

    /// edit_file: applies all edits or none (T8, T9).
    pub fn draft_edit(
        &self,
        path: &ScopedPath,
        edits: &[EditRequest],
        base_hash: Option<Digest>,
        limits: &EditLimits,
    ) -> Result<Draft, EditError> {
        self.draft_edit_with(path, edits, base_hash, limits, None)
    }

    /// Like [`draft_edit`](Self::draft_edit), for a caller that must not learn the secrets of the file (T21): a match that
    /// cuts into a secret does not count, nor does an exact match that contains one.
    pub fn draft_edit_masked(
        &self,
        path: &ScopedPath,
        edits: &[EditRequest],
        base_hash: Option<Digest>,
        limits: &EditLimits,
        secrets: &SecretFinder,
    ) -> Result<Draft, EditError> {
        self.draft_edit_with(path, edits, base_hash, limits, Some(secrets))
    }

    fn draft_edit_with(
        &self,
        path: &ScopedPath,
        edits: &[EditRequest],
        base_hash: Option<Digest>,
        limits: &EditLimits,
        secrets: Option<&SecretFinder>,
    ) -> Result<Draft, EditError> {
        if edits.is_empty() {
            return Err(EditError::BadRequest { why: "`edits` is empty".to_owned() });
        }
        let base = self.base_content(path, limits)?;
        check_base_hash(&base, base_hash)?;
        check_text(&base)?;
        let name = display_path(&base.path.to_string());
        let mut parsed = None;
        let masked = MaskedText::new(&base.bytes, secrets);
        let splices = splice::splices_of(&masked, &name, edits, |edit| match edit.match_mode {
            MatchMode::Exact => {
                let found = |text: &[u8]| exact_match::matches(text, &edit.spec, &edit.content, edit.count);
                let mut matches = found(&base.bytes);
                if masked.any_overlaps_secret(matches.found.iter().map(|found| found.span.clone()))? {
                    matches = found(masked.text()?);
                    let secrets = masked.secrets()?;
                    matches.found.retain(|found| !secrets.overlaps(&found.span));
                }
                Ok(matches)
            }
            MatchMode::Regex => {
                let (spec, content) = (&edit.spec, &edit.content);
                let budget = limits.regex_budget;
                without_cut_secrets(
                    &masked,
                    regex_match::matches(
                        self.abandoned_threads(),
                        masked.text()?,
                        spec,
                        content,
                        edit.count,
                        budget,
                    )?,
                )
            }
            MatchMode::Ast => {
                let query = SyntaxQuery {
                    language: language_of(edit, &base)?,
                    pattern: edit.spec.clone(),
                    content: edit.content.clone(),
                    expected: edit.count,
                    budget: limits.ast_budget,
                };
                let mut matches = ast_match::matches(self.abandoned_threads(), masked.text()?, &name, query)?;
                // The tree of the masked text cannot be reused for the second parse.
                parsed = matches.parsed.take().filter(|_| masked.secrets().is_ok_and(TextSecrets::is_empty));
                without_cut_secrets(&masked, matches)
            }
        })?;
        self.draft_from_splices(base, splices, parsed, limits)
    }

    /// delete_file: deletes one file, text or binary (T11).
    pub fn draft_delete(
        &self,
        path: &ScopedPath,
        base_hash: Option<Digest>,
        limits: &EditLimits,
    ) -> Result<Draft, EditError> {
        let base = self.base_content(path, limits)?;
        check_base_hash(&base, base_hash)?;
        let change = FileChange::delete(base.path, base.metadata)?;
        self.finish_draft(vec![(change, base.bytes)], Vec::new(), limits)
    }

    /// apply_patch: a unified diff over one or several files. Context must match exactly; a hunk that matches at another
    /// line than its header says is noted (B7).
    pub fn draft_patch(&self, patch: &[u8], limits: &EditLimits) -> Result<Draft, EditError> {
        self.draft_patch_with(patch, limits, None)
    }

    /// Like [`draft_patch`](Self::draft_patch), for a caller that must not learn the secrets of the files: a line that
    /// contains one never matches.
    pub fn draft_patch_masked(
        &self,
        patch: &[u8],
        limits: &EditLimits,
        secrets: &SecretFinder,
    ) -> Result<Draft, EditError> {
        self.draft_patch_with(patch, limits, Some(secrets))
    }

    fn draft_patch_with(
        &self,
        patch: &[u8],
        limits: &EditLimits,
        secrets: Option<&SecretFinder>,
    ) -> Result<Draft, EditError> {
        let mut files = Vec::new();
        let mut notes = Vec::new();
        for file in patch::parse(patch)? {
            if let Some(drafted) = patch::draft(self, &file, limits, secrets, &mut notes)? {
                files.push(drafted);
            }
        }
        self.finish_draft(files, notes, limits)
    }

    fn draft_from_splices(
        &self,
        base: BaseContent,
        splices: Vec<Splice>,
        parsed: Option<ParsedFile>,
        limits: &EditLimits,
    ) -> Result<Draft, EditError> {
        let files = match modified(&base, splices, None, None)? {
            Some(change) => vec![(change, base.bytes)],
            None => Vec::new(),
        };
        self.draft_from_files(files, Vec::new(), parsed, limits)
    }

    fn finish_draft(
        &self,
        files: Vec<FileDraft>,
        notes: Vec<DraftNote>,
        limits: &EditLimits,
    ) -> Result<Draft, EditError> {
        self.draft_from_files(files, notes, None, limits)
    }

    /// Computes the diff while other threads parse the new files.
    fn draft_from_files(
        &self,
        files: Vec<FileDraft>,
        mut notes: Vec<DraftNote>,
        mut parsed: Option<ParsedFile>,
        limits: &EditLimits,
    ) -> Result<Draft, EditError> {
        let changes = ChangeSet::new(files.iter().map(|(change, _)| change.clone()).collect())?;
        let base_of = |change: &FileChange| {
            files.iter().find(|(own, _)| own.path() == change.path()).map(|(_, bytes)| bytes.as_slice())
        };
        let mut text = None;
        for (change, base) in &files {
            let parsing = self.parsing(change, base, parsed.take(), limits);
            if text.is_none() {
                text = Some(
                    diff::of_changes(&changes, base_of, diff::DiffDetail::AllAdded)
                        .map_err(BadChange::from)?,
                );
            }
            let note =
                |report| change.after().map(|after| DraftNote::Parse { path: after.path.clone(), report });
            notes.extend(parsing.and_then(ParseComparison::wait).and_then(note));
        }
        let base = |change: &FileChange| files.iter().find(|(own, _)| own.path() == change.path());
        let bases = changes.files().iter().filter_map(base).map(|(_, base)| Arc::clone(base)).collect();
        Ok(Draft { changes, diff: text.unwrap_or_default(), notes, bases })
    }

    /// Starts parsing; `None` for an unknown language or a file over the limit.
    fn parsing(
        &self,
        change: &FileChange,
        base: &Arc<Vec<u8>>,
        parsed: Option<ParsedFile>,
        limits: &EditLimits,
    ) -> Option<ParseComparison> {
        let after = change.after().filter(|after| !after.splices.is_empty())?;
        let language = Language::of_file(after.path.file_name()?)?;
        if after.size.max(base.len() as u64) > limits.parse_bytes {
            return None;
        }
        let new = spliced(base, &after.splices).ok()?;
        let before = match parsed {
            Some(parsed) if parsed.language == language => ParseBase::Parsed(parsed),
            _ => ParseBase::Unknown,
        };
        let changed = ChangedFile { language, base: Arc::clone(base), splices: after.splices.clone(), new };
        ParseComparison::begin(self.abandoned_threads(), before, changed, limits.ast_budget)
    }
}

/// Drops the matches that cut into a secret.
fn without_cut_secrets(masked: &MaskedText<'_>, mut matches: Matches) -> Result<Matches, EditError> {
    let secrets = masked.secrets()?;
    matches.found.retain(|found| !secrets.cuts(&found.span));
    Ok(matches)
}

fn language_of(edit: &EditRequest, base: &BaseContent) -> Result<Language, EditError> {
    let name = base.path.file_name().unwrap_or_default();
    let (found, asked) = match edit.language.as_deref() {
        Some(language) => (Language::named(language), language),
        None => (Language::of_file(name), name),
    };
    found.ok_or_else(|| {
        let extension = asked.rsplit_once('.').map_or(asked, |(_, extension)| extension);
        if Language::needs_full_languages(extension) {
            EditError::NotCompiledIn(display_path(asked))
        } else {
            EditError::UnknownLanguage(display_path(asked))
        }
    })
}

/// The change of a file's content, path or permission bits; `None` when nothing changes.
fn modified(
    base: &BaseContent,
    splices: Vec<Splice>,
    to: Option<ScopedPath>,
    mode: Option<u32>,
) -> Result<Option<FileChange>, EditError> {
    let moved = to.as_ref().is_some_and(|to| *to != base.path);
    let mode = mode.filter(|mode| *mode != base.metadata.mode);
    let mut hash = Sha256::new();
    let mut size = 0;
    let bad = |bad: BadSplice| EditError::Change(bad.into());
    for piece in pieces(&base.bytes, &splices) {
        let piece = piece.map_err(bad)?;
        hash.update(piece);
        size += piece.len() as u64;
    }
    let hash = Digest::from_bytes(hash.finalize().into());
    // Splices that insert what they remove are no change.
    let splices = if hash == base.metadata.hash { Vec::new() } else { splices };
    if splices.is_empty() && !moved && mode.is_none() {
        return Ok(None);
    }
    let path = to.unwrap_or_else(|| base.path.clone());
    let target = TargetFile { path, hash, size, mode, splices };
    Ok(Some(FileChange::modify(base.path.clone(), base.metadata, target)?))
}
