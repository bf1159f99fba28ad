//! Approval requests and changes of all projects of the state directory: listing, finding, and the project context in which
//! one is decided.

use std::path::PathBuf;
use std::sync::Arc;

use vambrace_broker::{ApprovalView, RequestedCall, visible};
use vambrace_core::clock::Clock as _;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::terminal_escape::sanitize;
use vambrace_store::{ApprovalFilter, ApprovalRow};

use crate::caller::{Caller, ProjectKey};
use crate::error::HostError;
use crate::host::Host;
use crate::project_context::{ContextUse, ProjectContext};
use crate::reader::Reader;
use crate::system::SystemClock;

/// How many of the newest requests and changes are searched for the end of an id.
const SEARCHED: usize = 1000;

/// The approval requests. Requests past their deadline are expired and recorded first.
pub async fn approval_requests(
    host: &Host,
    asked: ApprovalFilter,
) -> Result<Vec<ApprovalRow<String>>, HostError> {
    let (now, queries) = (SystemClock.now(), host.store().approval_queries());
    let open = ApprovalFilter { open: true, ..ApprovalFilter::default() };
    let pending = queries.approvals(open).await?;
    if pending.iter().any(|row| now >= row.expires) {
        let redactor = host.redactor()?;
        for row in &pending {
            vambrace_broker::expire(host.store().as_ref(), redactor, now, row)
                .await
                .map_err(HostError::of)?;
        }
    }
    Ok(queries.approvals(asked).await?)
}

/// Reads a request or a change by its id, or the unique end of it; returns the whole id too. One that the reader may not see
/// does not exist for it.
pub async fn read_request(
    host: &Host,
    reader: &Reader,
    word: &str,
) -> Result<(String, ApprovalView), HostError> {
    let id = find_request(host, reader, word).await?;
    let queries = host.store().approval_queries();
    let view = visible(queries, &id, reader.owner()).await.map_err(HostError::of)?;
    Ok((id, view))
}

/// Resolves an id.
async fn find_request(host: &Host, reader: &Reader, word: &str) -> Result<String, HostError> {
    let queries = host.store().approval_queries();
    if queries.approval(word).await?.is_some() || queries.proposal(word).await?.is_some() {
        return Ok(word.to_owned());
    }
    let mut ids: Vec<String> = Vec::new();
    if word.len() >= 4 {
        let owner = reader.owner().clone();
        let requests =
            queries.approvals(ApprovalFilter { limit: SEARCHED, owner, ..ApprovalFilter::default() }).await?;
        let changes = queries.proposals(reader.owner(), SEARCHED).await?;
        ids.extend(requests.into_iter().map(|row| row.id.to_string()));
        ids.extend(changes.into_iter().map(|row| row.id.to_string()));
        ids.retain(|id| id.ends_with(word));
        ids.sort();
        ids.dedup();
    }
    match ids.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(HostError::of(
            CallError::new(
                ErrorCode::ProposalNotFound,
                format!("there is no approval request or proposal `{}`", sanitize(word)),
            )
            .suggest(
                "`vambrace approvals list` lists the pending requests, `vambrace proposals list` the changes",
            ),
        )),
        several => {
            let why = format!("{} ids end with `{}`", several.len(), sanitize(word));
            Err(HostError::usage(why, "use more characters of the id"))
        }
    }
}

/// The context in which a request is decided, or a change rolled back: its project, role and skill, with the current
/// configuration.
pub async fn request_context(host: &Arc<Host>, view: &ApprovalView) -> Result<ProjectContext, HostError> {
    let key = match (&view.request, &view.change) {
        (Some(row), _) => {
            let call = RequestedCall::of(row, host.store().approval_queries()).map_err(HostError::of)?;
            Caller::of_request(&call).key
        }
        (None, Some(change)) => ProjectKey::of_local_user(PathBuf::from(&change.project)),
        (None, None) => return Err(HostError::failed("there is no approval request to decide")),
    };
    ProjectContext::open(host, &key, ContextUse::Shared).await
}
