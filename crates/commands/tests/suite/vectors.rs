//! The command vectors: how many are recognised. The file is a copy of the test data; its rubric is in the comment of the
//! classes.

use serde_json::Value;
use vambrace_commands::{Classification, CommandClass, CommandTable};

const VECTORS: &str = include_str!("../data/commands-dev.jsonl");

struct Vector {
    line: usize,
    text: String,
    expected: CommandClass,
    found: Classification,
}

fn vectors() -> Vec<Vector> {
    let table = CommandTable::built_in();
    let lines = VECTORS.lines().enumerate();
    lines
        .map(|(at, line)| {
            let value: Value = serde_json::from_str(line).unwrap();
            let found = match value["shell"].as_str() {
                Some(text) => table.classify_shell(text),
                None => {
                    let argv: Vec<&str> =
                        value["argv"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
                    table.classify_argv(&argv)
                }
            };
            let expected = match value["expect"].as_str().unwrap() {
                "readonly" => CommandClass::ReadOnly,
                "modifying" => CommandClass::Modifying,
                "deny" => CommandClass::Deny,
                other => panic!("class {other}"),
            };
            let text = if value["shell"].is_string() {
                value["shell"].to_string()
            } else {
                value["argv"].to_string()
            };
            Vector { line: at + 1, text, expected, found }
        })
        .collect()
}

// The limit is for a release build: p99 < 100 us.
#[test]
#[ignore = "measures; run it alone, in a release build"]
fn classification_takes_microseconds() {
    let table = CommandTable::built_in();
    let lines: Vec<Value> = VECTORS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut times = Vec::new();
    for round in 0..40 {
        for line in &lines {
            let argv: Vec<&str> =
                line["argv"].as_array().into_iter().flatten().map(|word| word.as_str().unwrap()).collect();
            let start = std::time::Instant::now();
            let found = match line["shell"].as_str() {
                Some(text) => table.classify_shell(text),
                None => table.classify_argv(&argv),
            };
            let taken = start.elapsed();
            assert!(!found.why.is_empty());
            // The first round loads the tables.
            if round > 0 {
                times.push(taken);
            }
        }
    }
    times.sort();
    println!(
        "p50 {:?}, p99 {:?}, max {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1]
    );
}

// A3, A5: the figures of the rubric
#[test]
fn vectors_are_classified_within_the_limits() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 467);
    let mut report = String::new();
    for vector in vectors.iter().filter(|vector| vector.found.class != vector.expected) {
        report.push_str(&format!(
            "{}: {} expected {}, is {}: {:?}\n",
            vector.line,
            vector.text,
            vector.expected.as_str(),
            vector.found.class.as_str(),
            vector.found.why
        ));
    }
    println!("{report}");
    let of = |expected: CommandClass| vectors.iter().filter(move |vector| vector.expected == expected);
    let recognised = |class: CommandClass| {
        let hits = of(class).filter(|vector| vector.found.class == class).count();
        hits * 1000 / of(class).count()
    };
    let wrongly_read_only = vectors.iter().filter(|vector| {
        vector.expected != CommandClass::ReadOnly && vector.found.class == CommandClass::ReadOnly
    });
    assert_eq!(wrongly_read_only.count(), 0, "{report}");
    println!(
        "readonly {} deny {} modifying {} per mille",
        recognised(CommandClass::ReadOnly),
        recognised(CommandClass::Deny),
        recognised(CommandClass::Modifying)
    );
    assert!(recognised(CommandClass::ReadOnly) >= 990, "{report}");
    assert!(recognised(CommandClass::Deny) >= 980, "{report}");
    assert!(recognised(CommandClass::Modifying) >= 970, "{report}");
    let flagged = of(CommandClass::ReadOnly).filter(|vector| vector.found.class == CommandClass::Deny);
    assert_eq!(flagged.count(), 0, "{report}");
}
