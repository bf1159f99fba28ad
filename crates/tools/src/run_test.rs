//! `run_test`: runs the project's tests in the sandbox and returns counts and failures as data (T14). What the tests write
//! is discarded, so nobody is asked.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::fence::Fence;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{ExecutionEnvironment, NamePolicy};
use vambrace_exec::RunRequest;
use vambrace_store::StartReceipt;
use vambrace_toolchains::{
    PlanRequest, RunLocation, TestFailure, TestPlan, TestReport, TruncationStrategy, plan_test,
};

use crate::arguments::read;
use crate::program_run::{programs, run_program};
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, Weight,
};
use crate::toolchain_run::{
    cut_log, descriptor, effects, output, output_schema, payload, report_text, run_output, run_request,
    strategy, use_installed_packages,
};
use crate::toolchain_view::ToolchainView;

const NAME: &str = "run_test";

#[derive(Deserialize)]
struct Arguments {
    target: Option<String>,
    truncation_strategy: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct RunTest(ToolDefinition);

impl RunTest {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Run tests".into(),
            method: "shell.test".into(),
            description: "Runs the project's tests in a sandbox without network: the configured command, or the runner that the project's \
                files speak for. Returns counts, and each failure with test name, file, line and message; the log is cut by \
                truncation_strategy. What the tests write into the project is discarded. Failing tests are a normal result."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "target": {"type": "string", "maxLength": 1000, "description": "A file, a directory, a test name, or `FILE::NAME`; all tests when left out."},
                    "truncation_strategy": {"type": "string", "maxLength": 100, "default": "FAILURES:20", "description": "What is kept of the log: `HEAD:n`, `TAIL:n`, `HEAD_TAIL:n:m` lines, or `FAILURES:n`."},
                },
            }),
            output: output_schema(json!({
                "runner": {"type": "string"}, "outcome": {"type": "string"}, "passed": {"type": "integer"},
                "failed": {"type": "integer"}, "skipped": {"type": "integer"}, "errors": {"type": "integer"},
                "duration": {"type": ["number", "null"], "description": "Seconds, as the runner says."},
                "failures": {"type": "array", "items": {"type": "object", "properties": {
                    "kind": {"type": "string"}, "test": {"type": "string"}, "file": {"type": ["string", "null"]},
                    "line": {"type": ["integer", "null"]}, "message": {"type": "string"},
                }}},
                "failures_left_out": {"type": "integer"},
            })),
        };
        let descriptor = descriptor(NAME, NamePolicy::Deny, RiskLevel::Low);
        Self(ToolDefinition { descriptor, description, planning: Weight::Heavy })
    }
}

impl Tool for RunTest {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let strategy = strategy(args.truncation_strategy.as_deref())?;
        let programs = programs(context)?;
        let view = ToolchainView::new(&context.workspace, programs);
        let root = view.service_directory().to_string_lossy().into_owned();
        let plan = plan_test(
            &view,
            &PlanRequest {
                target: args.target.as_deref(),
                configured: programs.toolchain.test.as_deref(),
                installed: &|program| view.installed(program),
                offline: true,
                // In the overlay, from which the report is read.
                report_directory: &root,
            },
        )?;
        let mut request = run_request(context, &view, &plan.command, Vec::new())?;
        use_installed_packages(&mut request, &view);
        Ok(ToolPlan {
            effects: effects([&plan.command]),
            risk: Risk::low("what the tests write is discarded"),
            path: None,
            weight: Weight::Heavy,
            work: Box::new(TestWork { request, plan, strategy, root }),
        })
    }
}

struct TestWork {
    request: RunRequest,
    plan: TestPlan,
    strategy: TruncationStrategy,
    /// Absolute path of the service root, as the program sees it.
    root: String,
}

impl ToolWork for TestWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let Self { request, plan, strategy, root } = *self;
        let run = run_program(context, fence, &request)?;
        let view = ToolchainView::new(&context.workspace, programs(context)?);
        let file = plan.command.report_file.as_deref();
        let file = file.and_then(|file| report_text(context, &run, view.project_directory(), file));
        let printed = run_output(&run, file.as_deref());
        let report =
            plan.reader.read(&printed, &RunLocation { root: &root, directory: &plan.command.directory });
        let log = cut_log(context, strategy, &plan.reader.log(&printed))?;
        let data = payload(&plan.command, &run, &log, results(&plan, &report, strategy));
        Ok(output(run, data, &summary(&plan, &report), &log))
    }
}

fn results(plan: &TestPlan, report: &TestReport, strategy: TruncationStrategy) -> Value {
    let shown = strategy.max_failures().unwrap_or(usize::MAX).min(report.failures.len());
    let left_out = report.failures_left_out + (report.failures.len() - shown) as u64;
    let failures: Vec<Value> = report.failures.iter().take(shown).map(failure).collect();
    let notes: Vec<&String> = plan.notes.iter().chain(&report.notes).collect();
    json!({
        "runner": plan.runner.as_str(), "reason": plan.reason, "alternatives": plan.alternatives, "notes": notes,
        "outcome": report.outcome.as_str(), "complete": report.complete, "passed": report.passed,
        "failed": report.failed, "skipped": report.skipped, "errors": report.errors,
        "duration": report.duration.map(|duration| duration.as_secs_f64()),
        "failures": failures, "failures_left_out": left_out,
    })
}

fn failure(failure: &TestFailure) -> Value {
    json!({
        "kind": failure.kind.as_str(), "test": failure.test, "file": failure.file, "line": failure.line,
        "message": failure.message,
    })
}

fn summary(plan: &TestPlan, report: &TestReport) -> String {
    let TestReport { passed, failed, skipped, errors, .. } = report;
    let counted = if report.complete { "" } else { " (the runner's summary was not found)" };
    format!(
        "{}: {}: {passed} passed, {failed} failed, {errors} errors, {skipped} skipped{counted}",
        plan.runner.as_str(),
        report.outcome.as_str(),
    )
}
