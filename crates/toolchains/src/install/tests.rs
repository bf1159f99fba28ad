//! Plans of every manager, and what they refuse.

use super::*;
use crate::project_view::tests::MemoryProject;

#[track_caller]
fn plan(files: &[(&str, &str)], request: &InstallRequest<'_>) -> InstallPlan {
    plan_install(&MemoryProject::new(files.iter().copied()), request).unwrap()
}

fn allowed() -> InstallRequest<'static> {
    InstallRequest { scripts: InstallScripts::Allowed, ..InstallRequest::default() }
}

/// The commands of the steps with scripts off, then with scripts, and the hosts.
#[track_caller]
fn check(files: &[(&str, &str)], off: &[&str], on: &[&str], hosts: &[&str]) {
    let commands = |request: &InstallRequest<'_>| -> Vec<String> {
        plan(files, request).steps.iter().map(|step| step.argv.join(" ")).collect()
    };
    assert_eq!(commands(&InstallRequest::default()), off);
    assert_eq!(commands(&allowed()), on);
    let facts = plan(files, &InstallRequest::default()).facts;
    let names: Vec<&str> = facts.hosts.iter().map(|host| host.host.as_str()).collect();
    assert_eq!(names, hosts);
}

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../tests/fixtures/lock/", $name))
    };
}

fn variable<'a>(plan: &'a InstallPlan, name: &str) -> Option<&'a str> {
    let step = plan.steps.last().unwrap();
    step.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

// T16
#[test]
fn node_managers_install_from_the_lockfile_without_scripts() {
    check(
        &[("package-lock.json", fixture!("package-lock.json"))],
        &["npm ci --no-audit --no-fund --ignore-scripts"],
        &["npm ci --no-audit --no-fund"],
        &["registry.npmjs.org"],
    );
    check(
        &[("pnpm-lock.yaml", fixture!("pnpm-lock.yaml"))],
        &["pnpm install --frozen-lockfile --ignore-scripts --ignore-pnpmfile"],
        &["pnpm install --frozen-lockfile"],
        &["registry.npmjs.org"],
    );
    check(
        &[("yarn.lock", fixture!("yarn-v1.lock"))],
        &["yarn install --frozen-lockfile --non-interactive --ignore-scripts"],
        &["yarn install --frozen-lockfile --non-interactive"],
        &["registry.yarnpkg.com"],
    );
    check(
        &[
            ("yarn.lock", fixture!("yarn-berry.lock")),
            (".yarnrc.yml", "npmRegistryServer: https://npm.example.org\n"),
        ],
        &["yarn install --immutable --mode=skip-build"],
        &["yarn install --immutable"],
        &["npm.example.org"],
    );
    let berry = plan(&[("yarn.lock", fixture!("yarn-berry.lock"))], &InstallRequest::default());
    assert_eq!(
        (variable(&berry, "YARN_ENABLE_SCRIPTS"), variable(&berry, "YARN_IGNORE_PATH")),
        (Some("0"), Some("1"))
    );
    let own = plan(
        &[
            ("package-lock.json", "{\"lockfileVersion\":3}"),
            (".npmrc", "registry=https://npm.example.org/\n"),
        ],
        &InstallRequest::default(),
    );
    assert_eq!((own.facts.hosts.len(), own.facts.hosts[0].origin.as_str()), (1, ".npmrc"));
    // A shrinkwrap wins over the lockfile, as with npm.
    let both = [
        ("npm-shrinkwrap.json", "{\"lockfileVersion\":3}"),
        ("package-lock.json", "{\"lockfileVersion\":3}"),
    ];
    assert_eq!(plan(&both, &InstallRequest::default()).lockfile, "npm-shrinkwrap.json");
}

// T16
#[test]
fn python_managers_install_wheels_only() {
    check(
        &[("poetry.lock", fixture!("poetry.lock")), ("pyproject.toml", "")],
        &["poetry install --no-interaction --no-root"],
        &["poetry install --no-interaction"],
        &["files.pythonhosted.org", "pypi.example.org", "pypi.org"],
    );
    check(
        &[
            ("uv.lock", fixture!("uv.lock")),
            ("pyproject.toml", "[[tool.uv.index]]\nname='x'\nurl='https://i.example.org/simple'\n"),
        ],
        &["uv sync --locked --no-progress --no-build --no-install-workspace"],
        &["uv sync --locked --no-progress"],
        &["files.pythonhosted.org", "i.example.org", "pypi.org"],
    );
    check(
        &[("requirements.txt", fixture!("requirements.txt"))],
        &[
            "python3 -m venv .venv",
            ".venv/bin/python -m pip install --require-hashes --no-input --disable-pip-version-check --only-binary=:all: -r requirements.txt",
        ],
        &[
            "python3 -m venv .venv",
            ".venv/bin/python -m pip install --require-hashes --no-input --disable-pip-version-check -r requirements.txt",
        ],
        &["files.pythonhosted.org", "pypi.org"],
    );
    let files = [("requirements.txt", "requests==2.0\n")];
    let error = plan_install(&MemoryProject::new(files), &InstallRequest::default()).unwrap_err();
    assert!(matches!(error, InstallError::Requirements(_)));
    assert!(error.suggestion().contains("--generate-hashes"), "{}", error.suggestion());
}

// T16
#[test]
fn cargo_go_and_bundler_fetch_what_is_locked() {
    let cargo = "version = 4\n[[package]]\nname='a'\nversion='1'\nsource='git+https://github.com/a/a#0123'\n";
    check(
        &[("Cargo.lock", cargo)],
        &["cargo fetch --locked"],
        &["cargo fetch --locked"],
        &["github.com", "index.crates.io", "static.crates.io"],
    );
    let go = [
        ("go.mod", "module x\nrequire (\n\ta v1 // indirect\n)\nreplace a => ../../a\n"),
        ("go.sum", "a v1 h1:x=\n"),
    ];
    check(&go, &["go mod download"], &["go mod download"], &["proxy.golang.org", "sum.golang.org"]);
    let found = plan(&go, &InstallRequest::default());
    assert_eq!(variable(&found, "GOPROXY"), Some("https://proxy.golang.org"));
    assert_eq!((variable(&found, "GOVCS"), variable(&found, "GOTOOLCHAIN")), (Some("*:off"), Some("local")));
    assert_eq!(found.facts.problems[0].kind.as_str(), "outside_service");
    let proxy = InstallRequest { go_proxy: Some("https://goproxy.example.org"), ..InstallRequest::default() };
    assert_eq!(plan(&go, &proxy).facts.hosts[0].host, "goproxy.example.org");
    check(
        &[("Gemfile.lock", fixture!("Gemfile.lock")), ("Gemfile", "")],
        &["bundle cache --no-install"],
        &["bundle install"],
        &["github.com", "index.rubygems.org", "rubygems.org"],
    );
}

// T16
#[test]
fn missing_lockfiles_are_errors_with_a_suggestion() {
    let view = MemoryProject::of_names(&["package.json", "web/x"]);
    let error = plan_install(&view, &InstallRequest::default()).unwrap_err();
    assert_eq!(error, InstallError::NothingFound);
    let npm = InstallRequest { manager: Some(PackageManager::Npm), ..InstallRequest::default() };
    let error = plan_install(&view, &npm).unwrap_err();
    assert_eq!(
        error.to_string(),
        "npm needs a lockfile, and there is no npm-shrinkwrap.json or package-lock.json"
    );
    assert_eq!(
        error.suggestion(),
        "ask the user to create and commit it with `npm install --package-lock-only`"
    );
    let call: CallError = error.into();
    assert_eq!(call.code, ErrorCode::FileNotFound);
    let empty = MemoryProject::new([("go.mod", "module x\nrequire a v1\n"), ("go.sum", "")]);
    assert_eq!(
        plan_install(&empty, &InstallRequest::default()),
        Err(InstallError::NoLockfile { manager: PackageManager::Go })
    );
    let broken = MemoryProject::new([("uv.lock", "= =")]);
    assert!(matches!(plan_install(&broken, &InstallRequest::default()), Err(InstallError::Unreadable(_))));
}

// T16
#[test]
fn the_manager_and_the_directory_are_found_or_asked_for() {
    let files = [("web/package-lock.json", "{\"lockfileVersion\":3}"), ("api/Cargo.lock", "version = 4\n")];
    let view = MemoryProject::new(files);
    let error = plan_install(&view, &InstallRequest::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "several lockfiles were found: api/Cargo.lock (cargo), web/package-lock.json (npm)"
    );
    let cargo = InstallRequest { manager: Some(PackageManager::Cargo), ..InstallRequest::default() };
    assert_eq!(plan_install(&view, &cargo).unwrap().steps[0].directory, "api");
    let web = InstallRequest { directory: Some("web"), ..InstallRequest::default() };
    assert_eq!(plan_install(&view, &web).unwrap().lockfile, "web/package-lock.json");
    for outside in ["../x", "/etc", "nothere"] {
        let request = InstallRequest { directory: Some(outside), ..InstallRequest::default() };
        assert!(matches!(plan_install(&view, &request), Err(InstallError::BadDirectory(_))), "{outside}");
    }
    // uv writes a requirements file beside its lockfile for others.
    let both = MemoryProject::new([("uv.lock", fixture!("uv.lock")), ("requirements.txt", "x\n")]);
    assert_eq!(plan_install(&both, &InstallRequest::default()).unwrap().manager, PackageManager::Uv);
}

#[test]
fn managers_are_named_and_misspelled_ones_get_a_suggestion() {
    for manager in PackageManager::ALL {
        assert_eq!(PackageManager::from_name(manager.as_str()), Ok(manager));
    }
    assert_eq!(PackageManager::from_name("nmp").unwrap_err().suggestion, "did you mean `npm`?");
    assert!(
        PackageManager::from_name("maven-central-nonsense").unwrap_err().suggestion.starts_with("use one of")
    );
}

#[test]
fn code_of_the_repository_is_reported() {
    let kinds = |files: &[(&str, &str)], request: &InstallRequest<'_>| -> Vec<String> {
        plan(files, request)
            .facts
            .problems
            .iter()
            .map(|problem| format!("{} {}", problem.kind.as_str(), problem.subject))
            .collect()
    };
    let pnpm = [
        ("pnpm-lock.yaml", fixture!("pnpm-lock.yaml")),
        (".pnpmfile.cjs", ""),
        ("pnpm-workspace.yaml", "configDependencies:\n  a: 1\n"),
    ];
    assert_eq!(kinds(&pnpm, &InstallRequest::default()), ["runs_code configDependencies"]);
    assert_eq!(kinds(&pnpm, &allowed()), ["runs_code configDependencies", "runs_code .pnpmfile.cjs"]);
    let cargo = [
        ("Cargo.lock", "version = 4\n"),
        ("rust-toolchain.toml", "[toolchain]\npath = './evil'\n"),
        (".cargo/config.toml", "[build]\nrustc = './evil'\n"),
    ];
    assert_eq!(
        kinds(&cargo, &InstallRequest::default()),
        ["runs_code build.rustc", "runs_code toolchain.path"]
    );
    let poetry = [("poetry.lock", ""), ("pyproject.toml", "[tool.poetry.requires-plugins]\nx = '1'\n")];
    assert_eq!(kinds(&poetry, &InstallRequest::default()), ["runs_code requires-plugins"]);
}
