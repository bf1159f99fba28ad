//! Runs the targets of `fuzz/` with a seeded generator for a bounded number of rounds, so that every test run covers
//! them; `cargo fuzz` runs the same functions without a limit.

use crate::fixtures::{SeededRng, document};

#[path = "../../../../fuzz/targets.rs"]
mod targets;

/// Mutates a text.
fn mutated(rng: &mut SeededRng, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(8) {
        let place = rng.below(bytes.len().max(1));
        match rng.below(5) {
            0 if !bytes.is_empty() => bytes[place] = (rng.next() & 0xff) as u8,
            1 => bytes.insert(place.min(bytes.len()), (rng.next() & 0xff) as u8),
            2 if !bytes.is_empty() => {
                bytes.remove(place);
            }
            3 => {
                let end = (place + rng.below(40)).min(bytes.len());
                let copy = bytes[place.min(end)..end].to_vec();
                let to = rng.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => bytes.truncate(bytes.len() - bytes.len() / 8),
        }
    }
    bytes
}

#[test]
fn the_stream_survives_hostile_bytes() {
    let mut rng = SeededRng(0x5eed);
    for _ in 0..150 {
        let (text, _) = document(&mut rng, 8);
        let bytes = mutated(&mut rng, text.as_bytes());
        targets::stream(&bytes);
    }
}

#[test]
fn the_rule_loader_survives_hostile_files() {
    let seed = "[[rules]]\nid = 'a'\nregex = '''(?i)abc_([a-z]{3,40})'''\nkeywords = ['abc']\nentropy = 3.1\nsecretGroup = 1\n[[rules.allowlists]]\nregexes = ['^x{']\nstopwords = ['y']\n";
    let mut rng = SeededRng(0xf11e);
    for _ in 0..400 {
        let bytes = mutated(&mut rng, seed.as_bytes());
        targets::rules(&bytes);
    }
}
