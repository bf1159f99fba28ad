//! The result of a call and its JSON envelope, the same for every entry point (docs/contract.md, Result envelope).

use std::sync::Arc;

use serde_json::{Map, Value, json};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::id::Id;
use vambrace_core::principal::Provenance;
use vambrace_core::redacted::Redacted;
use vambrace_core::risk::RiskLevel;
use vambrace_core::tool::ExecutionEnvironment;

use crate::provenance;

/// Result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    pub(crate) tool: String,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) call: Option<Id>,
    pub(crate) outcome: CallOutcome,
    pub(crate) operation: Option<(Arc<str>, Option<String>)>,
    /// Result of the policy checks: passed, pending, denied, not_reached.
    pub(crate) checks: &'static str,
    pub(crate) risk: Option<RiskLevel>,
    pub(crate) environment: ExecutionEnvironment,
    /// The tier that confined a program.
    pub(crate) sandbox_tier: Option<&'static str>,
    pub(crate) duration_ms: u64,
    pub(crate) audit: Option<AuditReceipt>,
}

/// How a call ended, with its payload or error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallOutcome {
    Completed(Box<CleanOutput>),
    /// It waits for a person's approval.
    Pending(Box<PendingApproval>),
    Failed {
        error: CallError,
        failure: FailureKind,
    },
}

/// An approval request without a decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingApproval {
    pub(crate) id: Id,
    /// Seconds until it expires.
    pub(crate) ttl: u64,
    pub(crate) summary: String,
    pub(crate) preview: String,
    pub(crate) data: Redacted<Value>,
    pub(crate) details: Value,
}

/// Redacted output of a completed call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CleanOutput {
    pub(crate) data: Redacted<Value>,
    pub(crate) details: Value,
    /// Payload as text; `None` if that is the payload's `content`.
    pub(crate) text: Option<Redacted<String>>,
    /// A note by the broker about the payload.
    pub(crate) note: Option<String>,
    pub(crate) provenance: Provenance,
    pub(crate) truncated: bool,
}

impl CleanOutput {
    fn text(&self) -> &str {
        match &self.text {
            Some(text) => text.get(),
            None => self.data.get().get("content").and_then(Value::as_str).unwrap_or_default(),
        }
    }
}

/// Whether a failed call was denied or went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// A check denied it.
    Denied,
    /// It was allowed and failed.
    Error,
}

/// Hashes of the call's ledger record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditReceipt {
    pub(crate) prev_hash: String,
    pub(crate) event_hash: String,
    pub(crate) durable: bool,
}

/// How a call ended, for exit codes and protocol flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// It succeeded.
    Success,
    /// Unknown tool or invalid arguments.
    BadUsage,
    /// It waits for a person's approval.
    Waiting,
    /// Denied.
    Denied,
    /// It failed.
    Failed,
}

impl CallResult {
    /// The result of a call that could not be recorded.
    pub(crate) fn unrecorded(tool: &str, error: CallError) -> Self {
        Self {
            tool: tool.chars().take(100).filter(|letter| !letter.is_control()).collect(),
            tool_call_id: None,
            call: None,
            outcome: CallOutcome::Failed { error, failure: FailureKind::Error },
            operation: None,
            checks: "not_reached",
            risk: None,
            environment: ExecutionEnvironment::InProcess,
            sandbox_tier: None,
            duration_ms: 0,
            audit: None,
        }
    }

    /// How the call ended.
    #[must_use]
    pub fn status(&self) -> CallStatus {
        match &self.outcome {
            CallOutcome::Completed(_) => CallStatus::Success,
            CallOutcome::Failed { error, .. }
                if matches!(error.code, ErrorCode::UnknownTool | ErrorCode::InvalidArguments) =>
            {
                CallStatus::BadUsage
            }
            CallOutcome::Pending(_) => CallStatus::Waiting,
            CallOutcome::Failed { failure: FailureKind::Denied, .. } => CallStatus::Denied,
            CallOutcome::Failed { failure: FailureKind::Error, .. } => CallStatus::Failed,
        }
    }

    /// Id of the call; `None` if it never reached the pipeline.
    #[must_use]
    pub fn call(&self) -> Option<&Id> {
        self.call.as_ref()
    }

    /// The error of a failed call.
    #[must_use]
    pub fn error(&self) -> Option<&CallError> {
        match &self.outcome {
            CallOutcome::Completed(_) | CallOutcome::Pending(_) => None,
            CallOutcome::Failed { error, .. } => Some(error),
        }
    }

    /// Payload as text without provenance marks; for people.
    #[must_use]
    pub fn plain_text(&self) -> Option<&str> {
        match &self.outcome {
            CallOutcome::Completed(output) => Some(output.text()),
            CallOutcome::Pending(pending) => Some(&pending.preview),
            CallOutcome::Failed { .. } => None,
        }
    }

    /// The broker's note about the payload, for example that it was truncated.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        match &self.outcome {
            CallOutcome::Completed(output) => output.note.as_deref(),
            CallOutcome::Pending(_) | CallOutcome::Failed { .. } => None,
        }
    }

    /// The pending approval request: its id, summary, and the seconds until it expires.
    #[must_use]
    pub fn pending_request(&self) -> Option<(&Id, &str, u64)> {
        match &self.outcome {
            CallOutcome::Pending(pending) => Some((&pending.id, &pending.summary, pending.ttl)),
            CallOutcome::Completed(_) | CallOutcome::Failed { .. } => None,
        }
    }

    /// The result of a call that never reached the pipeline, because the project could not be opened.
    #[must_use]
    pub fn unopened(tool: &str, tool_call_id: Option<String>, error: CallError) -> Self {
        Self {
            tool: tool.chars().take(100).collect(),
            tool_call_id,
            call: None,
            outcome: CallOutcome::Failed { error, failure: FailureKind::Denied },
            operation: None,
            checks: "denied",
            risk: None,
            environment: ExecutionEnvironment::InProcess,
            sandbox_tier: None,
            duration_ms: 0,
            audit: None,
        }
    }

    /// Text for a model: content inside its provenance mark, or an error of the broker.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.outcome {
            CallOutcome::Completed(output) => {
                let wrapped = provenance::wrap(output.text(), &self.tool, output.provenance);
                match &output.note {
                    Some(note) => format!("{wrapped}\n{note}"),
                    None => wrapped,
                }
            }
            CallOutcome::Pending(pending) => {
                let words = format!(
                    "not done yet: a person must approve `{}` within {} s (approval request {}). Do something else meanwhile; repeat \
                     the same call to get the outcome.",
                    pending.summary, pending.ttl, pending.id
                );
                let words = provenance::neutralise(&words).into_owned();
                if pending.preview.is_empty() {
                    return words;
                }
                format!("{words}\n{}", provenance::wrap(&pending.preview, &self.tool, Provenance::File))
            }
            // File names in messages can look like a mark too.
            CallOutcome::Failed { error, .. } => provenance::neutralise(&format!(
                "error {}: {}\nhint: {}",
                error.code, error.message, error.suggestion
            ))
            .into_owned(),
        }
    }

    /// The result envelope (docs/contract.md).
    #[must_use]
    pub fn envelope(&self) -> Value {
        let mut out = Map::new();
        let mut details = Map::new();
        let (status, details_status) = match &self.outcome {
            CallOutcome::Completed(_) => ("success", "allowed"),
            CallOutcome::Pending(_) => ("success", "hitl_required"),
            CallOutcome::Failed { failure: FailureKind::Denied, .. } => ("error", "denied"),
            CallOutcome::Failed { failure: FailureKind::Error, .. } => ("error", "error"),
        };
        out.insert("tool_name".to_owned(), self.tool.as_str().into());
        out.insert("tool_call_id".to_owned(), json!(self.tool_call_id));
        out.insert("status".to_owned(), status.into());
        details.insert("schema_version".to_owned(), "1.0".into());
        details.insert("status".to_owned(), details_status.into());
        if let Some((method, path)) = &self.operation {
            details.insert("op".to_owned(), json!({"method": &**method, "path": path}));
        }
        let (mut redactions, mut truncated) = (0, false);
        match &self.outcome {
            CallOutcome::Completed(output) => {
                out.insert("data".to_owned(), output.data.get().clone());
                details.insert("data".to_owned(), output.details.clone());
                redactions = output.data.count();
                truncated = output.truncated;
            }
            CallOutcome::Pending(pending) => {
                let hitl = json!({
                    "hitl_id": pending.id.as_str(), "ttl_seconds": pending.ttl, "summary": pending.summary,
                    "diff_preview": pending.preview,
                });
                details.insert("hitl".to_owned(), hitl);
                out.insert("data".to_owned(), pending.data.get().clone());
                details.insert("data".to_owned(), pending.details.clone());
                redactions = pending.data.count();
            }
            CallOutcome::Failed { error, .. } => {
                let error = json!({"code": error.code.as_str(), "message": error.message, "suggestion": error.suggestion});
                out.insert("error".to_owned(), error);
            }
        }
        if let Some(audit) = &self.audit {
            let audit = json!({"prev_hash": audit.prev_hash, "event_hash": audit.event_hash, "durable": audit.durable});
            details.insert("audit".to_owned(), audit);
        }
        out.insert("details".to_owned(), details.into());
        let mut metadata = json!({
            "call_id": self.call.as_ref().map(Id::as_str), "duration_ms": self.duration_ms, "security_checks": self.checks,
            "risk": self.risk.map(RiskLevel::as_str), "execution_environment": self.environment.as_str(),
            "redactions_applied": redactions, "attempts": 1, "truncated": truncated,
        });
        if let (Some(tier), Some(metadata)) = (self.sandbox_tier, metadata.as_object_mut()) {
            metadata.insert("sandbox_tier".to_owned(), tier.into());
        }
        out.insert("metadata".to_owned(), metadata);
        out.into()
    }
}

/// JSON Schema of the envelope around a payload's schema.
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
                    "execution_environment": {"type": "string"}, "sandbox_tier": {"type": "string"},
                    "redactions_applied": {"type": "integer"},
                    "attempts": {"type": "integer"}, "truncated": {"type": "boolean"},
                },
            },
        },
    })
}
