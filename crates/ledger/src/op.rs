//! The fixed words of a record: what happened, how serious it is, how it stands.

use crate::words;

words! {
    /// What a record is about.
    pub enum Op {
        /// A file was read.
        ReadFile = "read_file",
        /// A change was proposed.
        WriteFilePropose = "write_file_propose",
        /// A proposal was applied.
        WriteFileApply = "write_file_apply",
        /// A call is about to have its effect.
        ToolStart = "tool.start",
        /// A call ended.
        ToolEnd = "tool.end",
        /// A human, a grant or a rule decided about a call.
        ToolApproval = "tool.approval",
        /// Something was attempted that is not allowed.
        Violation = "violation",
        /// A session changed; the event type says how.
        Session = "session",
        /// A grant was given, used up or revoked.
        Grant = "grant",
        /// Somebody was given more rights for a time.
        Elevation = "elevation",
        /// A policy or the trust in a project's configuration changed.
        PolicyChange = "policy.change",
        /// A skill was installed from a registry.
        SkillsRegistryInstall = "skills.registry_install",
        /// The size and root of the ledger at a moment.
        Checkpoint = "checkpoint",
        /// A key of the ledger begins to count; the event type says which.
        LedgerKey = "ledger.key",
        /// Something was repaired after a crash.
        Recovery = "recovery",
        /// A payload beside the chain was deleted on purpose.
        PayloadForgotten = "payload.forgotten",
    }
}

words! {
    /// How serious a record is.
    pub enum Level {
        /// The ordinary course.
        Info = "INFO",
        /// Somebody should look at it some time.
        Warn = "WARN",
        /// Somebody should look at it now.
        Critical = "CRITICAL",
    }
}

words! {
    /// How the thing that is recorded stands.
    pub enum Status {
        /// Allowed; about to happen.
        Allowed = "allowed",
        /// A human has to decide.
        HitlRequired = "hitl_required",
        /// Refused.
        Denied = "denied",
        /// Done.
        Success = "success",
        /// Failed.
        Error = "error",
        /// Ran past its deadline.
        Timeout = "timeout",
        /// Given up by the caller.
        Cancelled = "cancelled",
        /// Somebody agreed.
        Approved = "approved",
        /// Somebody did not agree.
        Rejected = "rejected",
        /// Nobody decided in time.
        Expired = "expired",
        /// Started, and its end is not known.
        Unknown = "unknown",
    }
}

words! {
    /// How a session changed: the event types of [`Op::Session`].
    pub enum SessionChange {
        /// It began.
        Open = "session.open",
        /// Too many violations: flagged for review.
        Alert = "session.alert",
        /// No calls until somebody lifts it.
        Suspended = "session.suspended",
        /// Lifted.
        Resumed = "session.resumed",
        /// Over.
        Ended = "session.ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for op in Op::ALL {
            assert_eq!(Op::parse(op.as_str()), Some(*op));
        }
        assert_eq!(Status::parse("nonsense"), None);
    }
}
