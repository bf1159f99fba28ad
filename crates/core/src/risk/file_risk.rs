//! Risk of changing a file, by its name (A5): files that are executed, or that configure what is executed, are HIGH; all
//! others are MEDIUM. Names are compared like blocked paths, so no other spelling makes a risky file look harmless.

use std::sync::LazyLock;

use crate::blocked_paths::{BadPattern, BlockList};
use crate::effect::{Effect, PathAccess};
use crate::risk::{Risk, RiskLevel, SELF_RUNNING};

/// A2: never written unless the configuration allows it.
pub const EXECUTABLE_FILES: &[&str] = &["*.exe", "*.bin", "*.so", "*.so.*", "*.dll"];

/// The built-in table, compiled when the first change is rated. If it did not compile, every file would be HIGH.
static BUILT_IN: LazyLock<Option<BlockList>> = LazyLock::new(|| BlockList::new(SELF_RUNNING.all()).ok());

/// The risk table of one configuration.
#[derive(Debug, Clone)]
pub struct FileRiskTable {
    further: BlockList,
}

impl FileRiskTable {
    /// The built-in patterns plus those of the configuration.
    pub fn new<S: AsRef<str>>(further: &[S]) -> Result<Self, BadPattern> {
        Ok(Self { further: BlockList::new(further)? })
    }

    /// The pattern that makes a file HIGH.
    fn high(&self, relative: &str) -> Option<&str> {
        let built_in = match &*BUILT_IN {
            Some(list) => list.blocks(relative),
            None => Some("*"),
        };
        built_in.or_else(|| self.further.blocks(relative))
    }

    /// Risk level of one effect, with the reason; `None` if the effect does not change a file.
    #[must_use]
    pub fn of(&self, effect: &Effect) -> Option<(RiskLevel, String)> {
        let Effect::Path { access, path, .. } = effect else { return None };
        match access {
            PathAccess::Read => None,
            PathAccess::Delete => Some((RiskLevel::High, format!("`{path}` is deleted"))),
            PathAccess::Create | PathAccess::Modify => Some(match self.high(path.relative()) {
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
            ".zshenv",
            "crates/x/Cargo.toml",
            "jest.config.mjs",
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
