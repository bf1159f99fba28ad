//! cargo, go and bundler.

use super::{InstallDraft, InstallError, InstallSite};
use crate::lockfile::{LockfileProblemKind, bundler as bundler_lock, cargo as cargo_lock, go as go_lock};
use crate::package_manager::PackageManager;
use crate::project_view::{ancestors, join};

/// The index and the archives of crates.io.
const CRATES_IO: &[&str] = &["index.crates.io", "static.crates.io"];
/// The public module proxy of go.
const GO_PROXY: &str = "https://proxy.golang.org";
const GO_CHECKSUMS: &str = "sum.golang.org";
const RUBYGEMS: &[&str] = &["rubygems.org", "index.rubygems.org"];

/// `cargo fetch` downloads and runs no code of packages; build scripts run when they are built.
pub(super) fn cargo(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    cargo_lock::read(&site.lockfile_text()?, site.lockfile, &mut draft.collector)?;
    // Cargo reads the settings of every directory above, too.
    for directory in ancestors(site.directory) {
        for name in [".cargo/config.toml", ".cargo/config"] {
            let path = join(directory, name);
            if let Some(text) = site.view.read(&path) {
                cargo_lock::read_config(&text, &path, &mut draft.collector);
            }
        }
        if site.view.read(&join(directory, "rust-toolchain.toml")).is_some_and(|text| custom_toolchain(&text))
        {
            draft.collector.file("rust-toolchain.toml");
            draft.collector.problem(
                LockfileProblemKind::RunsCode,
                "toolchain.path",
                "a compiler of the repository runs",
            );
        }
    }
    for host in CRATES_IO {
        draft.collector.default_host(host);
    }
    let mut step = site.command("cargo", &["fetch", "--locked"]);
    // Empty values override wrappers of the settings.
    step.set("RUSTC_WRAPPER", "").set("RUSTC_WORKSPACE_WRAPPER", "");
    step.set("CARGO_NET_GIT_FETCH_WITH_CLI", "false")
        .set("CARGO_TERM_COLOR", "never")
        .set("RUSTUP_AUTO_INSTALL", "0");
    draft.steps.push(step);
    Ok(draft)
}

fn custom_toolchain(text: &str) -> bool {
    let toolchain = text.parse::<toml::Table>().ok();
    toolchain.and_then(|table| table.get("toolchain")?.get("path").cloned()).is_some()
}

pub(super) fn go(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    let sum = site.lockfile_text()?;
    go_lock::read_sum(&sum, site.lockfile, &mut draft.collector)?;
    let go_mod = site.read("go.mod").unwrap_or_default();
    if sum.trim().is_empty() && go_lock::has_requirements(&go_mod) {
        return Err(InstallError::NoLockfile { manager: PackageManager::Go });
    }
    go_lock::read_mod(&go_mod, &join(site.directory, "go.mod"), &mut draft.collector);
    let proxy = site.request.go_proxy.unwrap_or(GO_PROXY);
    match site.request.go_proxy {
        Some(proxy) => {
            draft.collector.file("configuration");
            draft.collector.url(proxy, "GOPROXY");
        }
        None => draft.collector.default_host("proxy.golang.org"),
    }
    draft.collector.default_host(GO_CHECKSUMS);
    let mut step = site.command("go", &["mod", "download"]);
    // Only the proxy: no version control, no other toolchain, no settings of the user.
    step.set("GOPROXY", proxy).set("GOSUMDB", GO_CHECKSUMS).set("GOVCS", "*:off").set("GOENV", "off");
    step.set("GOTOOLCHAIN", "local").set("GOFLAGS", "-mod=readonly");
    for name in ["GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE"] {
        step.set(name, "");
    }
    draft.steps.push(step);
    if site.exists("vendor/modules.txt") {
        draft.notes.push("the project has a vendor directory: builds use it and need no download".to_owned());
    }
    Ok(draft)
}

pub(super) fn bundler(site: &InstallSite<'_>) -> Result<InstallDraft, InstallError> {
    let mut draft = InstallDraft::default();
    bundler_lock::read(&site.lockfile_text()?, site.lockfile, &mut draft.collector)?;
    for host in RUBYGEMS {
        draft.collector.default_host(host);
    }
    draft.notes.push("bundler evaluates the Gemfile, which is code of the repository".to_owned());
    let mut step = if site.scripts_off() {
        // Bundler has no option to leave extensions unbuilt.
        draft.notes.push(
            "gems are only downloaded to vendor/cache: installing them builds their extensions".to_owned(),
        );
        site.command("bundle", &["cache", "--no-install"])
    } else {
        site.command("bundle", &["install"])
    };
    step.set("BUNDLE_FROZEN", "true").set("BUNDLE_IGNORE_CONFIG", "1").set("BUNDLE_PATH", "vendor/bundle");
    draft.steps.push(step);
    Ok(draft)
}
