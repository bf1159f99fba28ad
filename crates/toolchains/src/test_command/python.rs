//! pytest and unittest.

use super::{is_plain, refused};
use crate::command_plan::{CommandPlan, PlanRequest, ToolCandidate};
use crate::project_view::{ProjectView, below, join};
use crate::target::{TargetError, ToolTarget};
use crate::test_report::{TestFormat, TestReader};
use crate::test_runner::TestRunner;

pub(super) fn pytest(
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let mut plan = python(chosen, &["-m", "pytest", "-rfE", "--tb=short", "--color=no"]);
    // The cache is state of the workspace that nobody asked for.
    plan.arg("-o").arg(format!("cache_dir={}/pytest-cache", request.report_directory.trim_end_matches('/')));
    match target {
        ToolTarget::All => {}
        ToolTarget::Path { path, name: None } => {
            plan.path(path);
        }
        ToolTarget::Path { path, name: Some(name) } => {
            let path = plan.relative(path);
            plan.arg(format!("{path}::{name}"));
        }
        ToolTarget::Name(name) => {
            // An expression of pytest: only names joined by `and`, so that nothing else is evaluated.
            let parts: Vec<&str> = name.split("::").flat_map(|part| part.split('.')).collect();
            let keywords = ["and", "or", "not"];
            if !parts.iter().all(|part| is_plain(part, "") && !keywords.contains(part)) {
                return Err(refused(chosen.tool, target));
            }
            plan.arg("-k").arg(parts.join(" and "));
        }
    }
    Ok((plan, TestReader::new(TestFormat::Pytest)))
}

pub(super) fn unittest(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let mut plan = python(chosen, &["-m", "unittest"]);
    match target {
        ToolTarget::All => discover(view, &mut plan),
        ToolTarget::Path { path, name: None } if view.is_directory(path) => {
            let directory = plan.relative(path);
            plan.arg("discover").arg("-v").arg("-s").arg(directory);
        }
        ToolTarget::Path { path, name } => {
            let module = below(path, &chosen.directory)
                .and_then(|path| path.strip_suffix(".py"))
                .map(|path| path.replace('/', "."));
            let module =
                module.filter(|module| is_plain(module, ".")).ok_or_else(|| refused(chosen.tool, target))?;
            let name = name.as_deref().unwrap_or_default().replace("::", ".");
            if !name.is_empty() && !is_plain(&name, ".") {
                return Err(refused(chosen.tool, target));
            }
            let dot = if name.is_empty() { "" } else { "." };
            plan.arg("-v").arg(format!("{module}{dot}{name}"));
        }
        ToolTarget::Name(name) if is_plain(name, ".") && name.contains('.') => {
            plan.arg("-v").arg(name);
        }
        ToolTarget::Name(name) if is_plain(name, "") => {
            discover(view, &mut plan);
            plan.arg("-k").arg(name);
        }
        ToolTarget::Name(_) => return Err(refused(chosen.tool, target)),
    }
    Ok((plan, TestReader::new(TestFormat::Unittest)))
}

/// Discovery does not enter directories that are no packages, so the usual ones are named.
fn discover(view: &dyn ProjectView, plan: &mut CommandPlan) {
    let at = |name: &str| join(&plan.directory, name);
    let here =
        view.list(&plan.directory).iter().any(|name| name.starts_with("test") && name.ends_with(".py"));
    let start = ["tests", "test"].into_iter().find(|name| !here && view.is_directory(&at(name)));
    let package = start.is_some_and(|name| view.exists(&at(&format!("{name}/__init__.py"))));
    plan.arg("discover").arg("-v");
    if let Some(start) = start {
        plan.arg("-s").arg(start);
    }
    if package {
        plan.arg("-t").arg(".");
    }
}

/// The interpreter of the candidate, relative to the working directory.
fn python(chosen: &ToolCandidate<TestRunner>, words: &[&str]) -> CommandPlan {
    let program = chosen.programs.first().map_or("python3", String::as_str);
    let mut plan = CommandPlan::new(&chosen.directory, std::iter::empty::<String>());
    let program = if program.contains('/') { plan.relative(program) } else { program.to_owned() };
    plan.arg(program);
    plan.argv.extend(words.iter().map(|word| (*word).to_owned()));
    plan.set("PYTHONDONTWRITEBYTECODE", "1").set("PY_COLORS", "0").set("COLUMNS", "200");
    plan
}
