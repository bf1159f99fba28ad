//! The part of a cell's file system that is independent of the run request: a copy of the base image as the future
//! root, `/proc`, a private file system for everything that the program writes, the home directory and the user
//! database. Built in advance in a warm cell.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use vambrace_core::blocked_paths::hidden_from_programs;

use super::base_image::ROOT_SITE;
use super::mounts::TopLevelDirs;
use crate::error::{FailedStep, StepContext as _};
use crate::spec::plain_name;
use crate::sys::mount::{self, MountAccess};
use crate::wire::{Bytes, RunIdentity};

/// Namespaces of every cell; a launcher without root's capabilities adds a user namespace.
pub(crate) const NAMESPACES: libc::c_int =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;

/// Where the private file system is mounted during setup: in the old root, so that it disappears with it.
const PRIVATE_SITE: &str = "/proc";

/// Maximum pseudo terminals of a cell; the machine has some thousands for all users.
const MAX_TERMINALS: &[u8] = b"64";

/// The root of a cell under construction.
pub(crate) struct RootSkeleton {
    pub(super) identity: RunIdentity,
    /// The host's root.
    pub(super) host: OwnedFd,
    /// The new root.
    pub(super) root: OwnedFd,
    /// Private file system of a fixed size, for everything that the program writes.
    pub(super) private: OwnedFd,
    pub(super) disk: u64,
    /// Mount point of the home directory.
    pub(super) home: Bytes,
    /// Lower layer (the workspace) and mask layer (names that do not exist for the program) of the overlay.
    pub(super) lower: OwnedFd,
    pub(super) mask: OwnedFd,
    pub(super) top_level_dirs: TopLevelDirs,
    /// Sockets of a network that was set up in advance.
    pub(super) network: Option<Vec<OwnedFd>>,
}

impl RootSkeleton {
    pub(crate) fn build(
        identity: RunIdentity,
        proc: bool,
        disk: u64,
        home: &[u8],
    ) -> Result<Self, FailedStep> {
        rustix::system::sethostname(b"sandbox").step("host name")?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let host = rustix::fs::open(c"/", flags, Mode::empty()).step("root directory")?;
        // While this process sees a full /proc: the kernel allows a new procfs mount only if an unobstructed one is
        // visible.
        let new_proc = if proc { Some(make_proc().step("proc")?) } else { None };
        let site = rustix::fs::open(ROOT_SITE, flags, Mode::empty()).step("site of the new root")?;
        let root = mount::clone_tree(site.as_fd()).step("new root")?;
        mount::attach(root.as_fd(), site.as_fd()).step("new root")?;
        if let Some(new_proc) = new_proc {
            let place = mount::make_directory(root.as_fd(), b"proc").step("proc")?;
            mount::attach(new_proc.as_fd(), place.as_fd()).step("proc")?;
        }
        terminals(root.as_fd()).step("pseudo terminals")?;
        let private = make_private(identity, disk).step("private directories")?;
        let place = rustix::fs::open(PRIVATE_SITE, flags, Mode::empty()).step("private directories")?;
        mount::attach(private.as_fd(), place.as_fd()).step("private directories")?;
        let (home, top_level_dirs) = (home.to_vec(), TopLevelDirs::default());
        let own = |name: &[u8]| {
            make_owned_directory(identity, private.as_fd(), name, 0o755).step("private directories")
        };
        let (lower, mask) = (own(b"lower")?, own(b"mask")?);
        for name in always_masked_names() {
            whiteout(mask.as_fd(), name.as_bytes()).step("mask layer")?;
        }
        let network = None;
        let mut skeleton =
            Self { identity, host, root, private, disk, home, lower, mask, top_level_dirs, network };
        let home = skeleton.home.clone();
        skeleton.mount_private_dir(b"tmp", 0o1777, b"tmp").step("private directories")?;
        skeleton.mount_private_dir(b"shm", 0o1777, b"dev/shm").step("private directories")?;
        let mut top_level_dirs = TopLevelDirs::default();
        top_level_dirs.ensure(&skeleton, &home).step("home directory")?;
        skeleton.mount_private_dir(b"home", 0o700, &home).step("home directory")?;
        skeleton.names().step("user database")?;
        skeleton.top_level_dirs = top_level_dirs;
        Ok(skeleton)
    }

    /// Creates a directory on the private file system and mounts it in the new root; returns the mount.
    pub(super) fn mount_private_dir(&self, name: &[u8], mode: u32, at: &[u8]) -> Result<OwnedFd, Errno> {
        let source = self.make_owned_directory(&self.private, name, mode)?;
        let tree = mount::clone_tree(source.as_fd())?;
        let place = mount::make_directory(self.root.as_fd(), at)?;
        mount::attach(tree.as_fd(), place.as_fd())?;
        Ok(tree)
    }

    /// Writes passwd and group entries for the program's user.
    fn names(&self) -> Result<(), Errno> {
        let home = String::from_utf8_lossy(&self.home).into_owned();
        let (uid, gid) = (self.identity.uid, self.identity.gid);
        let users = format!(
            "agent:x:{uid}:{gid}:agent:{home}:/bin/sh\nroot:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n"
        );
        let groups = format!("agent:x:{gid}:\nroot:x:0:\nnogroup:x:65534:\n");
        self.replace_etc_file("passwd", &users)?;
        self.replace_etc_file("group", &groups)
    }

    /// Mounts a file with different content over a host file of `/etc`.
    pub(super) fn replace_etc_file(&self, name: &str, text: &str) -> Result<(), Errno> {
        let made = format!(".{name}");
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::EXCL;
        let file = rustix::fs::openat(&self.private, &made, flags, Mode::from_raw_mode(0o444))?;
        rustix::io::write(&file, text.as_bytes())?;
        let tree = mount::clone_tree(file.as_fd())?;
        mount::restrict(tree.as_fd(), MountAccess::ReadOnly, None)?;
        // A system without such a file has nothing to replace.
        match mount::open_beneath(self.root.as_fd(), format!("etc/{name}").as_bytes(), OFlags::PATH) {
            Ok(place) => mount::attach(tree.as_fd(), place.as_fd()),
            Err(_) => Ok(()),
        }
    }

    /// Creates a directory owned by the program's user.
    pub(super) fn make_owned_directory(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        mode: u32,
    ) -> Result<OwnedFd, Errno> {
        make_owned_directory(self.identity, parent.as_fd(), name, mode)
    }
}

fn make_owned_directory(
    identity: RunIdentity,
    parent: BorrowedFd<'_>,
    name: &[u8],
    mode: u32,
) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o755))?;
    if mode & !0o755 != 0 {
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    if identity.must_switch {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    mount::open_beneath(parent, name, OFlags::PATH | OFlags::DIRECTORY)
}

/// Names that are masked in the workspace's top directory whether or not they exist: they may be created while the
/// program runs.
pub(super) fn always_masked_names() -> impl Iterator<Item = &'static str> {
    hidden_from_programs().filter_map(plain_name)
}

/// Creates a whiteout: the name does not exist in the overlay, whatever the lower layer has.
pub(super) fn whiteout(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let (kind, nothing) = (FileType::CharacterDevice, rustix::fs::makedev(0, 0));
    match rustix::fs::mknodat(dir, name, kind, Mode::empty(), nothing) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// Creates the private tmpfs.
fn make_private(identity: RunIdentity, disk: u64) -> Result<OwnedFd, Errno> {
    let (size, files) = (disk.to_string(), mount::max_files(disk).to_string());
    let (uid, gid) = (identity.uid.to_string(), identity.gid.to_string());
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let options: &[(&std::ffi::CStr, &[u8])] = &[
        (c"size", size.as_bytes()),
        (c"nr_inodes", files.as_bytes()),
        (c"mode", b"0700"),
        (c"uid", uid.as_bytes()),
        (c"gid", gid.as_bytes()),
    ];
    mount::make(c"tmpfs", options, &[], attributes)
}

/// Mounts a devpts instance for the program's own pseudo terminals; no others are visible.
fn terminals(root: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options: &[(&std::ffi::CStr, &[u8])] =
        &[(c"ptmxmode", b"0666"), (c"mode", b"0600"), (c"max", MAX_TERMINALS)];
    match mount::make(c"devpts", options, &[], attributes) {
        Ok(made) => mount::attach(made.as_fd(), mount::make_directory(root, b"dev/pts")?.as_fd()),
        // The kernel has no devpts.
        Err(Errno::NODEV) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// A procfs with processes only (`subset=pid`): no keys, no kernel settings.
fn make_proc() -> Result<OwnedFd, Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mount::make(c"proc", &[(c"subset", b"pid")], &[], attributes)
}
