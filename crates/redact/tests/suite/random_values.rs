//! Random values of every alphabet, in the places where people and programs write them; uses the generator of the
//! benchmark.

use std::collections::BTreeMap;

use crate::fixtures::{clean, redactor};

mod corpus {
    pub(crate) use crate::fixtures::SeededRng as Rng;
    use base64::Engine as _;

    pub(crate) fn pack(bytes: &[u8]) -> String {
        base64::prelude::BASE64_STANDARD.encode(bytes)
    }
}

#[path = "../../../../benches/src/redact/planted.rs"]
mod planted;

// T21: passwords, URLs, connection strings, headers, tokens: at least 95 % in each place and of each alphabet
#[test]
fn random_values_are_found_in_every_context() {
    let redactor = redactor(&[]);
    let mut rng = corpus::Rng(95);
    let mut lines = planted::passwords(&mut rng, 6);
    lines.extend(planted::tokens(&mut rng, 6));
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
