//! Decides which command tests, lints or installs a project, and reads what came back.
//!
//! Plans: [`plan_test`] and [`plan_lint`] find the project's runner or linter, or take the configured command, and build its
//! arguments for a target; [`plan_install`] builds the locked install of a package manager and lists the hosts and the
//! problems of its lockfile. Reports: [`TestReader`] and [`LintReader`] turn output into counts and failures;
//! [`TruncationStrategy`] cuts a log.
//!
//! **Invariants.** A target never becomes an option, a second argument or shell text. Nothing here trusts the repository:
//! its manifests, lockfiles and outputs are read in linear time into values of limited size, and no credential of a
//! lockfile is repeated.
//!
//! Deliberately not here: files, processes and the network. The caller shows the project as a [`ProjectView`], runs the plan
//! in a sandbox, and decides what the hosts and problems of a lockfile mean.

mod bounded_text;
mod command_plan;
mod configured_command;
mod detect;
mod failure_blocks;
mod install;
mod lint_command;
mod lint_report;
mod linter;
mod lockfile;
mod package_manager;
mod project_view;
mod run_output;
mod target;
mod test_command;
mod test_report;
mod test_runner;
mod truncation;

pub use command_plan::{CommandPlan, PlanError, PlanRequest, ToolCandidate};
pub use configured_command::TARGET_PLACEHOLDER;
pub use detect::{Detection, detect_linters, detect_test_runners};
pub use install::{
    InstallError, InstallForm, InstallPlan, InstallRequest, InstallScripts, install_form, plan_install,
};
pub use lint_command::{LintPlan, plan_lint};
pub use lint_report::{LintFinding, LintOutcome, LintReader, LintReport, LintSeverity, MAX_FINDINGS};
pub use linter::Linter;
pub use lockfile::requirements::RequirementsError;
pub use lockfile::{
    LockfileError, LockfileFacts, LockfileHost, LockfileProblem, LockfileProblemKind, MAX_LOCKFILE_HOSTS,
    MAX_LOCKFILE_PROBLEMS,
};
pub use package_manager::PackageManager;
pub use project_view::ProjectView;
pub use run_output::{RunLocation, RunOutput};
pub use target::{TargetError, ToolTarget};
pub use test_command::{TestPlan, plan_test};
pub use test_report::{
    MAX_FAILURES, TestFailure, TestFailureKind, TestFormat, TestOutcome, TestReader, TestReport,
};
pub use test_runner::TestRunner;
pub use truncation::{MAX_TRUNCATION_COUNT, TruncatedLog, TruncationError, TruncationStrategy};
