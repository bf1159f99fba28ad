//! Violations: attempts that policy does not allow. The ledger has the whole record; this table serves counting
//! and reviewing.

use vambrace_ledger::{Id, RedactedText, Timestamp};

/// A violation. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct ViolationRow<T = RedactedText> {
    /// When.
    pub ts: Timestamp,
    /// Session id.
    pub session: Id,
    /// Call id.
    pub call: Option<Id>,
    /// What was violated.
    pub violation_type: T,
    /// Target of the attempt.
    pub target: Option<T>,
}
