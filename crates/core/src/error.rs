//! The error codes that an agent or a person can get. Codes are a contract (stable, PascalCase); each has a suggestion
//! that helps the caller to recover. The message comes from the code that found the problem.

use std::fmt;

macro_rules! codes {
    ($($name:ident = $wire:literal, $meaning:literal, $hint:literal;)*) => {
        /// A stable error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorCode { $(#[doc = $meaning] $name,)* }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $wire,)* }
            }

            /// What it means, one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            /// What the caller can do, when nothing more specific is known.
            #[must_use]
            pub const fn suggestion(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

codes! {
    UnknownTool = "UnknownTool", "no tool with this name is available to this caller", "list the tools and use one of their names";
    InvalidArguments = "InvalidArguments", "the arguments do not match the tool's schema", "read the tool's input schema and correct the argument that the message names";
    FileNotFound = "FileNotFound", "the file or directory does not exist", "check the path, or use list_files to see what exists";
    NotAFile = "NotAFile", "the path is not a regular file", "use list_files for directories; devices, sockets and pipes are never opened";
    FileProtected = "FileProtected", "the operating system does not allow changing the file", "ask the user to change the owner, the permissions or the attributes of the file or its directory";
    BinaryFile = "BinaryFile", "the file is not text", "only text, PDF and common image files are returned";
    TooLarge = "TooLarge", "the content is larger than the configured limit", "request a line range, or search instead of reading";
    NotUtf8 = "NotUtf8", "the text is not valid UTF-8", "ask the user to convert the file, or search it instead";
    MatchCountMismatch = "MatchCountMismatch", "the number of matches differs from the expected count", "read the file again and make the pattern match exactly the expected number of times";
    OverlappingEdits = "OverlappingEdits", "two edits touch the same bytes", "merge the overlapping edits into one";
    ResourceBusy = "ResourceBusy", "another call has locked the file", "wait a moment and try again";
    StaleBase = "StaleBase", "the file changed since it was read", "read the file again and repeat the change";
    ProposalNotFound = "ProposalNotFound", "the proposal does not exist", "list the proposals, or propose the change again";
    ProposalExpired = "ProposalExpired", "the proposal is past its deadline", "propose the change again";
    ProposalUsed = "ProposalUsed", "the proposal was already applied or rejected", "propose the change again if it is still wanted";
    PathMismatch = "PathMismatch", "the path differs from the proposal's", "apply the proposal with the path that it was made for";
    PermissionDenied = "PermissionDenied", "the role does not permit this", "use a tool that the role permits, or ask the user for another role";
    ScopeViolation = "ScopeViolation", "the path is outside the scope of the service", "stay inside the service root, or use `project:` with one of the shared directories";
    BlockedPath = "BlockedPath", "the path is blocked", "agents can never use this file; ask the user for what you need from it";
    CrossDevice = "CrossDevice", "the path is on another device", "stay on the file system of the service root";
    CreateNotAllowed = "CreateNotAllowed", "new files are not allowed there", "create the file in one of the configured directories";
    CommandNotAllowed = "CommandNotAllowed", "the command is not allowed", "use one of the allowed commands or a typed tool";
    NetworkDenied = "NetworkDenied", "the network policy denies the destination", "use an allowed host, or ask the user to allow this one";
    SecretScopeDenied = "SecretScopeDenied", "the secret scope is not allowed here", "use a tool that declares this secret scope";
    SecretInContent = "SecretInContent", "the content contains a secret", "remove the secret and refer to it by name";
    Timeout = "Timeout", "the call ran past its deadline", "request less at once, or raise the timeout within its limit";
    SecurityError = "SecurityError", "the pattern exceeds its time or size limit", "simplify the pattern: fewer repetitions, no nested ones, a literal where possible";
    ApprovalRejected = "ApprovalRejected", "an approval is required and was rejected", "do something else, or ask the user why";
    ApprovalTimeout = "ApprovalTimeout", "no person decided in time", "ask again when a person is available to decide";
    SessionSuspended = "SessionSuspended", "the session is suspended", "stop and tell the user; `vambrace session resume` resumes it";
    SandboxUnavailable = "SandboxUnavailable", "the sandbox that the policy requires is not available", "run `vambrace doctor` to see what is missing";
    AuditUnavailable = "AuditUnavailable", "the ledger cannot be written", "no call runs unrecorded: tell the user to run `vambrace doctor`";
    UpstreamError = "UpstreamError", "another server failed", "try again later, or tell the user";
    RateLimited = "RateLimited", "too many calls", "wait as long as the message says, then continue at a lower rate";
    Cancelled = "Cancelled", "the call was cancelled", "call again if it is still wanted";
    OutcomeUnknown = "OutcomeUnknown", "the call was started and its outcome is not known", "check the state before you repeat it";
    Internal = "Internal", "an internal error", "tell the user; `vambrace timeline` shows the call";
    Policy = "E_POLICY", "a declared tool policy denies this", "call the tool within its declared policy";
    DeclaredTimeout = "E_TIMEOUT", "a declared tool ran past its timeout", "request less at once, or raise timeout_sec in the tool's spec";
}

impl ErrorCode {
    /// The kind of violation that a denial with this code counts as, if it does: the caller attempted something that is
    /// not allowed.
    #[must_use]
    pub fn violation(self) -> Option<&'static str> {
        match self {
            Self::ScopeViolation => Some("scope"),
            Self::BlockedPath => Some("blocked_path"),
            Self::CrossDevice => Some("device"),
            Self::PermissionDenied => Some("role"),
            Self::CreateNotAllowed => Some("create"),
            Self::CommandNotAllowed => Some("command"),
            Self::NetworkDenied => Some("network"),
            Self::SecretScopeDenied => Some("secrets"),
            Self::SecretInContent => Some("secret_in_content"),
            Self::SecurityError => Some("regex"),
            Self::Policy => Some("filesystem"),
            _ => None,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error for the caller: a code to branch on, a message, and a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    /// The stable code.
    pub code: ErrorCode,
    /// Lower case, one line, values in backticks.
    pub message: String,
    /// What the caller can do.
    pub suggestion: String,
}

impl CallError {
    /// An error with the code's own suggestion.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), suggestion: code.suggestion().to_owned() }
    }

    /// Replaces the suggestion with a more specific one.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = suggestion.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_unique_and_has_a_suggestion() {
        let mut seen = std::collections::BTreeSet::new();
        for code in ErrorCode::ALL {
            assert!(seen.insert(code.as_str()), "{code} twice");
            assert!(!code.suggestion().is_empty() && !code.meaning().is_empty());
        }
        assert_eq!(seen.len(), 39);
    }
}
