//! The shape of a value: an expression, a path, a number, an identifier, scattered letters.

use crate::bytes::{at, entropy, starts_with_ignoring_case};

/// Number of character classes in a value: lower case, upper case, digits, punctuation, non-ASCII.
pub(super) fn char_classes(value: &[u8]) -> usize {
    let has = |sort: fn(&u8) -> bool| usize::from(value.iter().any(sort));
    has(u8::is_ascii_lowercase)
        + has(u8::is_ascii_uppercase)
        + has(u8::is_ascii_digit)
        + has(u8::is_ascii_punctuation)
        + has(|byte| !byte.is_ascii())
}

/// An expression in code rather than a literal.
pub(super) fn is_code(value: &[u8]) -> bool {
    let call = value.iter().any(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<' | b'>'));
    let path = value.contains(&b'.')
        && value.split(|byte| *byte == b'.').all(|word| {
            word.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
                && word.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
                && !looks_random(word)
        });
    let name = value.iter().all(|byte| {
        byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'!' | b'?' | b'*' | b'&')
    });
    let arrow = value
        .windows(2)
        .any(|two| two == b"->" || two == b"::" || two == b"=>" || two == b"&&" || two == b"||");
    let question = value.contains(&b'?') && value.contains(&b'.');
    // `e.HEX=e.MARK=`: a chain of assignments.
    let chained = value.split(|byte| *byte == b'=').next().is_some_and(|first| {
        first.len() < value.len()
            && first.contains(&b'.')
            && first.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$'))
            && !value.ends_with(b"=")
    });
    call || path
        || chained
        || arrow
        || question
        || (name
            && !value.iter().any(u8::is_ascii_uppercase)
            && value.iter().any(|byte| !byte.is_ascii_alphabetic()))
        || (name && value.iter().any(|byte| *byte == b'_' || *byte == b'.'))
}

/// `source@address`, `someone@example.org`: only lower case on both sides.
pub(super) fn is_address(value: &[u8]) -> bool {
    let mut sides = value.split(|byte| *byte == b'@');
    let plain = |side: Option<&[u8]>| {
        side.is_some_and(|side| {
            side.len() >= 4
                && side.iter().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'.' | b'-'))
        })
    };
    plain(sides.next()) && plain(sides.next()) && sides.next().is_none()
}

/// Identifiers rarely end in a number; passwords that people make up often do.
pub(super) fn ends_in_number(value: &[u8]) -> bool {
    value.len() >= 2 && value.iter().rev().take(2).all(u8::is_ascii_digit)
}

/// A file path or glob: `a/b/c.rs`, `x.*.y`.
pub(super) fn is_path(value: &[u8]) -> bool {
    let slashes = value.iter().filter(|byte| **byte == b'/').count();
    let plain = value.iter().all(|byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-' | b'*' | b'[' | b']' | b'@')
    });
    let indexed = value.contains(&b'[') && value.contains(&b'.');
    let file = slashes > 0 && ends_as_file(value);
    let percent = value.iter().filter(|byte| **byte == b'%').count();
    (plain
        && (indexed
            || file
            || !looks_random(value)
                && (slashes >= 2 || value.contains(&b'*') && (slashes > 0 || value.contains(&b'.')))))
        || percent * 6 > value.len()
}

/// `x.rs`, `x.tar`: one to four lower-case letters after the last dot.
fn ends_as_file(value: &[u8]) -> bool {
    let ending = value.iter().rev().take_while(|byte| byte.is_ascii_lowercase()).count();
    (1..=4).contains(&ending) && value.len().checked_sub(ending + 1).is_some_and(|dot| at(value, dot) == b'.')
}

/// `Mistral3ForConditionalGeneration`: camel case.
pub(crate) fn is_camel(value: &[u8]) -> bool {
    let capitals = value.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    capitals >= 2 && capitals * 4 < value.len() && digits <= 2 && is_identifier(value)
}

/// Data packed into a string, such as a parser's tables: longer than a token, full of characters that tokens do not
/// have.
pub(super) fn is_packed_data(value: &[u8]) -> bool {
    let signs = |byte: &&u8| {
        !byte.is_ascii_alphanumeric()
            && !matches!(**byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b':' | b'~' | b'%' | b'|')
    };
    value.len() > 64 && value.iter().filter(signs).count() * 8 > value.len()
}

/// `OBJ_pkcs12_BagIds`: words joined by `_`, each with a short number at most.
pub(super) fn is_snake(value: &[u8]) -> bool {
    value.contains(&b'_')
        && value.split(|byte| *byte == b'_').all(|word| {
            // `0002_auto_20160226_1747`
            if !word.is_empty() && word.iter().all(u8::is_ascii_digit) {
                return value.iter().any(u8::is_ascii_lowercase) && word.len() <= 8;
            }
            let letters = word.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            (1..=12).contains(&letters)
                && word.len() - letters <= 3
                && word.iter().skip(letters).all(u8::is_ascii_digit)
        })
}

/// `65535i32`, `0xff`, `1_000`.
pub(super) fn is_number(value: &[u8]) -> bool {
    // Ignore what follows a separator: `0x10,/*`.
    let end = value.iter().position(|byte| matches!(byte, b',' | b';' | b')')).unwrap_or(value.len());
    let value = value.get(..end).unwrap_or(value);
    let hex = starts_with_ignoring_case(value, b"0x") && value.len() <= 18;
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'_').count();
    let suffix = value.get(digits..).unwrap_or_default();
    let typed = digits > 0
        && (suffix.is_empty()
            || (suffix.len() <= 5
                && matches!(at(suffix, 0), b'i' | b'u' | b'f' | b'n' | b'l' | b'L' | b'U')));
    (hex && value.iter().skip(2).all(u8::is_ascii_hexdigit)) || (typed && value.len() < 16)
}

/// An identifier: `ClientCapabilities2026Schema`, `anon_sym_RBRACE3`, `pkcs-9-at-pkcs15Token`. Its words are long and
/// its digits few.
pub(super) fn is_identifier(value: &[u8]) -> bool {
    if !value
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.' | b'-' | b':' | b'%'))
    {
        return false;
    }
    let (mut runs, mut groups, mut length, mut last) = (Vec::new(), 0, 0_usize, b' ');
    for &byte in value.iter().chain(b" ") {
        let joins = byte.is_ascii_alphabetic() && !(byte.is_ascii_uppercase() && last.is_ascii_lowercase());
        if joins {
            length += 1;
        } else {
            runs.extend((length > 0).then_some(length));
            length = usize::from(byte.is_ascii_alphabetic());
        }
        groups += usize::from(byte.is_ascii_digit() && !last.is_ascii_digit());
        last = byte;
    }
    let letters: usize = runs.iter().sum();
    let joined = value.iter().any(|byte| matches!(byte, b'_' | b'$' | b'.' | b'-' | b':'));
    let camel = value.windows(2).any(|two| {
        two.first().is_some_and(u8::is_ascii_lowercase) && two.last().is_some_and(u8::is_ascii_uppercase)
    });
    let ends_in_letter = value.last().is_some_and(u8::is_ascii_alphabetic);
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let wordy =
        !runs.is_empty() && letters * 2 >= runs.len() * 7 && runs.iter().max().is_some_and(|most| *most >= 4);
    let few = groups <= 2 || (value.contains(&b'_') && groups <= runs.len());
    wordy && few && digits * 2 <= value.len() && (joined || camel || ends_in_letter)
}

fn looks_random(word: &[u8]) -> bool {
    word.len() >= 12 && !is_identifier(word) && entropy(word) > 3.4 && word.iter().any(u8::is_ascii_digit)
}

/// Letters of both cases as no words have them: a third to two thirds are upper case, and scattered.
pub(super) fn is_mixed(value: &[u8]) -> bool {
    let capitals = value.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let turns = value.windows(2).filter(|two| {
        two.first().is_some_and(u8::is_ascii_lowercase) && two.last().is_some_and(u8::is_ascii_uppercase)
    });
    value.len() >= 12
        && value.iter().all(u8::is_ascii_alphabetic)
        && capitals * 3 >= value.len()
        && capitals * 3 <= value.len() * 2
        && turns.count() >= 3
}

/// `8-4-4-4-12` hex digits.
pub(crate) fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value.iter().enumerate().all(|(n, byte)| {
            if matches!(n, 8 | 13 | 18 | 23) { *byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
}
