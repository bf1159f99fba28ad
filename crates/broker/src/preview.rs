//! Preview before approving a part of a proposal, or edited content: what would be applied, and its digest. Nothing
//! is recorded and nothing changes; approving requires the same digest.

use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_tools::Amendment;

use crate::approval_request::{PipelineStop, RequestedCall};
use crate::approver::Approver;
use crate::broker::Broker;
use crate::call_record::CallRecord;
use crate::consent::Consent;
use crate::pipeline::Purpose;

/// What an approval would apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposalPreview {
    /// One-line summary.
    pub summary: String,
    /// Redacted diff.
    pub diff: String,
    /// Digest of the plan, for [`crate::ApprovalChoice::shown`].
    pub digest: Digest,
}

impl Broker {
    /// What approving a part of a proposal, or edited content for it, would apply.
    pub async fn preview(
        &self,
        id: &str,
        part: Amendment,
        approver: &Approver,
    ) -> Result<ProposalPreview, CallError> {
        let row = self.pending_request(id, None, approver).await?;
        let call = RequestedCall::of(&row, self.parts.store.approval_queries())?;
        let mut record = CallRecord::reopen(self, &call, &row);
        record.consent = Some(Consent {
            id: row.id.clone(),
            requested: row.digest,
            part,
            shown: None,
            proposed: None,
            decision: None,
            undoes: None,
        });
        drop(self.judge(call.raw, &mut record, Purpose::Show).await.map_err(PipelineStop::into_error)?);
        let nothing = || CallError::new(ErrorCode::InvalidArguments, "it changes no files");
        let change = record.change.as_ref().ok_or_else(nothing)?;
        Ok(ProposalPreview {
            summary: self.text(&change.summary)?.into_inner(),
            diff: change.diff.clone(),
            digest: record.plan_digest.ok_or_else(nothing)?,
        })
    }

    /// Proposed content of a file, for a person who edits it before approving.
    pub async fn proposed_content(
        &self,
        id: &str,
        path: &str,
        approver: &Approver,
    ) -> Result<Vec<u8>, CallError> {
        let row = self.pending_request(id, Some(path), approver).await?;
        let call = RequestedCall::of(&row, self.parts.store.approval_queries())?;
        let context = &self.parts.tool_context;
        let prepared = self.parts.catalogue.plan(&call.raw.tool, &call.raw.args, context)?;
        let gone = || CallError::new(ErrorCode::InvalidArguments, format!("`{path}` gets no new content"));
        let draft = prepared.work.change().ok_or_else(gone)?;
        let named_path = AskedPath::new(path).parse()?;
        let file = draft
            .changes
            .files()
            .iter()
            .find(|file| file.after().is_some_and(|after| after.path == named_path))
            .ok_or_else(gone)?;
        let base = match file.before() {
            Some(_) => context.workspace.content(file.path(), &context.changes.limits)?,
            None => Default::default(),
        };
        let after = file.after().ok_or_else(gone)?;
        vambrace_core::change::spliced(&base, &after.splices)
            .map_err(|bad| CallError::new(ErrorCode::StaleBase, bad.to_string()))
    }
}
