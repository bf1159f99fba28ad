//! How risky the change of a file is, by its name (A5): what runs, and what configures what runs, is HIGH; any other text
//! is MEDIUM. Names are compared as blocked names are, so no spelling makes a risky file look harmless.

use crate::block::{BadPattern, BlockList};
use crate::effect::{Access, Effect};
use crate::risk::{Level, Risk};

/// A2: never written unless the configuration says so.
pub const EXECUTABLES: &[&str] = &["*.exe", "*.bin", "*.so", "*.so.*", "*.dll"];

/// Files that run, or that configure what runs.
pub const HIGH: &[&str] = &[
    "*.exe",
    "*.bin",
    "*.so",
    "*.so.*",
    "*.dll",
    "*.dylib",
    "*.sh",
    "*.bash",
    "*.zsh",
    "*.fish",
    "*.bat",
    "*.cmd",
    "*.ps1",
    "*.conf",
    "*.sys",
    "*.service",
    "*.timer",
    "**/.github/workflows/",
    "**/.github/actions/",
    ".gitlab-ci.yml",
    ".circleci/",
    ".travis.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    "Dockerfile",
    "Dockerfile.*",
    "*.dockerfile",
    "Containerfile",
    "docker-compose*.yml",
    "docker-compose*.yaml",
    "compose.yml",
    "compose.yaml",
    "package.json",
    "config.json",
    "Makefile",
    "GNUmakefile",
    "*.mk",
    "justfile",
    "Rakefile",
    "Gemfile",
    "Vagrantfile",
    "build.rs",
    ".cargo/",
    "setup.py",
    "conftest.py",
    "noxfile.py",
    ".npmrc",
    ".yarnrc*",
    ".pre-commit-config.yaml",
    ".husky/",
    // Git runs these, wherever `core.hooksPath` leads.
    ".githooks/",
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "**/hooks/update",
    "lefthook.yml",
    ".gitattributes",
    ".gitmodules",
    ".gitconfig",
    ".editorconfig",
    ".vscode/",
    ".idea/",
    ".devcontainer/",
    "*.code-workspace",
    ".vimrc",
    ".exrc",
    ".nvimrc",
    ".bashrc",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".mcp.json",
    "mcp.json",
    ".claude/",
    ".cursor/",
];

/// The table of one configuration.
#[derive(Debug, Clone)]
pub struct FileRisk {
    high: BlockList,
}

impl FileRisk {
    /// The built-in names and further ones.
    pub fn new<S: AsRef<str>>(further: &[S]) -> Result<Self, BadPattern> {
        let high = BlockList::new(HIGH.iter().copied().chain(further.iter().map(AsRef::as_ref)))?;
        Ok(Self { high })
    }

    /// How risky one effect is by itself, and why; `None` for what is not a change of a file.
    #[must_use]
    pub fn of(&self, effect: &Effect) -> Option<(Level, String)> {
        let Effect::Path { access, path, .. } = effect else { return None };
        match access {
            Access::Read => None,
            Access::Delete => Some((Level::High, format!("`{path}` goes"))),
            Access::Create | Access::Modify => Some(match self.high.blocks(path.relative()) {
                Some(name) => (Level::High, format!("`{path}` runs or configures what runs (`{name}`)")),
                None => (Level::Medium, format!("`{path}` is text or source")),
            }),
        }
    }

    /// A tool's own judgement, raised by what it would change.
    #[must_use]
    pub fn raise(&self, mut risk: Risk, effects: &[Effect]) -> Risk {
        for (level, why) in effects.iter().filter_map(|effect| self.of(effect)) {
            if level > risk.level {
                risk = Risk { level, reasons: Vec::new() };
            }
            if level == risk.level && risk.reasons.len() < 8 {
                risk.reasons.push(why);
            }
        }
        risk
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Extent;
    use crate::path::AskedPath;

    fn check(access: Access, path: &str, expected: Option<Level>) {
        let path = AskedPath::new(path).parse().unwrap();
        let effect = Effect::Path { access, extent: Extent::Single, path };
        let found = FileRisk::new(&["deploy/"]).unwrap().of(&effect).map(|(level, _)| level);
        assert_eq!(found, expected, "{effect}");
    }

    // A5, A2, DESIGN 4.4
    #[test]
    fn names_have_their_risk_in_any_spelling() {
        for path in ["src/main.rs", "docs/a.md", "a/b.py", "data.json", "config.jsonx", "x/config.yaml"] {
            check(Access::Modify, path, Some(Level::Medium));
            check(Access::Create, path, Some(Level::Medium));
            check(Access::Delete, path, Some(Level::High));
            check(Access::Read, path, None);
        }
        for path in [
            "config.json",
            "a/b/Config.JSON",
            "run.sh",
            "x.CONF",
            "Dockerfile",
            "sub/Dockerfile.dev",
            ".githooks/any",
            "x/hooks/Pre-Commit",
            "x/hooks/update",
            ".github/workflows/ci.yml",
            "x/.github/workflows/ci.yml",
            "package.json",
            "Makefile",
            ".vscode/tasks.json",
            "lib/a.so.1",
            "deploy/x.txt",
            "run.sh.",
            "run.\u{ff53}h",
        ] {
            check(Access::Create, path, Some(Level::High));
            check(Access::Modify, path, Some(Level::High));
        }
    }

    #[test]
    fn the_riskiest_file_gives_the_level_and_the_reason() {
        let effect = |path: &str| Effect::Path {
            access: Access::Modify,
            extent: Extent::Single,
            path: AskedPath::new(path).parse().unwrap(),
        };
        let table = FileRisk::new::<&str>(&[]).unwrap();
        let risk = table.raise(Risk::low("it reads"), &[effect("a.md"), effect("Makefile")]);
        assert_eq!(risk.level, Level::High);
        assert_eq!(risk.reasons.len(), 1);
        assert!(risk.reasons[0].contains("Makefile"), "{risk:?}");
    }
}
