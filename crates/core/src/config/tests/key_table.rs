//! The key table against the schema, the reference and `config show`.

use serde_json::{Value, json};

use super::super::key::{ConfigKey, KeyStatus};
use super::super::keys::KEYS;
use super::super::{ConfigSource, reference, schema};
use super::{layers, parse};

/// The paths of a schema, in the form of the key table.
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

/// The keys that are in use.
fn used() -> impl Iterator<Item = &'static ConfigKey> {
    KEYS.iter().filter(|key| key.status == KeyStatus::Used)
}

#[test]
fn schema_and_table_have_the_same_keys() {
    let mut found = Vec::new();
    paths(&schema(), "", &mut found);
    found.sort();
    let mut expected: Vec<String> = used().map(|key| key.path.to_owned()).collect();
    expected.sort();
    assert_eq!(found, expected);
}

const SAMPLE: &str = include_str!("sample.yaml");

/// The sample as JSON, through our own parser.
fn as_json(text: &str) -> Value {
    super::super::file::json(&super::super::yaml_tree::load(text, "f").unwrap())
}

/// The compiled schema; compiling checks it against its meta-schema.
fn compiled(schema: Value) -> (boon::Schemas, boon::SchemaIndex) {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("config.json", schema).unwrap();
    let root = compiler.compile("config.json", &mut schemas).unwrap();
    (schemas, root)
}

#[test]
fn sample_is_valid_for_schema_and_parser() {
    let (schemas, root) = compiled(schema());
    let sample = as_json(SAMPLE);
    schemas.validate(&sample, root).unwrap();
    parse(SAMPLE, "f", ConfigSource::Project { trusted: true }).unwrap();
    let every = used().filter(|key| key.is_value()).filter(|key| {
        let path: Vec<&str> = key.path.split('.').collect();
        path.iter().try_fold(&sample, |at, name| at.get(name)).is_none()
    });
    let missing: Vec<&str> = every.map(|key| key.path).collect();
    // The sample has nearly every key, so that schema and parser are both exercised.
    assert!(missing.len() <= 8, "{missing:?}");
}

#[test]
fn schema_and_parser_reject_the_same_files() {
    let (schemas, root) = compiled(schema());
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
        assert!(schemas.validate(&as_json(text), root).is_err(), "schema accepts {text}");
        assert!(parse(text, "f", ConfigSource::User).is_err(), "parser accepts {text}");
    }
}

#[test]
fn reference_has_a_row_for_every_key() {
    let reference = reference();
    assert_eq!(reference.lines().count(), used().count() + 2);
    for key in used() {
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
fn every_row_has_documentation_and_a_parent_and_is_unique() {
    for key in KEYS {
        assert!(!key.doc.is_empty(), "{}", key.path);
        let parent = key.path.rsplit_once('.').map(|(parent, _)| parent.trim_end_matches("[]"));
        assert!(parent.is_none_or(|parent| ConfigKey::find(parent).is_some()), "{} has no parent", key.path);
        assert!(KEYS.iter().filter(|other| other.path == key.path).count() == 1, "{} twice", key.path);
    }
}

#[test]
fn permits_are_the_effect_kinds() {
    use crate::effect::EffectKind;
    let kinds: Vec<&str> = EffectKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(kinds, super::super::keys::PERMITS);
}

#[test]
fn built_in_lists_are_normalized() {
    let effective = layers("", "", "", false);
    for shown in effective.show() {
        let key = ConfigKey::find(shown.key).unwrap();
        if let (super::super::key::ValueKind::List(item), Value::Array(items)) = (key.kind, &shown.value) {
            for item_text in items.iter().filter_map(Value::as_str) {
                assert_eq!(super::super::list_item::normalize_item(item, item_text).unwrap(), item_text);
            }
        }
    }
}

#[test]
fn every_key_is_shown_with_origin_and_status() {
    let effective =
        layers("", "limits: {read_bytes: 5}\nworkspace: {block: [x]}\n", "roles: {default: dev}\n", true);
    let shown = effective.show();
    assert_eq!(shown.len(), used().filter(|key| key.is_value()).count());
    let find = |key: &str| shown.iter().find(|shown| shown.key == key).unwrap();
    let read = find("limits.read_bytes");
    assert_eq!((&read.value, read.origin.as_str()), (&json!(5), "user.yaml:1"));
    assert_eq!(find("limits.regex_ms").origin, "built-in");
    assert_eq!(find("workspace.block").origin, "built-in, user.yaml:2");
    assert_eq!(find("roles").origin, "project.yaml:1");
    assert!(shown.iter().all(|shown| shown.key != "elevation"));
    assert_eq!(find("limits.calls_per_minute").value, json!([]));
}

#[test]
fn keys_of_later_versions_are_errors() {
    let text = "elevation: {max_sec: 5}\n";
    let errors = super::super::parse(text, super::FILE, ConfigSource::User).unwrap_err();
    let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        got,
        [".vambrace/config.yaml:1:1: elevation: not available in this version\nhint: remove the key"]
    );
    let generated = [reference(), schema().to_string()];
    assert!(generated.iter().all(|text| !text.contains("elevation")));
}
