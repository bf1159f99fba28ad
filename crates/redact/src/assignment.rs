//! Assignments: `name = value`, `"name": "value"`, `--name value`, `<name>value<`, `("name", "value")`, a header, a
//! query parameter, `name: NAME` followed by `value: VALUE`. This module finds the name around a keyword, and the value
//! assigned to it. [`crate::classify`] decides whether the value is a secret.

use crate::bytes::{at, before, is_blank, rest, run_end, run_start, slice, starts_with_ignoring_case};
use crate::escape::{self, skip_blanks};
use crate::placeholder;

/// Maximum length of a name before and after the keyword in it, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Bytes of a value that are examined; the scan pass follows a longer one.
pub(crate) const MAX_VALUE_BYTES: usize = 512;
/// Maximum gap inside a line, in bytes, for values in columns.
const MAX_GAP_BYTES: usize = 40;

/// How name and value are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
    /// `=`, `:=`, `=>`, `?=`
    Equals,
    /// `:`
    Colon,
    /// `==`, `!=`, `,`, `||`, `is`: only a quoted string is a value there.
    Adjacent,
    /// `name(`: likewise.
    Call,
    /// `<name>value`
    Markup,
    /// `--name value`
    Flag,
    /// Only whitespace.
    Space,
}

/// What ends a value that continues beyond the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenValue {
    /// This quote.
    Quote(u8),
    /// Whitespace.
    Word,
    /// A character that ends values in a line of code.
    Run,
}

/// A name with its value. Positions are offsets into the window (`view`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assignment {
    pub(crate) name: (usize, usize),
    pub(crate) value: (usize, usize),
    pub(crate) quoted: bool,
    pub(crate) separator: Separator,
    /// Nothing precedes the name on its line, except words such as `export`.
    pub(crate) starts_line: bool,
    /// How the value continues if its end is outside the window.
    pub(crate) open: Option<OpenValue>,
    /// One of several pairs: `host=db user=app password=x`, `Server=db;Password=x`, `?user=app&password=x`.
    pub(crate) listed: bool,
}

/// Finds the assignment whose name contains the keyword at `from..to`.
pub(crate) fn find_assignment(view: &[u8], from: usize, to: usize) -> Option<Assignment> {
    let mut start = run_start(view, from, from.saturating_sub(MAX_NAME_BYTES), is_name);
    let mut end = run_end(view, to, to + MAX_NAME_BYTES, is_name);
    while end > to && matches!(before(view, end), b'-' | b'.') {
        end -= 1;
    }
    // `\npassword`: the letter of an escape is not part of the name.
    let escaped = (start + 1..=from.min(start + 8)).rev().find(|place| escape::ends_at(view, *place));
    start = escaped.unwrap_or(start);
    let flag = at(view, start) == b'-';
    while start < from && matches!(at(view, start), b'-' | b'.') {
        start += 1;
    }
    let (separator, place) = find_separator(view, (start, end), flag)?;
    // The name of a group in a regular expression: `(?P<password>...`.
    if separator == Separator::Markup
        && (slice(view, 0, start).ends_with(b"?<") || slice(view, 0, start).ends_with(b"?P<"))
    {
        return None;
    }
    let (mut value, quoted, mut open) = parse_value(view, place, separator, start)?;
    let bare = placeholder::trim_placeholders(view, value.0, value.1);
    if bare != value {
        (value, open) = (bare, open.filter(|_| bare.1 == value.1));
        if value.1 <= value.0 {
            return None;
        }
    }
    let starts_line = is_line_start(view, start);
    let listed =
        separator == Separator::Equals && !quoted && value.0 == end + 1 && (flag || is_listed(view, start))
            || is_header(view, start, separator, value.1);
    Some(Assignment { name: (start, end), value, quoted, separator, starts_line, open, listed })
}

/// Whether name and value fill a quoted string: `-H "X-Api-Key: x"`.
fn is_header(view: &[u8], name: usize, separator: Separator, end: usize) -> bool {
    let quote = before(view, name);
    matches!(quote, b'"' | b'\'')
        && matches!(separator, Separator::Colon | Separator::Equals)
        && at(view, end) == quote
}

/// Whether another pair directly precedes the name, without the comma of an argument list.
fn is_listed(view: &[u8], name: usize) -> bool {
    let from = name.saturating_sub(MAX_NAME_BYTES);
    match before(view, name) {
        b';' | b'&' | b'?' | b'=' => true,
        // `//registry.internal/:_authToken=x`
        b':' => before(view, name - 1) == b'/',
        // `host=db user=app password=x`
        byte if is_blank(byte) => {
            let last = run_start(view, name, from, is_blank);
            let pair = slice(view, run_start(view, last, from, |byte| byte > b' '), last);
            let split = pair.iter().position(|byte| *byte == b'=');
            split.is_some_and(|split| {
                split > 0
                    && slice(pair, 0, split).iter().all(|&byte| is_name(byte))
                    && !pair.ends_with(b",")
                    && split + 1 < pair.len()
            })
        }
        _ => false,
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether nothing but a configuration keyword precedes the name on its line.
fn is_line_start(view: &[u8], start: usize) -> bool {
    let line = run_start(view, start, 0, |byte| byte != b'\n' && byte != b'\r');
    let head = slice(view, line, start).trim_ascii();
    head.is_empty()
        || head.iter().all(|byte| {
            matches!(byte, b'-' | b'#' | b'/' | b'*' | b';' | b'"' | b'\'' | b' ' | b'$' | b'+' | b'{')
        })
        || [b"export".as_slice(), b"set", b"ENV", b"ARG", b"- ", b"declare -x", b"setenv", b"SET"]
            .contains(&head)
}

/// Returns what separates name and value, and where the value may begin.
fn find_separator(view: &[u8], (start, end): (usize, usize), flag: bool) -> Option<(Separator, usize)> {
    let mut i = run_end(view, end, end + 4, |byte| matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b']' | b')'));
    for closing_quote in [b"&quot;".as_slice(), b"%22", b"&#34;"] {
        if starts_with_ignoring_case(rest(view, i), closing_quote) {
            i += closing_quote.len();
        }
    }
    let closed = i > end;
    if let Some(text) = plist_text(view, end) {
        return Some((Separator::Markup, text));
    }
    let blanks = skip_blanks(view, i, MAX_GAP_BYTES);
    let spaced = blanks > i;
    i = blanks;
    let separator = match (at(view, i), at(view, i + 1)) {
        (b':', b':') => return None,
        (b':', b'=') => (Separator::Equals, i + 2),
        (b':', _) => (Separator::Colon, i + 1),
        // `NAME==x`, `NAME=~x` in an environment file: the second character belongs to the value.
        (b'=', b'=' | b'~') if !spaced && !closed && at(view, i + 2) > b' ' && is_line_start(view, start) => {
            (Separator::Equals, i + 1)
        }
        (b'=', b'=') if at(view, i + 2) == b'=' => (Separator::Adjacent, i + 3),
        (b'=' | b'!', b'=') => (Separator::Adjacent, i + 2),
        (b'=', b'~') => return None,
        (b'=', b'>') | (b'?' | b'+' | b'|', b'=') | (b'-', b'>') => (Separator::Equals, i + 2),
        (b'=', _) => (Separator::Equals, i + 1),
        (b'|', b'|') | (b'?', b'?') => (Separator::Adjacent, i + 2),
        (b'%', b'3') if matches!(at(view, i + 2), b'D' | b'd' | b'A' | b'a') => (Separator::Equals, i + 3),
        (b'>', _) => (Separator::Markup, i + 1),
        (b',', _) => {
            let next = run_end(view, i + 1, i + 1 + MAX_GAP_BYTES, |byte| {
                is_blank(byte) || matches!(byte, b'\n' | b'\r')
            });
            match after_value_keyword(view, next) {
                Some(after) => (Separator::Equals, after),
                None => (Separator::Adjacent, i + 1),
            }
        }
        (b'(', _) => (Separator::Call, i + 1),
        (b'\n' | b'\r', _) => {
            let next =
                run_end(view, i, i + MAX_GAP_BYTES, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
            (
                Separator::Colon,
                after_value_keyword(view, next).or_else(|| redis_list_item(view, next).filter(|_| closed))?,
            )
        }
        // A column of a table.
        (b'|', b' ') if spaced => (Separator::Space, i + 1),
        _ if spaced && starts_with_ignoring_case(rest(view, i), b"provided: ") => {
            (Separator::Colon, i + b"provided:".len())
        }
        // "A temporary password is generated for root@localhost: ..."
        _ if spaced && starts_with_ignoring_case(rest(view, i), b"is generated for ") => {
            let colon = run_end(view, i, i + 80, |byte| byte != b':' && byte >= b' ');
            ((at(view, colon) == b':').then_some(Separator::Colon)?, colon + 1)
        }
        _ if spaced && starts_with_ignoring_case(rest(view, i), b"is ") => {
            let next = at(view, run_end(view, i + 3, i + 3 + MAX_GAP_BYTES, is_blank));
            (if matches!(next, b'"' | b'\'' | b'`') { Separator::Adjacent } else { Separator::Space }, i + 3)
        }
        // `<wsse:Password Type="...">`
        _ if spaced && after_attributes(view, end).is_some() => {
            (Separator::Markup, after_attributes(view, end)?)
        }
        // `variable "password" { default = "..." }`
        (b'{', _) if closed => (Separator::Equals, field_value(view, i, b"default")?),
        _ if spaced && closed => match after_value_keyword(view, i) {
            Some(after) => (Separator::Equals, after),
            // `<Parameter name="password" type="string">`
            None => (Separator::Markup, tag_end(view, i).filter(|_| is_attribute(view, start))?),
        },
        _ if spaced && !flag && after_type(view, i).is_some() => (Separator::Equals, after_type(view, i)?),
        _ if spaced => (if flag { Separator::Flag } else { Separator::Space }, i),
        _ => return None,
    };
    Some(separator)
}

/// Position after the markup tag whose name ends at `end` and that has attributes.
fn after_attributes(view: &[u8], end: usize) -> Option<usize> {
    let name = run_start(view, end, end.saturating_sub(MAX_NAME_BYTES), |byte| is_name(byte) || byte == b':');
    let last = run_end(view, end, end + 200, |byte| !matches!(byte, b'<' | b'>' | b'\n' | b'\r'));
    // `Map<Pass *, Pass *>` has no attribute, and a letter precedes its `<`.
    let tag = before(view, name) == b'<' && !before(view, name - 1).is_ascii_alphanumeric();
    (tag && slice(view, end, last).contains(&b'=') && at(view, last) == b'>' && before(view, last) != b'/')
        .then_some(last + 1)
}

/// Whether a quoted name is the value of an attribute: `name="password"`.
fn is_attribute(view: &[u8], name: usize) -> bool {
    matches!(before(view, name), b'"' | b'\'') && before(view, name - 1) == b'='
}

/// Position after a tag that continues with further attributes.
fn tag_end(view: &[u8], from: usize) -> Option<usize> {
    let last = run_end(view, from, from + 200, |byte| !matches!(byte, b'<' | b'>' | b'\n' | b'\r'));
    let more = slice(view, from, last).contains(&b'=') && !matches!(before(view, last), b'/' | b'=' | b'-');
    (more && at(view, last) == b'>').then_some(last + 1)
}

/// `<key>password</key> <string>...`: position of the text.
fn plist_text(view: &[u8], end: usize) -> Option<usize> {
    let after = end + rest(view, end).starts_with(b"</key>").then_some(b"</key>".len())?;
    let next =
        run_end(view, after, after + MAX_GAP_BYTES, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
    rest(view, next).starts_with(b"<string>").then_some(next + b"<string>".len())
}

/// `2) "..."` on the line after the name, as redis-cli prints a list: position of the text.
fn redis_list_item(view: &[u8], line: usize) -> Option<usize> {
    let number = run_end(view, line, line + 6, |byte| byte.is_ascii_digit());
    (number > line && rest(view, number).starts_with(b") \"")).then_some(number + 2)
}

/// Position after `word =` or `"word":` in the block that begins at `block`.
fn field_value(view: &[u8], after_block_marker: usize, word: &[u8]) -> Option<usize> {
    let end =
        run_end(view, after_block_marker + 1, after_block_marker + 400, |byte| !matches!(byte, b'{' | b'}'));
    let after =
        memchr::memmem::find(slice(view, after_block_marker, end), word)? + after_block_marker + word.len();
    let closed = after + usize::from(matches!(at(view, after), b'"' | b'\''));
    let sign = run_end(view, closed, closed + MAX_GAP_BYTES, is_blank);
    matches!(at(view, sign), b'=' | b':').then_some(sign + 1)
}

/// `"old" -> "new"`: the assignment of the second value, if the first ends here.
pub(crate) fn second_value(view: &[u8], found: &Assignment) -> Option<Assignment> {
    let arrow = b" -> \"";
    let start = found.value.1 + 1 + arrow.len();
    let is_change = found.quoted && rest(view, found.value.1 + 1).starts_with(arrow);
    let end = is_change.then(|| closing_quote(view, start, start + MAX_VALUE_BYTES, b"\"")).flatten()?;
    Some(Assignment { value: (start, end), open: None, ..*found })
}

/// `Password string = "..."`: position of the quote, if a type follows the name.
fn after_type(view: &[u8], place: usize) -> Option<usize> {
    let end = run_end(view, place, place + MAX_GAP_BYTES, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']' | b'*')
    });
    let equals = run_end(view, end, end + 4, is_blank);
    let after = run_end(view, equals + 1, equals + 4, is_blank);
    let quote = matches!(at(view, after), b'"' | b'\'' | b'`');
    (end > place && equals > end && at(view, equals) == b'=' && quote).then_some(after)
}

/// Position after `value=`, `value:` or `"value":`.
fn after_value_keyword(view: &[u8], place: usize) -> Option<usize> {
    let start = place + usize::from(matches!(at(view, place), b'"' | b'\''));
    let start = start
        + if starts_with_ignoring_case(rest(view, start), b"parameter") { b"parameter".len() } else { 0 };
    let after = starts_with_ignoring_case(rest(view, start), b"value").then_some(start + 5)?;
    let after = run_end(view, after, after + 3, |byte| is_blank(byte) || matches!(byte, b'"' | b'\''));
    matches!(at(view, after), b'=' | b':').then_some(after + 1)
}

/// The value, whether it is quoted, and how it continues.
type ParsedValue = ((usize, usize), bool, Option<OpenValue>);

fn parse_value(view: &[u8], place: usize, separator: Separator, name: usize) -> Option<ParsedValue> {
    let mut i = skip_blanks(view, place, MAX_GAP_BYTES);
    // A block or string on the next line.
    if matches!(
        separator,
        Separator::Colon | Separator::Equals | Separator::Markup | Separator::Adjacent | Separator::Call
    ) {
        let opened = after_block_marker(view, i, separator);
        i = opened.unwrap_or(i);
        if at(view, i) == b'\\' && at(view, i + 1) == b'\n' {
            i += 1;
        }
        let next =
            run_end(view, i, i + MAX_GAP_BYTES, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
        if next > i && (matches!(at(view, next), b'"' | b'\'' | b'`') || opened.is_some()) {
            i = next;
        }
        if at(view, i) == b'{' && matches!(separator, Separator::Colon | Separator::Equals) {
            i = field_value(view, i, b"value").map_or(i, |after| skip_blanks(view, after, MAX_GAP_BYTES));
        }
    }
    if separator == Separator::Colon {
        i = past_type(view, i);
    }
    // A placeholder is not a value; the text beside it may be one.
    i = placeholder::trim_placeholders(view, i, i + MAX_VALUE_BYTES).0;
    for wrapper in
        [b"[]byte(".as_slice(), b"String::from(", b"Some(", b"new String(", b"&", b"[", b"<![CDATA["]
    {
        if starts_with_ignoring_case(rest(view, i), wrapper) && !rest(view, i).starts_with(b"&quot;") {
            i += wrapper.len();
        }
    }
    // Letters before a quote: b"", r"", f'', N'', @"", $"".
    let letters =
        run_end(view, i, i + 2, |byte| byte.is_ascii_alphabetic() || matches!(byte, b'@' | b'$' | b'#'));
    if matches!(at(view, letters), b'"' | b'\'' | b'`') {
        i = letters;
    }
    let limit = i + MAX_VALUE_BYTES;
    for quote in [b"&quot;".as_slice(), b"%22", b"\\\"", b"\\'", b"\"\"\"", b"'''", b"\"", b"'", b"`"] {
        if rest(view, i).starts_with(quote) {
            let mut start = i + quote.len();
            let mut end = closing_quote(view, start, limit, quote);
            // A multi-line string: its first non-empty line.
            if end.is_none() && quote.len() == 3 && !quote.starts_with(b"%") {
                start = run_end(view, start, start + MAX_GAP_BYTES, |byte| {
                    is_blank(byte) || matches!(byte, b'\n' | b'\r')
                });
                let line = run_end(view, start, limit, |byte| !matches!(byte, b'\n' | b'\r'));
                end =
                    Some(memchr::memmem::find(slice(view, start, line), quote).map_or(line, |at| start + at));
            }
            let end = end?;
            let open = (end == limit).then_some(OpenValue::Quote(quote.last().copied().unwrap_or(b'"')));
            return (end > start).then_some(((start, end), true, open));
        }
    }
    if matches!(separator, Separator::Adjacent | Separator::Call) {
        return None;
    }
    let in_query = before(view, name) == b'?' || (before(view, name) == b'&' && in_url(view, name));
    let whole_line = is_line_start(view, name) && matches!(separator, Separator::Equals | Separator::Colon);
    let visible = |byte: u8| byte > b' ' && byte != 0x7f;
    if separator == Separator::Markup {
        let end = run_end(view, i, limit, |byte| visible(byte) && byte != b'<');
        return (end > i).then_some(((i, end), false, (end == limit).then_some(OpenValue::Run)));
    }
    let end = run_end(view, i, limit, |byte| {
        visible(byte)
            && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>')
            && (whole_line || !matches!(byte, b',' | b';' | b'&' | b')' | b'}' | b']' | b'|'))
            && !(in_query && matches!(byte, b'&' | b'#'))
    });
    let end = if whole_line { past_quotes(view, name, i, end, limit) } else { end };
    let end = next_field(view, i, end);
    let open = (end == limit).then_some(if whole_line { OpenValue::Word } else { OpenValue::Run });
    let end = run_start(view, end, i, |byte| matches!(byte, b',' | b';' | b')' | b'}' | b']' | b'\\'));
    let end = (i..end).find(|place| ends_line(rest(view, *place))).unwrap_or(end);
    (end > i).then_some(((i, end), false, open))
}

/// Whether an escaped end of a line or variable begins here: `\n`, `\x00`.
fn ends_line(text: &[u8]) -> bool {
    at(text, 0) == b'\\'
        && (matches!(at(text, 1), b'n' | b'r' | b'0')
            || text.starts_with(b"\\x00")
            || text.starts_with(b"\\u0000"))
}

/// Position after a marker that puts the value on the next lines (`|2-`, `>`, `<<EOT`), or after a YAML tag or anchor
/// (`!!str`, `&name`).
fn after_block_marker(view: &[u8], from: usize, separator: Separator) -> Option<usize> {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match at(view, from) {
        b'|' | b'>' if separator == Separator::Colon => Some(run_end(view, from, from + 4, |byte| {
            byte.is_ascii_digit() || matches!(byte, b'|' | b'>' | b'-' | b'+')
        })),
        b'!' | b'&' if separator == Separator::Colon => {
            let end = run_end(view, from + 1, from + MAX_GAP_BYTES, |byte| name(byte) || byte == b'!');
            let next = skip_blanks(view, end, MAX_GAP_BYTES);
            // `&str = ` is a type.
            (end > from + 1 && next > end && at(view, next) != b'=').then_some(next)
        }
        b'<' if at(view, from + 1) == b'<' => {
            let word = run_end(view, from + 2, from + 4, |byte| matches!(byte, b'-' | b'~' | b'"' | b'\''));
            let end =
                run_end(view, word, word + MAX_GAP_BYTES, |byte| name(byte) || matches!(byte, b'"' | b'\''));
            (end > word && matches!(at(view, end), b'\n' | b'\r')).then_some(end)
        }
        _ => None,
    }
}

/// Whether the word around a name is a URL, in which `#` ends the query.
fn in_url(view: &[u8], name: usize) -> bool {
    let word = slice(view, run_start(view, name, name.saturating_sub(200), |byte| byte > b' '), name);
    word.contains(&b'?') || memchr::memmem::find(word, b"://").is_some()
}

/// In a settings file, a quote or bracket inside a value belongs to it: extends the value to the end of the word,
/// unless the line opened a quote or markup before, or the character begins a string literal in code.
fn past_quotes(view: &[u8], name: usize, from: usize, end: usize, limit: usize) -> usize {
    let line = run_start(view, name, 0, |byte| byte != b'\n' && byte != b'\r');
    let head = slice(view, line, name);
    let opened = head.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'`' | b'<'));
    let last = run_end(view, end, limit, |byte| byte > b' ' && byte != 0x7f);
    let inside = slice(view, from, end);
    let call = before(view, end) == b'(' || inside.is_empty();
    let closes = matches!(at(view, last), b'\n' | b'\r' | 0) || last == view.len();
    if opened || call || !closes { end } else { last }
}

/// Where another field begins inside a value: `a1&name=`.
fn next_field(view: &[u8], from: usize, to: usize) -> usize {
    let begins = |place: &usize| {
        at(view, *place) == b'&' && {
            let name = run_end(view, place + 1, (place + MAX_NAME_BYTES).min(to), is_name);
            name > place + 3 && at(view, name) == b'='
        }
    };
    (from + 1..to).find(begins).unwrap_or(to)
}

/// `name: Type = value`: position after the `=`.
fn past_type(view: &[u8], place: usize) -> usize {
    let end = run_end(view, place, place + MAX_GAP_BYTES, |byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'<' | b'>' | b'[' | b']' | b'?' | b'&' | b'.' | b'|' | b' ' | b':')
    });
    if end == place
        || at(view, end) != b'='
        || !(at(view, place).is_ascii_alphabetic() || at(view, place) == b'&')
    {
        return place;
    }
    let after = run_end(view, end + 1, end + 4, is_blank);
    if matches!(at(view, after), b'"' | b'\'' | b'`') && is_blank(before(view, end)) { after } else { place }
}

/// End of the quoted string, on the same line.
fn closing_quote(view: &[u8], start: usize, limit: usize, quote: &[u8]) -> Option<usize> {
    let mut i = start;
    while i < limit.min(view.len()) {
        if rest(view, i).starts_with(quote) {
            return Some(i);
        }
        match at(view, i) {
            b'\n' => return None,
            // The end of a variable in an environment dump.
            0 => return Some(i),
            // A string inside a string: two backslashes are one there, and the escaped character has one of its own or
            // none.
            b'\\' if quote.first() == Some(&b'\\') && at(view, i + 1) == b'\\' => {
                i += if at(view, i + 2) == b'\\' { 4 } else { 3 };
            }
            b'\\' if quote.len() == 1 || quote.first() != Some(&b'\\') => i += 2,
            _ => i += 1,
        }
    }
    // No end in the window: take what is there, so that a long value is not missed.
    Some(limit.min(view.len()))
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests slice strings that they created")]
mod tests {
    use super::*;

    fn check(text: &str, word: &str, expected: Option<(&str, &str)>) {
        let from = text.find(word).unwrap();
        let found = find_assignment(text.as_bytes(), from, from + word.len());
        let pair = found
            .as_ref()
            .map(|found| (&text[found.name.0..found.name.1], &text[found.value.0..found.value.1]));
        assert_eq!(pair, expected, "{text}");
    }

    // T21: the ways in which a name is assigned a value
    #[test]
    fn names_and_values_of_assignments_are_found() {
        for (text, name, value) in [
            ("password=hunter2", "password", "hunter2"),
            ("DB_PASSWORD=\"hunter2\"", "DB_PASSWORD", "hunter2"),
            ("export db.password='a b'", "db.password", "a b"),
            ("\"password\": \"hun\\\"ter\",", "password", "hun\\\"ter"),
            ("{\\\"password\\\": \\\"hunter2\\\"}", "password", "hunter2"),
            ("{&quot;password&quot;:&quot;hunter2&quot;}", "password", "hunter2"),
            ("password: hunter2 # mine", "password", "hunter2"),
            ("password := `hunter2`", "password", "hunter2"),
            ("config['password'] = 'hunter2'", "password", "hunter2"),
            (":password       => '4ian1234',", "password", "4ian1234"),
            ("const password: string = 'hunter2';", "password", "hunter2"),
            ("let password: &str = \"hunter2\";", "password", "hunter2"),
            ("<password>hunter2</password>", "password", "hunter2"),
            ("<add key=\"MailPassword\" value=\"hunter2\"/>", "MailPassword", "hunter2"),
            ("- name: DB_PASSWORD\n  value: hunter2", "DB_PASSWORD", "hunter2"),
            ("{\"name\": \"DB_PASSWORD\", \"value\": \"hunter2\"}", "DB_PASSWORD", "hunter2"),
            ("run --password hunter2 -x", "password", "hunter2"),
            ("run --password=hunter2 -x", "password", "hunter2"),
            ("setPassword(\"hunter2\")", "setPassword", "hunter2"),
            ("login(\"password\", \"hunter2\")", "password", "hunter2"),
            ("Server=x;Password=a#b;Database=y", "Password", "a#b"),
            ("https://h/p?password=hunter2&x=1", "password", "hunter2"),
            ("password: |\n  hunter2\n", "password", "hunter2"),
            ("the password is 'hunter2'", "password", "hunter2"),
            ("password%3Dhunter2", "password", "hunter2"),
            ("log(\"password=hunter2\\n\")", "password", "hunter2"),
        ] {
            let word = if text.contains("assword") { "assword" } else { "ASSWORD" };
            check(text, word, Some((name, value)));
        }
        for text in
            ["password", "password::new", "password()", "password = ", "fn password<T>()", "password,"]
        {
            let from = text.find("password").unwrap();
            let found = find_assignment(text.as_bytes(), from, from + 8);
            assert!(found.is_none() || !found.unwrap().quoted, "{text}");
        }
    }
}
