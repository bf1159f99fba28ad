//! Effects: what a call would do, in the terms that the rules of every layer use.

use std::fmt;

use crate::path::ScopedPath;

/// Kind of access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathAccess {
    /// Read it.
    Read,
    /// Create it.
    Create,
    /// Change it.
    Modify,
    /// Delete it.
    Delete,
}

/// Whether an effect covers one path or a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// Exactly this file.
    Single,
    /// This directory and everything below it that the fence admits.
    Tree,
}

/// One thing a call would do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Access a path.
    Path {
        /// Kind of access.
        access: PathAccess,
        /// One path or a tree.
        extent: Extent,
        /// The path, after symlinks are followed.
        path: ScopedPath,
    },
    /// Execute a program.
    Execute {
        /// Program and arguments.
        argv: Vec<String>,
    },
    /// Open a connection.
    Connect {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// Send an HTTP request.
    Request {
        /// `GET`, `HEAD`, `POST`.
        method: String,
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// Use a secret.
    Secret {
        /// The secret's scope.
        scope: String,
    },
    /// Change the system.
    System {
        /// The action, in one word.
        action: String,
    },
}

/// The kinds of effects that a role can permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectKind {
    /// Reading paths.
    Read,
    /// Creating paths.
    Create,
    /// Modifying paths.
    Modify,
    /// Deleting paths.
    Delete,
    /// Executing programs.
    Execute,
    /// Opening connections.
    Connect,
    /// Using secrets.
    Secret,
    /// Changing the system.
    System,
}

impl EffectKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Create,
        Self::Modify,
        Self::Delete,
        Self::Execute,
        Self::Connect,
        Self::Secret,
        Self::System,
    ];

    /// The word in configurations and explanations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Create => "create",
            Self::Modify => "modify",
            Self::Delete => "delete",
            Self::Execute => "execute",
            Self::Connect => "connect",
            Self::Secret => "secret",
            Self::System => "system",
        }
    }

    /// Parses the word of [`Self::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl Effect {
    /// Reading one file.
    #[must_use]
    pub fn read(path: ScopedPath) -> Self {
        Self::Path { access: PathAccess::Read, extent: Extent::Single, path }
    }

    /// Reading a directory and everything below it.
    #[must_use]
    pub fn read_tree(path: ScopedPath) -> Self {
        Self::Path { access: PathAccess::Read, extent: Extent::Tree, path }
    }

    /// The kind of effect.
    #[must_use]
    pub fn kind(&self) -> EffectKind {
        match self {
            Self::Path { access: PathAccess::Read, .. } => EffectKind::Read,
            Self::Path { access: PathAccess::Create, .. } => EffectKind::Create,
            Self::Path { access: PathAccess::Modify, .. } => EffectKind::Modify,
            Self::Path { access: PathAccess::Delete, .. } => EffectKind::Delete,
            Self::Execute { .. } => EffectKind::Execute,
            Self::Connect { .. } | Self::Request { .. } => EffectKind::Connect,
            Self::Secret { .. } => EffectKind::Secret,
            Self::System { .. } => EffectKind::System,
        }
    }

    /// An unambiguous form for digests: a JSON array of all fields.
    #[must_use]
    pub fn canonical(&self) -> String {
        let kind = self.kind().as_str();
        let fields = match self {
            Self::Path { path, extent: Extent::Single, .. } => {
                vec![kind.into(), "single".into(), path.to_string()]
            }
            Self::Path { path, extent: Extent::Tree, .. } => {
                vec![kind.into(), "tree".into(), path.to_string()]
            }
            Self::Execute { argv } => std::iter::once(kind.into()).chain(argv.iter().cloned()).collect(),
            Self::Connect { host, port } => vec![kind.into(), host.clone(), port.to_string()],
            Self::Request { method, host, port } => {
                vec![kind.into(), host.clone(), port.to_string(), method.clone()]
            }
            Self::Secret { scope: word } | Self::System { action: word } => vec![kind.into(), word.clone()],
        };
        serde_json::Value::from(fields).to_string()
    }

    /// Host and port, for effects that connect.
    #[must_use]
    pub fn host(&self) -> Option<(&str, u16)> {
        match self {
            Self::Connect { host, port } | Self::Request { host, port, .. } => Some((host, *port)),
            _ => None,
        }
    }

    /// The path, for effects on paths.
    #[must_use]
    pub fn path(&self) -> Option<&ScopedPath> {
        match self {
            Self::Path { path, .. } => Some(path),
            _ => None,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind().as_str();
        match self {
            Self::Path { path, extent: Extent::Single, .. } => write!(f, "{kind} {path}"),
            Self::Path { path, extent: Extent::Tree, .. } => write!(f, "{kind} {path}/**"),
            Self::Execute { argv } => write!(f, "{kind} {}", argv.join(" ")),
            Self::Connect { host, port } => write!(f, "{kind} {host}:{port}"),
            Self::Request { method, host, port } => write!(f, "{kind} {method} {host}:{port}"),
            Self::Secret { scope } => write!(f, "{kind} {scope}"),
            Self::System { action } => write!(f, "{kind} {action}"),
        }
    }
}
