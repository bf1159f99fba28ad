//! Trust in a project's configuration, pinned to its digest. The project is identified by the digest of its
//! path, so that two paths never become equal because a redactor masked both.

use vambrace_ledger::{Digest, RedactedText, Timestamp};

/// What was trusted. `T` is [`RedactedText`] when written and `String` when read.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustRow<T = RedactedText> {
    /// The digest of the project's path.
    pub project: Digest,
    /// The path, for display.
    pub path: T,
    /// The digest of the configuration.
    pub digest: Digest,
    /// User who trusted it.
    pub by: T,
    /// When.
    pub at: Timestamp,
}
