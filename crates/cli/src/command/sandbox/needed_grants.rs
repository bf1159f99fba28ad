//! Prints which options a failed program would need, as text or JSON.

use serde_json::{Value, json};
use vambrace_core::terminal_escape::sanitize;
use vambrace_exec::{ForeignGroup, Grant, NeededGrants};

use super::{DENIALS_INCOMPLETE, denial_json, network, shown};
use crate::output::{Out, Tone, paint};

/// The option that asks for a grant, and its value.
fn option(grant: &Grant) -> (&'static str, String) {
    let mebibytes = |bytes: u64| format!("{}M", bytes >> 20);
    match grant {
        Grant::Filesystem(mode) => ("--filesystem", mode.as_str().to_owned()),
        Grant::Loopback => ("--network", "loopback".to_owned()),
        Grant::Hosts(hosts) => ("--network", hosts.join(",")),
        Grant::Read(path) => ("--read", path.display().to_string()),
        Grant::Write(path) => ("--write", path.display().to_string()),
        Grant::Time(time) => ("--timeout", time.as_secs_f64().to_string()),
        Grant::Memory(bytes) => ("--memory", mebibytes(*bytes)),
        Grant::Disk(bytes) => ("--disk", mebibytes(*bytes)),
    }
}

pub(super) fn print(grants: &NeededGrants, clean: &dyn Fn(&str) -> String, out: Out) {
    let head = match (grants.not_rerun, grants.is_enough()) {
        (true, _) => {
            "explain: not run again: in this tier, writes to `--write` paths cannot be discarded".to_owned()
        }
        (_, true) => "explain: run again with the following options, it succeeded".to_owned(),
        _ if grants.stopped => "explain: stopped before the needed options were known".to_owned(),
        _ => format!("explain: run again with everything observed, exit code {}", grants.exit_code),
    };
    out.message(paint(Tone::Strong, head));
    for denial in &grants.denials {
        let path = sanitize(&clean(&shown(&denial.path)));
        out.message(format!("  denied: {} {path}: {}", denial.operation.as_str(), denial.rule.as_str()));
    }
    let attempts = grants.attempts.iter().flat_map(|attempts| &attempts.events);
    let mut other = false;
    for event in attempts.filter(|event| event.denied()) {
        let reason = event.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        out.message(format!(
            "  denied: {}: {}",
            sanitize(&clean(&event.attempted())),
            sanitize(&clean(&reason))
        ));
        other = true;
    }
    if grants.denials_missing && !grants.stopped {
        out.message(format!("  {}", paint(Tone::Care, DENIALS_INCOMPLETE)));
    } else if grants.denials.is_empty()
        && !other
        && grants.grants.is_empty()
        && grants.never.is_empty()
        && grants.foreign_group.is_none()
        && !grants.not_rerun
        && !grants.stopped
    {
        out.message(match (grants.outside_workspace, grants.is_enough()) {
            (true, _) => "  no denials, but the program does not start in the workspace: `--filesystem read` makes it visible",
            (_, true) => "  no denials",
            _ => "  no denials; reaching `--processes` or filling `--disk` is not detected",
        });
    }
    if let Some(foreign_group) = &grants.foreign_group {
        out.message(format!(
            "  {} {}",
            paint(Tone::Care, "cannot change:"),
            sanitize(&clean(&foreign_group_text(foreign_group)))
        ));
    }
    for (option, value) in grants.grants.iter().map(option) {
        out.message(format!(
            "  {} {option} {}",
            paint(Tone::Care, "would need:"),
            sanitize(&clean(&quoted(&value)))
        ));
    }
    for name in &grants.in_place_of {
        let name = sanitize(&clean(&quoted(name)));
        out.message(format!("  {} {name}", paint(Tone::Care, "in place of:")));
    }
    for name in &grants.never {
        let name = vambrace_core::quote::quoted(name.as_bytes());
        out.message(format!("  {} {}", paint(Tone::Care, "never granted:"), sanitize(&clean(&name))));
    }
    for name in &grants.no_access {
        let name = sanitize(&clean(&vambrace_core::quote::quoted(name.as_bytes())));
        out.message(format!("  {} {name}: you have no access yourself", paint(Tone::Care, "never granted:")));
    }
}

pub(super) fn json(grants: &NeededGrants) -> Value {
    let words: Vec<String> =
        grants.grants.iter().map(option).map(|(option, value)| format!("{option} {value}")).collect();
    json!({
        "exit_code": grants.exit_code, "run_again": !grants.not_rerun,
        "denials": grants.denials.iter().map(denial_json).collect::<Vec<_>>(),
        "denials_missing": grants.denials_missing, "grants": words,
        "never": grants.never.union(&grants.no_access).collect::<Vec<_>>(),
        "in_place_of": grants.in_place_of,
        "of_other_group": grants.foreign_group.as_ref().map(|one| one.path.display().to_string()),
        "network": grants.attempts.as_ref().map(network::json),
    })
}

fn foreign_group_text(ForeignGroup { path, group }: &ForeignGroup) -> String {
    let way = "`chgrp` it, or use `newgrp` if all files have that group";
    format!("{} has group {group}, which is not your current group (EOVERFLOW): {way}", shown(path))
}

/// Quotes a word for a shell.
fn quoted(value: &str) -> String {
    let simple = |letter: char| letter.is_alphanumeric() || "/._-+=:@%,".contains(letter);
    if value.chars().all(simple) {
        return value.to_owned();
    }
    if !value.contains(char::is_control) {
        return format!("'{}'", value.replace('\'', r"'\''"));
    }
    // Always one line.
    let escaped = value.chars().map(|letter| match letter {
        '\'' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => {
            letter.to_string().bytes().map(|byte| format!("\\{byte:03o}")).collect()
        }
        letter => letter.to_string(),
    });
    format!("$'{}'", escaped.collect::<String>())
}
