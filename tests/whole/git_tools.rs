//! The git tools: what they show of a repository, what they change in it, and that nothing of it runs.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::changes::{decide, propose};
use crate::home::Home;

const DEV: &str = "roles: {default: dev}\n";

/// The user's own git, without configuration of the machine.
fn git(home: &Home, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(home.project())
        .env("HOME", home.path("home"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A repository with one commit; `.env` is tracked too, as happens.
fn repository(config: &str) -> Home {
    let home = Home::with(config);
    git(&home, &["init", "-q", "-b", "main"]);
    git(&home, &["config", "user.name", "Ada"]);
    git(&home, &["config", "user.email", "ada@example.com"]);
    git(&home, &["add", "src", "docs", ".env"]);
    git(&home, &["commit", "-q", "-m", "first commit"]);
    home
}

fn call(home: &Home, tool: &str, args: Value) -> Value {
    home.call(tool, &args.to_string()).1
}

fn succeeded(home: &Home, tool: &str, args: Value) -> Value {
    let answer = call(home, tool, args);
    assert_eq!(answer["status"], "success", "{tool}: {answer}");
    answer
}

fn paths(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap()).collect()
}

/// Asks, approves, and asks again for the outcome.
fn commit(home: &Home, message: &str) -> Value {
    let args = json!({"message": message});
    let id = propose(home, "git_commit", args.clone());
    let approved = decide(home, &["approvals", "approve", &id]);
    assert_eq!(approved.code, 0, "{approved:?}");
    call(home, "git_commit", args)
}

// T15, T12
#[test]
fn status_and_diff_show_what_the_caller_may_read() {
    let home = repository(DEV);
    home.write("src/main.rs", "fn main() {}\n");
    home.write("docs/guide.md", "# Changed guide\n");
    home.write("docs/new.md", "new\n");
    home.write(".env", "TOKEN=changed-in-the-env-file\n");
    git(&home, &["add", "docs/guide.md", ".env"]);
    home.write(".env", "TOKEN=changed-again-in-the-env-file\n");

    let status = succeeded(&home, "git_status", json!({}));
    let data = &status["data"];
    assert_eq!(data["branch"]["name"], "main", "{status}");
    assert_eq!(status["metadata"]["execution_environment"], "sandbox");
    let listed = paths(&data["entries"]);
    for path in ["src/main.rs", "docs/guide.md", "docs/new.md"] {
        assert!(listed.contains(&path), "{path}: {status}");
    }
    let unstaged = succeeded(&home, "git_diff", json!({}));
    assert_eq!(paths(&unstaged["data"]["files"]), ["src/main.rs"], "{unstaged}");
    assert!(unstaged["data"]["patch"].as_str().unwrap().contains("+fn main() {}"), "{unstaged}");
    let staged = succeeded(&home, "git_diff", json!({"staged": true}));
    assert_eq!(paths(&staged["data"]["files"]), ["docs/guide.md"], "{staged}");
    assert!(staged["data"]["patch"].as_str().unwrap().contains("+# Changed guide"), "{staged}");
    let below = succeeded(&home, "git_diff", json!({"path": "docs"}));
    assert_eq!(below["data"]["patch"], "", "{below}");
    for answer in [&status, &unstaged, &staged, &below] {
        assert!(!answer["data"].to_string().contains("env"), "{answer}");
    }
    let denied = call(&home, "git_diff", json!({"path": ".env"}));
    assert_eq!(denied["error"]["code"], "BlockedPath", "{denied}");
}

// T15: a file that became a directory with a blocked file in it: the path of the file selects the directory too
#[test]
fn blocked_file_below_a_former_file_is_not_shown() {
    let home = repository(DEV);
    home.write("docs/thing", "a file\n");
    git(&home, &["add", "docs/thing"]);
    git(&home, &["commit", "-q", "-m", "second commit"]);
    std::fs::remove_file(home.project().join("docs/thing")).unwrap();
    home.write("docs/thing/secrets/key.txt", "hidden-below-a-former-file\n");
    git(&home, &["add", "-A", "docs"]);
    let staged = succeeded(&home, "git_diff", json!({"staged": true}));
    assert_eq!(paths(&staged["data"]["files"]), ["docs/thing"], "{staged}");
    assert!(!staged.to_string().contains("hidden-below"), "{staged}");
    git(&home, &["commit", "-q", "-m", "third commit"]);
    let shown = succeeded(&home, "git_show", json!({"revision": "HEAD"}));
    assert!(shown["data"]["patch"].as_str().unwrap().contains("-a file"), "{shown}");
    assert!(!shown.to_string().contains("hidden-below"), "{shown}");
}

// T15, P11
#[test]
fn log_and_show_follow_the_rules_about_paths() {
    let rules = "approvals: {rules: [{paths: ['docs/private/**'], decision: deny}]}\n";
    let home = repository(&format!("{DEV}{rules}"));
    home.write("docs/private/plan.md", "hidden-by-a-rule\n");
    home.write("docs/guide.md", "# Second guide\n");
    git(&home, &["add", "docs"]);
    git(&home, &["commit", "-q", "-m", "second commit\n\nwith a body"]);
    let log = succeeded(&home, "git_log", json!({"limit": 5}));
    let commits = log["data"]["commits"].as_array().unwrap();
    assert_eq!((commits.len(), &commits[0]["subject"]), (2, &"second commit".into()), "{log}");
    assert_eq!(commits[0]["author"]["name"], "Ada", "{log}");
    let one = succeeded(&home, "git_log", json!({"path": "src"}));
    assert_eq!(one["data"]["commits"].as_array().unwrap().len(), 1, "{one}");
    let shown = succeeded(&home, "git_show", json!({"revision": "HEAD"}));
    assert_eq!(paths(&shown["data"]["commit"]["files"]), ["docs/guide.md"], "{shown}");
    assert!(shown["data"]["patch"].as_str().unwrap().contains("+# Second guide"), "{shown}");
    assert!(!shown.to_string().contains("hidden-by-a-rule"), "{shown}");
    let first = succeeded(&home, "git_show", json!({"revision": "HEAD~1", "path": "src"}));
    assert_eq!(paths(&first["data"]["commit"]["files"]), ["src/main.rs"], "{first}");
    assert!(!first.to_string().contains("in-the-env-file"), "{first}");
    for revision in ["--output=x", "HEAD:.env", ":/first", "nothing-like-this"] {
        let answer = call(&home, "git_show", json!({"revision": revision}));
        assert_eq!(answer["error"]["code"], "InvalidArguments", "{revision}: {answer}");
    }
}

// T15: staged, committed after approval, recorded with its hash; the user's git agrees
#[test]
fn files_are_staged_and_committed() {
    let home = repository(DEV);
    home.write("src/main.rs", "fn main() {}\n");
    home.write("docs/new.md", "new\n");
    std::fs::remove_file(home.project().join("docs/guide.md")).unwrap();
    let added = succeeded(&home, "git_add", json!({"files": ["docs", "src/main.rs"]}));
    assert_eq!(added["data"]["staged"].as_array().unwrap().len(), 3, "{added}");
    let names = git(&home, &["diff", "--cached", "--name-status"]);
    for line in ["D\tdocs/guide.md", "A\tdocs/new.md", "M\tsrc/main.rs"] {
        assert!(names.contains(line), "{names}");
    }
    let answer = commit(&home, "change three files");
    assert_eq!(answer["status"], "success", "{answer}");
    let head = git(&home, &["rev-parse", "HEAD"]);
    assert_eq!(answer["data"]["commit"]["id"], head.trim(), "{answer}");
    assert_eq!(git(&home, &["log", "-1", "--format=%an %s"]), "Ada change three files\n");
    assert_eq!(git(&home, &["status", "--porcelain", "--untracked-files=no"]), "");
    git(&home, &["fsck", "--strict"]);
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// T15, T12
#[test]
fn blocked_files_are_neither_staged_nor_committed() {
    let home = repository(DEV);
    home.write("docs/new.md", "new\n");
    home.write("docs/.env", "TOKEN=x\n");
    home.write(".env", "TOKEN=y\n");
    for file in [".env", "secrets/key", ".git/config", "docs/.env"] {
        let answer = call(&home, "git_add", json!({"files": ["docs/new.md", file]}));
        assert_eq!(answer["error"]["code"], "BlockedPath", "{file}: {answer}");
    }
    let outside = call(&home, "git_add", json!({"files": ["../outside.txt"]}));
    assert_eq!(outside["error"]["code"], "ScopeViolation", "{outside}");
    assert_eq!(git(&home, &["diff", "--cached", "--name-only"]), "");
    let added = succeeded(&home, "git_add", json!({"files": ["docs"]}));
    assert_eq!(added["data"]["staged"], json!(["docs/new.md"]), "{added}");
    // What the user staged and the agent may not read is not committed by the agent.
    git(&home, &["add", ".env"]);
    let before = git(&home, &["rev-parse", "HEAD"]);
    let id = propose(&home, "git_commit", json!({"message": "with a blocked file"}));
    let denied = decide(&home, &["approvals", "approve", &id]);
    assert!(denied.err.contains("may not read"), "{denied:?}");
    assert_eq!(git(&home, &["rev-parse", "HEAD"]), before);
}

// T15, B7
#[test]
fn messages_and_roles_are_checked_before_a_commit() {
    let home = repository(DEV);
    home.write("docs/new.md", "new\n");
    succeeded(&home, "git_add", json!({"files": ["docs/new.md"]}));
    let secret = "use ghp_0123456789abcdefghijABCDEFGHIJ012345 to push";
    for (message, code) in [
        (secret, "SecretInContent"),
        ("a\u{1b}[2Jb", "InvalidArguments"),
        ("subject\nno empty line", "InvalidArguments"),
        (&"x".repeat(101), "InvalidArguments"),
    ] {
        let answer = call(&home, "git_commit", json!({"message": message}));
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    let ledger: Vec<String> = home.records().iter().map(Value::to_string).collect();
    assert!(!ledger.join("\n").contains("ghp_0123456789abcdefghij"));

    let home = repository("roles: {default: dev}\nprofile: readonly\n");
    home.write("docs/new.md", "new\n");
    git(&home, &["add", "docs/new.md"]);
    succeeded(&home, "git_status", json!({}));
    for (tool, args) in [("git_commit", json!({"message": "m"})), ("git_add", json!({"files": ["docs"]}))] {
        let answer = call(&home, tool, args);
        assert_eq!(answer["error"]["code"], "PermissionDenied", "{answer}");
    }
    assert_eq!(git(&home, &["rev-list", "--count", "HEAD"]), "1\n");
}

// T15: an approval is for what was staged when it was asked for
#[test]
fn commit_approved_for_another_index_is_not_made() {
    let home = repository(DEV);
    home.write("docs/new.md", "new\n");
    home.write("docs/other.md", "other\n");
    succeeded(&home, "git_add", json!({"files": ["docs/new.md"]}));
    let args = json!({"message": "one file"});
    let id = propose(&home, "git_commit", args.clone());
    succeeded(&home, "git_add", json!({"files": ["docs/other.md"]}));
    decide(&home, &["approvals", "approve", &id]);
    let answer = call(&home, "git_commit", args);
    assert_ne!(answer["status"], "success", "{answer}");
    assert_eq!(git(&home, &["rev-list", "--count", "HEAD"]), "1\n");
}

// T15: nothing that the repository names is started
#[test]
fn hostile_repository_starts_no_program() {
    let home = repository(DEV);
    let marker = home.project().join("docs/marker");
    let outside = home.path("marker");
    let script = home.project().join("evil.sh");
    let text = format!("#!/bin/sh\ntouch '{}' '{}'\ncat\n", marker.display(), outside.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = script.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.sshCommand",
        "diff.external",
        "diff.evil.textconv",
        "diff.evil.command",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "gpg.program",
        "interactive.diffFilter",
    ] {
        git(&home, &["config", key, program]);
    }
    git(&home, &["config", "commit.gpgSign", "true"]);
    for hook in ["pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction"] {
        let path = home.project().join(".git/hooks").join(hook);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(&script, path).unwrap();
    }
    home.write(".gitattributes", "*.md diff=evil\n*.dat filter=evil\n");
    home.write("docs/guide.md", "# Hostile guide\n");
    home.write("docs/a.dat", "data\n");

    succeeded(&home, "git_status", json!({}));
    let diff = succeeded(&home, "git_diff", json!({}));
    assert!(diff["data"]["patch"].as_str().unwrap().contains("+# Hostile guide"), "{diff}");
    succeeded(&home, "git_log", json!({}));
    succeeded(&home, "git_show", json!({"revision": "HEAD"}));
    let filtered = call(&home, "git_add", json!({"files": ["docs/a.dat"]}));
    assert!(filtered["error"]["message"].as_str().unwrap().contains("git filter `evil`"), "{filtered}");
    succeeded(&home, "git_add", json!({"files": ["docs/guide.md", ".gitattributes"]}));
    let answer = commit(&home, "a hostile commit");
    assert_eq!(answer["status"], "success", "{answer}");
    let hooks = answer["data"]["hooks_not_run"].to_string();
    assert!(hooks.contains("pre-commit") && hooks.contains("commit-msg"), "{answer}");
    assert!(!marker.exists() && !outside.exists(), "a program of the repository ran");
    // The same with plain git shows that the repository is hostile.
    drop(Command::new("git").arg("status").current_dir(home.project()).output());
    assert!(outside.exists(), "the test proves nothing");
}

// T15: a branch is created and checked out, files and repository together
#[test]
fn branches_are_created_and_checked_out() {
    let home = repository(DEV);
    let checkout = |args: Value| {
        let id = propose(&home, "git_checkout", args.clone());
        drop(decide(&home, &["approvals", "approve", &id]));
        call(&home, "git_checkout", args)
    };
    let missing = checkout(json!({"branch": "feature/a"}));
    assert_ne!(missing["status"], "success", "{missing}");
    let created = checkout(json!({"branch": "feature/a", "create_if_missing": true}));
    assert_eq!(
        (&created["status"], &created["data"]["created"]),
        (&"success".into(), &true.into()),
        "{created}"
    );
    assert_eq!(git(&home, &["branch", "--show-current"]), "feature/a\n");
    home.write("docs/guide.md", "# Guide of the branch\n");
    home.write("docs/deep/new.md", "new\n");
    git(&home, &["add", "docs"]);
    git(&home, &["commit", "-q", "-m", "on the branch"]);
    let back = checkout(json!({"branch": "main"}));
    assert_eq!(back["data"]["branch"], "main", "{back}");
    assert_eq!(std::fs::read_to_string(home.project().join("docs/guide.md")).unwrap(), "# Guide\n");
    assert!(!home.project().join("docs/deep").exists());
    assert_eq!(git(&home, &["status", "--porcelain", "--untracked-files=no"]), "");
    let again = checkout(json!({"branch": "feature/a", "create_if_missing": true}));
    assert_eq!((&again["status"], &again["data"]["created"]), (&"success".into(), &false.into()), "{again}");
    assert_eq!(std::fs::read_to_string(home.project().join("docs/deep/new.md")).unwrap(), "new\n");
    assert_eq!(git(&home, &["status", "--porcelain", "--untracked-files=no"]), "");
    for branch in ["-f", "HEAD", "a..b", "refs/heads/main"] {
        let answer = call(&home, "git_checkout", json!({"branch": branch, "create_if_missing": true}));
        assert_eq!(answer["error"]["code"], "InvalidArguments", "{branch}: {answer}");
    }
}

// T15, P11, T12: a checkout that would change a file that the caller may not change does nothing at all
#[test]
fn checkout_that_changes_denied_files_changes_nothing() {
    let rules = "approvals: {rules: [{paths: ['docs/private/**'], decision: deny}]}\n";
    for path in ["docs/private/plan.md", ".env", "secrets/other.txt"] {
        let home = repository(&format!("{DEV}{rules}"));
        git(&home, &["checkout", "-q", "-b", "other"]);
        home.write(path, "content-of-the-other-branch\n");
        home.write("docs/guide.md", "# Other guide\n");
        git(&home, &["add", "-f", path, "docs/guide.md"]);
        git(&home, &["commit", "-q", "-m", "on the other branch"]);
        git(&home, &["checkout", "-q", "main"]);
        let id = propose(&home, "git_checkout", json!({"branch": "other"}));
        let denied = decide(&home, &["approvals", "approve", &id]);
        assert_ne!(denied.code, 0, "{path}: {denied:?}");
        assert_eq!(git(&home, &["branch", "--show-current"]), "main\n", "{path}");
        assert_eq!(
            std::fs::read_to_string(home.project().join("docs/guide.md")).unwrap(),
            "# Guide\n",
            "{path}"
        );
    }
}
