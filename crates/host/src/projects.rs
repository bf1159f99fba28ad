//! Several projects and users in one process. A context is opened on demand and kept; it is checked for a changed
//! configuration, or changed trust in it, at most once a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::caller::ProjectKey;
use crate::error::HostError;
use crate::host::Host;
use crate::project_context::{ContextUse, ProjectContext};

/// How often a context is checked for a changed configuration.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How many contexts are kept that no connection uses.
const MAX_IDLE: usize = 64;

/// The opened projects of a process.
#[derive(Debug)]
pub struct Projects {
    host: Arc<Host>,
    slots: Mutex<HashMap<ProjectKey, Arc<ProjectSlot>>>,
}

/// One project of [`Projects`], for a connection or a session. Cloning shares it.
#[derive(Debug, Clone)]
pub struct ProjectHandle {
    host: Arc<Host>,
    key: ProjectKey,
    slot: Arc<ProjectSlot>,
}

#[derive(Debug, Default)]
struct ProjectSlot {
    current: tokio::sync::Mutex<Option<CheckedContext>>,
    last_used: Mutex<Option<Instant>>,
}

/// A context, and when its configuration was checked.
#[derive(Debug)]
struct CheckedContext {
    context: Arc<ProjectContext>,
    checked: Instant,
}

impl Projects {
    /// No project is open yet.
    #[must_use]
    pub fn new(host: Arc<Host>) -> Self {
        Self { host, slots: Mutex::default() }
    }

    /// The project of a key; it is opened when its context is first needed.
    #[must_use]
    pub fn handle(&self, key: &ProjectKey) -> ProjectHandle {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = match slots.get(key) {
            Some(slot) => Arc::clone(slot),
            None => {
                drop_idle(&mut slots);
                Arc::clone(slots.entry(key.clone()).or_default())
            }
        };
        *slot.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        ProjectHandle { host: Arc::clone(&self.host), key: key.clone(), slot }
    }
}

/// Closes the contexts that were unused for longest, if too many are unused.
fn drop_idle(slots: &mut HashMap<ProjectKey, Arc<ProjectSlot>>) {
    let last_used = |slot: &ProjectSlot| *slot.last_used.lock().unwrap_or_else(PoisonError::into_inner);
    let mut idle: Vec<(Option<Instant>, ProjectKey)> = slots
        .iter()
        .filter(|(_, slot)| Arc::strong_count(slot) == 1)
        .map(|(key, slot)| (last_used(slot), key.clone()))
        .collect();
    idle.sort_unstable_by_key(|(used, _)| *used);
    let surplus = (idle.len() + 1).saturating_sub(MAX_IDLE);
    for (_, key) in idle.into_iter().take(surplus) {
        slots.remove(&key);
    }
}

impl ProjectHandle {
    /// The context with a configuration that was checked at most one second ago. If the configuration cannot be reloaded, a
    /// context that denies every call with the reason.
    pub async fn context(&self) -> Result<Arc<ProjectContext>, HostError> {
        let mut current = self.slot.current.lock().await;
        let Some(known) = current.as_mut() else {
            let context = Arc::new(ProjectContext::open(&self.host, &self.key, ContextUse::Shared).await?);
            *current = Some(CheckedContext { context: Arc::clone(&context), checked: Instant::now() });
            return Ok(context);
        };
        if known.checked.elapsed() >= CHECK_INTERVAL {
            if known.context.is_outdated().await {
                known.context = Arc::new(known.context.reload().await?);
            }
            known.checked = Instant::now();
        }
        Ok(Arc::clone(&known.context))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "temporary projects")]
mod tests {
    use std::path::Path;

    use vambrace_broker::{CallStatus, Peer, RawCall};
    use vambrace_core::id::Id;
    use vambrace_core::principal::{EntryPoint, Principal};

    use super::*;
    use crate::paths::Paths;
    use crate::project_files::ProjectFiles;
    use crate::trust::{revoke_trust, trust_project};

    const READER: &str = "roles:\n  default: reader\n  reader: {tools: [read_file]}\n";

    struct TwoProjects {
        temp: tempfile::TempDir,
        host: Arc<Host>,
    }

    impl TwoProjects {
        async fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = temp.path().canonicalize().unwrap();
            let host = Host::open(Paths::below(&root)).unwrap();
            for name in ["one", "two"] {
                let project = root.join(name);
                std::fs::create_dir_all(project.join(".vambrace")).unwrap();
                std::fs::write(project.join("note.txt"), name).unwrap();
                std::fs::write(project.join(".vambrace/config.yaml"), READER).unwrap();
                trust(&host, &project).await;
            }
            Self { temp, host }
        }

        fn key(&self, project: &str, user: &str) -> ProjectKey {
            ProjectKey {
                project: self.temp.path().canonicalize().unwrap().join(project),
                tenant: "default".to_owned(),
                user: user.to_owned(),
                role: None,
                skill: None,
            }
        }
    }

    async fn trust(host: &Host, project: &Path) {
        let digest = ProjectFiles::open(project).unwrap().digest().unwrap();
        trust_project(host, project, digest, "trusted", None).await.unwrap();
    }

    async fn read_note(context: &ProjectContext, project: &str, user: &str) -> vambrace_broker::CallResult {
        let principal = Principal {
            tenant: "default".to_owned(),
            user: user.to_owned(),
            agent: "test".to_owned(),
            sub_agent: None,
            skill: None,
        };
        let session = Id::new(&format!("{user}-{project}"));
        let peer = Peer { principal, session: session.unwrap(), entry_point: EntryPoint::Mcp };
        let raw = RawCall {
            tool: "read_file".to_owned(),
            args: serde_json::json!({"path": "note.txt"}),
            tool_call_id: None,
            context_id: None,
        };
        context.broker().call(raw, &peer).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_process_serves_several_projects_and_users_at_the_same_time() {
        let two = TwoProjects::new().await;
        let projects = Arc::new(Projects::new(Arc::clone(&two.host)));
        let mut calls = tokio::task::JoinSet::new();
        for (project, user) in [("one", "ann"), ("two", "ann"), ("one", "eve"), ("two", "eve")] {
            let (projects, key) = (Arc::clone(&projects), two.key(project, user));
            calls.spawn(async move {
                let context = projects.handle(&key).context().await.unwrap();
                let answer = read_note(&context, project, user).await;
                assert_eq!(answer.status(), CallStatus::Success, "{:?}", answer.error());
                assert!(answer.text().contains(project), "{}", answer.text());
            });
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
        let ann = projects.handle(&two.key("one", "ann")).context().await.unwrap();
        let again = projects.handle(&two.key("one", "ann")).context().await.unwrap();
        let eve = projects.handle(&two.key("one", "eve")).context().await.unwrap();
        assert!(Arc::ptr_eq(&ann, &again) && !Arc::ptr_eq(&ann, &eve));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn changed_trust_and_changed_configuration_are_noticed() {
        let two = TwoProjects::new().await;
        let key = two.key("one", "ann");
        let handle = Projects::new(Arc::clone(&two.host)).handle(&key);
        let offered = async || {
            handle.slot.current.lock().await.as_mut().unwrap().checked -= CHECK_INTERVAL;
            let context = handle.context().await.unwrap();
            context.broker().offered().len()
        };
        handle.context().await.unwrap();
        assert_eq!(offered().await, 1);
        revoke_trust(&two.host, &key.project).await.unwrap();
        assert_eq!(offered().await, 0);
        let wider = READER.replace("[read_file]", "[read_file, list_files]");
        std::fs::write(key.project.join(".vambrace/config.yaml"), wider).unwrap();
        trust(&two.host, &key.project).await;
        assert_eq!(offered().await, 2);
        std::fs::write(key.project.join(".vambrace/config.yaml"), "rolls: {}\n").unwrap();
        assert_eq!(offered().await, 0);
        assert!(handle.context().await.unwrap().check().is_err());
    }

    #[tokio::test]
    async fn contexts_that_nobody_uses_are_dropped_and_used_ones_are_kept() {
        let two = TwoProjects::new().await;
        let projects = Projects::new(Arc::clone(&two.host));
        let used = projects.handle(&two.key("one", "ann"));
        for n in 0..3 * MAX_IDLE {
            drop(projects.handle(&two.key("two", &format!("user-{n}"))));
        }
        let slots = projects.slots.lock().unwrap();
        assert!(slots.len() <= MAX_IDLE + 1, "{}", slots.len());
        assert!(slots.contains_key(&used.key));
        assert!(slots.contains_key(&two.key("two", &format!("user-{}", 3 * MAX_IDLE - 1))));
    }
}
