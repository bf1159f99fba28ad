//! Plans a test run: the runner, the command for a target, and how its output is read.

mod cargo;
mod go;
mod java;
mod node;
mod python;
mod task_runner;

use crate::command_plan::{
    CommandPlan, PlanError, PlanRequest, ToolCandidate, first_installed, plain_output,
};
use crate::configured_command::configured_command;
use crate::detect::detect_test_runners;
use crate::project_view::ProjectView;
use crate::target::{TargetError, ToolTarget};
use crate::test_report::{TestFormat, TestReader};
use crate::test_runner::TestRunner;

/// A planned test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPlan {
    /// The runner.
    pub runner: TestRunner,
    /// The command.
    pub command: CommandPlan,
    /// How its output is read.
    pub reader: TestReader,
    /// Why this runner.
    pub reason: String,
    /// Other runners that the project speaks for, with the reason.
    pub alternatives: Vec<String>,
    /// What the reader of the results should know.
    pub notes: Vec<String>,
}

/// Plans a test run. The configured command wins; else the first detected runner whose programs are installed.
pub fn plan_test(view: &dyn ProjectView, request: &PlanRequest<'_>) -> Result<TestPlan, PlanError> {
    let target = ToolTarget::parse(request.target.unwrap_or_default(), view)?;
    if let Some(argv) = request.configured {
        return Ok(TestPlan {
            runner: TestRunner::Configured,
            command: configured_command(argv, &target)?,
            reader: TestReader::new(TestFormat::Unknown),
            reason: "tools.toolchain.test".to_owned(),
            alternatives: Vec::new(),
            notes: Vec::new(),
        });
    }
    let detection = detect_test_runners(view, &target);
    if !detection.directories.is_empty() {
        return Err(PlanError::SeveralDirectories {
            what: "test runner",
            directories: detection.directories,
        });
    }
    let nothing = PlanError::NothingFound { what: "test runner", setting: "tools.toolchain.test" };
    let chosen =
        first_installed(&detection.candidates, request.installed, |runner| runner.as_str(), nothing)?;
    let (mut command, reader) = command(view, chosen, &target, request)?;
    plain_output(&mut command);
    command.programs.clone_from(&chosen.programs);
    let other = |candidate: &&ToolCandidate<TestRunner>| candidate.tool != chosen.tool;
    Ok(TestPlan {
        runner: chosen.tool,
        command,
        reader,
        reason: chosen.reason.clone(),
        alternatives: detection
            .candidates
            .iter()
            .filter(other)
            .map(|candidate| format!("{} ({})", candidate.tool.as_str(), candidate.reason))
            .collect(),
        notes: notes(chosen.tool),
    })
}

fn command(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<(CommandPlan, TestReader), TargetError> {
    match chosen.tool {
        TestRunner::Nextest | TestRunner::CargoTest => cargo::command(view, chosen, target, request),
        TestRunner::Pytest => python::pytest(chosen, target, request),
        TestRunner::Unittest => python::unittest(view, chosen, target),
        TestRunner::Vitest | TestRunner::Jest => node::report_runner(view, chosen, target, request),
        TestRunner::NodeTest => node::node_test(view, chosen, target),
        TestRunner::PackageScript => node::package_script(view, chosen, target),
        TestRunner::GoTest => go::command(view, chosen, target, request),
        TestRunner::Gradle => java::gradle(view, chosen, target, request),
        TestRunner::Maven => java::maven(view, chosen, target, request),
        TestRunner::Just | TestRunner::Make => task_runner::command(view, chosen, target),
        TestRunner::Configured => Err(refused(TestRunner::Configured, target)),
    }
}

fn notes(runner: TestRunner) -> Vec<String> {
    let note = match runner {
        TestRunner::Nextest => {
            "nextest does not run documentation tests, and counts tests that the target leaves out as skipped"
        }
        TestRunner::Gradle => "gradle counts tests only if one fails",
        _ => return Vec::new(),
    };
    vec![note.to_owned()]
}

/// The error for a target that a runner does not take.
fn refused(runner: TestRunner, target: &ToolTarget) -> TargetError {
    let text = match target {
        ToolTarget::All => "everything".to_owned(),
        ToolTarget::Path { path, name: None } => path.clone(),
        ToolTarget::Path { path, name: Some(name) } => format!("{path}::{name}"),
        ToolTarget::Name(name) => name.clone(),
    };
    TargetError::not_supported(runner.as_str(), &text, runner.target_forms())
}

/// Whether a text consists of ASCII letters, digits, `_` and the given characters.
fn is_plain(text: &str, others: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || others.contains(c))
}

#[cfg(test)]
mod tests;
