//! The package managers that install from a lockfile.

use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::suggest::nearest;

/// A package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PackageManager {
    /// npm.
    Npm,
    /// pnpm.
    Pnpm,
    /// yarn, version 1 and later.
    Yarn,
    /// poetry.
    Poetry,
    /// uv.
    Uv,
    /// pip with a requirements file that has hashes.
    Pip,
    /// cargo.
    Cargo,
    /// go modules.
    Go,
    /// bundler.
    Bundler,
}

impl PackageManager {
    /// Every manager, in the order of detection.
    pub const ALL: [Self; 9] = [
        Self::Pnpm,
        Self::Yarn,
        Self::Npm,
        Self::Uv,
        Self::Poetry,
        Self::Pip,
        Self::Cargo,
        Self::Go,
        Self::Bundler,
    ];

    /// The name that `install_dependencies` takes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pnpm => "pnpm",
            Self::Yarn => "yarn",
            Self::Poetry => "poetry",
            Self::Uv => "uv",
            Self::Pip => "pip",
            Self::Cargo => "cargo",
            Self::Go => "go",
            Self::Bundler => "bundler",
        }
    }

    /// The manager with this name.
    pub fn from_name(name: &str) -> Result<Self, CallError> {
        let found = Self::ALL.into_iter().find(|manager| manager.as_str() == name);
        found.or_else(|| (name == "bundle").then_some(Self::Bundler)).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str);
            let near = if name.len() <= 40 { nearest(name, names) } else { None };
            let suggestion = near.map_or_else(
                || format!("use one of {}", names.join(", ")),
                |name| format!("did you mean `{name}`?"),
            );
            let shown = crate::bounded_text::clip(name, 60);
            CallError::new(
                ErrorCode::InvalidArguments,
                format!("`{}` is not a package manager", shown.escape_debug()),
            )
            .suggest(suggestion)
        })
    }

    /// The lockfiles that it reads, the preferred one first.
    #[must_use]
    pub fn lockfiles(self) -> &'static [&'static str] {
        match self {
            Self::Npm => &["npm-shrinkwrap.json", "package-lock.json"],
            Self::Pnpm => &["pnpm-lock.yaml"],
            Self::Yarn => &["yarn.lock"],
            Self::Poetry => &["poetry.lock"],
            Self::Uv => &["uv.lock"],
            Self::Pip => &["requirements.txt"],
            Self::Cargo => &["Cargo.lock"],
            Self::Go => &["go.sum"],
            Self::Bundler => &["Gemfile.lock", "gems.locked"],
        }
    }

    /// What a person runs to make the lockfile.
    pub(crate) fn lock_command(self) -> &'static str {
        match self {
            Self::Npm => "npm install --package-lock-only",
            Self::Pnpm => "pnpm install --lockfile-only",
            Self::Yarn => "yarn install",
            Self::Poetry => "poetry lock",
            Self::Uv => "uv lock",
            Self::Pip => "uv pip compile --generate-hashes requirements.in -o requirements.txt",
            Self::Cargo => "cargo generate-lockfile",
            Self::Go => "go mod tidy",
            Self::Bundler => "bundle lock --add-checksums",
        }
    }
}
