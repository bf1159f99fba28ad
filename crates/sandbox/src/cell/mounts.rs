//! Mounts what a run request asks for: the masked workspace, private directories, toolchains, further paths; then the
//! new root replaces the old one.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use rustix::thread::{Gid, Uid};

use super::base_image::{ROOT_SITE, SYSTEM_DIRS};
use super::root_skeleton::{RootSkeleton, always_masked_names, whiteout};
use super::{CellRun, IdMappings, send_report};
use crate::error::{FailedStep, StepContext as _};
use crate::network::setup;
use crate::spec::NetworkMode;
use crate::sys::mount::{self, MountAccess, trimmed};
use crate::sys::process;
use crate::wire::{Bytes, MaskedPath, RunReport, RunRequest, WorkspaceView};

/// Top-level directories that exist in the new root besides the system's.
const EXISTING_DIRS: &[&str] = &["dev", "proc", "tmp"];

/// `/etc/hosts` for a gated network: the host's own entries would resolve names without the gate.
const HOSTS_FILE: &str = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n";

impl RootSkeleton {
    /// Pivots into the new root; the old one is stacked on top of it, reachable as `..`. Returns the new root's mount
    /// id.
    pub(crate) fn pivot(&self) -> Result<u64, FailedStep> {
        rustix::process::chdir(ROOT_SITE).step("new root")?;
        rustix::process::pivot_root(".", ".").step("new root")?;
        mount::number(self.root.as_fd(), c"").step("new root")
    }

    /// Sets up a network in which every address leads to the gate; returns the gate's sockets.
    pub(crate) fn set_up_gated_network(&self) -> Result<Vec<OwnedFd>, FailedStep> {
        let sockets = setup::set_up().step("network")?;
        self.replace_etc_file("hosts", HOSTS_FILE).step("names of hosts")?;
        Ok(sockets)
    }

    /// Mounts everything. Returns the handles that outlive the cell: the upper layer and the merged view.
    pub(crate) fn mount_all(&mut self, run: &CellRun) -> Result<Vec<OwnedFd>, FailedStep> {
        let CellRun { request, ids, .. } = run;
        match (request.network, self.network.take()) {
            (NetworkMode::None, None) => {}
            (NetworkMode::Loopback, None) => process::loopback_up().step("loopback")?,
            (NetworkMode::Gated, made) => {
                let sockets = made.map_or_else(|| self.set_up_gated_network(), Ok)?;
                let lent: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
                send_report(run.report.as_fd(), &RunReport::Network, &lent).step("network")?;
            }
            // Prepared for a different run.
            (_, Some(_)) => return Err(FailedStep { name: "network", errno: Errno::INVAL }),
        }
        if request.limits.disk != self.disk {
            mount::resize(self.private.as_fd(), request.limits.disk).step("private directories")?;
        }
        if request.home != self.home {
            return Err(FailedStep { name: "home directory", errno: Errno::INVAL });
        }
        let mut top_level_dirs = std::mem::take(&mut self.top_level_dirs);
        let mut shown = self.paths(request, ids.as_ref());
        // Outer paths before inner ones.
        shown.sort_by_key(|(path, ..)| trimmed(path).split(|byte| *byte == b'/').count());
        let mut handles = Vec::new();
        let mut layers = 0;
        for (path, _) in &shown {
            top_level_dirs.ensure(self, path).step("further path")?;
        }
        for (path, target) in &request.links {
            self.link(&mut top_level_dirs, trimmed(path), target).step("link")?;
        }
        for (path, what) in shown {
            match what {
                VisiblePath::Path(MountAccess::ReadWrite, ids) if request.drops_writes => {
                    layers += 1;
                    self.bind_discarding_writes(&path, layers, ids).step("further path")?;
                }
                VisiblePath::Path(access, ids) => match self.bind(&path, access, ids) {
                    // It existed when the request was built; running without it is safe.
                    Err(Errno::NOENT) => {}
                    done => done.step("further path")?,
                },
                VisiblePath::Workspace => handles = self.workspace(request, ids.as_ref())?,
            }
        }
        for path in &request.blank {
            self.mount_empty(path).step("credential file")?;
        }
        for scratch in &request.scratch {
            self.scratch(request, &scratch.name, &scratch.dir, ids.as_ref()).step("scratch directory")?;
        }
        top_level_dirs.close().step("new root")?;
        // Only the root itself: mounts in it keep their own flags.
        mount::close(self.root.as_fd()).step("new root")?;
        Ok(handles)
    }

    /// Bind-mounts a host file or directory at its own path.
    fn bind(&self, path: &[u8], access: MountAccess, ids: Option<&OwnedFd>) -> Result<(), Errno> {
        let source = mount::open_source(self.host.as_fd(), path)?;
        let is_dir = FileType::from_raw_mode(rustix::fs::fstat(&source)?.st_mode) == FileType::Directory;
        let tree = mount::clone_tree(source.as_fd())?;
        mount::restrict(tree.as_fd(), access, ids.map(OwnedFd::as_fd))?;
        let place = if is_dir {
            mount::make_directory(self.root.as_fd(), path)?
        } else {
            mount::make_file(self.root.as_fd(), path)?
        };
        mount::attach(tree.as_fd(), place.as_fd())
    }

    /// Creates a symlink, before any host path is mounted, and only on the private file system: in the shared root
    /// every run would see it.
    fn link(&self, top_level_dirs: &mut TopLevelDirs, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        let Some(cut) = path.iter().rposition(|byte| *byte == b'/') else { return Ok(()) };
        let (dir, name) = path.split_at_checked(cut).unwrap_or_default();
        top_level_dirs.ensure(self, path)?;
        // Something else is in the way; running without the symlink is safe.
        let Ok(dir) = mount::make_directory(self.root.as_fd(), dir) else { return Ok(()) };
        if rustix::fs::fstat(&dir)?.st_dev != rustix::fs::fstat(&self.private)?.st_dev {
            return Ok(());
        }
        match rustix::fs::symlinkat(target, &dir, trimmed(name)) {
            Ok(()) if self.identity.must_switch => {
                let (uid, gid) = (Uid::from_raw(self.identity.uid), Gid::from_raw(self.identity.gid));
                rustix::fs::chownat(&dir, trimmed(name), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
            }
            Err(Errno::EXIST) => Ok(()),
            made => made,
        }
    }

    /// Mounts a host path so that writes to it are dropped: a directory under an overlay, a file as a copy.
    fn bind_discarding_writes(&self, path: &[u8], number: usize, ids: Option<&OwnedFd>) -> Result<(), Errno> {
        let source = mount::open_source(self.host.as_fd(), path)?;
        let facts = rustix::fs::fstat(&source)?;
        let kind = FileType::from_raw_mode(facts.st_mode);
        if !matches!(kind, FileType::Directory | FileType::RegularFile) {
            // Writes to a pipe or a device cannot be dropped.
            return Ok(());
        }
        let name = format!("further-{number}");
        let room = self.make_owned_directory(&self.private, name.as_bytes(), 0o755)?;
        if kind == FileType::RegularFile {
            let own = self.own_file(&room, facts.st_mode & 0o777)?;
            let mut from =
                std::fs::File::from(mount::open_beneath(self.host.as_fd(), trimmed(path), OFlags::RDONLY)?);
            let copied = std::io::copy(&mut from, &mut std::fs::File::from(own));
            copied.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            let own = mount::open_beneath(room.as_fd(), b"file", OFlags::PATH)?;
            let tree = mount::clone_tree(own.as_fd())?;
            return mount::attach(tree.as_fd(), mount::make_file(self.root.as_fd(), path)?.as_fd());
        }
        let below = self.make_owned_directory(&room, b"lower", 0o755)?;
        self.make_owned_directory(&room, b"upper", facts.st_mode & 0o1777)?;
        self.make_owned_directory(&room, b"work", 0o755)?;
        let tree = mount::clone_tree(source.as_fd())?;
        mount::restrict(tree.as_fd(), MountAccess::ReadOnly, ids.map(OwnedFd::as_fd))?;
        mount::attach(tree.as_fd(), below.as_fd())?;
        // Overlay options name the layers relative to this directory.
        rustix::process::fchdir(&self.private)?;
        let at = |layer: &str| format!("{name}/{layer}").into_bytes();
        let (lower, upper, work) = (at("lower"), at("upper"), at("work"));
        let options: [(&std::ffi::CStr, &[u8]); 3] =
            [(c"lowerdir", &lower), (c"upperdir", &upper), (c"workdir", &work)];
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        check_opaque_xattr(&upper)?;
        let merged = mount::make(c"overlay", &options, &[c"userxattr"], attributes)?;
        mount::attach(merged.as_fd(), mount::make_directory(self.root.as_fd(), path)?.as_fd())
    }

    /// Creates a file owned by the program's user, open for writing.
    fn own_file(&self, dir: &OwnedFd, mode: u32) -> Result<OwnedFd, Errno> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::EXCL;
        let file = rustix::fs::openat(dir, "file", flags, Mode::from_raw_mode(mode))?;
        if self.identity.must_switch {
            let (uid, gid) = (Uid::from_raw(self.identity.uid), Gid::from_raw(self.identity.gid));
            rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        }
        Ok(file)
    }

    fn paths<'a>(
        &self,
        request: &RunRequest,
        ids: Option<&'a IdMappings>,
    ) -> Vec<(Vec<u8>, VisiblePath<'a>)> {
        let of_root = ids.map(|ids| &ids.of_root);
        let of_owner = ids.map(|ids| &ids.of_owner);
        let mut shown: Vec<(Vec<u8>, VisiblePath<'a>)> = Vec::new();
        let read = request.toolchains.iter().chain(&request.read);
        shown.extend(read.map(|path| (path.clone(), VisiblePath::Path(MountAccess::ReadOnly, of_root))));
        let write = request.write.iter();
        shown.extend(write.map(|path| (path.clone(), VisiblePath::Path(MountAccess::ReadWrite, of_owner))));
        if request.view != WorkspaceView::Absent {
            shown.push((request.workspace.clone(), VisiblePath::Workspace));
        }
        shown
    }

    fn workspace(&self, request: &RunRequest, ids: Option<&IdMappings>) -> Result<Vec<OwnedFd>, FailedStep> {
        let place = mount::make_directory(self.root.as_fd(), &request.workspace).step("workspace")?;
        let open =
            |name: &[u8]| mount::open_beneath(self.private.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY);
        if request.view == WorkspaceView::Fresh {
            self.make_owned_directory(&self.private, b"upper", 0o755).step("workspace")?;
            let upper = open(b"upper").step("workspace")?;
            let tree = mount::clone_tree(upper.as_fd()).step("workspace")?;
            mount::attach(tree.as_fd(), place.as_fd()).step("workspace")?;
            return Ok(vec![upper]);
        }
        let source = mount::open_source(self.host.as_fd(), &request.workspace).step("workspace")?;
        // Set-id bits cannot be created in here, not even by this process.
        let mode = rustix::fs::fstat(&source).step("workspace")?.st_mode & 0o1777;
        let tree = mount::clone_tree(source.as_fd()).step("workspace")?;
        mount::restrict(tree.as_fd(), MountAccess::ReadOnly, ids.map(|ids| ids.of_owner.as_fd()))
            .step("workspace")?;
        mount::attach(tree.as_fd(), self.lower.as_fd()).step("lower layer")?;
        if mode != 0o755 {
            rustix::fs::chmodat(&self.private, "mask", Mode::from_raw_mode(mode), AtFlags::empty())
                .step("mask layer")?;
        }
        self.masks(&self.mask, request, mode).step("mask layer")?;
        // Overlay options name the layers relative to this directory.
        rustix::process::fchdir(&self.private).step("overlay")?;
        let mut options: Vec<(&std::ffi::CStr, &[u8])> = vec![(c"lowerdir", b"mask:lower")];
        let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        if request.view == WorkspaceView::Layered {
            self.make_owned_directory(&self.private, b"upper", mode).step("upper layer")?;
            self.make_owned_directory(&self.private, b"work", 0o755).step("upper layer")?;
            check_opaque_xattr(b"upper").step("attributes on tmpfs (kernel 6.6)")?;
            options.extend([(c"upperdir", b"upper".as_slice()), (c"workdir", b"work")]);
        } else {
            attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        }
        let merged = mount::make(c"overlay", &options, &[c"userxattr"], attributes).step("overlay")?;
        mount::attach(merged.as_fd(), place.as_fd()).step("overlay")?;
        if request.view != WorkspaceView::Layered {
            return Ok(Vec::new());
        }
        let upper = open(b"upper").step("upper layer")?;
        let view = mount::open_beneath(merged.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
            .step("merged view")?;
        Ok(vec![upper, view])
    }

    /// Creates whiteouts in the mask layer: the names below do not exist for the program, and the workspace is not
    /// touched.
    fn masks(&self, mask: &OwnedFd, request: &RunRequest, mode: u32) -> Result<(), Errno> {
        let ahead = |name: &[u8]| request.ahead.iter().any(|one| one == name);
        for name in always_masked_names().filter(|name| !ahead(name.as_bytes())) {
            rustix::fs::unlinkat(mask, name, AtFlags::empty())?;
        }
        for name in &request.ahead {
            if !always_masked_names().any(|made| made.as_bytes() == name) {
                whiteout(mask.as_fd(), name)?;
            }
        }
        for scratch in &request.scratch {
            if ahead(&scratch.name) {
                rustix::fs::unlinkat(mask, &scratch.name, AtFlags::empty())?;
            }
            // A mount point, whatever the project has there.
            self.make_owned_directory(mask, &scratch.name, 0o755)?;
        }
        for MaskedPath { path, modes } in &request.masks {
            let mut here = mount::open_beneath(mask.as_fd(), b".", OFlags::PATH | OFlags::DIRECTORY)?;
            let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
            // The first mode is that of the workspace itself.
            let mut modes = modes.iter().skip(1).copied();
            while let Some(name) = names.next() {
                if names.peek().is_none() {
                    whiteout(here.as_fd(), name)?;
                    break;
                }
                match self.make_owned_directory(&here, name, modes.next().unwrap_or(mode) & 0o1777) {
                    Ok(_) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                here = mount::open_beneath(here.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY)?;
            }
        }
        Ok(())
    }

    /// Mounts an empty file or directory over an existing one.
    fn mount_empty(&self, path: &[u8]) -> Result<(), Errno> {
        let place = match mount::open_beneath(self.root.as_fd(), trimmed(path), OFlags::PATH) {
            // It is gone or not visible: a directory of another user is in the way, which the program cannot enter
            // either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
            place => place?,
        };
        let is_dir = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) == FileType::Directory;
        let empty = match is_dir {
            true => mount::make_directory(self.private.as_fd(), b"empty-directory")?,
            false => mount::make_file(self.private.as_fd(), b"empty")?,
        };
        let tree = mount::clone_tree(empty.as_fd())?;
        mount::restrict(tree.as_fd(), MountAccess::ReadOnly, None)?;
        mount::attach(tree.as_fd(), place.as_fd())
    }

    fn scratch(
        &self,
        request: &RunRequest,
        name: &[u8],
        dir: &[u8],
        ids: Option<&IdMappings>,
    ) -> Result<(), Errno> {
        let source = mount::open_source(self.host.as_fd(), dir)?;
        let tree = mount::clone_tree(source.as_fd())?;
        mount::restrict(tree.as_fd(), MountAccess::ReadWrite, ids.map(|ids| ids.of_root.as_fd()))?;
        let workspace = mount::open_beneath(self.root.as_fd(), trimmed(&request.workspace), OFlags::PATH)?;
        let place = mount::open_beneath(workspace.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY)?;
        mount::attach(tree.as_fd(), place.as_fd())
    }

    /// Detaches the old root and the mount point of the layers. The call takes its time to return, but the effect is
    /// immediate.
    pub(crate) fn detach_host_root(&self, root: u64) -> Result<(), FailedStep> {
        rustix::process::chdir("/").step("new root")?;
        rustix::mount::unmount("/..", UnmountFlags::DETACH).step("new root")?;
        match mount::is_uncovered_root(root) {
            true => Ok(()),
            false => Err(FailedStep { name: "new root", errno: Errno::BUSY }),
        }
    }
}

/// Top-level directories in which mount points are created: each is a directory of the private file system, so that
/// no other run sees them.
#[derive(Default)]
pub(super) struct TopLevelDirs {
    /// `None` where the top-level directory is itself mounted: another mount would cover it.
    laid: Vec<(Bytes, Option<OwnedFd>)>,
}

impl TopLevelDirs {
    pub(super) fn ensure(&mut self, skeleton: &RootSkeleton, path: &[u8]) -> Result<(), Errno> {
        let mut parts = trimmed(path).split(|byte| *byte == b'/');
        let Some(first) = parts.next() else { return Ok(()) };
        let there = SYSTEM_DIRS.iter().chain(EXISTING_DIRS).any(|name| name.as_bytes() == first);
        if there || self.laid.iter().any(|(name, _)| name == first) {
            return Ok(());
        }
        let Some(second) = parts.next() else {
            self.laid.push((first.to_vec(), None));
            return Ok(());
        };
        let tree = skeleton.mount_private_dir(&[b"ground-", first].concat(), 0o755, first)?;
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

    /// Makes the directories read-only.
    fn close(self) -> Result<(), Errno> {
        self.laid.iter().filter_map(|(_, tree)| tree.as_ref()).try_for_each(|tree| mount::close(tree.as_fd()))
    }
}

enum VisiblePath<'a> {
    Path(MountAccess, Option<&'a OwnedFd>),
    Workspace,
}

/// Whether a directory accepts the opaque xattr. An overlay on one that does not can be mounted, but removing a lower
/// directory in it fails.
fn check_opaque_xattr(upper: &[u8]) -> Result<(), Errno> {
    match rustix::fs::getxattr(upper, "user.overlay.opaque", &mut [0_u8; 1]) {
        Ok(_) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_layer_without_xattrs_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check_opaque_xattr(dir.path().as_os_str().as_encoded_bytes()), Ok(()));
        assert_eq!(check_opaque_xattr(b"/proc"), Err(Errno::OPNOTSUPP));
    }
}
