//! Whether a value was drawn at random, by how unusual its letters follow each other (`pairs.rs`). That is evidence of its own: it also
//! counts for a value that could be a name, a word or an expression, where signs and sorts of characters tell nothing. How much of it is
//! needed depends on where the value stands: less where only a text can stand, more where code can.

use super::Standing;
use super::pairs::is_random;
use super::shape::{is_identifier, is_number, is_table, is_uuid, sorts};
use super::stand_in::stands_for_another;
use crate::bytes::entropy;
use crate::context::Given;
use crate::names::Promise;

/// How unusual a value must be that stands where only a text can stand; see [`is_random`].
const SLACK: f32 = 2.0;
/// So much of a long value tells what it is.
const ENOUGH: usize = 256;
/// Of a few letters over and over nothing is drawn at random.
const LEAST_ENTROPY: f32 = 2.5;

/// Whether the value of a name was drawn at random.
pub(super) fn is_drawn(promise: Promise, value: &[u8], standing: Standing) -> bool {
    let whole = value.len();
    let value = value.get(..ENOUGH).unwrap_or(value);
    let Some((least, slack)) = wanted(promise, value, standing) else { return false };
    let count = |sign: u8| value.iter().filter(|byte| **byte == sign).count();
    let escaped = value.windows(2).filter(|two| matches!(two, [b'\\', b'x' | b'u' | b'0'..=b'9'])).count();
    let fits = match promise {
        Promise::Password => |_| true,
        _ if sorts(value) >= 4 && is_literal(standing) => is_signed_letter,
        _ => is_token_letter,
    };
    let percent = if promise == Promise::Password { 4 } else { 8 };
    value.len() >= least
        && value.iter().all(|&byte| fits(byte) && byte >= b' ' && byte != 0x7f)
        && (is_literal(standing) || whole == value.len() || promise != Promise::Password)
        && (is_literal(standing) || !is_call(value))
        && is_random(value, slack)
        && escaped < 3
        && count(b'%') * percent < value.len()
        && entropy(value) >= LEAST_ENTROPY
        && !is_uuid(value)
        && !is_number(value)
        && !is_route(value)
        && (promise == Promise::Password || !is_table(value))
        && !stands_for_another(value)
}

/// How long the value must be and how unusual; nothing where chance tells nothing.
fn wanted(promise: Promise, value: &[u8], standing: Standing) -> Option<(usize, f32)> {
    let literal = is_literal(standing);
    let clear = standing.last || standing.capitals;
    let many = sorts(value) >= 2;
    let wanted = match (promise, standing.given) {
        // An argument beside the name, or a word of a list.
        (_, Given::Beside) if !(standing.last && standing.quoted && many) => return None,
        (_, Given::Beside) if is_identifier(value) => (12, 1.0),
        (_, Given::Call) if !(standing.last && standing.quoted) => return None,
        (Promise::Password, Given::Blank) if standing.quoted => (8, SLACK),
        (Promise::Password, Given::Blank) => (8, if many { 1.5 } else { 0.8 }),
        (Promise::Password, Given::Call) => (8, if many { SLACK } else { 1.5 }),
        (Promise::Password, _) if clear => (8, if literal { SLACK } else { 1.7 }),
        (Promise::Token, Given::Blank) => (20, 1.0),
        (Promise::Token, _) if value.len() < 16 => {
            let name = !standing.quoted && !many;
            ((standing.last && literal).then_some(10)?, if name { 1.3 } else { 1.7 })
        }
        (Promise::Token, _) if clear => (16, if literal { SLACK } else { 1.7 }),
        (Promise::Key, Given::Equals | Given::Colon | Given::Flag) if clear => (16, 1.5),
        (Promise::AnyKey, Given::Equals | Given::Colon)
            if clear && (standing.capitals || standing.listed) =>
        {
            (20, 1.2)
        }
        _ => return None,
    };
    Some(wanted)
}

/// Whether only a text can stand there.
fn is_literal(standing: Standing) -> bool {
    standing.quoted
        || standing.own_line
        || standing.listed
        || matches!(standing.given, Given::Markup | Given::Flag)
}

/// `/v1/accounts:signUp`: parts of which none was drawn.
pub(super) fn is_route(value: &[u8]) -> bool {
    let mut parts = value.split(|byte| matches!(byte, b'/' | b':' | b'.' | b'-' | b'_'));
    value.starts_with(b"/")
        && value.iter().filter(|byte| **byte == b'/').count() >= 2
        && parts.all(|part| part.len() < 4 || !is_random(part, SLACK))
}

/// What an expression has and a text seldom.
fn is_call(value: &[u8]) -> bool {
    value.iter().any(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<' | b'>'))
        || value.windows(2).any(|two| matches!(two, b"->" | b"::" | b"=>" | b"&&" | b"||"))
}

/// What tokens are made of.
fn is_token_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b'~' | b':' | b'%')
}

/// The same with signs that some have; brackets, quotes and bars are of expressions that look for tokens.
fn is_signed_letter(byte: u8) -> bool {
    is_token_letter(byte) || matches!(byte, b'!' | b'@' | b'#' | b'$' | b'*' | b'&' | b'?' | b'^')
}

/// The same without a name before it.
pub(crate) fn is_drawn_password(password: &[u8]) -> bool {
    let password = password.get(..ENOUGH).unwrap_or(password);
    password.len() >= 8
        && !password.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
        && is_random(password, SLACK)
        && password.iter().filter(|byte| **byte == b'%').count() * 5 < password.len() * 2
        && entropy(password) >= LEAST_ENTROPY
        && !stands_for_another(password)
}
