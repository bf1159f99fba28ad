//! The tests that touch the kernel, a second time as an ordinary user: root passes by many a check that a user of
//! the product meets.
//!
//! The executables that were built for the first time are run, not built again. They, the binary and the sources
//! are copied into a folder that the user owns, because the project may lie where only root can go.

use std::{
    fs,
    os::unix::fs::{chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    fault::{Fault, Outcome, While},
    program::{counted, on_path, quietly},
    project::Project,
    tally::Tally,
};

/// `nobody` of every Linux.
const USER: u32 = 65534;

/// The packages whose tests touch the kernel.
const PACKAGES: &[&str] = &[
    "vambrace-workspace",
    "vambrace-store",
    "vambrace-witness",
    "vambrace-sandbox",
    "vambrace-egress",
    "vambrace-tests",
];

/// Tests that need what only the first user has, or that take long and are the same for everybody, by a part of their
/// name.
const LEFT_OUT: &[(&str, &str)] = &[
    ("interop::", "Python and its packages may lie in the first user's home"),
    ("compile::", "cargo and its home belong to the first user"),
    ("attacks::every", "thousands of ledgers, the same for every user"),
    ("agreement::two", "thousands of ledgers, the same for every user"),
    ("sim::every_crash", "a simulated disk, the same for every user"),
];

/// Folders that are no sources.
const NOT_COPIED: &[&str] = &["target", ".tools", ".git"];

/// One test executable.
struct Executable {
    file: PathBuf,
    package: PathBuf,
}

pub(crate) fn run(project: &Project) -> Outcome<(bool, Tally)> {
    if on_path("setpriv").is_none() {
        return Err(Fault::new("the tests as an ordinary user need `setpriv`")
            .hint("install the package `util-linux`"));
    }
    for (part, reason) in LEFT_OUT {
        println!("left out `{part}`: {reason}");
    }
    let executables = executables(project)?;
    let folder = Folder::new(project)?;
    let mut total = Tally::default();
    let mut passed = true;
    for executable in &executables {
        println!("{}", executable.file.file_name().unwrap_or_default().display());
        let (well, tally) = counted(&mut folder.command(project, executable)?)?;
        passed &= well;
        total += tally;
    }
    if total.passed == 0 {
        return Err(Fault::new("no test ran as an ordinary user"));
    }
    if passed {
        folder.remove();
    } else {
        println!("what the tests left is in `{}`", folder.path.display());
    }
    Ok((passed, total))
}

/// The test executables of the packages, as cargo names them; everything is built already.
fn executables(project: &Project) -> Outcome<Vec<Executable>> {
    let said = quietly(project.cargo("test").args([
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
        // `path+file:///…/crates/store#vambrace-store@0.1.0`, the name left out when it is the folder's.
        name.contains(&format!("#{package}@")) || name.contains(&format!("/{package}#"))
    });
    (test && wanted).then_some(Executable { file, package })
}

/// A folder that the ordinary user owns.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new(project: &Project) -> Outcome<Self> {
        let path = PathBuf::from(format!("/tmp/vambrace-second-user-{}", std::process::id()));
        let folder = Self { path };
        for name in ["home", "tmp", "state", "bin/deps"] {
            let made = folder.path.join(name);
            fs::create_dir_all(&made).when(|| format!("cannot make `{}`", made.display()))?;
        }
        copy_tree(project.root(), &folder.path.join("source"))?;
        let binary = project.built("debug", "vambrace");
        copy(&binary, &folder.path.join("bin/vambrace"))?;
        hand_over(&folder.path)?;
        Ok(folder)
    }

    /// The executable under the user's id, in the copy of its package, with an environment built from nothing.
    fn command(&self, project: &Project, executable: &Executable) -> Outcome<Command> {
        let file = self.path.join("bin/deps").join(executable.file.file_name().unwrap_or_default());
        copy(&executable.file, &file)?;
        let package = self.path.join("source").join(&executable.package);
        let id = USER.to_string();
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"])
            .arg(&file)
            .arg("--quiet")
            .args(LEFT_OUT.iter().flat_map(|(part, _)| ["--skip", part]))
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
        // Only rubbish in `/tmp` would be left.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    fs::copy(from, to).map(drop).when(|| format!("cannot copy `{}`", from.display()))
}

fn copy_tree(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir_all(to).when(|| format!("cannot make `{}`", to.display()))?;
    for entry in entries(from)? {
        let (source, copied) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().when(|| format!("cannot look at `{}`", source.display()))?;
        if kind.is_symlink() {
            let target = fs::read_link(&source).when(|| format!("cannot read `{}`", source.display()))?;
            symlink(target, &copied).when(|| format!("cannot make `{}`", copied.display()))?;
        } else if kind.is_file() {
            copy(&source, &copied)?;
        } else if kind.is_dir() && !NOT_COPIED.iter().any(|name| entry.file_name() == *name) {
            copy_tree(&source, &copied)?;
        }
    }
    Ok(())
}

/// Makes the user the owner of everything below.
fn hand_over(path: &Path) -> Outcome<()> {
    let kind = fs::symlink_metadata(path).when(|| format!("cannot look at `{}`", path.display()))?;
    if kind.is_symlink() {
        return Ok(());
    }
    chown(path, Some(USER), Some(USER)).when(|| format!("cannot hand over `{}`", path.display()))?;
    if kind.is_dir() {
        for entry in entries(path)? {
            hand_over(&entry.path())?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Outcome<Vec<fs::DirEntry>> {
    fs::read_dir(folder).and_then(Iterator::collect).when(|| format!("cannot list `{}`", folder.display()))
}
