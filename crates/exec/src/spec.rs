//! Builds the sandbox [`Spec`] of a run from the request, the settings and the fence. What the sandbox cannot enforce is
//! denied here.

use std::path::Path;

use vambrace_core::fence::Fence;
use vambrace_core::path::ScopedPath;
use vambrace_core::quote::quoted;
use vambrace_sandbox::{Filesystem, Spec, WorkspaceFence};

use crate::error::ExecError;
use crate::inherited::Inherited;
use crate::request::RunRequest;
use crate::settings::RunSettings;

/// Everything of the spec but the network.
pub(crate) fn build(
    request: &RunRequest,
    settings: &RunSettings,
    fence: &Fence,
    inherited: &Inherited,
) -> Result<Spec, ExecError> {
    deny_unlimited_writes(request, settings, fence)?;
    let mut spec = Spec::new(&request.program, &request.workspace);
    spec.arguments = request.arguments.clone();
    spec.digest = request.digest;
    spec.cwd = request.cwd.clone();
    spec.filesystem = request.filesystem;
    spec.environment = inherited.selected(&request.environment);
    spec.environment.extend(request.variables.iter().filter(|(name, _)| !Inherited::is_own(name)).cloned());
    spec.umask = inherited.umask;
    spec.home = inherited.home.clone();
    spec.path = inherited.path.clone();
    spec.limits = request.limits;
    settings.bound(&mut spec.limits);
    spec.read = request.read.clone();
    spec.write = request.write.clone();
    spec.scratch = request.scratch.clone();
    spec.masked = settings.masked.clone();
    spec.fence = WorkspaceFence {
        read: fence.read.clone(),
        write: fence.write.clone(),
        service_root: settings.service_root.clone(),
    };
    spec.min_tier = request.min_tier.max(settings.min_tier);
    spec.observe = request.observe;
    Ok(spec)
}

/// A further path that the program changes directly bypasses the write back, and no tier limits single names in it. So in the
/// workspace it is allowed only where the fence admits every change.
fn deny_unlimited_writes(
    request: &RunRequest,
    settings: &RunSettings,
    fence: &Fence,
) -> Result<(), ExecError> {
    if fence.write.is_open() {
        return Ok(());
    }
    // A path that does not exist is reported by the sandbox.
    let Ok(workspace) = request.workspace.canonicalize() else { return Ok(()) };
    for path in request.write.iter().filter_map(|path| path.canonicalize().ok()) {
        let exposed = match path.strip_prefix(&workspace) {
            Ok(relative) => Some(relative),
            // With any other view the workspace is mounted over it.
            Err(_) if workspace.starts_with(&path) && request.filesystem == Filesystem::Deny => {
                Some(Path::new(""))
            }
            Err(_) => None,
        };
        let admits = |relative: &Path| {
            let path = ScopedPath::in_project(relative.to_str()?, &settings.service_root)?;
            Some(fence.write.admits_tree(&path))
        };
        if exposed.is_some_and(|relative| admits(relative) != Some(true)) {
            return Err(ExecError::Unenforceable(format!(
                "policy does not let this program change everything in `{}`, and direct access cannot be limited to a part",
                quoted(path.as_os_str().as_encoded_bytes())
            )));
        }
    }
    Ok(())
}
