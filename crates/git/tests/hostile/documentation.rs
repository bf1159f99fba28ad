//! The table of keys against the list that each installed git has of its own documentation.

use std::process::Command;

use vambrace_git::{GitConfigKey, is_known_key};

use super::lab::versions;

#[test]
fn every_key_that_git_documents_is_in_the_table() {
    for git in versions() {
        let output = Command::new(&git.program).args(["help", "--config"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let keys: Vec<&str> = text.lines().filter(|line| line.contains('.') && !line.contains(' ')).collect();
        assert!(keys.len() > 500, "git {:?} lists {} keys", git.version, keys.len());
        let unknown: Vec<&str> = keys.into_iter().filter(|key| !is_known(key)).collect();
        assert!(
            unknown.is_empty(),
            "git {:?} documents keys that config_keys.txt lacks: {unknown:?}",
            git.version
        );
    }
}

/// `<name>` and `*` stand for any text. The condition of an include is documented as if it were a key.
fn is_known(documented: &str) -> bool {
    if documented.starts_with("hasconfig:") {
        return true;
    }
    let mut key = String::new();
    let mut depth = 0;
    for letter in documented.replace(['*', '`'], "any").chars() {
        match letter {
            '<' => depth += 1,
            '>' => {
                depth -= 1;
                key.push_str("any");
            }
            letter if depth == 0 => key.push(letter),
            _ => {}
        }
    }
    GitConfigKey::from_full(key.as_bytes()).is_some_and(|key| is_known_key(&key))
}
