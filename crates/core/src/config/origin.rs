//! Where a value comes from: the built-in defaults, or one line of one file of one layer. Every value of
//! the configuration carries it, so that `config show` and every note can name the place.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The layer a file belongs to, from the outermost to the innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `/etc/vambrace/config.yaml`.
    Organisation,
    /// `~/.config/vambrace/config.yaml`.
    User,
    /// `.vambrace/config.yaml` of the workspace.
    Project {
        /// Whether the owner has pinned the file's hash by `vambrace trust`.
        trusted: bool,
    },
}

impl Source {
    /// Whether the file came with the project.
    #[must_use]
    pub fn is_project(self) -> bool {
        matches!(self, Self::Project { .. })
    }

    /// Whether the file may widen the built-in defaults when nobody above it says anything.
    #[must_use]
    pub fn is_trusted(self) -> bool {
        !matches!(self, Self::Project { trusted: false })
    }

    /// One word for people and canonical texts.
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

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The place of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Compiled in.
    BuiltIn,
    /// Written in a file.
    File {
        /// The layer of the file.
        source: Source,
        /// The file's name as it was handed in.
        file: Arc<str>,
        /// The line, from 1.
        line: u32,
    },
}

impl Origin {
    /// The layer; `None` for a built-in value.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match self {
            Self::BuiltIn => None,
            Self::File { source, .. } => Some(*source),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File { file, line, .. } => write!(f, "{file}:{line}"),
        }
    }
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sited<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub at: Origin,
}

impl<T> Sited<T> {
    /// A value at a place.
    pub fn new(value: T, at: Origin) -> Self {
        Self { value, at }
    }

    /// A compiled-in value.
    pub fn built_in(value: T) -> Self {
        Self { value, at: Origin::BuiltIn }
    }
}
