//! vitest, jest, `node --test`, and scripts of `package.json`. vitest and jest write their JSON report to a file, so that the
//! log stays readable.

use super::refused;
use crate::command_plan::{CommandPlan, PlanRequest, ToolCandidate};
use crate::detect::package_json::{PackageJson, ScriptCommand, ScriptRunner};
use crate::detect::test_runners::is_node_test;
use crate::project_view::{ProjectView, files_below, join};
use crate::target::{TargetError, ToolTarget, is_shell_safe, regex_escaped};
use crate::test_report::{TestFormat, TestReader};
use crate::test_runner::TestRunner;

/// Arguments of scripts that would watch files instead of running once.
const WATCHING: &[&str] = &["run", "watch", "dev", "--watch", "-w", "--watchAll", "--ui", "--run"];
/// Maximum number of files that are passed to `node --test`.
const MAX_FILES: usize = 500;

pub(super) fn report_runner(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let program = if chosen.tool == TestRunner::Vitest { "vitest" } else { "jest" };
    let own = script(view, &chosen.directory, program);
    let visible = view.exists(&join(&chosen.directory, &format!("node_modules/.bin/{program}")));
    let argv = if visible {
        vec![format!("node_modules/.bin/{program}")]
    } else {
        ScriptRunner::of(view, &chosen.directory).run_program(program)
    };
    let report = format!("{}/vambrace-report.json", request.report_directory.trim_end_matches('/'));
    let mut plan = CommandPlan::new(&chosen.directory, argv);
    plan.environment.extend(own.environment.iter().cloned());
    if chosen.tool == TestRunner::Vitest {
        plan.arg("run");
    }
    plan.argv.extend(own.arguments(matches!(target, ToolTarget::All), WATCHING));
    if chosen.tool == TestRunner::Vitest {
        plan.arg("--reporter=default").arg("--reporter=json").arg(format!("--outputFile.json={report}"));
    } else {
        plan.arg("--json").arg(format!("--outputFile={report}")).arg("--testLocationInResults");
    }
    plan.report_file = Some(report);
    let (path, name) = match target {
        ToolTarget::All => (None, None),
        ToolTarget::Path { path, name } => (Some(path), name.as_ref()),
        ToolTarget::Name(name) => (None, Some(name)),
    };
    if let Some(name) = name {
        plan.arg(format!("--testNamePattern={}", regex_escaped(name)));
    }
    if let Some(path) = path {
        // vitest takes a part of the path, jest a regular expression.
        let path = plan.relative(path);
        plan.arg(if chosen.tool == TestRunner::Jest {
            regex_escaped(&path).replace("\\/", "/")
        } else {
            path
        });
    }
    Ok((plan, TestReader::new(TestFormat::JestJson)))
}

pub(super) fn node_test(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let own = script(view, &chosen.directory, "node");
    let mut plan = CommandPlan::new(&chosen.directory, ["node", "--test", "--test-reporter=tap"]);
    plan.environment.extend(own.environment.iter().cloned());
    let name = match target {
        ToolTarget::Path { name, .. } => name.as_ref(),
        ToolTarget::Name(name) => Some(name),
        ToolTarget::All => None,
    };
    if let Some(name) = name {
        plan.arg(format!("--test-name-pattern={}", regex_escaped(name)));
    }
    let own = own.arguments(!matches!(target, ToolTarget::Path { .. }), &["--test", "--watch"]);
    plan.argv.extend(own.into_iter().filter(|argument| !argument.starts_with("--test-reporter")));
    if let ToolTarget::Path { path, .. } = target {
        let files = if view.is_directory(path) {
            files_below(view, path, MAX_FILES, |path| is_node_test(crate::project_view::file_name(path))).0
        } else {
            vec![path.clone()]
        };
        if files.is_empty() {
            return Err(refused(chosen.tool, target));
        }
        for file in files {
            plan.path(&file);
        }
    }
    Ok((plan, TestReader::new(TestFormat::Tap)))
}

/// The script `test`, in which npm puts a target into a shell command: only characters that mean nothing there.
pub(super) fn package_script(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let mut argv = ScriptRunner::of(view, &chosen.directory).run_script("test");
    let mut plan = CommandPlan::new(&chosen.directory, std::iter::empty::<String>());
    match target {
        ToolTarget::All => argv.retain(|word| word != "--"),
        ToolTarget::Path { path, name: None } => {
            let path = plan.relative(path);
            if !is_shell_safe(&path) {
                return Err(refused(chosen.tool, target));
            }
            argv.push(path);
        }
        ToolTarget::Path { .. } | ToolTarget::Name(_) => return Err(refused(chosen.tool, target)),
    }
    plan.argv = argv;
    Ok((plan, TestReader::new(TestFormat::Unknown)))
}

/// The script `test`, if it is a plain command of this program.
fn script(view: &dyn ProjectView, directory: &str, program: &str) -> ScriptCommand {
    let package = PackageJson::read(view, directory);
    let script = package.as_ref().and_then(|package| package.script("test")).and_then(ScriptCommand::parse);
    script.filter(|command| command.program() == program).unwrap_or_default()
}
