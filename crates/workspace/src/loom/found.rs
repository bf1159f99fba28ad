//! Matches of one edit: spans of the file, and what comes in their place. How they are found differs (exact text, regular
//! expression, syntax); what is done with them does not.

use std::ops::Range;

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
    /// Places of the file that a parser could not make sense of, where one has looked.
    pub(crate) errors: Option<(Language, usize)>,
}

/// Matches past the expected count that are still counted.
pub(crate) const OVER: usize = 10_000;
