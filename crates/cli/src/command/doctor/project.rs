//! The kernel's way of opening files, and the project: configuration, trust, role, tools, masked values, clients.

use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use vambrace_redact::{LEAST_VALUE, secrets_of};
use vambrace_store::SqliteStore;

use super::check::Check;
use crate::args::Seat;
use crate::command::init::clients;
use crate::desk::{self, Settings, Trust};
use crate::found::{self, told};
use crate::machine;

/// openat2 is what keeps every file operation inside the workspace.
pub(super) fn kernel(project: &Path) -> Check {
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
        Ok(_) => Check::ok("kernel", format!("{release}, openat2 works")),
        Err(errno) => Check::missing(
            "kernel",
            format!("{release}, openat2: {errno}"),
            "no file can be opened safely, so none is",
            "Linux 5.6 or newer is needed; a container's seccomp profile must let openat2 pass",
        ),
    }
}

pub(super) async fn look(project: &Path, store: Option<&SqliteStore>, checks: &mut Vec<Check>) {
    if let Some(store) = store {
        configured(project, store, checks).await;
    }
    checks.push(masked());
    checks.push(connected(project));
}

async fn configured(project: &Path, store: &SqliteStore, checks: &mut Vec<Check>) {
    let settings = match Settings::load(project, store).await {
        Ok(settings) => settings,
        Err(failure) => {
            let lost = "no call runs under a configuration that cannot be read";
            let message = one_line(&failure.error.message);
            return checks.push(Check::missing("configuration", message, lost, failure.error.suggestion));
        }
    };
    let names: Vec<String> =
        found::find(&settings.files, false).into_iter().flatten().map(|file| file.name).collect();
    let files = if names.is_empty() { "no file".to_owned() } else { names.join(", ") };
    let shown = format!("{files}; the project's own: {}", told(settings.trust));
    checks.push(match settings.trust {
        Trust::Trusted => Check::ok("configuration", shown),
        Trust::NoFiles => Check::degraded(
            "configuration",
            shown,
            "the project has no settings of its own",
            "`vambrace init`",
        ),
        Trust::Untrusted | Trust::Changed => {
            let lost = "the project's file can only narrow; its role is not in force";
            Check::degraded("configuration", shown, lost, "look at it, then `vambrace trust`")
        }
    });
    let notes = settings.effective.notes.len();
    if notes > 0 {
        let found = format!("{notes} values are set aside");
        checks.push(Check::degraded(
            "notes",
            found,
            "they do not count as written",
            "`vambrace policy check` tells which and why",
        ));
    }
    let warnings = found::warnings(&settings.effective);
    if !warnings.is_empty() {
        let lost = "programs and web tools reach hosts that nobody chose";
        checks.push(Check::degraded("network", warnings.join("; "), lost, "correct `network.allow`"));
    }
    checks.push(offered(&settings));
    checks.push(match settings.workspace() {
        Ok(_) => Check::ok("workspace", project.display().to_string()),
        Err(failure) => {
            let lost = "no file of the project can be read";
            Check::missing(
                "workspace",
                failure.error.message,
                lost,
                "correct `workspace:` in the configuration",
            )
        }
    });
}

fn one_line(message: &str) -> String {
    message.replace(":\n", ": ").replace('\n', "; ")
}

fn offered(settings: &Settings) -> Check {
    let seat = Seat { workspace: None, role: None, skill: None, session: None };
    let fault =
        |message: String, hint: String| Check::missing("policy", one_line(&message), "no call runs", hint);
    let facts = match desk::catalogue() {
        Ok(catalogue) => desk::facts(&catalogue),
        Err(failure) => return fault(failure.error.message, failure.error.suggestion),
    };
    let policy = match settings.policy(&seat, &facts) {
        Ok(policy) => policy,
        Err(failure) => return fault(failure.error.message, failure.error.suggestion),
    };
    let tools = facts.iter().filter(|tool| policy.offers(tool)).count();
    match &policy.role {
        Ok(role) if tools > 0 => Check::ok("policy", format!("role {}, {tools} tools offered", role.name())),
        Ok(role) => {
            let found = format!("role {}, no tools offered", role.name());
            Check::degraded(
                "policy",
                found,
                "agents get an empty list of tools",
                "`vambrace explain` tells which layer refuses",
            )
        }
        Err(why) => Check::degraded(
            "policy",
            format!("no role: {why}"),
            "agents get an empty list of tools",
            "`vambrace init` or `vambrace trust`",
        ),
    }
}

fn masked() -> Check {
    let count = machine::environment()
        .iter()
        .filter(|(name, value)| !secrets_of(name, value, LEAST_VALUE).is_empty())
        .count();
    match vambrace_redact::Rules::built_in() {
        Ok(rules) => {
            let rules = rules.count();
            Check::ok(
                "redactor",
                format!("{count} values of this environment are masked, and what {rules} rules find"),
            )
        }
        Err(fault) => Check::missing("redactor", fault.to_string(), "no call runs", "please report it"),
    }
}

fn connected(project: &Path) -> Check {
    let clients = clients::all(project, Path::new("vambrace"));
    let found: Vec<&str> = clients.iter().filter(|client| client.exists).map(|client| client.name).collect();
    let ours: Vec<&str> = clients
        .iter()
        .filter(|client| client.exists && client.names_us())
        .map(|client| client.name)
        .collect();
    if !ours.is_empty() {
        return Check::ok("clients", format!("{} name vambrace", ours.join(", ")));
    }
    if found.is_empty() {
        return Check::ok("clients", "none found here; `vambrace init` prints what to paste into one");
    }
    let shown = format!("{} found, none names vambrace", found.join(", "));
    Check::degraded(
        "clients",
        shown,
        "they do not start `vambrace mcp` yet",
        "`vambrace init` prints what to paste",
    )
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if text.is_empty() { "Linux".to_owned() } else { format!("Linux {}", text.trim()) }
}
