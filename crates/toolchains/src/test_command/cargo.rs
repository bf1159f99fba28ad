//! `cargo nextest run` and `cargo test`: a path selects its package and its test program, a name is a filter or a package.

use super::{is_plain, refused};
use crate::command_plan::{CommandPlan, PlanRequest, ToolCandidate};
use crate::detect::cargo_workspace::{CargoPackage, manifest, package_directory, packages};
use crate::project_view::{ProjectView, below, join};
use crate::target::{TargetError, ToolTarget};
use crate::test_report::{TestFormat, TestReader};
use crate::test_runner::TestRunner;

/// What is selected: options of cargo, then a filter for the tests.
#[derive(Debug, Default)]
struct CargoSelection {
    options: Vec<String>,
    filter: Option<String>,
}

pub(super) fn command(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let selection = select(view, chosen, target)?;
    let (words, format): (&[&str], _) = match chosen.tool {
        TestRunner::Nextest => (
            &[
                "cargo",
                "nextest",
                "run",
                "--no-fail-fast",
                "--status-level=all",
                "--final-status-level=none",
                "--failure-output=immediate",
                "--success-output=never",
            ],
            TestFormat::Nextest,
        ),
        _ => (&["cargo", "test", "--no-fail-fast"], TestFormat::Libtest),
    };
    let mut plan = CommandPlan::new(&chosen.directory, words.iter().copied());
    plan.argv.extend(selection.options);
    if let Some(filter) = selection.filter {
        plan.arg("--").arg(filter);
    }
    plan.set("CARGO_TERM_COLOR", "never").set("RUST_BACKTRACE", "0");
    if request.offline {
        plan.set("CARGO_NET_OFFLINE", "true");
    }
    Ok((plan, TestReader::new(format)))
}

fn select(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
) -> Result<CargoSelection, TargetError> {
    let root = chosen.directory.as_str();
    match target {
        ToolTarget::All => {
            let workspace = manifest(view, root).is_some_and(|manifest| manifest.contains_key("workspace"));
            let options = if workspace { vec!["--workspace".to_owned()] } else { Vec::new() };
            Ok(CargoSelection { options, filter: None })
        }
        ToolTarget::Path { path, name } => {
            let directory = package_directory(view, target.directory(view))
                .ok_or_else(|| refused(chosen.tool, target))?;
            let mut selection = select_file(below(path, directory).unwrap_or("."));
            let relative = below(directory, root).ok_or_else(|| refused(chosen.tool, target))?;
            if relative == "." {
                let virtual_root =
                    manifest(view, root).is_some_and(|manifest| !manifest.contains_key("package"));
                if virtual_root {
                    selection.options.insert(0, "--workspace".to_owned());
                }
            } else {
                selection.options.insert(0, format!("--manifest-path={}", join(relative, "Cargo.toml")));
            }
            if let Some(name) = name {
                selection.filter = Some(filter(name).ok_or_else(|| refused(chosen.tool, target))?);
            }
            Ok(selection)
        }
        ToolTarget::Name(name) => select_name(view, root, name).ok_or_else(|| refused(chosen.tool, target)),
    }
}

/// The test program and the module of a file, relative to its package.
fn select_file(file: &str) -> CargoSelection {
    let option = |option: String| CargoSelection { options: vec![option], filter: None };
    let first = |rest: &str| {
        let name = rest.split('/').next().unwrap_or_default();
        name.strip_suffix(".rs").unwrap_or(name).to_owned()
    };
    if let Some(rest) = file.strip_prefix("tests/") {
        return option(format!("--test={}", first(rest)));
    }
    if let Some(rest) = file.strip_prefix("benches/") {
        return option(format!("--bench={}", first(rest)));
    }
    if let Some(rest) = file.strip_prefix("examples/") {
        return option(format!("--example={}", first(rest)));
    }
    if let Some(rest) = file.strip_prefix("src/bin/") {
        return option(format!("--bin={}", first(rest)));
    }
    match file.strip_prefix("src/").and_then(|file| file.strip_suffix(".rs")) {
        Some("lib") => option("--lib".to_owned()),
        Some("main") => option("--bins".to_owned()),
        Some(module) => {
            let module = module.strip_suffix("/mod").unwrap_or(module).replace('/', "::");
            CargoSelection { options: Vec::new(), filter: filter(&format!("{module}::")) }
        }
        None => CargoSelection::default(),
    }
}

/// A package, `package::module::test`, `package::binary::test`, or a filter over all packages.
fn select_name(view: &dyn ProjectView, root: &str, name: &str) -> Option<CargoSelection> {
    let (first, rest) = name.split_once("::").map_or((name, None), |(first, rest)| (first, Some(rest)));
    let known = packages(view, root);
    let same = |package: &&CargoPackage| package.name == first || package.name.replace('-', "_") == first;
    let Some(package) = known.iter().find(same) else {
        let options = if known.len() > 1 { vec!["--workspace".to_owned()] } else { Vec::new() };
        return Some(CargoSelection { options, filter: Some(filter(name)?) });
    };
    let mut selection = CargoSelection { options: vec![format!("--package={}", package.name)], filter: None };
    let mut rest = rest.unwrap_or_default();
    let (binary, tests) = rest.split_once("::").unwrap_or((rest, ""));
    let file = |file: String| view.exists(&join(&package.directory, &file));
    if let Some(binary) = binary.strip_prefix("bin/").filter(|binary| is_plain(binary, "-")) {
        selection.options.push(format!("--bin={binary}"));
        rest = tests;
    } else if is_plain(binary, "-")
        && (file(format!("tests/{binary}.rs")) || file(format!("tests/{binary}/main.rs")))
    {
        selection.options.push(format!("--test={binary}"));
        rest = tests;
    }
    if !rest.is_empty() {
        selection.filter = Some(filter(rest)?);
    }
    Some(selection)
}

/// A filter that the test harness takes as it is.
fn filter(name: &str) -> Option<String> {
    // Names of documentation tests have spaces and parentheses: `src/lib.rs - add (line 4)`.
    (is_plain(name, ":-./ ()<>,&'") && !name.starts_with('-')).then(|| name.to_owned())
}
