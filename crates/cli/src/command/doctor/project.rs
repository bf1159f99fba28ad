//! Checks openat2(2) and the project: configuration, trust, role, tools, redactor, MCP clients.

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use vambrace_redact::{MIN_KNOWN_VALUE_BYTES, secrets_of};
use vambrace_store::SqliteStore;

use super::check::DoctorCheck;
use crate::args::CallerOptions;
use crate::command::init::clients;
use crate::config_files::{self, trust_label};
use crate::project_context::{self, ProjectTrust, Settings};
use crate::system;

/// openat2(2) keeps every file operation inside the workspace.
pub(super) fn kernel(project: &Path) -> DoctorCheck {
    let release = release();
    let opened =
        rustix::fs::openat(CWD, project, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|root| {
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                rustix::fs::openat2(
                    &root,
                    ".",
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                    Mode::empty(),
                    resolve,
                )
            });
    match opened {
        Ok(_) => DoctorCheck::ok("kernel", format!("{release}, openat2 works")),
        Err(errno) => DoctorCheck::missing(
            "kernel",
            format!("{release}, openat2: {errno}"),
            "no file can be opened safely, so every file access is denied",
            "use Linux 5.6 or newer; the seccomp profile of a container must allow openat2",
        ),
    }
}

pub(super) async fn look(project: &Path, store: Option<&SqliteStore>, checks: &mut Vec<DoctorCheck>) {
    if let Some(store) = store {
        configured(project, store, checks).await;
    }
    checks.push(masked());
    checks.push(connected(project));
}

async fn configured(project: &Path, store: &SqliteStore, checks: &mut Vec<DoctorCheck>) {
    let settings = match Settings::load(project, store).await {
        Ok(settings) => settings,
        Err(failure) => {
            let lost = "no call runs with an invalid configuration";
            let message = joined_lines(&failure.error.message);
            return checks.push(DoctorCheck::missing(
                "configuration",
                message,
                lost,
                failure.error.suggestion,
            ));
        }
    };
    let names: Vec<String> =
        config_files::find(&settings.files, false).into_iter().flatten().map(|file| file.name).collect();
    let files = if names.is_empty() { "no files".to_owned() } else { names.join(", ") };
    let shown = format!("{files}; project: {}", trust_label(settings.trust));
    checks.push(match settings.trust {
        ProjectTrust::Trusted => DoctorCheck::ok("configuration", shown),
        ProjectTrust::NoFiles => DoctorCheck::degraded(
            "configuration",
            shown,
            "the project has no configuration",
            "run `vambrace init`",
        ),
        ProjectTrust::Untrusted | ProjectTrust::Changed => {
            let lost = "the project's file can only narrow; its role is not active";
            DoctorCheck::degraded("configuration", shown, lost, "review it, then run `vambrace trust`")
        }
    });
    let notes = settings.effective.notes.len();
    if notes > 0 {
        let found = format!("{notes} values are not used as written");
        checks.push(DoctorCheck::degraded(
            "notes",
            found,
            "these settings have no effect or a narrower one",
            "`vambrace policy check` lists them with the reason",
        ));
    }
    let warnings = config_files::warnings(&settings.effective);
    if !warnings.is_empty() {
        let lost = "programs and web tools may reach unintended hosts";
        checks.push(DoctorCheck::degraded("network", warnings.join("; "), lost, "fix `network.allow`"));
    }
    checks.push(offered(&settings));
    checks.push(match settings.workspace() {
        Ok(_) => DoctorCheck::ok("workspace", project.display().to_string()),
        Err(failure) => {
            let lost = "no file of the project is accessible";
            DoctorCheck::missing(
                "workspace",
                failure.error.message,
                lost,
                "fix `workspace:` in the configuration",
            )
        }
    });
}

fn joined_lines(message: &str) -> String {
    message.replace(":\n", ": ").replace('\n', "; ")
}

fn offered(settings: &Settings) -> DoctorCheck {
    let caller = CallerOptions { workspace: None, role: None, skill: None, session: None };
    let fault = |message: String, hint: String| {
        DoctorCheck::missing("policy", joined_lines(&message), "no call runs", hint)
    };
    let facts = match project_context::catalogue() {
        Ok(catalogue) => project_context::facts(&catalogue),
        Err(failure) => return fault(failure.error.message, failure.error.suggestion),
    };
    let policy = match settings.policy(&caller, &facts) {
        Ok(policy) => policy,
        Err(failure) => return fault(failure.error.message, failure.error.suggestion),
    };
    let tools = facts.iter().filter(|tool| policy.offers(tool)).count();
    match &policy.role {
        Ok(role) if tools > 0 => {
            DoctorCheck::ok("policy", format!("role {}, {tools} tools offered", role.name()))
        }
        Ok(role) => {
            let found = format!("role {}, no tools offered", role.name());
            DoctorCheck::degraded(
                "policy",
                found,
                "agents get an empty list of tools",
                "`vambrace explain` shows which layer denies them",
            )
        }
        Err(why) => DoctorCheck::degraded(
            "policy",
            format!("no role: {why}"),
            "agents get an empty list of tools",
            "run `vambrace init` or `vambrace trust`",
        ),
    }
}

fn masked() -> DoctorCheck {
    let count = system::environment()
        .iter()
        .filter(|(name, value)| !secrets_of(name, value, MIN_KNOWN_VALUE_BYTES).is_empty())
        .count();
    match vambrace_redact::RuleSet::built_in() {
        Ok(rules) => {
            let rules = rules.count();
            DoctorCheck::ok(
                "redactor",
                format!("{rules} rules; {count} secrets of this environment are redacted"),
            )
        }
        Err(fault) => DoctorCheck::missing("redactor", fault.to_string(), "no call runs", "please report it"),
    }
}

fn connected(project: &Path) -> DoctorCheck {
    let clients = clients::all(project, Path::new("vambrace"));
    let found: Vec<&str> = clients.iter().filter(|client| client.exists).map(|client| client.name).collect();
    let ours: Vec<&str> = clients
        .iter()
        .filter(|client| client.exists && client.names_us())
        .map(|client| client.name)
        .collect();
    if !ours.is_empty() {
        return DoctorCheck::ok("clients", format!("{} configured", ours.join(", ")));
    }
    if found.is_empty() {
        return DoctorCheck::ok("clients", "none found; `vambrace init` prints the configuration to paste");
    }
    let shown = format!("{} found, vambrace is not configured", found.join(", "));
    DoctorCheck::degraded(
        "clients",
        shown,
        "they do not start `vambrace mcp`",
        "`vambrace init` prints the configuration to paste",
    )
}

#[expect(clippy::disallowed_methods, reason = "reads a file of procfs")]
fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if text.is_empty() { "Linux".to_owned() } else { format!("Linux {}", text.trim()) }
}
