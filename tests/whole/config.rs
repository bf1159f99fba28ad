//! Configuration as a user sees it: trust, layers, errors with their position.

use crate::home::Home;

// T24: an untrusted project only narrows; a changed one is no longer trusted
#[test]
fn a_project_file_applies_only_after_it_is_trusted() {
    let home = Home::bare();
    home.write(".vambrace/config.yaml", "roles: {default: dev}\n");
    let (code, answer) = home.call("read_file", r#"{"path":"src/main.rs"}"#);
    assert_eq!((code, answer["error"]["code"].as_str()), (4, Some("PermissionDenied")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("not trusted"), "{answer}");
    assert_eq!(home.run(["trust", "--yes"]).code, 0);
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).0, 0);
    home.write(".vambrace/config.yaml", "roles: {default: dev}\nlimits: {read_bytes_hard: 1000000}\n");
    let (code, answer) = home.call("read_file", r#"{"path":"src/main.rs"}"#);
    assert_eq!(code, 4);
    assert!(answer["error"]["message"].as_str().unwrap().contains("changed"), "{answer}");
}

// An untrusted project still narrows what the user allows
#[test]
fn an_untrusted_project_file_narrows_the_user_configuration() {
    let home = Home::bare();
    home.user_config("roles: {default: dev}\n");
    assert_eq!(home.call("read_file", r#"{"path":"docs/guide.md"}"#).0, 0);
    home.write(
        ".vambrace/config.yaml",
        "workspace: {block: ['docs/']}\napprovals:\n  rules:\n    - {paths: [src/**], decision: deny}\n    - {tools: ['*'], decision: allow}\n",
    );
    assert_eq!(home.call("read_file", r#"{"path":"docs/guide.md"}"#).1["error"]["code"], "BlockedPath");
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).1["error"]["code"], "BlockedPath");
    assert_eq!(home.call("read_file", r#"{"path":"notes.txt"}"#).0, 0);
}

// T5: a role must be granted by a layer above the project
#[test]
fn only_granted_roles_can_be_chosen() {
    let home = Home::new();
    let read = |role: &str, path: &str| {
        home.run(["call", "read_file", &format!("path={path}"), "--role", role]).code
    };
    assert_eq!(read("dev", "src/main.rs"), 0);
    assert_eq!(read("product_owner", "docs/guide.md"), 0);
    assert_eq!(read("product_owner", "src/main.rs"), 4);
    assert_eq!(read("sre", "src/main.rs"), 4);
    assert_eq!(read("nobody", "src/main.rs"), 4);
    home.user_config("roles:\n  default: dev\n  sre: {}\n");
    assert_eq!(read("sre", "src/main.rs"), 0);
    let privileged = home.records().into_iter().filter(|record| record["severity"] == "PRIVILEGED").count();
    assert_eq!(privileged, 2);
    home.user_config("roles:\n  default: product_owner\n");
    assert_eq!(home.run(["call", "read_file", "path=src/main.rs"]).code, 4);
    assert_eq!(read("dev", "src/main.rs"), 4);
}

// The organisation's file overrides every other layer
#[test]
fn the_organisation_file_overrides_every_layer() {
    let home = Home::new();
    std::fs::write(
        home.path("org.yaml"),
        "approvals:\n  rules:\n    - {id: org-no-src, paths: [src/**], decision: deny, reason: closed for the audit}\n",
    )
    .unwrap();
    home.user_config("approvals:\n  rules:\n    - {paths: [src/**], decision: allow}\n");
    let (code, answer) = home.call("read_file", r#"{"path":"src/main.rs"}"#);
    assert_eq!(code, 4);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("organisation denies") && message.contains("closed for the audit"), "{message}");
}

// Moving the service root moves no rule: neither an untrusted nor a trusted file evades the layers above it
#[test]
fn moving_the_service_root_moves_no_rule() {
    let home = Home::bare();
    home.user_config(
        "roles: {default: dev}\napprovals:\n  rules:\n    - {id: no-guide, paths: [docs/guide.md], decision: deny}\n",
    );
    for trusted in [false, true] {
        home.write(".vambrace/config.yaml", "workspace: {service_root: docs}\n");
        if trusted {
            assert_eq!(home.run(["trust", "--yes"]).code, 0);
        }
        for path in ["guide.md", "docs/guide.md", "project:docs/guide.md"] {
            let (code, answer) = home.call("read_file", &format!(r#"{{"path":"{path}"}}"#));
            assert_ne!(code, 0, "{path}: {answer}");
        }
        let (_, found) = home.call("search_file", r#"{"regex":"Guide"}"#);
        assert_eq!(found["data"]["total"], 0, "{found}");
    }
    // A role's paths are relative to the project as seen by the layer that defines them.
    home.user_config("roles:\n  default: doc\n  doc: {paths: [guide/]}\n");
    home.write("docs/guide/inner.md", "inner\n");
    assert_ne!(home.call("read_file", r#"{"path":"guide/inner.md"}"#).0, 0);
}

// An ask rule of the organisation is not overridden by the project's allow rule
#[test]
fn a_project_cannot_allow_what_the_organisation_asks_about() {
    let home =
        Home::with("roles: {default: dev}\napprovals:\n  rules:\n    - {paths: ['**'], decision: allow}\n");
    std::fs::write(home.path("org.yaml"), "approvals:\n  rules:\n    - {paths: [docs/], decision: ask}\n")
        .unwrap();
    assert_eq!(home.call("read_file", r#"{"path":"docs/guide.md"}"#).0, 3);
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).0, 0);
}

// A named organisation file that is missing is an error, not an empty policy
#[test]
fn a_missing_organisation_file_denies_every_call() {
    let home = Home::new();
    let mut command = home.command(["call", "read_file", "path=src/main.rs"]);
    let output = command.env("VAMBRACE_ORG_CONFIG", home.path("typo.yaml")).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_misspelled_tool_in_a_rule_is_an_error() {
    let home = Home::new();
    home.user_config("approvals:\n  rules:\n    - {tools: [read_fil], decision: deny}\n");
    let ran = home.run(["call", "read_file", "path=src/main.rs"]);
    assert_eq!(ran.code, 4);
    assert!(ran.err.contains("the nearest tool is `read_file`"), "{ran:?}");
}

// Fail closed: an invalid policy denies everything and reports the position of the error
#[test]
fn an_invalid_configuration_denies_everything_and_reports_its_position() {
    let home = Home::new();
    for (config, place, words) in [
        ("limts: {}\n", ":1:1", "limits"),
        ("limits:\n  read_byts: 5\n", ":2:3", "read_bytes"),
        ("roles: [\n", "config.yaml", ""),
        ("tools: {allow_legacy_run_command: true}\n", ":1:", "false"),
        (
            "approvals:\n  rules:\n    - {paths: ['docs/**'], decision: deny, match: [read_file src/x]}\n",
            ":3",
            "match",
        ),
    ] {
        home.user_config(config);
        for args in [
            vec!["call", "read_file", "path=src/main.rs"],
            vec!["tools"],
            vec!["explain", "read_file", "path=src/main.rs"],
        ] {
            let ran = home.run(&args);
            assert_eq!(ran.code, 4, "{config}: {ran:?}");
            let output = format!("{}{}", ran.out, ran.err);
            assert!(output.contains(place) && output.contains(words), "{config}: {ran:?}");
        }
        assert_ne!(home.run(["policy", "check"]).code, 0);
    }
    home.user_config("");
    assert_eq!(home.run(["call", "read_file", "path=src/main.rs"]).code, 0);
}

// T24: the older layouts load as they are
#[test]
fn older_layouts_load() {
    let home = Home::bare();
    home.user_config("roles: {default: dev}\n");
    home.write(
        ".flow/config.json",
        "{\n\t\"scope\": {\"service_isolation\": \"STRICT\", \"shared_paths\": [\"shared_contracts/\"], \"block_patterns\": [\"docs/\"]},\n\t\"tools\": {\"allow_legacy_run_command\": false, \"whitelisted_binaries\": [\"pytest\"]},\n\t\"secrets\": {\"redact_patterns\": [\"sk-...\"]}\n}\n",
    );
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).0, 0);
    assert_eq!(home.call("read_file", r#"{"path":"docs/guide.md"}"#).1["error"]["code"], "BlockedPath");
    let migrated = home.run(["config", "migrate", ".flow/config.json"]);
    assert_eq!(migrated.code, 0, "{migrated:?}");
    assert!(migrated.out.contains("workspace:") && migrated.out.contains("docs/"), "{migrated:?}");
    home.user_config("roles: {default: dev}\nfile_broker:\n  max_read_bytes_default: 5\n");
    assert_eq!(home.call("read_file", r#"{"path":"src/main.rs"}"#).1["data"]["content"], "fn ma");
}

// Fail closed: a project file that cannot be read denies everything instead of being ignored
#[test]
fn an_unusable_project_file_denies_everything_and_is_recorded() {
    type Spoil = fn(&Home);
    let spoils: [(&str, Spoil); 5] = [
        ("a directory", |home| {
            std::fs::create_dir_all(home.project().join(".vambrace/config.yaml")).unwrap()
        }),
        ("a file in its place", |home| home.write(".vambrace", "x")),
        ("another name", |home| home.write(".vambrace/config.yml", "workspace: {block: [notes.txt]}\n")),
        ("a symlink", |home| {
            std::fs::create_dir(home.project().join(".vambrace")).unwrap();
            std::os::unix::fs::symlink("/dev/null", home.project().join(".vambrace/config.yaml")).unwrap();
        }),
        ("a bad key", |home| home.write(".vambrace/config.yaml", "blok: []\n")),
    ];
    for (what, spoil) in spoils {
        let home = Home::bare();
        home.user_config("roles: {default: dev}\n");
        spoil(&home);
        let (code, answer) = home.call("read_file", r#"{"path":"notes.txt"}"#);
        assert_eq!(
            (code, answer["error"]["code"].as_str()),
            (4, Some("PermissionDenied")),
            "{what}: {answer}"
        );
        assert_eq!(answer["details"]["status"], "denied", "{what}");
        assert_eq!(answer["tool_name"], "read_file", "{what}");
        let own = answer["details"]["audit"]["event_hash"].clone();
        let record = home.records().into_iter().find(|record| record["event_hash"] == own).unwrap();
        assert_eq!(
            (record["status"].as_str(), record["error_code"].as_str()),
            (Some("denied"), Some("PermissionDenied"))
        );
    }
}

// No damage to a trusted file allows more, since the file is no longer the trusted one
#[test]
fn no_truncation_or_changed_byte_of_a_trusted_file_allows_anything() {
    let whole = "roles: {default: dev}\napprovals:\n  rules:\n    - {paths: [docs/], decision: deny}\n    - {paths: [src/], decision: deny}\n";
    let home = Home::with(whole);
    assert_eq!(home.call("read_file", r#"{"path":"notes.txt"}"#).0, 0);
    for at in (0..whole.len()).step_by(7) {
        let mut flipped = whole.as_bytes().to_vec();
        flipped[at] ^= 0x01;
        for damaged in [whole.as_bytes()[..at].to_vec(), flipped] {
            std::fs::write(home.project().join(".vambrace/config.yaml"), &damaged).unwrap();
            let ran = home.run(["call", "read_file", "path=notes.txt", "--session", &format!("s-{at}")]);
            assert_eq!(ran.code, 4, "{at}: {:?} {ran:?}", String::from_utf8_lossy(&damaged));
        }
    }
}

#[test]
fn init_inside_a_project_is_rejected() {
    let home = Home::new();
    let ran = home.run(["init", "--workspace", "src"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(!home.project().join("src/.vambrace").exists());
    // A call from a subdirectory finds the project above.
    let output = home
        .command(["call", "read_file", "path=src/main.rs"])
        .current_dir(home.project().join("src"))
        .output();
    assert_eq!(output.unwrap().status.code(), Some(0));
}

#[test]
fn a_state_directory_inside_the_workspace_is_rejected() {
    let home = Home::new();
    let mut command = home.command(["call", "read_file", "path=src/main.rs"]);
    let output = command.env("VAMBRACE_HOME", home.project().join("state")).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("overlap"));
    assert!(!home.project().join("state").exists(), "the directory was created before it was rejected");
}

// S2: a skill only narrows; without permissions it can do nothing
#[test]
fn a_skill_only_narrows_permissions() {
    let home = Home::new();
    let skill = |name: &str, path: &str| {
        home.run(["call", "read_file", &format!("path={path}"), "--skill", name]).code
    };
    home.write(
        ".vambrace/skills/docs/manifest.json",
        r#"{"permissions":{"tools":["read_file"],"fs":{"read":["docs/"]}}}"#,
    );
    home.write(".vambrace/skills/empty/manifest.json", "{}");
    assert_eq!(home.run(["trust", "--yes"]).code, 0);
    assert_eq!(skill("docs", "docs/guide.md"), 0);
    assert_eq!(skill("docs", "src/main.rs"), 4);
    assert_eq!(skill("empty", "docs/guide.md"), 4);
    assert_eq!(skill("missing", "docs/guide.md"), 4);
    assert_eq!(skill("../../x", "docs/guide.md"), 2);
}
