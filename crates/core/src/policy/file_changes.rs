//! Policy for changes to files: where files may be created and deleted (B4, T11), which are never written (A2), and which
//! risky calls need approval (A5). Part of the floor and of the risk layer; it only narrows.

use std::sync::Arc;

use super::reason;
use crate::blocked_paths::{BadPattern, BlockList};
use crate::config::EffectiveConfig;
use crate::effect::{Effect, EffectKind, PathAccess};
use crate::error::ErrorCode;
use crate::path::ScopedPath;
use crate::plan::Plan;
use crate::risk::{EXECUTABLE_FILES, FileRiskTable, RiskLevel};
use crate::verdict::{Grantable, LayerKind, Verdict};

/// In a list of directories: the root level only.
const ROOT: &str = ".";
/// In a list of directories: every directory.
const EVERYWHERE: &str = "**";

/// The settings of a configuration for changes to files.
#[derive(Debug, Clone, Default)]
pub struct FileChangePolicy {
    create_in: Vec<String>,
    delete_in: Vec<String>,
    /// Names that are never written.
    never_written: Option<Arc<BlockList>>,
    risk: Option<Arc<FileRiskTable>>,
    /// The user changes the files personally: nothing is limited, and nothing needs an approval.
    unlimited: bool,
}

impl FileChangePolicy {
    /// For what the user starts personally.
    #[must_use]
    pub fn of_user() -> Self {
        Self { unlimited: true, ..Self::default() }
    }

    /// Compiles the effective settings.
    pub fn of(settings: &EffectiveConfig) -> Result<Self, BadPattern> {
        Ok(Self {
            create_in: settings.create_in.clone(),
            delete_in: settings.delete_in.clone(),
            never_written: match settings.write_executables {
                true => None,
                false => Some(Arc::new(BlockList::new(EXECUTABLE_FILES)?)),
            },
            risk: Some(Arc::new(FileRiskTable::new(&settings.approvals.high)?)),
            unlimited: false,
        })
    }

    /// Raises a tool's own risk estimate by the files that it changes. Without a risk table every change is HIGH.
    #[must_use]
    pub fn raise(&self, risk: crate::risk::Risk, effects: &[Effect]) -> crate::risk::Risk {
        match &self.risk {
            Some(table) => table.raise(risk, effects),
            None if self.unlimited => risk,
            None if effects.iter().all(|effect| effect.kind() == EffectKind::Read) => risk,
            None => crate::risk::Risk::high("no configuration defines its risk"),
        }
    }

    /// The checks of the floor: directories and names.
    pub(super) fn judge(&self, plan: &Plan, verdict: &mut Verdict) {
        // Test fixtures and damaged configurations have no directory lists; that permits nothing.
        let Some(_) = &self.risk else { return };
        for effect in &plan.effects {
            let Effect::Path { access, path, .. } = effect else { continue };
            let mut deny = |code, rule: &str, why: &str| {
                verdict.deny(code, reason(LayerKind::Floor, rule, effect, why));
            };
            match access {
                PathAccess::Read => continue,
                PathAccess::Create if !lies_in(path, &self.create_in) => {
                    let why = format!("new files are allowed in {} only", directory_list(&self.create_in));
                    deny(ErrorCode::CreateNotAllowed, "workspace.create_in", &why);
                }
                PathAccess::Delete if !lies_in(path, &self.create_in) && !lies_in(path, &self.delete_in) => {
                    let all: Vec<String> = self.create_in.iter().chain(&self.delete_in).cloned().collect();
                    let why = format!("files may be deleted in {} only", directory_list(&all));
                    deny(ErrorCode::CreateNotAllowed, "workspace.delete_in", &why);
                }
                PathAccess::Create | PathAccess::Modify | PathAccess::Delete => {}
            }
            if let Some(name) = self.never_written.as_ref().and_then(|names| names.blocks(path.relative())) {
                let why = format!("`{path}` is an executable file (`{name}`), which agents may not write");
                deny(ErrorCode::BlockedPath, "workspace.write_executables", &why);
            }
        }
    }

    /// Adds an obligation for each effect that makes a call risky. LOW needs none; HIGH is discharged by an approval of
    /// this one call, or by a rule in the file of the user or the organisation.
    pub(super) fn ask(&self, plan: &Plan, verdict: &mut Verdict) {
        if plan.risk.level == RiskLevel::Low {
            return;
        }
        let levels: Vec<(&Effect, RiskLevel, String)> = plan
            .effects
            .iter()
            .filter(|effect| effect.kind() != EffectKind::Read)
            .map(|effect| match self.risk.as_ref().and_then(|table| table.of(effect)) {
                Some((level, why)) => (effect, level, why),
                None => (effect, plan.risk.level, plan.risk.reasons.join("; ")),
            })
            .collect();
        let highest = levels.iter().map(|(_, level, _)| *level).max().unwrap_or(RiskLevel::Low);
        let mut ask = |about: &dyn std::fmt::Display, level: RiskLevel, why: &str| {
            let grantable =
                if level == RiskLevel::High { Grantable::ConfiguredOnly } else { Grantable::AnyGrant };
            let why = format!("{level} risk: {why}");
            verdict.ask(reason(LayerKind::Risk, "risk", about, &why), grantable);
        };
        for (effect, level, why) in &levels {
            // The tool rates the call higher than the file names do: every effect then gets the risk of the call.
            if highest < plan.risk.level {
                ask(effect, plan.risk.level, &plan.risk.reasons.join("; "));
            } else if *level > RiskLevel::Low {
                ask(effect, *level, why);
            }
        }
        if levels.is_empty() {
            ask(&plan.tool.name, plan.risk.level, &plan.risk.reasons.join("; "));
        }
    }
}

fn lies_in(path: &ScopedPath, directories: &[String]) -> bool {
    let relative = path.relative();
    directories.iter().any(|directory| match directory.as_str() {
        EVERYWHERE => true,
        ROOT => !relative.contains('/'),
        directory => {
            relative.strip_prefix(directory.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
        }
    })
}

fn directory_list(directories: &[String]) -> String {
    let names: Vec<String> = directories
        .iter()
        .map(|directory| match directory.as_str() {
            ROOT => "the root level".to_owned(),
            EVERYWHERE => "every directory".to_owned(),
            directory => format!("`{directory}`"),
        })
        .collect();
    if names.is_empty() { "no directory".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::AskedPath;

    // B4: `_is_create_allowed()` with various paths
    #[test]
    fn new_files_are_allowed_in_the_listed_directories_only() {
        let usual: Vec<String> =
            [".", "src/", "lib/", "tests/", "docs/", "scripts/"].map(str::to_owned).to_vec();
        let check = |path: &str, directories: &[String], expected: bool| {
            let path = AskedPath::new(path).parse().unwrap();
            assert_eq!(lies_in(&path, directories), expected, "{path}");
        };
        for path in ["a.txt", "src/a.rs", "src/deep/er/a.rs", "docs/x", "scripts/y"] {
            check(path, &usual, true);
        }
        for path in ["srcx/a.rs", "other/a.rs", "a/src/b.rs", "vendor/docs/x"] {
            check(path, &usual, false);
        }
        check("any/where.txt", &["**".to_owned()], true);
        check("a.txt", &["src/".to_owned()], false);
        check("a.txt", &[], false);
    }
}
