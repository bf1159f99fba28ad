//! The targets of `fuzz/`, driven here by a seeded generator for a bounded number of rounds, so that every run of the tests
//! meets them; `cargo fuzz` drives the same functions for as long as one likes.

use crate::given::{Chance, document};

#[path = "../../../../fuzz/targets.rs"]
mod targets;

/// Changes a text here and there.
fn mutated(chance: &mut Chance, seed: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=chance.below(8) {
        let place = chance.below(bytes.len().max(1));
        match chance.below(5) {
            0 if !bytes.is_empty() => bytes[place] = (chance.next() & 0xff) as u8,
            1 => bytes.insert(place.min(bytes.len()), (chance.next() & 0xff) as u8),
            2 if !bytes.is_empty() => {
                bytes.remove(place);
            }
            3 => {
                let end = (place + chance.below(40)).min(bytes.len());
                let copy = bytes[place.min(end)..end].to_vec();
                let to = chance.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            _ => bytes.truncate(bytes.len() - bytes.len() / 8),
        }
    }
    bytes
}

#[test]
fn the_stream_stands_hostile_bytes() {
    let mut chance = Chance(0x5eed);
    for _ in 0..150 {
        let (text, _) = document(&mut chance, 8);
        let bytes = mutated(&mut chance, text.as_bytes());
        targets::stream(&bytes);
    }
}

#[test]
fn the_rule_loader_stands_hostile_files() {
    let seed = "[[rules]]\nid = 'a'\nregex = '''(?i)abc_([a-z]{3,40})'''\nkeywords = ['abc']\nentropy = 3.1\nsecretGroup = 1\n[[rules.allowlists]]\nregexes = ['^x{']\nstopwords = ['y']\n";
    let mut chance = Chance(0xf11e);
    for _ in 0..400 {
        let bytes = mutated(&mut chance, seed.as_bytes());
        targets::rules(&bytes);
    }
}
