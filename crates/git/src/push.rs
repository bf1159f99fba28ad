//! The invocation that pushes: to one checked address, one branch, without force.
//!
//! A remote's own settings are not used: values of `url` and `pushurl` add up, and for `receivepack` the first value counts, so
//! nothing could be set against them. The address is read from the configuration, checked, and given to git as a remote that
//! only this invocation defines.

use std::path::PathBuf;

use vambrace_core::quote::quoted;

use crate::branch::BranchName;
use crate::config_key::GitConfigKey;
use crate::invocation::{GitAccess, GitInvocation, InvocationTransport};
use crate::operations::GitOperations;
use crate::ref_name::RemoteName;
use crate::remote_url::{PlainHttp, RemoteTransport, RemoteUrl, RemoteUrlError};
use crate::repository::Repository;

/// The remote that an invocation defines; a repository that has one of this name is rejected.
pub(crate) const PUSH_REMOTE: &str = "vambrace-push";

/// Whether a push changes the remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushMode {
    /// Connects and reports what would change.
    DryRun,
    /// Pushes.
    Real,
}

/// How ssh is called. It gets no configuration file and no key file: only the agent authenticates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshSettings {
    /// The program, as a name in the search path or as a path.
    pub program: String,
    /// The file with the keys of known hosts; an unknown host is an error.
    pub known_hosts: PathBuf,
    /// The socket of the agent.
    pub agent_socket: Option<PathBuf>,
}

/// Where a push goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTarget {
    remote: RemoteName,
    url: RemoteUrl,
}

/// Why a push is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// No remote of this name.
    #[error("the repository has no remote `{0}`")]
    UnknownRemote(String),
    /// Several addresses.
    #[error("remote `{0}` has several addresses to push to")]
    SeveralUrls(String),
    /// The address is not accepted.
    #[error("remote `{remote}`: {reason}")]
    Url {
        /// The remote.
        remote: String,
        /// What is wrong with its address.
        reason: RemoteUrlError,
    },
    /// The repository rewrites the address.
    #[error("the git configuration sets `{0}`, which would change the address of the remote")]
    Rewritten(GitConfigKey),
    /// The repository changes how git connects.
    #[error("the git configuration sets `{0}`, which would change how git connects")]
    ConnectionSetting(GitConfigKey),
    /// An ssh address, and ssh is not set up.
    #[error("remote `{0}` needs ssh, which is not set up")]
    NoSsh(String),
    /// A path that cannot be quoted for ssh.
    #[error("the path `{0}` cannot be passed to ssh")]
    SshPath(String),
}

impl PushTarget {
    /// Finds the address of a remote and checks it.
    pub fn find(
        repository: &Repository,
        remote: &RemoteName,
        plain_http: PlainHttp,
    ) -> Result<Self, PushError> {
        let name = remote.as_str();
        let values =
            |variable| repository.values("remote", name.as_bytes(), variable).collect::<Vec<&[u8]>>();
        let push_urls = values("pushurl");
        let urls = if push_urls.is_empty() { values("url") } else { push_urls };
        let written = match urls.as_slice() {
            [] => return Err(PushError::UnknownRemote(name.to_owned())),
            [url] => String::from_utf8_lossy(url),
            _ => return Err(PushError::SeveralUrls(name.to_owned())),
        };
        let url = RemoteUrl::parse(&written, plain_http)
            .map_err(|reason| PushError::Url { remote: name.to_owned(), reason })?;
        let target = Self { remote: remote.clone(), url };
        target.check_settings(repository, &written)?;
        Ok(target)
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &RemoteUrl {
        &self.url
    }

    /// The remote as the repository names it.
    #[must_use]
    pub fn remote(&self) -> &RemoteName {
        &self.remote
    }

    /// `url.*.insteadOf` values add up and the longest one wins: none may match.
    fn check_settings(&self, repository: &Repository, written: &str) -> Result<(), PushError> {
        let canonical = self.url.to_string();
        for entry in repository.settings() {
            let rewrites = entry.key.is("url", "insteadof") || entry.key.is("url", "pushinsteadof");
            let prefix = entry.value.as_deref().unwrap_or_default();
            if rewrites && [written, &canonical].iter().any(|url| url.as_bytes().starts_with(prefix)) {
                return Err(PushError::Rewritten(entry.key.clone()));
            }
        }
        match repository.neutralized().push_obstacles() {
            [key, ..] if self.url.transport() != RemoteTransport::Ssh => {
                Err(PushError::ConnectionSetting(key.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl GitOperations<'_> {
    /// Pushes a branch to the branch of the same name. Output: [`PushReport`](crate::PushReport).
    pub fn push(
        &self,
        target: &PushTarget,
        branch: &BranchName,
        mode: PushMode,
        ssh: Option<&SshSettings>,
    ) -> Result<GitInvocation, PushError> {
        let mut transport = InvocationTransport {
            protocol: Some(target.url.transport().as_str()),
            ssh_command: None,
            settings: push_settings(target),
        };
        let mut agent = None;
        if target.url.transport() == RemoteTransport::Ssh {
            let ssh = ssh.ok_or_else(|| PushError::NoSsh(target.remote.as_str().to_owned()))?;
            transport.ssh_command = Some(ssh_command(ssh)?);
            agent = ssh.agent_socket.as_ref();
        }
        let mut invocation = GitInvocation::new(
            self.repository,
            &self.program,
            &self.search_path,
            GitAccess::Push,
            &transport,
        );
        if let Some(socket) = agent {
            invocation.set("SSH_AUTH_SOCK", socket);
        }
        invocation.arguments(["push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags"]);
        invocation.arguments(["--recurse-submodules=no", "--no-progress", "--receive-pack=git-receive-pack"]);
        if mode == PushMode::DryRun {
            invocation.arguments(["--dry-run"]);
        }
        let branch = branch.full_ref();
        invocation.arguments([PUSH_REMOTE, &format!("{branch}:{branch}")]);
        Ok(invocation)
    }
}

/// The remote of this push; its remote-tracking branches are those of the remote that the caller named.
fn push_settings(target: &PushTarget) -> Vec<(String, String)> {
    let key = |variable: &str| format!("remote.{PUSH_REMOTE}.{variable}");
    let tracking = format!("+refs/heads/*:refs/remotes/{}/*", target.remote.as_str());
    vec![
        (key("url"), target.url.to_string()),
        (key("fetch"), tracking),
        ("http.followRedirects".to_owned(), "false".to_owned()),
    ]
}

/// Git gives this to a shell; every part is quoted.
fn ssh_command(ssh: &SshSettings) -> Result<String, PushError> {
    let known_hosts = ssh.known_hosts.to_str().unwrap_or_default();
    let plain = |text: &str| {
        let plain =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | '=' | '@');
        !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
    };
    for text in [ssh.program.as_str(), known_hosts] {
        if !plain(text) {
            return Err(PushError::SshPath(quoted(text.as_bytes())));
        }
    }
    let options = [
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "GlobalKnownHostsFile=/dev/null",
        "IdentityFile=none",
        "PermitLocalCommand=no",
        "ProxyCommand=none",
        "ControlMaster=no",
        "ControlPath=none",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "ForwardX11=no",
    ];
    let options: String = options.iter().map(|option| format!(" -o {option}")).collect();
    Ok(format!("{} -F /dev/null{options} -o UserKnownHostsFile={known_hosts}", ssh.program))
}
