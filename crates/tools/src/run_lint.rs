//! `run_lint`: runs the project's linter in the sandbox and returns its findings as data (T14). What it writes is
//! discarded, so nobody is asked; a linter that should fix files is a command of `execute_command`.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::error::CallError;
use vambrace_core::fence::Fence;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{ExecutionEnvironment, NamePolicy};
use vambrace_exec::RunRequest;
use vambrace_store::StartReceipt;
use vambrace_toolchains::{
    LintFinding, LintPlan, LintReport, PlanRequest, RunLocation, TruncationStrategy, plan_lint,
};

use crate::arguments::read;
use crate::program_run::{programs, run_program};
use crate::tool::{
    Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork, Weight,
};
use crate::toolchain_run::{
    cut_log, descriptor, effects, output, output_schema, payload, run_output, run_request, strategy,
    use_installed_packages,
};
use crate::toolchain_view::ToolchainView;

const NAME: &str = "run_lint";

#[derive(Deserialize)]
struct Arguments {
    target: Option<String>,
    truncation_strategy: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct RunLint(ToolDefinition);

impl RunLint {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Run a linter".into(),
            method: "shell.lint".into(),
            description: "Runs the project's linter in a sandbox without network: the configured command, or the linter that the \
                project's files speak for. Returns each finding with file, line, column, rule and message; the log is cut by \
                truncation_strategy. No file of the project is changed. Findings are a normal result."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "target": {"type": "string", "maxLength": 1000, "description": "A file or a directory; the whole project when left out."},
                    "truncation_strategy": {"type": "string", "maxLength": 100, "default": "FAILURES:20", "description": "What is kept of the log: `HEAD:n`, `TAIL:n`, `HEAD_TAIL:n:m` lines, or `FAILURES:n`."},
                },
            }),
            output: output_schema(json!({
                "linter": {"type": "string"}, "outcome": {"type": "string"}, "errors": {"type": "integer"},
                "warnings": {"type": "integer"},
                "findings": {"type": "array", "items": {"type": "object", "properties": {
                    "file": {"type": ["string", "null"]}, "line": {"type": ["integer", "null"]},
                    "column": {"type": ["integer", "null"]}, "rule": {"type": "string"}, "severity": {"type": "string"},
                    "message": {"type": "string"},
                }}},
                "findings_left_out": {"type": "integer"},
            })),
        };
        let descriptor = descriptor(NAME, NamePolicy::Deny, RiskLevel::Low);
        Self(ToolDefinition { descriptor, description, planning: Weight::Heavy })
    }
}

impl Tool for RunLint {
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
        let plan = plan_lint(
            &view,
            &PlanRequest {
                target: args.target.as_deref(),
                configured: programs.toolchain.lint.as_deref(),
                installed: &|program| view.installed(program),
                offline: true,
                report_directory: &root,
            },
        )?;
        let mut request = run_request(context, &view, &plan.command, Vec::new())?;
        use_installed_packages(&mut request, &view);
        Ok(ToolPlan {
            effects: effects([&plan.command]),
            risk: Risk::low("what the linter writes is discarded"),
            path: None,
            weight: Weight::Heavy,
            work: Box::new(LintWork { request, plan, strategy, root }),
        })
    }
}

struct LintWork {
    request: RunRequest,
    plan: LintPlan,
    strategy: TruncationStrategy,
    /// Absolute path of the service root, as the program sees it.
    root: String,
}

impl ToolWork for LintWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let Self { request, plan, strategy, root } = *self;
        let run = run_program(context, fence, &request)?;
        let printed = run_output(&run, None);
        let report =
            plan.reader.read(&printed, &RunLocation { root: &root, directory: &plan.command.directory });
        let log = cut_log(context, strategy, &plan.reader.log(&printed, &report))?;
        let data = payload(&plan.command, &run, &log, results(&plan, &report));
        Ok(output(run, data, &summary(&report), &log))
    }
}

fn results(plan: &LintPlan, report: &LintReport) -> Value {
    json!({
        "linter": report.linter.as_str(), "reason": plan.reason, "alternatives": plan.alternatives,
        "notes": report.notes, "outcome": report.outcome.as_str(), "complete": report.complete,
        "errors": report.errors, "warnings": report.warnings,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_left_out": report.findings_left_out,
    })
}

fn finding(finding: &LintFinding) -> Value {
    json!({
        "file": finding.file, "line": finding.line, "column": finding.column, "rule": finding.rule,
        "severity": finding.severity.as_str(), "message": finding.message,
    })
}

fn summary(report: &LintReport) -> String {
    let found = report.findings.len() as u64 + report.findings_left_out;
    format!(
        "{}: {}: {found} findings, {} errors, {} warnings",
        report.linter.as_str(),
        report.outcome.as_str(),
        report.errors,
        report.warnings,
    )
}
