//! Layers only narrow: table tests, then property tests.

use proptest::prelude::*;

use super::super::key::{BaseSetter, Combine, Covers, ValueKind};
use super::super::keys::KEYS;
use super::super::list_item::covers;
use super::super::{
    AuditExportSettings, EffectiveConfig, Isolation, RuleDecision, SettingValue, ViolationAction,
};
use super::{layers, notes};

fn check(
    organisation: &str,
    user: &str,
    project: &str,
    trusted: bool,
    key: &str,
    expected: &str,
    note: Option<&str>,
) {
    let effective = layers(organisation, user, project, trusted);
    let value = effective.get(key).map(|value| value.value.to_json().to_string()).unwrap_or_default();
    assert_eq!(value, expected, "{organisation:?} {user:?} {project:?} {trusted}");
    let mut notes = notes(&effective);
    notes.retain(|note| !note.ends_with("has no effect in this version"));
    assert_eq!(
        notes,
        note.into_iter().collect::<Vec<_>>(),
        "{organisation:?} {user:?} {project:?} {trusted}"
    );
}

// A1
#[test]
fn limits_are_set_by_the_topmost_file_and_lowered_below() {
    let key = "limits.read_bytes_hard";
    let cap = |n: &str| format!("limits: {{read_bytes_hard: {n}}}\n");
    check("", "", "", false, key, "131072", None);
    check(&cap("100MiB"), "", "", false, key, "104857600", None);
    check(&cap("100MiB"), &cap("50MiB"), &cap("40MiB"), false, key, "41943040", None);
    check("", &cap("200000"), "", false, key, "200000", None);
    check("", "", &cap("200000"), true, key, "200000", None);
    check(
        "",
        "",
        &cap("200000"),
        false,
        key,
        "131072",
        Some(
            "project.yaml:1: limits.read_bytes_hard: `200000` is ignored: the built-in value is `131072`, and an untrusted project can only lower it",
        ),
    );
    check("", "", &cap("100000"), false, key, "100000", None);
    check(
        &cap("150000"),
        &cap("150001"),
        "",
        false,
        key,
        "150000",
        Some(
            "user.yaml:1: limits.read_bytes_hard: `150001` is ignored: org.yaml:1 sets `150000`, and a file below can only lower it",
        ),
    );
    check(
        "",
        &cap("40000"),
        &cap("50000"),
        true,
        key,
        "40000",
        Some(
            "project.yaml:1: limits.read_bytes_hard: `50000` is ignored: user.yaml:1 sets `40000`, and a file below can only lower it",
        ),
    );
    check(&cap("1000"), "", "", false, "limits.read_bytes", "1000", None);
    check(
        "",
        "limits: {read_bytes: 5000, read_bytes_hard: 1000}",
        "",
        false,
        "limits.read_bytes",
        "1000",
        Some("user.yaml:1: limits.read_bytes: is lowered to `limits.read_bytes_hard` of user.yaml:1"),
    );
}

#[test]
fn restricting_lists_are_merged() {
    let effective = layers(
        "network: {deny: [a.com]}",
        "network: {deny: [b.com]}",
        "network: {deny: [c.com, a.com]}",
        false,
    );
    assert_eq!(effective.network.deny, ["a.com", "b.com", "c.com"]);
    let effective = layers("", "", "workspace: {block: [mine]}", false);
    assert!(effective.block.contains(&".env".to_owned()) && effective.block.contains(&"mine".to_owned()));
    let effective = layers("", "secrets: {redact_patterns: [a]}", "secrets: {redact_patterns: [b]}", false);
    assert_eq!(effective.secrets.redact_patterns, ["a", "b"]);
}

// T12, B4
#[test]
fn permitting_lists_are_intersected() {
    let key = "workspace.shared_paths";
    let shared = |list: &str| format!("workspace: {{shared_paths: [{list}]}}\n");
    check("", "", &shared("other/"), true, key, r#"["other/"]"#, None);
    check(
        "",
        "",
        &shared("other/, shared/a"),
        false,
        key,
        r#"["shared/a/"]"#,
        Some(
            "project.yaml:1: workspace.shared_paths: `other/` is ignored: the built-in value does not contain it, and the project is not trusted",
        ),
    );
    check(
        &shared("a, b"),
        &shared("b, c"),
        "",
        false,
        key,
        r#"["b/"]"#,
        Some("user.yaml:1: workspace.shared_paths: `c/` is ignored: org.yaml:1 does not contain it"),
    );
    check(&shared("a"), "", &shared("a/x"), true, key, r#"["a/x/"]"#, None);
    check(&shared("a/x"), "", &shared("a"), true, key, r#"["a/x/"]"#, None);
    check(
        &shared(""),
        &shared("a"),
        "",
        true,
        key,
        "[]",
        Some("user.yaml:1: workspace.shared_paths: `a/` is ignored: org.yaml:1 does not contain it"),
    );
    check("", "", "workspace: {create_in: ['**']}\n", true, "workspace.create_in", r#"["**"]"#, None);
    check(
        "",
        "",
        "workspace: {create_in: ['**']}\n",
        false,
        "workspace.create_in",
        r#"[".","src/","lib/","tests/","docs/","scripts/"]"#,
        None,
    );
    check(
        "tools: {whitelisted_binaries: [cargo, go]}",
        "",
        "tools: {whitelisted_binaries: [go]}",
        false,
        "tools.whitelisted_binaries",
        r#"["go"]"#,
        None,
    );
    check(
        "network: {allow: ['*.a.com']}",
        "",
        "network: {allow: [x.a.com]}",
        false,
        "network.allow",
        r#"["x.a.com"]"#,
        None,
    );
}

// T4, T16, T23
#[test]
fn choices_and_switches_can_only_narrow() {
    let iso = |name: &str| format!("workspace: {{isolation: {name}}}");
    assert_eq!(layers("", "", &iso("shared"), true).isolation, Isolation::Shared);
    assert_eq!(layers("", "", &iso("shared"), false).isolation, Isolation::Strict);
    assert_eq!(layers(&iso("strict"), &iso("shared"), "", true).isolation, Isolation::Strict);
    assert_eq!(layers(&iso("shared"), &iso("strict"), &iso("shared"), true).isolation, Isolation::Strict);

    let violations = |limit: u64, window: u64, action: &str| {
        format!("violations: {{limit: {limit}, window_sec: {window}, action: {action}}}")
    };
    let effective = layers("", &violations(4, 120, "suspend"), &violations(9, 30, "alert"), true).violations;
    assert_eq!((effective.limit, effective.window_sec, effective.action), (4, 120, ViolationAction::Suspend));
    let effective = layers("", "", &violations(2, 1, "end"), false).violations;
    // A shorter window would count fewer violations.
    assert_eq!((effective.limit, effective.window_sec, effective.action), (2, 60, ViolationAction::End));

    check(
        "",
        "",
        "tools: {package_install: ask}",
        true,
        "tools.package_install",
        "\"deny\"",
        Some(
            "project.yaml:1: tools.package_install: `ask` is ignored: the built-in value is `deny`, and a file below can only narrow it",
        ),
    );
    check("", "tools: {package_install: ask}", "", true, "tools.package_install", "\"ask\"", None);
    check(
        "",
        "tools: {package_install: ask}",
        "tools: {package_install: deny}",
        false,
        "tools.package_install",
        "\"deny\"",
        None,
    );
    check(
        "",
        "tools: {shell_exec: true}",
        "tools: {shell_exec: false}",
        false,
        "tools.shell_exec",
        "false",
        None,
    );
    check(
        "",
        "",
        "tools: {shell_exec: true}",
        true,
        "tools.shell_exec",
        "false",
        Some(
            "project.yaml:1: tools.shell_exec: `true` is ignored: the built-in value is `false`, and a file below can only narrow it",
        ),
    );
    check(
        "",
        "sandbox: {enabled: false}",
        "sandbox: {enabled: true}",
        false,
        "sandbox.enabled",
        "true",
        None,
    );
    check("", "", "profile: readonly", false, "profile", "\"readonly\"", None);
    check("", "", "profile: messaging", true, "profile", "\"messaging\"", None);
    check("", "", "tools: {profile: readonly}", false, "tools.profile", "\"readonly\"", None);
    check(
        "",
        "",
        "tools: {profile: ci}",
        false,
        "tools.profile",
        "",
        Some(
            "project.yaml:1: tools.profile: `ci` is ignored: it is unset, and an untrusted project can only narrow it",
        ),
    );
    check("", "", "sandbox: {memory: 1GiB}", false, "sandbox.memory", "1073741824", None);
}

// T4
#[test]
fn service_root_can_only_move_to_a_subdirectory() {
    let root = |path: &str| format!("workspace: {{service_root: {path}}}");
    let key = "workspace.service_root";
    check("", "", &root("./services/a/"), true, key, "\"services/a\"", None);
    check(&root("services"), "", &root("services/a"), true, key, "\"services/a\"", None);
    let ignored = "project.yaml:1: workspace.service_root: is ignored: the project is not trusted (`vambrace trust`), and the paths of roles would move with it";
    check("", "", &root("services/a"), false, key, "\".\"", Some(ignored));
    check(
        &root("services/a"),
        "",
        &root("."),
        true,
        key,
        "\"services/a\"",
        Some(
            "project.yaml:1: workspace.service_root: `.` is ignored: org.yaml:1 sets `services/a`, and a file below can only narrow it",
        ),
    );
    check(
        "",
        &root("services/a"),
        &root("services/ab"),
        true,
        key,
        "\"services/a\"",
        Some(
            "project.yaml:1: workspace.service_root: `services/ab` is ignored: user.yaml:1 sets `services/a`, and a file below can only narrow it",
        ),
    );
}

// T5
#[test]
fn roles_are_granted_by_the_layers_above_the_project() {
    let effective = layers(
        "",
        "roles: {default: dev, sre: {}}",
        "roles: {default: sre, mine: {tools: [read_file]}}",
        true,
    );
    assert_eq!(effective.granted_roles().into_iter().collect::<Vec<_>>(), ["dev", "sre"]);
    assert_eq!(effective.default_role.as_ref().unwrap().value, "sre");
    assert!(effective.roles[1].get("mine").is_some());

    let effective = layers("", "roles: {default: dev}", "roles: {default: sre}", true);
    assert_eq!(effective.default_role.as_ref().unwrap().value, "dev");
    assert_eq!(
        notes(&effective),
        ["project.yaml:1: roles.default: `sre` is ignored: no file above grants this role"]
    );

    let effective = layers("", "", "roles: {default: sre, mine: {}, dev: {paths: ['a/**']}}", false);
    assert_eq!(effective.default_role, None);
    assert!(effective.granted_roles().is_empty());
    assert!(effective.roles[0].get("mine").is_none() && effective.roles[0].get("dev").is_some());
    assert_eq!(effective.notes.len(), 2);

    let effective = layers("roles: {default: dev}", "roles: {sre: {}, dev: {paths: ['x/**']}}", "", false);
    assert_eq!(effective.granted_roles().into_iter().collect::<Vec<_>>(), ["dev"]);
    assert!(effective.notes.is_empty());
    let effective = layers("roles: {default: dev}", "roles: {default: sre}", "", false);
    assert_eq!(effective.default_role.as_ref().unwrap().value, "dev");
    assert_eq!(
        notes(&effective),
        ["user.yaml:1: roles.default: `sre` is ignored: no file above grants this role"]
    );
    let effective =
        layers("roles: {default: dev}", "roles: {default: writer, writer: {paths: ['docs/**']}}", "", false);
    assert_eq!(effective.default_role.as_ref().unwrap().value, "writer");
    assert_eq!(effective.granted_roles().into_iter().collect::<Vec<_>>(), ["dev"]);

    let effective = layers("", "", "roles: {default: dve}", true);
    assert_eq!(
        notes(&effective),
        ["project.yaml:1: roles.default: `dve` is not a declared role; the nearest is `dev`"]
    );
}

#[test]
fn rules_keep_their_cases_and_locations() {
    let text = "approvals:\n  rules:\n    - id: docs\n      tools: [write_file]\n      paths: ['docs/**']\n      decision: allow\n      match:\n        - write_file docs/a.md\n      not_match: [\"execute_command git  status\"]\n    - {commands: [git push], decision: deny, reason: no}\n";
    let effective = layers("", text, text, false);
    let decisions: Vec<RuleDecision> = effective.rules.iter().map(|rule| rule.decision).collect();
    assert_eq!(decisions, [RuleDecision::Allow, RuleDecision::Deny, RuleDecision::Deny]);
    assert_eq!(
        notes(&effective),
        [
            "project.yaml:3: approvals.rules: a rule that allows is ignored: the project is not trusted (`vambrace trust`)"
        ]
    );
    let rule = &effective.rules[0];
    assert_eq!((rule.label().as_str(), rule.at.to_string().as_str()), ("docs", "user.yaml:3"));
    assert_eq!(
        (rule.matches[0].value.tool.as_str(), rule.matches[0].value.object.as_str()),
        ("write_file", "docs/a.md")
    );
    assert_eq!(rule.matches[0].at.to_string(), "user.yaml:8");
    assert_eq!(rule.not_matches[0].value.words().collect::<Vec<_>>(), ["git", "status"]);
    assert_eq!(effective.rules[1].label(), "user.yaml:10");
    assert_eq!(layers("", "", text, true).rules.len(), 2);
}

// T25
#[test]
fn lowest_rate_limit_counts() {
    let effective = layers(
        "",
        "limits: {calls_per_minute: {default: 60, read_file: 600, 'git_*': 5}}",
        "limits: {calls_per_minute: 100}",
        false,
    );
    let rate = |names: &[&str]| effective.calls_per_minute(names).map(|rate| rate.value);
    assert_eq!(rate(&["read_file", "file.read"]), Some(100));
    assert_eq!(rate(&["write_file"]), Some(60));
    assert_eq!(rate(&["git_push"]), Some(5));
    assert_eq!(
        notes(&effective),
        [
            "project.yaml:1: limits.calls_per_minute: `100` is ignored: user.yaml:1 sets `60`, and a file below can only lower it"
        ]
    );
    assert_eq!(layers("", "", "", false).calls_per_minute(&["x"]), None);
}

#[test]
fn settings_that_start_programs_need_a_trusted_file() {
    let text = "tools: {toolchain: {test: evil}, specs: [a]}\naudit: {mirror: src/main.rs}\nmcp_servers: {x: {}}\nsecrets: {not_secret: [a]}\n";
    let effective = layers("", "", text, false);
    assert_eq!((&effective.tools.test, &effective.audit_mirror), (&None, &None));
    assert!(effective.tools.specs.is_empty() && effective.secrets.not_secret.is_empty());
    assert_eq!(effective.notes.len(), 5);
    let effective = layers("", "", text, true);
    assert_eq!(effective.tools.test, Some(vec!["evil".to_owned()]));
    assert_eq!(effective.audit_mirror.as_deref(), Some("src/main.rs"));
    let effective = layers(
        "",
        "tools: {toolchain: {test: mine}}\nmcp_servers: {x: {a: 1}}\n",
        "tools: {toolchain: {test: other}}\nmcp_servers: {x: {}, y: {}}\n",
        true,
    );
    assert_eq!(effective.tools.test, Some(vec!["mine".to_owned()]));
    assert_eq!(effective.get("mcp_servers").unwrap().value.to_json().to_string(), r#"{"x":{"a":1},"y":{}}"#);
    assert_eq!(effective.notes.len(), 2);
}

// The ledger records the project's calls, so the project must not choose the witness that vouches for it.
#[test]
fn witness_is_set_above_the_project_and_by_one_file() {
    let named =
        |name: &str| format!("audit: {{witness: {{url: 'https://{name}.example', key: {name}+1+A}}}}\n");
    let url =
        |effective: &EffectiveConfig| effective.audit_witness.as_ref().map(|witness| witness.url.clone());
    for trusted in [false, true] {
        let effective = layers("", "", &named("project"), trusted);
        assert_eq!(effective.audit_witness, None);
        assert_eq!(effective.notes.len(), 2);
        assert!(effective.notes[0].to_string().contains("only the organisation or the user"));
        let effective = layers("", &named("user"), &named("project"), trusted);
        assert_eq!(url(&effective).as_deref(), Some("https://user.example"));
    }
    let effective = layers(&named("org"), &named("user"), "", false);
    let witness = effective.audit_witness.unwrap();
    assert_eq!((witness.url.as_str(), witness.key.as_str()), ("https://org.example", "org+1+A"));
}

// The project must not choose where records about it are written.
#[test]
fn audit_export_is_set_above_the_project_only() {
    let text = "audit: {export: {format: cef, output: /tmp/records}}\n";
    for trusted in [false, true] {
        let effective = layers("", "", text, trusted);
        assert_eq!(effective.audit_export, AuditExportSettings::default());
        assert_eq!(effective.notes.len(), 2);
    }
    let export = layers("", text, "", false).audit_export;
    assert_eq!((export.format.as_deref(), export.output.as_deref()), (Some("cef"), Some("/tmp/records")));
}

#[test]
fn revision_depends_on_values_not_on_locations() {
    let revision = |text: &str| layers("", text, "", false).revision();
    assert_eq!(revision("limits: {read_bytes: 5}\n"), revision("# words\n\nlimits:\n  read_bytes: 5\n"));
    assert_ne!(revision("limits: {read_bytes: 5}\n"), revision("limits: {read_bytes: 6}\n"));
    assert_ne!(revision("roles: {default: dev}"), revision("roles: {default: sre}"));
    assert_ne!(
        layers("", "roles: {dev: {}}", "", false).revision(),
        layers("roles: {dev: {}}", "", "", false).revision()
    );
    assert_eq!(revision("").len(), 64);
}

#[test]
fn user_file_passed_as_project_file_is_not_trusted() {
    let user = super::file("workspace: {isolation: shared}", super::super::ConfigSource::User);
    assert_eq!(super::combine(None, None, Some(user)).isolation, Isolation::Strict);
}

/// Sample values for each kind of key.
fn pool(kind: ValueKind) -> Vec<&'static str> {
    match kind {
        ValueKind::Bool | ValueKind::NeverOffInProject(_) => vec!["true"],
        ValueKind::Int { .. } => vec!["1", "2", "50", "119", "1000", "3000"],
        ValueKind::Bytes { .. } => vec!["1048576", "2097152", "90MiB"],
        ValueKind::Choice(names) => names.to_vec(),
        ValueKind::Path => vec!["a", "a/b", "a/b/c", "ab"],
        ValueKind::Argv => vec!["[x, y]", "z"],
        ValueKind::Rates => vec!["5", "{default: 9, a: 20}", "{a: 3}"],
        ValueKind::List(_) => vec![
            "[]",
            "[a]",
            "[a, b]",
            "[src/, docs/policies/]",
            "[b, shared/x]",
            "['**']",
            "['*.a.com', cargo]",
            "[x.a.com]",
        ],
        _ => vec![],
    }
}

/// A random valid file.
fn config() -> impl Strategy<Value = String> {
    let rows: Vec<(&'static str, Vec<&'static str>)> = KEYS
        .iter()
        .filter(|key| key.is_value() && key.path != "version" && !pool(key.kind).is_empty())
        .map(|key| {
            let fits = |text: &&str| super::errors(&nested(key.path, text)).is_empty();
            (key.path, pool(key.kind).into_iter().filter(fits).collect())
        })
        .collect();
    let value = proptest::sample::select(rows)
        .prop_flat_map(|(path, values)| (Just(path), proptest::sample::select(values)));
    proptest::collection::btree_map(
        proptest::sample::select(KEYS.iter().map(|key| key.path).collect::<Vec<_>>()),
        value,
        0..25,
    )
    .prop_map(|chosen| {
        let mut by_path: std::collections::BTreeMap<&str, &str> = chosen.into_values().collect();
        by_path.remove("version");
        let mut out = String::new();
        let mut open: Vec<&str> = Vec::new();
        for (path, value) in by_path {
            let names: Vec<&str> = path.split('.').collect();
            let common = open.iter().zip(&names).take_while(|(a, b)| a == b).count();
            open.truncate(common);
            for (depth, name) in names.iter().enumerate().skip(common) {
                let last = depth + 1 == names.len();
                out.push_str(&format!(
                    "{}{name}:{}\n",
                    "  ".repeat(depth),
                    if last { format!(" {value}") } else { String::new() }
                ));
                if !last {
                    open.push(name);
                }
            }
        }
        out
    })
}

fn nested(path: &str, value: &str) -> String {
    path.rsplit('.').fold(value.to_owned(), |inner, name| format!("{{{name}: {inner}}}"))
}

/// Why `new` permits more than `old`, if it does. Only keys that `counts` selects are compared.
fn wider(old: &EffectiveConfig, new: &EffectiveConfig, counts: impl Fn(&str) -> bool) -> Option<String> {
    for key in KEYS.iter().filter(|key| key.is_value() && counts(key.path)) {
        let (before, after) = (old.get(key.path), new.get(key.path));
        let number =
            |value: Option<&super::super::Located<SettingValue>>| match value.map(|value| &value.value) {
                Some(SettingValue::Int(value)) => Some(*value),
                _ => None,
            };
        let texts =
            |value: Option<&super::super::Located<SettingValue>>| match value.map(|value| &value.value) {
                Some(SettingValue::List(items)) => items.iter().map(|item| item.value.clone()).collect(),
                _ => Vec::new(),
            };
        let within = |inner: &[String], outer: &[String], how: Covers| {
            inner.iter().all(|inner| outer.iter().any(|outer| covers(how, outer, inner)))
        };
        let rank = |value: Option<&super::super::Located<SettingValue>>| match (
            key.kind,
            value.map(|value| &value.value),
        ) {
            (ValueKind::Choice(names), Some(SettingValue::Text(text))) => {
                names.iter().position(|name| name == text)
            }
            _ => None,
        };
        let narrower = match key.combine {
            Combine::Cap if key.kind == ValueKind::Rates => ["a", "b"].iter().all(|tool| {
                let rate = |effective: &EffectiveConfig| {
                    effective.calls_per_minute(&[tool]).map_or(u64::MAX, |rate| rate.value)
                };
                rate(new) <= rate(old)
            }),
            Combine::Cap => number(after).unwrap_or(u64::MAX) <= number(before).unwrap_or(u64::MAX),
            Combine::Floor => number(after) >= number(before),
            Combine::Union => within(&texts(before), &texts(after), Covers::Same),
            Combine::Intersect(how) => within(&texts(after), &texts(before), how),
            Combine::Narrowest(_) => rank(after) <= rank(before),
            Combine::Switch(narrow, _) => {
                before == after || after.is_some_and(|after| after.value == SettingValue::Bool(narrow))
            }
            Combine::Profile => {
                before.map(|value| &value.value) == after.map(|value| &value.value) || rank(after) == Some(0)
            }
            Combine::Inside => {
                let text = |effective: &EffectiveConfig| effective.service_root.clone();
                text(old) == "."
                    || text(new) == text(old)
                    || text(new).starts_with(&format!("{}/", text(old)))
            }
            Combine::Topmost(_) | Combine::Collect => {
                before.map(|value| &value.value) == after.map(|value| &value.value)
            }
            Combine::NotFromProject => within(&texts(after), &texts(before), Covers::Same),
            Combine::Own | Combine::Part | Combine::PerFile => true,
        };
        if !narrower {
            return Some(format!("{}: {before:?} -> {after:?}", key.path));
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn untrusted_project_never_widens_settings(organisation in config(), user in config(), project in config()) {
        let without = layers(&organisation, &user, "", false);
        let with = layers(&organisation, &user, &project, false);
        prop_assert_eq!(wider(&without, &with, |_| true), None);
    }

    #[test]
    fn project_never_widens_settings_of_the_layers_above(organisation in config(), user in config(), project in config()) {
        let without = layers(&organisation, &user, "", true);
        let with = layers(&organisation, &user, &project, true);
        let set_above = |key: &str| {
            let above = without.get(key).is_some_and(|value| value.at != super::super::ValueOrigin::BuiltIn);
            let collects = KEYS.iter().any(|row| row.path == key && row.combine == Combine::Collect);
            above && !collects
        };
        prop_assert_eq!(wider(&without, &with, set_above), None);
    }

    #[test]
    fn project_never_changes_settings_reserved_for_the_layers_above(project in config()) {
        let without = layers("", "", "", true);
        let with = layers("", "", &project, true);
        let above_only = |key: &str| KEYS.iter().any(|row| row.path == key && matches!(
            row.combine, Combine::Narrowest(BaseSetter::AboveProject) | Combine::Switch(_, BaseSetter::AboveProject) | Combine::Inside | Combine::Union | Combine::Topmost(BaseSetter::AboveProject)));
        prop_assert_eq!(wider(&without, &with, above_only), None);
    }

    #[test]
    fn user_never_widens_settings_of_the_organisation(organisation in config(), user in config()) {
        let without = layers(&organisation, "", "", true);
        let with = layers(&organisation, &user, "", true);
        let set_above = |key: &str| without.get(key).is_some_and(|value| value.at != super::super::ValueOrigin::BuiltIn)
            && !KEYS.iter().any(|row| row.path == key && row.combine == Combine::Collect);
        prop_assert_eq!(wider(&without, &with, set_above), None);
    }
}
