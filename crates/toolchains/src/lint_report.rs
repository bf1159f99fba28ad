//! What a linter says: findings with file, line, rule and message. Total and bounded, like the test reports: any text gives
//! a report, and if no reader recognises it the exit code decides and `notes` says so.

mod biome;
mod clippy;
mod json_findings;
mod text_findings;

use crate::bounded_text::{clip_message, clip_name};
use crate::linter::Linter;
use crate::run_output::{PlainOutput, RunLocation, RunOutput};

/// Maximum number of findings in a report.
pub const MAX_FINDINGS: usize = 1000;

/// How grave a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LintSeverity {
    /// A remark.
    Info,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

impl LintSeverity {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintFinding {
    /// File, relative to the service root.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// The rule; empty if the finding belongs to none, as a syntax error.
    pub rule: String,
    /// How grave it is.
    pub severity: LintSeverity,
    /// The linter's message.
    pub message: String,
}

/// How a lint run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LintOutcome {
    /// No findings.
    Clean,
    /// Findings.
    Findings,
    /// The code did not compile, or the linter reported an error of its own.
    NotFinished,
}

impl LintOutcome {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Findings => "findings",
            Self::NotFinished => "not_finished",
        }
    }
}

/// What a lint run says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintReport {
    /// The linter.
    pub linter: Linter,
    /// How the run ended.
    pub outcome: LintOutcome,
    /// The findings, in the order of the output.
    pub findings: Vec<LintFinding>,
    /// Findings beyond [`MAX_FINDINGS`].
    pub findings_left_out: u64,
    /// Number of errors, all counted.
    pub errors: u64,
    /// Number of warnings and remarks, all counted.
    pub warnings: u64,
    /// Whether the output was read to its end.
    pub complete: bool,
    /// What the reader of this report should know.
    pub notes: Vec<String>,
}

/// Findings while they are read.
#[derive(Debug, Default)]
pub(crate) struct FindingList {
    findings: Vec<LintFinding>,
    left_out: u64,
    errors: u64,
    warnings: u64,
    /// Whether the linter could not do its work on part of the code.
    pub(crate) broken: bool,
}

impl FindingList {
    pub(crate) fn push(&mut self, mut finding: LintFinding) {
        match finding.severity {
            LintSeverity::Error => self.errors += 1,
            LintSeverity::Warning | LintSeverity::Info => self.warnings += 1,
        }
        if self.findings.len() >= MAX_FINDINGS {
            self.left_out += 1;
            return;
        }
        finding.rule = clip_name(&finding.rule);
        finding.message = clip_message(&finding.message);
        self.findings.push(finding);
    }
}

/// How to read the output of a planned lint run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintReader {
    /// The linter whose output is expected.
    pub linter: Linter,
}

impl LintReader {
    /// Reads the output.
    #[must_use]
    pub fn read(&self, output: &RunOutput<'_>, at: &RunLocation<'_>) -> LintReport {
        let clean = output.clean();
        let mut list = FindingList::default();
        let known = match self.linter {
            Linter::Clippy => clippy::read(&clean, at, &mut list),
            Linter::Ruff => json_findings::ruff(&clean, at, &mut list),
            Linter::Eslint => json_findings::eslint(&clean, at, &mut list),
            Linter::GolangciLint => json_findings::golangci(&clean, at, &mut list),
            Linter::Shellcheck => json_findings::shellcheck(&clean, at, &mut list),
            Linter::Biome => biome::read(&clean, at, &mut list),
            Linter::Flake8 | Linter::PackageScript | Linter::Configured => false,
        };
        let known = known || text_findings::read(&clean, at, &mut list);
        report(self.linter, list, known, &clean)
    }

    /// The findings as text for people, one a line, after what the linter wrote for people itself.
    #[must_use]
    pub fn log(&self, output: &RunOutput<'_>, report: &LintReport) -> String {
        let clean = output.clean();
        let json = matches!(
            self.linter,
            Linter::Clippy | Linter::Ruff | Linter::Eslint | Linter::GolangciLint | Linter::Shellcheck
        );
        if !json || (report.findings.is_empty() && !report.complete) {
            return format!("{}{}", clean.stderr, clean.stdout);
        }
        let mut out = clean.stderr.into_owned();
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        for finding in &report.findings {
            out.push_str(&finding.to_string());
            out.push('\n');
        }
        out
    }
}

impl std::fmt::Display for LintFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.file.as_deref().unwrap_or("-"))?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        write!(f, ": {}", self.severity.as_str())?;
        if !self.rule.is_empty() {
            write!(f, " {}", self.rule)?;
        }
        write!(f, ": {}", self.message.lines().next().unwrap_or_default())
    }
}

fn report(linter: Linter, list: FindingList, known: bool, output: &PlainOutput<'_>) -> LintReport {
    let mut notes = Vec::new();
    let outcome = match output.exit_code {
        _ if list.broken => LintOutcome::NotFinished,
        _ if !list.findings.is_empty() => LintOutcome::Findings,
        Some(0) => LintOutcome::Clean,
        _ => LintOutcome::NotFinished,
    };
    match output.exit_code {
        Some(code) if !known => {
            notes.push(format!("the output could not be read: the result is the exit code {code}"));
        }
        Some(code) if outcome == LintOutcome::NotFinished && list.findings.is_empty() => {
            let reason = output.stderr.lines().map(str::trim).find(|line| !line.is_empty());
            let reason = reason.map_or(String::new(), |reason| format!(": {}", clip_name(reason)));
            notes.push(format!("the linter ended with exit code {code} and no findings{reason}"));
        }
        None => notes.push("the program was ended before it exited".to_owned()),
        _ => {}
    }
    if output.truncated {
        notes.push("the output was cut: findings may be missing".to_owned());
    }
    let FindingList { findings, left_out, errors, warnings, .. } = list;
    LintReport {
        linter,
        outcome,
        findings,
        findings_left_out: left_out,
        errors,
        warnings,
        complete: known && output.exit_code.is_some() && !output.truncated,
        notes,
    }
}

#[cfg(test)]
mod tests;
