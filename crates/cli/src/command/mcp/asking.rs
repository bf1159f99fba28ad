//! How a question of a call reaches a person through an MCP client, by what the client supports: a form (elicitation, or
//! input_required of 2026-07-28), else waiting with progress, else the id of the question, to come back with. All of them
//! are about the same record. An answer to a form decides only where the user's own configuration trusts the client, and
//! the form shows all of the change; otherwise it shows how to decide. What is HIGH takes its name there too, not a click.

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
use vambrace_broker::{Answer, Choice, Decider, Look, Patience, Peer, RawCall, Waiting, look};
use vambrace_store::Store as _;

use crate::approver;
use crate::command::approvals::card::name;
use crate::command::audit::one_line;
use crate::desk::Desk;
use crate::failure::Failure;
use crate::harmless::plain;
use crate::machine;

/// The name of the one form in an input_required result.
const FORM: &str = "decision";
/// Between two progress notifications.
const BEAT: Duration = Duration::from_secs(1);

/// What came back to a form of an earlier result.
pub(super) struct Back {
    pub(super) state: Option<String>,
    pub(super) responses: Option<BTreeMap<String, Value>>,
}

/// What a call leads to.
pub(super) enum Reply {
    Answer(Box<Answer>),
    Form(Box<InputRequiredResult>),
}

/// What an answer to a form comes to.
enum Heard {
    /// It was applied.
    Answer(Box<Answer>),
    /// It is decided, here or elsewhere: whoever waits hears it.
    Decided,
    /// The question stays open.
    Nothing,
}

/// A call through an MCP client.
pub(super) struct Asking<'a> {
    pub(super) desk: &'a Arc<Desk>,
    pub(super) peer: &'a Peer,
    pub(super) context: &'a RequestContext<RoleServer>,
}

impl Asking<'_> {
    /// Makes the call, and lets a person be asked by what the client supports.
    pub(super) async fn call(&self, raw: RawCall, back: Back) -> Reply {
        let broker = &self.desk.broker;
        let progress = self.context.meta.get_progress_token();
        let form = self.takes_forms() && back.state.is_none();
        // The question is put as one that somebody waits for, unless its id is all that goes back now.
        let waits = progress.is_some() || (form && !self.is_modern());
        let put = Patience { longest: waits.then_some(Duration::ZERO), told: None };
        let mut answer = broker.call_patiently(raw.clone(), self.peer, &put).await;
        let Some((id, ..)) = answer.open_question() else { return Reply::Answer(Box::new(answer)) };
        let id = id.to_string();
        // The answer to a form counts for the question of this very call: nobody saw another one there.
        let said = back.responses.as_ref().and_then(|all| all.get(FORM));
        if let Some(said) = said.filter(|_| back.state.as_ref() == Some(&id)) {
            let said: Option<ElicitResult> = serde_json::from_value(said.clone()).ok();
            answer = match self.heard(&id, said.as_ref()).await {
                Heard::Answer(answer) => return Reply::Answer(answer),
                Heard::Decided => broker.call(raw.clone(), self.peer).await,
                Heard::Nothing => answer,
            };
            if answer.open_question().is_none() {
                return Reply::Answer(Box::new(answer));
            }
        }
        if form && self.is_modern() {
            if let Some(params) = self.form(&id).await {
                let request = InputRequest::Elicitation(ElicitRequest::new(params));
                let forms = [(FORM.to_owned(), request)].into_iter().collect();
                return Reply::Form(Box::new(InputRequiredResult::new(Some(forms), Some(id))));
            }
        } else if form && let Some(params) = self.form(&id).await {
            return Reply::Answer(Box::new(self.elicit(raw, &id, params, progress).await));
        }
        match progress {
            Some(token) => Reply::Answer(Box::new(self.wait(raw, Some(token)).await)),
            None => Reply::Answer(Box::new(answer)),
        }
    }

    /// Waits for the decision, wherever it is made, and tells how long it still stands.
    async fn wait(&self, raw: RawCall, token: Option<ProgressToken>) -> Answer {
        let beat = token.map(|token| Beat::new(self.context.peer.clone(), token));
        let told = |waiting: &Waiting| {
            if let Some(beat) = &beat {
                beat.tell(waiting);
            }
        };
        let patience = Patience { told: Some(&told), ..Patience::whole() };
        self.desk.broker.call_patiently(raw, self.peer, &patience).await
    }

    /// Shows a form while waiting: whatever decides first counts.
    async fn elicit(
        &self,
        raw: RawCall,
        id: &str,
        params: ElicitRequestParams,
        token: Option<ProgressToken>,
    ) -> Answer {
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
            said = &mut shown => {
                match self.heard(id, said.as_ref()).await {
                    Heard::Answer(answer) => return *answer,
                    // Nobody decided there, and a client without progress does not wait for ever.
                    Heard::Nothing if !patient => return self.desk.broker.call(again, self.peer).await,
                    Heard::Decided | Heard::Nothing => {}
                }
            }
        }
        waiting.await
    }

    /// What somebody said in a form. It decides only where the user trusts the client; the answer then is that of the
    /// decision, if there is one already.
    async fn heard(&self, id: &str, said: Option<&ElicitResult>) -> Heard {
        let Some(said) = said.filter(|_| self.is_trusted()) else { return Heard::Nothing };
        let Ok(found) = look(self.desk.store().questions(), id).await else { return Heard::Nothing };
        // Only a question of this very session.
        let Some(row) = found.question.as_ref().filter(|row| row.session == self.peer.session) else {
            return Heard::Nothing;
        };
        let Ok(decider) = self.decider().await else { return Heard::Nothing };
        let field =
            |key: &str| said.content.as_ref().and_then(|content| content.get(key)).and_then(Value::as_str);
        let broker = &self.desk.broker;
        match (&said.action, field("decision")) {
            (ElicitationAction::Accept, Some("approve")) => {
                let named = row.risk != "HIGH" || field("name") == Some(name(&found).as_str());
                if !(named && fits(&found)) {
                    return Heard::Nothing;
                }
                match broker.approve(id, Choice::once(), &decider).await {
                    Ok(Some(answer)) => Heard::Answer(Box::new(answer)),
                    // Its caller carries it out; or somebody else decided meanwhile: then that is heard.
                    Ok(None) | Err(_) => Heard::Decided,
                }
            }
            (ElicitationAction::Accept, Some("reject")) | (ElicitationAction::Decline, _) => {
                let reason = field("reason").filter(|reason| !reason.is_empty());
                let _ = broker.reject(id, reason, &decider).await;
                Heard::Decided
            }
            _ => Heard::Nothing,
        }
    }

    /// Whoever answers through this client.
    async fn decider(&self) -> Result<Decider, Failure> {
        let store = self.desk.store();
        let fault = |fault: vambrace_store::ApproverFault| Failure::failed(fault.to_string());
        let (key, made) = vambrace_store::client_key(store.dir()).map_err(fault)?;
        if made {
            let words = "answers through clients that the user's configuration trusts are signed by this key";
            approver::record(store, "approver.client", &key.verify_key(), words).await?;
        }
        Ok(Decider::of_client(machine::user(), &self.client(), key))
    }

    fn client(&self) -> String {
        self.context.client_info().map(|client| client.name.clone()).unwrap_or_default()
    }

    fn is_trusted(&self) -> bool {
        self.desk.trusts_client(&self.client())
    }

    fn is_modern(&self) -> bool {
        self.context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
    }

    fn takes_forms(&self) -> bool {
        let elicitation =
            self.context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        elicitation.is_some_and(|form| form.form.is_some() || form.url.is_none())
    }

    /// The form of a question.
    async fn form(&self, id: &str) -> Option<ElicitRequestParams> {
        let found = look(self.desk.store().questions(), id).await.ok()?;
        let row = found.question.as_ref()?;
        let mut message =
            format!("{} wants: {} ({} risk)\n", one_line(&row.agent), one_line(&row.summary), row.risk);
        for why in row.why.lines() {
            message.push_str(&format!("why: {}\n", plain(why)));
        }
        if !found.diff.is_empty() {
            let preview = vambrace_workspace::diff::preview(found.diff.as_bytes());
            message.push_str(&format!("\n{}\n", plain(&preview)));
        }
        let schema = if self.is_trusted() && fits(&found) {
            message.push_str("\nA yes applies it at once, if the files are still the same.");
            let mut fields = json!({
                "decision": {"type": "string", "enum": ["approve", "reject"], "title": "Decision"},
                "reason": {"type": "string", "title": "Why (the agent hears it)"},
            });
            if let (true, Some(fields)) = (row.risk == "HIGH", fields.as_object_mut()) {
                let title = format!("HIGH: to agree, type {}", name(&found));
                fields.insert("name".to_owned(), json!({"type": "string", "title": title}));
            }
            json!({"type": "object", "required": ["decision"], "properties": fields})
        } else {
            let why = if self.is_trusted() {
                "The change is too long for a form"
            } else {
                "This client does not decide"
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

/// Whether a form shows all of a change: nobody agrees to what stands behind a cut.
fn fits(look: &Look) -> bool {
    vambrace_workspace::diff::previewed_whole(&look.diff)
}

/// Progress while somebody waits.
struct Beat {
    client: Client<RoleServer>,
    token: ProgressToken,
    last: Mutex<Option<Instant>>,
    count: AtomicU64,
}

impl Beat {
    fn new(client: Client<RoleServer>, token: ProgressToken) -> Self {
        Self { client, token, last: Mutex::new(None), count: AtomicU64::new(0) }
    }

    fn tell(&self, waiting: &Waiting) {
        let Ok(mut last) = self.last.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < BEAT) {
            return;
        }
        *last = Some(Instant::now());
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let words = format!(
            "waiting for a person: {} ({}, {} s left)",
            one_line(&waiting.summary),
            waiting.id,
            waiting.seconds
        );
        #[expect(clippy::cast_precision_loss, reason = "a count of seconds")]
        let told = ProgressNotificationParam::new(self.token.clone(), count as f64).with_message(words);
        let client = self.client.clone();
        // A client that does not listen is not waited for.
        tokio::spawn(async move { client.notify_progress(told).await });
    }
}
