//! Secrets of many kinds planted wherever an agent or a project could carry one, sent through every door; then outputs,
//! ledger and the whole state folder are searched for them. Tokens are put together here.

use serde_json::json;

use crate::home::{CANARY, Home, stands_in};
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

fn silent(canaries: &Canaries, text: &str, what: &str) {
    for canary in &canaries.all {
        assert!(!text.contains(canary.as_str()), "{what} tells `{canary}`:\n{text}");
    }
}

// T21, S11: nothing that a redactor can know leaves by any door, or reaches the disk
#[test]
fn planted_secrets_leave_by_no_door_and_reach_no_disk() {
    let canaries = canaries();
    let home = Home::new();
    home.write("notes.txt", &canaries.file);
    let token = canaries.all[0].clone();
    home.write(&format!("docs/{token}.md"), "x\n");
    let doors: Vec<Vec<String>> = [
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
    for words in &doors {
        let ran = home.run(words);
        let told = format!("{}{}", ran.out, ran.err);
        silent(&canaries, &told, &words.join(" "));
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
            // A password without a context around it is known to nobody.
            if canary.contains("canary-Kq7") || canary.contains("canaryPw42") || *canary == canaries.all[6] {
                continue;
            }
            let told = format!("{}{}", ran.out, ran.err);
            assert!(!told.contains(canary.as_str()), "{words:?} tells it: {told}");
        }
    }
    let mut server = Server::greeted(&home, &[]);
    for (tool, args) in [
        ("read_file", json!({"path": "notes.txt"})),
        ("search_file", json!({"regex": "."})),
        ("list_files", json!({"recursive": true})),
    ] {
        let told = server.call(tool, args).to_string();
        silent(&canaries, &told, tool);
    }
    for words in [["audit", "tail", "--json"], ["timeline", "--limit", "50"], ["audit", "verify", "--json"]] {
        let ran = home.run(words);
        silent_known(&canaries, &format!("{}{}", ran.out, ran.err), &words.join(" "));
    }
    for canary in canaries.all.iter().filter(|canary| !is_bare(&canaries, canary)) {
        assert_eq!(stands_in(&home.state(), canary), None, "`{canary}` is on disk");
    }
}

/// A value that was sent without any context: nobody could know it for a secret.
fn is_bare(canaries: &Canaries, canary: &str) -> bool {
    canary.contains("canary-Kq7") || canary.contains("canaryPw42") || canary == canaries.all[6]
}

fn silent_known(canaries: &Canaries, text: &str, what: &str) {
    for canary in canaries.all.iter().filter(|canary| !is_bare(canaries, canary)) {
        assert!(!text.contains(canary.as_str()), "{what} tells `{canary}`:\n{text}");
    }
}

// T21: secret scopes: a file's value is masked, and a new value as soon as it is there
#[test]
fn the_value_of_a_scope_is_masked_and_may_change() {
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

// T21, S11: what the broker's environment holds is in no child's, and the child finds it nowhere
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
        let told =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(told.contains("PATH=") || told.contains("PWD="), "the child told nothing: {told}");
        for secret in secrets.iter().map(|(_, value)| value.as_str()).chain([CANARY]) {
            assert!(!told.contains(secret), "{options:?} tells `{secret}`:\n{told}");
        }
    }
    for (_, secret) in &secrets {
        assert_eq!(stands_in(&home.state(), secret), None, "`{secret}` is on disk");
    }
}
