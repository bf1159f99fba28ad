//! Trust in a project's own files: the digest of the files that the user has trusted. The row and its record are one durable
//! batch.

use std::path::Path;

use vambrace_core::clock::Clock as _;
use vambrace_core::digest::Digest;
use vambrace_ledger::{Id, Op, RecordStatus, SignedNote};
use vambrace_store::{Batch, Entry, StateChange, TrustRow};

use crate::error::HostError;
use crate::host::Host;
use crate::project_files::ProjectFiles;
use crate::system::{self, SystemClock};

/// Whether the project's own files are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectTrust {
    /// The project has no files.
    NoFiles,
    /// Trusted, and not changed since.
    Trusted,
    /// Never trusted.
    Untrusted,
    /// Changed since they were trusted.
    Changed,
}

impl ProjectTrust {
    /// As text.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NoFiles => "no files",
            Self::Trusted => "trusted",
            Self::Untrusted => "not trusted",
            Self::Changed => "changed since it was trusted",
        }
    }
}

/// The key of a project in the trust table.
#[must_use]
pub fn trust_key(project: &Path) -> Digest {
    Digest::of(project.as_os_str().as_encoded_bytes())
}

/// Compares the project's files with the trusted digest; returns the stored row too.
pub(crate) async fn trust_state(
    host: &Host,
    project: &Path,
    files: &ProjectFiles,
) -> Result<(ProjectTrust, Option<TrustRow<String>>), HostError> {
    let pinned = host.store().trust(trust_key(project)).await?;
    let trust = match (files.digest(), &pinned) {
        (None, _) => ProjectTrust::NoFiles,
        (Some(digest), Some(pinned)) if pinned.digest == digest => ProjectTrust::Trusted,
        (Some(_), Some(_)) => ProjectTrust::Changed,
        (Some(_), None) => ProjectTrust::Untrusted,
    };
    Ok((trust, pinned))
}

/// Stores the trusted digest of a project's files; `signed` is the decision of the approver.
pub async fn trust_project(
    host: &Host,
    project: &Path,
    digest: Digest,
    words: &str,
    signed: Option<(Id, SignedNote)>,
) -> Result<(), HostError> {
    let before = host.store().trust(trust_key(project)).await?;
    let mut entry = record(host, "policy.trust", &format!("{words}: `{}`", project.display()))?;
    entry.before_hash = before.map(|row| row.digest);
    entry.after_hash = Some(digest);
    if let Some((about, note)) = signed {
        entry.hitl_id = Some(about);
        entry.plan_digest = Some(digest);
        entry.note = Some(note);
    }
    let row = TrustRow {
        project: trust_key(project),
        path: host.redact(&project.display().to_string())?,
        digest,
        by: host.redact(&system::user())?,
        at: entry.ts,
    };
    host.store().commit(Batch::durable(vec![entry], vec![StateChange::Trust(row)])).await?;
    Ok(())
}

/// Revokes the trust in a project; returns whether it was trusted.
pub async fn revoke_trust(host: &Host, project: &Path) -> Result<bool, HostError> {
    let Some(pinned) = host.store().trust(trust_key(project)).await? else { return Ok(false) };
    let mut entry = record(host, "policy.untrust", &format!("revoked the trust in `{}`", project.display()))?;
    entry.before_hash = Some(pinned.digest);
    let change = StateChange::Untrust { project: trust_key(project) };
    host.store().commit(Batch::durable(vec![entry], vec![change])).await?;
    Ok(true)
}

fn record(host: &Host, event_type: &'static str, words: &str) -> Result<Entry, HostError> {
    let mut entry = Entry::new(Op::PolicyChange, SystemClock.now());
    entry.event_type = Some(event_type);
    entry.status = Some(RecordStatus::Success);
    entry.user = Some(host.redact(&system::user())?);
    entry.message = Some(host.redact(words)?);
    Ok(entry)
}
