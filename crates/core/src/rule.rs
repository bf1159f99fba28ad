//! Policy rules as written in configurations: tools, paths or commands, and a decision. The rules of a layer are compiled
//! into one table, so that judging a call costs a lookup and one pass over the globs, however many rules there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::blocked_paths::BadPattern;
use crate::effect::{Effect, Extent};
use crate::error::ErrorCode;
use crate::fence::Fence;
use crate::glob::{GlobPurpose, GlobRoots, PathGlobs};
use crate::plan::Plan;
use crate::tool::{ToolDescriptor, wildcard};
use crate::verdict::{Grantable, LayerKind, Reason, SourceLocation, Verdict};

/// What a rule decides about the calls that it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuleDecision {
    /// No approval is needed: a standing grant, never more than that.
    Allow,
    /// A person must approve.
    Ask,
    /// Denied.
    Deny,
}

/// One rule, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The rule's name.
    pub id: String,
    /// Where it is written.
    pub at: SourceLocation,
    /// Names, aliases, `group:NAME` or globs; empty means every tool.
    pub tools: Vec<String>,
    /// Path globs; empty means any path.
    pub paths: Vec<String>,
    /// Leading words of commands, `*` allowed; empty means any command.
    pub commands: Vec<String>,
    /// What it decides.
    pub decision: RuleDecision,
    /// The reason that its author gave.
    pub reason: Option<String>,
}

impl Rule {
    /// Whether the rule applies to this tool.
    #[must_use]
    pub fn applies_to_tool(&self, tool: &ToolDescriptor) -> bool {
        tool.matches_any_pattern(&self.tools)
    }

    /// Whether the leading words match. A rule that narrows and names a program without a directory also matches a path to
    /// it: `rm` is also `/bin/rm`.
    fn matches_command(&self, argv: &[String]) -> bool {
        let narrows = self.decision != RuleDecision::Allow;
        let matches_program = |pattern: &str, program: &str| {
            let name = program.rsplit('/').next().unwrap_or(program);
            wildcard(pattern, program) || (narrows && !pattern.contains('/') && wildcard(pattern, name))
        };
        self.commands.iter().any(|command| {
            let words: Vec<&str> = command.split_whitespace().collect();
            let mut pairs = words.iter().zip(argv);
            words.len() <= argv.len()
                && pairs.next().is_none_or(|(pattern, program)| matches_program(pattern, program))
                && pairs.all(|(pattern, word)| wildcard(pattern, word))
        })
    }

    /// The reason for explanations: the author's own, or a generated one.
    #[must_use]
    pub fn why(&self) -> String {
        if let Some(reason) = &self.reason {
            return reason.clone();
        }
        let verb = match self.decision {
            RuleDecision::Allow => "allows",
            RuleDecision::Ask => "asks about",
            RuleDecision::Deny => "denies",
        };
        let what: Vec<&str> = self.paths.iter().chain(&self.commands).map(String::as_str).collect();
        let tools = if self.tools.is_empty() { "every tool".to_owned() } else { self.tools.join(", ") };
        match what.is_empty() {
            true => format!("{verb} {tools}"),
            false => format!("{verb} {tools} on {}", what.join(", ")),
        }
    }
}

/// The compiled rules of one layer.
#[derive(Debug, Clone)]
pub struct RuleTable {
    rules: Vec<Rule>,
    globs: PathGlobs,
    /// For each glob the index of its rule.
    owners: Vec<usize>,
    /// What `deny` and `ask` rules exclude from the fence.
    exclusions: Vec<FenceExclusion>,
    /// For each `allow` rule its globs, relative to the root that its author saw.
    grants: Vec<Option<PathGlobs>>,
}

/// The paths that rules with the same decision and the same tools exclude from the fence: one list for all of them.
#[derive(Debug, Clone)]
struct FenceExclusion {
    tools: Vec<String>,
    decision: RuleDecision,
    globs: Arc<PathGlobs>,
}

impl FenceExclusion {
    fn of_rules(rules: &[Rule], roots: &GlobRoots) -> Result<Vec<Self>, (SourceLocation, BadPattern)> {
        let mut kinds: BTreeMap<(&[String], bool), Vec<&String>> = BTreeMap::new();
        for rule in rules.iter().filter(|rule| rule.decision != RuleDecision::Allow && !rule.paths.is_empty())
        {
            kinds.entry((&rule.tools, rule.decision == RuleDecision::Deny)).or_default().extend(&rule.paths);
        }
        let exclusions = kinds.into_iter().map(|((tools, denies), globs)| {
            let globs = PathGlobs::new(globs, GlobPurpose::Narrow, roots)
                .map_err(|bad| (SourceLocation::built_in(), bad))?;
            let decision = if denies { RuleDecision::Deny } else { RuleDecision::Ask };
            Ok(Self { tools: tools.to_vec(), decision, globs: Arc::new(globs) })
        });
        exclusions.collect()
    }
}

impl RuleTable {
    /// Compiles the rules. The error names the location of the rule with the invalid glob.
    pub fn new(rules: Vec<Rule>, roots: &GlobRoots) -> Result<Self, (SourceLocation, BadPattern)> {
        let mut grants = Vec::new();
        let mut globs = Vec::new();
        let mut owners = Vec::new();
        for (owner, rule) in rules.iter().enumerate() {
            let compile =
                |purpose| PathGlobs::new(&rule.paths, purpose, roots).map_err(|bad| (rule.at.clone(), bad));
            let allows = rule.decision == RuleDecision::Allow && !rule.paths.is_empty();
            grants.push(if allows { Some(compile(GlobPurpose::Permit)?) } else { None });
            owners.extend(std::iter::repeat_n(owner, rule.paths.len()));
            globs.extend(rule.paths.iter().cloned());
        }
        let globs = PathGlobs::new(globs, GlobPurpose::Narrow, roots)
            .map_err(|bad| (SourceLocation::built_in(), bad))?;
        let exclusions = FenceExclusion::of_rules(&rules, roots)?;
        Ok(Self { rules, globs, owners, exclusions, grants })
    }

    /// The rules as written.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Judges a plan: `ask` and `deny` rules narrow; `allow` rules have no effect here (see [`Self::grants`]).
    pub fn judge(&self, layer: LayerKind, plan: &Plan, verdict: &mut Verdict, fence: &mut Fence) {
        self.for_each_match(plan, |rule, about| {
            let reason = || Reason {
                layer,
                rule: rule.id.clone(),
                at: rule.at.clone(),
                about: about.to_owned(),
                why: rule.why(),
            };
            match rule.decision {
                RuleDecision::Allow => {}
                RuleDecision::Ask => verdict.ask(reason(), Grantable::AnyGrant),
                RuleDecision::Deny => verdict.deny(deny_code(rule), reason()),
            }
        });
        let walks =
            plan.effects.iter().any(|effect| matches!(effect, Effect::Path { extent: Extent::Tree, .. }));
        self.exclude(&plan.tool, walks, fence);
    }

    /// Excludes the paths of rules about a tool. `walks`: whether the tool reads directories, not only named files.
    pub fn exclude(&self, tool: &ToolDescriptor, walks: bool, fence: &mut Fence) {
        for exclusion in self.exclusions.iter().filter(|exclusion| tool.matches_any_pattern(&exclusion.tools))
        {
            // A path that is denied or asked about by name must not be found by a walk, nor through a hard link.
            fence.hard_links.exclude(&exclusion.globs);
            if walks || exclusion.decision == RuleDecision::Deny {
                fence.read.exclude(&exclusion.globs);
                fence.write.exclude(&exclusion.globs);
            }
        }
    }

    /// The `allow` rules that apply to an effect of a plan, or to the tool as a whole.
    pub fn grants<'a>(&'a self, plan: &Plan) -> Vec<(&'a Rule, String)> {
        let mut grants = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.decision == RuleDecision::Allow) {
            if rule.applies_to_tool(&plan.tool) && rule.paths.is_empty() && rule.commands.is_empty() {
                grants.push((rule, plan.tool.name.to_string()));
                grants.extend(plan.effects.iter().map(|effect| (rule, effect.to_string())));
            }
        }
        for (rule, globs) in
            self.rules.iter().zip(&self.grants).filter(|(rule, _)| rule.applies_to_tool(&plan.tool))
        {
            for effect in &plan.effects {
                let applies = match (effect, globs) {
                    (Effect::Path { path, .. }, Some(globs)) => globs.matches(path),
                    (Effect::Execute { argv }, _) => {
                        rule.decision == RuleDecision::Allow && rule.matches_command(argv)
                    }
                    _ => false,
                };
                if applies {
                    grants.push((rule, effect.to_string()));
                }
            }
        }
        grants
    }

    /// Whether any rule of the table applies to this plan, whatever it decides.
    #[must_use]
    pub(crate) fn applies_to(&self, plan: &Plan) -> bool {
        let mut applies = false;
        self.for_each_match(plan, |_, _| applies = true);
        applies
    }

    fn for_each_match<'a>(&'a self, plan: &Plan, mut found: impl FnMut(&'a Rule, &str)) {
        for rule in &self.rules {
            if rule.paths.is_empty() && rule.commands.is_empty() && rule.applies_to_tool(&plan.tool) {
                found(rule, plan.tool.name.as_str());
            }
        }
        self.for_each_effect_match(plan, |rule, effect| found(rule, &effect.to_string()));
    }

    fn for_each_effect_match<'a>(&'a self, plan: &Plan, mut found: impl FnMut(&'a Rule, &Effect)) {
        for effect in &plan.effects {
            match effect {
                Effect::Path { path, .. } => {
                    let mut last = None;
                    for index in self.globs.matching(path) {
                        let Some(owner) = self.owners.get(index).copied() else { continue };
                        let Some(rule) = self.rules.get(owner) else { continue };
                        if last != Some(owner) && rule.applies_to_tool(&plan.tool) {
                            found(rule, effect);
                        }
                        last = Some(owner);
                    }
                }
                Effect::Execute { argv } => {
                    for rule in self.rules.iter().filter(|rule| rule.applies_to_tool(&plan.tool)) {
                        if rule.matches_command(argv) {
                            found(rule, effect);
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

/// The error code of a denial by a configured rule.
fn deny_code(rule: &Rule) -> ErrorCode {
    if !rule.commands.is_empty() {
        ErrorCode::CommandNotAllowed
    } else if !rule.paths.is_empty() {
        ErrorCode::BlockedPath
    } else {
        ErrorCode::PermissionDenied
    }
}
