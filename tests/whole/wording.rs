//! Snapshots of what people read: the help of every command, and the messages of common situations. A change of wording shows up as a
//! changed snapshot, so that it is reviewed. `INSTA_UPDATE=always cargo test -p vambrace-tests wording` writes them again.

use crate::home::{Home, Ran};

/// Texts that differ between runs, replaced by their kind: identifiers, hashes, times, paths of this test.
fn normalised(home: &Home, text: &str) -> String {
    let text = text.replace(&home.path("").display().to_string(), "[HOME]/");
    let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let mut words = String::new();
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() || letter == '-' || letter == ':' || letter == '.' {
            word.push(letter);
            continue;
        }
        words.push_str(&normalised_word(&word));
        word.clear();
        words.push(letter);
    }
    words.trim_end().to_owned()
}

fn normalised_word(word: &str) -> String {
    let is_hex = |part: &str| {
        part.len() >= 8 && part.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
    };
    if let Some((kind, id)) = word.split_once(['-', ':'])
        && ["hitl", "call", "sha256", "tc", "w", "s", "grant", "key"].contains(&kind)
        && is_hex(id.trim_end_matches(['.', ':']))
    {
        return format!("{kind}-[ID]");
    }
    let is_time = word.len() >= 19 && word.starts_with("20") && word.contains('T') && word.contains(':');
    if is_time { "[TIME]".to_owned() } else { word.to_owned() }
}

/// Standard output, standard error and exit code as one text.
fn transcript(home: &Home, args: &[&str]) -> String {
    let Ran { code, out, err } = home.run(args);
    let mut text = format!("$ vambrace {}\n", args.join(" "));
    for (name, part) in [("", out), ("stderr:\n", err)] {
        if !part.trim().is_empty() {
            text.push_str(&format!("{name}{}\n", normalised(home, &part)));
        }
    }
    text.push_str(&format!("exit code {code}\n"));
    text
}

/// Names of the subcommands in a help text.
fn subcommands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_of_every_command_is_reviewed() {
    let home = Home::bare();
    let mut pending = vec![Vec::<String>::new()];
    let mut seen = 0;
    while let Some(command) = pending.pop() {
        let mut args = command.clone();
        args.push("--help".to_owned());
        let help = home.run(&args);
        assert_eq!(help.code, 0, "{args:?}: {help:?}");
        pending.extend(subcommands(&help.out).into_iter().map(|name| [command.clone(), vec![name]].concat()));
        let name = if command.is_empty() { "vambrace".to_owned() } else { command.join("_") };
        insta::assert_snapshot!(format!("help_{name}"), normalised(&home, &help.out));
        seen += 1;
    }
    assert!(seen > 30, "only {seen} commands have help");
}

#[test]
fn messages_of_denials_and_errors_are_reviewed() {
    let home = Home::new();
    let situations: &[&[&str]] = &[
        &["call", "read_file", "path=.env"],
        &["call", "read_file", "path=../outside.txt"],
        &["call", "read_file", "path=link"],
        &["call", "read_file", "path=src/mian.rs"],
        &["call", "read_file", "pth=src/main.rs"],
        &["call", "raed_file", "path=src/main.rs"],
        &["call", "write_file", "path=other/new.rs", "content=x"],
        &["call", "edit_file", r#"{"path":"src/main.rs","edits":[{"spec":"absent","operation":"delete"}]}"#],
        &["call", "search_file", "regex=(", "path=."],
        &["call", "web_fetch", "url=https://example.com/"],
        &["explain", "read_file", "path=src/main.rs"],
        &["explain", "delete_file", "path=src/main.rs"],
        &["approvals", "show", "hitl-00000000-0000-0000-0000-000000000000"],
        &["proposals", "apply", "hitl-00000000-0000-0000-0000-000000000000"],
        &["config", "get", "limits.read_byte"],
        &["sandbox", "run"],
        &["errors", "StaleBas"],
        &["statsu"],
    ];
    let text: Vec<String> = situations.iter().map(|args| transcript(&home, args)).collect();
    insta::assert_snapshot!("messages", text.join("\n"));
}

#[test]
fn messages_about_a_wrong_configuration_are_reviewed() {
    let configs = [
        "version: 1\nlimit:\n  read_bytes: 10\n",
        "version: 1\nlimits:\n  read_bytes: many\n",
        "version: 1\nlimits: {read_bytes: 10\n",
        "version: 1\nfile_broker:\n  enabled: false\n",
    ];
    let text: Vec<String> = configs
        .iter()
        .map(|config| {
            let home = Home::bare();
            home.write(".vambrace/config.yaml", config);
            format!("{config}\n{}", transcript(&home, &["call", "read_file", "path=src/main.rs"]))
        })
        .collect();
    insta::assert_snapshot!("configuration_errors", text.join("\n"));
}
