//! just and make: a recipe of the file and nothing else. Arguments of recipes end in a shell, so none are passed.

use super::refused;
use crate::command_plan::{CommandPlan, ToolCandidate};
use crate::detect::recipes::{JUST_FILES, MAKE_FILES, recipes};
use crate::detect::test_runners::default_recipe;
use crate::project_view::ProjectView;
use crate::target::{TargetError, ToolTarget};
use crate::test_report::{TestFormat, TestReader};
use crate::test_runner::TestRunner;

pub(super) fn command(
    view: &dyn ProjectView,
    chosen: &ToolCandidate<TestRunner>,
    target: &ToolTarget,
) -> Result<(CommandPlan, TestReader), TargetError> {
    let (program, files) = match chosen.tool {
        TestRunner::Just => ("just", JUST_FILES),
        _ => ("make", MAKE_FILES),
    };
    let names = recipes(view, &chosen.directory, files).map(|(_, names)| names).unwrap_or_default();
    let recipe = match target {
        ToolTarget::All => default_recipe(&names).unwrap_or("test"),
        ToolTarget::Name(name)
            if names.contains(name) && (name.starts_with("test") || name.starts_with("check")) =>
        {
            name
        }
        ToolTarget::Name(_) | ToolTarget::Path { .. } => return Err(refused(chosen.tool, target)),
    };
    Ok((CommandPlan::new(&chosen.directory, [program, recipe]), TestReader::new(TestFormat::Unknown)))
}
