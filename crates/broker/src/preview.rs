//! Looking before agreeing to a part of a proposal, or to other content: what would be applied then, and under which digest.
//! Nothing is recorded and nothing changes; the same digest is demanded when it is agreed to.

use vambrace_core::digest::Digest;
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::path::AskedPath;
use vambrace_ledger::{Reach, Verb};
use vambrace_tools::Part;

use crate::admit::{NewSession, admit};
use crate::agreement::Consent;
use crate::asking::AskedCall;
use crate::broker::Broker;
use crate::decide::decide;
use crate::decider::Decider;
use crate::plan::plan;
use crate::trail::Trail;

/// What would be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// In one line.
    pub summary: String,
    /// As it may be shown.
    pub diff: String,
    /// The plan: what [`crate::Choice::shown`] takes.
    pub digest: Digest,
}

impl Broker {
    /// What agreeing to a part of a proposal, or to other content for it, would apply.
    pub async fn preview(&self, id: &str, part: Part, decider: &Decider) -> Result<Preview, CallError> {
        let row = self.open_question(id, None, decider).await?;
        let call = AskedCall::of(&row, self.parts.store.questions())?;
        let mut trail = Trail::reopen(self, &call, &row);
        trail.consent = Some(Consent {
            id: row.id.clone(),
            asked: row.digest,
            part,
            shown: None,
            proposed: None,
            verb: Verb::Approve,
            reach: Reach::Once,
            decider: decider.clone(),
            undoes: None,
        });
        let admitted = admit(self, call.raw, &mut trail, NewSession::Imagine).await?;
        let planned = plan(self, admitted, &mut trail)?;
        drop(decide(self, planned, &mut trail));
        let nothing = || CallError::new(ErrorCode::InvalidArguments, "it changes no files");
        let change = trail.change.as_ref().ok_or_else(nothing)?;
        Ok(Preview {
            summary: self.text(&change.summary)?.into_inner(),
            diff: change.diff.clone(),
            digest: trail.plan_digest.ok_or_else(nothing)?,
        })
    }

    /// What a file of a proposal would hold, for whoever edits it before agreeing.
    pub async fn proposed_content(
        &self,
        id: &str,
        path: &str,
        decider: &Decider,
    ) -> Result<Vec<u8>, CallError> {
        let row = self.open_question(id, Some(path), decider).await?;
        let call = AskedCall::of(&row, self.parts.store.questions())?;
        let room = &self.parts.room;
        let prepared = self.parts.catalogue.plan(&call.raw.tool, &call.raw.args, room)?;
        let gone = || CallError::new(ErrorCode::InvalidArguments, format!("`{path}` gets no new content"));
        let draft = prepared.work.change().ok_or_else(gone)?;
        let asked = AskedPath::new(path).parse()?;
        let file = draft
            .changes
            .files()
            .iter()
            .find(|file| file.after().is_some_and(|after| after.path == asked))
            .ok_or_else(gone)?;
        let base = match file.before() {
            Some(_) => room.workspace.content(file.path(), &room.changes.limits)?,
            None => Default::default(),
        };
        let after = file.after().ok_or_else(gone)?;
        vambrace_core::change::spliced(&base, &after.splices)
            .map_err(|bad| CallError::new(ErrorCode::StaleBase, bad.to_string()))
    }
}
