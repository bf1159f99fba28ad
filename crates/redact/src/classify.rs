//! Decides whether a value is a secret, at a position where a secret would be. Placeholders, references, code, words
//! and addresses are not; a machine-made value is recognised by the distribution of its characters. Entropy counts only
//! here, inside a context, never alone.

mod bigrams;
mod dummy_words;
mod placeholder_like;
mod randomness;
mod shape;

pub(crate) use self::dummy_words::is_dummy_word;
use self::dummy_words::{is_dummy_phrase, is_sequence, plain_letters};
pub(crate) use self::placeholder_like::{is_placeholder, is_published};
pub(crate) use self::randomness::is_random_password;
use self::randomness::{is_random_value, is_route};
use self::shape::{
    char_classes, ends_in_number, is_address, is_code, is_identifier, is_mixed, is_number, is_packed_data,
    is_path, is_snake,
};
pub(crate) use self::shape::{is_camel, is_uuid};
use crate::assignment::Separator;
use crate::bytes::{at, entropy};
use crate::secret_names::NameHint;

/// Where and how a value appears.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueContext {
    pub(crate) quoted: bool,
    pub(crate) separator: Separator,
    /// The line begins with the name.
    pub(crate) starts_line: bool,
    /// The value is in one of several pairs, as in a connection string or query.
    pub(crate) in_list: bool,
    /// The name is in upper case, as in an environment.
    pub(crate) uppercase_name: bool,
    /// The keyword is the last word of the name.
    pub(crate) keyword_last: bool,
}

/// Bytes of a long value that are examined.
const EXAMINED_BYTES: usize = 256;
/// Maximum length of a password that a person types, in bytes.
const MAX_TYPED_PASSWORD_BYTES: usize = 200;

/// Whether a value is a secret.
pub(crate) fn is_secret(hint: NameHint, value: &[u8], context: ValueContext) -> bool {
    let value = value.trim_ascii();
    if is_random_value(hint, value, context) {
        return true;
    }
    // The beginning of a value is enough. A value can begin at every position of a text, so examining all of it would
    // be quadratic.
    let whole = value.len();
    let value = value.get(..EXAMINED_BYTES).unwrap_or(value);
    if value.len() < 4 || is_placeholder(value) || !value.is_ascii() && value.iter().any(|&byte| byte < b' ')
    {
        return false;
    }
    if value.iter().any(u8::is_ascii_whitespace) || is_path(value) || is_route(value) || is_number(value) {
        return false;
    }
    // An adjacent argument is weaker evidence than an assignment.
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let odd = value.len() >= 8 || digits >= 2 || value.iter().any(u8::is_ascii_punctuation);
    if matches!(context.separator, Separator::Adjacent | Separator::Call)
        && !(context.keyword_last
            && odd
            && char_classes(value) >= 2
            && !is_identifier(value)
            && !is_uuid(value))
    {
        return false;
    }
    // Code between two strings, not inside one: `"no such token ", name = (`.
    let follows_text = matches!(at(value, 0), b',' | b';' | b')' | b']' | b'}' | b'+' | b':');
    let calls = value.contains(&b'(') || value.contains(&b'=');
    if follows_text
        && (context.separator == Separator::Space
            || (context.separator == Separator::Colon && context.quoted && calls))
    {
        return false;
    }
    match hint {
        NameHint::Password => whole <= MAX_TYPED_PASSWORD_BYTES && is_password(value, context),
        NameHint::Token => is_machine_made(value, context, 10, 2.9) || is_long_number(value, context),
        NameHint::Key => is_machine_made(value, context, 16, 3.2) && !is_uuid(value),
        NameHint::AnyKey => whole == value.len() && is_random_key(value, context),
        NameHint::Service => {
            is_machine_made(value, context, 16, 3.0)
                && !is_uuid(value)
                && context.separator != Separator::Space
        }
    }
}

/// Whether a person may have made up this password: more than one character class, and more than dummy words.
fn is_password(value: &[u8], context: ValueContext) -> bool {
    let bare = !context.quoted;
    if value.len() < 5
        || (bare && (is_code(value) || (is_identifier(value) && !ends_in_number(value))))
        || is_dummy_phrase(value)
        || is_dummy_word(&plain_letters(value))
        || is_address(value)
        || matches!(at(value, 0), b'"' | b'\\' | b'\'' | b'`')
    {
        return false;
    }
    let char_classes = char_classes(value);
    if !context.keyword_last && !context.uppercase_name && (char_classes < 3 || is_identifier(value)) {
        return false;
    }
    let literal = context.starts_line || matches!(context.separator, Separator::Markup | Separator::Flag);
    match context.separator {
        Separator::Space => {
            bare && char_classes >= 3 && value.len() >= 8 && is_machine_made(value, context, 12, 3.2)
        }
        _ if char_classes >= 2 => !bare || literal || value.iter().any(u8::is_ascii_digit),
        // A single character class: only in a settings file.
        _ => {
            bare && context.starts_line
                && context.uppercase_name
                && context.separator == Separator::Equals
                && value.len() >= 8
        }
    }
}

/// Whether a machine made this value: long, letters and digits mixed, evenly distributed.
fn is_machine_made(value: &[u8], context: ValueContext, least: usize, least_entropy: f32) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let letters = value.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    let odd = value.iter().any(|byte| !byte.is_ascii_graphic());
    if odd
        || value.len() < least
        || letters == 0
        || value.contains(&b'\\')
        || is_dummy_phrase(value)
        || is_identifier(value)
        || is_snake(value)
        || is_packed_data(value)
        || (!context.quoted && is_code(value))
    {
        return false;
    }
    let (upper, lower) = (value.iter().any(u8::is_ascii_uppercase), value.iter().any(u8::is_ascii_lowercase));
    let spread = entropy(value);
    let long = value.len() >= 16;
    let bare_gap = context.separator == Separator::Space;
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

/// A number that a service uses as a token: longer than any count, and not a sequence.
fn is_long_number(value: &[u8], context: ValueContext) -> bool {
    context.quoted
        && context.keyword_last
        && (17..=20).contains(&value.len())
        && value.iter().all(u8::is_ascii_digit)
        && entropy(value) >= 2.5
        && !is_sequence(value.get(..6).unwrap_or(value))
}

/// Whether a value is a key although nothing else indicates one: long, letters and digits well mixed, no hash, no
/// identifier.
fn is_random_key(value: &[u8], context: ValueContext) -> bool {
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let hash = value.iter().all(u8::is_ascii_hexdigit) && !context.uppercase_name;
    value.len() >= 20
        && value.len() <= 120
        && digits >= 3
        && !hash
        && context.separator != Separator::Space
        && !matches!(context.separator, Separator::Adjacent | Separator::Call)
        && entropy(value) >= 3.5
        && value
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'='))
        && !is_uuid(value)
        && is_machine_made(value, context, 20, 3.5)
        && !value.split(|byte| !byte.is_ascii_alphanumeric()).all(|word| word.len() < 8)
}

/// Whether the password of a URL, a command line or `.netrc` is real: anything but a dummy word.
pub(crate) fn is_login_password(user: &[u8], password: &[u8]) -> bool {
    let password = password.get(..EXAMINED_BYTES).unwrap_or(password);
    password.len() >= 3
        && !password.eq_ignore_ascii_case(user)
        && !is_placeholder(password)
        && !password.iter().any(|byte| matches!(byte, b'{' | b'}' | b'<' | b'>' | b'(' | b')' | b'*' | b' '))
        && (!is_dummy_phrase(password) || is_mixed(password))
        && (password.len() >= 6 || !password.iter().all(u8::is_ascii_digit))
        || is_random_password(password)
}
