//! Rules that people write: tools, paths or commands, and a decision. A layer's rules are compiled into one table,
//! so that judging a call costs a lookup and one pass over the globs, however many rules there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::BadPattern;
use crate::effect::{Effect, Extent};
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::glob::{Ground, PathGlobs, Purpose};
use crate::plan::Plan;
use crate::tool::{ToolFacts, wildcard};
use crate::verdict::{Grantable, LayerKind, Reason, Site, Verdict};

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// No question is needed: a standing grant, never more than that.
    Allow,
    /// Somebody must agree.
    Ask,
    /// Refused.
    Deny,
}

/// One rule as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub id: String,
    /// Where it is written.
    pub at: Site,
    /// Names, aliases, `group:NAME` or globs; empty means every tool.
    pub tools: Vec<String>,
    /// Path globs; empty means whatever the path.
    pub paths: Vec<String>,
    /// Leading words of commands, `*` allowed; empty means whatever the command.
    pub commands: Vec<String>,
    /// What it says.
    pub decision: Decision,
    /// In the writer's own words.
    pub reason: Option<String>,
}

impl Rule {
    /// Whether it speaks about this tool.
    #[must_use]
    pub fn is_about(&self, tool: &ToolFacts) -> bool {
        tool.is_meant_by_any(&self.tools)
    }

    fn matches_command(&self, argv: &[String]) -> bool {
        self.commands.iter().any(|command| {
            let words: Vec<&str> = command.split_whitespace().collect();
            words.len() <= argv.len() && words.iter().zip(argv).all(|(pattern, word)| wildcard(pattern, word))
        })
    }

    /// Why, for explanations.
    #[must_use]
    pub fn why(&self) -> String {
        if let Some(reason) = &self.reason {
            return reason.clone();
        }
        let verb = match self.decision {
            Decision::Allow => "allows",
            Decision::Ask => "asks about",
            Decision::Deny => "denies",
        };
        let what: Vec<&str> = self.paths.iter().chain(&self.commands).map(String::as_str).collect();
        let tools = if self.tools.is_empty() { "every tool".to_owned() } else { self.tools.join(", ") };
        match what.is_empty() {
            true => format!("{verb} {tools}"),
            false => format!("{verb} {tools} on {}", what.join(", ")),
        }
    }
}

/// Rules of one layer, compiled.
#[derive(Debug, Clone)]
pub struct RuleTable {
    rules: Vec<Rule>,
    globs: PathGlobs,
    /// For each glob the rule it belongs to.
    owners: Vec<usize>,
    /// What deny and ask rules take out of the fence.
    fences: Vec<Taken>,
    /// For each allowing rule its globs, as its writer saw them.
    grants: Vec<Option<PathGlobs>>,
}

/// The paths that rules of one kind about the same tools take out of the fence: one list, however many rules.
#[derive(Debug, Clone)]
struct Taken {
    tools: Vec<String>,
    decision: Decision,
    globs: Arc<PathGlobs>,
}

impl Taken {
    fn by(rules: &[Rule], ground: &Ground) -> Result<Vec<Self>, (Site, BadPattern)> {
        let mut kinds: BTreeMap<(&[String], bool), Vec<&String>> = BTreeMap::new();
        for rule in rules.iter().filter(|rule| rule.decision != Decision::Allow && !rule.paths.is_empty()) {
            kinds.entry((&rule.tools, rule.decision == Decision::Deny)).or_default().extend(&rule.paths);
        }
        let taken = kinds.into_iter().map(|((tools, denies), globs)| {
            let globs =
                PathGlobs::new(globs, Purpose::Narrow, ground).map_err(|bad| (Site::built_in(), bad))?;
            let decision = if denies { Decision::Deny } else { Decision::Ask };
            Ok(Self { tools: tools.to_vec(), decision, globs: Arc::new(globs) })
        });
        taken.collect()
    }
}

impl RuleTable {
    /// Compiles; a bad glob is named with its rule's place by the caller.
    pub fn new(rules: Vec<Rule>, ground: &Ground) -> Result<Self, (Site, BadPattern)> {
        let mut grants = Vec::new();
        let mut globs = Vec::new();
        let mut owners = Vec::new();
        for (owner, rule) in rules.iter().enumerate() {
            let compile =
                |purpose| PathGlobs::new(&rule.paths, purpose, ground).map_err(|bad| (rule.at.clone(), bad));
            let allows = rule.decision == Decision::Allow && !rule.paths.is_empty();
            grants.push(if allows { Some(compile(Purpose::Permit)?) } else { None });
            owners.extend(std::iter::repeat_n(owner, rule.paths.len()));
            globs.extend(rule.paths.iter().cloned());
        }
        let globs = PathGlobs::new(globs, Purpose::Narrow, ground).map_err(|bad| (Site::built_in(), bad))?;
        let fences = Taken::by(&rules, ground)?;
        Ok(Self { rules, globs, owners, fences, grants })
    }

    /// The rules as written.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Judges a plan: `ask` and `deny` rules narrow, `allow` rules say nothing here (see [`Self::grants`]).
    pub fn judge(&self, layer: LayerKind, plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
        self.for_each_hit(plan, |rule, about| {
            let reason = || Reason {
                layer,
                rule: rule.id.clone(),
                at: rule.at.clone(),
                about: about.to_owned(),
                why: rule.why(),
            };
            match rule.decision {
                Decision::Allow => {}
                Decision::Ask => verdict.ask(reason(), Grantable::Freely),
                Decision::Deny => verdict.deny(deny_code(rule), reason()),
            }
        });
        let walks =
            plan.effects.iter().any(|effect| matches!(effect, Effect::Path { extent: Extent::Tree, .. }));
        for taken in self.fences.iter().filter(|taken| plan.tool.is_meant_by_any(&taken.tools)) {
            // What would be refused or asked about by name is not met on a walk either, nor under another name.
            fence.kin.forbid(&taken.globs);
            if walks || taken.decision == Decision::Deny {
                fence.read.forbid(&taken.globs);
                fence.write.forbid(&taken.globs);
            }
        }
    }

    /// The `allow` rules that speak about one effect of a plan, or about the tool as a whole.
    pub fn grants<'a>(&'a self, plan: &Plan) -> Vec<(&'a Rule, String)> {
        let mut found = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.decision == Decision::Allow) {
            if rule.is_about(&plan.tool) && rule.paths.is_empty() && rule.commands.is_empty() {
                found.push((rule, plan.tool.name.to_string()));
                found.extend(plan.effects.iter().map(|effect| (rule, effect.to_string())));
            }
        }
        for (rule, globs) in self.rules.iter().zip(&self.grants).filter(|(rule, _)| rule.is_about(&plan.tool))
        {
            for effect in &plan.effects {
                let meant = match (effect, globs) {
                    (Effect::Path { path, .. }, Some(globs)) => globs.matches(path),
                    (Effect::Execute { argv }, _) => {
                        rule.decision == Decision::Allow && rule.matches_command(argv)
                    }
                    _ => false,
                };
                if meant {
                    found.push((rule, effect.to_string()));
                }
            }
        }
        found
    }

    /// Whether any rule of the table speaks about this plan, whatever it says.
    #[must_use]
    pub fn meets(&self, plan: &Plan) -> bool {
        let mut met = false;
        self.for_each_hit(plan, |_, _| met = true);
        met
    }

    fn for_each_hit<'a>(&'a self, plan: &Plan, mut hit: impl FnMut(&'a Rule, &str)) {
        for rule in &self.rules {
            if rule.paths.is_empty() && rule.commands.is_empty() && rule.is_about(&plan.tool) {
                hit(rule, plan.tool.name.as_str());
            }
        }
        self.for_each_effect_hit(plan, |rule, effect| hit(rule, &effect.to_string()));
    }

    fn for_each_effect_hit<'a>(&'a self, plan: &Plan, mut hit: impl FnMut(&'a Rule, &Effect)) {
        for effect in &plan.effects {
            match effect {
                Effect::Path { path, .. } => {
                    let mut last = None;
                    for place in self.globs.matching(path) {
                        let Some(owner) = self.owners.get(place).copied() else { continue };
                        let Some(rule) = self.rules.get(owner) else { continue };
                        if last != Some(owner) && rule.is_about(&plan.tool) {
                            hit(rule, effect);
                        }
                        last = Some(owner);
                    }
                }
                Effect::Execute { argv } => {
                    for rule in self.rules.iter().filter(|rule| rule.is_about(&plan.tool)) {
                        if rule.matches_command(argv) {
                            hit(rule, effect);
                        }
                    }
                }
                Effect::Connect { .. }
                | Effect::Request { .. }
                | Effect::Secret { .. }
                | Effect::System { .. } => {}
            }
        }
    }
}

/// The code for what a person's own rule refuses.
fn deny_code(rule: &Rule) -> ErrorCode {
    if !rule.commands.is_empty() {
        ErrorCode::CommandNotAllowed
    } else if !rule.paths.is_empty() {
        ErrorCode::BlockedPath
    } else {
        ErrorCode::PermissionDenied
    }
}
