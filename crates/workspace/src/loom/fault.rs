//! Why a change cannot be drafted, in words that help the caller make it right: how many matches there were, where, what
//! is near, what exactly differs.

use std::fmt::Write as _;
use std::time::Duration;

use vambrace_core::change::BadChange;
use vambrace_core::digest::Digest;
use vambrace_core::{CallError, ErrorCode};

use crate::fault::FileFault;
use crate::search::SearchFault;

/// A line of a file, for a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    pub line: u64,
    /// The line, cut, one line.
    pub text: String,
}

/// Something like what was looked for. Never applied by itself: the caller can ask for exactly this text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near {
    /// The first line, from 1.
    pub line: u64,
    /// The last line.
    pub end_line: u64,
    /// In what it differs.
    pub why: &'static str,
    /// The lines as they are, cut at 2000 characters.
    pub text: String,
    /// The first line that differs, with tabs, spaces and line ends made visible.
    pub visible: String,
    /// Of the bytes of these lines, without the last line end.
    pub hash: Digest,
}

/// Why there is no draft.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoomFault {
    /// The path.
    #[error(transparent)]
    File(#[from] FileFault),
    /// The pattern.
    #[error(transparent)]
    Pattern(#[from] SearchFault),
    /// The parts do not make a change.
    #[error(transparent)]
    Change(#[from] BadChange),
    /// The number of matches.
    #[error("edit {edit}: expected {expected} match(es) in `{path}` and found {found}{}", told(.places, .near))]
    Count {
        /// Which edit, from 1.
        edit: usize,
        /// As asked.
        path: String,
        /// How many there should be.
        expected: usize,
        /// How many there are; 10,000 too many are not counted further.
        found: usize,
        /// Where.
        places: Vec<Place>,
        /// What is near, when there is none.
        near: Vec<Near>,
    },
    /// A text that overlaps itself.
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
    /// The file is another one than the caller saw.
    #[error("`{path}` changed since it was read: it is {now}, not {expected}")]
    Stale {
        /// As asked.
        path: String,
        /// What the caller said.
        expected: Digest,
        /// What is there.
        now: Digest,
    },
    /// More than one name.
    #[error("`{path}` has {links} names; a file with several names is not changed")]
    Linked {
        /// As asked.
        path: String,
        /// How many.
        links: u64,
    },
    /// Shared folders and siblings.
    #[error("`{path}` can only be read")]
    ReadOnly {
        /// As asked.
        path: String,
    },
    /// Something is there that is not a file to change.
    #[error("`{path}` is a link that leads nowhere; it is not replaced")]
    Dangling {
        /// As asked.
        path: String,
    },
    /// Over a cap.
    #[error("the new content of `{path}` has {size} bytes, over the cap of {cap}")]
    TooLarge {
        /// As asked.
        path: String,
        /// Of the new content.
        size: u64,
        /// What is allowed.
        cap: u64,
    },
    /// Arguments.
    #[error("{why}")]
    BadRequest {
        /// Which and why.
        why: String,
    },
    /// A patch that is not one.
    #[error("the patch is not valid in line {line}: {why}")]
    BadPatch {
        /// Of the patch, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A patch that names a place where nothing may be.
    #[error("the patch names a file in line {line}: {why}")]
    PatchPath {
        /// Of the patch, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
        /// What to do instead.
        suggestion: String,
    },
    /// A hunk whose lines are not in the file.
    #[error("hunk {hunk} of `{path}` does not apply: {why}")]
    HunkMismatch {
        /// Of this file, from 1.
        hunk: usize,
        /// As asked.
        path: String,
        /// The first line that differs, and where.
        why: String,
    },
    /// Nobody could say where the secrets of the file are.
    #[error("the secrets of the file could not be looked for: {0}")]
    Unseen(String),
    /// A language that has no grammar here.
    #[error("there is no grammar for `{0}`")]
    UnknownLanguage(String),
    /// Parsing or matching a tree took too long.
    #[error("matching the syntax of `{path}` took longer than {} ms", .budget.as_millis())]
    SlowSyntax {
        /// As asked.
        path: String,
        /// What was allowed.
        budget: Duration,
    },
}

impl LoomFault {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::File(fault) => fault.code(),
            Self::Pattern(fault) => fault.code(),
            Self::Change(bad) => CallError::from(bad.clone()).code,
            Self::Count { .. } | Self::Ambiguous { .. } | Self::HunkMismatch { .. } => {
                ErrorCode::MatchCountMismatch
            }
            Self::Overlap { .. } => ErrorCode::OverlappingEdits,
            Self::Stale { .. } => ErrorCode::StaleBase,
            Self::Linked { .. } | Self::ReadOnly { .. } | Self::PatchPath { .. } => ErrorCode::ScopeViolation,
            Self::Dangling { .. } => ErrorCode::NotAFile,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::BadRequest { .. } | Self::BadPatch { .. } | Self::UnknownLanguage(_) => {
                ErrorCode::InvalidArguments
            }
            Self::SlowSyntax { .. } => ErrorCode::Timeout,
            Self::Unseen(_) => ErrorCode::Internal,
        }
    }
}

impl From<LoomFault> for CallError {
    fn from(fault: LoomFault) -> Self {
        let error = Self::new(fault.code(), fault.to_string());
        match fault {
            LoomFault::File(FileFault::Binary { .. }) => {
                error.suggest("only text is changed in place; ask the user to replace this file")
            }
            LoomFault::File(fault) => fault.into(),
            LoomFault::PatchPath { suggestion, .. } => error.suggest(suggestion),
            LoomFault::Pattern(fault) => fault.into(),
            LoomFault::Change(bad) => bad.into(),
            LoomFault::Count { near, .. } if !near.is_empty() => {
                error.suggest("read these lines again and send their text exactly as it stands in the file")
            }
            LoomFault::Count { found: 0, .. } => error,
            LoomFault::Count { .. } => error.suggest(
                "add lines around the text until it occurs once, or set `count` to the number of matches that is meant",
            ),
            LoomFault::Ambiguous { .. } => error.suggest("add the text before or after it"),
            LoomFault::Linked { .. } => error.suggest("ask the user to replace the file by a copy"),
            LoomFault::ReadOnly { .. } => error.suggest("change files of the service itself only"),
            LoomFault::Dangling { .. } => error.suggest("name the file that the link should lead to"),
            LoomFault::TooLarge { .. } => error.suggest("write the file in parts, or edit it instead"),
            LoomFault::HunkMismatch { .. } => {
                error.suggest("read the file again and make the patch from what is there; context must match exactly")
            }
            LoomFault::UnknownLanguage(_) => {
                error.suggest("use `match_mode: exact` or `regex`, or name the language of the file")
            }
            _ => error,
        }
    }
}

fn told(places: &[Place], near: &[Near]) -> String {
    let mut words = String::new();
    for (n, place) in places.iter().enumerate() {
        let _ = write!(words, "{} line {}: `{}`", if n == 0 { ":" } else { "," }, place.line, place.text);
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
