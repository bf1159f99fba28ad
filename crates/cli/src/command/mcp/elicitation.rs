//! Approval requests through an MCP client, depending on what the client supports: a form (elicitation, or input_required of
//! 2026-07-28), else waiting with progress notifications, else the id of the request for a repeated call. All of them use the
//! same stored request. A form decides only if the user's own configuration trusts the client and the form shows the whole
//! change; otherwise the form explains how to decide. A HIGH request needs the typed name in a form too, not a click.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest, InputRequiredResult, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    ServerRequest,
};
use rmcp::service::RequestContext;
use rmcp::{Peer as Client, RoleServer};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use vambrace_broker::{
    ApprovalChoice, ApprovalView, Approver, CallResult, DecisionWait, Peer, RawCall, WaitProgress,
    read_approval,
};
use vambrace_store::Store as _;

use crate::approver;
use crate::command::approvals::details::name;
use crate::command::audit::one_line;
use crate::failure::Failure;
use crate::project_context::ProjectContext;
use crate::system;
use crate::terminal_escape::sanitize;

/// The name of the one form in an input_required result.
const FORM_NAME: &str = "decision";
/// Interval of progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The response to a form of an earlier result.
pub(super) struct FormResponse {
    pub(super) state: Option<String>,
    pub(super) responses: Option<BTreeMap<String, Value>>,
}

/// The reply to a call.
pub(super) enum CallReply {
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
pub(super) struct McpCall<'a> {
    pub(super) project: &'a Arc<ProjectContext>,
    pub(super) peer: &'a Peer,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl McpCall<'_> {
    /// Runs the call and asks for approval in the way the client supports.
    pub(super) async fn call(&self, raw: RawCall, back: FormResponse) -> CallReply {
        let broker = &self.project.broker;
        let progress = self.context.meta.get_progress_token();
        let form = self.takes_forms() && back.state.is_none();
        // The request is stored with a waiting caller, unless only its id is returned now.
        let waits = progress.is_some() || (form && !self.is_modern());
        let put = DecisionWait { max_wait: waits.then_some(Duration::ZERO), on_waiting: None };
        let mut answer = broker.call_and_wait(raw.clone(), self.peer, &put).await;
        let Some((id, ..)) = answer.pending_request() else { return CallReply::Answer(Box::new(answer)) };
        let id = id.to_string();
        // The response counts only for the request of this call: the user saw no other one.
        let response = back.responses.as_ref().and_then(|all| all.get(FORM_NAME));
        if let Some(response) = response.filter(|_| back.state.as_ref() == Some(&id)) {
            let response: Option<ElicitResult> = serde_json::from_value(response.clone()).ok();
            answer = match self.process_response(&id, response.as_ref()).await {
                FormOutcome::Answer(answer) => return CallReply::Answer(answer),
                FormOutcome::Decided => broker.call(raw.clone(), self.peer).await,
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
            return CallReply::Answer(Box::new(self.elicit(raw, &id, params, progress).await));
        }
        match progress {
            Some(token) => CallReply::Answer(Box::new(self.wait(raw, Some(token)).await)),
            None => CallReply::Answer(Box::new(answer)),
        }
    }

    /// Waits for a decision from anywhere, and sends the remaining time as progress.
    async fn wait(&self, raw: RawCall, token: Option<ProgressToken>) -> CallResult {
        let progress_reporter = token.map(|token| ProgressReporter::new(self.context.peer.clone(), token));
        let reported = |waiting: &WaitProgress| {
            if let Some(progress_reporter) = &progress_reporter {
                progress_reporter.tell(waiting);
            }
        };
        let patience = DecisionWait { on_waiting: Some(&reported), ..DecisionWait::until_decided() };
        self.project.broker.call_and_wait(raw, self.peer, &patience).await
    }

    /// Shows a form while waiting; the first decision counts.
    async fn elicit(
        &self,
        raw: RawCall,
        id: &str,
        params: ElicitRequestParams,
        token: Option<ProgressToken>,
    ) -> CallResult {
        let patient = token.is_some();
        let client = self.context.peer.clone();
        let shown = async move {
            let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
            match client.send_request(request).await {
                Ok(ClientResult::ElicitResult(result)) => Some(result),
                _ => None,
            }
        };
        let again = raw.clone();
        let waiting = self.wait(raw, token);
        tokio::pin!(shown, waiting);
        tokio::select! {
            answer = &mut waiting => return answer,
            response = &mut shown => {
                match self.process_response(id, response.as_ref()).await {
                    FormOutcome::Answer(answer) => return *answer,
                    // No decision in the form; a client without progress notifications does not wait.
                    FormOutcome::Nothing if !patient => return self.project.broker.call(again, self.peer).await,
                    FormOutcome::Decided | FormOutcome::Nothing => {}
                }
            }
        }
        waiting.await
    }

    /// Processes the response to a form. It decides only if the user trusts the client.
    async fn process_response(&self, id: &str, response: Option<&ElicitResult>) -> FormOutcome {
        let Some(response) = response.filter(|_| self.is_trusted()) else { return FormOutcome::Nothing };
        let Ok(found) = read_approval(self.project.store().approval_queries(), id).await else {
            return FormOutcome::Nothing;
        };
        // Only a request of this session.
        let Some(row) = found.request.as_ref().filter(|row| row.session == self.peer.session) else {
            return FormOutcome::Nothing;
        };
        let Ok(decider) = self.decider().await else { return FormOutcome::Nothing };
        let field = |key: &str| {
            response.content.as_ref().and_then(|content| content.get(key)).and_then(Value::as_str)
        };
        let broker = &self.project.broker;
        match (&response.action, field("decision")) {
            (ElicitationAction::Accept, Some("approve")) => {
                let named = row.risk != "HIGH" || field("name") == Some(name(&found).as_str());
                if !(named && fits(&found)) {
                    return FormOutcome::Nothing;
                }
                match broker.approve(id, ApprovalChoice::once(), &decider).await {
                    Ok(Some(answer)) => FormOutcome::Answer(Box::new(answer)),
                    // The caller runs the call; or the request was decided elsewhere, and that decision counts.
                    Ok(None) | Err(_) => FormOutcome::Decided,
                }
            }
            (ElicitationAction::Accept, Some("reject")) | (ElicitationAction::Decline, _) => {
                let reason = field("reason").filter(|reason| !reason.is_empty());
                let _ = broker.reject(id, reason, &decider).await;
                FormOutcome::Decided
            }
            _ => FormOutcome::Nothing,
        }
    }

    /// The approver who decides through this client.
    async fn decider(&self) -> Result<Approver, Failure> {
        let store = self.project.store();
        let fault = |fault: vambrace_store::ApproverKeyError| Failure::failed(fault.to_string());
        let (key, made) = vambrace_store::client_key(store.dir()).map_err(fault)?;
        if made {
            let words = "this key signs decisions through clients that the user's configuration trusts";
            approver::record_key_event(store, "approver.client", &key.verify_key(), words).await?;
        }
        Ok(Approver::of_client(system::user(), &self.client(), key))
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
        let found = read_approval(self.project.store().approval_queries(), id).await.ok()?;
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
                let title = format!("HIGH: to approve, type {}", name(&found));
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

/// Whether a form shows the whole change: a truncated change cannot be approved.
fn fits(look: &ApprovalView) -> bool {
    vambrace_workspace::diff::preview_is_complete(&look.diff)
}

/// Sends progress notifications while a call waits.
struct ProgressReporter {
    client: Client<RoleServer>,
    token: ProgressToken,
    last: Mutex<Option<Instant>>,
    count: AtomicU64,
}

impl ProgressReporter {
    fn new(client: Client<RoleServer>, token: ProgressToken) -> Self {
        Self { client, token, last: Mutex::new(None), count: AtomicU64::new(0) }
    }

    fn tell(&self, waiting: &WaitProgress) {
        let Ok(mut last) = self.last.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        *last = Some(Instant::now());
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let words = format!(
            "waiting for approval: {} ({}, {} s left)",
            one_line(&waiting.summary),
            waiting.id,
            waiting.seconds
        );
        #[expect(clippy::cast_precision_loss, reason = "a count of seconds")]
        let reported = ProgressNotificationParam::new(self.token.clone(), count as f64).with_message(words);
        let client = self.client.clone();
        // In a task of its own: a client that does not read must not delay the call.
        tokio::spawn(async move { client.notify_progress(reported).await });
    }
}
