//! Recognises commands that install packages, and tells the locked form from the others. Routing, not a boundary: a form
//! that is missed here still runs in the sandbox, without network.

mod value_options;

use value_options::value_options;

use crate::package_manager::PackageManager;

/// Maximum number of words that are looked at.
const MAX_WORDS: usize = 64;

/// How a command installs packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallForm {
    /// What a lockfile pins: the form of `install_dependencies`.
    Locked(PackageManager),
    /// Anything else: named packages, newer versions, programs that are downloaded and run.
    Refused {
        /// The command in short, as `npm install`.
        command: String,
        /// The manager, if `install_dependencies` has it.
        manager: Option<PackageManager>,
        /// What to do instead.
        suggestion: String,
    },
}

/// A command taken apart.
struct InstallCommand<'a> {
    program: &'a str,
    /// Words that are no options and no values of options.
    words: Vec<&'a str>,
    options: Vec<&'a str>,
}

/// How a command installs packages; `None` if it does not, as far as can be seen.
#[must_use]
pub fn install_form(argv: &[String]) -> Option<InstallForm> {
    let command = InstallCommand::parse(argv)?;
    let (manager, verdict) = command.judge()?;
    match (verdict, manager) {
        (Locked, Some(manager)) => Some(InstallForm::Locked(manager)),
        (Locked, None) => None,
        (Refused, manager) => Some(InstallForm::Refused {
            command: command.short(),
            manager,
            suggestion: suggestion(&command, manager),
        }),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstallVerdict {
    Locked,
    Refused,
}

use InstallVerdict::{Locked, Refused};

impl<'a> InstallCommand<'a> {
    fn parse(argv: &'a [String]) -> Option<Self> {
        let mut words = argv.iter().map(String::as_str).take(MAX_WORDS);
        let mut program = base_name(words.next()?);
        let mut rest: Vec<&str> = words.collect();
        if is_python(program) {
            let module = rest.iter().position(|word| *word == "-m")?;
            program = rest.get(module + 1).copied()?;
            rest.drain(..module + 2);
        }
        let program = plain_pip(program);
        let mut command = Self { program, words: Vec::new(), options: Vec::new() };
        let mut rest = rest.into_iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                command.words.extend(rest);
                break;
            }
            if word.starts_with('-') {
                command.options.push(word);
                if value_options(program).contains(&word) {
                    rest.next();
                }
            } else {
                command.words.push(word);
            }
        }
        Some(command)
    }

    fn word(&self, at: usize) -> &str {
        self.words.get(at).copied().unwrap_or_default()
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|found| found.split('=').next() == Some(option))
    }

    fn locked_if(&self, condition: bool) -> Option<InstallVerdict> {
        Some(if condition { Locked } else { Refused })
    }

    fn judge(&self) -> Option<(Option<PackageManager>, InstallVerdict)> {
        use PackageManager::{Bundler, Cargo, Go, Npm, Pip, Pnpm, Poetry, Uv, Yarn};
        let none = None;
        let (manager, verdict) = match self.program {
            "npm" => (Some(Npm), self.npm()),
            "npx" => (
                Some(Npm),
                (!self.has("--no-install") && !self.has("--no") && !self.words.is_empty()).then_some(Refused),
            ),
            "pnpm" => (Some(Pnpm), self.pnpm()),
            "pnpx" => (Some(Pnpm), Some(Refused)),
            "yarn" | "yarnpkg" => (Some(Yarn), self.yarn()),
            "pip" => (Some(Pip), self.pip()),
            "pipx" => (
                none,
                matches!(self.word(0), "install" | "run" | "inject" | "upgrade" | "upgrade-all")
                    .then_some(Refused),
            ),
            "uv" => (Some(Uv), self.uv()),
            "uvx" => (Some(Uv), Some(Refused)),
            "poetry" => (Some(Poetry), self.poetry()),
            "pipenv" => (none, matches!(self.word(0), "install" | "update" | "upgrade").then_some(Refused)),
            "cargo" => (Some(Cargo), self.cargo()),
            "go" => (Some(Go), self.go()),
            "gem" => (Some(Bundler), matches!(self.word(0), "install" | "i" | "update").then_some(Refused)),
            "bundle" | "bundler" => (Some(Bundler), self.bundle()),
            "bun" | "bunx" | "deno" | "conda" | "mamba" | "composer" | "pip-sync" => (none, self.other()),
            "apt" | "apt-get" | "apk" | "dnf" | "yum" | "zypper" | "brew" | "snap" => (
                none,
                matches!(self.word(0), "install" | "add" | "upgrade" | "dist-upgrade" | "reinstall")
                    .then_some(Refused),
            ),
            "pacman" => (none, self.options.iter().any(|option| option.starts_with("-S")).then_some(Refused)),
            _ => return None,
        };
        Some((manager, verdict?))
    }

    fn npm(&self) -> Option<InstallVerdict> {
        match self.word(0) {
            "ci" | "clean-install" | "ic" | "install-clean" | "cit" | "clean-install-test" => Some(Locked),
            "install" | "i" | "in" | "ins" | "inst" | "insta" | "instal" | "isnt" | "isnta" | "isntal"
            | "isntall" | "add" | "install-test" | "it" | "update" | "up" | "upgrade" | "udpate" => {
                Some(Refused)
            }
            "exec" | "x" => (!self.has("--no") && !self.has("--no-install")).then_some(Refused),
            "create" | "init" | "innit" | "link" | "ln" => (self.words.len() > 1).then_some(Refused),
            "audit" => (self.word(1) == "fix").then_some(Refused),
            _ => None,
        }
    }

    fn pnpm(&self) -> Option<InstallVerdict> {
        match self.word(0) {
            "install" | "i" => self.locked_if(self.has("--frozen-lockfile") && self.words.len() == 1),
            "add" | "update" | "up" | "upgrade" | "dlx" | "create" | "import" => Some(Refused),
            _ => None,
        }
    }

    fn yarn(&self) -> Option<InstallVerdict> {
        let asks = ["--version", "-v", "--help", "-h"].iter().any(|option| self.has(option));
        match self.word(0) {
            "" if asks => None,
            "" | "install" => self.locked_if(self.has("--frozen-lockfile") || self.has("--immutable")),
            "add" | "up" | "upgrade" | "upgrade-interactive" | "dlx" | "create" => Some(Refused),
            "global" => (self.word(1) == "add").then_some(Refused),
            "set" => (self.word(1) == "version").then_some(Refused),
            _ => None,
        }
    }

    fn pip(&self) -> Option<InstallVerdict> {
        let from_file = self.has("-r") || self.has("--requirement");
        match self.word(0) {
            "install" => self.locked_if(self.has("--require-hashes") && from_file && self.words.len() == 1),
            "download" | "wheel" => Some(Refused),
            _ => None,
        }
    }

    fn uv(&self) -> Option<InstallVerdict> {
        match (self.word(0), self.word(1)) {
            ("sync", _) => self.locked_if(self.has("--locked") || self.has("--frozen")),
            ("add", _)
            | ("pip", "install" | "sync")
            | ("tool", "install" | "run" | "upgrade")
            | ("python", "install") => Some(Refused),
            ("run", _) if self.has("--with") || self.has("--with-requirements") => Some(Refused),
            _ => None,
        }
    }

    fn poetry(&self) -> Option<InstallVerdict> {
        match self.word(0) {
            "install" | "sync" => Some(Locked),
            "add" | "update" | "self" => Some(Refused),
            _ => None,
        }
    }

    fn cargo(&self) -> Option<InstallVerdict> {
        let first = if self.word(0).starts_with('+') { self.word(1) } else { self.word(0) };
        match first {
            "fetch" => self.locked_if(self.has("--locked") || self.has("--frozen")),
            "add" | "install" | "update" | "binstall" => Some(Refused),
            _ => None,
        }
    }

    fn go(&self) -> Option<InstallVerdict> {
        match (self.word(0), self.word(1)) {
            ("mod", "download") => self.locked_if(self.words.len() == 2),
            ("get", _) => Some(Refused),
            // `go install ./cmd` builds the project; with a version it downloads.
            ("install" | "run", _) => {
                self.words.iter().skip(1).any(|word| word.contains('@')).then_some(Refused)
            }
            _ => None,
        }
    }

    fn bundle(&self) -> Option<InstallVerdict> {
        match self.word(0) {
            "" if self.options.is_empty() => Some(Refused),
            "install" => self.locked_if(self.has("--frozen") || self.has("--deployment")),
            "add" | "update" | "inject" => Some(Refused),
            _ => None,
        }
    }

    fn other(&self) -> Option<InstallVerdict> {
        let installs = matches!(
            self.word(0),
            "install" | "i" | "add" | "update" | "x" | "require" | "create" | "upgrade"
        );
        (installs || matches!(self.program, "bunx" | "pip-sync")).then_some(Refused)
    }

    /// The program and its subcommand.
    fn short(&self) -> String {
        let words =
            if matches!((self.program, self.word(0)), ("uv", "pip" | "tool" | "python") | ("yarn", "global"))
            {
                2
            } else {
                1
            };
        let subcommand = self.words.iter().take(words).copied();
        let short: Vec<&str> = std::iter::once(self.program).chain(subcommand).collect();
        crate::bounded_text::clip(&short.join(" "), 80)
    }
}

fn suggestion(command: &InstallCommand<'_>, manager: Option<PackageManager>) -> String {
    let system = ["apt", "apt-get", "apk", "dnf", "yum", "zypper", "pacman", "snap", "brew"]
        .contains(&command.program);
    let Some(manager) = manager else {
        return if system {
            "system packages are installed by the user".to_owned()
        } else {
            "use install_dependencies with a package manager that it supports, from a lockfile".to_owned()
        };
    };
    let (name, form) = (manager.as_str(), locked_form(manager));
    let manifest = manifest(manager);
    format!(
        "call install_dependencies with manager `{name}`: it runs `{form}`; for a new package change {manifest} and ask the user to update the lockfile"
    )
}

fn locked_form(manager: PackageManager) -> &'static str {
    match manager {
        PackageManager::Npm => "npm ci",
        PackageManager::Pnpm => "pnpm install --frozen-lockfile",
        PackageManager::Yarn => "yarn install --frozen-lockfile (--immutable from yarn 2)",
        PackageManager::Poetry => "poetry install",
        PackageManager::Uv => "uv sync --locked",
        PackageManager::Pip => "pip install --require-hashes -r requirements.txt",
        PackageManager::Cargo => "cargo fetch --locked",
        PackageManager::Go => "go mod download",
        PackageManager::Bundler => "bundle install with BUNDLE_FROZEN=true",
    }
}

fn manifest(manager: PackageManager) -> &'static str {
    match manager {
        PackageManager::Npm | PackageManager::Pnpm | PackageManager::Yarn => "package.json",
        PackageManager::Poetry | PackageManager::Uv => "pyproject.toml",
        PackageManager::Pip => "the requirements",
        PackageManager::Cargo => "Cargo.toml",
        PackageManager::Go => "go.mod",
        PackageManager::Bundler => "the Gemfile",
    }
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_python(program: &str) -> bool {
    let version = program.strip_prefix("python").or_else(|| program.strip_prefix("pypy"));
    version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
        || program == "py"
}

/// `pip3` and `pip3.11` are pip.
fn plain_pip(program: &str) -> &str {
    let version = program.strip_prefix("pip");
    let is_pip =
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    if is_pip { "pip" } else { program }
}

#[cfg(test)]
mod tests;
