//! Matches of one edit: spans of the file and their replacement. All match modes (exact text, regular expression, syntax)
//! produce this type.

use std::ops::Range;

use tree_sitter::Tree;

use super::language::Language;

/// One match of one edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpanMatch {
    /// The bytes that matched.
    pub(crate) span: Range<usize>,
    /// The replacement, in the file's own line endings.
    pub(crate) insert: Vec<u8>,
}

/// The matches of one edit, up to the counting limit.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    /// Sorted, not overlapping.
    pub(crate) found: Vec<SpanMatch>,
    /// Offset where occurrences overlap each other, so that it is unclear which one is meant.
    pub(crate) ambiguous: Option<usize>,
    /// The parsed file, if a parser ran.
    pub(crate) parsed: Option<ParsedFile>,
}

/// Result of parsing a file.
#[derive(Debug)]
pub(crate) struct ParsedFile {
    pub(crate) language: Language,
    /// Number of syntax errors.
    pub(crate) errors: usize,
    /// The tree over the exact bytes of the file; `None` if they had to be converted to UTF-8 first.
    pub(crate) tree: Option<Tree>,
}

/// Matches counted beyond the expected number.
pub(crate) const MAX_EXCESS_MATCHES: usize = 10_000;
