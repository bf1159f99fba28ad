//! A command from the configuration: program and arguments, with `{target}` where the target goes. No shell reads it, so
//! a target cannot become more than one argument.

use crate::command_plan::{CommandPlan, PlanError};
use crate::target::{TargetError, ToolTarget};

/// Stands for the target.
pub const TARGET_PLACEHOLDER: &str = "{target}";

/// The arguments for a target. Without a target, arguments with the placeholder are left out.
pub(crate) fn configured_command(argv: &[String], target: &ToolTarget) -> Result<CommandPlan, PlanError> {
    let program =
        argv.first().filter(|program| !program.trim().is_empty()).ok_or(PlanError::BadCommand("is empty"))?;
    if program.contains(TARGET_PLACEHOLDER) {
        return Err(PlanError::BadCommand("has the target as its program"));
    }
    let takes_target = argv.iter().any(|argument| argument.contains(TARGET_PLACEHOLDER));
    let text = match target {
        ToolTarget::All => None,
        ToolTarget::Path { path, name: None } => Some(path.clone()),
        ToolTarget::Path { path, name: Some(name) } => Some(format!("{path}::{name}")),
        ToolTarget::Name(name) => Some(name.clone()),
    };
    if let (Some(text), false) = (&text, takes_target) {
        let takes = "no target: the setting has no `{target}`; leave the target out";
        return Err(TargetError::not_supported("the configured command", text, takes).into());
    }
    let mut plan = CommandPlan::default();
    for argument in argv {
        match &text {
            _ if !argument.contains(TARGET_PLACEHOLDER) => plan.arg(argument),
            None => &mut plan,
            // A file whose name begins with a dash.
            Some(text) if argument == TARGET_PLACEHOLDER && text.starts_with('-') => {
                plan.arg(format!("./{text}"))
            }
            Some(text) => plan.arg(argument.replace(TARGET_PLACEHOLDER, text)),
        };
    }
    plan.programs.push(program.clone());
    crate::command_plan::plain_output(&mut plan);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    // T14
    #[test]
    fn the_target_is_one_argument_and_optional() {
        let check = |command: &[&str], target: ToolTarget, expected: &[&str]| {
            assert_eq!(configured_command(&argv(command), &target).unwrap().argv, expected);
        };
        let name = |name: &str| ToolTarget::Name(name.to_owned());
        check(&["tox", "-e", "py"], ToolTarget::All, &["tox", "-e", "py"]);
        check(&["tox", "--", "{target}"], name("a b; rm -rf /"), &["tox", "--", "a b; rm -rf /"]);
        check(&["run", "--filter={target}", "-q"], name("x"), &["run", "--filter=x", "-q"]);
        check(&["run", "--filter={target}", "-q"], ToolTarget::All, &["run", "-q"]);
        let odd = ToolTarget::Path { path: "-x.py".to_owned(), name: None };
        check(&["run", "{target}"], odd, &["run", "./-x.py"]);
    }

    #[test]
    fn bad_commands_are_reported() {
        let name = ToolTarget::Name("x".to_owned());
        let error = configured_command(&argv(&["tox"]), &name).unwrap_err();
        assert_eq!(error.to_string(), "the configured command does not take the target `x`");
        assert!(error.suggestion().contains("has no `{target}`"));
        assert!(configured_command(&[], &ToolTarget::All).is_err());
        assert!(configured_command(&argv(&["{target}"]), &name).is_err());
    }
}
