//! The address of a record. Each writer has a chain of its own; a record is known by its writer and its number in that
//! chain. A SQLite store has one writer, a store of several replicas has one for each.

use std::fmt;

use vambrace_ledger::Id;

/// The address of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// The writer of the chain.
    pub writer: Id,
    /// Its number in the chain, counted from one.
    pub seq: u64,
}

impl RecordId {
    /// A record of a chain.
    #[must_use]
    pub fn new(writer: &Id, seq: u64) -> Self {
        Self { writer: writer.clone(), seq }
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.writer, self.seq)
    }
}
