//! How unusual a text is, letter after letter, for source, settings and prose. `rules/pairs.txt` holds for each visible character how
//! rarely each other one follows it: half bits in base 36, counted over two million different words of installed packages and manuals
//! (runs that were random themselves left out). Words, names and expressions are cheap; what was drawn at random is dear, also when
//! it is letters alone and could be a name.

use crate::bytes::at;

const PAIRS: &[u8] = include_bytes!("../../rules/pairs.txt");
/// Characters of a line, and its end.
const LINE: usize = 95;
const FIRST: u8 = b'!';
const LAST: u8 = b'~';
/// What a pair costs that the table does not know: a blank, a letter outside ASCII.
const OTHER: f32 = 5.0;
/// So much of a value is looked at.
const ENOUGH: usize = 256;

/// Whether a text is as unusual as one drawn at random from the sorts of characters in it. Of random texts about one in forty is missed
/// with a `slack` of 2; less slack misses more and is fooled less.
pub(super) fn is_random(value: &[u8], slack: f32) -> bool {
    if value.len() < 2 {
        return false;
    }
    // What a long value is shows at its beginning.
    let value = value.get(..ENOUGH).unwrap_or(value);
    let (mean, spread) = drawn(value);
    let pairs = (value.len() - 1) as f32;
    // Chance evens out in long values, and no text of words comes near three quarters of the mean.
    let least = (mean - slack * spread / pairs.sqrt()).min(mean * (0.85 - slack / 20.0));
    surprise(value) >= least
}

/// Bits a pair.
fn surprise(value: &[u8]) -> f32 {
    let costs = value.windows(2).map(|two| cost(at(two, 0), at(two, 1)));
    costs.sum::<f32>() / value.len().saturating_sub(1).max(1) as f32
}

fn cost(first: u8, second: u8) -> f32 {
    if !(FIRST..=LAST).contains(&first) || !(FIRST..=LAST).contains(&second) {
        return OTHER;
    }
    let place = usize::from(first - FIRST) * LINE + usize::from(second - FIRST);
    let half_bits = char::from(at(PAIRS, place)).to_digit(36).unwrap_or(0);
    f32::from(u8::try_from(half_bits).unwrap_or(0)) / 2.0
}

/// What texts drawn from these characters cost: mean and spread of a pair, measured over the table.
fn drawn(value: &[u8]) -> (f32, f32) {
    let has = |sort: fn(&u8) -> bool| value.iter().any(sort);
    let (small, capital, digit) =
        (has(u8::is_ascii_lowercase), has(u8::is_ascii_uppercase), has(u8::is_ascii_digit));
    let sign = has(u8::is_ascii_punctuation);
    let hex = value.iter().all(u8::is_ascii_hexdigit);
    match (small, capital, digit, sign) {
        (true, false, true, false) if hex => (6.9, 2.7),
        (false, true, true, false) if hex => (6.6, 2.4),
        (true, false, false, false) => (7.15, 2.8),
        (false, true, false, false) => (7.0, 2.6),
        (true, true, false, false) => (8.9, 3.3),
        (true, false, true, false) | (false, true, true, false) => (8.4, 3.3),
        (true, true, true, false) => (9.3, 3.3),
        (true, false, false, true) | (false, true, false, true) => (7.9, 3.2),
        (true, false, true, true) | (false, true, true, true) => (8.7, 3.4),
        (true, true, false, true) => (9.1, 3.4),
        (true, true, true, true) => (9.4, 3.3),
        // Digits and signs alone: dates, versions, numbers of telephones.
        (false, false, _, _) => (f32::MAX, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_place_for_every_pair() {
        assert_eq!(PAIRS.len(), LINE * (LINE - 1));
        assert!(PAIRS.chunks(LINE).all(|line| line.ends_with(b"\n")
            && line.iter().take(LINE - 1).all(|byte| char::from(*byte).is_digit(36))));
    }

    // T21: letters alone are told from words and names
    #[test]
    fn what_was_drawn_at_random_is_told_from_words() {
        for random in
            ["qxjzkvbnwp", "kTzQwvHbxJ", "x8fk2pq9vd", "Zk3!vQ#x9@", "ZZTKVWQPXB", "vhqwnzptkfjxgdrm"]
        {
            assert!(is_random(random.as_bytes(), 2.0), "{random} {}", surprise(random.as_bytes()));
        }
        for word in [
            "getPassword",
            "password_field",
            "correcthorsebattery",
            "Benutzerkennwort",
            "kwargs[\"name\"]",
            "self.config.get(",
            "PASSWORD_RESET_TIMEOUT",
            "organisation",
            "2024-11-15",
        ] {
            assert!(!is_random(word.as_bytes(), 2.0), "{word} {}", surprise(word.as_bytes()));
        }
    }
}
