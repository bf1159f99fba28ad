//! Programs whose arguments are a language of their own. The tables name the rule.

mod assigning;
mod awk;
mod containers;
mod deletion;
mod directories;
mod find;
mod git_settings;
mod interpreters;
mod modes;
mod sed;
mod shells;
mod tests;
mod wrappers;

use crate::argument::Argument;
use crate::judge::CommandJudge;
use crate::line_state::StageFacts;
use crate::profile::CommandProfile;

/// A rule for a program: judge, name, profile, arguments.
pub(crate) type SpecialRule =
    fn(&mut CommandJudge<'_>, &str, &'static CommandProfile, &[Argument]) -> StageFacts;

/// The rule that a table names.
pub(crate) fn rule(name: &str) -> Option<SpecialRule> {
    Some(match name {
        "awk" => awk::judge,
        "change-directory" => directories::change,
        "chmod" => modes::chmod,
        "date" => modes::date,
        "declare" => assigning::declare,
        "dd" => deletion::dd,
        "docker-run" => containers::run,
        "echo" => assigning::echo,
        "env" => wrappers::env,
        "eval" => shells::eval,
        "find" => find::judge,
        "flock" => wrappers::flock,
        "git" => git_settings::git,
        "git-config" => git_settings::config,
        "git-clone" => git_settings::clone,
        "git-format" => git_settings::format,
        "interpreter" => interpreters::judge,
        "kill" => deletion::kill,
        "printf" => assigning::printf,
        "read" => assigning::read,
        "rm" => deletion::rm,
        "names-variables" => assigning::names,
        "sed" => sed::judge,
        "shell" => shells::judge,
        "source" => shells::source,
        "ssh" => wrappers::ssh,
        "sysctl" => modes::sysctl,
        "tar" => modes::tar,
        "test" => tests::judge,
        "trap" => shells::trap,
        "unparsed" => shells::unparsed,
        "xargs" => wrappers::xargs,
        "parallel" => wrappers::parallel,
        "operand-script" => interpreters::operand_script,
        "last-is-shell" => shells::last,
        "make" => interpreters::make,
        "xxd" => modes::xxd,
        _ => return None,
    })
}

/// Names that the tables may use, for the test of the tables.
#[cfg(test)]
pub(crate) fn is_rule(name: &str) -> bool {
    rule(name).is_some()
}
