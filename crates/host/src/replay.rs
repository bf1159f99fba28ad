//! Replay: judges the recorded effects of earlier calls by another configuration file, without planning them again or
//! touching the workspace.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use vambrace_core::clock::Clock as _;
use vambrace_core::config::ConfigSource;
use vambrace_core::network::NetworkFence;
use vambrace_core::policy::Policy;
use vambrace_core::policy::compile::glob_roots;
use vambrace_core::recorded_plan::{RecordedPlan, settled_verdict};
use vambrace_core::redacted::Redacted;
use vambrace_core::settle::Settlement;
use vambrace_core::skill::Skill;
use vambrace_core::timestamp::Timestamp;
use vambrace_core::tool::ToolDescriptor;
use vambrace_core::verdict::{LayerKind, SourceLocation, VerdictKind};
use vambrace_store::{JudgedCall, JudgedCallQuery, OwnerFilter};
use vambrace_tools::{USER_RUN_TOOL, UserRun};

use crate::catalogue::built_in_tools;
use crate::config_files::{ConfigFiles, listed};
use crate::error::HostError;
use crate::host::Host;
use crate::project_files::ProjectFiles;
use crate::secret_store::SecretStore;
use crate::settings::Settings;
use crate::system::SystemClock;

/// Calls that are read at once.
const PAGE: usize = 5000;

/// What another configuration would change.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// Judged calls, and changes of programs.
    pub judged: u64,
    /// Calls without recorded effects, or with those of an unknown version or tool.
    pub not_judged: u64,
    /// The verdicts that change, oldest call first.
    pub changes: Vec<VerdictChange>,
}

/// A verdict that changes.
#[derive(Debug)]
pub struct VerdictChange {
    /// The call.
    pub call: String,
    /// Its session.
    pub session: String,
    /// The tool that it is judged as.
    pub tool: String,
    /// When it started.
    pub at: Timestamp,
    /// The recorded verdict.
    pub before: VerdictKind,
    /// The verdict under the other configuration.
    pub after: VerdictKind,
    /// The effects, as text.
    pub effects: Vec<String>,
    /// The rules behind the new verdict.
    pub why: Vec<String>,
}

/// Judges the recorded calls of a project by its configuration with `against` in place of the project's own file, as if
/// that file were trusted.
pub async fn replay_policy(
    host: &Host,
    project: &Path,
    against: (&str, &[u8]),
    since: Option<Timestamp>,
    owner: &OwnerFilter,
) -> Result<ReplayReport, HostError> {
    let mut replay = PolicyReplay::open(host, project, against)?;
    // Projects are stored redacted, by the secrets that the current configuration knows.
    let current = Settings::load(host, project).await;
    let secrets = current.map_or_else(|_| replay.settings.secrets.clone(), |found| found.effective.secrets);
    let secrets = SecretStore::open(host.paths(), &secrets)?;
    let stored = Redacted::text(&project.to_string_lossy(), secrets.redactor());
    let stored = stored.map_err(|error| HostError::failed(error.to_string()))?.into_inner();
    let mut query = JudgedCallQuery { project: stored, since, after: None, limit: PAGE };
    loop {
        let page = host.store().judged_calls(&query, owner).await?;
        page.iter().for_each(|call| replay.call(call));
        match page.last() {
            Some(last) if page.len() == PAGE => query.after = Some(last.id.clone()),
            _ => return Ok(replay.report),
        }
    }
}

/// The policies of one configuration: one for each role and skill that calls were made with.
struct PolicyReplay {
    settings: vambrace_core::config::EffectiveConfig,
    files: ProjectFiles,
    tools: Vec<Arc<ToolDescriptor>>,
    policies: HashMap<(bool, Option<String>, Option<String>), Option<Policy>>,
    now: Timestamp,
    report: ReplayReport,
}

impl PolicyReplay {
    fn open(host: &Host, project: &Path, (name, bytes): (&str, &[u8])) -> Result<Self, HostError> {
        let files = ProjectFiles::open(project)?;
        let mut found = ConfigFiles::without_project(host.paths())?;
        found.add(ConfigSource::Project { trusted: true }, name, bytes);
        let settings = found.effective()?;
        let mut tools = built_in_tools()?;
        tools.push(UserRun::descriptor());
        // Errors of the file are reported once, here, not for each call.
        Policy::compile(&settings, None, None, &tools)
            .map_err(|faults| HostError::failed(listed("invalid policy", &faults)))?;
        let (policies, report) = (HashMap::new(), ReplayReport::default());
        Ok(Self { settings, files, tools, policies, now: SystemClock.now(), report })
    }

    fn call(&mut self, call: &JudgedCall) {
        for stored in [&call.judged, &call.judged_change] {
            match stored {
                Some(stored) => self.plan(call, stored),
                None if std::ptr::eq(stored, &call.judged) => self.report.not_judged += 1,
                None => {}
            }
        }
    }

    fn plan(&mut self, call: &JudgedCall, stored: &str) {
        let judged = RecordedPlan::from_json(stored).and_then(|recorded| {
            let tool = self.tools.iter().find(|tool| tool.name.as_str() == recorded.tool).cloned()?;
            let now = self.now;
            let settlement = recorded.judge(self.policy(&recorded)?, &tool, now);
            Some((recorded, settlement))
        });
        let Some((recorded, settlement)) = judged else {
            self.report.not_judged += 1;
            return;
        };
        self.report.judged += 1;
        let after = settled_verdict(&settlement);
        if after == recorded.verdict {
            return;
        }
        self.report.changes.push(VerdictChange {
            call: call.id.to_string(),
            session: call.session.to_string(),
            tool: recorded.tool,
            at: call.started,
            before: recorded.verdict,
            after,
            effects: recorded.effects.iter().map(ToString::to_string).collect(),
            why: reasons(&settlement),
        });
    }

    /// The policy for the role and skill of a call; `None` if it does not compile.
    fn policy(&mut self, recorded: &RecordedPlan) -> Option<&Policy> {
        let of_user = recorded.tool == USER_RUN_TOOL;
        let key = (of_user, recorded.role.clone(), recorded.skill.clone());
        if !self.policies.contains_key(&key) {
            let policy = self.compile(of_user, recorded);
            self.policies.insert(key.clone(), policy);
        }
        self.policies.get(&key)?.as_ref()
    }

    fn compile(&self, of_user: bool, recorded: &RecordedPlan) -> Option<Policy> {
        if of_user {
            // The hosts that the user chose are no part of the verdict: a run connects only while it works.
            return Policy::for_user(&self.settings, NetworkFence::of([]), &self.tools).ok();
        }
        let skill = match recorded.skill.as_deref() {
            None => None,
            Some(name) => Some(self.skill(name)?),
        };
        Policy::compile(&self.settings, recorded.role.as_deref(), skill, &self.tools).ok()
    }

    fn skill(&self, name: &str) -> Option<Skill> {
        let at = SourceLocation { file: format!(".vambrace/skills/{name}/manifest.json"), line: 0 };
        let manifest = self.files.manifest(name).ok()??;
        let roots = glob_roots(&self.settings, Some(LayerKind::Project));
        Skill::from_manifest(name, at, &manifest, &roots).ok()
    }
}

/// The rules behind a verdict, one line each.
fn reasons(settlement: &Settlement) -> Vec<String> {
    let reasons = match settlement {
        Settlement::Permitted(permit) if permit.vouchers().is_empty() => {
            return vec!["no layer asks or denies".to_owned()];
        }
        Settlement::Permitted(permit) => {
            return permit.vouchers().iter().map(|rule| format!("allowed by {rule}")).collect();
        }
        Settlement::Waiting(reasons) | Settlement::Denied { reasons, .. } => reasons,
    };
    reasons.iter().map(|reason| format!("{} ({}): {}", reason.rule, reason.at, reason.why)).collect()
}
