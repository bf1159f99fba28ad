//! What an order asks for: the workspace under its masks, the private folders, toolchains, further paths; then the
//! new root takes the old one's place.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use rustix::thread::{Gid, Uid};

use super::shell::{Shell, mask_ahead, whiteout};
use super::template::{SITE, SYSTEM};
use super::{Errand, Ids, tell};
use crate::fault::{Named as _, Step};
use crate::network::inside;
use crate::spec::Network;
use crate::sys::mounting::{self, Access, trimmed};
use crate::sys::process;
use crate::wire::{Bytes, Mask, Order, Report, View};

/// Of the first folder of a path there is nothing of the host in the room, but for these.
const THERE: &[&str] = &["dev", "proc", "tmp"];

/// Where names are answered at the gate, the host's own names would be addresses before it is asked.
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n";

impl Shell {
    /// The new root becomes the root; the old one lies over it, and "up" leads there. Gives the number of its mount.
    pub(crate) fn move_in(&self) -> Result<u64, Step> {
        rustix::process::chdir(SITE).step("new root")?;
        rustix::process::pivot_root(".", ".").step("new root")?;
        mounting::number(self.root.as_fd(), c"").step("new root")
    }

    /// Makes a network whose every address leads to a gate; gives the gate's sockets.
    pub(crate) fn lead_to_a_gate(&self) -> Result<Vec<OwnedFd>, Step> {
        let sockets = inside::set_up().step("network")?;
        self.own_file_of_etc("hosts", HOSTS).step("names of hosts")?;
        Ok(sockets)
    }

    /// Furnishes the room. Gives the handles that outlive it: the upper layer and the merged view.
    pub(crate) fn dress(&mut self, errand: &Errand) -> Result<Vec<OwnedFd>, Step> {
        let Errand { order, ids, .. } = errand;
        match (order.network, self.network.take()) {
            (Network::None, None) => {}
            (Network::Loopback, None) => process::loopback_up().step("loopback")?,
            (Network::Gated, made) => {
                let sockets = made.map_or_else(|| self.lead_to_a_gate(), Ok)?;
                let lent: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
                tell(errand.report.as_fd(), &Report::Network, &lent).step("network")?;
            }
            // Made for another run.
            (_, Some(_)) => return Err(Step { name: "network", errno: Errno::INVAL }),
        }
        if order.limits.disk != self.disk {
            mounting::resize(self.private.as_fd(), order.limits.disk).step("private folders")?;
        }
        if order.home != self.home {
            return Err(Step { name: "home folder", errno: Errno::INVAL });
        }
        let mut grounds = std::mem::take(&mut self.grounds);
        let mut shown = self.paths(order, ids.as_ref());
        // The outer before what lies in it.
        shown.sort_by_key(|(path, ..)| trimmed(path).split(|byte| *byte == b'/').count());
        let mut handles = Vec::new();
        let mut layers = 0;
        for (path, _) in &shown {
            grounds.lay(self, path).step("further path")?;
        }
        for (path, target) in &order.links {
            self.link(&mut grounds, trimmed(path), target).step("link")?;
        }
        for (path, what) in shown {
            match what {
                Shown::Path(Access::ReadWrite, ids) if order.drops_writes => {
                    layers += 1;
                    self.layer(&path, layers, ids).step("further path")?;
                }
                Shown::Path(access, ids) => match self.show(&path, access, ids) {
                    // It was there when the order was written; a program without it is safe.
                    Err(Errno::NOENT) => {}
                    done => done.step("further path")?,
                },
                Shown::Workspace => handles = self.workspace(order, ids.as_ref())?,
            }
        }
        for path in &order.blank {
            self.blank(path).step("credential file")?;
        }
        for scratch in &order.scratch {
            self.scratch(order, &scratch.name, &scratch.folder, ids.as_ref()).step("scratch folder")?;
        }
        grounds.close().step("new root")?;
        // Only the root itself: what is mounted in it has its own say.
        mounting::close(self.root.as_fd()).step("new root")?;
        Ok(handles)
    }

    /// Shows a file or folder of the host at its own path.
    fn show(&self, path: &[u8], access: Access, ids: Option<&OwnedFd>) -> Result<(), Errno> {
        let source = mounting::open_source(self.host.as_fd(), path)?;
        let folder = FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode) == FileType::Directory;
        let tree = mounting::clone_tree(source.as_fd())?;
        mounting::restrict(tree.as_fd(), access, ids.map(OwnedFd::as_fd))?;
        let place = if folder {
            mounting::make_folder(self.root.as_fd(), path)?
        } else {
            mounting::make_file(self.root.as_fd(), path)?
        };
        mounting::attach(tree.as_fd(), place.as_fd())
    }

    /// Makes a link, before anything of the host is shown, where there are folders of the run's own: in the root's folder every
    /// run would learn of it.
    fn link(&self, grounds: &mut Grounds, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        let Some(cut) = path.iter().rposition(|byte| *byte == b'/') else { return Ok(()) };
        let (folder, name) = path.split_at_checked(cut).unwrap_or_default();
        grounds.lay(self, path)?;
        // Something else is on the way; a program without the link is safe.
        let Ok(folder) = mounting::make_folder(self.root.as_fd(), folder) else { return Ok(()) };
        if rustix::fs::fstat(&folder)?.st_dev != rustix::fs::fstat(&self.private)?.st_dev {
            return Ok(());
        }
        match rustix::fs::symlinkat(target, &folder, trimmed(name)) {
            Ok(()) if self.identity.taken => {
                let (uid, gid) = (Uid::from_raw(self.identity.uid), Gid::from_raw(self.identity.gid));
                rustix::fs::chownat(&folder, trimmed(name), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
            Err(Errno::EXIST) => Ok(()),
            made => made,
        }
    }

    /// Shows a file or folder of the host so that what is written to it is dropped: a folder under a layer of its own, of a
    /// file a copy.
    fn layer(&self, path: &[u8], number: usize, ids: Option<&OwnedFd>) -> Result<(), Errno> {
        let source = mounting::open_source(self.host.as_fd(), path)?;
        let facts = rustix::fs::fstat(&source)?;
        let kind = FileType::from_raw_mode(facts.st_mode);
        if !matches!(kind, FileType::Directory | FileType::RegularFile) {
            // What is written to a pipe or a device cannot be dropped.
            return Ok(());
        }
        let name = format!("further-{number}");
        let room = self.own_folder(&self.private, name.as_bytes(), 0o755)?;
        if kind == FileType::RegularFile {
            let own = self.own_file(&room, facts.st_mode & 0o777)?;
            let mut from = std::fs::File::from(mounting::open_beneath(
                self.host.as_fd(),
                trimmed(path),
                OFlags::RDONLY,
            )?);
            let copied = std::io::copy(&mut from, &mut std::fs::File::from(own));
            copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let own = mounting::open_beneath(room.as_fd(), b"file", OFlags::PATH)?;
            let tree = mounting::clone_tree(own.as_fd())?;
            return mounting::attach(tree.as_fd(), mounting::make_file(self.root.as_fd(), path)?.as_fd());
        }
        let below = self.own_folder(&room, b"lower", 0o755)?;
        self.own_folder(&room, b"upper", facts.st_mode & 0o1777)?;
        self.own_folder(&room, b"work", 0o755)?;
        let tree = mounting::clone_tree(source.as_fd())?;
        mounting::restrict(tree.as_fd(), Access::ReadOnly, ids.map(OwnedFd::as_fd))?;
        mounting::attach(tree.as_fd(), below.as_fd())?;
        // The layers are named from here.
        rustix::process::fchdir(&self.private)?;
        let at = |layer: &str| format!("{name}/{layer}").into_bytes();
        let (lower, upper, work) = (at("lower"), at("upper"), at("work"));
        let options: [(&std::ffi::CStr, &[u8]); 3] =
            [(c"lowerdir", &lower), (c"upperdir", &upper), (c"workdir", &work)];
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        takes_marks(&upper)?;
        let merged = mounting::make(c"overlay", &options, &[c"userxattr"], attributes)?;
        mounting::attach(merged.as_fd(), mounting::make_folder(self.root.as_fd(), path)?.as_fd())
    }

    /// A new file of whom the program runs as, open for writing.
    fn own_file(&self, folder: &OwnedFd, mode: u32) -> Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::EXCL;
        let file = rustix::fs::openat(folder, "file", flags, Mode::from_raw_mode(mode))?;
        if self.identity.taken {
            let (uid, gid) = (Uid::from_raw(self.identity.uid), Gid::from_raw(self.identity.gid));
            rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        }
        Ok(file)
    }

    fn paths<'a>(&self, order: &Order, ids: Option<&'a Ids>) -> Vec<(Vec<u8>, Shown<'a>)> {
        let of_root = ids.map(|ids| &ids.of_root);
        let of_owner = ids.map(|ids| &ids.of_owner);
        let mut shown: Vec<(Vec<u8>, Shown<'a>)> = Vec::new();
        let read = order.toolchains.iter().chain(&order.read);
        shown.extend(read.map(|path| (path.clone(), Shown::Path(Access::ReadOnly, of_root))));
        let write = order.write.iter();
        shown.extend(write.map(|path| (path.clone(), Shown::Path(Access::ReadWrite, of_owner))));
        if order.view != View::Absent {
            shown.push((order.workspace.clone(), Shown::Workspace));
        }
        shown
    }

    fn workspace(&self, order: &Order, ids: Option<&Ids>) -> Result<Vec<OwnedFd>, Step> {
        let place = mounting::make_folder(self.root.as_fd(), &order.workspace).step("workspace")?;
        let open = |name: &[u8]| {
            mounting::open_beneath(self.private.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY)
        };
        if order.view == View::Fresh {
            self.own_folder(&self.private, b"upper", 0o755).step("workspace")?;
            let upper = open(b"upper").step("workspace")?;
            let tree = mounting::clone_tree(upper.as_fd()).step("workspace")?;
            mounting::attach(tree.as_fd(), place.as_fd()).step("workspace")?;
            return Ok(vec![upper]);
        }
        let source = mounting::open_source(self.host.as_fd(), &order.workspace).step("workspace")?;
        // Nobody makes set-id bits in here, not even this process.
        let mode = rustix::fs::fstat(&source).step("workspace")?.st_mode & 0o1777;
        let tree = mounting::clone_tree(source.as_fd()).step("workspace")?;
        mounting::restrict(tree.as_fd(), Access::ReadOnly, ids.map(|ids| ids.of_owner.as_fd()))
            .step("workspace")?;
        mounting::attach(tree.as_fd(), self.lower.as_fd()).step("lower layer")?;
        if mode != 0o755 {
            rustix::fs::chmodat(&self.private, "mask", Mode::from_raw_mode(mode), AtFlags::empty())
                .step("mask layer")?;
        }
        self.masks(&self.mask, order, mode).step("mask layer")?;
        // The layers are named from here.
        rustix::process::fchdir(&self.private).step("overlay")?;
        let mut options: Vec<(&std::ffi::CStr, &[u8])> = vec![(c"lowerdir", b"mask:lower")];
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if order.view == View::Layered {
            self.own_folder(&self.private, b"upper", mode).step("upper layer")?;
            self.own_folder(&self.private, b"work", 0o755).step("upper layer")?;
            takes_marks(b"upper").step("attributes on tmpfs (kernel 6.6)")?;
            options.extend([(c"upperdir", b"upper".as_slice()), (c"workdir", b"work")]);
        } else {
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        let merged = mounting::make(c"overlay", &options, &[c"userxattr"], attributes).step("overlay")?;
        mounting::attach(merged.as_fd(), place.as_fd()).step("overlay")?;
        if order.view != View::Layered {
            return Ok(Vec::new());
        }
        let upper = open(b"upper").step("upper layer")?;
        let view = mounting::open_beneath(merged.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
            .step("merged view")?;
        Ok(vec![upper, view])
    }

    /// Whiteouts in a layer of their own: names below it do not exist, and the workspace is not touched.
    fn masks(&self, mask: &OwnedFd, order: &Order, mode: u32) -> Result<(), Errno> {
        let ahead = |name: &[u8]| order.ahead.iter().any(|one| one == name);
        for name in mask_ahead().filter(|name| !ahead(name.as_bytes())) {
            rustix::fs::unlinkat(mask, name, AtFlags::empty())?;
        }
        for name in &order.ahead {
            if !mask_ahead().any(|made| made.as_bytes() == name) {
                whiteout(mask.as_fd(), name)?;
            }
        }
        for scratch in &order.scratch {
            if ahead(&scratch.name) {
                rustix::fs::unlinkat(mask, &scratch.name, AtFlags::empty())?;
            }
            // A place to mount on, whatever the project has there.
            self.own_folder(mask, &scratch.name, 0o755)?;
        }
        for Mask { path, modes } in &order.masks {
            let mut here = mounting::open_beneath(mask.as_fd(), b".", OFlags::PATH | OFlags::DIRECTORY)?;
            let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
            // The first mode is the workspace's own.
            let mut modes = modes.iter().skip(1).copied();
            while let Some(name) = names.next() {
                if names.peek().is_none() {
                    whiteout(here.as_fd(), name)?;
                    break;
                }
                match self.own_folder(&here, name, modes.next().unwrap_or(mode) & 0o1777) {
                    Ok(_) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                here = mounting::open_beneath(here.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY)?;
            }
        }
        Ok(())
    }

    /// Puts an empty file, or folder, over one that is there.
    fn blank(&self, path: &[u8]) -> Result<(), Errno> {
        let place = match mounting::open_beneath(self.root.as_fd(), trimmed(path), OFlags::PATH) {
            // It went away, or is not shown: another user's folder is on the way, where nobody in here gets either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
            place => place?,
        };
        let folder = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) == FileType::Directory;
        let empty = match folder {
            true => mounting::make_folder(self.private.as_fd(), b"empty-folder")?,
            false => mounting::make_file(self.private.as_fd(), b"empty")?,
        };
        let tree = mounting::clone_tree(empty.as_fd())?;
        mounting::restrict(tree.as_fd(), Access::ReadOnly, None)?;
        mounting::attach(tree.as_fd(), place.as_fd())
    }

    fn scratch(&self, order: &Order, name: &[u8], folder: &[u8], ids: Option<&Ids>) -> Result<(), Errno> {
        let source = mounting::open_source(self.host.as_fd(), folder)?;
        let tree = mounting::clone_tree(source.as_fd())?;
        mounting::restrict(tree.as_fd(), Access::ReadWrite, ids.map(|ids| ids.of_root.as_fd()))?;
        let workspace = mounting::open_beneath(self.root.as_fd(), trimmed(&order.workspace), OFlags::PATH)?;
        let place = mounting::open_beneath(workspace.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY)?;
        mounting::attach(tree.as_fd(), place.as_fd())
    }

    /// The old root and the layers' own place are gone. The kernel takes its time to answer, but at once they are.
    pub(crate) fn leave_host(&self, root: u64) -> Result<(), Step> {
        rustix::process::chdir("/").step("new root")?;
        rustix::mount::unmount("/..", UnmountFlags::DETACH).step("new root")?;
        match mounting::is_bare_root(root) {
            true => Ok(()),
            false => Err(Step { name: "new root", errno: Errno::BUSY }),
        }
    }
}

/// The first folders of paths in which places for mounts are made: each a folder of the private file system, so that
/// no other run learns of them.
#[derive(Default)]
pub(super) struct Grounds {
    /// Without a mount where the first folder is itself shown: a ground would cover it.
    laid: Vec<(Bytes, Option<OwnedFd>)>,
}

impl Grounds {
    pub(super) fn lay(&mut self, shell: &Shell, path: &[u8]) -> Result<(), Errno> {
        let mut parts = trimmed(path).split(|byte| *byte == b'/');
        let Some(first) = parts.next() else { return Ok(()) };
        let there = SYSTEM.iter().chain(THERE).any(|name| name.as_bytes() == first);
        if there || self.laid.iter().any(|(name, _)| name == first) {
            return Ok(());
        }
        let Some(second) = parts.next() else {
            self.laid.push((first.to_vec(), None));
            return Ok(());
        };
        let tree = shell.lend(&[b"ground-", first].concat(), 0o755, first)?;
        if first == b"var" {
            for (target, link) in [("/tmp", "tmp"), ("/run", "run")] {
                if link.as_bytes() != second {
                    rustix::fs::symlinkat(target, &tree, link)?;
                }
            }
        }
        self.laid.push((first.to_vec(), Some(tree)));
        Ok(())
    }

    /// What was laid cannot be written any more.
    fn close(self) -> Result<(), Errno> {
        self.laid
            .iter()
            .filter_map(|(_, tree)| tree.as_ref())
            .try_for_each(|tree| mounting::close(tree.as_fd()))
    }
}

enum Shown<'a> {
    Path(Access, Option<&'a OwnedFd>),
    Workspace,
}

/// Whether a folder can be marked as opaque. An overlay over one that cannot is mounted, and whoever removes a folder that lies
/// below it gets an error.
fn takes_marks(upper: &[u8]) -> Result<(), Errno> {
    match rustix::fs::getxattr(upper, "user.overlay.opaque", &mut [0_u8; 1]) {
        Ok(_) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upper_layer_without_attributes_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(takes_marks(folder.path().as_os_str().as_encoded_bytes()), Ok(()));
        assert_eq!(takes_marks(b"/proc"), Err(Errno::OPNOTSUPP));
    }
}
