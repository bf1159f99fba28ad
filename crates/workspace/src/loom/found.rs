//! Matches of one edit: spans of the file, and what comes in their place. How they are found differs (exact text, regular
//! expression, syntax); what is done with them does not.

use std::ops::Range;

use tree_sitter::Tree;

use super::language::Language;

/// One match of one edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The bytes that matched.
    pub(crate) span: Range<usize>,
    /// What is put in, in the file's own line ends.
    pub(crate) insert: Vec<u8>,
}

/// All matches of one edit, or as many as were counted.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    /// Sorted, apart from each other.
    pub(crate) found: Vec<Found>,
    /// Where a text overlaps itself, so that it is not clear which one is meant.
    pub(crate) ambiguous: Option<usize>,
    /// What a parser made of the file, where one has looked.
    pub(crate) parsed: Option<Parsed>,
}

/// A file as a parser sees it.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) language: Language,
    /// Places that it could not make sense of.
    pub(crate) errors: usize,
    /// Of the very bytes of the file; none where they had to be made into text first.
    pub(crate) tree: Option<Tree>,
}

/// Matches past the expected count that are still counted.
pub(crate) const OVER: usize = 10_000;
