//! The base image: a root directory with the system mounted read-only, the same for every run. A zygote builds it
//! once, in its own mount namespace; every cell starts with a copy of that namespace and clones the tree with one
//! call.
//!
//! The tree is mounted at `/sys`, because no host path that is to be visible is there. Its file system is shared by
//! all cells of a zygote, read-only to their programs, and contains only names that every program may know: the
//! directories of `/`, symlinks, mount points. Anything else that a run needs is on its private file system.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};

use crate::error::{FailedStep, StepContext as _};
use crate::sys::mount::{self, MountAccess};
use crate::sys::process;
use crate::wire::RunIdentity;

/// Mount point of the base image and, over it, the new root.
pub(super) const ROOT_SITE: &str = "/sys";

/// Top-level host directories that are mounted as they are; a symlink stays that symlink.
pub(crate) const SYSTEM_DIRS: &[&str] =
    &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix", "etc"];

const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];
const LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
    ("pts/ptmx", "dev/ptmx"),
    ("/tmp", "var/tmp"),
    ("/run", "var/run"),
];

/// Builds the tree in the current mount namespace, which no other process uses.
pub(crate) fn make() -> Result<(), FailedStep> {
    let host = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step("root directory")?;
    // Later mounts of the host propagate here, ours do not propagate to the host.
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .step("mount namespace")?;
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = mount::make(c"tmpfs", &[(c"size", b"1m"), (c"mode", b"0755")], &[], plain).step("new root")?;
    let site = rustix::fs::open(ROOT_SITE, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step("site of the new root")?;
    mount::attach(root.as_fd(), site.as_fd()).step("new root")?;
    system(&host, &root).step("system directories")?;
    devices(&host, &root).step("devices")
}

fn system(host: &OwnedFd, root: &OwnedFd) -> Result<(), Errno> {
    for name in SYSTEM_DIRS {
        let found = match rustix::fs::statat(host, *name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            found => found?,
        };
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(host, *name, Vec::new())?;
                rustix::fs::symlinkat(target, root, *name)?;
            }
            FileType::Directory => {
                let source = mount::open_source(host.as_fd(), name.as_bytes())?;
                let tree = mount::clone_tree(source.as_fd())?;
                mount::restrict(tree.as_fd(), MountAccess::ReadOnly, None)?;
                let place = mount::make_directory(root.as_fd(), name.as_bytes())?;
                mount::attach(tree.as_fd(), place.as_fd())?;
            }
            _ => {}
        }
    }
    for name in ["run", "var", "tmp", "home", "proc"] {
        mount::make_directory(root.as_fd(), name.as_bytes())?;
    }
    Ok(())
}

fn devices(host: &OwnedFd, root: &OwnedFd) -> Result<(), Errno> {
    for name in DEVICES {
        let path = format!("dev/{name}");
        let source = mount::open_source(host.as_fd(), path.as_bytes())?;
        let tree = mount::clone_tree(source.as_fd())?;
        mount::restrict_device(tree.as_fd())?;
        let place = mount::make_file(root.as_fd(), path.as_bytes())?;
        mount::attach(tree.as_fd(), place.as_fd())?;
    }
    for place in [b"dev/shm", b"dev/pts"] {
        mount::make_directory(root.as_fd(), place)?;
    }
    for (target, link) in LINKS {
        rustix::fs::symlinkat(*target, root, *link)?;
    }
    Ok(())
}

/// Writes the id maps of this process's own user namespace: one id inside, mapped to the previous id outside.
pub(crate) fn write_own_id_maps(inside: RunIdentity, outside: (u32, u32)) -> Result<(), Errno> {
    // A process that is not dumpable may not write its own maps.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    process::set("/proc/self/setgroups", "deny")?;
    process::set("/proc/self/uid_map", &format!("{} {} 1", inside.uid, outside.0))?;
    process::set("/proc/self/gid_map", &format!("{} {} 1", inside.gid, outside.1))
}
