//! The part of the walls of one run that needs no order: a copy of the template as the root to be, `/proc`, the file
//! system for everything that the program writes, the home folder and who the program is. Made in advance in a warm cell.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use vambrace_core::block::hidden_from_programs;

use super::dress::Grounds;
use super::template::SITE;
use crate::fault::{Named as _, Step};
use crate::spec::plain_name;
use crate::sys::mounting::{self, Access};
use crate::wire::{Bytes, Identity};

/// Of every cell; a launcher without the powers of root adds a user namespace.
pub(crate) const NAMESPACES: libc::c_int =
    libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP;

/// Where the private file system lies while the room is furnished: in the old root, so that it goes with it.
const PRIVATE_SITE: &str = "/proc";

/// The machine has some thousands for everybody.
const MOST_TERMINALS: &[u8] = b"64";

/// A half-built room.
pub(crate) struct Shell {
    pub(super) identity: Identity,
    /// The host's root.
    pub(super) host: OwnedFd,
    /// The new root.
    pub(super) root: OwnedFd,
    /// Whatever the program writes, in folders of one file system of a fixed size.
    pub(super) private: OwnedFd,
    pub(super) disk: u64,
    /// Where the home folder is shown.
    pub(super) home: Bytes,
    /// Where the workspace goes, below the program's view of it, and the names in it that do not exist for the program.
    pub(super) lower: OwnedFd,
    pub(super) mask: OwnedFd,
    pub(super) grounds: Grounds,
    /// The sockets of a network that stands already.
    pub(super) network: Option<Vec<OwnedFd>>,
}

impl Shell {
    pub(crate) fn build(identity: Identity, proc: bool, disk: u64, home: &[u8]) -> Result<Self, Step> {
        rustix::system::sethostname(b"sandbox").step("host name")?;
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let host = rustix::fs::open(c"/", folder, Mode::empty()).step("root folder")?;
        // While this process sees a whole /proc: the kernel gives a new one only to who sees one already.
        let new_proc = if proc { Some(make_proc().step("proc")?) } else { None };
        let site = rustix::fs::open(SITE, folder, Mode::empty()).step("site of the new root")?;
        let root = mounting::clone_tree(site.as_fd()).step("new root")?;
        mounting::attach(root.as_fd(), site.as_fd()).step("new root")?;
        if let Some(new_proc) = new_proc {
            let place = mounting::make_folder(root.as_fd(), b"proc").step("proc")?;
            mounting::attach(new_proc.as_fd(), place.as_fd()).step("proc")?;
        }
        terminals(root.as_fd()).step("pseudo terminals")?;
        let private = make_private(identity, disk).step("private folders")?;
        let place = rustix::fs::open(PRIVATE_SITE, folder, Mode::empty()).step("private folders")?;
        mounting::attach(private.as_fd(), place.as_fd()).step("private folders")?;
        let (home, grounds) = (home.to_vec(), Grounds::default());
        let own = |name: &[u8]| own_folder(identity, private.as_fd(), name, 0o755).step("private folders");
        let (lower, mask) = (own(b"lower")?, own(b"mask")?);
        for name in mask_ahead() {
            whiteout(mask.as_fd(), name.as_bytes()).step("mask layer")?;
        }
        let network = None;
        let mut shell = Self { identity, host, root, private, disk, home, lower, mask, grounds, network };
        let home = shell.home.clone();
        shell.lend(b"tmp", 0o1777, b"tmp").step("private folders")?;
        shell.lend(b"shm", 0o1777, b"dev/shm").step("private folders")?;
        let mut grounds = Grounds::default();
        grounds.lay(&shell, &home).step("home folder")?;
        shell.lend(b"home", 0o700, &home).step("home folder")?;
        shell.names().step("user database")?;
        shell.grounds = grounds;
        Ok(shell)
    }

    /// Shows a new folder of the private file system at a place of the room; gives the mount.
    pub(super) fn lend(&self, name: &[u8], mode: u32, at: &[u8]) -> Result<OwnedFd, Errno> {
        let source = self.own_folder(&self.private, name, mode)?;
        let tree = mounting::clone_tree(source.as_fd())?;
        let place = mounting::make_folder(self.root.as_fd(), at)?;
        mounting::attach(tree.as_fd(), place.as_fd())?;
        Ok(tree)
    }

    /// Who the program finds itself to be.
    fn names(&self) -> Result<(), Errno> {
        let home = String::from_utf8_lossy(&self.home).into_owned();
        let (uid, gid) = (self.identity.uid, self.identity.gid);
        let users = format!(
            "agent:x:{uid}:{gid}:agent:{home}:/bin/sh\nroot:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n"
        );
        let groups = format!("agent:x:{gid}:\nroot:x:0:\nnogroup:x:65534:\n");
        self.own_file_of_etc("passwd", &users)?;
        self.own_file_of_etc("group", &groups)
    }

    /// A file of `/etc` with another content than the host's.
    pub(super) fn own_file_of_etc(&self, name: &str, text: &str) -> Result<(), Errno> {
        let made = format!(".{name}");
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::EXCL;
        let file = rustix::fs::openat(&self.private, &made, flags, Mode::from_raw_mode(0o444))?;
        rustix::io::write(&file, text.as_bytes())?;
        let tree = mounting::clone_tree(file.as_fd())?;
        mounting::restrict(tree.as_fd(), Access::ReadOnly, None)?;
        // A system without such a file has no names to replace.
        match mounting::open_beneath(self.root.as_fd(), format!("etc/{name}").as_bytes(), OFlags::PATH) {
            Ok(place) => mounting::attach(tree.as_fd(), place.as_fd()),
            Err(_) => Ok(()),
        }
    }

    /// A folder that belongs to whom the program runs as.
    pub(super) fn own_folder(&self, parent: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd, Errno> {
        own_folder(self.identity, parent.as_fd(), name, mode)
    }
}

fn own_folder(identity: Identity, parent: BorrowedFd<'_>, name: &[u8], mode: u32) -> Result<OwnedFd, Errno> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o755))?;
    if mode & !0o755 != 0 {
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    if identity.taken {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    mounting::open_beneath(parent, name, OFlags::PATH | OFlags::DIRECTORY)
}

/// Names that are masked in the workspace's own folder whether or not they are there: somebody may make them while the
/// program runs.
pub(super) fn mask_ahead() -> impl Iterator<Item = &'static str> {
    hidden_from_programs().filter_map(plain_name)
}

/// A name of the overlay's that does not exist, whatever lies below.
pub(super) fn whiteout(folder: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let (kind, nothing) = (FileType::CharacterDevice, rustix::fs::makedev(0, 0));
    match rustix::fs::mknodat(folder, name, kind, Mode::empty(), nothing) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// One file system, of a fixed size, for everything that the program writes.
fn make_private(identity: Identity, disk: u64) -> Result<OwnedFd, Errno> {
    let size = disk.to_string();
    let (uid, gid) = (identity.uid.to_string(), identity.gid.to_string());
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let options: &[(&std::ffi::CStr, &[u8])] =
        &[(c"size", size.as_bytes()), (c"mode", b"0700"), (c"uid", uid.as_bytes()), (c"gid", gid.as_bytes())];
    mounting::make(c"tmpfs", options, &[], attributes)
}

/// A file system for the pseudo terminals that the program makes itself; it sees nobody else's.
fn terminals(root: BorrowedFd<'_>) -> Result<(), Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options: &[(&std::ffi::CStr, &[u8])] =
        &[(c"ptmxmode", b"0666"), (c"mode", b"0600"), (c"max", MOST_TERMINALS)];
    match mounting::make(c"devpts", options, &[], attributes) {
        Ok(made) => mounting::attach(made.as_fd(), mounting::make_folder(root, b"dev/pts")?.as_fd()),
        // A kernel that has none at all.
        Err(Errno::NODEV) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Only processes: no keys, no settings of the kernel.
fn make_proc() -> Result<OwnedFd, Errno> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    mounting::make(c"proc", &[(c"subset", b"pid")], &[], attributes)
}
