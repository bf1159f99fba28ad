//! All errors and notes of a project's policy, and the test cases of its rules.

use std::path::Path;

use vambrace_core::config::ConfigError;
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;
use vambrace_core::policy::compile::BadPolicy;
use vambrace_core::policy::rule_cases::{CaseResult, check_cases};

use crate::catalogue::built_in_tools;
use crate::config_files::{ConfigFile, ConfigFiles, listed};
use crate::error::HostError;
use crate::host::Host;
use crate::paths::Paths;
use crate::project_files::ProjectFiles;
use crate::settings::Settings;
use crate::trust::{ProjectTrust, trust_state};

/// What is wrong with a policy, and what it says.
#[derive(Debug)]
pub struct PolicyReport {
    /// Whether the project's own files are trusted.
    pub trust: ProjectTrust,
    /// The files.
    pub files: ConfigFiles,
    /// The active role, or why there is none.
    pub role: Result<String, String>,
    /// Values that are not used as written.
    pub notes: Vec<String>,
    /// The errors.
    pub faults: Vec<PolicyProblem>,
}

/// An error that makes the policy invalid.
#[derive(Debug)]
pub struct PolicyProblem {
    /// File; empty if it is not in a file.
    pub file: String,
    /// Line in the file.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub hint: String,
}

/// Examines the policy of a project as a call with this role and skill would load it.
pub async fn check_policy(
    host: &Host,
    project: &Path,
    role: Option<&str>,
    skill: Option<&str>,
) -> Result<PolicyReport, HostError> {
    let project_files = ProjectFiles::open(project)?;
    let (trust, _) = trust_state(host, project, &project_files).await?;
    let files = ConfigFiles::read(host.paths(), &project_files, trust == ProjectTrust::Trusted)?;
    let mut report = PolicyReport {
        trust,
        files,
        role: Err("the configuration is invalid".into()),
        notes: Vec::new(),
        faults: Vec::new(),
    };
    let effective = match report.files.combine() {
        Ok(effective) => effective,
        Err(errors) => {
            report.faults = errors.into_iter().map(PolicyProblem::from).collect();
            return Ok(report);
        }
    };
    report.notes = effective.notes.iter().map(ToString::to_string).collect();
    let tools = built_in_tools()?;
    if let Err(faults) = Policy::compile(&effective, role, None, &tools) {
        report.faults = faults.into_iter().map(PolicyProblem::from).collect();
        return Ok(report);
    }
    // Load it again as a call does: this includes the skill, and the message for a role that is not active.
    let settings = Settings::load(host, project).await?;
    match settings.policy(role, skill, &tools) {
        Ok(policy) => report.role = policy.role.map(|role| role.name().to_string()),
        Err(error) => report.faults.push(error.into()),
    }
    if let (Some(_), Err(why)) = (role, &report.role) {
        let message = why.clone();
        report.faults.push(PolicyProblem { file: String::new(), line: 0, message, hint: String::new() });
    }
    Ok(report)
}

/// The test cases of the rules.
#[derive(Debug)]
pub struct RuleTests {
    /// How many rules there are.
    pub rules: usize,
    /// The results of their cases.
    pub results: Vec<CaseResult>,
}

/// Tests the rules of all files, including those of an untrusted project: rules are tested before they are trusted.
pub fn test_rules(paths: &Paths, project: &Path) -> Result<RuleTests, HostError> {
    let files = ConfigFiles::read(paths, &ProjectFiles::open(project)?, true)?;
    let mut rules = Vec::new();
    for file in files.list() {
        match &file.parsed {
            Ok(parsed) => rules.extend(parsed.rules.iter().cloned()),
            Err(errors) => return Err(invalid(errors)),
        }
    }
    Ok(RuleTests { rules: rules.len(), results: check_cases(&rules, &built_in_tools()?) })
}

fn invalid(errors: &[ConfigError]) -> HostError {
    let hint = "fix the errors, then test again";
    HostError::denied(ErrorCode::PermissionDenied, listed("invalid configuration", errors), hint)
}

impl ConfigFile {
    /// The layer of the file, for reports.
    #[must_use]
    pub fn layer(&self) -> &'static str {
        if self.source.is_project() { "project" } else { self.source.as_str() }
    }
}

impl From<ConfigError> for PolicyProblem {
    fn from(error: ConfigError) -> Self {
        let message =
            if error.key.is_empty() { error.message } else { format!("{}: {}", error.key, error.message) };
        Self {
            file: error.file,
            line: usize::try_from(error.line).unwrap_or_default(),
            message,
            hint: error.hint,
        }
    }
}

impl From<BadPolicy> for PolicyProblem {
    fn from(bad: BadPolicy) -> Self {
        let (at, message) = match bad {
            BadPolicy::Pattern(at, pattern) => (at, pattern.to_string()),
            BadPolicy::UnknownTool { at, pattern } => (at, format!("`{pattern}` matches no tool")),
            BadPolicy::Case { at, rule, fault, case } => (at, format!("rule `{rule}` {fault}: `{case}`")),
        };
        Self { file: at.file, line: at.line, message, hint: String::new() }
    }
}

impl From<HostError> for PolicyProblem {
    fn from(error: HostError) -> Self {
        Self { file: String::new(), line: 0, message: error.error.message, hint: error.error.suggestion }
    }
}
