//! Programs that delete or overwrite: `rm`, `dd`, `kill`.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::paths::DeleteTarget;
use crate::profile::CommandProfile;

impl CommandJudge<'_> {
    /// A file or directory goes away.
    pub(crate) fn delete(&mut self, target: &Argument, recursive: bool) {
        let path = shown(&target.text);
        let home = target.text.starts_with("$HOME") || target.text.starts_with("${HOME}");
        let begins_unknown =
            !target.exact && target.prefix == 0 && !target.text.starts_with(['*', '?', '[', '~']);
        if recursive && begins_unknown && !home {
            self.found.deny(format!("what `{path}` deletes is not known before it runs"));
        }
        match self.here.delete_target(&target.text, recursive) {
            DeleteTarget::Ordinary => {}
            DeleteTarget::Outside => self.found.deny(format!("it deletes `{path}`, outside the workspace")),
            DeleteTarget::Protected => self.found.deny(format!("it deletes `{path}`, which is protected")),
        }
    }
}

pub(super) fn rm(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let scanned = options::scan(profile, arguments);
    judge.scanned(name, profile, arguments, &scanned);
    let recursive = scanned.iter().any(|argument| match argument {
        ScannedArgument::Option { name, .. } => {
            matches!(name.as_str(), "-r" | "-R")
                || (name.len() > 3 && "--recursive".starts_with(name.as_str()))
        }
        _ => false,
    });
    for argument in &scanned {
        match argument {
            ScannedArgument::Operand { argument, .. } | ScannedArgument::Uncertain(argument) => {
                judge.delete(argument, recursive || name == "shred");
            }
            _ => {}
        }
    }
    StageFacts::default()
}

/// `dd if=FILE of=FILE`
pub(super) fn dd(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.modify(profile.risk, format!("`{name}` copies raw data"));
    for argument in arguments {
        match argument.text.split_once('=') {
            Some(("of", _)) => judge.write_to(&argument.tail(3)),
            Some(("if", device))
                if device.starts_with("/dev/") && !BUILT_IN.lists("data-devices", device) =>
            {
                judge.found.deny(format!("`{name}` reads the device `{}`", shown(device)));
            }
            _ => {}
        }
    }
    StageFacts::default()
}

/// `kill`, `pkill`, `killall`: processes of the session, all processes, or this program.
pub(super) fn kill(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    let lists =
        arguments.first().is_some_and(|first| first.exact && matches!(first.text.as_str(), "-l" | "-L"));
    if lists && name == "kill" {
        judge.found.read("`kill -l` lists signals");
        return StageFacts::default();
    }
    judge.found.modify(profile.risk, format!("`{name}` ends processes"));
    let (options, operands): (Vec<&Argument>, Vec<&Argument>) =
        arguments.iter().partition(|word| word.text.starts_with('-') && word.text.len() > 1);
    let all_processes = options.len() > 1 && options.iter().any(|word| word.text == "-1");
    let all_processes =
        all_processes || operands.iter().any(|word| matches!(word.text.as_str(), "-1" | "1" | "0"));
    let all_processes =
        all_processes || (options.len() == 1 && operands.is_empty() && has_only(&options, "-1"));
    if all_processes && name == "kill" {
        judge.found.deny("`kill` ends every process, or the first one");
    }
    for word in &operands {
        let lower = word.text.to_ascii_lowercase();
        if BUILT_IN.list("guard-programs").any(|guard| lower.contains(guard)) {
            judge.found.deny(format!("`{name}` ends `{}`, which protects this machine", shown(&word.text)));
        }
    }
    if arguments.iter().any(|word| !word.exact) {
        judge.found.modify(RiskLevel::High, format!("which processes `{name}` ends is not known before"));
    }
    StageFacts::default()
}

fn has_only(options: &[&Argument], text: &str) -> bool {
    options.iter().all(|word| word.text == text)
}
