//! Error messages of configuration files, word for word.

use super::super::{ConfigSource, parse_bytes};
use super::{errors, parse};

fn check(text: &str, expected: &[&str]) {
    let got: Vec<String> = errors(text).iter().map(ToString::to_string).collect();
    assert_eq!(got, expected, "{text:?}");
}

#[test]
fn every_error_has_a_hint() {
    for text in [
        "a: [",
        "a: 'b",
        "version: 2\n",
        "profile: nonsense\n",
        "profile:\n",
        "workspace: {block: ['a[']}\n",
        "workspace: {block: ['']}\n",
        "workspace: {block: {a: b}}\n",
        "workspace: {create_in: ['*/*']}\n",
        "workspace: {create_in: ['/']}\n",
        "limits: {read_bytes: 99999999999999999999}\n",
        "limits: {regex_ms: 10001}\n",
        "approvals: {rules: [{paths: ['a/../b', 'a['], decision: ask}]}\n",
        "tools: {toolchain: {test: []}}\n",
        "secrets: {scopes: {A: {}}}\n",
        "secrets: 5\n",
    ] {
        let got = errors(text);
        assert!(!got.is_empty(), "{text:?}");
        assert!(got.iter().all(|error| !error.hint.is_empty()), "{text:?} {got:#?}");
    }
}

fn loads(text: &str) {
    check(text, &[]);
}

#[test]
fn unknown_key_errors_name_the_position_and_the_nearest_key() {
    check(
        "limits:\n  read_byts: 5\n",
        &[
            ".vambrace/config.yaml:2:3: limits.read_byts: unknown key\nhint: the nearest valid key is `read_bytes`",
        ],
    );
    check(
        "limit:\n  read_bytes: 5\n",
        &[".vambrace/config.yaml:1:1: limit: unknown key\nhint: the nearest valid key is `limits`"],
    );
    check(
        "service_root: a\n",
        &[
            ".vambrace/config.yaml:1:1: service_root: unknown key\nhint: did you mean `workspace.service_root`?",
        ],
    );
    check(
        "audit:\n  colour: 1\n",
        &[
            ".vambrace/config.yaml:2:3: audit.colour: unknown key\nhint: valid keys here: sync, export, witness",
        ],
    );
    check(
        "approvals:\n  rules:\n    - tool: [read_file]\n      tools: [http]\n      decision: ask\n",
        &[
            ".vambrace/config.yaml:3:7: approvals.rules[0].tool: unknown key\nhint: the nearest valid key is `tools`",
        ],
    );
    check(
        "roles:\n  dev:\n    permit: [read]\n",
        &[
            ".vambrace/config.yaml:3:5: roles.dev.permit: unknown key\nhint: the nearest valid key is `permits`",
        ],
    );
}

#[test]
fn all_errors_of_a_file_are_reported() {
    check(
        "profile: codng\nlimits:\n  read_bytes: many\n  regex_ms: 0\nworkspace:\n  block: ['a[']\n  isolation: Strict\n",
        &[
            ".vambrace/config.yaml:1:10: profile: `codng` must be one of `readonly`, `coding`, `messaging`, `ci`\nhint: the nearest valid value is `coding`",
            ".vambrace/config.yaml:3:15: limits.read_bytes: expected a number of bytes such as `131072` or `100MiB`, found text `many`\nhint: `vambrace config reference` lists the valid values of every key",
            ".vambrace/config.yaml:4:13: limits.regex_ms: `0` is out of range: from 1 to 10000\nhint: the nearest valid value is `1`",
            ".vambrace/config.yaml:6:11: workspace.block[0]: `a[` is not a valid glob: unclosed character class; missing ']'\nhint: `*` matches any characters in a name, `**` any directories, `[ab]` and `{a,b}` one of these; `[[]` is a literal bracket",
            ".vambrace/config.yaml:7:14: workspace.isolation: `Strict` must be one of `strict`, `shared`\nhint: the nearest valid value is `strict`",
        ],
    );
}

#[test]
fn wrong_types_and_values_are_reported() {
    let at = ".vambrace/config.yaml:1";
    check(
        "limits: 5\n",
        &[&format!(
            "{at}:9: limits: expected a mapping, found number `5`\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "limits: []\n",
        &[&format!(
            "{at}:9: limits: expected a mapping, found a list\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "profile: 1\n",
        &[&format!("{at}:10: profile: expected text, found number `1`\nhint: put it in quotes")],
    );
    check(
        "profile:\n",
        &[&format!(
            "{at}:8: profile: expected text, found nothing\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "version: 2\n",
        &[&format!("{at}:10: version: `2` is not supported, only `1` is\nhint: write `1`")],
    );
    check(
        "tools: {shell_exec: yes}\n",
        &[&format!(
            "{at}:21: tools.shell_exec: expected `true` or `false`, found text `yes`\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "limits: {regex_ms: 1.5}\n",
        &[&format!(
            "{at}:20: limits.regex_ms: expected a whole number, found number `1.5`\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "limits: {read_bytes: -1}\n",
        &[&format!(
            "{at}:22: limits.read_bytes: `-1` is out of range: from 1 to 104857600\nhint: the nearest valid value is `1`"
        )],
    );
    check(
        "limits: {read_bytes: 1GiB}\n",
        &[&format!(
            "{at}:22: limits.read_bytes: `1GiB` is out of range: from 1 to 104857600\nhint: the nearest valid value is `104857600`"
        )],
    );
    check(
        "network: {allow: example.com}\n",
        &[&format!(
            "{at}:18: network.allow: expected a list of strings, found text `example.com`\nhint: write `[example.com]`"
        )],
    );
    check(
        "network: {allow: [1]}\n",
        &[&format!("{at}:19: network.allow[0]: expected text, found number `1`\nhint: put it in quotes")],
    );
    check(
        "workspace: {service_root: ../x}\n",
        &[&format!(
            "{at}:27: workspace.service_root: `../x` must not contain `..`\nhint: write it relative to the project root"
        )],
    );
    check(
        "workspace: {create_in: ['src/**']}\n",
        &[&format!(
            "{at}:25: workspace.create_in[0]: `src/**` must be a directory, not a glob\nhint: write `src/`: a directory includes everything below it"
        )],
    );
    check(
        "roles: {dev: {permits: [red]}}\n",
        &[&format!(
            "{at}:25: roles.dev.permits[0]: `red` must be one of `read`, `create`, `modify`, `delete`, `execute`, `connect`, `secret`, `system`\nhint: the nearest valid value is `read`"
        )],
    );
    check(
        "roles: {dev: {tools: ['group:gti']}}\n",
        &[&format!(
            "{at}:23: roles.dev.tools[0]: `group:gti` is not a known group of tools\nhint: the nearest valid group is `group:git`"
        )],
    );
    check(
        "roles: {'a b': {}}\n",
        &[&format!(
            "{at}:9: roles.a b: must be a name\nhint: a name starts with a letter, followed by letters, digits, `_` and `-`; at most 64 characters"
        )],
    );
    check(
        "- a\n",
        &[&format!(
            "{at}:1: expected a mapping, found a list\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "just words\n",
        &[&format!(
            "{at}:1: expected a mapping, found text `just words`\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "limits: {calls_per_minute: lots}\n",
        &[&format!(
            "{at}:28: limits.calls_per_minute: expected a whole number or a mapping of `default` and tools, found text `lots`\nhint: `vambrace config reference` lists the valid values of every key"
        )],
    );
    check(
        "secrets: {scopes: {A: {env: X, file: y}}}\n",
        &[&format!("{at}:23: secrets.scopes.A: must have either `env` or `file`\nhint: keep one of the two")],
    );
    check(
        "tools: {toolchain: {test: 'a | b'}}\n",
        &[&format!(
            "{at}:27: tools.toolchain.test: `a | b` needs a shell\nhint: no shell runs it: write a list, for example `[npm, test]`"
        )],
    );
}

#[test]
fn rules_need_a_decision_a_selector_and_a_unique_id() {
    check(
        "approvals:\n  rules:\n    - tools: [http]\n    - decision: deny\n    - {id: x, tools: [http], decision: deny}\n    - {id: x, tools: [http], decision: dny, match: [read_file]}\n",
        &[
            ".vambrace/config.yaml:3:7: approvals.rules[0]: must have a `decision`\nhint: `deny`, `ask` or `allow`",
            ".vambrace/config.yaml:4:7: approvals.rules[1]: matches no call\nhint: set at least one of `tools`, `paths`, `commands`; `tools: [\"*\"]` matches every call",
            ".vambrace/config.yaml:6:7: approvals.rules[3].id: `x` is used twice\nhint: the rule in line 5 already uses it",
            ".vambrace/config.yaml:6:40: approvals.rules[3].decision: `dny` must be one of `deny`, `ask`, `allow`\nhint: the nearest valid value is `deny`",
            ".vambrace/config.yaml:6:53: approvals.rules[3].match[0]: `read_file` must be a tool and a path or command\nhint: for example `read_file docs/a.md` or `execute_command git status`",
        ],
    );
}

// T17
#[test]
fn legacy_run_command_only_accepts_false() {
    loads("tools: {allow_legacy_run_command: false}\n");
    check(
        "tools:\n  allow_legacy_run_command: true\n",
        &[
            ".vambrace/config.yaml:2:29: tools.allow_legacy_run_command: only `false` is accepted: there is no raw run_command; execute_command runs listed commands without a shell\nhint: remove the key",
        ],
    );
}

// T24
#[test]
fn project_file_cannot_switch_off_protection() {
    let off = [
        "file_broker:\n  enabled: false\n",
        "file_broker:\n  audit_log_enabled: false\n",
        "sandbox:\n  enabled: false\n",
    ];
    for (text, key) in
        off.iter().zip(["file_broker.enabled", "file_broker.audit_log_enabled", "sandbox.enabled"])
    {
        let got = errors(text);
        assert_eq!(got.len(), 1, "{text}");
        assert_eq!(got[0].message, "protection cannot be switched off from a project file");
        assert_eq!((got[0].key.as_str(), got[0].line), (key, 2));
        assert!(parse(text, "f", ConfigSource::Project { trusted: false }).is_err());
        assert!(parse(text, "f", ConfigSource::User).is_ok());
    }
}

#[test]
fn unsupported_yaml_features_are_rejected() {
    let one = |text: &str, expected: &str| {
        let got = errors(text);
        assert!(
            got.iter().any(|error| error.to_string() == format!(".vambrace/config.yaml:{expected}")),
            "{text:?} {got:#?}"
        );
    };
    one(
        "version: 1\nversion: 1\n",
        "2:1: version: duplicate key\nhint: it is already set in line 1; keep one",
    );
    one(
        "audit:\n  mirror: a\n  'mirror': b\n",
        "3:3: audit.mirror: duplicate key\nhint: it is already set in line 2; keep one",
    );
    one(
        "workspace:\n  block: &a [x]\n  shared_paths: *a\n",
        "3:17: workspace.shared_paths: aliases (`*name`) are not supported\nhint: write the value out",
    );
    one(
        "workspace:\n  block: &a [x]\n",
        "2:10: anchors (`&name`) are not supported\nhint: write the values out",
    );
    one(
        "profile: !!str ci\n",
        "1:10: profile: tags (`!name`) are not supported\nhint: write the value without it",
    );
    one(
        "profile: !x ci\n",
        "1:10: profile: tags (`!name`) are not supported\nhint: write the value without it",
    );
    one(
        "audit: {<<: {mirror: a}}\n",
        "1:9: audit: merge keys (`<<`) are not supported\nhint: write the values out",
    );
    one("version: 1\n---\nversion: 1\n", "3:1: a second document\nhint: keep one document: remove `---`");
    one("1: x\n", "1:1: a key must be text, found number `1`\nhint: put it in quotes");
    one("a\0b: 1\n", "1:2: a NUL character\nhint: the file is not text");
    one(
        &"[".repeat(100),
        "2:1: not valid YAML: while parsing a node, did not find expected node content\nhint: check quotes, brackets, colons and indentation there and just above",
    );
    one(
        "audit:\n\tmirror: a\n",
        "2:2: not valid YAML: tabs disallowed within this context (block indentation)\nhint: indent with spaces: YAML does not allow tabs there",
    );
    one(
        &format!("skills: {{paths: {{a: {}{}}}}}", "[".repeat(70), "]".repeat(70)),
        "1:83: nested deeper than 64 levels\nhint: a configuration is flat: is this the right file?",
    );
    one(
        &"a".repeat(1024 * 1024 + 1),
        "1:1: the file has 1048577 bytes, more than 1048576\nhint: a configuration is small: is this the right file?",
    );
}

#[test]
fn every_duplicate_key_is_reported() {
    let got = errors("version: 1\nversion: 1\nprofile: ci\nversion: 1\n\"profile\": ci\n");
    let lines: Vec<(u32, &str)> = got.iter().map(|error| (error.line, error.key.as_str())).collect();
    assert_eq!(lines, [(2, "version"), (4, "version"), (5, "profile")]);
}

#[test]
fn valid_files_load() {
    for text in [
        "",
        "\n",
        "# only words\n",
        "---\n",
        "---\n# x\n",
        "{}",
        "null",
        "~",
        "\u{feff}version: 1\n",
        "\u{feff}",
        "limits:\n",
        "limits: {}\n",
        "roles: {sre: {}, dev: }\n",
        "version: 1\n...\n",
        "# &a *b !c\nprofile: ci # &a !x\n",
        "approvals:\n  rules:\n    - {commands: [\"a && b\", 'x *y', \"!z\"], decision: ask, reason: a &b *c !d}\n",
        "approvals:\n  rules:\n    - decision: ask\n      tools: ['*']\n      reason: |\n        text &a\n        !b\n",
        "{\n\t\"version\": 1,\n\t\"limits\": {\n\t\t\"read_bytes\":\t5\n\t}\n}\n",
        "{\"version\":1,\"profile\":\"ci\"}",
        "limits: {read_bytes: 100MiB, read_bytes_hard: 104857600, write_bytes: 64 KiB}\n",
        "limits: {calls_per_minute: 60}\n",
        "limits: {calls_per_minute: {default: 60, read_file: 600, 'git_*': 5}}\n",
        "mcp_servers: {github: {command: x, env: {A: b}}}\nelevation: {anything: [1, 2]}\nintents: {enabled: true, match_threshold: 0.7, rules: [{name: a, patterns: ['research *'], target: {type: skill, name: s}}]}\n",
        "approvals:\n  rules:\n    - decision: ask\n      tools: ['*']\n      reason: one\n        two & three ! four &five\n        *six # &seven\n    - decision: ask\n      tools: [http] # !x\n      reason: > # &c\n        a\n        !b &c\n    - {decision: ask, tools: [rest], reason: \"x\n    &y !z\"}\n",
        "tools: {toolchain: {test: npm test, lint: [cargo, clippy]}}\n",
        "\r\nversion: 1\r\nprofile: ci\r\n",
    ] {
        loads(text);
    }
}

#[test]
fn invalid_utf8_is_rejected_with_its_position() {
    let got = parse_bytes(b"version: 1\nab\xff", "f", ConfigSource::User).unwrap_err();
    assert_eq!(got[0].to_string(), "f:2:3: invalid UTF-8\nhint: save the file as UTF-8");
}

#[test]
fn control_characters_in_key_names_are_escaped() {
    let got = errors("\"a\\e[31m\\u202e\": 1\n");
    assert!(!got[0].to_string().contains(['\u{1b}', '\u{202e}']), "{}", got[0]);
}
