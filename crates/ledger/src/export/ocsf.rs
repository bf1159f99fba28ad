//! OCSF 1.3. Calls are API Activity, file operations are File System Activity, denials are Detection Findings;
//! sessions, rights and policy use the identity and access classes. Fields without a place in the schema go to
//! `unmapped`; nothing is left out.

use serde_json::{Map, Value, json};

use super::{ExportEvent, PRODUCT, VERSION, bounded};
use crate::op::{Op, RecordLevel, RecordStatus, SessionChange};

const SCHEMA: &str = "1.3.0";
const OTHER: u64 = 99;
const SHA_256: u64 = 3;

const FILE: u64 = 1001;
const FINDING: u64 = 2004;
const AUTHENTICATION: u64 = 3002;
const ENTITY: u64 = 3004;
const ACCESS: u64 = 3005;
const LIFECYCLE: u64 = 6002;
const API: u64 = 6003;

pub(super) fn event(event: &ExportEvent<'_>) -> Value {
    let mut mapping = OcsfEvent { event, taken: vec!["seq", "ts", "writer"], out: Map::new() };
    let (class, activity) = class(event);
    mapping.base(class, activity);
    match class {
        FILE => mapping.file(),
        FINDING => mapping.finding(),
        AUTHENTICATION => mapping.authentication(),
        ENTITY => mapping.entity(),
        ACCESS => mapping.access(),
        LIFECYCLE => mapping.lifecycle(),
        _ => mapping.api(),
    }
    mapping.finish()
}

pub(super) fn record_ref(exported: &Value) -> Option<(u64, &str)> {
    let metadata = exported.get("metadata")?;
    Some((metadata.get("sequence")?.as_u64()?, metadata.get("uid")?.as_str()?))
}

/// The class, and the activity within it.
fn class(event: &ExportEvent<'_>) -> (u64, u64) {
    let kind = event.event_type();
    match event.op() {
        Some(Op::ReadFile) => (FILE, 2),
        Some(Op::WriteFileApply) => {
            (FILE, if event.fields.get("created") == Some(&Value::Bool(true)) { 1 } else { 3 })
        }
        Some(Op::Violation) => (FINDING, 1),
        Some(Op::Session) => match SessionChange::parse(kind) {
            Some(SessionChange::Open) => (AUTHENTICATION, 1),
            Some(SessionChange::Ended) => (AUTHENTICATION, 2),
            _ => (AUTHENTICATION, OTHER),
        },
        Some(Op::Grant | Op::Elevation) => (ACCESS, if kind.contains("revoke") { 2 } else { 1 }),
        Some(Op::PolicyChange) => (ENTITY, 3),
        Some(Op::SkillsRegistryInstall) => (LIFECYCLE, 1),
        Some(Op::PayloadForgotten) => (API, 4),
        Some(Op::AdminRead) => (API, 2),
        _ => (API, OTHER),
    }
}

/// An event under construction, and the fields of the line that it already contains.
struct OcsfEvent<'e, 'l> {
    event: &'e ExportEvent<'l>,
    taken: Vec<&'static str>,
    out: Map<String, Value>,
}

impl OcsfEvent<'_, '_> {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.out.insert(key.to_owned(), value.into());
    }

    /// A field that has an attribute of its own.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        let value = self.event.fields.get(key)?;
        self.taken.push(key);
        Some(bounded(value))
    }

    fn take_to(&mut self, from: &'static str, to: &str) {
        if let Some(value) = self.take(from) {
            self.set(to, value);
        }
    }

    /// The attributes that every class has.
    fn base(&mut self, class: u64, activity: u64) {
        let event = self.event;
        self.set("class_uid", class);
        self.set("category_uid", class / 1000);
        self.set("activity_id", activity);
        if activity == OTHER {
            self.set("activity_name", event.event_type());
        }
        self.set("type_uid", class * 100 + activity);
        self.set("time", event.millis());
        self.set("severity_id", severity(event));
        if class == FINDING {
            // The status of the finding; the status of the call is under `unmapped`.
            self.set("status_id", 1);
        } else if let Some(status) = self.take("status") {
            self.set("status_id", status_id(event.status()));
            self.set("status", status);
        }
        self.take_to("error_code", "status_code");
        self.take_to("duration_ms", "duration");
        self.take_to("message", "message");
        let mut metadata = Map::new();
        metadata.insert("version".into(), SCHEMA.into());
        metadata.insert(
            "product".into(),
            json!({"name": PRODUCT, "vendor_name": PRODUCT, "version": VERSION, "uid": event.text("writer")}),
        );
        for (from, to) in [
            ("event_hash", "uid"),
            ("execution_id", "correlation_uid"),
            ("event_type", "event_code"),
            ("level", "log_level"),
        ] {
            if let Some(value) = self.take(from) {
                metadata.insert(to.into(), value);
            }
        }
        metadata.insert("sequence".into(), event.number("seq").into());
        metadata.insert("original_time".into(), event.text("ts").into());
        metadata.insert("log_name".into(), "ledger".into());
        if class == FINDING {
            metadata.insert("profiles".into(), json!(["security_control"]));
        }
        self.set("metadata", metadata);
        let actor = self.actor();
        self.set("actor", actor);
    }

    fn actor(&mut self) -> Value {
        let mut actor = Map::new();
        if let Some(user) = self.take("user") {
            actor.insert("user".into(), json!({"name": user}));
        }
        if let Some(session) = self.take("session") {
            actor.insert("session".into(), json!({"uid": session}));
        }
        let agent = self.take("agent_id").unwrap_or_else(|| "vambrace".into());
        actor.insert("app_name".into(), agent);
        Value::Object(actor)
    }

    fn call(&mut self) -> Value {
        let event = self.event;
        let operation = self.take("tool_name").unwrap_or_else(|| event.text("op").into());
        let mut api = json!({"operation": operation, "service": {"name": PRODUCT}});
        let id = self.take("tool_call_id").or_else(|| event.text("execution_id").map(Value::from));
        if let Some(id) = id {
            let data = self.take("tool_args");
            let mut request = json!({"uid": id});
            if let (Some(data), Value::Object(request)) = (data, &mut request) {
                request.insert("data".into(), data);
            }
            if let Value::Object(api) = &mut api {
                api.insert("request".into(), request);
            }
        }
        api
    }

    fn api(&mut self) {
        let api = self.call();
        self.set("api", api);
        let from = self.event.text("session").or_else(|| self.event.text("writer"));
        self.set("src_endpoint", json!({"uid": from.unwrap_or("unknown")}));
        if let Some(path) = self.take("path") {
            self.set("resources", json!([{"name": path, "type": "File"}]));
        }
    }

    fn file(&mut self) {
        let path = self.take("path");
        let path = path.as_ref().and_then(Value::as_str).unwrap_or("unknown");
        let name = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path);
        let mut file = json!({"name": name, "path": path, "type_id": 1});
        let hash = self.take("after_hash").or_else(|| self.take("base_hash"));
        if let (Some(Value::String(hash)), Value::Object(file)) = (hash, &mut file) {
            let value = hash.strip_prefix("sha256:").unwrap_or(&hash);
            file.insert("hashes".into(), json!([{"algorithm_id": SHA_256, "value": value}]));
        }
        self.set("file", file);
        let device = self.event.text("writer").unwrap_or("unknown");
        self.set("device", json!({"type_id": 0, "uid": device}));
    }

    fn finding(&mut self) {
        let event = self.event;
        let kind = self.take("violation_type").unwrap_or_else(|| event.event_type().into());
        let title = format!("denied: {}", kind.as_str().unwrap_or_default());
        self.set(
            "finding_info",
            json!({
                "uid": event.text("event_hash"), "title": title, "types": [kind], "created_time": event.millis(),
                "desc": event.text("message").unwrap_or(&title),
            }),
        );
        self.set("action_id", 2);
        self.set("disposition_id", 2);
        let api = self.call();
        self.set("evidences", json!([{"api": api}]));
        if let Some(target) = self.take("target_path") {
            self.set("resources", json!([{"name": target}]));
        }
    }

    fn user(&mut self) -> Value {
        json!({"name": self.event.text("user").unwrap_or("unknown")})
    }

    fn authentication(&mut self) {
        let user = self.user();
        self.set("user", user);
        self.set("service", json!({"name": PRODUCT}));
        if let Some(session) = self.event.text("session") {
            self.set("session", json!({"uid": session}));
        }
    }

    fn access(&mut self) {
        let user = self.user();
        self.set("user", user);
        let privilege = self.take("tool_name").or_else(|| self.take("role"));
        self.set("privileges", vec![privilege.unwrap_or_else(|| "unknown".into())]);
    }

    fn entity(&mut self) {
        let name = self.take("path").unwrap_or_else(|| "policy".into());
        self.set("entity", json!({"name": name, "type": "Policy"}));
    }

    fn lifecycle(&mut self) {
        let name = self.take("skill_name").unwrap_or_else(|| "unknown".into());
        self.set("app", json!({"name": name, "vendor_name": "unknown"}));
    }

    /// Adds the fields without a place in the schema.
    fn finish(mut self) -> Value {
        let rest: Map<String, Value> = self
            .event
            .fields
            .iter()
            .filter(|(key, _)| !self.taken.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), bounded(value)))
            .chain([
                ("seq".to_owned(), self.event.number("seq").into()),
                ("event_hash".to_owned(), self.event.text("event_hash").into()),
            ])
            .collect();
        self.set("unmapped", rest);
        Value::Object(self.out)
    }
}

fn severity(event: &ExportEvent<'_>) -> u64 {
    match (event.level(), event.text("severity")) {
        (RecordLevel::Critical, _) => 5,
        (_, Some("HIGH")) => 4,
        (RecordLevel::Warn, _) => 3,
        (RecordLevel::Info, _) => 1,
    }
}

fn status_id(status: Option<RecordStatus>) -> u64 {
    match status {
        Some(RecordStatus::Success | RecordStatus::Allowed | RecordStatus::Approved) => 1,
        Some(
            RecordStatus::Denied
            | RecordStatus::Error
            | RecordStatus::Timeout
            | RecordStatus::Cancelled
            | RecordStatus::Rejected
            | RecordStatus::Expired,
        ) => 2,
        Some(RecordStatus::HitlRequired) => OTHER,
        Some(RecordStatus::Unknown) | None => 0,
    }
}
