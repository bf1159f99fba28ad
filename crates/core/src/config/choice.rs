//! Settings with a few named values. Each enum is listed narrowest first, so "may only narrow" means "may only move to
//! the front"; the key table takes its names from here.

use std::fmt;

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $wire:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, narrowest first.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Every name, narrowest first.
            pub const NAMES: &'static [&'static str] = &[$($wire,)*];

            /// The name in a file.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $wire,)* }
            }

            /// The value of a name.
            #[must_use]
            pub(crate) fn from_name(name: &str) -> Option<Self> {
                match name { $($wire => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

choices! {
    /// A named set of tools and defaults. Only `readonly` is narrower than the others; the rest are not ordered.
    Profile {
        /// Reading and searching only.
        Readonly = "readonly",
        /// Files, shell, git, knowledge: for coding agents.
        Coding = "coding",
        /// Chat and lookup: no shell, no file changes.
        Messaging = "messaging",
        /// No person is available: calls that need approval are denied.
        Ci = "ci",
    }
}

choices! {
    /// API of a search engine.
    SearchEngine {
        /// An instance of SearXNG.
        Searxng = "searxng",
        /// The API of Brave Search.
        Brave = "brave",
    }
}

choices! {
    /// What may be read outside of the service root.
    Isolation {
        /// Only the shared paths.
        Strict = "strict",
        /// Sibling services too.
        Shared = "shared",
    }
}

choices! {
    /// When approval of a MEDIUM command is requested.
    CommandApproval {
        /// Before the command runs.
        AskFirst = "ask_first",
        /// After a speculative run, for its effects.
        EffectsFirst = "effects_first",
    }
}

choices! {
    /// Decision on package installations that are not from a lockfile.
    PackageInstall {
        /// Denied.
        Deny = "deny",
        /// A MEDIUM approval request.
        Ask = "ask",
    }
}

choices! {
    /// Required sandbox tier.
    Tier {
        /// Namespaces, Landlock and seccomp; without them the call is denied.
        Namespaces = "namespaces",
        /// The strongest tier that this machine supports.
        Auto = "auto",
        /// Landlock and seccomp are sufficient.
        Landlock = "landlock",
    }
}

choices! {
    /// When the start record of a call is synced to disk.
    AuditSync {
        /// Before every call.
        Always = "always",
        /// Before every call that changes something; for calls that only read, within 100 ms after the start.
        ReadsLater = "reads_later",
    }
}

choices! {
    /// What happens to a session after too many violations.
    ViolationAction {
        /// The session ends.
        End = "end",
        /// The session is suspended until a person resumes it.
        Suspend = "suspend",
        /// The session is flagged for review.
        Alert = "alert",
    }
}
