//! The fixed words of a record: what happened, how serious it is, how it ended.

use crate::word_enum;

word_enum! {
    /// What a record is about.
    pub enum Op {
        /// A file was read.
        ReadFile = "read_file",
        /// A change was proposed.
        WriteFilePropose = "write_file_propose",
        /// A proposal was applied.
        WriteFileApply = "write_file_apply",
        /// A call is about to start.
        ToolStart = "tool.start",
        /// A call ended.
        ToolEnd = "tool.end",
        /// A person, a grant or a rule decided about a call.
        ToolApproval = "tool.approval",
        /// A call tried something that is not allowed.
        Violation = "violation",
        /// A session changed; the event type says how.
        Session = "session",
        /// A grant was given, used up or revoked.
        Grant = "grant",
        /// A user got more rights for a limited time.
        Elevation = "elevation",
        /// A policy or the trust in a project's configuration changed.
        PolicyChange = "policy.change",
        /// A skill was installed from a registry.
        SkillsRegistryInstall = "skills.registry_install",
        /// The size and root of the ledger at one moment.
        Checkpoint = "checkpoint",
        /// A new key of the ledger; the event type says which.
        LedgerKey = "ledger.key",
        /// Something was repaired after a crash.
        Recovery = "recovery",
        /// A payload beside the chain was deleted on purpose.
        PayloadForgotten = "payload.forgotten",
        /// An administrator is about to read what belongs to other users.
        AdminRead = "admin.read",
    }
}

word_enum! {
    /// How serious a record is.
    pub enum RecordLevel {
        /// Normal operation.
        Info = "INFO",
        /// A person should look at it at some point.
        Warn = "WARN",
        /// A person should look at it now.
        Critical = "CRITICAL",
    }
}

word_enum! {
    /// The outcome of what is recorded.
    pub enum RecordStatus {
        /// Allowed; about to start.
        Allowed = "allowed",
        /// A person has to decide.
        HitlRequired = "hitl_required",
        /// Denied.
        Denied = "denied",
        /// Succeeded.
        Success = "success",
        /// Failed.
        Error = "error",
        /// Passed its deadline.
        Timeout = "timeout",
        /// Cancelled by the caller.
        Cancelled = "cancelled",
        /// A person approved it.
        Approved = "approved",
        /// A person rejected it.
        Rejected = "rejected",
        /// Nobody decided in time.
        Expired = "expired",
        /// Started, with an unknown end.
        Unknown = "unknown",
    }
}

word_enum! {
    /// How a session changed: the event types of [`Op::Session`].
    pub enum SessionChange {
        /// It began.
        Open = "session.open",
        /// Too many violations: flagged for review.
        Alert = "session.alert",
        /// No calls until a person resumes it.
        Suspended = "session.suspended",
        /// Resumed.
        Resumed = "session.resumed",
        /// Ended.
        Ended = "session.ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_parse_back() {
        for op in Op::ALL {
            assert_eq!(Op::parse(op.as_str()), Some(*op));
        }
        assert_eq!(RecordStatus::parse("nonsense"), None);
    }
}
