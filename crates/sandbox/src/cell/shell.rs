//! The part of the walls that is the same for every run: a root folder of its own with the system read-only in it.
//!
//! The new root grows at `/sys` of the cell's own mount namespace, because nothing that is to be shown lies there;
//! the host's files stay reachable through one descriptor until the roots are changed.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};

use crate::fault::{Named as _, Step};
use crate::sys::mounting::{self, Access};
use crate::wire::Identity;

/// Of every cell; a launcher without the powers of root adds a user namespace.
pub(crate) const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Shown as they are, where they are; a link is shown as that link.
pub(super) const SYSTEM: &[&str] =
    &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix", "etc"];

const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];
const LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
    ("/tmp", "var/tmp"),
    ("/run", "var/run"),
];

/// Where the new root grows.
pub(super) const SITE: &str = "/sys";

/// A half-built room.
pub(crate) struct Shell {
    pub(super) identity: Identity,
    /// The host's root.
    pub(super) host: OwnedFd,
    /// The new root.
    pub(super) root: OwnedFd,
}

impl Shell {
    pub(crate) fn build(identity: Identity, proc: bool) -> Result<Self, Step> {
        if !identity.taken {
            map_ids(identity).step("user namespace")?;
        }
        rustix::system::sethostname(b"sandbox").step("host name")?;
        let host = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .step("root folder")?;
        // Later mounts of the host are seen, none of ours is seen by the host.
        rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .step("mount namespace")?;
        let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let tree =
            mounting::make(c"tmpfs", &[(c"size", b"1m"), (c"mode", b"0755")], &[], plain).step("new root")?;
        // While this process sees a whole /proc: the kernel gives a new one only to who sees one already.
        let new_proc = if proc { Some(make_proc().step("proc")?) } else { None };
        let site = rustix::fs::open(SITE, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .step("site of the new root")?;
        mounting::attach(tree.as_fd(), site.as_fd()).step("new root")?;
        let shell = Self { identity, host, root: tree };
        shell.system().step("system folders")?;
        shell.devices().step("devices")?;
        if let Some(new_proc) = new_proc {
            let place = mounting::make_folder(shell.root.as_fd(), b"proc").step("proc")?;
            mounting::attach(new_proc.as_fd(), place.as_fd()).step("proc")?;
        } else {
            mounting::make_folder(shell.root.as_fd(), b"proc").step("proc")?;
        }
        Ok(shell)
    }

    fn system(&self) -> Result<(), Errno> {
        for name in SYSTEM {
            let found = match rustix::fs::statat(&self.host, *name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                found => found?,
            };
            match rustix::fs::FileType::from_raw_mode(found.st_mode) {
                rustix::fs::FileType::Symlink => {
                    let target = rustix::fs::readlinkat(&self.host, *name, Vec::new())?;
                    rustix::fs::symlinkat(target, &self.root, *name)?;
                }
                rustix::fs::FileType::Directory => self.show(name.as_bytes(), Access::ReadOnly, None)?,
                _ => {}
            }
        }
        for name in ["run", "var", "tmp"] {
            mounting::make_folder(self.root.as_fd(), name.as_bytes())?;
        }
        Ok(())
    }

    fn devices(&self) -> Result<(), Errno> {
        for name in DEVICES {
            let path = format!("dev/{name}");
            let source = mounting::open_source(self.host.as_fd(), path.as_bytes())?;
            let tree = mounting::clone_tree(source.as_fd())?;
            mounting::restrict_device(tree.as_fd())?;
            let place = mounting::make_file(self.root.as_fd(), path.as_bytes())?;
            mounting::attach(tree.as_fd(), place.as_fd())?;
        }
        mounting::make_folder(self.root.as_fd(), b"dev/shm")?;
        for (target, link) in LINKS {
            rustix::fs::symlinkat(*target, &self.root, *link)?;
        }
        Ok(())
    }

    /// Shows a file or folder of the host at its own path.
    pub(super) fn show(&self, path: &[u8], access: Access, ids: Option<&OwnedFd>) -> Result<(), Errno> {
        let source = mounting::open_source(self.host.as_fd(), path)?;
        let folder = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode)
            == rustix::fs::FileType::Directory;
        let tree = mounting::clone_tree(source.as_fd())?;
        mounting::restrict(tree.as_fd(), access, ids.map(OwnedFd::as_fd))?;
        let place = if folder {
            mounting::make_folder(self.root.as_fd(), path)?
        } else {
            mounting::make_file(self.root.as_fd(), path)?
        };
        mounting::attach(tree.as_fd(), place.as_fd())
    }
}

/// Only processes: no keys, no settings of the kernel.
fn make_proc() -> Result<OwnedFd, Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mounting::make(c"proc", &[(c"subset", b"pid")], &[], attributes)
}

/// The user keeps the number that he has; there is no other in here.
fn map_ids(identity: Identity) -> Result<(), Errno> {
    let write = |path: &str, text: String| -> Result<(), Errno> {
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, text.as_bytes()).map(drop)
    };
    // A process that nobody may look into may not write its own maps either.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)?;
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("{0} {0} 1", identity.uid))?;
    write("/proc/self/gid_map", format!("{0} {0} 1", identity.gid))
}
