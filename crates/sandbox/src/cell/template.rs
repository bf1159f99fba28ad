//! What is the same for every run: a root folder with the system read-only in it. Made once by a stage, in a mount
//! namespace of its own; every cell starts with a copy of that namespace and clones the whole tree with one call.
//!
//! The tree lies at `/sys`, because nothing that is to be shown lies there. Its file system is shared by all cells of a
//! stage, read-only to their programs, and holds nothing but names that every program of the machine may know: the
//! folders of `/`, links, places for mounts. What one run needs beside that lies on a file system of its own.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};

use crate::fault::{Named as _, Step};
use crate::sys::mounting::{self, Access};
use crate::sys::process;
use crate::wire::Identity;

/// Where the template and, over it, the new root lie.
pub(super) const SITE: &str = "/sys";

/// Shown as they are, where they are; a link is shown as that link.
pub(crate) const SYSTEM: &[&str] =
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

/// Builds the tree in the present mount namespace, which is nobody else's.
pub(crate) fn make() -> Result<(), Step> {
    let host = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step("root folder")?;
    // Later mounts of the host are seen, none of ours is seen by the host.
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
        .step("mount namespace")?;
    let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root =
        mounting::make(c"tmpfs", &[(c"size", b"1m"), (c"mode", b"0755")], &[], plain).step("new root")?;
    let site = rustix::fs::open(SITE, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step("site of the new root")?;
    mounting::attach(root.as_fd(), site.as_fd()).step("new root")?;
    system(&host, &root).step("system folders")?;
    devices(&host, &root).step("devices")
}

fn system(host: &OwnedFd, root: &OwnedFd) -> Result<(), Errno> {
    for name in SYSTEM {
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
                let source = mounting::open_source(host.as_fd(), name.as_bytes())?;
                let tree = mounting::clone_tree(source.as_fd())?;
                mounting::restrict(tree.as_fd(), Access::ReadOnly, None)?;
                let place = mounting::make_folder(root.as_fd(), name.as_bytes())?;
                mounting::attach(tree.as_fd(), place.as_fd())?;
            }
            _ => {}
        }
    }
    for name in ["run", "var", "tmp", "home", "proc"] {
        mounting::make_folder(root.as_fd(), name.as_bytes())?;
    }
    Ok(())
}

fn devices(host: &OwnedFd, root: &OwnedFd) -> Result<(), Errno> {
    for name in DEVICES {
        let path = format!("dev/{name}");
        let source = mounting::open_source(host.as_fd(), path.as_bytes())?;
        let tree = mounting::clone_tree(source.as_fd())?;
        mounting::restrict_device(tree.as_fd())?;
        let place = mounting::make_file(root.as_fd(), path.as_bytes())?;
        mounting::attach(tree.as_fd(), place.as_fd())?;
    }
    for place in [b"dev/shm", b"dev/pts"] {
        mounting::make_folder(root.as_fd(), place)?;
    }
    for (target, link) in LINKS {
        rustix::fs::symlinkat(*target, root, *link)?;
    }
    Ok(())
}

/// Who is who in a user namespace of this process's own: it has one number inside and is whom it was outside.
pub(crate) fn own_ids(inside: Identity, outside: (u32, u32)) -> Result<(), Errno> {
    // A process that nobody may look into may not write its own maps either.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    process::set("/proc/self/setgroups", "deny")?;
    process::set("/proc/self/uid_map", &format!("{} {} 1", inside.uid, outside.0))?;
    process::set("/proc/self/gid_map", &format!("{} {} 1", inside.gid, outside.1))
}
