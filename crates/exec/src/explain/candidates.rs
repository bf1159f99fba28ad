//! Sorts the denials of a run by the grant that would permit them.

use std::collections::BTreeSet;
use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use vambrace_sandbox::{
    DenialRule, DenialSource, DeniedOperation, Filesystem, NetworkMode, Sandbox, SandboxDenial, Spec, Tier,
};

use super::{Grant, ModeGrant};

/// The kernel's limit (MAXSYMLINKS).
const MAX_SYMLINKS: usize = 40;

/// The denials, sorted by the grant that would permit them.
#[derive(Debug, Default)]
pub(super) struct GrantCandidates {
    look: BTreeSet<PathBuf>,
    /// Directories of symlinks that were looked up.
    look_links: BTreeSet<PathBuf>,
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
    pub(super) modes: BTreeSet<ModeGrant>,
    pub(super) never: BTreeSet<String>,
    pub(super) no_access: BTreeSet<String>,
    pub(super) in_place_of: BTreeSet<String>,
}

impl GrantCandidates {
    pub(super) fn add(
        &mut self,
        denial: &SandboxDenial,
        inside: bool,
        spec: &Spec,
        tier: Tier,
        sandbox: &Sandbox,
        useless: &[ModeGrant],
    ) {
        let path = &denial.path;
        let looks = matches!(
            denial.operation,
            DeniedOperation::Look | DeniedOperation::Read | DeniedOperation::Execute
        );
        if looks && !inside && path.symlink_metadata().is_err_and(|error| error.kind() == NotFound) {
            // A path that does not exist cannot be granted.
            return;
        }
        let mode = match spec.filesystem {
            Filesystem::Deny if inside && looks => Some(ModeGrant::Read),
            // Without namespaces there is no overlay for writes.
            _ if inside && tier != Tier::NoUserns => Some(ModeGrant::ReadWrite),
            // But a new file can be created in an empty directory.
            Filesystem::Read
                if inside
                    && denial.operation == DeniedOperation::Write
                    && path.symlink_metadata().is_err() =>
            {
                Some(ModeGrant::Write).filter(|mode| !useless.contains(mode))
            }
            _ => None,
        };
        let whole = match denial.operation {
            DeniedOperation::MoveTo if path.is_dir() => path.clone(),
            // Landlock reports the directory itself.
            operation if operation.changes_directory() && denial.source != DenialSource::Landlock => {
                existing(path.parent().unwrap_or(path))
            }
            operation if operation.changes() => existing(path),
            _ => path.clone(),
        };
        // The target of a symlink is granted; the symlink itself becomes visible with its directory.
        let (links, real) = follow_symlinks(&whole);
        let whole = real.unwrap_or(whole);
        let links = if denial.rule == DenialRule::NotShown { links } else { BTreeSet::new() };
        match (denial.operation, denial.rule) {
            (DeniedOperation::Call, _) if is_internet_socket(path) && tier != Tier::NoUserns => {
                self.modes.insert(ModeGrant::Loopback);
            }
            (DeniedOperation::Call, _) | (_, DenialRule::Masked) => {
                self.never.insert(path.display().to_string());
            }
            _ if let Some(mode) = mode => {
                self.modes.insert(mode);
            }
            _ if inside || links.iter().chain([&whole]).any(|path| !sandbox.may_show(path)) => {
                self.never.insert(path.display().to_string());
            }
            (operation, _) if !is_accessible(&whole, operation) => {
                self.no_access.insert(path.display().to_string());
            }
            // The gate answers DNS without this file.
            _ if spec.network == NetworkMode::Gated && path == Path::new("/etc/resolv.conf") => {}
            (DeniedOperation::Look, _) => {
                self.look_links.extend(links);
                self.look.insert(whole);
            }
            (operation, _) if operation.changes() => {
                let is_granted = |granted: &PathBuf| granted.canonicalize().is_ok_and(|real| real == *path);
                if operation.changes_directory() && spec.write.iter().chain(&spec.read).any(is_granted) {
                    self.in_place_of.insert(path.display().to_string());
                }
                self.read.extend(links);
                self.write.insert(whole);
            }
            _ => {
                self.read.extend(links);
                self.read.insert(whole);
            }
        }
    }

    pub(super) fn grants(&self) -> Vec<Grant> {
        let write = outermost(&self.write);
        let covered = |path: &PathBuf| write.iter().any(|outer| path.starts_with(outer));
        let mut read = outermost(&self.read);
        if self.read.is_empty() && write.is_empty() && self.modes.is_empty() {
            // A parent directory becomes visible with the path below it.
            let on_the_way =
                |path: &PathBuf| self.look.iter().any(|one| one != path && one.starts_with(path));
            let met = self.look.iter().filter(|path| !on_the_way(path));
            read = outermost(&met.chain(&self.look_links).cloned().collect());
        }
        read.retain(|path| !covered(path));
        let mut grants: Vec<Grant> = self.modes.iter().map(|mode| mode.grant()).collect();
        grants.extend(read.into_iter().map(Grant::Read));
        grants.extend(write.into_iter().map(Grant::Write));
        grants
    }
}

/// Sockets of other families do not work with any network.
fn is_internet_socket(call: &Path) -> bool {
    ["socket (IPv4)", "socket (IPv6)"].iter().any(|socket| call == Path::new(socket))
}

/// The path, or its nearest existing parent: only existing paths can be granted.
fn existing(path: &Path) -> PathBuf {
    let there = |path: &&Path| path.symlink_metadata().is_ok();
    path.ancestors().find(there).unwrap_or_else(|| Path::new("/")).to_owned()
}

/// Whether the user has this access.
fn is_accessible(path: &Path, operation: DeniedOperation) -> bool {
    let access = match operation {
        DeniedOperation::Read => Access::READ_OK,
        DeniedOperation::Execute => Access::EXEC_OK,
        operation if operation.changes() => Access::WRITE_OK,
        _ => Access::EXISTS,
    };
    rustix::fs::access(path, access).is_ok()
}

/// The directories of all symlinks in a path, and its target if that exists.
fn follow_symlinks(path: &Path) -> (BTreeSet<PathBuf>, Option<PathBuf>) {
    let mut dirs = BTreeSet::new();
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let link = |path: &Path| Some((path.to_owned(), path.read_link().ok()?));
        let mut ways: Vec<&Path> = path.ancestors().collect();
        ways.reverse();
        let Some((link, target)) = ways.into_iter().find_map(link) else { break };
        let dir = link.parent().and_then(|dir| dir.canonicalize().ok());
        let (Some(dir), Ok(rest)) = (dir, path.strip_prefix(&link)) else { break };
        path = match rest.as_os_str().is_empty() {
            true => dir.join(target),
            false => dir.join(target).join(rest),
        };
        dirs.insert(dir);
    }
    (dirs, path.canonicalize().ok())
}

/// Removes paths that are inside another one.
fn outermost(paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let covered = |path: &PathBuf| paths.iter().any(|outer| outer != path && path.starts_with(outer));
    paths.iter().filter(|path| !covered(path)).cloned().collect()
}
