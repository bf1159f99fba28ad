//! Why a change cannot be drafted, with details that help the caller correct it: how many matches there were and where,
//! similar text, and what exactly differs.

use std::fmt::Write as _;
use std::time::Duration;

use vambrace_core::change::BadChange;
use vambrace_core::digest::Digest;
use vambrace_core::{CallError, ErrorCode};

use super::language::FULL_LANGUAGES;
use crate::error::FileError;
use crate::search::SearchError;

/// A line of a file, for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchLine {
    /// From 1.
    pub line: u64,
    /// The line, truncated.
    pub text: String,
}

/// Text similar to the one searched for. Never applied automatically: the caller can request exactly this text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearMatch {
    /// The first line, from 1.
    pub line: u64,
    /// The last line.
    pub end_line: u64,
    /// How it differs.
    pub why: &'static str,
    /// The lines, truncated at 2000 characters.
    pub text: String,
    /// The first line that differs, with tabs and spaces made visible.
    pub visible: String,
    /// Hash of the bytes of these lines, without the last line ending.
    pub hash: Digest,
}

/// Why a change cannot be drafted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The path cannot be accessed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The pattern is invalid or too slow.
    #[error(transparent)]
    Pattern(#[from] SearchError),
    /// The edits do not form a valid change.
    #[error(transparent)]
    Change(#[from] BadChange),
    /// The number of matches differs from the expected one.
    #[error("edit {edit}: expected {expected} match(es) in `{path}` and found {found}{}", match_details(.matches, .near))]
    MatchCount {
        /// Which edit, from 1.
        edit: usize,
        /// As asked.
        path: String,
        /// Expected number of matches.
        expected: usize,
        /// Actual number; counting stops 10,000 past the expected one.
        found: usize,
        /// The first matching lines.
        matches: Vec<MatchLine>,
        /// Similar text, when there is no match.
        near: Vec<NearMatch>,
    },
    /// A text whose occurrences overlap.
    #[error("edit {edit}: the text occurs in `{path}` in ways that overlap each other, first in line {line}")]
    Ambiguous {
        /// Which edit, from 1.
        edit: usize,
        /// As asked.
        path: String,
        /// From 1.
        line: u64,
    },
    /// Two edits touch the same bytes.
    #[error("edits {first} and {second} touch the same text in line {line} of `{path}`")]
    Overlap {
        /// From 1.
        first: usize,
        /// From 1.
        second: usize,
        /// From 1.
        line: u64,
        /// As asked.
        path: String,
    },
    /// The file is not the version that the caller read.
    #[error("`{path}` changed since it was read: it is {now}, not {expected}")]
    Stale {
        /// As asked.
        path: String,
        /// Hash given by the caller.
        expected: Digest,
        /// Current hash.
        now: Digest,
    },
    /// More than one hard link.
    #[error("`{path}` has {links} hard links; only files with one can be changed")]
    HardLinked {
        /// As asked.
        path: String,
        /// Number of hard links.
        links: u64,
    },
    /// In a shared directory or a sibling service.
    #[error("`{path}` is read-only")]
    ReadOnly {
        /// As asked.
        path: String,
    },
    /// A broken symlink.
    #[error("`{path}` is a broken symlink; it is not replaced")]
    BrokenSymlink {
        /// As asked.
        path: String,
    },
    /// Over the size limit.
    #[error("the new content of `{path}` has {size} bytes, over the cap of {cap}")]
    TooLarge {
        /// As asked.
        path: String,
        /// Size of the new content in bytes.
        size: u64,
        /// Limit in bytes.
        cap: u64,
    },
    /// Invalid arguments.
    #[error("{why}")]
    BadRequest {
        /// Which argument and why.
        why: String,
    },
    /// Not a valid unified diff.
    #[error("the patch is not valid in line {line}: {why}")]
    BadPatch {
        /// Line of the patch, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// The patch names an invalid path.
    #[error("the path in line {line} of the patch is not valid: {why}")]
    PatchPath {
        /// Line of the patch, from 1.
        line: usize,
        /// What is wrong with the path.
        why: String,
        /// What to do instead.
        suggestion: String,
    },
    /// A hunk whose lines are not in the file.
    #[error("hunk {hunk} of `{path}` does not apply: {why}")]
    HunkMismatch {
        /// Number of the hunk in this file, from 1.
        hunk: usize,
        /// As asked.
        path: String,
        /// The first line that differs, and where.
        why: String,
    },
    /// Secret detection failed, so nothing was matched.
    #[error("secret detection failed: {0}")]
    SecretScan(String),
    /// A language without a grammar.
    #[error("there is no grammar for `{0}`")]
    UnknownLanguage(String),
    /// A language whose grammar this build lacks.
    #[error("this build has no grammar for `{0}`; the cargo feature `{FULL_LANGUAGES}` adds it")]
    NotCompiledIn(String),
    /// Parsing or matching a tree took too long.
    #[error("matching the syntax of `{path}` took longer than {} ms", .budget.as_millis())]
    AstTimeout {
        /// As asked.
        path: String,
        /// Time limit.
        budget: Duration,
    },
}

impl EditError {
    /// The stable error code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File(error) => error.code(),
            Self::Pattern(error) => error.code(),
            Self::Change(bad) => CallError::from(bad.clone()).code,
            Self::MatchCount { .. } | Self::Ambiguous { .. } | Self::HunkMismatch { .. } => {
                ErrorCode::MatchCountMismatch
            }
            Self::Overlap { .. } => ErrorCode::OverlappingEdits,
            Self::Stale { .. } => ErrorCode::StaleBase,
            Self::HardLinked { .. } | Self::ReadOnly { .. } | Self::PatchPath { .. } => {
                ErrorCode::ScopeViolation
            }
            Self::BrokenSymlink { .. } => ErrorCode::NotAFile,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::BadRequest { .. }
            | Self::BadPatch { .. }
            | Self::UnknownLanguage(_)
            | Self::NotCompiledIn(_) => ErrorCode::InvalidArguments,
            Self::AstTimeout { .. } => ErrorCode::Timeout,
            Self::SecretScan(_) => ErrorCode::Internal,
        }
    }
}

impl From<EditError> for CallError {
    fn from(error: EditError) -> Self {
        let call_error = Self::new(error.code(), error.to_string());
        match error {
            EditError::File(FileError::Binary { .. }) => {
                call_error.suggest("only text files can be edited; ask the user to replace this file")
            }
            EditError::File(error) => error.into(),
            EditError::PatchPath { suggestion, .. } => call_error.suggest(suggestion),
            EditError::Pattern(error) => error.into(),
            EditError::Change(bad) => bad.into(),
            EditError::MatchCount { near, .. } if !near.is_empty() => {
                call_error.suggest("read these lines again and send their text exactly as it is in the file")
            }
            EditError::MatchCount { found: 0, .. } => call_error,
            EditError::MatchCount { .. } => call_error.suggest(
                "add lines around the text until it occurs once, or set `count` to the intended number of matches",
            ),
            EditError::Ambiguous { .. } => call_error.suggest("add the text before or after it"),
            EditError::HardLinked { .. } => call_error.suggest("ask the user to replace the file with a copy"),
            EditError::ReadOnly { .. } => call_error.suggest("change only files in the service root"),
            EditError::BrokenSymlink { .. } => call_error.suggest("write to the file that the symlink should point to"),
            EditError::TooLarge { .. } => call_error.suggest("write the file in parts, or edit it instead"),
            EditError::HunkMismatch { .. } => {
                call_error.suggest("read the file again and make the patch from its current content; context must match exactly")
            }
            EditError::UnknownLanguage(_) => {
                call_error.suggest("use `match_mode: exact` or `regex`, or name the language of the file")
            }
            EditError::NotCompiledIn(_) => {
                call_error.suggest("use `match_mode: exact` or `regex`; the user can install a build with more languages")
            }
            _ => call_error,
        }
    }
}

fn match_details(matches: &[MatchLine], near: &[NearMatch]) -> String {
    let mut words = String::new();
    for (n, found) in matches.iter().enumerate() {
        let _ = write!(words, "{} line {}: `{}`", if n == 0 { ":" } else { "," }, found.line, found.text);
    }
    for near in near.iter().take(1) {
        let _ = write!(
            words,
            "; nearest is line {}, which differs in {}: `{}`",
            near.line, near.why, near.visible
        );
    }
    words
}
