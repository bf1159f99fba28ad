//! Containers: options that give a container the machine.

use vambrace_core::risk::RiskLevel;

use crate::argument::Argument;
use crate::built_in::BUILT_IN;
use crate::judge::CommandJudge;
use crate::judgement::shown;
use crate::line_state::StageFacts;
use crate::options::{self, ScannedArgument};
use crate::paths::WriteTarget;
use crate::profile::CommandProfile;

/// `docker run`, `docker create`, `podman run`.
pub(super) fn run(
    judge: &mut CommandJudge<'_>,
    name: &str,
    profile: &'static CommandProfile,
    arguments: &[Argument],
) -> StageFacts {
    judge.found.modify(RiskLevel::High, format!("`{name}` starts a container"));
    for argument in options::scan(profile, arguments) {
        match argument {
            ScannedArgument::Option { name: option, value, .. } => {
                let value = value.map(|value| value.text).unwrap_or_default();
                judge_option(judge, name, &option, &value);
            }
            ScannedArgument::UnknownOption { name: option, value } => {
                let value = value.map(|value| value.text).unwrap_or_default();
                judge_option(judge, name, &option, &value);
            }
            _ => {}
        }
    }
    StageFacts::default()
}

fn judge_option(judge: &mut CommandJudge<'_>, name: &str, option: &str, value: &str) {
    if BUILT_IN.lists("container-options-deny", option) && value != "false" {
        judge.found.deny(format!("`{name} {}` takes away what confines the container", shown(option)));
    }
    let shares_host = BUILT_IN.lists("container-namespaces", option) && value == "host";
    if shares_host {
        judge.found.deny(format!("`{name} {option}=host` shares a namespace of the machine"));
    }
    if BUILT_IN.lists("container-mounts", option) {
        let source = mount_source(value);
        let target = judge.here.write_target(source);
        let shared = source == "/" || source.contains("docker.sock") || source.contains("containerd.sock");
        if shared || matches!(target, WriteTarget::System | WriteTarget::Protected) || source == "~" {
            judge.found.deny(format!("`{name}` gives the container `{}`", shown(source)));
        }
    }
}

/// The path of the host in `SOURCE:TARGET` or `type=bind,source=SOURCE,...`.
fn mount_source(value: &str) -> &str {
    let named = value.split(',').find_map(|part| part.strip_prefix("source=").or(part.strip_prefix("src=")));
    named.unwrap_or_else(|| value.split(':').next().unwrap_or(value))
}
