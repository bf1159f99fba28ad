//! Checks the system features, the state and the project that this program uses. Every check that is not ok says what does not
//! work and how to fix it.

mod check;
mod checkpoint;
mod project;
mod sandbox;
mod state;

pub use check::{CheckState, DoctorCheck};

use std::path::Path;

use crate::paths::Paths;

/// Runs all checks; `program` is this program, which is the launcher of the sandbox.
pub async fn examine(paths: &Paths, project: &Path, program: &Path) -> Vec<DoctorCheck> {
    let mut checks = vec![project::kernel(project)];
    let host = state::examine(paths, &mut checks).await;
    project::examine(paths, project, host.as_deref(), &mut checks).await;
    sandbox::examine(paths, program, &mut checks);
    checks
}
