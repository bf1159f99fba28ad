//! Where a value comes from: the built-in defaults, or a line of a file of one layer. Every value of the configuration
//! carries its origin, so that `config show` and every note can name it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The layer of a configuration file, from the outermost to the innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigSource {
    /// `/etc/vambrace/config.yaml`.
    Organisation,
    /// `~/.config/vambrace/config.yaml`.
    User,
    /// `.vambrace/config.yaml` of the workspace.
    Project {
        /// Whether the user has pinned the file's hash with `vambrace trust`.
        trusted: bool,
    },
}

impl ConfigSource {
    /// Whether the file belongs to the project.
    #[must_use]
    pub fn is_project(self) -> bool {
        matches!(self, Self::Project { .. })
    }

    /// Whether the file may widen the built-in defaults if no file above it sets the key.
    #[must_use]
    pub fn is_trusted(self) -> bool {
        !matches!(self, Self::Project { trusted: false })
    }

    /// Name for messages and for the canonical form.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Organisation => "organisation",
            Self::User => "user",
            Self::Project { trusted: true } => "project",
            Self::Project { trusted: false } => "untrusted project",
        }
    }
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValueOrigin {
    /// Compiled in.
    BuiltIn,
    /// Written in a file.
    File {
        /// The layer of the file.
        source: ConfigSource,
        /// The file's name, as passed by the caller.
        file: Arc<str>,
        /// The line, from 1.
        line: u32,
    },
}

impl ValueOrigin {
    /// The layer; `None` for a built-in value.
    #[must_use]
    pub fn source(&self) -> Option<ConfigSource> {
        match self {
            Self::BuiltIn => None,
            Self::File { source, .. } => Some(*source),
        }
    }
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File { file, line, .. } => write!(f, "{file}:{line}"),
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The origin.
    pub at: ValueOrigin,
}

impl<T> Located<T> {
    /// A value with an origin.
    pub fn new(value: T, at: ValueOrigin) -> Self {
        Self { value, at }
    }

    /// A built-in value.
    pub fn built_in(value: T) -> Self {
        Self { value, at: ValueOrigin::BuiltIn }
    }
}
