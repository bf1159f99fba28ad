//! OTLP logs against the shape that the protocol's JSON mapping documents.

use serde_json::{Map, Value};
use vambrace_ledger::ExportFormat;

use crate::fixtures::pairs;

fn object<'v>(value: &'v Value, keys: &[&str]) -> &'v Map<String, Value> {
    let object = value.as_object().unwrap_or_else(|| panic!("not an object: {value}"));
    for key in object.keys() {
        assert!(keys.contains(&key.as_str()), "`{key}` is not a field here: {value}");
    }
    object
}

fn only(value: &Value) -> &Value {
    let [one] = value.as_array().unwrap().as_slice() else { panic!("expected one element: {value}") };
    one
}

/// An `AnyValue`: one of seven forms, or empty; 64-bit numbers are strings.
fn any(value: &Value, depth: usize) {
    assert!(depth < 8, "too deep");
    let fields = value.as_object().unwrap();
    assert!(fields.len() <= 1, "{value}");
    for (key, inner) in fields {
        match key.as_str() {
            "stringValue" => assert!(inner.is_string(), "{value}"),
            "boolValue" => assert!(inner.is_boolean(), "{value}"),
            "intValue" => drop(inner.as_str().unwrap().parse::<i64>().unwrap()),
            "doubleValue" => assert!(inner.is_f64(), "{value}"),
            "arrayValue" => {
                object(inner, &["values"])["values"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .for_each(|v| any(v, depth + 1));
            }
            "kvlistValue" => attributes(&object(inner, &["values"])["values"], depth + 1),
            other => panic!("`{other}` is not an AnyValue"),
        }
    }
}

fn attributes(list: &Value, depth: usize) {
    let mut keys = Vec::new();
    for attribute in list.as_array().unwrap() {
        let fields = object(attribute, &["key", "value"]);
        let key = fields["key"].as_str().unwrap();
        assert!(!key.is_empty() && !keys.contains(&key), "`{key}` twice");
        keys.push(key);
        any(&fields["value"], depth);
    }
}

// B7
#[test]
fn requests_have_the_documented_shape_and_contain_every_field() {
    for (record, line) in pairs(ExportFormat::Otlp) {
        let request: Value = serde_json::from_str(&line).unwrap();
        let logs = only(&object(&request, &["resourceLogs"])["resourceLogs"]);
        let logs = object(logs, &["resource", "scopeLogs", "schemaUrl"]);
        attributes(&object(&logs["resource"], &["attributes", "droppedAttributesCount"])["attributes"], 0);
        let scoped = object(only(&logs["scopeLogs"]), &["scope", "logRecords", "schemaUrl"]);
        let scope = object(&scoped["scope"], &["name", "version", "attributes"]);
        assert!(scope["name"].is_string() && scope["version"].is_string());
        let known = [
            "timeUnixNano",
            "observedTimeUnixNano",
            "severityNumber",
            "severityText",
            "body",
            "attributes",
            "droppedAttributesCount",
            "flags",
            "traceId",
            "spanId",
            "eventName",
        ];
        let log = object(only(&scoped["logRecords"]), &known);
        let nanos: u64 = log["timeUnixNano"].as_str().unwrap().parse().unwrap();
        assert!((1_785_000_000_123_000_000..1_786_000_000_000_000_000).contains(&nanos), "{nanos}");
        assert!(log["observedTimeUnixNano"].as_str().unwrap().parse::<u64>().is_ok());
        assert!((1..=24).contains(&log["severityNumber"].as_u64().unwrap()));
        any(&log["body"], 0);
        attributes(&log["attributes"], 0);

        for (field, value) in &record {
            if field == "ts" {
                continue;
            }
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let quoted = Value::from(text.as_str()).to_string();
            let plain =
                value.as_array().is_some_and(|items| items.iter().all(|i| !i.is_array() && !i.is_object()));
            assert!(plain || line.contains(&quoted) || value.is_boolean(), "{field} = {text} in {line}");
        }
    }
}
