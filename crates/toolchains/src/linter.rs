//! The linters that are detected and run.

/// A linter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Linter {
    /// `cargo clippy`.
    Clippy,
    /// ruff.
    Ruff,
    /// flake8.
    Flake8,
    /// eslint.
    Eslint,
    /// biome.
    Biome,
    /// golangci-lint.
    GolangciLint,
    /// shellcheck.
    Shellcheck,
    /// The script `lint` of `package.json`.
    PackageScript,
    /// The configured command.
    Configured,
}

impl Linter {
    /// The name in results and messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clippy => "clippy",
            Self::Ruff => "ruff",
            Self::Flake8 => "flake8",
            Self::Eslint => "eslint",
            Self::Biome => "biome",
            Self::GolangciLint => "golangci-lint",
            Self::Shellcheck => "shellcheck",
            Self::PackageScript => "package script",
            Self::Configured => "configured command",
        }
    }
}
