//! `install_dependencies`: installs what a lockfile names, in the manager's locked form (T16). Connections go only to the
//! hosts that the lockfile and the manager's settings name, and only where policy allows each; packages run no code. They
//! land in the sandbox's build directories, where run_test finds them; no file of the project changes.

use serde::Deserialize;
use serde_json::{Value, json};
use vambrace_core::effect::Effect;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::fence::Fence;
use vambrace_core::principal::Provenance;
use vambrace_core::risk::{Risk, RiskLevel};
use vambrace_core::tool::{ExecutionEnvironment, NamePolicy};
use vambrace_exec::RunRequest;
use vambrace_store::StartReceipt;
use vambrace_toolchains::{
    CommandPlan, InstallPlan, InstallRequest, InstallScripts, LockfileProblem, LockfileProblemKind,
    PackageManager, TruncationStrategy, plan_install,
};

use crate::arguments::read;
use crate::program_run::{FinishedRun, programs, run_program};
use crate::tool::{
    RunFacts, Tool, ToolContext, ToolDefinition, ToolDescription, ToolOutput, ToolPlan, ToolWork,
    TouchedFiles, Weight,
};
use crate::toolchain_run::{CARGO_PACKAGES, GO_PACKAGES, cut_log, descriptor, effects, run_request};
use crate::toolchain_view::ToolchainView;

const NAME: &str = "install_dependencies";
/// Lines of a step's output that are returned.
const OUTPUT_LINES: TruncationStrategy = TruncationStrategy::HeadTail(20, 60);
/// Maximum number of problems in an error message.
const MAX_NAMED_PROBLEMS: usize = 5;

#[derive(Deserialize)]
struct Arguments {
    manager: Option<String>,
    directory: Option<String>,
}

/// The tool.
#[derive(Debug)]
pub(crate) struct InstallDependencies(ToolDefinition);

impl InstallDependencies {
    pub(crate) fn new() -> Self {
        let description = ToolDescription {
            title: "Install dependencies".into(),
            method: "shell.install".into(),
            description: "Installs the packages of the project's lockfile in the sandbox, in the locked form of the package manager: `npm ci`, \
                `pnpm` and `yarn` with a frozen lockfile, `poetry`, `uv`, `pip` with hashes, `cargo fetch --locked`, `go mod download`, \
                bundler. Install scripts do not run. Only the hosts that the lockfile names are reached, and `network.allow` must list \
                them. The packages are kept for run_test and run_lint, `node_modules` and `.venv` for commands too; the project's files stay as they are. A new package is added by \
                the user, in the manifest and the lockfile."
                .into(),
            input: json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "manager": {"type": "string", "maxLength": 100, "description": "npm, pnpm, yarn, poetry, uv, pip, cargo, go or bundler; found by the lockfile when left out."},
                    "directory": {"type": "string", "maxLength": 4096, "description": "Directory of the lockfile; found when left out."},
                },
            }),
            output: json!({
                "type": "object",
                "properties": {
                    "manager": {"type": "string"}, "lockfile": {"type": "string"}, "packages": {"type": "integer"},
                    "installed": {"type": "boolean", "description": "Whether every step ended with exit code 0."},
                    "hosts": {"type": "array", "items": {"type": "string"}},
                    "steps": {"type": "array", "items": {"type": "object"}},
                    "warnings": {"type": "array", "items": {"type": "string"}}, "notes": {"type": "array", "items": {"type": "string"}},
                    "exit_code": {"type": "integer"}, "hosts_denied": {"type": "array", "items": {"type": "string"}},
                },
            }),
        };
        let descriptor = descriptor(NAME, NamePolicy::Allow, RiskLevel::Medium);
        Self(ToolDefinition { descriptor, description, planning: Weight::Heavy })
    }
}

impl Tool for InstallDependencies {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn environment(&self) -> ExecutionEnvironment {
        ExecutionEnvironment::Sandbox
    }

    fn plan(&self, args: &Value, context: &ToolContext) -> Result<ToolPlan, CallError> {
        let args: Arguments = read(NAME, args)?;
        let view = ToolchainView::new(&context.workspace, programs(context)?);
        let manager = args.manager.as_deref().map(PackageManager::from_name).transpose()?;
        let directory = args.directory.as_deref().filter(|directory| !directory.is_empty());
        let plan = plan_install(
            &view,
            &InstallRequest { manager, directory, scripts: InstallScripts::Off, go_proxy: None },
        )?;
        deny_problems(&plan)?;
        deny_missing_programs(&view, &plan)?;
        deny_lost_packages(&view, &plan)?;
        let hosts = hosts(&plan);
        let mut effects = effects(&plan.steps);
        effects.extend(hosts.iter().map(|(host, port)| Effect::Connect { host: host.clone(), port: *port }));
        let names: Vec<String> = hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let steps = plan.steps.iter().map(|step| step_request(context, &view, &plan, step, &names));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let risk = Risk::medium(format!(
            "{} downloads packages that `{}` names",
            plan.manager.as_str(),
            plan.lockfile
        ));
        let work = Box::new(InstallWork { plan, hosts: names, steps });
        Ok(ToolPlan { effects, risk, path: None, weight: Weight::Heavy, work })
    }
}

/// The hosts of a plan, each once.
fn hosts(plan: &InstallPlan) -> Vec<(String, u16)> {
    let mut hosts: Vec<(String, u16)> =
        plan.facts.hosts.iter().map(|host| (host.host.clone(), host.port)).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

fn step_request(
    context: &ToolContext,
    view: &ToolchainView<'_>,
    plan: &InstallPlan,
    step: &CommandPlan,
    hosts: &[String],
) -> Result<RunRequest, CallError> {
    let mut request = run_request(context, view, step, hosts.to_vec())?;
    let at = |directory: &str| view.project_directory().join(directory).into();
    match plan.manager {
        // Their own directories are in the home directory, which is private to a run.
        PackageManager::Cargo => request.variables.push(("CARGO_HOME".into(), at(CARGO_PACKAGES))),
        PackageManager::Go => request.variables.push(("GOMODCACHE".into(), at(GO_PACKAGES))),
        PackageManager::Bundler => request.scratch.push("vendor".to_owned()),
        _ => {}
    }
    Ok(request)
}

/// Whether a problem stops an install. The others are shown to the person who is asked.
fn is_error(kind: LockfileProblemKind) -> bool {
    !matches!(kind, LockfileProblemKind::Port | LockfileProblemKind::MissingHash)
}

fn described(problem: &LockfileProblem) -> String {
    format!("{}: {}: {} ({})", problem.file, problem.subject, problem.detail, problem.kind.as_str())
}

fn deny_problems(plan: &InstallPlan) -> Result<(), CallError> {
    let facts = &plan.facts;
    let errors: Vec<&LockfileProblem> =
        facts.problems.iter().filter(|problem| is_error(problem.kind)).collect();
    let unseen = facts.problems_left_out + facts.hosts_left_out;
    let Some(first) = errors.first() else {
        return match unseen {
            0 => Ok(()),
            _ => Err(CallError::new(
                ErrorCode::InvalidArguments,
                format!(
                    "`{}` names too many hosts or has too many problems to check them all",
                    plan.lockfile
                ),
            )
            .suggest("ask the user to install the dependencies")),
        };
    };
    let named: Vec<String> =
        errors.iter().take(MAX_NAMED_PROBLEMS).map(|problem| described(problem)).collect();
    let more = match errors.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let message = format!("the lockfile or its settings cannot be trusted: {}{more}", named.join("; "));
    let suggestion = match first.kind {
        LockfileProblemKind::Credentials => {
            "ask the user to remove the credential from the file; the gate can add it, see `network.terminate`"
        }
        LockfileProblemKind::NotHttps => {
            "ask the user to create the lockfile again with a registry that has https"
        }
        LockfileProblemKind::Address | LockfileProblemKind::LocalName => {
            "ask the user to create the lockfile again with a registry that has a public name"
        }
        LockfileProblemKind::RunsCode | LockfileProblemKind::WeakenedChecks => {
            "ask the user to remove the setting, or to install the dependencies"
        }
        _ => "ask the user to create the lockfile again",
    };
    Err(CallError::new(ErrorCode::InvalidArguments, message).suggest(suggestion))
}

fn deny_missing_programs(view: &ToolchainView<'_>, plan: &InstallPlan) -> Result<(), CallError> {
    let missing = plan.steps.iter().flat_map(|step| &step.programs).find(|program| !view.installed(program));
    match missing {
        None => Ok(()),
        Some(program) => {
            let why = format!("{} needs `{program}`, which is not installed", plan.manager.as_str());
            Err(CallError::new(ErrorCode::InvalidArguments, why).suggest("ask the user to install it"))
        }
    }
}

/// The directory that a manager installs to, if it must be a build directory in the project's top directory.
fn install_directory(manager: PackageManager) -> Option<&'static str> {
    match manager {
        PackageManager::Npm | PackageManager::Pnpm | PackageManager::Yarn => Some("node_modules"),
        PackageManager::Poetry | PackageManager::Uv | PackageManager::Pip => Some(".venv"),
        PackageManager::Bundler => Some("vendor"),
        PackageManager::Cargo | PackageManager::Go => None,
    }
}

/// An install whose packages no later run would see is an error.
fn deny_lost_packages(view: &ToolchainView<'_>, plan: &InstallPlan) -> Result<(), CallError> {
    let Some(name) = install_directory(plan.manager) else { return Ok(()) };
    let why = if view.has_own(name) {
        format!("the project has its own `{name}`, which programs use and cannot change")
    } else if !view.service_root().is_empty() || plan.steps.iter().any(|step| !step.directory.is_empty()) {
        format!(
            "the sandbox keeps `{name}` only in the project's top directory, and `{}` is below it",
            plan.lockfile
        )
    } else {
        return Ok(());
    };
    Err(CallError::new(ErrorCode::InvalidArguments, why).suggest("ask the user to install the dependencies"))
}

struct InstallWork {
    plan: InstallPlan,
    hosts: Vec<String>,
    steps: Vec<RunRequest>,
}

impl ToolWork for InstallWork {
    fn run(
        self: Box<Self>,
        context: &ToolContext,
        fence: &Fence,
        _started: &StartReceipt,
    ) -> Result<ToolOutput, CallError> {
        let Self { plan, hosts, steps } = *self;
        let mut done = InstallProgress::default();
        for (step, request) in plan.steps.iter().zip(&steps) {
            if done.facts.as_ref().is_some_and(|facts| facts.exit_code != 0) {
                break;
            }
            let run = run_program(context, fence, request)?;
            done.add(context, step, run)?;
        }
        Ok(done.output(&plan, &hosts, steps.len()))
    }
}

/// The steps that have ended.
#[derive(Default)]
struct InstallProgress {
    steps: Vec<Value>,
    text: String,
    hosts_denied: Vec<String>,
    facts: Option<RunFacts>,
    truncated: bool,
}

impl InstallProgress {
    fn add(&mut self, context: &ToolContext, step: &CommandPlan, run: FinishedRun) -> Result<(), CallError> {
        let log = cut_log(context, OUTPUT_LINES, &format!("{}{}", run.stdout, run.stderr))?;
        let outcome = &run.report.outcome;
        let code = outcome.exit.code();
        self.steps.push(json!({
            "command": step.argv, "exit_code": code, "execution_time": outcome.duration.as_secs_f64(),
            "output": log.text, "ended": run.end_note(),
        }));
        let end = run.end_note().map(|note| format!("; {note}")).unwrap_or_default();
        let gap = if log.text.is_empty() || log.text.ends_with('\n') { "" } else { "\n" };
        self.text.push_str(&format!("$ {}\n{}{gap}[exit code {code}{end}]\n", step.argv.join(" "), log.text));
        self.hosts_denied.extend(run.denied_hosts());
        self.truncated |= run.truncated() || log.lines_left_out > 0;
        self.facts = Some(match self.facts.take() {
            None => run.facts,
            Some(mut earlier) => {
                earlier.exit_code = run.facts.exit_code;
                earlier.denials.extend(run.facts.denials);
                earlier.attempts.0.extend(run.facts.attempts.0);
                earlier.attempts.1 += run.facts.attempts.1;
                earlier
            }
        });
        Ok(())
    }

    fn output(mut self, plan: &InstallPlan, hosts: &[String], planned: usize) -> ToolOutput {
        self.hosts_denied.sort();
        self.hosts_denied.dedup();
        let code = self.facts.as_ref().map_or(0, |facts| facts.exit_code);
        let installed = code == 0 && self.steps.len() == planned;
        for host in &self.hosts_denied {
            self.text.push_str(&format!(
                "[the network is denied: {host} is not a host of the lockfile that `network.allow` lists]\n"
            ));
        }
        let state = if installed { "installed" } else { "failed" };
        let text = format!(
            "{}: {state}: {} packages of {}\n{}",
            plan.manager.as_str(),
            plan.facts.packages,
            plan.lockfile,
            self.text
        );
        let warnings: Vec<String> =
            plan.facts.problems.iter().take(MAX_NAMED_PROBLEMS).map(described).collect();
        ToolOutput {
            data: json!({
                "manager": plan.manager.as_str(), "lockfile": plan.lockfile, "packages": plan.facts.packages,
                "installed": installed, "hosts": hosts, "steps": self.steps, "warnings": warnings, "notes": plan.notes,
                "exit_code": code, "hosts_denied": self.hosts_denied,
            }),
            details: json!({"exit_code": code, "sandbox_tier": self.facts.as_ref().map(|facts| facts.tier)}),
            text: Some(text),
            note: None,
            provenance: Provenance::Program,
            truncated: self.truncated,
            touched: TouchedFiles { run: self.facts, ..TouchedFiles::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use vambrace_toolchains::LockfileFacts;

    use super::*;

    fn plan(problems: &[LockfileProblemKind]) -> InstallPlan {
        let problem = |kind: &LockfileProblemKind| LockfileProblem {
            kind: *kind,
            subject: "left-pad".to_owned(),
            file: "package-lock.json".to_owned(),
            detail: "wrong".to_owned(),
        };
        InstallPlan {
            manager: PackageManager::Npm,
            lockfile: "package-lock.json".to_owned(),
            steps: Vec::new(),
            facts: LockfileFacts {
                problems: problems.iter().map(problem).collect(),
                ..LockfileFacts::default()
            },
            scripts: InstallScripts::Off,
            notes: Vec::new(),
        }
    }

    // T16
    #[test]
    fn problems_of_a_lockfile_stop_an_install_with_a_suggestion() {
        use LockfileProblemKind as Kind;
        for kind in
            [Kind::Credentials, Kind::NotHttps, Kind::Address, Kind::LocalName, Kind::RunsCode, Kind::BadUrl]
        {
            let error = deny_problems(&plan(&[Kind::MissingHash, kind])).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArguments);
            assert!(
                error.message.contains(kind.as_str()) && !error.message.contains("missing_hash"),
                "{error:?}"
            );
        }
        deny_problems(&plan(&[Kind::MissingHash, Kind::Port])).unwrap();
        let many = deny_problems(&plan(&[Kind::NotHttps; 8])).unwrap_err();
        assert!(many.message.ends_with("; and 3 more"), "{many:?}");
    }

    #[test]
    fn lockfile_with_unchecked_hosts_is_an_error() {
        let mut plan = plan(&[]);
        plan.facts.hosts_left_out = 1;
        assert!(deny_problems(&plan).is_err());
    }
}
