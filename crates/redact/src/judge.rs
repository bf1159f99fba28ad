//! Whether a value that stands where a secret would stand is one. Placeholders, references to other places, code, words and
//! addresses are not; what a machine has made is recognised by how its letters are spread. Entropy counts only here,
//! inside a context, never alone.

mod drawn;
mod pairs;
mod shape;
mod stand_in;
mod word;

pub(crate) use self::drawn::is_drawn_password;
use self::drawn::{is_drawn, is_route};
use self::shape::{
    ends_in_number, is_address, is_code, is_identifier, is_mixed, is_number, is_path, is_snake, is_table,
    sorts,
};
pub(crate) use self::shape::{is_camel, is_uuid};
pub(crate) use self::stand_in::{is_placeholder, is_published};
pub(crate) use self::word::is_dummy_word;
use self::word::{is_sequence, is_words, plain_letters};
use crate::bytes::{at, entropy};
use crate::context::Given;
use crate::names::Promise;

/// How a value stands there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) quoted: bool,
    pub(crate) given: Given,
    /// The line begins with the name.
    pub(crate) own_line: bool,
    /// It is one of several pairs, as in a connection string or a query.
    pub(crate) listed: bool,
    /// The name is written in capitals, as in an environment.
    pub(crate) capitals: bool,
    /// The telling word is the last of the name.
    pub(crate) last: bool,
}

/// So much of a long value tells what it is.
const ENOUGH: usize = 256;
/// Nobody types a longer password.
const LONGEST_PASSWORD: usize = 200;

/// Whether a value is a secret.
pub(crate) fn is_secret(promise: Promise, value: &[u8], standing: Standing) -> bool {
    let value = value.trim_ascii();
    if is_drawn(promise, value, standing) {
        return true;
    }
    // What a value is shows at its beginning; one that may stand at every place of a text must not be looked at to its end.
    let whole = value.len();
    let value = value.get(..ENOUGH).unwrap_or(value);
    if value.len() < 4 || is_placeholder(value) || !value.is_ascii() && value.iter().any(|&byte| byte < b' ')
    {
        return false;
    }
    if value.iter().any(u8::is_ascii_whitespace) || is_path(value) || is_route(value) || is_number(value) {
        return false;
    }
    // An argument beside the name says less than an assignment.
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let odd = value.len() >= 8 || digits >= 2 || value.iter().any(u8::is_ascii_punctuation);
    if matches!(standing.given, Given::Beside | Given::Call)
        && !(standing.last && odd && sorts(value) >= 2 && !is_identifier(value) && !is_uuid(value))
    {
        return false;
    }
    // What stands between two texts, not in one: `"no such token ", name = (`.
    let follows_text = matches!(at(value, 0), b',' | b';' | b')' | b']' | b'}' | b'+' | b':');
    let calls = value.contains(&b'(') || value.contains(&b'=');
    if follows_text
        && (standing.given == Given::Blank || (standing.given == Given::Colon && standing.quoted && calls))
    {
        return false;
    }
    match promise {
        Promise::Password => whole <= LONGEST_PASSWORD && is_password(value, standing),
        Promise::Token => is_machine_made(value, standing, 10, 2.9) || is_long_number(value, standing),
        Promise::Key => is_machine_made(value, standing, 16, 3.2) && !is_uuid(value),
        Promise::AnyKey => whole == value.len() && is_random_key(value, standing),
        Promise::Service => {
            is_machine_made(value, standing, 16, 3.0) && !is_uuid(value) && standing.given != Given::Blank
        }
    }
}

/// What a person may have thought up: more than one sort of character, and more than the words of every example.
fn is_password(value: &[u8], standing: Standing) -> bool {
    let bare = !standing.quoted;
    if value.len() < 5
        || (bare && (is_code(value) || (is_identifier(value) && !ends_in_number(value))))
        || is_words(value)
        || is_dummy_word(&plain_letters(value))
        || is_address(value)
        || matches!(at(value, 0), b'"' | b'\\' | b'\'' | b'`')
    {
        return false;
    }
    let sorts = sorts(value);
    if !standing.last && !standing.capitals && (sorts < 3 || is_identifier(value)) {
        return false;
    }
    let literal = standing.own_line || matches!(standing.given, Given::Markup | Given::Flag);
    match standing.given {
        Given::Blank => bare && sorts >= 3 && value.len() >= 8 && is_machine_made(value, standing, 12, 3.2),
        _ if sorts >= 2 => !bare || literal || value.iter().any(u8::is_ascii_digit),
        // One sort of letters: only in a file of settings.
        _ => {
            bare && standing.own_line
                && standing.capitals
                && standing.given == Given::Equals
                && value.len() >= 8
        }
    }
}

/// What a machine has made: long, letters and digits mixed, evenly spread.
fn is_machine_made(value: &[u8], standing: Standing, least: usize, least_entropy: f32) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = value.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let odd = value.iter().any(|byte| !byte.is_ascii_graphic());
    if odd
        || value.len() < least
        || letters == 0
        || value.contains(&b'\\')
        || is_words(value)
        || is_identifier(value)
        || is_snake(value)
        || is_table(value)
        || (!standing.quoted && is_code(value))
    {
        return false;
    }
    let (upper, lower) = (value.iter().any(u8::is_ascii_uppercase), value.iter().any(u8::is_ascii_lowercase));
    let spread = entropy(value);
    let long = value.len() >= 16;
    let bare_gap = standing.given == Given::Blank;
    let head = value.iter().position(|byte| matches!(byte, b',' | b';' | b'(')).unwrap_or(value.len());
    let snake = is_snake(value.get(..head).unwrap_or(value));
    if bare_gap && (value.len() < 16 || digits < 2 || is_uuid(value) || spread < 3.0 || snake) {
        return false;
    }
    if digits == 0 {
        // Letters alone: both cases well mixed, or very long.
        let turns = value
            .windows(2)
            .filter(|two| {
                two.first().is_some_and(u8::is_ascii_lowercase)
                    && two.last().is_some_and(u8::is_ascii_uppercase)
            })
            .count();
        return upper && lower && value.len() >= 20 && spread >= 3.8 && turns * 6 >= value.len() && !bare_gap;
    }
    if !long {
        return digits >= 2 && spread >= 2.8 && (digits * 5 >= value.len() || (upper && lower));
    }
    spread >= least_entropy && (digits * 16 >= value.len() || (upper && lower && spread >= 3.6))
}

/// A number as services hand them out as tokens: longer than any count, and no sequence.
fn is_long_number(value: &[u8], standing: Standing) -> bool {
    standing.quoted
        && standing.last
        && (17..=20).contains(&value.len())
        && value.iter().all(u8::is_ascii_digit)
        && entropy(value) >= 2.5
        && !is_sequence(value.get(..6).unwrap_or(value))
}

/// What a key without any other mark must look like: long, letters and digits well mixed, no hash, no identifier.
fn is_random_key(value: &[u8], standing: Standing) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let hash = value.iter().all(u8::is_ascii_hexdigit) && !standing.capitals;
    value.len() >= 20
        && value.len() <= 120
        && digits >= 3
        && !hash
        && standing.given != Given::Blank
        && !matches!(standing.given, Given::Beside | Given::Call)
        && entropy(value) >= 3.5
        && value
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'='))
        && !is_uuid(value)
        && is_machine_made(value, standing, 20, 3.5)
        && !value.split(|byte| !byte.is_ascii_alphanumeric()).all(|word| word.len() < 8)
}

/// Whether a password in an address, a command line or `.netrc` is one: anything but a word of every example.
pub(crate) fn is_login_password(user: &[u8], password: &[u8]) -> bool {
    let password = password.get(..ENOUGH).unwrap_or(password);
    password.len() >= 3
        && !password.eq_ignore_ascii_case(user)
        && !is_placeholder(password)
        && !password.iter().any(|byte| matches!(byte, b'{' | b'}' | b'<' | b'>' | b'(' | b')' | b'*' | b' '))
        && (!is_words(password) || is_mixed(password))
        && (password.len() >= 6 || !password.iter().all(u8::is_ascii_digit))
        || is_drawn_password(password)
}
