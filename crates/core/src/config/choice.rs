//! Settings with a few named values. Each enum is listed narrowest first, so "may only narrow" is "may
//! only move towards the front"; the table of keys takes its names from here.

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
            pub fn from_name(name: &str) -> Option<Self> {
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
    /// A named set of tools and defaults. Only `readonly` is narrower than the others; the rest differ.
    Profile {
        /// Reading and searching only.
        Readonly = "readonly",
        /// Files, shell, git, knowledge: an agent that programs.
        Coding = "coding",
        /// Talk and look-up: no shell, no writing of files.
        Messaging = "messaging",
        /// No human is there: what would ask is denied.
        Ci = "ci",
    }
}

choices! {
    /// Which interface a search engine has.
    SearchEngine {
        /// An instance of SearXNG.
        Searxng = "searxng",
        /// The API of Brave Search.
        Brave = "brave",
    }
}

choices! {
    /// How far reading reaches beyond the service root.
    Isolation {
        /// The own service and the shared paths.
        Strict = "strict",
        /// Also sibling services, for reading.
        Shared = "shared",
    }
}

choices! {
    /// When a human is asked about a command of MEDIUM risk.
    CommandApproval {
        /// Before it runs.
        AskFirst = "ask_first",
        /// After a speculative run, about its effects.
        EffectsFirst = "effects_first",
    }
}

choices! {
    /// What happens to an installation that is not from a lockfile.
    PackageInstall {
        /// Refused.
        Deny = "deny",
        /// A MEDIUM question.
        Ask = "ask",
    }
}

choices! {
    /// Which strength of sandbox is demanded.
    Tier {
        /// Namespaces, Landlock and seccomp; without them the call is denied.
        Namespaces = "namespaces",
        /// The strongest that this machine has.
        Auto = "auto",
        /// Landlock and seccomp are enough.
        Landlock = "landlock",
    }
}

choices! {
    /// When the start of a call is synced to the disk.
    AuditSync {
        /// Before every call.
        Always = "always",
        /// Before every call that changes something; for one that only reads within 100 ms after it.
        ReadsLater = "reads_later",
    }
}

choices! {
    /// What happens to a session after too many violations.
    ViolationAction {
        /// It is ended.
        End = "end",
        /// It is suspended until a human resumes it.
        Suspend = "suspend",
        /// It is flagged for review.
        Alert = "alert",
    }
}
