//! Approval requests through an MCP client, depending on what the client supports: a form (elicitation, or input_required of
//! 2026-07-28), else waiting with progress notifications, else the id of the request for a repeated call. All of them use the
//! same stored request. A form decides only if the user's own configuration trusts the client and the form shows the whole
//! change; otherwise the form explains how to decide. A HIGH request needs the typed name in a form too, not a click.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest, InputRequiredResult, ProtocolVersion, ServerRequest,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use vambrace_broker::{
    ApprovalChoice, ApprovalView, CallResult, DecisionWait, Peer, RawCall, WaitProgress, read_approval,
};
use vambrace_core::terminal_escape::{one_line, sanitize};
use vambrace_host::{ProjectContext, approver_of_client, confirmation_name};
use vambrace_tools::{CallContext, CancelToken, ProgressSink};

use crate::progress::ProgressReporter;

/// The name of the one form in an input_required result.
const FORM_NAME: &str = "decision";

/// The response to a form of an earlier result.
pub(crate) struct FormResponse {
    pub(crate) state: Option<String>,
    pub(crate) responses: Option<BTreeMap<String, Value>>,
}

/// The reply to a call.
pub(crate) enum CallReply {
    Answer(Box<CallResult>),
    Form(Box<InputRequiredResult>),
}

/// The effect of a form's response.
enum FormOutcome {
    /// The change was applied.
    Answer(Box<CallResult>),
    /// The request was decided, here or elsewhere; waiting calls are notified.
    Decided,
    /// The request stays pending.
    Nothing,
}

/// A call through an MCP client.
pub(crate) struct McpCall<'a> {
    pub(crate) project: &'a Arc<ProjectContext>,
    pub(crate) peer: &'a Peer,
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) cancel: &'a CancelToken,
}

impl McpCall<'_> {
    /// Runs the call and asks for approval in the way the client supports.
    pub(crate) async fn run(&self, raw: RawCall, back: FormResponse) -> CallReply {
        let reporter = self.context.meta.get_progress_token();
        let reporter =
            reporter.map(|token| Arc::new(ProgressReporter::new(self.context.peer.clone(), token)));
        let form = self.takes_forms() && back.state.is_none();
        // The request is stored with a waiting caller, unless only its id is returned now.
        let waits = reporter.is_some() || (form && !self.is_modern());
        let put = DecisionWait { max_wait: waits.then_some(Duration::ZERO), on_waiting: None };
        let mut answer = self.call(raw.clone(), put, self.cancel, reporter.as_ref()).await;
        let Some((id, ..)) = answer.pending_request() else { return CallReply::Answer(Box::new(answer)) };
        let id = id.to_string();
        // The response counts only for the request of this call: the user saw no other one.
        let response = back.responses.as_ref().and_then(|all| all.get(FORM_NAME));
        if let Some(response) = response.filter(|_| back.state.as_ref() == Some(&id)) {
            let response: Option<ElicitResult> = serde_json::from_value(response.clone()).ok();
            answer = match self.process_response(&id, response.as_ref()).await {
                FormOutcome::Answer(answer) => return CallReply::Answer(answer),
                FormOutcome::Decided => {
                    self.call(raw.clone(), DecisionWait::default(), self.cancel, reporter.as_ref()).await
                }
                FormOutcome::Nothing => answer,
            };
            if answer.pending_request().is_none() {
                return CallReply::Answer(Box::new(answer));
            }
        }
        if form && self.is_modern() {
            if let Some(params) = self.form(&id).await {
                let request = InputRequest::Elicitation(ElicitRequest::new(params));
                let forms = [(FORM_NAME.to_owned(), request)].into_iter().collect();
                return CallReply::Form(Box::new(InputRequiredResult::new(Some(forms), Some(id))));
            }
        } else if form && let Some(params) = self.form(&id).await {
            return CallReply::Answer(Box::new(self.elicit(raw, &id, params, reporter).await));
        }
        match &reporter {
            Some(_) => CallReply::Answer(Box::new(self.wait(raw, self.cancel, reporter.as_ref()).await)),
            None => CallReply::Answer(Box::new(answer)),
        }
    }

    /// Runs the call once through the pipeline.
    async fn call(
        &self,
        raw: RawCall,
        wait: DecisionWait,
        cancel: &CancelToken,
        reporter: Option<&Arc<ProgressReporter>>,
    ) -> CallResult {
        let progress = reporter.map(|reporter| Arc::clone(reporter) as Arc<dyn ProgressSink>);
        let context = CallContext { cancel: cancel.clone(), progress, ..CallContext::default() };
        self.project.broker().call_and_wait(raw, self.peer, wait, context).await
    }

    /// Waits for a decision from anywhere, and sends the remaining time as progress.
    async fn wait(
        &self,
        raw: RawCall,
        cancel: &CancelToken,
        reporter: Option<&Arc<ProgressReporter>>,
    ) -> CallResult {
        let on_waiting = reporter.map(|reporter| {
            let reporter = Arc::clone(reporter);
            Arc::new(move |waiting: &WaitProgress| reporter.waiting(waiting))
                as Arc<dyn Fn(&WaitProgress) + Send + Sync>
        });
        let wait = DecisionWait { on_waiting, ..DecisionWait::until_decided() };
        self.call(raw, wait, cancel, reporter).await
    }

    /// Shows a form while waiting; the first decision counts.
    async fn elicit(
        &self,
        raw: RawCall,
        id: &str,
        params: ElicitRequestParams,
        reporter: Option<Arc<ProgressReporter>>,
    ) -> CallResult {
        let client = self.context.peer.clone();
        let shown = async move {
            let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
            match client.send_request(request).await {
                Ok(ClientResult::ElicitResult(result)) => Some(result),
                _ => None,
            }
        };
        let again = raw.clone();
        // The waiting call is a task of the broker: it ends with this function, or with the whole call.
        let stop = StopWaiting(CancelToken::default());
        let also = stop.0.clone();
        self.cancel.on_cancel(move || also.cancel());
        let waiting = self.wait(raw, &stop.0, reporter.as_ref());
        tokio::pin!(shown, waiting);
        tokio::select! {
            answer = &mut waiting => return answer,
            response = &mut shown => {
                match self.process_response(id, response.as_ref()).await {
                    FormOutcome::Answer(answer) => return *answer,
                    // No decision in the form; a client without progress notifications does not wait.
                    FormOutcome::Nothing if reporter.is_none() => {
                        return self.call(again, DecisionWait::default(), self.cancel, None).await;
                    }
                    FormOutcome::Decided | FormOutcome::Nothing => {}
                }
            }
        }
        waiting.await
    }

    /// Processes the response to a form. It decides only if the user trusts the client.
    async fn process_response(&self, id: &str, response: Option<&ElicitResult>) -> FormOutcome {
        let Some(response) = response.filter(|_| self.is_trusted()) else { return FormOutcome::Nothing };
        let Ok(found) = read_approval(self.project.host().store().approval_queries(), id).await else {
            return FormOutcome::Nothing;
        };
        // Only a request of this session.
        let Some(row) = found.request.as_ref().filter(|row| row.session == self.peer.session) else {
            return FormOutcome::Nothing;
        };
        let user = &self.peer.principal.user;
        let approver = approver_of_client(self.project.host(), user, &self.client()).await;
        let Ok(approver) = approver else { return FormOutcome::Nothing };
        let field = |key: &str| {
            response.content.as_ref().and_then(|content| content.get(key)).and_then(Value::as_str)
        };
        let broker = self.project.broker();
        match (&response.action, field("decision")) {
            (ElicitationAction::Accept, Some("approve")) => {
                let named = row.risk != "HIGH" || field("name") == Some(confirmation_name(&found).as_str());
                if !(named && fits(&found)) {
                    return FormOutcome::Nothing;
                }
                match broker.approve(id, ApprovalChoice::once_for_own_call(), &approver).await {
                    Ok(Some(answer)) => FormOutcome::Answer(Box::new(answer)),
                    // The caller runs the call; or the request was decided elsewhere, and that decision counts.
                    Ok(None) | Err(_) => FormOutcome::Decided,
                }
            }
            (ElicitationAction::Accept, Some("reject")) | (ElicitationAction::Decline, _) => {
                let reason = field("reason").filter(|reason| !reason.is_empty());
                let _ = broker.reject(id, reason, &approver).await;
                FormOutcome::Decided
            }
            _ => FormOutcome::Nothing,
        }
    }

    fn client(&self) -> String {
        self.context.client_info().map(|client| client.name.clone()).unwrap_or_default()
    }

    fn is_trusted(&self) -> bool {
        self.project.trusts_client(&self.client())
    }

    fn is_modern(&self) -> bool {
        self.context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
    }

    fn takes_forms(&self) -> bool {
        let elicitation =
            self.context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        elicitation.is_some_and(|form| form.form.is_some() || form.url.is_none())
    }

    /// The form for a request.
    async fn form(&self, id: &str) -> Option<ElicitRequestParams> {
        let found = read_approval(self.project.host().store().approval_queries(), id).await.ok()?;
        let row = found.request.as_ref()?;
        let mut message =
            format!("{} wants: {} ({} risk)\n", one_line(&row.agent), one_line(&row.summary), row.risk);
        for why in row.why.lines() {
            message.push_str(&format!("why: {}\n", sanitize(why)));
        }
        if !found.diff.is_empty() {
            let preview = vambrace_workspace::diff::preview(found.diff.as_bytes());
            message.push_str(&format!("\n{}\n", sanitize(&preview)));
        }
        let schema = if self.is_trusted() && fits(&found) {
            message.push_str("\nApproval applies it at once if its files have not changed.");
            let mut fields = json!({
                "decision": {"type": "string", "enum": ["approve", "reject"], "title": "Decision"},
                "reason": {"type": "string", "title": "Reason (the agent sees it)"},
            });
            if let (true, Some(fields)) = (row.risk == "HIGH", fields.as_object_mut()) {
                let title = format!("HIGH: to approve, type {}", confirmation_name(&found));
                fields.insert("name".to_owned(), json!({"type": "string", "title": title}));
            }
            json!({"type": "object", "required": ["decision"], "properties": fields})
        } else {
            let why = if self.is_trusted() {
                "The change is too long for a form"
            } else {
                "This client is not trusted to decide"
            };
            message.push_str(&format!(
                "\n{why}. To decide, in a terminal:\n  vambrace approvals approve {id}\n  vambrace \
                 approvals reject {id} --reason '...'"
            ));
            json!({"type": "object", "properties": {"seen": {"type": "boolean", "title": "Seen"}}})
        };
        let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
        Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
    }
}

/// Ends the wait of a call when it is dropped; the request stays open.
struct StopWaiting(CancelToken);

impl Drop for StopWaiting {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Whether a form shows the whole change: a truncated change cannot be approved.
fn fits(look: &ApprovalView) -> bool {
    vambrace_workspace::diff::preview_is_complete(&look.diff)
}
