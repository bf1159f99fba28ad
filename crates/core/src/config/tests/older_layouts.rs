//! The older layouts (`.flow/config.json` and `file_broker:`) load, keep their line numbers, and can be migrated.

use super::super::{ConfigSource, Isolation, SettingValue, combine, migrate, parse};
use super::{errors, file, layers, notes};

const FLOW: &str = r#"{
  "scope": {
     "service_isolation": "STRICT",
     "shared_paths": ["shared_contracts/", "docs/policies/"],
     "block_patterns": [".env", "secrets/"]
  },
  "tools": {
     "allow_legacy_run_command": false,
     "whitelisted_binaries": ["pytest", "npm", "cargo"]
  },
  "secrets": {
     "redact_patterns": ["sk-...", "ghp-..."]
  }
}
"#;

const FILE_BROKER: &str = r#"file_broker:
  enabled: true
  hitl_ttl_seconds: 120
  max_read_bytes_default: 32000
  max_read_bytes_hard: 131072
  max_write_bytes_hard: 524288
  audit_log_enabled: true
  allowlisted_create_dirs:
    - "src/"
    - "lib/"
    - "tests/"
    - "docs/"
    - "scripts/"
  deny_path_globs:
    - "**/.env"
    - "**/*.pem"
    - "**/*id_rsa*"
    - "**/secrets/**"
"#;

// T24
#[test]
fn flow_layout_loads_unchanged() {
    let effective = layers("", "", FLOW, true);
    assert_eq!(effective.isolation, Isolation::Strict);
    assert_eq!(effective.shared_paths, ["shared_contracts/", "docs/policies/"]);
    assert_eq!(effective.tools.whitelisted_binaries, ["pytest", "npm", "cargo"]);
    assert_eq!(effective.secrets.redact_patterns, ["sk-...", "ghp-..."]);
    assert_eq!(effective.get("workspace.shared_paths").unwrap().at.to_string(), "project.yaml:4");
    assert_eq!(
        notes(&effective),
        [
            "project.yaml:2: scope: is an older layout; `vambrace config migrate` converts the file to the current one"
        ]
    );
    let shared = FLOW.replace("STRICT", "SHARED");
    assert_eq!(layers("", "", &shared, true).isolation, Isolation::Shared);
    assert_eq!(layers("", "", &shared, false).isolation, Isolation::Strict);
    assert_eq!(layers("", "", &FLOW.replace("  ", "\t"), true).shared_paths.len(), 2);
}

// T24, B4
#[test]
fn file_broker_section_loads_unchanged() {
    let effective = layers("", "", &format!("version: 1\n{FILE_BROKER}"), true);
    assert_eq!(effective.create_in, [".", "src/", "lib/", "tests/", "docs/", "scripts/"]);
    assert!(effective.block.contains(&"**/secrets/**".to_owned()));
    assert_eq!(effective.approvals.proposal_ttl_sec, 120);
    assert_eq!(effective.get("limits.read_bytes_hard").unwrap().at.to_string(), "project.yaml:6");
    assert!(effective.block_list().unwrap().blocks("a/secrets/x").is_some());
}

#[test]
fn errors_in_older_layouts_name_the_older_keys() {
    let got = errors(
        "file_broker:\n  max_read_bytes_hrd: 5\n  max_write_bytes_hard: 0\nscope: {service_isolation: STRCT}\n",
    );
    let got: Vec<String> = got.iter().map(ToString::to_string).collect();
    assert_eq!(
        got,
        [
            ".vambrace/config.yaml:2:3: file_broker.max_read_bytes_hrd: unknown key\nhint: the nearest valid key is `max_read_bytes_hard`",
            ".vambrace/config.yaml:3:25: file_broker.max_write_bytes_hard: `0` is out of range: from 1 to 104857600\nhint: the nearest valid value is `1`",
            ".vambrace/config.yaml:4:28: scope.service_isolation: `STRCT` must be one of `STRICT`, `SHARED`, `strict`, `shared`\nhint: the nearest valid value is `STRICT`",
        ]
    );
    let twice = errors("scope: {shared_paths: [a/]}\nworkspace: {shared_paths: [b/]}\n");
    assert_eq!(
        twice[0].to_string(),
        ".vambrace/config.yaml:1:9: scope.shared_paths: is set twice: also as `workspace.shared_paths` in line 2\nhint: keep the current key"
    );
}

#[test]
fn blocked_patterns_of_all_layouts_are_merged() {
    let text = "scope: {block_patterns: [a]}\nworkspace: {block: [b]}\nfile_broker: {deny_path_globs: [c]}\n";
    let effective = layers("", "", text, false);
    for pattern in ["a", "b", "c", ".env"] {
        assert!(effective.block.contains(&pattern.to_owned()), "{pattern}");
    }
}

#[test]
fn older_switches_have_no_effect_in_the_user_file() {
    let user = file("file_broker: {enabled: false}\n", ConfigSource::User);
    assert_eq!(
        notes(&combine(None, Some(user), None))[1],
        "user.yaml:1: file_broker.enabled: has no effect: protection cannot be switched off"
    );
}

fn round_trip(text: &str) {
    let written = migrate(text, "old").unwrap();
    let source = ConfigSource::Project { trusted: true };
    let old = parse(text, "old", source).unwrap();
    let new = parse(&written, "new", source).unwrap_or_else(|errors| panic!("{written}\n{errors:#?}"));
    assert!(new.notes.iter().all(|note| note.message == "has no effect in this version"), "{written}");
    let values = |file: &super::super::FileConfig| -> Vec<(&'static str, serde_json::Value)> {
        file.values()
            .filter(|(key, _)| *key != "version")
            .map(|(key, value)| (key, value.value.to_json()))
            .collect()
    };
    assert_eq!(values(&new), values(&old), "{written}");
    let (old, new) = (combine(None, None, Some(old)), combine(None, None, Some(new)));
    assert_eq!(new.revision(), old.revision(), "{written}");
}

// T24
#[test]
fn migration_keeps_every_value() {
    round_trip(FLOW);
    round_trip(FILE_BROKER);
    round_trip(&format!(
        "{FILE_BROKER}profile: ci\nroles:\n  default: dev\n  dev: {{tools: ['group:fs'], permits: [read]}}\n  x: {{}}\n\
         approvals:\n  rules:\n    - {{id: a, tools: ['*'], decision: ask, reason: \"a: b # c\\n\\ttab \\u2028 \\u0085 'q' \\\"q\\\"\", match: [read_file x]}}\n\
         tools: {{whitelisted_binaries: [make]}}\nsecrets: {{scopes: {{A: {{env: 'true'}}}}, redact_patterns: ['- x', 'no', '1', '&a', '*b', '# c']}}\n\
         limits: {{calls_per_minute: {{default: 5, 'git_*': 2}}}}\n"
    ));
}

#[test]
fn migrated_text_is_readable() {
    let written = migrate(FLOW, ".flow/config.json").unwrap();
    assert!(
        written.starts_with("# Written by `vambrace config migrate` from .flow/config.json\nversion: 1\n"),
        "{written}"
    );
    assert!(
        written.contains("  # directories of the project root that are readable as `project:...`\n  shared_paths:\n    - shared_contracts/\n    - docs/policies/\n"),
        "{written}"
    );
}

#[test]
fn migrate_keeps_the_current_layout_and_reports_errors() {
    let text = "# mine\nprofile: ci # yes\n";
    assert_eq!(migrate(text, "f").unwrap(), text);
    // A key without an effect, as an earlier `init` wrote it, is no older layout.
    let text = "# mine\napprovals:\n  commands: ask_first # yes\n";
    assert_eq!(migrate(text, "f").unwrap(), text);
    assert_eq!(migrate("profil: ci\n", "f").unwrap_err()[0].key, "profil");
}

#[test]
fn values_of_a_file_keep_their_lines() {
    let file = file("limits:\n  read_bytes: 5\nworkspace:\n  block:\n    - a\n    - b\n", ConfigSource::User);
    assert_eq!(file.get("limits.read_bytes").unwrap().value, SettingValue::Int(5));
    let SettingValue::List(block) = &file.get("workspace.block").unwrap().value else { panic!() };
    assert_eq!(
        block.iter().map(|item| item.at.to_string()).collect::<Vec<_>>(),
        ["user.yaml:5", "user.yaml:6"]
    );
}
