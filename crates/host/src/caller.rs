//! Who calls, in which project, role and skill. The entry point knows it; nothing of it comes from an agent's arguments.

use std::path::{Path, PathBuf};

use vambrace_broker::RequestedCall;
use vambrace_core::clock::{Clock as _, RandomSource as _};
use vambrace_core::digest::Digest;
use vambrace_core::id::Id;
use vambrace_core::principal::{EntryPoint, Peer, Principal};

use crate::error::HostError;
use crate::paths::Paths;
use crate::system::{self, SystemClock, SystemRandom};

/// The tenant of a machine without an organisation's server.
pub(crate) const LOCAL_TENANT: &str = "default";

/// What a user may choose about a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerOptions {
    /// Project directory; `None` for the nearest parent directory that is set up.
    pub workspace: Option<PathBuf>,
    /// Role; `None` for the default role of the configuration.
    pub role: Option<String>,
    /// Active skill.
    pub skill: Option<String>,
    /// Session; `None` for one session per user and project, or per MCP connection.
    pub session: Option<String>,
}

/// What identifies a project context: calls with the same key use the same broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProjectKey {
    /// The project's directory.
    pub project: PathBuf,
    /// The tenant of the user.
    pub tenant: String,
    /// The user.
    pub user: String,
    /// The requested role.
    pub role: Option<String>,
    /// The active skill.
    pub skill: Option<String>,
}

/// A caller: the project context of its calls, and the caller itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The project context.
    pub key: ProjectKey,
    /// The caller.
    pub peer: Peer,
}

impl Caller {
    /// The current user of this machine, or an agent that works for that user.
    pub fn local(
        paths: &Paths,
        options: &CallerOptions,
        agent: &str,
        entry_point: EntryPoint,
    ) -> Result<Self, HostError> {
        let project = paths.project(options.workspace.as_deref())?;
        let principal = Principal {
            tenant: LOCAL_TENANT.to_owned(),
            user: system::user(),
            agent: agent.to_owned(),
            sub_agent: None,
            skill: options.skill.clone(),
        };
        let session = session(options.session.as_deref(), &principal.user, &project, entry_point)?;
        let peer = Peer { principal, session, entry_point };
        Ok(Self { key: ProjectKey::of(&peer, project, options.role.clone()), peer })
    }

    /// The current user personally, in a session of their own: what an agent does in the user's other sessions does not
    /// suspend it.
    pub(crate) fn of_user(paths: &Paths, workspace: Option<&Path>) -> Result<Self, HostError> {
        let options = CallerOptions { workspace: workspace.map(Path::to_owned), ..CallerOptions::default() };
        let mut caller = Self::local(paths, &options, "user", EntryPoint::Cli)?;
        let session = format!("user-{}", caller.peer.session);
        caller.peer.session = Id::new(&session).map_err(|bad| HostError::failed(bad.to_string()))?;
        Ok(caller)
    }

    /// The caller of a call that waits for a decision: its project, role, skill and session.
    #[must_use]
    pub(crate) fn of_request(call: &RequestedCall) -> Self {
        let key = ProjectKey::of(&call.peer, PathBuf::from(&call.project), call.role.clone());
        Self { key, peer: call.peer.clone() }
    }
}

impl ProjectKey {
    /// A project of the current user, in the default role.
    pub(crate) fn of_local_user(project: PathBuf) -> Self {
        Self { project, tenant: LOCAL_TENANT.to_owned(), user: system::user(), role: None, skill: None }
    }

    fn of(peer: &Peer, project: PathBuf, role: Option<String>) -> Self {
        let Principal { tenant, user, skill, .. } = peer.principal.clone();
        Self { project, tenant, user, role, skill }
    }
}

fn session(
    named: Option<&str>,
    user: &str,
    project: &Path,
    entry_point: EntryPoint,
) -> Result<Id, HostError> {
    if let Some(id) = named {
        return Id::new(id).map_err(|bad| {
            HostError::usage(format!("session `{id}` is {bad}"), "use letters, digits, `-`, `_`")
        });
    }
    if entry_point == EntryPoint::Mcp {
        let mut random = [0; 10];
        random.iter_mut().zip(SystemRandom.random_u128().to_be_bytes()).for_each(|(to, from)| *to = from);
        return Ok(Id::time_ordered("mcp-", SystemClock.now().millis().unsigned_abs(), random));
    }
    let key = Digest::of_parts([user.as_bytes(), project.as_os_str().as_encoded_bytes()]);
    let hex: String = key.hex().iter().take(12).map(|digit| char::from(*digit)).collect();
    Id::new(&format!("{}-{hex}", entry_point.as_str())).map_err(|bad| HostError::failed(bad.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_differ_by_user_project_and_connection() {
        let session = |user: &str, project: &str, entry_point| {
            session(None, user, Path::new(project), entry_point).unwrap().to_string()
        };
        let own = session("ann", "/p", EntryPoint::Cli);
        assert_eq!(own, session("ann", "/p", EntryPoint::Cli));
        assert!(own.starts_with("cli-"), "{own}");
        for other in [("eve", "/p"), ("ann", "/q")] {
            assert_ne!(own, session(other.0, other.1, EntryPoint::Cli), "{other:?}");
        }
        assert_ne!(session("ann", "/p", EntryPoint::Mcp), session("ann", "/p", EntryPoint::Mcp));
    }

    #[test]
    fn session_with_an_invalid_name_is_a_usage_error() {
        let bad = session(Some("no spaces"), "ann", Path::new("/p"), EntryPoint::Cli).unwrap_err();
        assert_eq!(bad.kind, crate::error::HostErrorKind::Usage);
    }
}
