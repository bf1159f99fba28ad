//! Commands that install packages, and commands that do not.

use super::*;
use proptest::prelude::*;

fn form(command: &str) -> Option<InstallForm> {
    install_form(&command.split(' ').map(str::to_owned).collect::<Vec<_>>())
}

// T16
#[test]
fn installs_that_no_lockfile_pins_are_refused_with_the_allowed_form() {
    let check = |command: &str, expected: &str| match form(command) {
        Some(InstallForm::Refused { command: short, suggestion, .. }) => {
            assert_eq!(short, expected, "{command}");
            assert!(!suggestion.is_empty());
        }
        other => panic!("{command}: {other:?}"),
    };
    check("npm install left-pad", "npm install");
    check("npm i", "npm i");
    check("npm --prefix web install x", "npm install");
    check("/usr/bin/npm add x", "npm add");
    check("npm exec cowsay", "npm exec");
    check("npx cowsay hello", "npx cowsay");
    check("pnpm add x", "pnpm add");
    check("pnpm install", "pnpm install");
    check("pnpm install --frozen-lockfile x", "pnpm install");
    check("yarn", "yarn");
    check("yarn add x", "yarn add");
    check("yarn dlx x", "yarn dlx");
    check("pip install requests", "pip install");
    check("pip3.11 install -r requirements.txt", "pip install");
    check("python3 -m pip install requests", "pip install");
    check("python3.12 -I -m pip install requests", "pip install");
    check("pip --proxy x install y", "pip install");
    check("pip install --require-hashes -r requirements.txt extra", "pip install");
    check("pipx run x", "pipx run");
    check("uv add x", "uv add");
    check("uv pip install x", "uv pip install");
    check("uvx ruff", "uvx ruff");
    check("uv sync", "uv sync");
    check("poetry add x", "poetry add");
    check("cargo add serde", "cargo add");
    check("cargo +nightly install ripgrep --locked", "cargo +nightly");
    check("cargo fetch", "cargo fetch");
    check("go get example.com/x", "go get");
    check("go install example.com/x@latest", "go install");
    check("gem install rails", "gem install");
    check("bundle install", "bundle install");
    check("bundle", "bundle");
    check("apt-get -y install curl", "apt-get install");
    check("bun add x", "bun add");
}

// T16
#[test]
fn locked_forms_are_recognised_and_other_commands_are_not_installs() {
    let check = |command: &str, manager: PackageManager| {
        assert_eq!(form(command), Some(InstallForm::Locked(manager)), "{command}");
    };
    check("npm ci --ignore-scripts", PackageManager::Npm);
    check("pnpm install --frozen-lockfile", PackageManager::Pnpm);
    check("yarn install --immutable", PackageManager::Yarn);
    check("pip install --require-hashes -r requirements.txt", PackageManager::Pip);
    check("uv sync --locked", PackageManager::Uv);
    check("poetry install --no-root", PackageManager::Poetry);
    check("cargo fetch --locked", PackageManager::Cargo);
    check("go mod download", PackageManager::Go);
    check("bundle install --deployment", PackageManager::Bundler);
    for command in [
        "npm test",
        "npm run install",
        "npx --no-install eslint",
        "yarn --version",
        "yarn test",
        "pip list",
        "python3 x.py",
        "python3 -m pytest",
        "cargo build",
        "go install ./cmd/x",
        "go test ./...",
        "poetry run pytest",
        "bundle exec rake",
        "ls",
    ] {
        assert_eq!(form(command), None, "{command}");
    }
    assert_eq!(install_form(&[]), None);
}

#[test]
fn the_suggestion_names_the_allowed_form() {
    let Some(InstallForm::Refused { suggestion, manager, .. }) = form("npm install x") else { panic!() };
    assert_eq!(manager, Some(PackageManager::Npm));
    assert_eq!(
        suggestion,
        "call install_dependencies with manager `npm`: it runs `npm ci`; for a new package change package.json and ask the user to update the lockfile"
    );
}

proptest! {
    #[test]
    fn any_command_is_judged_without_panic(words in proptest::collection::vec("(npm|pip|uv|-m|--|install|-r|python3|\\PC{0,4}|yarn|bundle)", 0..80)) {
        let _ = install_form(&words);
    }
}
