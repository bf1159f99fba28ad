//! Public examples of other scanners, compressed. Most contain something that we must find; some contain host and
//! account names, which are not secrets. The minimum rates are what is found today.

use std::collections::BTreeMap;
use std::io::Read as _;

use crate::fixtures::redactor;

const PACKED: &[u8] = include_bytes!("../data/secrets-dev.jsonl.gz");

// T21
#[test]
fn examples_of_other_scanners_are_found() {
    let mut text = String::new();
    flate2::read::GzDecoder::new(PACKED).read_to_string(&mut text).unwrap();
    let redactor = redactor(&[]);
    let mut tally: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for line in text.lines() {
        let vector: serde_json::Value = serde_json::from_str(line).unwrap();
        if vector["expect"] != "hit" {
            continue;
        }
        let source = vector["source"].as_str().unwrap().split(':').next().unwrap();
        let row = tally.entry(source.to_owned()).or_default();
        row.0 += 1;
        row.1 +=
            usize::from(redactor.redact_bytes(vector["text"].as_str().unwrap().as_bytes()).unwrap().1 > 0);
    }
    for (source, least) in [("gitleaks", 95), ("betterleaks", 88), ("noseyparker", 70), ("kingfisher", 55)] {
        let (all, found) = tally[source];
        assert!(found * 100 >= all * least, "{source}: {found} of {all}");
    }
}
