//! The Landlock rules of a run. With namespaces they are the second layer behind the mounts; without, they alone
//! confine file access.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    RestrictSelfAttr as _, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    Scope,
};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::base_image::SYSTEM_DIRS;
use crate::filter::Confinement;
use crate::spec::NetworkMode;
use crate::sys::mount::trimmed;
use crate::tier::Tier;
use crate::wire::{RunRequest, WorkspaceView};

/// Files and directories of `/etc` that programs need; everything else there, such as private keys, is denied.
const ETC: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "debian_version",
    "fonts",
    "gai.conf",
    "gitconfig",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "locale.alias",
    "locale.conf",
    "localtime",
    "login.defs",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "services",
    "shells",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xml",
];

/// Readable files of the host's `/proc`, where the cell has none of its own.
const PROC: &[&str] = &["/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/filesystems", "/proc/version"];

/// Readable names of `/proc/self` there. `exe` and the links in `fd` are judged by their targets.
const PROC_SELF: &[&str] = &["cgroup", "cmdline", "fd", "limits", "maps", "oom_score_adj", "stat", "status"];

const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// A ruleset with the rules that all runs share, to which a run adds its own. Prepared in advance, because it names
/// some fifty files; used once, because a rule cannot be removed.
pub(crate) struct BaseRules {
    rules: RulesetCreated,
    confinement: Confinement,
    abi: i32,
    /// Rules name inodes, not paths: a file of `/etc` that was replaced since is not covered.
    etc: Option<EtcStamp>,
    /// Whether the run's own directories are included.
    furnished: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct EtcStamp {
    inode: u64,
    modified: i128,
}

/// Two changes within this many ns may leave the same timestamp.
const TIMESTAMP_AMBIGUITY_NS: i128 = 50_000_000;

impl BaseRules {
    pub(crate) fn make(confinement: Confinement, abi: i32) -> Option<Self> {
        let etc = stamp();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let etc = etc.filter(|etc| now - etc.modified > TIMESTAMP_AMBIGUITY_NS);
        Some(Self {
            rules: system(confinement, ABI::from(abi)).ok()?,
            confinement,
            abi,
            etc,
            furnished: false,
        })
    }

    /// Adds the directories of one run, whose new root is still mounted at `site`. `None` if that fails: the run then
    /// makes its own rules.
    pub(super) fn add_run_paths(self, site: &Path, home: &[u8]) -> Option<Self> {
        let rules = run_path_rules(self.rules, site, home, ABI::from(self.abi)).ok()?;
        Some(Self { rules, furnished: true, ..self })
    }

    fn is_current(&self, confinement: Confinement, abi: i32) -> bool {
        self.confinement == confinement && self.abi == abi && self.etc.is_some() && self.etc == stamp()
    }
}

fn stamp() -> Option<EtcStamp> {
    let facts = rustix::fs::stat("/etc").ok()?;
    let modified = i128::from(facts.st_mtime) * 1_000_000_000 + i128::from(facts.st_mtime_nsec);
    Some(EtcStamp { inode: facts.st_ino, modified })
}

/// Restricts the calling process.
pub(super) fn landlock(
    request: &RunRequest,
    confinement: Confinement,
    base: Option<BaseRules>,
) -> Result<(), Errno> {
    restrict(request, confinement, base).map_err(|_| Errno::NOTSUP)
}

fn write_access(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock | ioctl(abi))
}

/// Rules that every program has.
fn system(confinement: Confinement, abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(abi);
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if abi >= ABI::V4 && confinement == Confinement::LandlockOnly {
        rules = rules.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        rules = rules.scope(Scope::from_all(abi))?;
    }
    let read = AccessFs::from_read(abi);
    let read_access = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = rules.create()?;
    for name in SYSTEM_DIRS.iter().filter(|name| **name != "etc") {
        rules = allow(rules, Path::new("/").join(name).as_path(), read)?;
    }
    for name in ETC {
        rules = allow(rules, &Path::new("/etc").join(name), read_access)?;
    }
    for path in DEVICES {
        rules =
            allow(rules, Path::new(path), read_access | AccessFs::WriteFile | truncate(abi) | ioctl(abi))?;
    }
    if confinement == Confinement::LandlockOnly {
        for path in PROC {
            rules = allow(rules, Path::new(path), read_access)?;
        }
    }
    Ok(rules)
}

/// Rules for the private files of a run with namespaces, below a root.
fn run_path_rules(
    mut rules: RulesetCreated,
    root: &Path,
    home: &[u8],
    abi: ABI,
) -> Result<RulesetCreated, RulesetError> {
    let read_access = AccessFs::ReadFile | AccessFs::ReadDir;
    for name in ["etc/passwd", "etc/group"] {
        rules = allow(rules, &root.join(name), read_access)?;
    }
    rules = allow(rules, &root.join("proc"), read_access | AccessFs::WriteFile)?;
    rules = allow(rules, &root.join("dev/pts"), read_access | AccessFs::WriteFile | ioctl(abi))?;
    let home = Path::new(std::ffi::OsStr::from_bytes(trimmed(home)));
    for path in [Path::new("tmp"), Path::new("dev/shm"), home] {
        rules = allow(rules, &root.join(path), write_access(abi))?;
    }
    Ok(rules)
}

fn restrict(
    request: &RunRequest,
    confinement: Confinement,
    base: Option<BaseRules>,
) -> Result<(), RulesetError> {
    let abi = ABI::from(request.landlock_abi);
    let (read, write) = (AccessFs::from_read(abi), write_access(abi));
    let read_access = AccessFs::ReadFile | AccessFs::ReadDir;
    let (mut rules, furnished) = match base.filter(|base| base.is_current(confinement, request.landlock_abi))
    {
        Some(base) => (base.rules, base.furnished),
        None => (system(confinement, abi)?, false),
    };
    if confinement == Confinement::Namespaces && !furnished {
        rules = run_path_rules(rules, Path::new("/"), &request.home, abi)?;
    }
    if confinement == Confinement::Namespaces && request.network == NetworkMode::Gated {
        rules = allow(rules, Path::new("/etc/hosts"), read_access)?;
    }
    let bytes = |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf();
    let excluded: Vec<PathBuf> = request
        .masks
        .iter()
        .map(|mask| bytes(&request.workspace).join(bytes(&mask.path)))
        .chain(request.blank.iter().map(|path| bytes(path)))
        .collect();
    for path in request.read.iter().chain(&request.toolchains) {
        let path = bytes(path);
        match confinement {
            // Mounts hide the credentials.
            Confinement::Namespaces => rules = allow(rules, &path, read)?,
            Confinement::LandlockOnly => rules = allow_without(rules, &path, &excluded, read)?,
        }
    }
    for path in &request.write {
        rules = allow(rules, &bytes(path), write)?;
    }
    match confinement {
        Confinement::Namespaces => match request.view {
            WorkspaceView::Absent => {}
            WorkspaceView::Read => rules = allow(rules, &bytes(&request.workspace), read)?,
            WorkspaceView::Fresh | WorkspaceView::Layered => {
                rules = allow(rules, &bytes(&request.workspace), write)?
            }
        },
        Confinement::LandlockOnly => {
            // Its own entries in the host's /proc, which the process that made the ruleset could not name. Not the
            // whole directory: that includes the host's network and mounts.
            rules = own(rules)?;
            if request.view == WorkspaceView::Read {
                rules = allow_without(rules, &bytes(&request.workspace), &excluded, read)?;
            }
        }
    }
    if request.audited {
        // Denials by Landlock domains that the program creates itself are not ours to report.
        rules = rules.log_new_exec(true)?.log_subdomains(false)?;
    }
    rules.restrict_self().map(drop)
}

/// All readable paths; a path outside of them is denied.
pub(crate) fn readable(request: &RunRequest) -> Vec<PathBuf> {
    let bytes = |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf();
    let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
    let system = SYSTEM_DIRS.iter().filter(|name| **name != "etc").map(|name| Path::new("/").join(name));
    let fixed = DEVICES.iter().chain(PROC).map(PathBuf::from);
    let requested = [&request.read, &request.toolchains, &request.write].into_iter().flatten();
    let workspace = (request.view != WorkspaceView::Absent).then(|| bytes(&request.workspace));
    let paths = etc.chain(system).chain(fixed).chain(requested.map(|path| bytes(path))).chain(workspace);
    match request.tier {
        Tier::NoUserns => paths.collect(),
        _ => {
            let own = ["/proc", "/tmp", "/dev/shm", "/dev/pts"].map(PathBuf::from);
            paths.chain(own).chain([bytes(&request.home)]).collect()
        }
    }
}

/// Builds a ruleset with one rule and drops it; for pre-faulting.
pub(super) fn build_sample() -> Result<(), RulesetError> {
    let read = AccessFs::from_read(ABI::V1);
    let rules = Ruleset::default().handle_access(read)?.create()?;
    allow(rules, Path::new("/"), read).map(drop)
}

/// Makes Landlock deny something to the calling process, to produce an audit record.
pub(crate) fn trigger_denial() -> Result<(), Errno> {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let made = rules.handle_access(AccessFs::ReadDir).and_then(Ruleset::create);
    made.and_then(RulesetCreated::restrict_self).map_err(|_| Errno::NOTSUP)?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    match rustix::fs::open("/", flags, rustix::fs::Mode::empty()) {
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
        Ok(_) => Err(Errno::NOTSUP),
    }
}

/// Allows the process's own entries in /proc.
fn own(mut rules: RulesetCreated) -> Result<RulesetCreated, RulesetError> {
    let Ok(dir) = PathFd::new("/proc/self") else { return Ok(rules) };
    for name in PROC_SELF {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let read_access = match *name {
            "fd" => AccessFs::ReadFile | AccessFs::ReadDir,
            _ => AccessFs::ReadFile.into(),
        };
        if let Ok(handle) = rustix::fs::openat(&dir, *name, flags, rustix::fs::Mode::empty()) {
            rules = rules.add_rule(PathBeneath::new(handle, read_access))?;
        }
    }
    Ok(rules)
}

/// Allows a directory except some names in it: Landlock has no exceptions, so the siblings are allowed one by one.
/// Directories can be listed everywhere: names are visible, contents are not.
fn allow_without(
    rules: RulesetCreated,
    root: &Path,
    excluded: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    if !excluded.iter().any(|path| path.starts_with(root)) {
        return allow(rules, root, access);
    }
    let mut rules = allow(rules, root, AccessFs::ReadDir.into())?;
    // A rule for another hard link of a file would allow the file.
    let files: Vec<(u64, u64)> = excluded.iter().filter_map(|path| hard_link_id(path)).collect();
    let is_one =
        |path: &Path| !files.is_empty() && hard_link_id(path).is_some_and(|file| files.contains(&file));
    let mut ahead = vec![root.to_owned()];
    while let Some(here) = ahead.pop() {
        if excluded.contains(&here) || is_one(&here) {
            continue;
        }
        if !excluded.iter().any(|path| path.starts_with(&here)) {
            rules = allow(rules, &here, access)?;
            continue;
        }
        #[expect(clippy::disallowed_methods, reason = "the names beside one that is left out")]
        if let Ok(entries) = std::fs::read_dir(&here) {
            let entries = entries.filter_map(Result::ok);
            // A symlink is judged by its target.
            ahead.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
                    .map(|entry| entry.path()),
            );
        }
    }
    Ok(rules)
}

/// Device and inode of a file with more than one hard link.
fn hard_link_id(path: &Path) -> Option<(u64, u64)> {
    let facts = rustix::fs::lstat(path).ok()?;
    let is_dir = rustix::fs::FileType::from_raw_mode(facts.st_mode) == rustix::fs::FileType::Directory;
    (!is_dir && facts.st_nlink > 1).then_some((facts.st_dev, facts.st_ino))
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // A path that does not exist cannot be opened either.
    let Ok(handle) = PathFd::new(path) else { return Ok(rules) };
    let is_dir = rustix::fs::fstat(&handle).is_ok_and(|facts| {
        rustix::fs::FileType::from_raw_mode(facts.st_mode) == rustix::fs::FileType::Directory
    });
    let access = if is_dir { access } else { access & AccessFs::from_file(ABI::V9) };
    if access.is_empty() { Ok(rules) } else { rules.add_rule(PathBeneath::new(handle, access)) }
}

fn ioctl(abi: ABI) -> BitFlags<AccessFs> {
    if abi >= ABI::V5 { AccessFs::IoctlDev.into() } else { BitFlags::EMPTY }
}

fn truncate(abi: ABI) -> BitFlags<AccessFs> {
    if abi >= ABI::V3 { AccessFs::Truncate.into() } else { BitFlags::EMPTY }
}
