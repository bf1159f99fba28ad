//! How unusual the letter pairs of a text are, compared with source code, settings and prose. `rules/bigrams.txt` holds
//! for each visible character how rarely each other one follows it: half bits in base 36, counted over two million
//! distinct words of installed packages and manuals (without runs that were random themselves). Words, names and
//! expressions have a low cost; random values have a high cost, even if they consist of letters alone and could be a
//! name.

use crate::bytes::at;

const BIGRAMS: &[u8] = include_bytes!("../../rules/bigrams.txt");
/// Characters in a line of the table, including its line end.
const LINE_BYTES: usize = 95;
const FIRST: u8 = b'!';
const LAST: u8 = b'~';
/// Cost in bits of a pair that the table does not have: a space, a non-ASCII letter.
const UNKNOWN_PAIR_BITS: f32 = 5.0;
/// Bytes of a value that are examined.
const EXAMINED_BYTES: usize = 256;

/// Whether a text is as unusual as random text of the same character classes. With a `slack` of 2, about one random
/// text in forty is missed; less slack misses more and has fewer false positives.
pub(super) fn is_random(value: &[u8], slack: f32) -> bool {
    if value.len() < 2 {
        return false;
    }
    // The beginning of a long value is enough.
    let value = value.get(..EXAMINED_BYTES).unwrap_or(value);
    let (mean, spread) = expected_cost(value);
    let pairs = (value.len() - 1) as f32;
    // Deviations average out in long values, and no text of words comes near three quarters of the mean.
    let least = (mean - slack * spread / pairs.sqrt()).min(mean * (0.85 - slack / 20.0));
    mean_cost(value) >= least
}

/// Mean cost in bits per pair.
fn mean_cost(value: &[u8]) -> f32 {
    let costs = value.windows(2).map(|two| cost(at(two, 0), at(two, 1)));
    costs.sum::<f32>() / value.len().saturating_sub(1).max(1) as f32
}

fn cost(first: u8, second: u8) -> f32 {
    if !(FIRST..=LAST).contains(&first) || !(FIRST..=LAST).contains(&second) {
        return UNKNOWN_PAIR_BITS;
    }
    let place = usize::from(first - FIRST) * LINE_BYTES + usize::from(second - FIRST);
    let half_bits = char::from(at(BIGRAMS, place)).to_digit(36).unwrap_or(0);
    f32::from(u8::try_from(half_bits).unwrap_or(0)) / 2.0
}

/// Cost of random text of the same character classes: mean and standard deviation per pair, measured over the table.
fn expected_cost(value: &[u8]) -> (f32, f32) {
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
        // Digits and punctuation alone: dates, versions, phone numbers.
        (false, false, _, _) => (f32::MAX, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_an_entry_for_every_pair() {
        assert_eq!(BIGRAMS.len(), LINE_BYTES * (LINE_BYTES - 1));
        assert!(BIGRAMS.chunks(LINE_BYTES).all(|line| line.ends_with(b"\n")
            && line.iter().take(LINE_BYTES - 1).all(|byte| char::from(*byte).is_digit(36))));
    }

    // T21: random letters are distinguished from words and names
    #[test]
    fn random_values_are_distinguished_from_words() {
        for random in
            ["qxjzkvbnwp", "kTzQwvHbxJ", "x8fk2pq9vd", "Zk3!vQ#x9@", "ZZTKVWQPXB", "vhqwnzptkfjxgdrm"]
        {
            assert!(is_random(random.as_bytes(), 2.0), "{random} {}", mean_cost(random.as_bytes()));
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
            assert!(!is_random(word.as_bytes(), 2.0), "{word} {}", mean_cost(word.as_bytes()));
        }
    }
}
