//! OCSF against a table of what each class requires.

use serde_json::Value;
use vambrace_ledger::{ExportFormat, Op};

use crate::fixtures::pairs;

/// Class, its activities, and the attributes that it requires besides those of every event (OCSF 1.3).
const CLASSES: &[(u64, &[u64], &[&str])] = &[
    (1001, &[1, 2, 3], &["/actor", "/device/type_id", "/file/name", "/file/type_id"]),
    (2004, &[1], &["/finding_info/uid", "/finding_info/title", "/status_id"]),
    (3002, &[1, 2, 99], &["/user/name", "/service/name"]),
    (3004, &[3], &["/entity/name"]),
    (3005, &[1, 2], &["/user/name", "/privileges/0"]),
    (6002, &[1], &["/app/name", "/app/vendor_name"]),
    (6003, &[2, 4, 99], &["/actor", "/api/operation", "/src_endpoint/uid"]),
];
const BASE: &[&str] = &[
    "/activity_id",
    "/category_uid",
    "/class_uid",
    "/metadata/version",
    "/metadata/product/name",
    "/metadata/product/vendor_name",
    "/metadata/product/version",
    "/metadata/uid",
    "/metadata/sequence",
    "/severity_id",
    "/time",
    "/type_uid",
    "/unmapped/prev_hash",
    "/unmapped/event_hash",
    "/unmapped/seq",
];

fn number(event: &Value, at: &str) -> u64 {
    event.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("{at} in {event}"))
}

fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(fields) => fields.values().map(depth).max(),
        _ => return 0,
    };
    1 + inner.unwrap_or(0)
}

// B7
#[test]
fn every_event_has_what_its_class_requires() {
    let mut seen = Vec::new();
    for (record, line) in pairs(ExportFormat::Ocsf) {
        let event: Value = serde_json::from_str(&line).unwrap();
        let class = number(&event, "/class_uid");
        seen.push(class);
        let (_, activities, required) = CLASSES.iter().find(|(uid, ..)| *uid == class).unwrap();
        for at in BASE.iter().chain(*required) {
            assert!(event.pointer(at).is_some_and(|value| !value.is_null()), "{at} of {class} in {line}");
        }
        let activity = number(&event, "/activity_id");
        assert!(activities.contains(&activity), "activity {activity} of {class}");
        assert_eq!(number(&event, "/category_uid"), class / 1000);
        assert_eq!(number(&event, "/type_uid"), class * 100 + activity);
        assert_eq!(activity == 99, event.get("activity_name").is_some(), "{line}");
        assert!([1, 3, 4, 5].contains(&number(&event, "/severity_id")));
        assert!((1_785_000_000_123..1_786_000_000_000).contains(&number(&event, "/time")), "milliseconds");
        if let Some(status) = event.get("status_id") {
            assert!([0, 1, 2, 99].contains(&status.as_u64().unwrap()));
        }
        assert!(depth(&event) < 32, "{}", depth(&event));
        assert_eq!(number(&event, "/metadata/sequence").to_string(), record["seq"].to_string());
        assert_eq!(event.pointer("/metadata/uid"), record.get("event_hash"));
    }
    assert!(CLASSES.iter().all(|(class, ..)| seen.contains(class)), "{seen:?}");
}

// B7: no field is lost
#[test]
fn every_field_of_the_line_is_somewhere_in_the_event() {
    for (record, line) in pairs(ExportFormat::Ocsf) {
        for (field, value) in &record {
            let text = value.to_string();
            let as_text = Value::from(text.as_str()).to_string();
            let digits = value.as_str().map(|text| text.trim_start_matches("sha256:").to_owned());
            let there = field == "ts" || line.contains(&text) || line.contains(&as_text);
            assert!(
                there || digits.is_some_and(|d| d.len() == 64 && line.contains(&d)),
                "{field}: {text} in {line}"
            );
        }
    }
}

// T22
#[test]
fn denials_are_findings_and_calls_are_api_activity() {
    for (op, class) in [
        (Op::Violation, 2004),
        (Op::ReadFile, 1001),
        (Op::WriteFileApply, 1001),
        (Op::ToolStart, 6003),
        (Op::ToolEnd, 6003),
        (Op::ToolApproval, 6003),
        (Op::Session, 3002),
        (Op::Grant, 3005),
        (Op::PolicyChange, 3004),
    ] {
        for (record, line) in
            pairs(ExportFormat::Ocsf).iter().filter(|(record, _)| record["op"] == op.as_str())
        {
            let event: Value = serde_json::from_str(line).unwrap();
            assert_eq!(number(&event, "/class_uid"), class, "{record:?}");
        }
    }
}
