//! `package.json`: scripts, dependencies, the package manager. A test script that is one plain command is run without npm
//! and without a shell.

use serde_json::Value;

use crate::project_view::{ProjectView, ancestors, join};

/// What npm writes when there are no tests.
const NO_TESTS: &str = "no test specified";

/// A `package.json`.
#[derive(Debug, Clone)]
pub(crate) struct PackageJson {
    json: Value,
}

impl PackageJson {
    pub(crate) fn read(view: &dyn ProjectView, directory: &str) -> Option<Self> {
        let json: Value = serde_json::from_str(&view.read(&join(directory, "package.json"))?).ok()?;
        json.is_object().then_some(Self { json })
    }

    /// A script, if it does something.
    pub(crate) fn script(&self, name: &str) -> Option<&str> {
        let script = self.json.get("scripts")?.get(name)?.as_str()?.trim();
        (!script.is_empty() && !script.contains(NO_TESTS)).then_some(script)
    }

    /// Whether a package is a direct dependency.
    pub(crate) fn depends_on(&self, package: &str) -> bool {
        ["dependencies", "devDependencies", "optionalDependencies"]
            .iter()
            .any(|kind| self.json.get(kind).and_then(|list| list.get(package)).is_some())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.json.get(key).is_some()
    }

    /// The name before `@` in `packageManager`.
    pub(crate) fn package_manager(&self) -> Option<&str> {
        self.json.get("packageManager")?.as_str()?.split('@').next()
    }
}

/// The package managers of Node.js that run scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptRunner {
    Npm,
    Pnpm,
    Yarn,
}

impl ScriptRunner {
    /// By `packageManager`, else by the nearest lockfile.
    pub(crate) fn of(view: &dyn ProjectView, directory: &str) -> Self {
        for directory in ancestors(directory) {
            match PackageJson::read(view, directory).as_ref().and_then(PackageJson::package_manager) {
                Some("pnpm") => return Self::Pnpm,
                Some("yarn") => return Self::Yarn,
                Some("npm") => return Self::Npm,
                _ => {}
            }
            let has = |name: &str| view.exists(&join(directory, name));
            if has("pnpm-lock.yaml") {
                return Self::Pnpm;
            }
            if has("yarn.lock") {
                return Self::Yarn;
            }
            if has("package-lock.json") {
                return Self::Npm;
            }
        }
        Self::Npm
    }

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pnpm => "pnpm",
            Self::Yarn => "yarn",
        }
    }

    /// The command that runs a script; npm needs a separator before the script's arguments.
    pub(crate) fn run_script(self, script: &str) -> Vec<String> {
        let separator = (self == Self::Npm).then_some("--");
        [self.program(), "run", script].into_iter().chain(separator).map(str::to_owned).collect()
    }

    /// The command that runs a program of a dependency and never downloads one.
    pub(crate) fn run_program(self, program: &str) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Npm => &["npx", "--no-install"],
            Self::Pnpm => &["pnpm", "exec"],
            Self::Yarn => &["yarn", "run"],
        };
        words.iter().copied().chain([program]).map(str::to_owned).collect()
    }
}

/// A script that is one plain command: variables, a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ScriptCommand {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) words: Vec<String>,
}

impl ScriptCommand {
    /// The command, unless a shell would do more than split it at spaces.
    pub(crate) fn parse(script: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || " _./@:+-,=".contains(c);
        if script.len() > 1000 || !script.chars().all(plain) {
            return None;
        }
        let mut command = Self::default();
        for word in script.split(' ').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) if command.words.is_empty() && is_variable(name) => {
                    command.environment.push((name.to_owned(), value.to_owned()));
                }
                _ if command.words.is_empty() && word == "cross-env" => {}
                _ => command.words.push(word.to_owned()),
            }
        }
        (!command.words.is_empty()).then_some(command)
    }

    pub(crate) fn program(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The arguments without those for which `dropped` holds; without file arguments if `files` is false. A word after an
    /// option may be its value and stays.
    pub(crate) fn arguments(&self, files: bool, dropped: &[&str]) -> Vec<String> {
        let mut kept = Vec::new();
        let mut after_option = false;
        for word in self.words.iter().skip(1) {
            let file = !word.starts_with('-') && !after_option;
            after_option = word.starts_with('-') && !word.contains('=');
            if !dropped.contains(&word.as_str()) && (files || !file) {
                kept.push(word.clone());
            }
        }
        kept
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_scripts_are_taken_apart() {
        let command = ScriptCommand::parse("cross-env NODE_ENV=test jest --config x.js  src --ci").unwrap();
        assert_eq!(command.environment, [("NODE_ENV".to_owned(), "test".to_owned())]);
        assert_eq!(command.program(), "jest");
        assert_eq!(command.arguments(true, &[]), ["--config", "x.js", "src", "--ci"]);
        assert_eq!(command.arguments(false, &["--ci"]), ["--config", "x.js"]);
        for script in
            ["jest && rm x", "jest $X", "jest 'a b'", "jest | cat", "a;b", "jest > x", "`x`", "", "A=1"]
        {
            assert_eq!(ScriptCommand::parse(script), None, "{script}");
        }
    }
}
