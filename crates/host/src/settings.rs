//! The configuration of one project: its files, whether they are trusted, the effective values; and the policy and workspace
//! that follow from them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vambrace_core::config::{EffectiveConfig, FileConfig, Isolation};
use vambrace_core::error::ErrorCode;
use vambrace_core::policy::Policy;
use vambrace_core::policy::compile::glob_roots;
use vambrace_core::skill::Skill;
use vambrace_core::tool::ToolDescriptor;
use vambrace_core::verdict::{LayerKind, SourceLocation};
use vambrace_workspace::{ScopeRules, Workspace};

use crate::config_files::{ConfigFiles, listed};
use crate::error::HostError;
use crate::host::Host;
use crate::project_files::ProjectFiles;
use crate::trust::{ProjectTrust, trust_state};

/// The configuration of one project.
#[derive(Debug)]
pub struct Settings {
    /// The project's directory.
    pub project: PathBuf,
    /// Its own files.
    pub files: ProjectFiles,
    /// Whether they are trusted.
    pub trust: ProjectTrust,
    /// The effective values of all files.
    pub effective: EffectiveConfig,
    /// The files that they were combined from: organisation, user, project.
    pub layers: Vec<FileConfig>,
}

pub(crate) const DAMAGED_HINT: &str =
    "no call runs with an invalid policy: fix the errors; `vambrace policy check` lists them";

impl Settings {
    /// Reads the three files and combines them.
    pub async fn load(host: &Host, project: &Path) -> Result<Self, HostError> {
        let files = ProjectFiles::open(project)?;
        let (trust, _) = trust_state(host, project, &files).await?;
        let found = ConfigFiles::read(host.paths(), &files, trust == ProjectTrust::Trusted)?;
        let effective = found.combine().map_err(|errors| {
            let message = listed("invalid configuration", &errors);
            HostError::denied(ErrorCode::PermissionDenied, message, DAMAGED_HINT)
        })?;
        let layers = found.list().iter().filter_map(|file| file.parsed.clone().ok()).collect();
        Ok(Self { project: project.to_owned(), files, trust, effective, layers })
    }

    /// The policy for a role and a skill, or all its errors.
    pub fn policy(
        &self,
        role: Option<&str>,
        skill: Option<&str>,
        tools: &[Arc<ToolDescriptor>],
    ) -> Result<Policy, HostError> {
        let skill = skill.map(|name| self.skill(name)).transpose()?;
        let mut policy = Policy::compile(&self.effective, role, skill, tools).map_err(|faults| {
            let hint = "fix the rules; `vambrace policy test` runs their test cases";
            HostError::denied(ErrorCode::PermissionDenied, listed("invalid policy", &faults), hint)
        })?;
        if policy.role.is_err() && role.is_none() {
            let why = match self.trust {
                ProjectTrust::Untrusted => {
                    "the project's configuration is not trusted, so no role is active; review it, then run `vambrace trust`"
                }
                ProjectTrust::Changed => {
                    "the project's configuration has changed since it was trusted, so no role is active; review it, then run `vambrace trust`"
                }
                ProjectTrust::NoFiles | ProjectTrust::Trusted => return Ok(policy),
            };
            policy.role = Err(why.to_owned());
        }
        Ok(policy)
    }

    fn skill(&self, name: &str) -> Result<Skill, HostError> {
        let at = SourceLocation { file: format!(".vambrace/skills/{name}/manifest.json"), line: 0 };
        let manifest = self.files.manifest(name)?.ok_or_else(|| {
            let hint = "a skill is a directory with a manifest.json in `.vambrace/skills`";
            HostError::denied(ErrorCode::PermissionDenied, format!("there is no skill `{name}`"), hint)
        })?;
        let ground = glob_roots(&self.effective, Some(LayerKind::Project));
        Skill::from_manifest(name, at, &manifest, &ground).map_err(|bad| {
            HostError::denied(ErrorCode::PermissionDenied, bad.to_string(), "fix the manifest")
        })
    }

    pub(crate) fn workspace(&self) -> Result<Workspace, HostError> {
        open_workspace(&self.project, &self.effective)
    }
}

/// The project's files, with the access rules for tools.
fn open_workspace(project: &Path, settings: &EffectiveConfig) -> Result<Workspace, HostError> {
    let block = settings.block_list().map_err(|bad| HostError::failed(bad.to_string()))?;
    let rules = ScopeRules {
        service_root: settings.service_root.clone(),
        isolation: match settings.isolation {
            Isolation::Strict => vambrace_workspace::Isolation::Strict,
            Isolation::Shared => vambrace_workspace::Isolation::Shared,
        },
        shared_paths: settings.shared_paths.clone(),
        block,
    };
    Workspace::open(project, rules).map_err(|error| {
        HostError::denied(ErrorCode::ScopeViolation, error.to_string(), "run `vambrace doctor`")
    })
}
