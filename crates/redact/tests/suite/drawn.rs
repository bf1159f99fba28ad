//! Values drawn at random, of every alphabet, in the places where people and programs write them: the generator of the bench.

use std::collections::BTreeMap;

use crate::given::{clean, redactor};

mod corpus {
    pub(crate) use crate::given::Chance;
    use base64::Engine as _;

    pub(crate) fn pack(bytes: &[u8]) -> String {
        base64::prelude::BASE64_STANDARD.encode(bytes)
    }
}

#[path = "../../../../benches/src/redact/planted.rs"]
mod planted;

// T21: passwords, addresses, connection strings, headers, tokens: at least 95 of 100 in each place and of each alphabet
#[test]
fn random_values_in_context_are_found_wherever_they_stand() {
    let redactor = redactor(&[]);
    let mut chance = corpus::Chance(95);
    let mut lines = planted::passwords(&mut chance, 6);
    lines.extend(planted::tokens(&mut chance, 6));
    let mut tally: BTreeMap<&str, (usize, usize, Vec<&str>)> = BTreeMap::new();
    for line in &lines {
        let gone = planted::is_gone(&clean(&redactor, &line.text), &line.secret);
        for family in [line.alphabet, line.place] {
            let row = tally.entry(family).or_default();
            row.0 += 1;
            row.1 += usize::from(gone);
            row.2.extend((!gone).then_some(line.text.as_str()));
        }
    }
    for (family, (all, gone, left)) in tally {
        assert!(gone * 100 >= all * 95, "{family}: {gone} of {all}, left: {left:#?}");
    }
}
