//! Read, search, edit and diff mask the same content alike. Every line of a file is compared in each of them, with the
//! redactor that the product uses.

use std::sync::Arc;

use serde_json::{Value, json};
use vambrace_broker::{Broker, read_approval};
use vambrace_core::redacted::Redact;
use vambrace_redact::{KnownValue, Redactor, RuleSet, SecretBytes};
use vambrace_store::Store as _;

use crate::changes::{DEV, id, propose};
use crate::fixtures::{Fixture, call};

const KNOWN: &str = "correct-battery-staple-words";
const KEY_LINE: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";

fn redactor() -> Arc<dyn Redact> {
    let known = KnownValue { kind: "env".to_owned(), value: SecretBytes::from(KNOWN) };
    Arc::new(Redactor::new(RuleSet::built_in().unwrap(), &[known], &[], &[7; 32]))
}

fn broker(fixture: &mut Fixture) -> Arc<Broker> {
    let parts = fixture.parts.as_mut().unwrap();
    parts.redactor = redactor();
    parts.tool_context.changes.redactor = redactor();
    parts.rate_limits.default = None;
    fixture.broker()
}

/// A fake token; concatenated, so that no scanner finds one here.
fn token() -> String {
    format!("gh{}_{}", "p", "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cE1gI3kM5")
}

fn private_key(lines: usize, ending: &str) -> Vec<String> {
    let mut key = vec![format!("-----BEGIN {} KEY-----{ending}", "PRIVATE")];
    key.extend((0..lines).map(|_| format!("{KEY_LINE}{ending}")));
    key.push(format!("-----END {} KEY-----{ending}", "PRIVATE"));
    key
}

/// Lines of a file, and what each shows: `None` where it is inside a secret of several lines.
struct Lines {
    text: Vec<String>,
    shown: Vec<Option<String>>,
}

impl Lines {
    /// A file with a secret of every kind, between lines that would be masked if they were taken out of their context: the
    /// end of the known value, and a word like the beginning of a token.
    fn new(ending: &str) -> Self {
        let redactor = redactor();
        let mut lines = Self { text: Vec::new(), shown: Vec::new() };
        let plain = ["alpha", "words of the day", "gamma", "a correct-", "delta"];
        for (n, secret) in [
            format!("key = {KNOWN}"),
            format!("token: {}", token()),
            "DB_PASSWORD=s8Gx!kQ2vL9w".to_owned(),
            "url = postgres://app:s8Gx!kQ2vL9w@db.internal:5432/x".to_owned(),
        ]
        .into_iter()
        .enumerate()
        {
            for words in plain {
                lines.plain(&format!("{words} {n}{ending}"));
            }
            let line = format!("{secret}{ending}");
            lines.shown.push(Some(redactor.redact(&line).unwrap().text.into_owned()));
            lines.text.push(line);
        }
        lines.plain(&format!("before the key{ending}"));
        for line in private_key(6, ending) {
            lines.text.push(line);
            lines.shown.push(None);
        }
        for words in plain {
            lines.plain(&format!("{words} end{ending}"));
        }
        lines
    }

    fn plain(&mut self, line: &str) {
        self.text.push(line.to_owned());
        self.shown.push(Some(line.to_owned()));
    }

    fn write(&self, fixture: &Fixture, path: &str, prefix: &str) {
        std::fs::write(
            fixture.dir.path().join("project").join(path),
            prefix.to_owned() + &self.text.concat(),
        )
        .unwrap();
    }

    /// Fails unless a line is shown as it should be. `line` has no sign and no line ending.
    fn check(&self, number: usize, line: &str, what: &str) {
        match &self.shown[number - 1] {
            Some(shown) => assert_eq!(line, shown.trim_end_matches(['\r', '\n']), "{what}, line {number}"),
            None => assert!(is_placeholder(line), "{what}, line {number}: {line}"),
        }
    }
}

fn is_placeholder(line: &str) -> bool {
    line.starts_with("[REDACTED:private-key:") && line.ends_with(']') && line.len() < 40
}

fn content(answer: &Value) -> String {
    answer["data"]["content"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// The lines of a redacted diff with their numbers in the old and the new file.
fn numbered(diff: &str) -> Vec<(char, usize, usize, &str)> {
    let (mut old, mut new, mut found) = (0, 0, Vec::new());
    // `str::lines` would drop a carriage return.
    let lines = diff.strip_suffix('\n').unwrap_or(diff).split('\n');
    for line in lines.skip_while(|line| !line.starts_with("@@")) {
        if let Some(header) = line.strip_prefix("@@ -") {
            let first = |words: &str| words.split([',', ' ']).next().unwrap().parse::<usize>().unwrap();
            old = first(header);
            new = first(header.split_once('+').unwrap().1);
            continue;
        }
        let (sign, text) = line.split_at(1);
        let sign = sign.chars().next().unwrap();
        found.push((sign, old, new, text));
        old += usize::from(sign != '+');
        new += usize::from(sign != '-');
    }
    found
}

// T21: whole, line by line, found by a pattern, as context of a match, as context of a hunk, and removed
#[tokio::test]
async fn read_search_edit_and_diff_show_every_line_alike() {
    for (ending, mark) in [("\n", ""), ("\r\n", ""), ("\n", "\u{feff}")] {
        let mut fixture = Fixture::new(DEV);
        let broker = broker(&mut fixture);
        let lines = Lines::new(ending);
        lines.write(&fixture, "src/all.txt", mark);
        let last = lines.text.len();

        let whole = content(&call(&broker, "read_file", json!({"path": "src/all.txt"})).await);
        let key_starts = lines.shown.iter().position(Option::is_none).unwrap();
        let key_ends = lines.shown.iter().rposition(Option::is_none).unwrap();
        let before: String = lines.shown[..key_starts].iter().flatten().cloned().collect();
        let after: String = lines.shown[key_ends + 1..].iter().flatten().cloned().collect();
        let key = whole.strip_prefix(&before).and_then(|rest| rest.strip_suffix(&after)).unwrap();
        assert!(is_placeholder(key.trim_end()), "{key:?}");

        for first in 1..=last {
            let args = json!({"path": "src/all.txt", "start_line": first, "end_line": first});
            let line = content(&call(&broker, "read_file", args).await);
            lines.check(first, line.trim_end_matches(['\r', '\n']), "read");
        }
        for context in [0, 3] {
            let args =
                json!({"path": "src/all.txt", "regex": "^", "context_lines": context, "max_matches": 2000});
            let found = call(&broker, "search_file", args).await;
            let matches = found["data"]["matches"].as_array().unwrap();
            assert!(!matches.is_empty(), "{found}");
            for hit in matches {
                let number = usize::try_from(hit["line"].as_u64().unwrap()).unwrap();
                lines.check(number, hit["text"].as_str().unwrap(), "search");
                let before = hit["before"].as_array().unwrap();
                for (at, line) in before.iter().enumerate() {
                    lines.check(number - before.len() + at, line.as_str().unwrap(), "search, before");
                }
                for (at, line) in hit["after"].as_array().unwrap().iter().enumerate() {
                    lines.check(number + 1 + at, line.as_str().unwrap(), "search, after");
                }
            }
        }
        // Every plain line is changed once, so every other line is context of a hunk.
        for number in
            (1..=last).filter(|number| lines.shown[number - 1] == Some(lines.text[number - 1].clone()))
        {
            let spec = lines.text[number - 1].trim_end_matches(['\r', '\n']);
            let edits = json!([{"spec": spec, "content": "changed"}]);
            let answer = propose(&broker, "edit_file", json!({"path": "src/all.txt", "edits": edits})).await;
            let diff = read_approval(fixture.store.approval_queries(), &id(&answer)).await.unwrap().diff;
            for (sign, old, new, text) in numbered(&diff) {
                assert_eq!(text.ends_with('\r'), ending == "\r\n", "{text:?}");
                let text = if new == 1 { text.trim_start_matches('\u{feff}') } else { text };
                match sign {
                    '+' => assert_eq!(text.trim_end_matches('\r'), "changed"),
                    _ => lines.check(old, text.trim_end_matches('\r'), "diff"),
                }
            }
            broker.reject(&id(&answer), None, &crate::changes::ada()).await.unwrap();
            fixture.clock.0.fetch_add(61_000, std::sync::atomic::Ordering::Relaxed);
        }
        let answer = propose(&broker, "delete_file", json!({"path": "src/all.txt"})).await;
        let diff = read_approval(fixture.store.approval_queries(), &id(&answer)).await.unwrap().diff;
        for (_, old, _, text) in numbered(&diff) {
            let text = if old == 1 { text.trim_start_matches('\u{feff}') } else { text };
            lines.check(old, text.trim_end_matches('\r'), "diff of a deletion");
        }
    }
}

// T21: a secret whose beginning is far above: outside the range that is read, the lines that are found, and the hunk
#[tokio::test]
async fn secret_split_over_a_window_is_masked_alike() {
    let mut fixture = Fixture::new(DEV);
    let broker = broker(&mut fixture);
    let filling: String =
        (0..1500).map(|n| format!("{n} filling of this file, which is longer than a window\n")).collect();
    let key = private_key(300, "\n").concat();
    let text = format!("{filling}{key}after the key\n{filling}password =\n    \"s8Gx!kQ2vL9w\"\nlast\n");
    assert!(text.len() > 128 * 1024);
    std::fs::write(fixture.dir.path().join("project/src/large.txt"), &text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let of = |wanted: &str| lines.iter().position(|line| *line == wanted).unwrap() + 1;
    let (begin, after, last) = (1501, of("after the key"), of("last"));

    for number in [begin, begin + 1, begin + 150, after - 2, after - 1] {
        let args = json!({"path": "src/large.txt", "start_line": number, "end_line": number});
        let line = content(&call(&broker, "read_file", args).await);
        assert!(is_placeholder(line.trim_end()), "read, line {number}: {line}");
    }
    let args = json!({"path": "src/large.txt", "start_line": after - 1, "end_line": after + 1});
    let read = content(&call(&broker, "read_file", args).await);
    let found = call(
        &broker,
        "search_file",
        json!({"path": "src/large.txt", "regex": "after the key", "context_lines": 1}),
    )
    .await;
    let hit = &found["data"]["matches"][0];
    let searched = [&hit["before"][0], &hit["text"], &hit["after"][0]].map(|line| line.as_str().unwrap());
    let edits = json!([{"spec": "after the key", "content": "changed"}]);
    let answer = propose(&broker, "edit_file", json!({"path": "src/large.txt", "edits": edits})).await;
    let diff = read_approval(fixture.store.approval_queries(), &id(&answer)).await.unwrap().diff;
    let in_diff: Vec<&str> = numbered(&diff)
        .into_iter()
        .filter(|(sign, old, ..)| *sign != '+' && (after - 1..=after + 1).contains(old))
        .map(|(.., text)| text)
        .collect();
    assert_eq!(read.lines().collect::<Vec<_>>(), searched, "read and search");
    assert_eq!(in_diff, searched, "diff and search");
    assert!(is_placeholder(searched[0]), "{searched:?}");

    // The pattern does not match inside it, in a search or an edit.
    for regex in [KEY_LINE, "MIIEvQ", "s8Gx!kQ2vL9w"] {
        let found = call(&broker, "search_file", json!({"path": "src/large.txt", "regex": regex})).await;
        let counted = call(&broker, "count_matches", json!({"path": "src/large.txt", "regex": regex})).await;
        let edits = json!([{"spec": regex, "content": "x", "match_mode": "regex", "count": 1}]);
        let edit = call(&broker, "edit_file", json!({"path": "src/large.txt", "edits": edits})).await;
        assert_eq!((&found["data"]["total"], &counted["data"]["count"]), (&json!(0), &json!(0)), "{regex}");
        assert_eq!(edit["error"]["code"], "MatchCountMismatch", "{edit}");
        assert!(
            !edit.to_string().contains("MIIEvQIB") && !edit.to_string().contains("s8Gx!kQ2vL9w"),
            "{edit}"
        );
    }
    let args = json!({"path": "src/large.txt", "start_line": last - 1, "end_line": last});
    let read = content(&call(&broker, "read_file", args).await);
    assert!(read.starts_with("    \"[REDACTED:password:") && read.ends_with("]\"\nlast\n"), "{read}");
}
