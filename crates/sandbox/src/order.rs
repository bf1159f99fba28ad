//! From what is wanted to what a cell is told: paths in full, the environment from nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use vambrace_core::block::BlockList;

use crate::cell;
use crate::fault::SandboxFault;
use crate::spec::{Filesystem, Spec, plain_name};
use crate::task::Task;
use crate::tier::Tier;
use crate::toolchain::Toolchains;
use crate::wire::{Bytes, Mask, Order, Scratch, View};

/// Nobody works in there.
const SYSTEM: &[&str] =
    &["/", "/usr", "/etc", "/proc", "/sys", "/dev", "/bin", "/sbin", "/lib", "/boot", "/run", "/nix"];

const DEFAULT_PATH: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
pub(crate) const DEFAULT_HOME: &str = "/home/agent";
/// Always there (P5).
const ALWAYS: &[&str] = &["PORT", "LANG", "PATH", "PWD", "HOME"];

/// The workspace in full, and refused where it is no place to work in.
pub(crate) fn workspace(spec: &Spec) -> Result<PathBuf, SandboxFault> {
    let workspace = full(&spec.workspace)?;
    if SYSTEM.iter().any(|system| workspace == Path::new(system)) {
        let shown = workspace.display();
        return Err(SandboxFault::Refused(format!("`{shown}` belongs to the system, it is no workspace")));
    }
    if let Some(home) = &spec.home
        && let Ok(home) = home.canonicalize()
        && home.starts_with(&workspace)
    {
        let shown = workspace.display();
        return Err(SandboxFault::Refused(format!("the workspace `{shown}` contains the home folder")));
    }
    Ok(workspace)
}

/// Where the program finds its home folder.
pub(crate) fn home(spec: &Spec, task: Option<&Task>) -> PathBuf {
    match (&spec.home, task) {
        (_, Some(task)) => task.part("home"),
        (Some(home), None) => home.canonicalize().unwrap_or_else(|_| home.clone()),
        (None, None) => PathBuf::from(DEFAULT_HOME),
    }
}

/// What was looked up for a run.
pub(crate) struct Found {
    pub(crate) toolchains: Toolchains,
    pub(crate) masks: Vec<Mask>,
    pub(crate) scratch: Vec<Scratch>,
}

pub(crate) fn build(
    spec: &Spec,
    workspace: &Path,
    tier: Tier,
    task: Option<&Task>,
    found: Found,
    landlock_abi: i32,
) -> Result<Order, SandboxFault> {
    let Found { toolchains, masks, scratch } = found;
    let view = match spec.filesystem {
        Filesystem::Deny => View::Absent,
        Filesystem::Read => View::Read,
        Filesystem::Write => View::Fresh,
        Filesystem::ReadWrite | Filesystem::Speculative => View::Layered,
    };
    let home = home(spec, task);
    let mut write = spec.write.iter().map(|path| outside_system(path)).collect::<Result<Vec<_>, _>>()?;
    let read = spec.read.iter().map(|path| outside_system(path)).collect::<Result<Vec<_>, _>>()?;
    let secrets = uncovered(workspace, view, &masks, read.iter().chain(&write));
    refuse_masked(workspace, &masks, &read, &write)?;
    if tier == Tier::NoUserns {
        refuse_around(workspace, view, &read, &write)?;
        refuse_with_secrets(&write, &secrets)?;
    }
    let path = search_path(spec, &toolchains.shown, &read, workspace);
    let named = spec.read.iter().chain(&spec.write).chain(&toolchains.linked).chain(&path);
    let links = links(named, toolchains.shown.iter().chain(&read).chain(&write), workspace);
    if let Some(task) = task {
        write.extend([task.part("tmp"), task.part("home")]);
        write.extend((view == View::Fresh).then(|| task.part("work")));
    }
    let cwd = match (view, task) {
        (View::Absent, None) => PathBuf::from("/tmp"),
        (View::Absent, Some(task)) => task.part("tmp"),
        (View::Fresh, Some(task)) => task.part("work"),
        _ => start_folder(spec, workspace)?,
    };
    let environment = environment(spec, &path, &cwd, &home, task);
    let mut arguments = vec![spec.program.as_bytes().to_vec()];
    arguments.extend(spec.arguments.iter().map(|argument| argument.as_bytes().to_vec()));
    Ok(Order {
        tier,
        program: spec.program.as_bytes().to_vec(),
        digest: spec.digest,
        path: path.iter().map(|folder| bytes(folder)).collect(),
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

/// What is masked for another reason than its name.
pub(crate) fn barred(order: &Order, masked: &BlockList) -> Vec<Bytes> {
    let paths = order.masks.iter().map(|mask| &mask.path);
    paths.filter(|path| masked.blocks_entry(&String::from_utf8_lossy(path)).is_none()).cloned().collect()
}

/// Whether a further path lies in the workspace, or around it.
pub(crate) fn asks_about(workspace: &Path, spec: &Spec) -> bool {
    let mut further = spec.read.iter().chain(&spec.write).filter_map(|path| path.canonicalize().ok());
    further.any(|path| path.starts_with(workspace) || workspace.starts_with(path))
}

/// Secrets of the workspace in further paths that lie over its masks, where they really are.
fn uncovered<'a>(
    workspace: &Path,
    view: View,
    masks: &[Mask],
    further: impl Iterator<Item = &'a PathBuf>,
) -> Vec<PathBuf> {
    let bare = |path: &&PathBuf| {
        path.starts_with(workspace) || (view == View::Absent && workspace.starts_with(path))
    };
    let bare: Vec<&PathBuf> = further.filter(bare).collect();
    let masks = if bare.is_empty() { &[] } else { masks };
    let secrets = masks.iter().filter_map(|mask| masked_path(workspace, mask).canonicalize().ok());
    secrets.filter(|secret| bare.iter().any(|path| secret.starts_with(path))).collect()
}

fn masked_path(workspace: &Path, mask: &Mask) -> PathBuf {
    workspace.join(OsStr::from_bytes(&mask.path))
}

/// What is asked for and would not be given.
fn refuse_masked(
    workspace: &Path,
    masks: &[Mask],
    read: &[PathBuf],
    write: &[PathBuf],
) -> Result<(), SandboxFault> {
    if write.iter().any(|path| path == workspace) {
        return Err(SandboxFault::Refused(format!(
            "`{}` is the workspace itself: `--filesystem readwrite` lets a program change it",
            workspace.display()
        )));
    }
    let inside = |path: &&PathBuf| {
        path.starts_with(workspace) && masks.iter().any(|mask| path.starts_with(masked_path(workspace, mask)))
    };
    match read.iter().chain(write).find(inside) {
        Some(path) => Err(SandboxFault::Refused(format!(
            "`{}` is masked: programs see no secret names of the workspace, and no folder that cannot be looked into",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Without mounts nothing covers a secret in a folder that can be written.
fn refuse_with_secrets(write: &[PathBuf], secrets: &[PathBuf]) -> Result<(), SandboxFault> {
    let held = |path: &PathBuf| secrets.iter().find(|secret| secret.starts_with(path));
    match write.iter().find_map(|path| Some((path, held(path)?))) {
        Some((path, secret)) => Err(SandboxFault::Refused(format!(
            "`{}` holds `{}`, which tier no-userns cannot keep apart from it; name what is needed beside it",
            path.display(),
            secret.display()
        ))),
        None => Ok(()),
    }
}

/// Deeper down there is nothing to mount on that the project did not make, and what we make there would be the program's change.
pub(crate) fn refuse_deep_scratch(names: &[String]) -> Result<(), SandboxFault> {
    match names.iter().find(|name| matches!(name.as_str(), "" | "." | "..") || name.contains('/')) {
        Some(name) => Err(SandboxFault::Refused(format!(
            "`{name}` is no name of a build folder, which is one name in the workspace's own folder"
        ))),
        None => Ok(()),
    }
}

/// Without mounts nothing lies over what is granted: a path that holds the workspace would open it in full, its secrets and,
/// in mode `write`, its files too.
fn refuse_around(
    workspace: &Path,
    view: View,
    read: &[PathBuf],
    write: &[PathBuf],
) -> Result<(), SandboxFault> {
    let read = if view == View::Fresh { read } else { &[] };
    let write = if view == View::Absent { &[] } else { write };
    match read.iter().chain(write).find(|path| workspace.starts_with(path)) {
        Some(path) => Err(SandboxFault::Refused(format!(
            "`{}` holds the workspace, which tier no-userns cannot keep apart from it; name what is needed beside it",
            path.display()
        ))),
        None => Ok(()),
    }
}

pub(crate) fn bytes(path: &Path) -> Bytes {
    path.as_os_str().as_bytes().to_vec()
}

fn full(path: &Path) -> Result<PathBuf, SandboxFault> {
    path.canonicalize().map_err(|error| SandboxFault::Refused(format!("`{}`: {error}", path.display())))
}

pub(crate) fn outside_system(path: &Path) -> Result<PathBuf, SandboxFault> {
    let path = full(path)?;
    if path == Path::new("/") || ["/proc", "/sys", "/dev"].iter().any(|system| path.starts_with(system)) {
        return Err(SandboxFault::Refused(format!("`{}` is never shown to a program", path.display())));
    }
    Ok(path)
}

fn start_folder(spec: &Spec, workspace: &Path) -> Result<PathBuf, SandboxFault> {
    let inside = spec.cwd.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside {
        let shown = spec.cwd.display();
        return Err(SandboxFault::Refused(format!(
            "the working folder `{shown}` is not below the workspace"
        )));
    }
    // In an empty view only the root is there. To join nothing would add a slash, which programs see in PWD.
    let at_root = spec.filesystem == Filesystem::Write || spec.cwd.as_os_str().is_empty();
    Ok(if at_root { workspace.to_owned() } else { workspace.join(&spec.cwd) })
}

fn search_path(spec: &Spec, toolchains: &[PathBuf], read: &[PathBuf], workspace: &Path) -> Vec<PathBuf> {
    let shown = |folder: &Path| {
        ["/usr", "/opt", "/nix", "/bin", "/sbin"].iter().any(|system| folder.starts_with(system))
            || toolchains.iter().chain(read).any(|outer| folder.starts_with(outer))
            || folder.starts_with(workspace)
    };
    let mut path: Vec<PathBuf> = Vec::new();
    let asked =
        spec.path.iter().filter(|folder| shown(folder) || folder.canonicalize().is_ok_and(|f| shown(&f)));
    for folder in asked.cloned().chain(DEFAULT_PATH.iter().map(PathBuf::from)) {
        if !path.contains(&folder) && folder.is_absolute() {
            path.push(folder);
        }
    }
    path
}

/// Links on the way to what is named, but for those that are shown with what is around them.
fn links<'a>(
    named: impl Iterator<Item = &'a PathBuf>,
    shown: impl Iterator<Item = &'a PathBuf>,
    workspace: &Path,
) -> Vec<(PathBuf, PathBuf)> {
    let system = cell::SYSTEM.iter().chain(&["dev", "proc", "sys"]).map(|name| Path::new("/").join(name));
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
    // As many as the kernel follows.
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

/// From nothing: the five that are always there, and what is allowed.
fn environment(spec: &Spec, path: &[PathBuf], cwd: &Path, home: &Path, task: Option<&Task>) -> Vec<Bytes> {
    let given =
        |name: &str| spec.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let joined = path.iter().map(|folder| folder.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":"));
    let mut list: Vec<(OsString, OsString)> = vec![
        ("PORT".into(), given("PORT").unwrap_or_else(|| "0".into())),
        ("LANG".into(), given("LANG").unwrap_or_else(|| "C.UTF-8".into())),
        ("PATH".into(), joined),
        ("PWD".into(), cwd.into()),
        ("HOME".into(), home.into()),
    ];
    if let Some(task) = task {
        list.push(("TMPDIR".into(), task.part("tmp").into()));
    }
    let allowed = spec.environment.iter().filter(|(key, _)| !ALWAYS.iter().any(|always| key == always));
    list.extend(allowed.cloned());
    list.into_iter().map(|(key, value)| [key.into_vec(), b"=".to_vec(), value.into_vec()].concat()).collect()
}
