//! Secrets of many kinds, planted wherever an agent or a project could have one and sent through every entry point; then
//! outputs, ledger and the whole state directory are searched for them. Tokens are concatenated here, so that no scanner
//! finds one in this file.

use serde_json::json;

use crate::home::{CANARY, Home, file_containing};
use crate::mcp::Server;

struct Canaries {
    all: Vec<String>,
    file: String,
}

fn canaries() -> Canaries {
    let key_body = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz";
    let tokens = [
        format!("gh{}_{}", "p", "q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8"),
        format!("AK{}{}", "IA", "QWERTYUIOPASDF27"),
        format!("xo{}-{}-{}", "xb", "123456789012", "aB3dE5gH7jK9mN1pQ3sT5vX7"),
        format!("sk_{}_{}", "live", "aB3dE5gH7jK9mN1pQ3sT5vX7"),
        "Zx9-canary-Kq7!".to_owned(),
        "pG7canaryPw42".to_owned(),
        key_body.to_owned(),
    ];
    let file = format!(
        "github: {}\naws = {}\nslack {}\nstripe={}\nDB_PASSWORD={}\nurl: postgres://app:{}@db/x\nenv {CANARY}\nenv64 {}\n-----BEGIN OPENSSH {} KEY-----\n{key_body}\n-----END OPENSSH {} KEY-----\n",
        tokens[0],
        tokens[1],
        tokens[2],
        tokens[3],
        tokens[4],
        tokens[5],
        "Y2FuYXJ5LTdmM2E5YzExLWVudg==",
        "PRIVATE",
        "PRIVATE"
    );
    let mut all = tokens.to_vec();
    all.extend([CANARY.to_owned(), "Y2FuYXJ5LTdmM2E5YzExLWVudg".to_owned()]);
    Canaries { all, file }
}

fn assert_no_canary(canaries: &Canaries, text: &str, source: &str) {
    for canary in &canaries.all {
        assert!(!text.contains(canary.as_str()), "{source} reveals `{canary}`:\n{text}");
    }
}

// T21, S11: nothing that a redactor can know leaves by any entry point or reaches the disk
#[test]
fn planted_secrets_leave_by_no_entry_point_and_reach_no_disk() {
    let canaries = canaries();
    let home = Home::new();
    home.write("notes.txt", &canaries.file);
    let token = canaries.all[0].clone();
    home.write(&format!("docs/{token}.md"), "x\n");
    let commands: Vec<Vec<String>> = [
        vec!["call", "read_file", "path=notes.txt"],
        vec!["call", "read_file", "path=notes.txt", "--json"],
        vec!["call", "read_file", "path=notes.txt", "start_line=2", "end_line=5", "--json"],
        vec!["call", "read_file", "path=notes.txt", "start_line=10", "end_line=10", "--json"],
        vec!["call", "search_file", "regex=.+", "--json"],
        vec!["call", "search_file", "regex=b3Blbn", "context_lines=0", "--json"],
        vec!["call", "search_file", "regex=b3Blbn", "context_lines=0"],
        vec!["call", "list_files", "recursive=true", "--json"],
        vec!["call", "list_files", "recursive=true"],
        vec!["tools", "--json"],
        vec!["config", "show", "--json"],
        vec!["doctor", "--json"],
        vec!["doctor"],
        vec!["session", "list", "--json"],
        vec!["policy", "check", "--json"],
    ]
    .into_iter()
    .map(|words| words.into_iter().map(str::to_owned).collect())
    .collect();
    for words in &commands {
        let ran = home.run(words);
        let output = format!("{}{}", ran.out, ran.err);
        assert_no_canary(&canaries, &output, &words.join(" "));
    }
    // As arguments, names, ids and errors.
    for canary in &canaries.all {
        for words in [
            vec!["call".to_owned(), "read_file".to_owned(), format!("path={canary}"), "--json".to_owned()],
            vec![
                "call".to_owned(),
                "read_file".to_owned(),
                json!({"path": "notes.txt", "password": canary}).to_string(),
                "--json".to_owned(),
            ],
            vec![
                "call".to_owned(),
                "search_file".to_owned(),
                json!({"regex": canary}).to_string(),
                "--json".to_owned(),
            ],
            vec!["explain".to_owned(), "read_file".to_owned(), format!("path={canary}"), "--json".to_owned()],
        ] {
            let ran = home.run(&words);
            // A password without a context cannot be recognised.
            if canary.contains("canary-Kq7") || canary.contains("canaryPw42") || *canary == canaries.all[6] {
                continue;
            }
            let output = format!("{}{}", ran.out, ran.err);
            assert!(!output.contains(canary.as_str()), "{words:?} reveals it: {output}");
        }
    }
    let mut server = Server::greeted(&home, &[]);
    for (tool, args) in [
        ("read_file", json!({"path": "notes.txt"})),
        ("search_file", json!({"regex": "."})),
        ("list_files", json!({"recursive": true})),
    ] {
        let result = server.call(tool, args).to_string();
        assert_no_canary(&canaries, &result, tool);
    }
    for words in [["audit", "tail", "--json"], ["timeline", "--limit", "50"], ["audit", "verify", "--json"]] {
        let ran = home.run(words);
        assert_no_recognisable_canary(&canaries, &format!("{}{}", ran.out, ran.err), &words.join(" "));
    }
    for canary in canaries.all.iter().filter(|canary| !is_bare(&canaries, canary)) {
        assert_eq!(file_containing(&home.state(), canary), None, "`{canary}` is on disk");
    }
}

/// A value that was sent without any context and cannot be recognised as a secret.
fn is_bare(canaries: &Canaries, canary: &str) -> bool {
    canary.contains("canary-Kq7") || canary.contains("canaryPw42") || canary == canaries.all[6]
}

fn assert_no_recognisable_canary(canaries: &Canaries, text: &str, source: &str) {
    for canary in canaries.all.iter().filter(|canary| !is_bare(canaries, canary)) {
        assert!(!text.contains(canary.as_str()), "{source} reveals `{canary}`:\n{text}");
    }
}

// T21: secret scopes: a file's value is masked, and so is a new value as soon as the file has it
#[test]
fn the_value_of_a_secret_scope_is_masked_and_may_change() {
    let home = Home::bare();
    std::fs::write(home.path("key.txt"), "scope-value-one-1\n").unwrap();
    let config = format!(
        "roles: {{default: dev}}\nsecrets: {{scopes: {{deploy: {{file: {}}}}}}}\n",
        home.path("key.txt").display()
    );
    home.user_config(&config);
    home.write("notes.txt", "a scope-value-one-1 b scope-value-two-2\n");
    let (_, answer) = home.call("read_file", r#"{"path":"notes.txt"}"#);
    let text = answer.to_string();
    assert!(text.contains("[REDACTED:deploy:") && !text.contains("scope-value-one"), "{text}");
    assert!(text.contains("scope-value-two"));
    std::fs::write(home.path("key.txt"), "scope-value-two-2\n").unwrap();
    let (_, answer) = home.call("read_file", r#"{"path":"notes.txt"}"#);
    assert!(!answer.to_string().contains("scope-value-two"), "{answer}");
    std::fs::remove_file(home.path("key.txt")).unwrap();
    let ran = home.run(["call", "read_file", "path=notes.txt", "--json"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.out.contains("SecretScopeDenied") && !ran.out.contains("scope-value"), "{ran:?}");
}

// T21, S11: secrets of the broker's environment are not in a child's environment, and the child finds them nowhere
#[test]
fn children_see_no_secret_of_the_brokers_environment() {
    let home = Home::bare();
    let secrets = [
        ("GITHUB_TOKEN", format!("gh{}_{}", "p", "q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8")),
        ("AWS_SECRET_ACCESS_KEY", "wJ4canaryKq7bPxRfiCYzzKEYq1W2e3R4t5Y6u7I".to_owned()),
        ("DATABASE_URL", "postgres://app:pG7canaryPw42@db/x".to_owned()),
        ("MY_PASSWORD", "Zx9-canary-Kq7!".to_owned()),
        ("NPM_CONFIG__AUTH", "Y2FuYXJ5OmNhbmFyeS1wdw==".to_owned()),
    ];
    let script = "env; tr '\\0' '\\n' </proc/self/environ; cat /proc/$PPID/environ /proc/1/environ /proc/*/environ; set";
    for options in [&[][..], &["--speculative"][..]] {
        let mut command =
            home.command(["sandbox", "run"].iter().chain(options).chain(&["--", "/bin/sh", "-c", script]));
        command.envs(secrets.iter().map(|(name, value)| (name, value)));
        let output = command.output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("PATH=") || text.contains("PWD="), "the child printed no environment: {text}");
        for secret in secrets.iter().map(|(_, value)| value.as_str()).chain([CANARY]) {
            assert!(!text.contains(secret), "{options:?} reveals `{secret}`:\n{text}");
        }
    }
    for (_, secret) in &secrets {
        assert_eq!(file_containing(&home.state(), secret), None, "`{secret}` is on disk");
    }
}
