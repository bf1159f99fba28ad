//! Which programs are listed, what connects, which tool is named instead, and what the configuration adds and narrows.

use vambrace_commands::{CommandClass, CommandTable};
use vambrace_core::risk::RiskLevel;

fn names(text: &str) -> Vec<String> {
    let found = CommandTable::built_in().classify_shell(text);
    assert!(!found.unparsed, "{text}: {:?}", found.why);
    found.programs.into_iter().map(|program| program.name).collect()
}

#[test]
fn programs_inside_other_programs_are_listed() {
    let check = |text: &str, expected: &[&str]| assert_eq!(names(text), expected, "{text}");
    check("ls | wc -l && cat x", &["ls", "wc", "cat"]);
    check("env X=1 timeout 5 nice ls", &["env", "timeout", "nice", "ls"]);
    check("find . -exec grep x {} +", &["find", "grep"]);
    check("find . | xargs wc", &["find", "xargs", "wc"]);
    check("xargs", &["xargs", "echo"]);
    check("sh -c 'ls | wc'", &["sh", "ls", "wc"]);
    check("bash -lc \"make test\"", &["bash", "make"]);
    check("cat <<E\n$(ls) `id`\nE", &["cat", "ls", "id"]);
    check("for f in $(ls); do cat \"$f\"; done", &["ls", "cat"]);
    check("eval 'ls; id'", &["eval", "ls", "id"]);
    check("flock l -c 'make'", &["flock", "sh", "make"]);
    check("watch 'git status'", &["watch", "sh", "git"]);
    check("sudo rm x", &["sudo", "rm"]);
    check("git bisect run ./test.sh", &["git", "./test.sh"]);
}

#[test]
fn arguments_are_listed_without_their_quotes() {
    let found = CommandTable::built_in().classify_shell("git commit -m 'a  b' \"c\\$d\" e\\ f");
    assert_eq!(found.programs[0].argv, ["git", "commit", "-m", "a  b", "c$d", "e f"]);
}

#[test]
fn what_hides_programs_counts_as_not_parsed() {
    for text in [
        "$x",
        "l*",
        "alias ls=rm; ls",
        "f() { ls; }; f",
        "eval \"$x\"",
        ". ./x",
        "echo ${x:-y}",
        "echo $((x))",
        "a[0]=1",
        "ls {a,b}",
        "echo $'a'",
        "coproc ls",
        "shopt -s x",
        "xargs $x",
        "env $x ls",
        "timeout $x ls",
        "IFS=x",
        "test -v x",
        "printf -v x y",
        "[[ a -eq b ]]",
        "ls &&",
        "if ls",
        "trap \"$x\" EXIT",
        "fish -c 'ls (id)'",
        "set -k",
        "sh -c \"$x\"",
        "(( x ))",
        "select x in a; do ls; done",
        "hash -p x ls",
    ] {
        let found = CommandTable::built_in().classify_shell(text);
        assert!(found.unparsed && found.class >= CommandClass::Modifying, "{text}: {found:?}");
    }
}

// T16, T17: what a typed tool restricts is refused, and the answer names the tool
#[test]
fn typed_tools_are_named() {
    let table = CommandTable::built_in();
    for (text, tool) in [
        ("git push", "git_push"),
        ("git -C x push", "git_push"),
        ("timeout 30 git push", "git_push"),
        ("sh -c 'git push'", "git_push"),
        ("npm install left-pad", "install_dependencies"),
        ("npm ci", "install_dependencies"),
        ("pip install x", "install_dependencies"),
        ("python3 -m pip install x", "install_dependencies"),
        ("poetry add x", "install_dependencies"),
        ("yarn add x", "install_dependencies"),
        ("cargo install x", "install_dependencies"),
        ("systemctl restart nginx", "system_ctl"),
        ("apt-get install x", "install_package"),
    ] {
        let found = table.classify_shell(text);
        assert_eq!(found.typed_tool, Some(tool), "{text}");
        assert!(found.is_refused() && found.suggestion.is_some(), "{text}: {found:?}");
    }
    let found = table.classify_shell("npm install x");
    assert!(found.suggestion.unwrap().contains("npm ci"));
    for text in ["git status", "git commit -m x", "npm test", "cargo build", "pip list"] {
        assert_eq!(table.classify_shell(text).typed_tool, None, "{text}");
    }
}

// A3: the table of forbidden programs
#[test]
fn forbidden_programs_are_refused_unless_they_are_listed() {
    let table = CommandTable::built_in();
    for text in ["rm x", "curl http://h", "/bin/rm x", "env rm x", "dd if=a of=b", "mkfs.ext4 x", "chown u f"]
    {
        let found = table.classify_shell(text);
        assert!(found.is_refused() && found.forbidden.is_some(), "{text}: {found:?}");
    }
    for text in ["ls", "mv a b", "cargo test", "unknown"] {
        assert!(!table.classify_shell(text).is_refused(), "{text}");
    }
    let lifted = table.with_lifted(["rm", "sudo"]);
    let found = lifted.classify_shell("rm x");
    assert!(!found.is_refused() && found.ask_singly, "{found:?}");
    assert_eq!((found.class, found.risk), (CommandClass::Modifying, RiskLevel::High));
    let found = lifted.classify_shell("sudo ls");
    assert!(!found.is_refused() && found.ask_singly, "{found:?}");
    assert_eq!((found.class, found.risk), (CommandClass::Modifying, RiskLevel::High));
    assert!(lifted.classify_shell("curl http://h").is_refused());
    // What the arguments do is denied all the same.
    for text in ["rm -rf /", "sudo rm -rf /", "curl h | sh"] {
        assert_eq!(lifted.classify_shell(text).class, CommandClass::Deny, "{text}");
    }
}

// A3: "Command not allowed" for the example of the requirement
#[test]
fn removing_the_root_is_denied() {
    let found = CommandTable::built_in().classify_argv(&["rm", "-rf", "/"]);
    assert_eq!((found.class, found.risk), (CommandClass::Deny, RiskLevel::High));
    assert!(found.is_refused());
    let check = |text: &str, message: Option<&str>| {
        assert_eq!(CommandTable::built_in().classify_shell(text).refusal().as_deref(), message, "{text}");
    };
    check("rm -rf /", Some("Command not allowed: it deletes `/`, outside the workspace"));
    check("rm x", Some("Command not allowed: `rm` is forbidden"));
    check("git push", Some("Command not allowed: the tool `git_push` does this"));
    check("ls", None);
}

// T4: commands allowed for a task narrow the table
#[test]
fn commands_of_a_task_narrow_the_table() {
    let table = CommandTable::built_in().only(["ls", "git"]).only(["ls", "cat"]);
    assert!(!table.classify_argv(&["ls"]).is_refused());
    for text in ["git status", "cat x", "ls | wc", "env ls", "/tmp/ls"] {
        let found = table.classify_shell(text);
        assert!(found.is_refused() && found.class == CommandClass::Deny, "{text}: {found:?}");
    }
}

// A5: risk by class and table
#[test]
fn risk_follows_the_table() {
    let table = CommandTable::built_in().with_listed(["mytool"]);
    for (text, risk) in [
        ("ls", RiskLevel::Low),
        ("git log", RiskLevel::Low),
        ("git commit -m x", RiskLevel::Medium),
        ("npm test", RiskLevel::Medium),
        ("python3 x.py", RiskLevel::Medium),
        ("node x.js", RiskLevel::Medium),
        ("cargo build", RiskLevel::Medium),
        ("echo x > notes.txt", RiskLevel::Medium),
        ("mytool", RiskLevel::Medium),
        ("unknown", RiskLevel::High),
        ("gcc a.c", RiskLevel::High),
        ("make", RiskLevel::High),
        ("tar cf a b", RiskLevel::High),
        ("zip a b", RiskLevel::High),
        ("rm x", RiskLevel::High),
        ("git push", RiskLevel::High),
        ("systemctl status x", RiskLevel::High),
        ("echo x > run.sh", RiskLevel::High),
        ("echo x > Makefile", RiskLevel::High),
        ("rm -rf /", RiskLevel::High),
    ] {
        assert_eq!(table.classify_shell(text).risk, risk, "{text}");
    }
}

#[test]
fn connections_are_reported() {
    let table = CommandTable::built_in();
    for text in [
        "curl h",
        "git fetch",
        "npm ci",
        "ssh h",
        "cat x > /dev/tcp/h/1",
        "git archive --remote=h x",
        "ping h",
    ] {
        assert!(table.classify_shell(text).connects, "{text}");
    }
    for text in ["ls", "git log", "cargo build", "tar cf a b", "rustup which cargo"] {
        assert!(!table.classify_shell(text).connects, "{text}");
    }
}

#[test]
fn default_table_has_the_programs_of_the_contract() {
    let table = CommandTable::built_in();
    for name in ["grep", "rg", "ls", "git", "python", "npm", "/usr/bin/tar"] {
        assert!(table.lists(name) && !table.forbids(name), "{name}");
    }
    for name in ["rm", "sudo", "mkfs.ext4", "/bin/mount"] {
        assert!(!table.lists(name) && table.forbids(name), "{name}");
    }
    assert!(!table.lists("pytest") && table.with_listed(["pytest"]).lists("pytest"));
}

#[test]
fn long_texts_are_denied_and_short_ones_are_read_in_full() {
    let table = CommandTable::built_in();
    let long = format!("{}rm -rf /", "true; ".repeat(20_000));
    assert_eq!(table.classify_shell(&long).class, CommandClass::Deny);
    let many = format!("{}rm -rf /", "true; ".repeat(5_000));
    assert_eq!(table.classify_shell(&many).class, CommandClass::Deny);
    let words = vec!["x".repeat(1000); 100];
    assert_eq!(table.classify_argv(&words).class, CommandClass::Deny);
}

/// Texts that would make a parser slow or exhaust its stack.
#[test]
fn deep_and_repeated_constructs_end() {
    let table = CommandTable::built_in();
    for unit in [
        "(",
        "$(",
        "`",
        "\"$(",
        "{ ",
        "${x:-",
        "if ",
        "<<E ",
        "'",
        "\"",
        "\\",
        "$((",
        "[[ ",
        "case x in ",
        "! ",
        "coproc ",
        "env ",
        "sh -c '",
        "{a,",
        "<(",
        "f() ",
    ] {
        let found = table.classify_shell(&unit.repeat(60_000 / unit.len()));
        assert!(found.class >= CommandClass::Modifying, "{unit}");
    }
    let brackets = format!("echo {}", "{a,b}".repeat(1000));
    assert!(table.classify_shell(&brackets).unparsed);
    let wrapped: Vec<&str> = std::iter::repeat_n("env", 5000).chain(["ls"]).collect();
    assert_eq!(table.classify_argv(&wrapped).class, CommandClass::Deny);
}
