//! CEF, read by a small parser of its own.

use std::collections::BTreeMap;

use serde_json::Value;
use vambrace_ledger::ExportFormat;

use crate::fixtures::{HOSTILE, pairs};

/// The seven fields of the header, and the pairs of the extension.
fn parse(line: &str) -> (Vec<String>, BTreeMap<String, String>) {
    let mut header = vec![String::new()];
    let mut chars = line.chars();
    while header.len() < 8 {
        match chars.next().unwrap() {
            '|' => header.push(String::new()),
            '\\' => {
                let next = chars.next().unwrap();
                assert!(next == '|' || next == '\\', "`\\{next}` in the header of {line}");
                header.last_mut().unwrap().push(next);
            }
            ch => header.last_mut().unwrap().push(ch),
        }
    }
    header.pop();
    // A key is the word before an `=` that is not escaped; its value ends before the next key.
    let rest: Vec<char> = chars.collect();
    let mut starts = Vec::new();
    let mut escaped = false;
    for (at, ch) in rest.iter().enumerate() {
        if *ch == '=' && !escaped {
            let word = rest[..at].iter().rposition(|c| *c == ' ').map_or(0, |space| space + 1);
            starts.push((word, at));
        }
        escaped = *ch == '\\' && !escaped;
    }
    let mut pairs = BTreeMap::new();
    for (n, (word, equals)) in starts.iter().enumerate() {
        let end = starts.get(n + 1).map_or(rest.len(), |(next, _)| next - 1);
        let key: String = rest[*word..*equals].iter().collect();
        assert!(key.chars().all(|c| c.is_ascii_alphanumeric()), "key `{key}` of {line}");
        let value = unescape(&rest[equals + 1..end]);
        assert_eq!(pairs.insert(key.clone(), value), None, "`{key}` twice in {line}");
    }
    (header, pairs)
}

fn unescape(value: &[char]) -> String {
    let mut out = String::new();
    let mut chars = value.iter();
    while let Some(ch) = chars.next() {
        match ch {
            '\\' => match chars.next().unwrap() {
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                other => {
                    assert!(matches!(other, '\\' | '='), "`\\{other}` in a value");
                    out.push(*other);
                }
            },
            ch => out.push(*ch),
        }
    }
    out
}

/// A text as a reader gets it: control characters as their code points, long texts truncated.
fn shown(text: &str) -> String {
    let mut out = String::new();
    for (at, ch) in text.chars().enumerate() {
        if at == 4000 {
            return out + "\u{2026}";
        }
        let number = (ch.is_control() && ch != '\n' && ch != '\r') || matches!(ch, '\u{2028}' | '\u{2029}');
        if number { out += &format!("\\u{:04x}", u32::from(ch)) } else { out.push(ch) }
    }
    out
}

// B7
#[test]
fn a_reader_gets_every_value_as_it_was_recorded() {
    for (record, line) in pairs(ExportFormat::Cef) {
        let (header, found) = parse(&line);
        assert_eq!(header[..3], ["CEF:0", "Vambrace", "vambrace"].map(String::from));
        assert_eq!(header[4], record["event_type"].as_str().unwrap());
        assert!((0..=10).contains(&header[6].parse::<u8>().unwrap()));
        let values: Vec<&String> = found.values().collect();
        for (field, value) in &record {
            if field == "ts" || field == "event_type" {
                continue;
            }
            let expected = shown(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            assert!(values.contains(&&expected), "{field} = {expected} in {line}");
        }
        assert_eq!(found["cn1"], record["seq"].to_string());
        assert_eq!(found["cs1"], record["event_hash"].as_str().unwrap());
        assert_eq!(found["cs2"], record["prev_hash"].as_str().unwrap());
    }
}

// B7, T22
#[test]
fn hostile_text_stays_inside_its_value() {
    let found: Vec<_> = pairs(ExportFormat::Cef)
        .into_iter()
        .filter(|(record, _)| record["op"] == "violation" && record.contains_key("rule"))
        .map(|(_, line)| parse(&line).1)
        .collect();
    assert_eq!(found.len(), HOSTILE.len());
    let keys: Vec<Vec<&String>> = found.iter().map(|pairs| pairs.keys().collect()).collect();
    for (pairs, text) in found.iter().zip(HOSTILE) {
        assert_eq!(pairs["msg"], shown(text));
        assert_eq!(pairs["suser"], shown(text));
    }
    assert!(keys.iter().all(|list| *list == keys[0]), "{keys:?}");
}

#[test]
fn the_parser_of_this_test_unescapes_correctly() {
    let (header, found) = parse("CEF:0|a\\|b|c|1|x|y|3|k=v w cs1=a\\=b c2=\\\\n\\n");
    assert_eq!(header[1], "a|b");
    assert_eq!((found["k"].as_str(), found["cs1"].as_str(), found["c2"].as_str()), ("v w", "a=b", "\\n\n"));
    assert_eq!(Value::from(found.len()), 3);
}
