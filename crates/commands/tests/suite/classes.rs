//! Tables of command lines with their class, one file for each class.

use serde_json::Value;
use vambrace_commands::{Classification, CommandClass, CommandTable};

fn classify(table: &CommandTable, line: &str) -> Classification {
    match serde_json::from_str(line) {
        Ok(Value::Array(words)) => {
            let argv: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
            table.classify_argv(&argv)
        }
        Ok(Value::String(text)) => table.classify_shell(&text),
        _ => table.classify_shell(line),
    }
}

fn check(file: &str, expected: CommandClass) {
    let table = CommandTable::built_in();
    let mut wrong = Vec::new();
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        let found = classify(&table, line);
        if found.class != expected {
            wrong.push(format!("{line} is {}: {:?}", found.class.as_str(), found.why));
        }
        assert!(!found.why.is_empty() && found.why.len() <= 8, "{line}: {:?}", found.why);
        assert!(!found.unparsed || found.class != CommandClass::ReadOnly, "{line}");
    }
    assert!(wrong.is_empty(), "expected {}:\n{}", expected.as_str(), wrong.join("\n"));
}

// A3: an allowed command must not become a launcher; nothing hides, persists, escalates or sends secrets
#[test]
fn attacks_are_denied() {
    check(include_str!("../data/attacks.txt"), CommandClass::Deny);
}

// A5
#[test]
fn readers_are_read_only() {
    check(include_str!("../data/readers.txt"), CommandClass::ReadOnly);
}

#[test]
fn changes_are_modifying() {
    check(include_str!("../data/changes.txt"), CommandClass::Modifying);
}
