//! Runs the tests that touch the kernel a second time, as an ordinary user: root bypasses many checks that apply to a user
//! of the product.
//!
//! The existing test executables are used, nothing is built again. They, the binary and the sources are copied into a
//! directory that the user owns, because the project may be where only root has access.

use std::{
    fs,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    error::{TaskError, TaskResult, WithContext},
    program::{on_path, run_captured, run_counted},
    project::Project,
    skips::SkipLog,
    tally::{RunnerLines, Tally},
};

/// UID of `nobody`.
const USER: u32 = 65534;

/// A further group of that user, so that it can give files to a group other than its first.
const SECOND_GROUP: u32 = 65533;

/// The packages whose tests touch the kernel.
const PACKAGES: &[&str] = &[
    "vambrace-workspace",
    "vambrace-store",
    "vambrace-witness",
    "vambrace-sandbox",
    "vambrace-egress",
    "vambrace-tests",
];

/// Excluded tests, by a part of their name: those that need files of the first user, and long ones that are the same for
/// every user.
const EXCLUDED: &[(&str, &str)] = &[
    ("interop::", "Python and its packages may be in the first user's home directory"),
    ("attacks::every", "thousands of ledgers, the same for every user"),
    ("independent_verifier::two", "thousands of ledgers, the same for every user"),
    ("wording::", "help and messages, the same for every user"),
    ("sim::every_crash", "a simulated disk, the same for every user"),
];

/// Directories without sources.
const NOT_COPIED: &[&str] = &["target", ".tools", ".git"];

/// One test executable.
struct Executable {
    file: PathBuf,
    package: PathBuf,
}

/// Runs the tests; returns whether all passed, their counts and a line for each skipped one.
pub(crate) fn run(project: &Project) -> TaskResult<(bool, Tally, Vec<String>)> {
    if on_path("setpriv").is_none() {
        return Err(TaskError::new("the tests as an ordinary user need `setpriv`")
            .hint("install the package `util-linux`"));
    }
    let executables = executables(project)?;
    check_exclusions(&test_names(&executables)?)?;
    for (part, reason) in EXCLUDED {
        println!("excluded `{part}`: {reason}");
    }
    let dir = UserDir::new(project)?;
    let skips = SkipLog::new(&dir.path.join("tmp"))?;
    hand_over(skips.file())?;
    let mut total = Tally::default();
    let mut passed = true;
    let mut repeated = Vec::new();
    for executable in &executables {
        println!("{}", executable.file.file_name().unwrap_or_default().display());
        let mut command = dir.command(project, executable)?;
        skips.attach(&mut command);
        let (mut well, mut lines) = run_counted(&mut command)?;
        if !well && !lines.failed.is_empty() {
            well = repeat_failed(&mut dir.command(project, executable)?, &mut lines, &mut repeated)?;
        }
        passed &= well;
        total += lines.tally;
    }
    let mut skipped = skips.settle(&mut total)?;
    skipped.extend(repeated);
    if total.passed == 0 {
        return Err(TaskError::new("no test ran as an ordinary user"));
    }
    if passed {
        dir.remove();
    } else {
        println!("files of the tests are kept in `{}`", dir.path.display());
    }
    Ok((passed, total, skipped))
}

/// Runs failed tests once more, one at a time, as nextest does in the first pass: hundreds of sandboxes side by side can
/// exhaust what one user may have. Each test that passes now is named in the summary.
fn repeat_failed(
    command: &mut Command,
    first: &mut RunnerLines,
    repeated: &mut Vec<String>,
) -> TaskResult<bool> {
    command.args(["--test-threads", "1", "--exact"]).args(&first.failed);
    let (well, second) = run_counted(command)?;
    let passed = second.tally.passed.min(first.tally.failed);
    first.tally.failed -= passed;
    first.tally.passed += passed;
    let names = first.failed.iter().filter(|name| !second.failed.contains(name));
    repeated.extend(names.map(|name| format!("  passed when repeated: {name}")));
    Ok(well && first.tally.failed == 0)
}

/// The test executables of the packages, as cargo reports them; everything is built already.
fn executables(project: &Project) -> TaskResult<Vec<Executable>> {
    let said = run_captured(project.cargo("test").args([
        "--workspace",
        "--bins",
        "--tests",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]))?;
    Ok(said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| executable(project, &message))
        .collect())
}

fn executable(project: &Project, message: &Value) -> Option<Executable> {
    let test = message.pointer("/profile/test")?.as_bool()?;
    let file = PathBuf::from(message.get("executable")?.as_str()?);
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    let package = manifest.parent()?.strip_prefix(project.root()).ok()?.to_path_buf();
    let name = message.get("package_id")?.as_str()?;
    let wanted = PACKAGES.iter().any(|package| {
        // `path+file:///…/crates/store#vambrace-store@0.1.0`; cargo omits the name if it equals the directory's.
        name.contains(&format!("#{package}@")) || name.contains(&format!("/{package}#"))
    });
    (test && wanted).then_some(Executable { file, package })
}

/// The names of all tests, as the executables list them.
fn test_names(executables: &[Executable]) -> TaskResult<Vec<String>> {
    let mut names = Vec::new();
    for executable in executables {
        let listed = run_captured(Command::new(&executable.file).arg("--list"))?;
        names.extend(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned));
    }
    Ok(names)
}

/// An exclusion without a test is an error: its test was renamed and would run.
fn check_exclusions(names: &[String]) -> TaskResult<()> {
    match EXCLUDED.iter().find(|(part, _)| !names.iter().any(|name| name.contains(part))) {
        None => Ok(()),
        Some((part, _)) => {
            Err(TaskError::new(format!("no test has a name with `{part}`, which is excluded"))
                .hint("correct `EXCLUDED` in `xtask/src/second_user.rs`"))
        }
    }
}

/// A directory that the ordinary user owns.
struct UserDir {
    path: PathBuf,
}

impl UserDir {
    fn new(project: &Project) -> TaskResult<Self> {
        let path = PathBuf::from(format!("/tmp/vambrace-second-user-{}", std::process::id()));
        let dir = Self { path };
        for name in ["home", "tmp", "state", "bin/deps"] {
            let made = dir.path.join(name);
            fs::create_dir_all(&made).when(|| format!("cannot create `{}`", made.display()))?;
        }
        copy_tree(project.root(), &dir.path.join("source"))?;
        let binary = project.built("debug", "vambrace");
        copy(&binary, &dir.path.join("bin/vambrace"))?;
        hand_over(&dir.path)?;
        Ok(dir)
    }

    /// Runs an executable as the user, in the copy of its package, with a new environment.
    fn command(&self, project: &Project, executable: &Executable) -> TaskResult<Command> {
        let file = self.path.join("bin/deps").join(executable.file.file_name().unwrap_or_default());
        copy(&executable.file, &file)?;
        let package = self.path.join("source").join(&executable.package);
        let id = USER.to_string();
        // Only the tests of the binary have one that concerns users with more than one group; others expect none.
        let groups = if executable.package == Path::new("tests") {
            format!("--groups={id},{SECOND_GROUP}")
        } else {
            "--clear-groups".to_owned()
        };
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &id, "--regid", &id, &groups, "--"])
            .arg(&file)
            .arg("--quiet")
            .args(EXCLUDED.iter().flat_map(|(part, _)| ["--skip", part]))
            .current_dir(&package)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .env("HOME", self.path.join("home"))
            .env("TMPDIR", self.path.join("tmp"))
            .env("VAMBRACE_HOME", self.path.join("state"))
            .env("VAMBRACE_BIN", self.path.join("bin/vambrace"))
            .env("VAMBRACE_TOOLS", project.tools())
            .env("CARGO_MANIFEST_DIR", &package)
            .env("USER", "nobody");
        Ok(command)
    }

    fn remove(self) {
        // Failure only leaves files in `/tmp` behind.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn copy(from: &Path, to: &Path) -> TaskResult<()> {
    fs::copy(from, to).map(drop).when(|| format!("cannot copy `{}`", from.display()))
}

fn copy_tree(from: &Path, to: &Path) -> TaskResult<()> {
    fs::create_dir_all(to).when(|| format!("cannot create `{}`", to.display()))?;
    for entry in entries(from)? {
        let (source, copied) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().when(|| format!("cannot stat `{}`", source.display()))?;
        if kind.is_symlink() {
            let target = fs::read_link(&source).when(|| format!("cannot read `{}`", source.display()))?;
            symlink(target, &copied).when(|| format!("cannot create `{}`", copied.display()))?;
        } else if kind.is_file() {
            copy(&source, &copied)?;
        } else if kind.is_dir() && !NOT_COPIED.iter().any(|name| entry.file_name() == *name) {
            copy_tree(&source, &copied)?;
        }
    }
    Ok(())
}

/// Makes the user the owner of everything below.
fn hand_over(path: &Path) -> TaskResult<()> {
    let kind = fs::symlink_metadata(path).when(|| format!("cannot stat `{}`", path.display()))?;
    if kind.is_symlink() {
        return Ok(());
    }
    chown(path, Some(USER), Some(USER))
        .when(|| format!("cannot change the owner of `{}`", path.display()))?;
    if kind.is_dir() {
        for entry in entries(path)? {
            hand_over(&entry.path())?;
        }
    }
    Ok(())
}

fn entries(dir: &Path) -> TaskResult<Vec<fs::DirEntry>> {
    fs::read_dir(dir).and_then(Iterator::collect).when(|| format!("cannot list `{}`", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusion_without_a_test_is_an_error() {
        let mut names: Vec<String> = EXCLUDED.iter().map(|(part, _)| format!("real::{part}_case")).collect();
        assert!(check_exclusions(&names).is_ok());
        names.pop();
        let error = check_exclusions(&names).unwrap_err().to_string();
        assert!(error.contains("sim::every_crash"), "{error}");
    }
}
