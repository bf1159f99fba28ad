//! Gradle and Maven. A test file becomes the name of its class; the module is the directory above `src`.

use super::{is_plain, refused};
use crate::command_plan::{CommandPlan, PlanRequest, ToolCandidate};
use crate::project_view::{ProjectView, below, join};
use crate::target::{TargetError, ToolTarget};
use crate::test_report::{TestFormat, TestReader};
use crate::test_runner::TestRunner;

/// Files that make a directory a module.
const MODULE_FILES: &[&str] = &["pom.xml", "build.gradle", "build.gradle.kts"];

/// A module and a class pattern.
#[derive(Debug, Default, PartialEq, Eq)]
struct JavaSelection {
    module: Option<String>,
    class: Option<String>,
    method: Option<String>,
}

pub(super) fn gradle(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let selection = select(view, chosen, target)?;
    let mut plan = CommandPlan::new(&chosen.directory, [program(chosen, "gradle")]);
    plan.arg("--console=plain").arg("--no-daemon").arg("--continue");
    if request.offline {
        plan.arg("--offline");
    }
    let task =
        selection.module.map_or("test".to_owned(), |module| format!(":{}:test", module.replace('/', ":")));
    plan.arg(task);
    if let Some(class) = selection.class {
        let method = selection.method.map_or(String::new(), |method| format!(".{method}"));
        plan.arg("--tests").arg(format!("{class}{method}"));
    }
    Ok((plan, TestReader::new(TestFormat::Gradle)))
}

pub(super) fn maven(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
    request: &PlanRequest<'_>,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let selection = select(view, chosen, target)?;
    let mut plan = CommandPlan::new(&chosen.directory, [program(chosen, "mvn")]);
    plan.arg("--batch-mode").arg("--no-transfer-progress").arg("--fail-at-end");
    if request.offline {
        plan.arg("--offline");
    }
    if let Some(module) = selection.module {
        plan.arg("--projects").arg(module).arg("--also-make");
    }
    if let Some(class) = selection.class {
        let method = selection.method.map_or(String::new(), |method| format!("#{method}"));
        plan.arg(format!("-Dtest={class}{method}")).arg("-Dsurefire.failIfNoSpecifiedTests=false");
    }
    plan.arg("test");
    Ok((plan, TestReader::new(TestFormat::Maven)))
}

/// The wrapper script of the project, or the program.
fn program(chosen: &ToolCandidate<TestRunner>, name: &str) -> String {
    match chosen.programs.first().and_then(|program| below(program, &chosen.directory)) {
        Some(wrapper @ ("gradlew" | "mvnw")) => format!("./{wrapper}"),
        _ => name.to_owned(),
    }
}

fn select(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
) -> Result<JavaSelection, TargetError> {
    let error = || refused(chosen.tool, target);
    match target {
        ToolTarget::All => Ok(JavaSelection::default()),
        ToolTarget::Name(name) => by_name(name).ok_or_else(error),
        ToolTarget::Path { path, name } => {
            let inside = below(path, &chosen.directory).ok_or_else(error)?;
            let mut selection = by_path(inside, view.is_directory(path)).ok_or_else(error)?;
            let is_module = |module: &String| {
                let directory = join(&chosen.directory, module);
                MODULE_FILES.iter().any(|file| view.exists(&join(&directory, file)))
            };
            if selection.module.as_ref().is_some_and(|module| !is_module(module)) {
                return Err(error());
            }
            if let Some(name) = name {
                selection.method = Some(name.clone()).filter(|name| is_plain(name, "$"));
                if selection.method.is_none() || selection.class.is_none() {
                    return Err(error());
                }
            }
            Ok(selection)
        }
    }
}

/// `Class`, `package.Class`, `Class.method`, `Class#method`
fn by_name(name: &str) -> Option<JavaSelection> {
    if !is_plain(name, ".$#") || name.starts_with('.') {
        return None;
    }
    let starts_lower = |part: &str| part.starts_with(|c: char| c.is_ascii_lowercase());
    let (class, method) = match name.split_once('#') {
        Some((class, method)) => (class, Some(method)),
        // Methods begin with a small letter, classes with a capital one.
        None => match name.rsplit_once('.') {
            Some((class, last)) if starts_lower(last) => (class, Some(last)),
            _ => (name, None),
        },
    };
    Some(JavaSelection { module: None, class: Some(class.to_owned()), method: method.map(str::to_owned) })
}

/// `app/src/test/java/demo/CalcTest.java`: module `app`, class `demo.CalcTest`.
fn by_path(path: &str, directory: bool) -> Option<JavaSelection> {
    let plain = |text: &str| !text.starts_with('-') && is_plain(text, "-./");
    let (module, source) = match path.split_once("src/test/") {
        Some((module, source)) => (module.trim_end_matches('/'), Some(source)),
        None if directory => (path, None),
        None => return None,
    };
    let module = Some(module.to_owned()).filter(|module| !matches!(module.as_str(), "" | "."));
    if module.as_deref().is_some_and(|module| !plain(module)) {
        return None;
    }
    let class = source.and_then(|source| {
        let (_, file) = source.split_once('/')?;
        let (class, _) = file.rsplit_once('.')?;
        Some(class.replace('/', ".")).filter(|class| is_plain(class, "."))
    });
    (class.is_some() || directory).then_some(JavaSelection { module, class, method: None })
}
