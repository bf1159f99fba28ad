//! No input makes the parser panic or run for long.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::{ConfigSource, combine, migrate, parse, parse_bytes};

const SEED: &str = include_str!("sample.yaml");
const SPLICES: &[&str] = &[
    "&a ",
    "*a",
    "!t ",
    "<<: ",
    "---\n",
    "...\n",
    "\t",
    "\u{feff}",
    "[",
    "]",
    "{",
    "}",
    "- ",
    "? ",
    ": ",
    "'",
    "\"",
    "#",
    "|\n",
    ">\n",
    "%YAML 1.2\n",
    "\r",
    "\n",
    "\0",
    "null",
    "~",
    "file_broker:\n",
    "scope: {}",
    ",",
    "\\",
    "é",
    "\u{2028}",
];

fn parse_everywhere(bytes: &[u8]) {
    for source in [ConfigSource::Organisation, ConfigSource::Project { trusted: false }] {
        if let Ok(file) = parse_bytes(bytes, "f", source) {
            let effective = combine(None, None, Some(file));
            let _ = (effective.show(), effective.revision());
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = migrate(text, "f");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse_everywhere(&bytes);
    }

    #[test]
    fn yaml_like_text_never_panics(parts in proptest::collection::vec(
        prop_oneof![proptest::sample::select(SPLICES), Just("a"), Just("version"), Just(" "), Just("  ")], 0..60)) {
        parse_everywhere(parts.concat().as_bytes());
    }

    #[test]
    fn mutated_files_never_panic(edits in proptest::collection::vec((0_usize..3000, 0_usize..40, proptest::sample::select(SPLICES)), 1..6)) {
        let mut chars: Vec<char> = SEED.chars().collect();
        for (at, cut, splice) in edits {
            let at = at.min(chars.len());
            let end = (at + cut).min(chars.len());
            chars.splice(at..end, splice.chars());
        }
        parse_everywhere(chars.into_iter().collect::<String>().as_bytes());
    }
}

#[test]
fn sample_file_is_valid() {
    parse(SEED, "f", ConfigSource::Project { trusted: true }).unwrap();
}

#[test]
fn hostile_input_is_parsed_in_bounded_time() {
    const INPUT_BYTES: usize = 256 * 1024;
    let fill = |unit: &str| unit.repeat(INPUT_BYTES / unit.len());
    let indented: String = (0..1400).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let bomb: String = std::iter::once("a: &x0 [1,1,1,1,1,1,1,1,1]\n".to_owned())
        .chain((1..20).map(|n| format!("b{n}: &x{n} [{}]\n", format!("*x{},", n - 1).repeat(9))))
        .collect();
    let anchored = format!("{}{}{}", "&a [".repeat(250), fill("x,").get(..250_000).unwrap(), "]".repeat(250));
    let keys: String = (0..18_000).map(|n| format!("k{n}: {n}\n")).collect();
    let rules: String =
        (0..6_000).map(|n| format!("    - {{id: r{n}, tools: [a], decision: ask}}\n")).collect();
    let same: String = "version: 1\n".repeat(23_000);
    let rules = format!("approvals:\n  rules:\n{rules}");
    for (name, text) in [
        ("brackets", fill("[")),
        ("braces", fill("{")),
        ("pairs", fill("[]")),
        ("dashes", fill("- ")),
        ("questions", fill("? ")),
        ("colons", fill(": ")),
        ("quotes", fill("\"a\" ")),
        ("one word", fill("a")),
        ("commas", format!("[{}]", "a,".repeat(125_000))),
        ("indents", indented),
        ("bomb", bomb),
        ("anchored", anchored),
        ("keys", keys),
        ("rules", rules),
        ("same", same),
        ("newlines", fill("\n")),
        ("tabs", fill("\t")),
        ("documents", fill("---\n")),
        ("tags", fill("! ")),
        ("aliases", fill("*a ")),
        ("percent", fill("%")),
        ("dashes in lines", fill("- - - - - -\n")),
        ("anchors", fill("- &a b\n")),
        ("comments", fill("#\n")),
        ("anchored dashes", fill("- &a - ")),
        ("tagged dashes", fill("- !a - ")),
        ("mixed", fill("- [? {")),
    ] {
        let begun = Instant::now();
        parse_everywhere(text.as_bytes());
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(60), "{name} took {took:?}");
        println!("{name} {took:?}");
    }
}
