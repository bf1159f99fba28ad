//! `go test -json`: packages by directory, tests by an anchored pattern.

use super::refused;
use crate::command_plan::{CommandPlan, PlanRequest, ToolCandidate};
use crate::project_view::{ProjectView, below, join};
use crate::target::{TargetError, ToolTarget, regex_escaped};
use crate::test_report::{TestFormat, TestReader};
use crate::test_runner::TestRunner;

pub(super) fn command(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let mut plan = CommandPlan::new(&chosen.directory, ["go", "test", "-json"]);
    match target {
        ToolTarget::All => {
            plan.arg("./...");
        }
        ToolTarget::Name(name) => {
            plan.arg(format!("-run={}", pattern(name, false))).arg("./...");
        }
        ToolTarget::Path { name, .. } => {
            if let Some(name) = name {
                plan.arg(format!("-run={}", pattern(name, true)));
            }
            let directory = target.directory(view);
            let inside = below(directory, &chosen.directory).ok_or_else(|| refused(chosen.tool, target))?;
            plan.arg(match (inside, name) {
                (".", None) => "./...".to_owned(),
                (".", Some(_)) => ".".to_owned(),
                (inside, None) if view.is_directory(path_of(target)) => format!("./{inside}/..."),
                (inside, _) => format!("./{inside}"),
            });
        }
    }
    // No other toolchain is downloaded for a line in go.mod.
    plan.set("GOTOOLCHAIN", "local");
    if request.offline {
        plan.set("GOPROXY", "off").set("GOSUMDB", "off");
    }
    let mut reader = TestReader::new(TestFormat::GoJson);
    reader.go_module = module_path(&view.read(&join(&chosen.directory, "go.mod")).unwrap_or_default());
    Ok((plan, reader))
}

fn path_of(target: &ToolTarget) -> &str {
    match target {
        ToolTarget::Path { path, .. } => path,
        _ => "",
    }
}

/// Go matches each part between slashes on its own, and has spaces as underscores.
fn pattern(name: &str, exact: bool) -> String {
    let part = |part: &str| {
        let part = regex_escaped(&part.replace(' ', "_"));
        if exact { format!("^{part}$") } else { part }
    };
    name.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The module path of a `go.mod`.
pub(crate) fn module_path(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.trim().strip_prefix("module "))?;
    let path = path.split("//").next().unwrap_or(path);
    Some(path.trim().trim_matches('"').to_owned()).filter(|path| !path.is_empty())
}
