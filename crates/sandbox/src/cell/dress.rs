//! What an order asks for: the workspace under its masks, the private folders, toolchains, further paths; then the
//! new root takes the old one's place.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};

use super::shell::{SITE, Shell};
use super::{Errand, Ids, tell};
use crate::fault::{Named as _, Step};
use crate::network::inside;
use crate::spec::Network;
use crate::sys::mounting::{self, Access, trimmed};
use crate::sys::process;
use crate::wire::{Mask, Order, Report, View};

/// Where private folders and layers are while the room is furnished; gone before the program starts.
const PRIVATE: &[u8] = b".private";

impl Shell {
    /// Furnishes the room and moves in. Gives the handles that outlive it: the upper layer and the merged view.
    pub(crate) fn dress(self, errand: &Errand) -> Result<Vec<OwnedFd>, Step> {
        let Errand { order, ids, .. } = errand;
        match order.network {
            Network::None => {}
            Network::Loopback => process::loopback_up().step("loopback")?,
            Network::Gated => {
                let sockets = inside::set_up().step("network")?;
                let lent: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
                tell(errand.report.as_fd(), &Report::Network, &lent).step("network")?;
            }
        }
        let private = self.private(order).step("private folders")?;
        self.names(order).step("user database")?;
        let mut shown = self.paths(order, ids.as_ref());
        // The outer before what lies in it.
        shown.sort_by_key(|(path, ..)| trimmed(path).split(|byte| *byte == b'/').count());
        let mut handles = Vec::new();
        for (path, what) in shown {
            match what {
                Shown::Path(access, ids) => match self.show(&path, access, ids) {
                    // It was there when the order was written; a program without it is safe.
                    Err(Errno::NOENT) => {}
                    done => done.step("further path")?,
                },
                Shown::Workspace => handles = self.workspace(&private, order, ids.as_ref())?,
            }
        }
        for path in &order.blank {
            self.blank(&private, path).step("credential file")?;
        }
        for scratch in &order.scratch {
            self.scratch(order, &scratch.name, &scratch.folder, ids.as_ref()).step("scratch folder")?;
        }
        drop(private);
        self.move_in().step("new root")?;
        Ok(handles)
    }

    /// One file system, of a fixed size, for everything that the program writes.
    fn private(&self, order: &Order) -> Result<OwnedFd, Errno> {
        let size = order.limits.disk.to_string();
        let (uid, gid) = (self.identity.uid.to_string(), self.identity.gid.to_string());
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let options: &[(&std::ffi::CStr, &[u8])] = &[
            (c"size", size.as_bytes()),
            (c"mode", b"0700"),
            (c"uid", uid.as_bytes()),
            (c"gid", gid.as_bytes()),
        ];
        let tree = mounting::make(c"tmpfs", options, &[], attributes)?;
        let place = mounting::make_folder(self.root.as_fd(), PRIVATE)?;
        mounting::attach(tree.as_fd(), place.as_fd())?;
        for (name, mode, at) in [
            ("tmp", 0o1777, Some(&b"tmp"[..])),
            ("home", 0o700, Some(order.home.as_slice())),
            ("shm", 0o1777, Some(b"dev/shm")),
            ("upper", 0o755, None),
            ("work", 0o755, None),
            ("mask", 0o755, None),
            ("lower", 0o755, None),
        ] {
            self.own_folder(&tree, name.as_bytes(), mode)?;
            if let Some(at) = at {
                self.lend(&tree, name.as_bytes(), at)?;
            }
        }
        Ok(tree)
    }

    /// Shows a folder of the private file system at a place of the room.
    fn lend(&self, private: &OwnedFd, name: &[u8], at: &[u8]) -> Result<(), Errno> {
        let source = mounting::open_beneath(private.as_fd(), name, OFlags::PATH)?;
        let tree = mounting::clone_tree(source.as_fd())?;
        let place = mounting::make_folder(self.root.as_fd(), at)?;
        mounting::attach(tree.as_fd(), place.as_fd())
    }

    /// A folder that belongs to whom the program runs as.
    fn own_folder(&self, parent: &OwnedFd, name: &[u8], mode: u32) -> Result<(), Errno> {
        rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700))?;
        rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
        if self.identity.taken {
            let (uid, gid) = (Uid::from_raw(self.identity.uid), Gid::from_raw(self.identity.gid));
            rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    /// Who the program finds itself to be.
    fn names(&self, order: &Order) -> Result<(), Errno> {
        let home = String::from_utf8_lossy(&order.home).into_owned();
        let (uid, gid) = (self.identity.uid, self.identity.gid);
        let users = format!(
            "agent:x:{uid}:{gid}:agent:{home}:/bin/sh\nroot:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n"
        );
        let groups = format!("agent:x:{gid}:\nroot:x:0:\nnogroup:x:65534:\n");
        for (name, text) in [("passwd", users), ("group", groups)] {
            let made = format!(".{name}");
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::EXCL;
            let file = rustix::fs::openat(&self.root, &made, flags, Mode::from_raw_mode(0o444))?;
            rustix::io::write(&file, text.as_bytes())?;
            let tree = mounting::clone_tree(file.as_fd())?;
            mounting::restrict(tree.as_fd(), Access::ReadOnly, None)?;
            let path = format!("etc/{name}");
            // A system without such a file has no names to replace.
            if let Ok(place) = mounting::open_beneath(self.root.as_fd(), path.as_bytes(), OFlags::PATH) {
                mounting::attach(tree.as_fd(), place.as_fd())?;
            }
            rustix::fs::unlinkat(&self.root, &made, AtFlags::empty())?;
        }
        Ok(())
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

    fn workspace(&self, private: &OwnedFd, order: &Order, ids: Option<&Ids>) -> Result<Vec<OwnedFd>, Step> {
        let place = mounting::make_folder(self.root.as_fd(), &order.workspace).step("workspace")?;
        let upper = mounting::open_beneath(private.as_fd(), b"upper", OFlags::RDONLY | OFlags::DIRECTORY)
            .step("upper layer")?;
        if order.view == View::Fresh {
            let tree = mounting::clone_tree(upper.as_fd()).step("workspace")?;
            mounting::attach(tree.as_fd(), place.as_fd()).step("workspace")?;
            return Ok(vec![upper]);
        }
        let source = mounting::open_source(self.host.as_fd(), &order.workspace).step("workspace")?;
        let mode = rustix::fs::fstat(&source).step("workspace")?.st_mode & 0o7777;
        let tree = mounting::clone_tree(source.as_fd()).step("workspace")?;
        mounting::restrict(tree.as_fd(), Access::ReadOnly, ids.map(|ids| ids.of_owner.as_fd()))
            .step("workspace")?;
        let lower = mounting::open_beneath(private.as_fd(), b"lower", OFlags::PATH).step("lower layer")?;
        mounting::attach(tree.as_fd(), lower.as_fd()).step("lower layer")?;
        self.masks(private, order, mode).step("mask layer")?;
        for layer in ["upper", "mask"] {
            rustix::fs::chmodat(private, layer, Mode::from_raw_mode(mode), AtFlags::empty())
                .step("upper layer")?;
        }
        let site = format!("{SITE}/{}", String::from_utf8_lossy(PRIVATE));
        let (below, above) = (format!("{site}/mask:{site}/lower"), format!("{site}/upper"));
        let work = format!("{site}/work");
        let mut options: Vec<(&std::ffi::CStr, &[u8])> = vec![(c"lowerdir", below.as_bytes())];
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if order.view == View::Layered {
            options.extend([(c"upperdir", above.as_bytes()), (c"workdir", work.as_bytes())]);
        } else {
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        let merged = mounting::make(c"overlay", &options, &[c"userxattr"], attributes).step("overlay")?;
        mounting::attach(merged.as_fd(), place.as_fd()).step("overlay")?;
        if order.view != View::Layered {
            return Ok(Vec::new());
        }
        let view = mounting::open_beneath(merged.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
            .step("merged view")?;
        Ok(vec![upper, view])
    }

    /// Whiteouts in a layer of their own: names below it do not exist, and the workspace is not touched.
    fn masks(&self, private: &OwnedFd, order: &Order, mode: u32) -> Result<(), Errno> {
        for scratch in order.scratch.iter().filter(|scratch| !scratch.name.contains(&b'/')) {
            // A place to mount on, whatever the project has there.
            let mask = mounting::open_beneath(private.as_fd(), b"mask", OFlags::PATH | OFlags::DIRECTORY)?;
            self.own_folder(&mask, &scratch.name, 0o755)?;
        }
        for Mask { path, modes } in &order.masks {
            let mut here =
                mounting::open_beneath(private.as_fd(), b"mask", OFlags::PATH | OFlags::DIRECTORY)?;
            let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
            // The first mode is the workspace's own.
            let mut modes = modes.iter().skip(1).copied();
            while let Some(name) = names.next() {
                if names.peek().is_none() {
                    let whiteout = rustix::fs::makedev(0, 0);
                    let kind = FileType::CharacterDevice;
                    match rustix::fs::mknodat(&here, name, kind, Mode::empty(), whiteout) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    break;
                }
                match self.own_folder(&here, name, modes.next().unwrap_or(mode) & 0o7777) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                here = mounting::open_beneath(here.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY)?;
            }
        }
        Ok(())
    }

    /// Puts an empty file over one that is there.
    fn blank(&self, private: &OwnedFd, path: &[u8]) -> Result<(), Errno> {
        let Ok(place) = mounting::open_beneath(self.root.as_fd(), trimmed(path), OFlags::PATH) else {
            return Ok(());
        };
        let empty = mounting::make_file(private.as_fd(), b"empty")?;
        let tree = mounting::clone_tree(empty.as_fd())?;
        mounting::restrict(tree.as_fd(), Access::ReadOnly, None)?;
        mounting::attach(tree.as_fd(), place.as_fd())
    }

    fn scratch(&self, order: &Order, name: &[u8], folder: &[u8], ids: Option<&Ids>) -> Result<(), Errno> {
        let source = mounting::open_source(self.host.as_fd(), folder)?;
        let tree = mounting::clone_tree(source.as_fd())?;
        mounting::restrict(tree.as_fd(), Access::ReadWrite, ids.map(|ids| ids.of_root.as_fd()))?;
        let workspace = mounting::open_beneath(self.root.as_fd(), trimmed(&order.workspace), OFlags::PATH)?;
        // Deeper down the project may have a link or a file there: a link is followed nowhere here.
        let Ok(place) = mounting::make_folder(workspace.as_fd(), name) else { return Ok(()) };
        mounting::attach(tree.as_fd(), place.as_fd())
    }

    /// The new root becomes the root; the old one, the layers and the private folders' own place are gone.
    fn move_in(self) -> Result<(), Errno> {
        let private = format!("{SITE}/{}", String::from_utf8_lossy(PRIVATE));
        rustix::mount::unmount(private.as_str(), UnmountFlags::DETACH)?;
        rustix::fs::unlinkat(&self.root, PRIVATE, AtFlags::REMOVEDIR)?;
        rustix::process::chdir(SITE)?;
        rustix::process::pivot_root(".", ".")?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        rustix::process::chdir("/")?;
        // Only the root itself: what is mounted in it has its own say.
        rustix::mount::mount_remount(
            "/",
            rustix::mount::MountFlags::BIND
                | rustix::mount::MountFlags::RDONLY
                | rustix::mount::MountFlags::NOSUID
                | rustix::mount::MountFlags::NODEV,
            "",
        )
    }
}

enum Shown<'a> {
    Path(Access, Option<&'a OwnedFd>),
    Workspace,
}
