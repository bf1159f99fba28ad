//! Plans a lint run: the linter, the command for a target, and how its output is read. Linters report and never fix.

use crate::command_plan::{
    CommandPlan, PlanError, PlanRequest, ToolCandidate, first_installed, plain_output,
};
use crate::configured_command::configured_command;
use crate::detect::cargo_workspace::{manifest, package_directory, packages};
use crate::detect::detect_linters;
use crate::detect::linters::GOLANGCI_FILES;
use crate::detect::package_json::ScriptRunner;
use crate::lint_report::LintReader;
use crate::linter::Linter;
use crate::project_view::{ProjectView, below, files_below, join};
use crate::target::{TargetError, ToolTarget, is_shell_safe};

/// Maximum number of files that are passed to shellcheck.
const MAX_SHELL_FILES: usize = 500;

/// A planned lint run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LintPlan {
    /// The linter.
    pub linter: Linter,
    /// The command.
    pub command: CommandPlan,
    /// How its output is read.
    pub reader: LintReader,
    /// Why this linter.
    pub reason: String,
    /// Other linters that the project speaks for, with the reason.
    pub alternatives: Vec<String>,
}

/// Plans a lint run. The configured command wins; else the first detected linter whose programs are installed.
pub fn plan_lint(view: &dyn ProjectView, request: &PlanRequest<'_>) -> Result<LintPlan, PlanError> {
    let target = ToolTarget::parse(request.target.unwrap_or_default(), view)?;
    if let Some(argv) = request.configured {
        return Ok(LintPlan {
            linter: Linter::Configured,
            command: configured_command(argv, &target)?,
            reader: LintReader { linter: Linter::Configured },
            reason: "tools.toolchain.lint".to_owned(),
            alternatives: Vec::new(),
        });
    }
    let detection = detect_linters(view, &target);
    if !detection.directories.is_empty() {
        return Err(PlanError::SeveralDirectories { what: "linter", directories: detection.directories });
    }
    let nothing = PlanError::NothingFound { what: "linter", setting: "tools.toolchain.lint" };
    let chosen =
        first_installed(&detection.candidates, request.installed, |linter| linter.as_str(), nothing)?;
    let mut command = match chosen.tool {
        Linter::Clippy => clippy(view, chosen, &target, request)?,
        Linter::Ruff | Linter::Flake8 => python(chosen, &target)?,
        Linter::Eslint | Linter::Biome => javascript(view, chosen, &target)?,
        Linter::GolangciLint => golangci(view, chosen, &target, request)?,
        Linter::Shellcheck => shellcheck(view, chosen, &target)?,
        Linter::PackageScript => package_script(view, chosen, &target)?,
        Linter::Configured => return Err(refused(chosen.tool, &target).into()),
    };
    plain_output(&mut command);
    command.programs.clone_from(&chosen.programs);
    Ok(LintPlan {
        linter: chosen.tool,
        command,
        reader: LintReader { linter: chosen.tool },
        reason: chosen.reason.clone(),
        alternatives: detection
            .candidates
            .iter()
            .filter(|candidate| candidate.tool != chosen.tool)
            .map(|candidate| format!("{} ({})", candidate.tool.as_str(), candidate.reason))
            .collect(),
    })
}

fn clippy(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<Linter>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<CommandPlan, TargetError> {
    let root = chosen.directory.as_str();
    let mut plan = CommandPlan::new(root, ["cargo", "clippy", "--message-format=json", "--all-targets"]);
    let is_workspace = || manifest(view, root).is_some_and(|manifest| manifest.contains_key("workspace"));
    match target {
        ToolTarget::All if is_workspace() => plan.arg("--workspace"),
        ToolTarget::All => &mut plan,
        // Clippy checks packages, not files.
        ToolTarget::Path { name: None, .. } => {
            let package = package_directory(view, target.directory(view));
            match package.and_then(|package| below(package, root)) {
                Some(".")
                    if is_workspace() && manifest(view, root).is_some_and(|m| !m.contains_key("package")) =>
                {
                    plan.arg("--workspace")
                }
                Some(".") => &mut plan,
                Some(package) => plan.arg(format!("--manifest-path={}", join(package, "Cargo.toml"))),
                None => return Err(refused(chosen.tool, target)),
            }
        }
        ToolTarget::Name(name) if packages(view, root).iter().any(|package| package.name == *name) => {
            plan.arg(format!("--package={name}"))
        }
        ToolTarget::Name(_) | ToolTarget::Path { .. } => return Err(refused(chosen.tool, target)),
    };
    plan.set("CARGO_TERM_COLOR", "never");
    if request.offline {
        plan.set("CARGO_NET_OFFLINE", "true");
    }
    Ok(plan)
}

fn python(chosen: &ToolCandidate<Linter>, target: &ToolTarget) -> Result<CommandPlan, TargetError> {
    let program = chosen.programs.first().map_or(chosen.tool.as_str(), String::as_str);
    let mut plan = CommandPlan::new(&chosen.directory, std::iter::empty::<String>());
    let program = if program.contains('/') { plan.relative(program) } else { program.to_owned() };
    plan.arg(program);
    if chosen.tool == Linter::Ruff {
        plan.arg("check").arg("--output-format=json").arg("--no-fix").arg("--no-cache");
    } else {
        plan.arg("--format=default");
    }
    let path = path_or_root(chosen, target)?;
    plan.arg("--").path(&path);
    Ok(plan)
}

fn javascript(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<Linter>,
    target: &ToolTarget,
) -> Result<CommandPlan, TargetError> {
    let program = chosen.tool.as_str();
    let visible = view.exists(&join(&chosen.directory, &format!("node_modules/.bin/{program}")));
    let argv = if visible {
        vec![format!("node_modules/.bin/{program}")]
    } else {
        ScriptRunner::of(view, &chosen.directory).run_program(program)
    };
    let mut plan = CommandPlan::new(&chosen.directory, argv);
    if chosen.tool == Linter::Eslint {
        plan.arg("--format=json").arg("--no-error-on-unmatched-pattern").arg("--");
    } else {
        // 200 is the most that biome 1 accepts.
        plan.arg("lint").arg("--reporter=github").arg("--max-diagnostics=200").arg("--colors=off");
    }
    let path = path_or_root(chosen, target)?;
    plan.path(&path);
    Ok(plan)
}

fn golangci(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<Linter>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<CommandPlan, TargetError> {
    let mut plan = CommandPlan::new(&chosen.directory, ["golangci-lint", "run"]);
    // The option for JSON changed with version 2, whose configuration says `version: "2"`.
    let configuration = GOLANGCI_FILES.iter().find_map(|name| view.read(&join(&chosen.directory, name)));
    let second = configuration.is_none_or(|text| {
        text.lines().any(|line| {
            let value =
                line.trim().trim_matches(['{', ',']).trim().trim_start_matches('"').strip_prefix("version");
            value.is_some_and(|rest| rest.contains('2'))
        })
    });
    plan.arg(if second { "--output.json.path=stdout" } else { "--out-format=json" });
    let inside = match target {
        ToolTarget::All => ".",
        ToolTarget::Path { name: None, .. } => {
            below(target.directory(view), &chosen.directory).ok_or_else(|| refused(chosen.tool, target))?
        }
        _ => return Err(refused(chosen.tool, target)),
    };
    plan.arg(if inside == "." { "./...".to_owned() } else { format!("./{inside}/...") });
    plan.set("GOTOOLCHAIN", "local");
    if request.offline {
        plan.set("GOPROXY", "off");
    }
    Ok(plan)
}

fn shellcheck(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<Linter>,
    target: &ToolTarget,
) -> Result<CommandPlan, TargetError> {
    let path = path_or_root(chosen, target)?;
    let is_shell = |path: &str| path.ends_with(".sh") || path.ends_with(".bash");
    let files = if path.is_empty() || view.is_directory(&path) {
        files_below(view, &path, MAX_SHELL_FILES, is_shell).0
    } else {
        vec![path]
    };
    if files.is_empty() {
        return Err(refused(chosen.tool, target));
    }
    let mut plan = CommandPlan::new(&chosen.directory, ["shellcheck", "--format=json1", "--"]);
    for file in files {
        plan.path(&file);
    }
    Ok(plan)
}

fn package_script(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<Linter>,
    target: &ToolTarget,
) -> Result<CommandPlan, TargetError> {
    let mut plan = CommandPlan::new(&chosen.directory, std::iter::empty::<String>());
    plan.argv = ScriptRunner::of(view, &chosen.directory).run_script("lint");
    match target {
        ToolTarget::All => plan.argv.retain(|word| word != "--"),
        // npm puts arguments into a shell command.
        ToolTarget::Path { path, name: None } if is_shell_safe(path) => {
            plan.path(path);
        }
        ToolTarget::Path { .. } | ToolTarget::Name(_) => return Err(refused(chosen.tool, target)),
    }
    Ok(plan)
}

/// The path of the target; the linter's directory for everything.
fn path_or_root(chosen: &ToolCandidate<Linter>, target: &ToolTarget) -> Result<String, TargetError> {
    match target {
        ToolTarget::All => Ok(chosen.directory.clone()),
        ToolTarget::Path { path, name: None } => Ok(path.clone()),
        ToolTarget::Path { .. } | ToolTarget::Name(_) => Err(refused(chosen.tool, target)),
    }
}

fn refused(linter: Linter, target: &ToolTarget) -> TargetError {
    let text = match target {
        ToolTarget::All => "everything".to_owned(),
        ToolTarget::Path { path, name: None } => path.clone(),
        ToolTarget::Path { path, name: Some(name) } => format!("{path}::{name}"),
        ToolTarget::Name(name) => name.clone(),
    };
    let takes = match linter {
        Linter::Clippy => "a file, a directory or the name of a package",
        Linter::Shellcheck => "a shell script, or a directory with some",
        _ => "a file or a directory",
    };
    TargetError::not_supported(linter.as_str(), &text, takes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project_view::tests::MemoryProject;

    fn request<'a>(target: &'a str, installed: &'a dyn Fn(&str) -> bool) -> PlanRequest<'a> {
        PlanRequest {
            target: Some(target),
            configured: None,
            installed,
            offline: true,
            report_directory: "/tmp",
        }
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], target: &str, expected: &str) -> LintPlan {
        let view = MemoryProject::new(files.iter().copied());
        let plan = plan_lint(&view, &request(target, &|_| true)).unwrap();
        assert_eq!(plan.command.argv.join(" "), expected);
        plan
    }

    // T14
    #[test]
    fn every_linter_reports_and_never_fixes() {
        let rust = [
            ("Cargo.toml", "[workspace]\nmembers=['a']"),
            ("a/Cargo.toml", "[package]\nname='a'"),
            ("a/src/x.rs", ""),
        ];
        check(&rust, "", "cargo clippy --message-format=json --all-targets --workspace");
        check(
            &rust,
            "a/src/x.rs",
            "cargo clippy --message-format=json --all-targets --manifest-path=a/Cargo.toml",
        );
        check(&rust, "a", "cargo clippy --message-format=json --all-targets --manifest-path=a/Cargo.toml");
        let python = [("api/ruff.toml", ""), ("api/-x.py", ""), ("api/y.py", "")];
        let plan = check(&python, "api/y.py", "ruff check --output-format=json --no-fix --no-cache -- y.py");
        assert_eq!((plan.command.directory.as_str(), plan.reason.as_str()), ("api", "ruff.toml"));
        check(&python, "api/-x.py", "ruff check --output-format=json --no-fix --no-cache -- ./-x.py");
        check(&[(".flake8", "")], "", "flake8 --format=default -- .");
        check(
            &[("eslint.config.js", "")],
            "",
            "npx --no-install eslint --format=json --no-error-on-unmatched-pattern -- .",
        );
        check(
            &[("eslint.config.js", ""), ("yarn.lock", ""), ("node_modules/.bin/eslint", "")],
            "",
            "node_modules/.bin/eslint --format=json --no-error-on-unmatched-pattern -- .",
        );
        check(
            &[("biome.json", ""), ("pnpm-lock.yaml", "")],
            "",
            "pnpm exec biome lint --reporter=github --max-diagnostics=200 --colors=off .",
        );
        check(&[("go.mod", "")], "", "golangci-lint run --output.json.path=stdout ./...");
        let old = [("go.mod", ""), (".golangci.yml", "linters: {}\n"), ("pkg/a.go", "")];
        check(&old, "pkg/a.go", "golangci-lint run --out-format=json ./pkg/...");
        let new = [("go.mod", ""), (".golangci.yml", "version: \"2\"\n")];
        check(&new, "", "golangci-lint run --output.json.path=stdout ./...");
        check(&[("a.sh", ""), ("x/b.sh", "")], "", "shellcheck --format=json1 -- a.sh x/b.sh");
        check(&[("a.sh", ""), ("x/b.sh", "")], "x", "shellcheck --format=json1 -- x/b.sh");
        let script = [("package.json", r#"{"scripts":{"lint":"x"}}"#), ("src/a.ts", ""), ("src/a b.ts", "")];
        check(&script, "", "npm run lint");
        check(&script, "src/a.ts", "npm run lint -- src/a.ts");
        let view = MemoryProject::new(script);
        let error = plan_lint(&view, &request("src/a b.ts", &|_| true)).unwrap_err();
        assert_eq!(error.to_string(), "package script does not take the target `src/a b.ts`");
    }

    // T14
    #[test]
    fn the_first_installed_linter_is_used_and_missing_ones_are_named() {
        let view = MemoryProject::of_names(&["setup.py"]);
        let plan = plan_lint(&view, &request("", &|program| program == "flake8")).unwrap();
        assert_eq!((plan.linter, plan.alternatives), (Linter::Flake8, vec!["ruff (setup.py)".to_owned()]));
        let error = plan_lint(&view, &request("", &|_| false)).unwrap_err();
        assert_eq!(error.to_string(), "ruff was found (setup.py), but `ruff` is not installed");
        let error = plan_lint(&MemoryProject::default(), &request("", &|_| true)).unwrap_err();
        assert_eq!(error.to_string(), "no linter was found in the project");
    }

    #[test]
    fn a_configured_command_wins() {
        let view = MemoryProject::of_names(&["Cargo.toml", "src/a.rs"]);
        let argv = ["mylint", "{target}"].map(str::to_owned);
        let plan =
            plan_lint(&view, &PlanRequest { configured: Some(&argv), ..request("src/a.rs", &|_| false) })
                .unwrap();
        assert_eq!(plan.command.argv, ["mylint", "src/a.rs"]);
        assert_eq!(plan.linter, Linter::Configured);
    }
}
