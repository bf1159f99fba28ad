//! Checks openat2(2) and the project: configuration, trust, role, tools, redactor, MCP clients.

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use vambrace_redact::{MIN_KNOWN_VALUE_BYTES, secrets_of};

use super::check::DoctorCheck;
use crate::catalogue::built_in_tools;
use crate::config_files::{ConfigFiles, config_warnings};
use crate::host::Host;
use crate::paths::Paths;
use crate::settings::Settings;
use crate::setup::mcp_clients;
use crate::system;
use crate::trust::ProjectTrust;

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

pub(super) async fn examine(
    paths: &Paths,
    project: &Path,
    host: Option<&Host>,
    checks: &mut Vec<DoctorCheck>,
) {
    if let Some(host) = host {
        configured(project, host, checks).await;
    }
    checks.push(masked());
    checks.push(connected(paths, project));
}

async fn configured(project: &Path, host: &Host, checks: &mut Vec<DoctorCheck>) {
    let settings = match Settings::load(host, project).await {
        Ok(settings) => settings,
        Err(error) => {
            let lost = "no call runs with an invalid configuration";
            let message = joined_lines(&error.error.message);
            return checks.push(DoctorCheck::missing("configuration", message, lost, error.error.suggestion));
        }
    };
    let names: Vec<String> = ConfigFiles::read(host.paths(), &settings.files, false)
        .map(|files| files.list().iter().map(|file| file.name.clone()).collect())
        .unwrap_or_default();
    let files = if names.is_empty() { "no files".to_owned() } else { names.join(", ") };
    let shown = format!("{files}; project: {}", settings.trust.label());
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
    let warnings = config_warnings(&settings.effective);
    if !warnings.is_empty() {
        let lost = "programs and web tools may reach unintended hosts";
        checks.push(DoctorCheck::degraded("network", warnings.join("; "), lost, "fix `network.allow`"));
    }
    checks.push(offered(&settings));
    checks.push(match settings.workspace() {
        Ok(_) => DoctorCheck::ok("workspace", project.display().to_string()),
        Err(error) => {
            let lost = "no file of the project is accessible";
            DoctorCheck::missing(
                "workspace",
                error.error.message,
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
    let fault = |message: String, hint: String| {
        DoctorCheck::missing("policy", joined_lines(&message), "no call runs", hint)
    };
    let facts = match built_in_tools() {
        Ok(facts) => facts,
        Err(error) => return fault(error.error.message, error.error.suggestion),
    };
    let policy = match settings.policy(None, None, &facts) {
        Ok(policy) => policy,
        Err(error) => return fault(error.error.message, error.error.suggestion),
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

fn connected(paths: &Paths, project: &Path) -> DoctorCheck {
    let clients = mcp_clients(paths, project, Path::new("vambrace"));
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
