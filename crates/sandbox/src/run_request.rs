//! Builds the run request of a cell from a spec: canonical paths, and an environment that starts empty.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use vambrace_core::blocked_paths::BlockList;

use crate::cell;
use crate::error::SandboxError;
use crate::run_dirs::RunDirs;
use crate::spec::{Filesystem, Spec, plain_name};
use crate::tier::Tier;
use crate::toolchain::Toolchains;
use crate::wire::{Bytes, MaskedPath, RunRequest, ScratchDir, WorkspaceView};

/// System directories that cannot be a workspace.
const NO_WORKSPACE_DIRS: &[&str] =
    &["/", "/usr", "/etc", "/proc", "/sys", "/dev", "/bin", "/sbin", "/lib", "/boot", "/run", "/nix"];

const DEFAULT_PATH: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
pub(crate) const DEFAULT_HOME: &str = "/home/agent";
/// Environment variables that are always set (P5).
const ALWAYS_SET: &[&str] = &["PORT", "LANG", "PATH", "PWD", "HOME"];

/// The canonical workspace path; an error if it is not usable as a workspace.
pub(crate) fn workspace(spec: &Spec) -> Result<PathBuf, SandboxError> {
    let workspace = canonical(&spec.workspace)?;
    if NO_WORKSPACE_DIRS.iter().any(|system| workspace == Path::new(system)) {
        let shown = workspace.display();
        return Err(SandboxError::Refused(format!(
            "`{shown}` is a system directory and cannot be a workspace"
        )));
    }
    if let Some(home) = &spec.home
        && let Ok(home) = home.canonicalize()
        && home.starts_with(&workspace)
    {
        let shown = workspace.display();
        return Err(SandboxError::Refused(format!("the workspace `{shown}` contains the home directory")));
    }
    Ok(workspace)
}

/// The program's home directory.
pub(crate) fn home(spec: &Spec, run_dirs: Option<&RunDirs>) -> PathBuf {
    match (&spec.home, run_dirs) {
        (_, Some(run_dirs)) => run_dirs.part("home"),
        (Some(home), None) => home.canonicalize().unwrap_or_else(|_| home.clone()),
        (None, None) => PathBuf::from(DEFAULT_HOME),
    }
}

/// What was resolved for a run.
pub(crate) struct ResolvedPaths {
    pub(crate) toolchains: Toolchains,
    pub(crate) masks: Vec<MaskedPath>,
    pub(crate) scratch: Vec<ScratchDir>,
}

pub(crate) fn build(
    spec: &Spec,
    workspace: &Path,
    tier: Tier,
    run_dirs: Option<&RunDirs>,
    found: ResolvedPaths,
    landlock_abi: i32,
) -> Result<RunRequest, SandboxError> {
    let ResolvedPaths { toolchains, masks, scratch } = found;
    let view = match spec.filesystem {
        Filesystem::Deny => WorkspaceView::Absent,
        Filesystem::Read => WorkspaceView::Read,
        Filesystem::Write => WorkspaceView::Fresh,
        Filesystem::ReadWrite | Filesystem::Speculative => WorkspaceView::Layered,
    };
    let home = home(spec, run_dirs);
    let mut write = spec.write.iter().map(|path| outside_system(path)).collect::<Result<Vec<_>, _>>()?;
    let read = spec.read.iter().map(|path| outside_system(path)).collect::<Result<Vec<_>, _>>()?;
    let secrets = exposed_secrets(workspace, view, &masks, read.iter().chain(&write));
    deny_masked(workspace, &masks, &read, &write)?;
    if tier == Tier::NoUserns {
        deny_around(workspace, view, &read, &write)?;
        deny_with_secrets(&write, &secrets)?;
    }
    let path = search_path(spec, &toolchains.shown, &read, workspace);
    let named = spec.read.iter().chain(&spec.write).chain(&toolchains.linked).chain(&path);
    let links = links(named, toolchains.shown.iter().chain(&read).chain(&write), workspace);
    if let Some(run_dirs) = run_dirs {
        write.extend([run_dirs.part("tmp"), run_dirs.part("home")]);
        write.extend((view == WorkspaceView::Fresh).then(|| run_dirs.part("work")));
    }
    let cwd = match (view, run_dirs) {
        (WorkspaceView::Absent, None) => PathBuf::from("/tmp"),
        (WorkspaceView::Absent, Some(run_dirs)) => run_dirs.part("tmp"),
        (WorkspaceView::Fresh, Some(run_dirs)) => run_dirs.part("work"),
        _ => working_directory(spec, workspace)?,
    };
    let environment = environment(spec, &path, &cwd, &home, run_dirs);
    let mut arguments = vec![spec.program.as_bytes().to_vec()];
    arguments.extend(spec.arguments.iter().map(|argument| argument.as_bytes().to_vec()));
    Ok(RunRequest {
        tier,
        program: spec.program.as_bytes().to_vec(),
        digest: spec.digest,
        path: path.iter().map(|dir| bytes(dir)).collect(),
        arguments,
        environment,
        cwd: bytes(&cwd),
        umask: spec.umask,
        home: bytes(&home),
        workspace: bytes(workspace),
        view,
        masks,
        ahead: spec
            .masked
            .iter()
            .filter_map(|name| plain_name(name))
            .map(|name| name.as_bytes().to_vec())
            .collect(),
        read: read.iter().map(|path| bytes(path)).collect(),
        blank: toolchains.blank.iter().chain(&secrets).map(|path| bytes(path)).collect(),
        toolchains: toolchains.shown.iter().map(|path| bytes(path)).collect(),
        write: write.iter().map(|path| bytes(path)).collect(),
        links: links.iter().map(|(link, target)| (bytes(link), bytes(target))).collect(),
        drops_writes: spec.drops_writes,
        scratch,
        limits: spec.limits,
        network: spec.network,
        observe: spec.observe,
        audited: false,
        landlock_abi,
        guarded: Vec::new(),
    })
}

/// Masked paths that the block list does not name.
pub(crate) fn masked_by_other_rules(request: &RunRequest, masked: &BlockList) -> HashSet<Bytes> {
    let paths = request.masks.iter().map(|mask| &mask.path);
    paths.filter(|path| masked.blocks_entry(&String::from_utf8_lossy(path)).is_none()).cloned().collect()
}

/// Whether a further path is in the workspace, or contains it.
pub(crate) fn overlaps_workspace(workspace: &Path, spec: &Spec) -> bool {
    let mut further = spec.read.iter().chain(&spec.write).filter_map(|path| path.canonicalize().ok());
    further.any(|path| path.starts_with(workspace) || workspace.starts_with(path))
}

/// Secrets of the workspace that are exposed by further paths outside of its masks, as canonical paths.
fn exposed_secrets<'a>(
    workspace: &Path,
    view: WorkspaceView,
    masks: &[MaskedPath],
    further: impl Iterator<Item = &'a PathBuf>,
) -> Vec<PathBuf> {
    let bare = |path: &&PathBuf| {
        path.starts_with(workspace) || (view == WorkspaceView::Absent && workspace.starts_with(path))
    };
    let bare: Vec<&PathBuf> = further.filter(bare).collect();
    let masks = if bare.is_empty() { &[] } else { masks };
    let secrets = masks.iter().filter_map(|mask| masked_path(workspace, mask).canonicalize().ok());
    secrets.filter(|secret| bare.iter().any(|path| secret.starts_with(path))).collect()
}

fn masked_path(workspace: &Path, mask: &MaskedPath) -> PathBuf {
    workspace.join(OsStr::from_bytes(&mask.path))
}

/// Denies paths that are requested but masked.
fn deny_masked(
    workspace: &Path,
    masks: &[MaskedPath],
    read: &[PathBuf],
    write: &[PathBuf],
) -> Result<(), SandboxError> {
    if write.iter().any(|path| path == workspace) {
        return Err(SandboxError::Refused(format!(
            "`{}` is the workspace itself: `--filesystem readwrite` lets a program change it",
            workspace.display()
        )));
    }
    let inside = |path: &&PathBuf| {
        path.starts_with(workspace) && masks.iter().any(|mask| path.starts_with(masked_path(workspace, mask)))
    };
    match read.iter().chain(write).find(inside) {
        Some(path) => Err(SandboxError::Refused(format!(
            "`{}` is masked: programs see no secret files of the workspace, no paths that a rule denies and no directories that cannot be read",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Without mounts nothing hides a secret in a writable directory.
fn deny_with_secrets(write: &[PathBuf], secrets: &[PathBuf]) -> Result<(), SandboxError> {
    let held = |path: &PathBuf| secrets.iter().find(|secret| secret.starts_with(path));
    match write.iter().find_map(|path| Some((path, held(path)?))) {
        Some((path, secret)) => Err(SandboxError::Refused(format!(
            "`{}` contains `{}`, which tier no-userns cannot hide; name the paths that are needed instead",
            path.display(),
            secret.display()
        ))),
        None => Ok(()),
    }
}

/// Deeper down there is no mount point unless the project created one, and creating it would be a change by the
/// program.
pub(crate) fn deny_deep_scratch(names: &[String]) -> Result<(), SandboxError> {
    match names.iter().find(|name| matches!(name.as_str(), "" | "." | "..") || name.contains('/')) {
        Some(name) => Err(SandboxError::Refused(format!(
            "`{name}` is not a scratch directory: that is a single name in the workspace's top directory"
        ))),
        None => Ok(()),
    }
}

/// Without mounts nothing restricts what is granted: a path that contains the workspace would open it completely,
/// with its secrets and, in mode `write`, its files.
fn deny_around(
    workspace: &Path,
    view: WorkspaceView,
    read: &[PathBuf],
    write: &[PathBuf],
) -> Result<(), SandboxError> {
    let read = if view == WorkspaceView::Fresh { read } else { &[] };
    let write = if view == WorkspaceView::Absent { &[] } else { write };
    match read.iter().chain(write).find(|path| workspace.starts_with(path)) {
        Some(path) => Err(SandboxError::Refused(format!(
            "`{}` contains the workspace, which tier no-userns cannot hide; name the paths that are needed instead",
            path.display()
        ))),
        None => Ok(()),
    }
}

pub(crate) fn bytes(path: &Path) -> Bytes {
    path.as_os_str().as_bytes().to_vec()
}

fn canonical(path: &Path) -> Result<PathBuf, SandboxError> {
    path.canonicalize().map_err(|error| SandboxError::Refused(format!("`{}`: {error}", path.display())))
}

pub(crate) fn outside_system(path: &Path) -> Result<PathBuf, SandboxError> {
    let path = canonical(path)?;
    if path == Path::new("/") || ["/proc", "/sys", "/dev"].iter().any(|system| path.starts_with(system)) {
        return Err(SandboxError::Refused(format!("`{}` is never shown to a program", path.display())));
    }
    Ok(path)
}

fn working_directory(spec: &Spec, workspace: &Path) -> Result<PathBuf, SandboxError> {
    let inside = spec.cwd.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        let shown = spec.cwd.display();
        return Err(SandboxError::Refused(format!(
            "the working directory `{shown}` is not below the workspace"
        )));
    }
    // An empty view has only the root. Joining an empty path would add a slash, which programs see in PWD.
    let at_root = spec.filesystem == Filesystem::Write || spec.cwd.as_os_str().is_empty();
    Ok(if at_root { workspace.to_owned() } else { workspace.join(&spec.cwd) })
}

fn search_path(spec: &Spec, toolchains: &[PathBuf], read: &[PathBuf], workspace: &Path) -> Vec<PathBuf> {
    let shown = |dir: &Path| {
        ["/usr", "/opt", "/nix", "/bin", "/sbin"].iter().any(|system| dir.starts_with(system))
            || toolchains.iter().chain(read).any(|outer| dir.starts_with(outer))
            || dir.starts_with(workspace)
    };
    let mut path: Vec<PathBuf> = Vec::new();
    let asked = spec.path.iter().filter(|dir| shown(dir) || dir.canonicalize().is_ok_and(|f| shown(&f)));
    for dir in asked.cloned().chain(DEFAULT_PATH.iter().map(PathBuf::from)) {
        if !path.contains(&dir) && dir.is_absolute() {
            path.push(dir);
        }
    }
    path
}

/// Symlinks on the way to the named paths, except those inside of visible directories.
fn links<'a>(
    named: impl Iterator<Item = &'a PathBuf>,
    shown: impl Iterator<Item = &'a PathBuf>,
    workspace: &Path,
) -> Vec<(PathBuf, PathBuf)> {
    let system =
        cell::SYSTEM_DIRS.iter().chain(&["dev", "proc", "sys"]).map(|name| Path::new("/").join(name));
    let shown: Vec<PathBuf> = shown.cloned().chain([workspace.to_owned()]).chain(system).collect();
    let is_shown = |path: &Path| shown.iter().any(|outer| path.starts_with(outer));
    let leads = |path: &&PathBuf| !is_shown(path) && path.canonicalize().is_ok_and(|real| is_shown(&real));
    let links = named.filter(leads).flat_map(|path| links_to(path));
    links.filter(|(link, _)| !is_shown(link)).collect()
}

fn links_to(path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut links = Vec::new();
    let mut here = PathBuf::new();
    let mut rest = std::path::absolute(path).unwrap_or_default();
    // The kernel's limit.
    while links.len() <= 40 {
        let mut parts = rest.components();
        let Some(part) = parts.next() else { break };
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(here.pop()),
            _ => here.push(part),
        }
        let further = parts.as_path();
        rest = match here.read_link() {
            Ok(target) => {
                let further = target.join(further);
                links.push((here.clone(), target));
                here.pop();
                further
            }
            Err(_) => further.to_owned(),
        };
    }
    links
}

/// Starts empty: the five variables that are always set, and the allowed ones.
fn environment(
    spec: &Spec,
    path: &[PathBuf],
    cwd: &Path,
    home: &Path,
    run_dirs: Option<&RunDirs>,
) -> Vec<Bytes> {
    let given =
        |name: &str| spec.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let joined = path.iter().map(|dir| dir.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"));
    let mut list: Vec<(OsString, OsString)> = vec![
        ("PORT".into(), given("PORT").unwrap_or_else(|| "0".into())),
        ("LANG".into(), given("LANG").unwrap_or_else(|| "C.UTF-8".into())),
        ("PATH".into(), joined),
        ("PWD".into(), cwd.into()),
        ("HOME".into(), home.into()),
    ];
    if let Some(run_dirs) = run_dirs {
        list.push(("TMPDIR".into(), run_dirs.part("tmp").into()));
    }
    let allowed = spec.environment.iter().filter(|(key, _)| !ALWAYS_SET.iter().any(|always| key == always));
    list.extend(allowed.cloned());
    list.into_iter().map(|(key, value)| [key.into_vec(), b"=".to_vec(), value.into_vec()].concat()).collect()
}
