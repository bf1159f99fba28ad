//! Changing files: where new ones may be made and old ones removed (B4, T11), which are never written (A2), and the
//! question that every risky call asks (A5). Part of the floor and a layer of its own; it only narrows.

use std::sync::Arc;

use super::reason;
use crate::block::{BadPattern, BlockList};
use crate::config::Effective;
use crate::effect::{Access, Effect, EffectKind};
use crate::error::ErrorCode;
use crate::path::ScopedPath;
use crate::plan::Plan;
use crate::risk::{EXECUTABLES, FileRisk, Level};
use crate::verdict::{Grantable, LayerKind, Verdict};

/// The root level alone.
const ROOT: &str = ".";
/// Everywhere.
const EVERYWHERE: &str = "**";

/// What a configuration says about changing files.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    create_in: Vec<String>,
    delete_in: Vec<String>,
    /// Names that are not written at all.
    refused: Option<Arc<BlockList>>,
    risk: Option<Arc<FileRisk>>,
}

impl Writing {
    /// Compiles the settings in force.
    pub fn of(settings: &Effective) -> Result<Self, BadPattern> {
        Ok(Self {
            create_in: settings.create_in.clone(),
            delete_in: settings.delete_in.clone(),
            refused: match settings.write_executables {
                true => None,
                false => Some(Arc::new(BlockList::new(EXECUTABLES)?)),
            },
            risk: Some(Arc::new(FileRisk::new(&settings.approvals.high)?)),
        })
    }

    /// A tool's own judgement, raised by what it would change. Where no table is known everything is HIGH.
    #[must_use]
    pub fn raise(&self, risk: crate::risk::Risk, effects: &[Effect]) -> crate::risk::Risk {
        match &self.risk {
            Some(table) => table.raise(risk, effects),
            None if effects.iter().all(|effect| effect.kind() == EffectKind::Read) => risk,
            None => crate::risk::Risk::high("no configuration says how risky it is"),
        }
    }

    /// The floor: places and names.
    pub(super) fn judge(&self, plan: &Plan, verdict: &mut Verdict) {
        // Samples and damaged configurations know no places; nothing is permitted by that.
        let Some(_) = &self.risk else { return };
        for effect in &plan.effects {
            let Effect::Path { access, path, .. } = effect else { continue };
            let mut deny = |code, rule: &str, why: &str| {
                verdict.deny(code, reason(LayerKind::Floor, rule, effect, why));
            };
            match access {
                Access::Read => continue,
                Access::Create if !lies_in(path, &self.create_in) => {
                    let why = format!("new files are allowed in {} only", places(&self.create_in));
                    deny(ErrorCode::CreateNotAllowed, "workspace.create_in", &why);
                }
                Access::Delete if !lies_in(path, &self.create_in) && !lies_in(path, &self.delete_in) => {
                    let all: Vec<String> = self.create_in.iter().chain(&self.delete_in).cloned().collect();
                    let why = format!("files are deleted in {} only", places(&all));
                    deny(ErrorCode::CreateNotAllowed, "workspace.delete_in", &why);
                }
                Access::Create | Access::Modify | Access::Delete => {}
            }
            if let Some(name) = self.refused.as_ref().and_then(|names| names.blocks(path.relative())) {
                let why = format!("`{path}` is an executable file (`{name}`), which no agent writes");
                deny(ErrorCode::BlockedPath, "workspace.write_executables", &why);
            }
        }
    }

    /// The question of a risky call, one for each effect that makes it so. LOW runs at once; what is HIGH is answered for
    /// this one call, or by a rule that the user or the organisation wrote.
    pub(super) fn ask(&self, plan: &Plan, verdict: &mut Verdict) {
        if plan.risk.level == Level::Low {
            return;
        }
        let levels: Vec<(&Effect, Level, String)> = plan
            .effects
            .iter()
            .filter(|effect| effect.kind() != EffectKind::Read)
            .map(|effect| match self.risk.as_ref().and_then(|table| table.of(effect)) {
                Some((level, why)) => (effect, level, why),
                None => (effect, plan.risk.level, plan.risk.reasons.join("; ")),
            })
            .collect();
        let highest = levels.iter().map(|(_, level, _)| *level).max().unwrap_or(Level::Low);
        let mut ask = |about: &dyn std::fmt::Display, level: Level, why: &str| {
            let grantable = if level == Level::High { Grantable::Written } else { Grantable::Freely };
            let why = format!("{level} risk: {why}");
            verdict.ask(reason(LayerKind::Risk, "risk", about, &why), grantable);
        };
        for (effect, level, why) in &levels {
            // The tool knows more than the names say: then every part of it is as risky as the whole.
            if highest < plan.risk.level {
                ask(effect, plan.risk.level, &plan.risk.reasons.join("; "));
            } else if *level > Level::Low {
                ask(effect, *level, why);
            }
        }
        if levels.is_empty() {
            ask(&plan.tool.name, plan.risk.level, &plan.risk.reasons.join("; "));
        }
    }
}

fn lies_in(path: &ScopedPath, places: &[String]) -> bool {
    let relative = path.relative();
    places.iter().any(|place| match place.as_str() {
        EVERYWHERE => true,
        ROOT => !relative.contains('/'),
        folder => {
            relative.strip_prefix(folder.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
        }
    })
}

fn places(places: &[String]) -> String {
    let words: Vec<String> = places
        .iter()
        .map(|place| match place.as_str() {
            ROOT => "the root level".to_owned(),
            EVERYWHERE => "every folder".to_owned(),
            folder => format!("`{folder}`"),
        })
        .collect();
    if words.is_empty() { "no folder".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::AskedPath;

    // B4: `_is_create_allowed()` with various paths
    #[test]
    fn new_files_only_where_they_are_allowed() {
        let usual: Vec<String> =
            [".", "src/", "lib/", "tests/", "docs/", "scripts/"].map(str::to_owned).to_vec();
        let check = |path: &str, places: &[String], expected: bool| {
            let path = AskedPath::new(path).parse().unwrap();
            assert_eq!(lies_in(&path, places), expected, "{path}");
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
