//! The table of keys against what is made of it.

use serde_json::{Value, json};

use super::super::key::{Key, Status};
use super::super::keys::KEYS;
use super::super::{Source, parse, reference, schema};
use super::layers;

/// The paths of a schema, spelled as in the table.
fn paths(schema: &Value, path: &str, out: &mut Vec<String>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        out.push(join(name));
        paths(below, &join(name), out);
    }
    if schema["additionalProperties"].is_object() && !path.ends_with("calls_per_minute") {
        out.push(join("NAME"));
        paths(&schema["additionalProperties"], &join("NAME"), out);
    }
    if schema["items"]["properties"].is_object() {
        paths(&schema["items"], &format!("{path}[]"), out);
    }
}

#[test]
fn schema_and_table_have_the_same_keys() {
    let mut found = Vec::new();
    paths(&schema(), "", &mut found);
    found.sort();
    let mut expected: Vec<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    expected.sort();
    assert_eq!(found, expected);
}

const SAMPLE: &str = include_str!("sample.yaml");

/// The sample as JSON, through our own reader.
fn as_json(text: &str) -> Value {
    super::super::file::json(&super::super::tree::load(text, "f").unwrap())
}

#[test]
fn sample_fits_the_schema_and_the_reader() {
    let schema = schema();
    assert!(jsonschema::meta::is_valid(&schema));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let sample = as_json(SAMPLE);
    let faults: Vec<String> = validator.iter_errors(&sample).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}");
    parse(SAMPLE, "f", Source::Project { trusted: true }).unwrap();
    let every = KEYS.iter().filter(|key| key.is_value()).filter(|key| {
        let path: Vec<&str> = key.path.split('.').collect();
        path.iter().try_fold(&sample, |at, name| at.get(name)).is_none()
    });
    let missing: Vec<&str> = every.map(|key| key.path).collect();
    // The sample shows nearly every key, so that both sides are exercised.
    assert!(missing.len() <= 8, "{missing:?}");
}

#[test]
fn schema_and_reader_refuse_the_same() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for text in [
        "limits: {read_byts: 5}",
        "unknown: 1",
        "profile: codng",
        "limits: {regex_ms: 0}",
        "limits: []",
        "roles: {dev: {permits: [red]}}",
        "roles: {'a b': {}}",
        "tools: {allow_legacy_run_command: true}",
        "approvals: {rules: [{tools: [a]}]}",
        "approvals: {rules: [{tools: [a], decision: ask, x: 1}]}",
        "secrets: {scopes: {A: {}}}",
        "version: 2",
        "audit: {witness: {url: 'https://w.example'}}",
        "audit: {witness: {key: w+00000000+AAAA}}",
        "audit: {witness: {url: '', key: ''}}",
        "audit: {witness: https://w.example}",
        "network: {allow: [1]}",
        "intents: {match_threshold: 2}",
        "tools: {toolchain: {test: []}}",
    ] {
        assert!(!validator.is_valid(&as_json(text)), "schema takes {text}");
        assert!(parse(text, "f", Source::User).is_err(), "reader takes {text}");
    }
}

#[test]
fn reference_has_a_row_for_every_key() {
    let reference = reference();
    assert_eq!(reference.lines().count(), KEYS.len() + 2);
    for key in KEYS {
        assert!(reference.contains(&format!("| `{}` |", key.path)), "{}", key.path);
    }
    assert!(reference.contains(
        "| `limits.read_bytes_hard` | 1 to 104857600 bytes, or `64KiB`, `100MiB` | 131072 | lower only |"
    ));
    for line in reference.lines() {
        assert_eq!(line.replace("\\|", "").matches('|').count(), 6, "{line}");
    }
}

#[test]
fn rows_are_sound() {
    for key in KEYS {
        assert!(!key.doc.is_empty(), "{}", key.path);
        let parent = key.path.rsplit_once('.').map(|(parent, _)| parent.trim_end_matches("[]"));
        assert!(parent.is_none_or(|parent| Key::find(parent).is_some()), "{} has no parent", key.path);
        assert!(KEYS.iter().filter(|other| other.path == key.path).count() == 1, "{} twice", key.path);
    }
}

#[test]
fn words_of_other_modules_are_the_same() {
    use crate::effect::EffectKind;
    let kinds: Vec<&str> = EffectKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(kinds, super::super::keys::PERMITS);
}

#[test]
fn presets_are_in_their_kept_form() {
    let effective = layers("", "", "", false);
    for shown in effective.show() {
        let key = Key::find(shown.key).unwrap();
        if let (super::super::key::Kind::List(item), Value::Array(items)) = (key.kind, &shown.value) {
            for item_text in items.iter().filter_map(Value::as_str) {
                assert_eq!(super::super::pattern::kept_form(item, item_text).unwrap(), item_text);
            }
        }
    }
}

#[test]
fn every_key_is_shown_with_origin_and_status() {
    let effective =
        layers("", "limits: {read_bytes: 5}\nworkspace: {block: [x]}\n", "roles: {default: dev}\n", true);
    let shown = effective.show();
    assert_eq!(shown.len(), KEYS.iter().filter(|key| key.is_value()).count());
    let find = |key: &str| shown.iter().find(|shown| shown.key == key).unwrap();
    let read = find("limits.read_bytes");
    assert_eq!((&read.value, read.origin.as_str(), read.status), (&json!(5), "user.yaml:1", "used"));
    assert_eq!(find("limits.regex_ms").origin, "built-in");
    assert_eq!(find("workspace.block").origin, "built-in, user.yaml:2");
    assert_eq!(find("roles").origin, "project.yaml:1");
    assert_eq!(find("network.allow").status, "used");
    assert_eq!(find("elevation").status, "accepted, not yet used");
    assert_eq!(find("limits.calls_per_minute").value, json!([]));
    assert!(KEYS.iter().any(|key| key.status == Status::NotYet));
}
