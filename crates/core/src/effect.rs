//! Effects: what a call would do, in the terms that the rules of every layer use.

use std::fmt;

use crate::path::{AskedPath, ScopedPath};

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
        serde_json::Value::from(self.fields()).to_string()
    }

    /// All fields as texts, the kind first.
    #[must_use]
    pub fn fields(&self) -> Vec<String> {
        let kind = self.kind().as_str();
        match self {
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
        }
    }

    /// Reads [`Self::fields`] back; `None` if they are not an effect.
    #[must_use]
    pub fn from_fields(fields: &[String]) -> Option<Self> {
        let (kind, rest) = fields.split_first()?;
        let access = match EffectKind::parse(kind)? {
            EffectKind::Read => PathAccess::Read,
            EffectKind::Create => PathAccess::Create,
            EffectKind::Modify => PathAccess::Modify,
            EffectKind::Delete => PathAccess::Delete,
            EffectKind::Execute => return Some(Self::Execute { argv: rest.to_vec() }),
            EffectKind::Connect => {
                return match rest {
                    [host, port] => Some(Self::Connect { host: host.clone(), port: port.parse().ok()? }),
                    [host, port, method] => {
                        let (method, host) = (method.clone(), host.clone());
                        Some(Self::Request { method, host, port: port.parse().ok()? })
                    }
                    _ => None,
                };
            }
            EffectKind::Secret | EffectKind::System => {
                let [word] = rest else { return None };
                return Some(match EffectKind::parse(kind)? {
                    EffectKind::Secret => Self::Secret { scope: word.clone() },
                    _ => Self::System { action: word.clone() },
                });
            }
        };
        let [extent, path] = rest else { return None };
        let extent = match extent.as_str() {
            "single" => Extent::Single,
            "tree" => Extent::Tree,
            _ => return None,
        };
        Some(Self::Path { access, extent, path: AskedPath::new(path.as_str()).parse().ok()? })
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
