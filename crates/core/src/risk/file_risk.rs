//! Risk of changing a file, by its name (A5): files that are executed, or that configure what is executed, are HIGH_RISK_FILES;
//! all others are MEDIUM. Names are compared like blocked paths, so no other spelling makes a risky file look harmless.

use crate::blocked_paths::{BadPattern, BlockList};
use crate::effect::{Effect, PathAccess};
use crate::risk::{Risk, RiskLevel};

/// A2: never written unless the configuration allows it.
pub const EXECUTABLE_FILES: &[&str] = &["*.exe", "*.bin", "*.so", "*.so.*", "*.dll"];

/// Files that are executed, or that configure what is executed.
pub const HIGH_RISK_FILES: &[&str] = &[
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
    // Git runs these, wherever `core.hooksPath` points.
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

/// The risk table of one configuration.
#[derive(Debug, Clone)]
pub struct FileRiskTable {
    high: BlockList,
}

impl FileRiskTable {
    /// The built-in patterns plus those of the configuration.
    pub fn new<S: AsRef<str>>(further: &[S]) -> Result<Self, BadPattern> {
        let high = BlockList::new(HIGH_RISK_FILES.iter().copied().chain(further.iter().map(AsRef::as_ref)))?;
        Ok(Self { high })
    }

    /// Risk level of one effect, with the reason; `None` if the effect does not change a file.
    #[must_use]
    pub fn of(&self, effect: &Effect) -> Option<(RiskLevel, String)> {
        let Effect::Path { access, path, .. } = effect else { return None };
        match access {
            PathAccess::Read => None,
            PathAccess::Delete => Some((RiskLevel::High, format!("`{path}` is deleted"))),
            PathAccess::Create | PathAccess::Modify => Some(match self.high.blocks(path.relative()) {
                Some(name) => (
                    RiskLevel::High,
                    format!("`{path}` is executed or configures what is executed (`{name}`)"),
                ),
                None => (RiskLevel::Medium, format!("`{path}` is text or source")),
            }),
        }
    }

    /// Raises a tool's own risk estimate by the files that it changes.
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

    fn check(access: PathAccess, path: &str, expected: Option<RiskLevel>) {
        let path = AskedPath::new(path).parse().unwrap();
        let effect = Effect::Path { access, extent: Extent::Single, path };
        let found = FileRiskTable::new(&["deploy/"]).unwrap().of(&effect).map(|(level, _)| level);
        assert_eq!(found, expected, "{effect}");
    }

    // A5, A2
    #[test]
    fn file_names_have_the_same_risk_in_every_spelling() {
        for path in ["src/main.rs", "docs/a.md", "a/b.py", "data.json", "config.jsonx", "x/config.yaml"] {
            check(PathAccess::Modify, path, Some(RiskLevel::Medium));
            check(PathAccess::Create, path, Some(RiskLevel::Medium));
            check(PathAccess::Delete, path, Some(RiskLevel::High));
            check(PathAccess::Read, path, None);
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
            check(PathAccess::Create, path, Some(RiskLevel::High));
            check(PathAccess::Modify, path, Some(RiskLevel::High));
        }
    }

    #[test]
    fn the_riskiest_file_gives_the_level_and_the_reason() {
        let effect = |path: &str| Effect::Path {
            access: PathAccess::Modify,
            extent: Extent::Single,
            path: AskedPath::new(path).parse().unwrap(),
        };
        let table = FileRiskTable::new::<&str>(&[]).unwrap();
        let risk = table.raise(Risk::low("it reads"), &[effect("a.md"), effect("Makefile")]);
        assert_eq!(risk.level, RiskLevel::High);
        assert_eq!(risk.reasons.len(), 1);
        assert!(risk.reasons[0].contains("Makefile"), "{risk:?}");
    }
}
