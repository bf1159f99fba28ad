//! The one result envelope that every door gives back (DESIGN 4.1).

use serde_json::{Map, Value, json};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::principal::Provenance;
use vambrace_core::redacted::Redacted;

use crate::provenance;

/// What a caller gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub(crate) tool: String,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) call: Option<Id>,
    pub(crate) outcome: Outcome,
    pub(crate) operation: Option<(&'static str, Option<String>)>,
    /// How far the checks went: passed, asked, denied, not_reached.
    pub(crate) checks: &'static str,
    pub(crate) risk: Option<&'static str>,
    pub(crate) duration_ms: u64,
    pub(crate) audit: Option<Audit>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Done(Box<Done>),
    /// A person must agree first.
    Asked(Box<Asked>),
    Failed {
        error: CallError,
        standing: Standing,
    },
}

/// A question that is open.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) id: Id,
    /// Seconds until it runs out.
    pub(crate) ttl: u64,
    pub(crate) summary: String,
    pub(crate) preview: String,
    pub(crate) data: Redacted<Value>,
    pub(crate) details: Value,
}

/// A result that may leave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Done {
    pub(crate) data: Redacted<Value>,
    pub(crate) details: Value,
    /// The payload as text; `None` where that is the payload's `content`.
    pub(crate) text: Option<Redacted<String>>,
    /// The broker's own words about it.
    pub(crate) note: Option<String>,
    pub(crate) provenance: Provenance,
    pub(crate) truncated: bool,
}

impl Done {
    fn text(&self) -> &str {
        match &self.text {
            Some(text) => text.get(),
            None => self.data.get().get("content").and_then(Value::as_str).unwrap_or_default(),
        }
    }
}

/// Whether a failure is a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Refused by a check.
    Denied,
    /// Allowed, and went wrong.
    Error,
}

/// Where the record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    pub(crate) prev_hash: String,
    pub(crate) event_hash: String,
    pub(crate) durable: bool,
}

/// How a call ended, for exit codes and protocol flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It worked.
    Success,
    /// The caller's words were wrong.
    BadUsage,
    /// A person must agree first.
    Waiting,
    /// Refused.
    Denied,
    /// It failed.
    Failed,
}

impl Answer {
    /// How it ended.
    #[must_use]
    pub fn ending(&self) -> Ending {
        match &self.outcome {
            Outcome::Done(_) => Ending::Success,
            Outcome::Failed { error, .. }
                if matches!(error.code, ErrorCode::UnknownTool | ErrorCode::InvalidArguments) =>
            {
                Ending::BadUsage
            }
            Outcome::Asked(_) => Ending::Waiting,
            Outcome::Failed { standing: Standing::Denied, .. } => Ending::Denied,
            Outcome::Failed { standing: Standing::Error, .. } => Ending::Failed,
        }
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> Option<&Id> {
        self.call.as_ref()
    }

    /// What went wrong, if something did.
    #[must_use]
    pub fn error(&self) -> Option<&CallError> {
        match &self.outcome {
            Outcome::Done(_) | Outcome::Asked(_) => None,
            Outcome::Failed { error, .. } => Some(error),
        }
    }

    /// The payload as text, unwrapped; for people.
    #[must_use]
    pub fn plain_text(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Done(done) => Some(done.text()),
            Outcome::Asked(asked) => Some(&asked.preview),
            Outcome::Failed { .. } => None,
        }
    }

    /// The broker's own words about the payload, for example that it was cut.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Done(done) => done.note.as_deref(),
            Outcome::Asked(_) | Outcome::Failed { .. } => None,
        }
    }

    /// The question that is open, if one is: its id, what it is about, and the seconds it still stands.
    #[must_use]
    pub fn open_question(&self) -> Option<(&Id, &str, u64)> {
        match &self.outcome {
            Outcome::Asked(asked) => Some((&asked.id, &asked.summary, asked.ttl)),
            Outcome::Done(_) | Outcome::Failed { .. } => None,
        }
    }

    /// The answer to a call that never reached the corridor, because nothing could be opened for it.
    #[must_use]
    pub fn unopened(tool: &str, tool_call_id: Option<String>, error: CallError) -> Self {
        Self {
            tool: tool.chars().take(100).collect(),
            tool_call_id,
            call: None,
            outcome: Outcome::Failed { error, standing: Standing::Denied },
            operation: None,
            checks: "denied",
            risk: None,
            duration_ms: 0,
            audit: None,
        }
    }

    /// The text for a model: content inside its provenance mark, an error in the broker's words.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.outcome {
            Outcome::Done(done) => {
                let wrapped = provenance::wrap(done.text(), &self.tool, done.provenance);
                match &done.note {
                    Some(note) => format!("{wrapped}\n{note}"),
                    None => wrapped,
                }
            }
            Outcome::Asked(asked) => {
                let words = format!(
                    "not done yet: a person must agree to `{}` within {} s (question {}). Do something else meanwhile; repeat \
                     the same call to hear the outcome.",
                    asked.summary, asked.ttl, asked.id
                );
                let words = provenance::neutralise(&words).into_owned();
                if asked.preview.is_empty() {
                    return words;
                }
                format!("{words}\n{}", provenance::wrap(&asked.preview, &self.tool, Provenance::File))
            }
            // Names of files stand in messages: they can look like a mark too.
            Outcome::Failed { error, .. } => provenance::neutralise(&format!(
                "error {}: {}\nhint: {}",
                error.code, error.message, error.suggestion
            ))
            .into_owned(),
        }
    }

    /// The envelope.
    #[must_use]
    pub fn envelope(&self) -> Value {
        let mut out = Map::new();
        let mut details = Map::new();
        let (status, standing) = match &self.outcome {
            Outcome::Done(_) => ("success", "allowed"),
            Outcome::Asked(_) => ("success", "hitl_required"),
            Outcome::Failed { standing: Standing::Denied, .. } => ("error", "denied"),
            Outcome::Failed { standing: Standing::Error, .. } => ("error", "error"),
        };
        out.insert("tool_name".to_owned(), self.tool.as_str().into());
        out.insert("tool_call_id".to_owned(), json!(self.tool_call_id));
        out.insert("status".to_owned(), status.into());
        details.insert("schema_version".to_owned(), "1.0".into());
        details.insert("status".to_owned(), standing.into());
        if let Some((method, path)) = &self.operation {
            details.insert("op".to_owned(), json!({"method": method, "path": path}));
        }
        let (mut redactions, mut truncated) = (0, false);
        match &self.outcome {
            Outcome::Done(done) => {
                out.insert("data".to_owned(), done.data.get().clone());
                details.insert("data".to_owned(), done.details.clone());
                redactions = done.data.count();
                truncated = done.truncated;
            }
            Outcome::Asked(asked) => {
                let hitl = json!({
                    "hitl_id": asked.id.as_str(), "ttl_seconds": asked.ttl, "summary": asked.summary,
                    "diff_preview": asked.preview,
                });
                details.insert("hitl".to_owned(), hitl);
                out.insert("data".to_owned(), asked.data.get().clone());
                details.insert("data".to_owned(), asked.details.clone());
                redactions = asked.data.count();
            }
            Outcome::Failed { error, .. } => {
                let error = json!({"code": error.code.as_str(), "message": error.message, "suggestion": error.suggestion});
                out.insert("error".to_owned(), error);
            }
        }
        if let Some(audit) = &self.audit {
            let audit = json!({"prev_hash": audit.prev_hash, "event_hash": audit.event_hash, "durable": audit.durable});
            details.insert("audit".to_owned(), audit);
        }
        out.insert("details".to_owned(), details.into());
        let metadata = json!({
            "call_id": self.call.as_ref().map(Id::as_str), "duration_ms": self.duration_ms, "security_checks": self.checks,
            "risk": self.risk, "execution_environment": "in_process", "redactions_applied": redactions,
            "attempts": 1, "truncated": truncated,
        });
        out.insert("metadata".to_owned(), metadata);
        out.into()
    }
}

/// The JSON Schema of the envelope around a payload's schema.
#[must_use]
pub fn envelope_schema(payload: &Value) -> Value {
    let text = || json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": ["tool_name", "status", "details", "metadata"],
        "properties": {
            "tool_name": {"type": "string"},
            "tool_call_id": text(),
            "status": {"enum": ["success", "error"]},
            "data": payload,
            "error": {
                "type": "object", "required": ["code", "message", "suggestion"],
                "properties": {"code": {"type": "string"}, "message": {"type": "string"}, "suggestion": {"type": "string"}},
            },
            "details": {
                "type": "object", "required": ["schema_version", "status"],
                "properties": {
                    "schema_version": {"type": "string"},
                    "status": {"enum": ["allowed", "hitl_required", "denied", "error"]},
                    "op": {"type": "object", "properties": {"method": {"type": "string"}, "path": text()}},
                    "data": {"type": "object"},
                    "hitl": {
                        "type": "object", "required": ["hitl_id", "ttl_seconds", "summary"],
                        "properties": {
                            "hitl_id": {"type": "string"}, "ttl_seconds": {"type": "integer"},
                            "summary": {"type": "string"}, "diff_preview": {"type": "string"},
                        },
                    },
                    "audit": {
                        "type": "object", "required": ["prev_hash", "event_hash", "durable"],
                        "properties": {"prev_hash": {"type": "string"}, "event_hash": {"type": "string"}, "durable": {"type": "boolean"}},
                    },
                },
            },
            "metadata": {
                "type": "object", "required": ["call_id", "duration_ms"],
                "properties": {
                    "call_id": text(), "duration_ms": {"type": "integer"},
                    "security_checks": {"type": "string"}, "risk": text(),
                    "execution_environment": {"type": "string"}, "redactions_applied": {"type": "integer"},
                    "attempts": {"type": "integer"}, "truncated": {"type": "boolean"},
                },
            },
        },
    })
}
