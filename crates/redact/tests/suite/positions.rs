//! The positions of secrets and the redacted text agree: replacing the reported secrets has the result of redacting. Reading
//! a file shows the redacted text, and searching, editing and diffing mask by position.

use std::io::Read as _;

use vambrace_core::redacted::Redact as _;
use vambrace_redact::Redactor;

use crate::fixtures::{SeededRng, clean, document, planted, redactor};

const PACKED: &[u8] = include_bytes!("../data/secrets-dev.jsonl.gz");

/// Fails unless both agree; returns whether the later scan passes found something.
fn check(redactor: &Redactor, text: &str) -> bool {
    let (mut out, mut from) = (String::new(), 0);
    let secrets = redactor.secrets(text).unwrap();
    for secret in &secrets {
        assert!(from <= secret.span.start && secret.span.start < secret.span.end, "{secrets:?} in {text:?}");
        out.push_str(&text[from..secret.span.start]);
        out.push_str(&secret.placeholder);
        from = secret.span.end;
    }
    out.push_str(&text[from..]);
    assert_eq!(out, clean(redactor, text), "{text:?}");
    secrets.len() != redactor.findings(text.as_bytes()).unwrap().len()
}

// T21
#[test]
fn replacing_the_reported_secrets_is_redacting() {
    let mut text = String::new();
    flate2::read::GzDecoder::new(PACKED).read_to_string(&mut text).unwrap();
    let examples: Vec<String> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_owned()
        })
        .collect();
    let redactor = redactor(&[]);
    let mut later = examples.iter().filter(|text| check(&redactor, text)).count();
    // Neighbours: a placeholder is context for what stands beside it.
    for pair in examples.chunks(2) {
        for between in ["", " ", ":", "\n"] {
            later += usize::from(check(&redactor, &pair.join(between)));
        }
    }
    assert!(later > 0, "no example needs a second pass");
}

// T21: known values too, and text that already contains placeholders
#[test]
fn positions_and_redacted_text_agree_on_generated_texts() {
    let mut rng = SeededRng(77);
    for _ in 0..60 {
        let lines = planted(&mut rng);
        let redactor = redactor(&[&lines[3].1, &lines[7].1]);
        let (text, _) = document(&mut rng, 12);
        check(&redactor, &text);
        check(&redactor, &clean(&redactor, &text));
        for (line, secret) in &lines {
            check(&redactor, line);
            check(&redactor, &format!("{line}{line}\n{secret}{secret}"));
            check(&redactor, &format!("{} {line}", clean(&redactor, line)));
        }
    }
}
