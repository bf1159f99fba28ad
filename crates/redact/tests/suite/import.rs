//! Imported rules, and patterns of the configuration.

use std::path::Path;

use vambrace_redact::{Redactor, RuleSet};

use crate::fixtures::clean;

fn with(toml: &str) -> Redactor {
    Redactor::new(RuleSet::empty().with_file(toml, Path::new("mine.toml")).unwrap(), &[], &[], &[7; 32])
}

// T21: rule files of gitleaks and betterleaks are read: keywords, groups, entropy, allow lists
#[test]
fn imported_rules_are_applied() {
    let redactor = with(
        r#"
title = "mine"
[[rules]]
id = "acme-token"
regex = '''(?i)acme[_ ]token\s*=\s*["']([a-z0-9]{20})["']'''
keywords = ["acme"]
entropy = 3.0
[[rules.allowlists]]
stopwords = ["example"]
[[rules]]
id = "Other Thing"
regex = '''oth_{(?:[0-9]{4})}'''
keywords = ["oth_"]
filter = '''
entropy(finding["secret"]) <= 1.0
'''
validate = '''http.get("https://nowhere")'''
[[allowlists]]
regexes = ['''^\${(?:[A-Z_]+)}$''']
"#,
    );
    let out = clean(&redactor, "ACME_TOKEN = 'a1b2c3d4e5f6g7h8i9j0'");
    assert!(out.starts_with("ACME_TOKEN = '[REDACTED:acme-token:"), "{out}");
    for same in [
        "acme_token = 'aaaaaaaaaaaaaaaaaaaa'",
        "acme_token = 'example1b2c3d4e5f6g7'",
        "unrelated a1b2c3d4e5f6g7h8i9j0",
    ] {
        assert_eq!(clean(&redactor, same), same);
    }
    assert!(clean(&redactor, "x oth_{1234} y").starts_with("x [REDACTED:other-thing:"));
}

// T24: `sk-...` also covers the rest of the token
#[test]
fn patterns_of_the_configuration_are_applied() {
    let patterns = ["sk-...", "ghp-...", "Project Titan"].map(str::to_owned);
    let redactor =
        Redactor::new(RuleSet::built_in().unwrap().with_patterns(&patterns).unwrap(), &[], &[], &[7; 32]);
    let out = clean(&redactor, "use sk-12 and ghp-x7, about Project Titan.");
    assert!(!out.contains("sk-12") && !out.contains("ghp-x7") && !out.contains("Titan"), "{out}");
    assert!(out.starts_with("use [REDACTED:pattern:") && out.ends_with("]."), "{out}");
    assert_eq!(
        clean(&redactor, "a task-force"),
        "a task-force".replace("sk-force", &clean(&redactor, "sk-force"))
    );
    let error = RuleSet::built_in().unwrap().with_patterns(&["x...".to_owned()]).unwrap_err();
    assert!(error.to_string().contains("redact_patterns"), "{error}");
}

// Imported rules need no keyword: those without one are searched in every line
#[test]
fn a_rule_without_a_keyword_is_searched_in_every_line() {
    let redactor = with(
        "[[rules]]\nid = 'forty'\nregex = '\\b[a-f0-9]{40}\\b'\n[[rules]]\nid = 'pin'\nregex = 'P?[0-9]{4}X'\n",
    );
    let hex = "0123456789abcdef0123456789abcdef01234567";
    let text = format!("x {hex} y\n{}1234X and 99X\n{}\nz={hex}", "- ".repeat(5000), "word ".repeat(3000));
    let out = clean(&redactor, &text);
    assert!(!out.contains(hex) && !out.contains("1234X") && out.contains("99X"), "{}", out.len());
    assert_eq!((out.matches("[REDACTED:forty:").count(), out.matches("[REDACTED:pin:").count()), (2, 1));
    for size in [1, 7, 4096, 9000] {
        let (mut stream, mut pieces) = (redactor.stream(), Vec::new());
        text.as_bytes().chunks(size).for_each(|piece| stream.push(piece, &mut pieces).unwrap());
        stream.finish(&mut pieces).unwrap();
        assert!(pieces == out.as_bytes(), "pieces of {size}");
    }
    assert_eq!(clean(&redactor, &out), out);
}
