//! Whether a value is random, judged by how unusual its letter pairs are (`bigrams.rs`). This evidence also works for a
//! value that could be a name, a word or an expression, where character classes say nothing. How much is required
//! depends on the position: less where only a literal is possible, more where code is.

use super::ValueContext;
use super::bigrams::is_random;
use super::placeholder_like::is_placeholder_or_reference;
use super::shape::{char_classes, is_identifier, is_number, is_packed_data, is_uuid};
use crate::assignment::Separator;
use crate::bytes::entropy;
use crate::secret_names::NameHint;

/// Required unusualness where only a literal is possible; see [`is_random`].
const LITERAL_SLACK: f32 = 2.0;
/// Bytes of a long value that are examined.
const EXAMINED_BYTES: usize = 256;
/// Minimum entropy in bits per character: a few letters repeated are not random.
const MIN_ENTROPY: f32 = 2.5;

/// Whether the value of a name is random.
pub(super) fn is_random_value(hint: NameHint, value: &[u8], context: ValueContext) -> bool {
    let whole = value.len();
    let value = value.get(..EXAMINED_BYTES).unwrap_or(value);
    let Some((least, slack)) = requirement(hint, value, context) else { return false };
    let count = |sign: u8| value.iter().filter(|byte| **byte == sign).count();
    let escaped = value.windows(2).filter(|two| matches!(two, [b'\\', b'x' | b'u' | b'0'..=b'9'])).count();
    let fits = match hint {
        NameHint::Password => |_| true,
        _ if char_classes(value) >= 4 && is_literal(context) => is_signed_letter,
        _ => is_token_letter,
    };
    let percent = if hint == NameHint::Password { 4 } else { 8 };
    value.len() >= least
        && value.iter().all(|&byte| fits(byte) && byte >= b' ' && byte != 0x7f)
        && (is_literal(context) || whole == value.len() || hint != NameHint::Password)
        && (is_literal(context) || !looks_like_code(value))
        && is_random(value, slack)
        && escaped < 3
        && count(b'%') * percent < value.len()
        && entropy(value) >= MIN_ENTROPY
        && !is_uuid(value)
        && !is_number(value)
        && !is_route(value)
        && (hint == NameHint::Password || !is_packed_data(value))
        && !is_placeholder_or_reference(value)
}

/// Returns the minimum length in bytes and the slack for [`is_random`]; `None` where randomness is no evidence.
fn requirement(hint: NameHint, value: &[u8], context: ValueContext) -> Option<(usize, f32)> {
    let literal = is_literal(context);
    let clear = context.keyword_last || context.uppercase_name;
    let many = char_classes(value) >= 2;
    let wanted = match (hint, context.separator) {
        // An argument beside the name, or a word in a list.
        (_, Separator::Adjacent) if !(context.keyword_last && context.quoted && many) => return None,
        (_, Separator::Adjacent) if is_identifier(value) => (12, 1.0),
        (_, Separator::Call) if !(context.keyword_last && context.quoted) => return None,
        (NameHint::Password, Separator::Space) if context.quoted => (8, LITERAL_SLACK),
        (NameHint::Password, Separator::Space) => (8, if many { 1.5 } else { 0.8 }),
        (NameHint::Password, Separator::Call) => (8, if many { LITERAL_SLACK } else { 1.5 }),
        (NameHint::Password, _) if clear => (8, if literal { LITERAL_SLACK } else { 1.7 }),
        (NameHint::Token, Separator::Space) => (20, 1.0),
        (NameHint::Token, _) if value.len() < 16 => {
            let name = !context.quoted && !many;
            ((context.keyword_last && literal).then_some(10)?, if name { 1.3 } else { 1.7 })
        }
        (NameHint::Token, _) if clear => (16, if literal { LITERAL_SLACK } else { 1.7 }),
        (NameHint::Key, Separator::Equals | Separator::Colon | Separator::Flag) if clear => (16, 1.5),
        (NameHint::AnyKey, Separator::Equals | Separator::Colon)
            if clear && (context.uppercase_name || context.in_list) =>
        {
            (20, 1.2)
        }
        _ => return None,
    };
    Some(wanted)
}

/// Whether only a literal is possible at this position.
fn is_literal(context: ValueContext) -> bool {
    context.quoted
        || context.starts_line
        || context.in_list
        || matches!(context.separator, Separator::Markup | Separator::Flag)
}

/// `/v1/accounts:signUp`: a path without a random part.
pub(super) fn is_route(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| matches!(byte, b'/' | b':' | b'.' | b'-' | b'_'));
    value.starts_with(b"/")
        && value.iter().filter(|byte| **byte == b'/').count() >= 2
        && parts.all(|part| part.len() < 4 || !is_random(part, LITERAL_SLACK))
}

/// Whether a value has characters that are common in code and rare in literals.
fn looks_like_code(value: &[u8]) -> bool {
    value.iter().any(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<' | b'>'))
        || value.windows(2).any(|two| matches!(two, b"->" | b"::" | b"=>" | b"&&" | b"||"))
}

/// The characters of tokens.
fn is_token_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~' | b':' | b'%')
}

/// Likewise, with punctuation that some tokens have. Brackets, quotes and bars occur in expressions that match tokens.
fn is_signed_letter(byte: u8) -> bool {
    is_token_letter(byte) || matches!(byte, b'!' | b'@' | b'#' | b'$' | b'*' | b'&' | b'?' | b'^')
}

/// Whether a value without a name before it is random.
pub(crate) fn is_random_password(password: &[u8]) -> bool {
    let password = password.get(..EXAMINED_BYTES).unwrap_or(password);
    password.len() >= 8
        && !password.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
        && is_random(password, LITERAL_SLACK)
        && password.iter().filter(|byte| **byte == b'%').count() * 5 < password.len() * 2
        && entropy(password) >= MIN_ENTROPY
        && !is_placeholder_or_reference(password)
}
