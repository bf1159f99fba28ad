//! The error codes an agent or a person can meet. Codes are a contract (stable, PascalCase); each has a
//! suggestion that helps the caller recover. Messages are written where the fault is known.

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

            /// What the caller can do about it when nothing more specific is known.
            #[must_use]
            pub const fn suggestion(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

codes! {
    UnknownTool = "UnknownTool", "no tool of that name is offered to this caller", "list the tools first and use one of their names";
    InvalidArguments = "InvalidArguments", "the arguments do not fit the tool's schema", "read the tool's input schema and correct the named argument";
    FileNotFound = "FileNotFound", "there is no such file or folder", "check the path, or use list_files to see what is there";
    NotAFile = "NotAFile", "the path is not a regular file", "use list_files for folders; devices, sockets and pipes are never opened";
    FileProtected = "FileProtected", "the operating system does not let the file be changed", "ask the user to change the owner, the permissions or the attributes of the file or its folder";
    BinaryFile = "BinaryFile", "the file is not text", "only text, PDF and common image files are returned";
    TooLarge = "TooLarge", "the file is larger than the configured cap", "ask for a line range, or search instead of reading";
    NotUtf8 = "NotUtf8", "the text is not valid UTF-8", "ask the user to convert the file, or search it instead";
    MatchCountMismatch = "MatchCountMismatch", "the number of matches differs from the expected count", "read the file again and make the pattern match exactly the expected number of times";
    OverlappingEdits = "OverlappingEdits", "two edits touch the same bytes", "merge the overlapping edits into one";
    ResourceBusy = "ResourceBusy", "another call holds the file", "wait a moment and try again";
    StaleBase = "StaleBase", "the file changed since it was read", "read the file again and repeat the change";
    ProposalNotFound = "ProposalNotFound", "there is no such proposal", "list the proposals, or propose the change again";
    ProposalExpired = "ProposalExpired", "the proposal is past its deadline", "propose the change again";
    ProposalUsed = "ProposalUsed", "the proposal was already applied or rejected", "propose the change again if it is still wanted";
    PathMismatch = "PathMismatch", "the path differs from the proposal's", "apply the proposal with the path it was made for";
    PermissionDenied = "PermissionDenied", "the role does not permit this", "use a tool that this role may use, or ask the user for another role";
    ScopeViolation = "ScopeViolation", "the path leads outside the service's scope", "stay inside the service root, or use `project:` with one of the shared folders";
    BlockedPath = "BlockedPath", "the path is in a blocked zone", "this file is never given to agents; ask the user for what you need from it";
    CrossDevice = "CrossDevice", "the path crosses onto another device", "stay on the file system of the service root";
    CreateNotAllowed = "CreateNotAllowed", "new files are not allowed there", "create the file in one of the configured folders";
    CommandNotAllowed = "CommandNotAllowed", "the command is not allowed", "use one of the allowed commands or a typed tool";
    NetworkDenied = "NetworkDenied", "the network policy refuses the destination", "use an allowed host, or ask the user to allow this one";
    SecretScopeDenied = "SecretScopeDenied", "the secret scope is not allowed here", "use a tool that declares this secret scope";
    SecretInContent = "SecretInContent", "the content holds a secret", "remove the secret and refer to it by name";
    Timeout = "Timeout", "the call ran past its deadline", "ask for less at once, or raise the timeout within its limit";
    SecurityError = "SecurityError", "the pattern is over its budget", "simplify the pattern: fewer repetitions, no nesting of them, a literal where possible";
    ApprovalRejected = "ApprovalRejected", "a human is needed and did not agree", "do something else, or ask the user why";
    ApprovalTimeout = "ApprovalTimeout", "nobody decided in time", "ask again when somebody is there to decide";
    SessionSuspended = "SessionSuspended", "the session is suspended", "stop and tell the user; `vambrace session resume` lifts it";
    SandboxUnavailable = "SandboxUnavailable", "the sandbox that the policy demands is not available", "run `vambrace doctor` to see what is missing";
    AuditUnavailable = "AuditUnavailable", "the ledger cannot be written", "nothing runs unrecorded: tell the user to run `vambrace doctor`";
    UpstreamError = "UpstreamError", "another server failed", "try again later, or tell the user";
    RateLimited = "RateLimited", "too many calls", "wait for the time given, then go on more slowly";
    Cancelled = "Cancelled", "the call was cancelled", "call again if it is still wanted";
    OutcomeUnknown = "OutcomeUnknown", "the call was started and its end is not known", "look at the state before repeating it";
    Internal = "Internal", "an internal fault", "tell the user; `vambrace timeline` shows the call";
    Policy = "E_POLICY", "a declared tool policy refuses this", "call the tool within its declared policy";
    DeclaredTimeout = "E_TIMEOUT", "a declared tool ran past its timeout", "ask for less at once, or raise timeout_sec in the tool's spec";
}

impl ErrorCode {
    /// The kind of violation a refusal with this code is, if it is one: something was attempted that is not allowed.
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

/// What went wrong, for the caller: a code to branch on, a sentence, and a way on.
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

    /// Replaces the suggestion by a more specific one.
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
    fn every_code_is_unique_and_suggests_something() {
        let mut seen = std::collections::BTreeSet::new();
        for code in ErrorCode::ALL {
            assert!(seen.insert(code.as_str()), "{code} twice");
            assert!(!code.suggestion().is_empty() && !code.meaning().is_empty());
        }
        assert_eq!(seen.len(), 39);
    }
}
