//! What Landlock lets through. In the full tier it is the second wall behind the mounts; without namespaces it is the
//! wall of files.

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    RestrictSelfAttr as _, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    Scope,
};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::template::SYSTEM;
use crate::filter::Walls;
use crate::spec::Network;
use crate::sys::mounting::trimmed;
use crate::tier::Tier;
use crate::wire::{Order, View};

/// The files and folders of `/etc` that programs need; everything else there, private keys among them, is nobody's
/// business.
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

/// Of `/proc` of the host, where there is no other.
const PROC: &[&str] = &["/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/filesystems", "/proc/version"];

/// Of `/proc/self` there. `exe` and the links in `fd` are judged by what they lead to.
const OWN: &[&str] = &["cgroup", "cmdline", "fd", "limits", "maps", "oom_score_adj", "stat", "status"];

const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// The rules that are the same for every run, in a set of their own that waits for the rest. Made in advance, because
/// it names some fifty files; used once, because what is added to a set stays in it.
pub(crate) struct Base {
    rules: RulesetCreated,
    walls: Walls,
    abi: i32,
    /// Rules name files, not paths: a file of `/etc` that was replaced since is none of them.
    etc: Option<Stamp>,
    /// Whether the run's own folders and names are among them.
    furnished: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    modified: i128,
}

/// Two changes within so many nanoseconds may leave the same stamp.
const YOUNG_NS: i128 = 50_000_000;

impl Base {
    pub(crate) fn make(walls: Walls, abi: i32) -> Option<Self> {
        let etc = stamp();
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        let etc = etc.filter(|etc| now - etc.modified > YOUNG_NS);
        Some(Self { rules: system(walls, ABI::from(abi)).ok()?, walls, abi, etc, furnished: false })
    }

    /// With the folders and names of one run, whose new root still lies at `site`. Nothing where that fails: the run then
    /// makes its own rules.
    pub(super) fn furnish(self, site: &Path, home: &[u8]) -> Option<Self> {
        let rules = furniture(self.rules, site, home, ABI::from(self.abi)).ok()?;
        Some(Self { rules, furnished: true, ..self })
    }

    fn still_stands(&self, walls: Walls, abi: i32) -> bool {
        self.walls == walls && self.abi == abi && self.etc.is_some() && self.etc == stamp()
    }
}

fn stamp() -> Option<Stamp> {
    let facts = rustix::fs::stat("/etc").ok()?;
    let modified = i128::from(facts.st_mtime) * 1_000_000_000 + i128::from(facts.st_mtime_nsec);
    Some(Stamp { inode: facts.st_ino, modified })
}

/// Puts the calling process under the rules.
pub(super) fn landlock(order: &Order, walls: Walls, base: Option<Base>) -> Result<(), Errno> {
    restrict(order, walls, base).map_err(|_| Errno::NOTSUP)
}

fn write_access(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock | ioctl(abi))
}

/// What every program may.
fn system(walls: Walls, abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(abi);
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
    if abi >= ABI::V4 && walls == Walls::LandlockOnly {
        rules = rules.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        rules = rules.scope(Scope::from_all(abi))?;
    }
    let read = AccessFs::from_read(abi);
    let look = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = rules.create()?;
    for name in SYSTEM.iter().filter(|name| **name != "etc") {
        rules = allow(rules, Path::new("/").join(name).as_path(), read)?;
    }
    for name in ETC {
        rules = allow(rules, &Path::new("/etc").join(name), look)?;
    }
    for path in DEVICES {
        rules = allow(rules, Path::new(path), look | AccessFs::WriteFile | truncate(abi) | ioctl(abi))?;
    }
    if walls == Walls::LandlockOnly {
        for path in PROC {
            rules = allow(rules, Path::new(path), look)?;
        }
    }
    Ok(rules)
}

/// What every run in namespaces has of its own, below a root.
fn furniture(
    mut rules: RulesetCreated,
    root: &Path,
    home: &[u8],
    abi: ABI,
) -> Result<RulesetCreated, RulesetError> {
    let look = AccessFs::ReadFile | AccessFs::ReadDir;
    for name in ["etc/passwd", "etc/group"] {
        rules = allow(rules, &root.join(name), look)?;
    }
    rules = allow(rules, &root.join("proc"), look | AccessFs::WriteFile)?;
    rules = allow(rules, &root.join("dev/pts"), look | AccessFs::WriteFile | ioctl(abi))?;
    let home = Path::new(std::ffi::OsStr::from_bytes(trimmed(home)));
    for path in [Path::new("tmp"), Path::new("dev/shm"), home] {
        rules = allow(rules, &root.join(path), write_access(abi))?;
    }
    Ok(rules)
}

fn restrict(order: &Order, walls: Walls, base: Option<Base>) -> Result<(), RulesetError> {
    let abi = ABI::from(order.landlock_abi);
    let (read, write) = (AccessFs::from_read(abi), write_access(abi));
    let look = AccessFs::ReadFile | AccessFs::ReadDir;
    let (mut rules, furnished) = match base.filter(|base| base.still_stands(walls, order.landlock_abi)) {
        Some(base) => (base.rules, base.furnished),
        None => (system(walls, abi)?, false),
    };
    if walls == Walls::Namespaces && !furnished {
        rules = furniture(rules, Path::new("/"), &order.home, abi)?;
    }
    if walls == Walls::Namespaces && order.network == Network::Gated {
        rules = allow(rules, Path::new("/etc/hosts"), look)?;
    }
    let bytes = |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf();
    let excluded: Vec<PathBuf> = order
        .masks
        .iter()
        .map(|mask| bytes(&order.workspace).join(bytes(&mask.path)))
        .chain(order.blank.iter().map(|path| bytes(path)))
        .collect();
    for path in order.read.iter().chain(&order.toolchains) {
        let path = bytes(path);
        match walls {
            // Credentials are covered by mounts.
            Walls::Namespaces => rules = allow(rules, &path, read)?,
            Walls::LandlockOnly => rules = allow_without(rules, &path, &excluded, read)?,
        }
    }
    for path in &order.write {
        rules = allow(rules, &bytes(path), write)?;
    }
    match walls {
        Walls::Namespaces => match order.view {
            View::Absent => {}
            View::Read => rules = allow(rules, &bytes(&order.workspace), read)?,
            View::Fresh | View::Layered => rules = allow(rules, &bytes(&order.workspace), write)?,
        },
        Walls::LandlockOnly => {
            // Its own files of the host's, which the process that made the set could not name. The folder has the
            // machine's network and mounts in it.
            rules = own(rules)?;
            if order.view == View::Read {
                rules = allow_without(rules, &bytes(&order.workspace), &excluded, read)?;
            }
        }
    }
    if order.audited {
        // What domains of the program's own making refuse is none of ours.
        rules = rules.log_new_exec(true)?.log_subdomains(false)?;
    }
    rules.restrict_self().map(drop)
}

/// What may be read, by the rules: all of it, so that what is not among it is refused.
pub(crate) fn readable(order: &Order) -> Vec<PathBuf> {
    let bytes = |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).to_path_buf();
    let etc = ETC.iter().map(|name| Path::new("/etc").join(name));
    let system = SYSTEM.iter().filter(|name| **name != "etc").map(|name| Path::new("/").join(name));
    let fixed = DEVICES.iter().chain(PROC).map(PathBuf::from);
    let ordered = [&order.read, &order.toolchains, &order.write].into_iter().flatten();
    let workspace = (order.view != View::Absent).then(|| bytes(&order.workspace));
    let paths = etc.chain(system).chain(fixed).chain(ordered.map(|path| bytes(path))).chain(workspace);
    match order.tier {
        Tier::NoUserns => paths.collect(),
        _ => {
            let own = ["/proc", "/tmp", "/dev/shm", "/dev/pts"].map(PathBuf::from);
            paths.chain(own).chain([bytes(&order.home)]).collect()
        }
    }
}

/// A set with one rule, for nobody.
pub(super) fn try_one() -> Result<(), RulesetError> {
    let read = AccessFs::from_read(ABI::V1);
    let rules = Ruleset::default().handle_access(read)?.create()?;
    allow(rules, Path::new("/"), read).map(drop)
}

/// Has the calling process refused something by Landlock, for a record to be there.
pub(crate) fn be_refused() -> Result<(), Errno> {
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

/// Files of the process itself.
fn own(mut rules: RulesetCreated) -> Result<RulesetCreated, RulesetError> {
    let Ok(folder) = PathFd::new("/proc/self") else { return Ok(rules) };
    for name in OWN {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let look = match *name {
            "fd" => AccessFs::ReadFile | AccessFs::ReadDir,
            _ => AccessFs::ReadFile.into(),
        };
        if let Ok(handle) = rustix::fs::openat(&folder, *name, flags, rustix::fs::Mode::empty()) {
            rules = rules.add_rule(PathBeneath::new(handle, look))?;
        }
    }
    Ok(rules)
}

/// A folder without some of the names in it: Landlock knows no exceptions, so the siblings are named instead. Folders
/// may be listed everywhere: a name is seen, its content is not.
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
    // A rule for another name of a file would hold for the file.
    let files: Vec<(u64, u64)> = excluded.iter().filter_map(|path| of_many_names(path)).collect();
    let is_one =
        |path: &Path| !files.is_empty() && of_many_names(path).is_some_and(|file| files.contains(&file));
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
            // A link is judged by what it leads to.
            ahead.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
                    .map(|entry| entry.path()),
            );
        }
    }
    Ok(rules)
}

/// Device and number of a file with more than one name.
fn of_many_names(path: &Path) -> Option<(u64, u64)> {
    let facts = rustix::fs::lstat(path).ok()?;
    let folder = rustix::fs::FileType::from_raw_mode(facts.st_mode) == rustix::fs::FileType::Directory;
    (!folder && facts.st_nlink > 1).then_some((facts.st_dev, facts.st_ino))
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // What is not there cannot be opened either.
    let Ok(handle) = PathFd::new(path) else { return Ok(rules) };
    let folder = rustix::fs::fstat(&handle).is_ok_and(|facts| {
        rustix::fs::FileType::from_raw_mode(facts.st_mode) == rustix::fs::FileType::Directory
    });
    let access = if folder { access } else { access & AccessFs::from_file(ABI::V9) };
    if access.is_empty() { Ok(rules) } else { rules.add_rule(PathBeneath::new(handle, access)) }
}

fn ioctl(abi: ABI) -> BitFlags<AccessFs> {
    if abi >= ABI::V5 { AccessFs::IoctlDev.into() } else { BitFlags::EMPTY }
}

fn truncate(abi: ABI) -> BitFlags<AccessFs> {
    if abi >= ABI::V3 { AccessFs::Truncate.into() } else { BitFlags::EMPTY }
}
