//! Something with a name is given a value: `name = value`, `"name": "value"`, `--name value`, `<name>value<`,
//! `("name", "value")`, a header, a query parameter, `name: NAME` followed by `value: VALUE`. This finds the name
//! around a word and the value given to it. Whether the value is a secret is for [`crate::judge`] to say.

use crate::bytes::{at, before, begins, is_blank, part, rest, run, run_back};
use crate::escape::{self, past_blanks};
use crate::placeholder;

/// The longest part of a name before and after the word in it.
const NAME: usize = 64;
/// So much of a value is looked at; what goes on after that is followed by the pass.
pub(crate) const VALUE: usize = 512;
/// The longest gap inside a line, for values that stand in columns.
const GAP: usize = 40;

/// How the value is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// `=`, `:=`, `=>`, `?=`
    Equals,
    /// `:`
    Colon,
    /// `==`, `!=`, `,`, `||`, `is`: only a quoted text is a value there.
    Beside,
    /// `name(`: the same.
    Call,
    /// `<name>value`
    Markup,
    /// `--name value`
    Flag,
    /// Only blanks between.
    Blank,
}

/// How a value goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    /// To this quote.
    Quote(u8),
    /// To a blank.
    Word,
    /// To a sign that ends values in a line of code.
    Run,
}

/// A name with its value; places count in the view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assigned {
    pub(crate) name: (usize, usize),
    pub(crate) value: (usize, usize),
    pub(crate) quoted: bool,
    pub(crate) given: Given,
    /// The line begins with the name, but for words such as `export`.
    pub(crate) own_line: bool,
    /// How the value goes on when its end is not in sight.
    pub(crate) open: Option<Open>,
    /// One of several pairs: `host=db user=app password=x`, `Server=db;Password=x`, `?user=app&password=x`.
    pub(crate) listed: bool,
}

/// What is given to the name that the word from `from` to `to` stands in.
pub(crate) fn assigned(view: &[u8], from: usize, to: usize) -> Option<Assigned> {
    let mut start = run_back(view, from, from.saturating_sub(NAME), is_name);
    let mut end = run(view, to, to + NAME, is_name);
    while end > to && matches!(before(view, end), b'-' | b'.') {
        end -= 1;
    }
    // `\npassword`: the letter of an escape is none of the name.
    let escaped = (start + 1..=from.min(start + 8)).rev().find(|place| escape::ends_at(view, *place));
    start = escaped.unwrap_or(start);
    let flag = at(view, start) == b'-';
    while start < from && matches!(at(view, start), b'-' | b'.') {
        start += 1;
    }
    let (given, place) = operator(view, (start, end), flag)?;
    // The name of a group in an expression: `(?P<password>...`.
    if given == Given::Markup
        && (part(view, 0, start).ends_with(b"?<") || part(view, 0, start).ends_with(b"?P<"))
    {
        return None;
    }
    let (mut value, quoted, mut open) = value(view, place, given, start)?;
    let bare = placeholder::beside(view, value.0, value.1);
    if bare != value {
        (value, open) = (bare, open.filter(|_| bare.1 == value.1));
        if value.1 <= value.0 {
            return None;
        }
    }
    let own_line = leads(view, start);
    let listed = given == Given::Equals && !quoted && value.0 == end + 1 && (flag || is_listed(view, start))
        || is_header(view, start, given, value.1);
    Some(Assigned { name: (start, end), value, quoted, given, own_line, open, listed })
}

/// Whether name and value fill a quoted text: `-H "X-Api-Key: x"`.
fn is_header(view: &[u8], name: usize, given: Given, end: usize) -> bool {
    let quote = before(view, name);
    matches!(quote, b'"' | b'\'') && matches!(given, Given::Colon | Given::Equals) && at(view, end) == quote
}

/// Whether another pair stands right before the name, without the comma that arguments have.
fn is_listed(view: &[u8], name: usize) -> bool {
    let from = name.saturating_sub(NAME);
    match before(view, name) {
        b';' | b'&' | b'?' | b'=' => true,
        // `//registry.internal/:_authToken=x`
        b':' => before(view, name - 1) == b'/',
        // `host=db user=app password=x`
        byte if is_blank(byte) => {
            let last = run_back(view, name, from, is_blank);
            let pair = part(view, run_back(view, last, from, |byte| byte > b' '), last);
            let split = pair.iter().position(|byte| *byte == b'=');
            split.is_some_and(|split| {
                split > 0
                    && part(pair, 0, split).iter().all(|&byte| is_name(byte))
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

/// Whether nothing but a word of configuration stands before the name on its line.
fn leads(view: &[u8], start: usize) -> bool {
    let line = run_back(view, start, 0, |byte| byte != b'\n' && byte != b'\r');
    let head = part(view, line, start).trim_ascii();
    head.is_empty()
        || head.iter().all(|byte| {
            matches!(byte, b'-' | b'#' | b'/' | b'*' | b';' | b'"' | b'\'' | b' ' | b'$' | b'+' | b'{')
        })
        || [b"export".as_slice(), b"set", b"ENV", b"ARG", b"- ", b"declare -x", b"setenv", b"SET"]
            .contains(&head)
}

/// What follows the name, and where the value may begin.
fn operator(view: &[u8], (start, end): (usize, usize), flag: bool) -> Option<(Given, usize)> {
    let mut i = run(view, end, end + 4, |byte| matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b']' | b')'));
    for closing in [b"&quot;".as_slice(), b"%22", b"&#34;"] {
        if begins(rest(view, i), closing) {
            i += closing.len();
        }
    }
    let closed = i > end;
    if let Some(text) = listed_text(view, end) {
        return Some((Given::Markup, text));
    }
    let blanks = past_blanks(view, i, GAP);
    let spaced = blanks > i;
    i = blanks;
    let given = match (at(view, i), at(view, i + 1)) {
        (b':', b':') => return None,
        (b':', b'=') => (Given::Equals, i + 2),
        (b':', _) => (Given::Colon, i + 1),
        // `NAME==x`, `NAME=~x` of an environment: the second sign is of the value.
        (b'=', b'=' | b'~') if !spaced && !closed && at(view, i + 2) > b' ' && leads(view, start) => {
            (Given::Equals, i + 1)
        }
        (b'=', b'=') if at(view, i + 2) == b'=' => (Given::Beside, i + 3),
        (b'=' | b'!', b'=') => (Given::Beside, i + 2),
        (b'=', b'~') => return None,
        (b'=', b'>') | (b'?' | b'+' | b'|', b'=') | (b'-', b'>') => (Given::Equals, i + 2),
        (b'=', _) => (Given::Equals, i + 1),
        (b'|', b'|') | (b'?', b'?') => (Given::Beside, i + 2),
        (b'%', b'3') if matches!(at(view, i + 2), b'D' | b'd' | b'A' | b'a') => (Given::Equals, i + 3),
        (b'>', _) => (Given::Markup, i + 1),
        (b',', _) => {
            let next = run(view, i + 1, i + 1 + GAP, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
            match value_word(view, next) {
                Some(after) => (Given::Equals, after),
                None => (Given::Beside, i + 1),
            }
        }
        (b'(', _) => (Given::Call, i + 1),
        (b'\n' | b'\r', _) => {
            let next = run(view, i, i + GAP, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
            (Given::Colon, value_word(view, next).or_else(|| numbered(view, next).filter(|_| closed))?)
        }
        // A column of a table.
        (b'|', b' ') if spaced => (Given::Blank, i + 1),
        _ if spaced && begins(rest(view, i), b"provided: ") => (Given::Colon, i + b"provided:".len()),
        // "A temporary password is generated for root@localhost: ..."
        _ if spaced && begins(rest(view, i), b"is generated for ") => {
            let colon = run(view, i, i + 80, |byte| byte != b':' && byte >= b' ');
            ((at(view, colon) == b':').then_some(Given::Colon)?, colon + 1)
        }
        _ if spaced && begins(rest(view, i), b"is ") => {
            let next = at(view, run(view, i + 3, i + 3 + GAP, is_blank));
            (if matches!(next, b'"' | b'\'' | b'`') { Given::Beside } else { Given::Blank }, i + 3)
        }
        // `<wsse:Password Type="...">`
        _ if spaced && attributes(view, end).is_some() => (Given::Markup, attributes(view, end)?),
        // `variable "password" { default = "..." }`
        (b'{', _) if closed => (Given::Equals, field(view, i, b"default")?),
        _ if spaced && closed => match value_word(view, i) {
            Some(after) => (Given::Equals, after),
            // `<Parameter name="password" type="string">`
            None => (Given::Markup, tag_end(view, i).filter(|_| is_attribute(view, start))?),
        },
        _ if spaced && !flag && typed(view, i).is_some() => (Given::Equals, typed(view, i)?),
        _ if spaced => (if flag { Given::Flag } else { Given::Blank }, i),
        _ => return None,
    };
    Some(given)
}

/// The place after the tag of markup in whose attributes the name's end stands.
fn attributes(view: &[u8], end: usize) -> Option<usize> {
    let name = run_back(view, end, end.saturating_sub(NAME), |byte| is_name(byte) || byte == b':');
    let last = run(view, end, end + 200, |byte| !matches!(byte, b'<' | b'>' | b'\n' | b'\r'));
    // `Map<Pass *, Pass *>` has neither an attribute nor a blank before it.
    let tag = before(view, name) == b'<' && !before(view, name - 1).is_ascii_alphanumeric();
    (tag && part(view, end, last).contains(&b'=') && at(view, last) == b'>' && before(view, last) != b'/')
        .then_some(last + 1)
}

/// Whether a quoted name is the value of an attribute: `name="password"`.
fn is_attribute(view: &[u8], name: usize) -> bool {
    matches!(before(view, name), b'"' | b'\'') && before(view, name - 1) == b'='
}

/// The place after the tag that goes on with further attributes.
fn tag_end(view: &[u8], from: usize) -> Option<usize> {
    let last = run(view, from, from + 200, |byte| !matches!(byte, b'<' | b'>' | b'\n' | b'\r'));
    let more = part(view, from, last).contains(&b'=') && !matches!(before(view, last), b'/' | b'=' | b'-');
    (more && at(view, last) == b'>').then_some(last + 1)
}

/// `<key>password</key> <string>...`: the place of the text.
fn listed_text(view: &[u8], end: usize) -> Option<usize> {
    let after = end + rest(view, end).starts_with(b"</key>").then_some(b"</key>".len())?;
    let next = run(view, after, after + GAP, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
    rest(view, next).starts_with(b"<string>").then_some(next + b"<string>".len())
}

/// `2) "..."` on the line after the name, as a list is shown: the place of the text.
fn numbered(view: &[u8], line: usize) -> Option<usize> {
    let number = run(view, line, line + 6, |byte| byte.is_ascii_digit());
    (number > line && rest(view, number).starts_with(b") \"")).then_some(number + 2)
}

/// The place after `word =` or `"word":` in the block that begins here.
fn field(view: &[u8], block: usize, word: &[u8]) -> Option<usize> {
    let end = run(view, block + 1, block + 400, |byte| !matches!(byte, b'{' | b'}'));
    let after = memchr::memmem::find(part(view, block, end), word)? + block + word.len();
    let closed = after + usize::from(matches!(at(view, after), b'"' | b'\''));
    let sign = run(view, closed, closed + GAP, is_blank);
    matches!(at(view, sign), b'=' | b':').then_some(sign + 1)
}

/// `"old" -> "new"`: the second value of a change, when the first ends here.
pub(crate) fn changed(view: &[u8], found: &Assigned) -> Option<Assigned> {
    let arrow = b" -> \"";
    let start = found.value.1 + 1 + arrow.len();
    let told = found.quoted && rest(view, found.value.1 + 1).starts_with(arrow);
    let end = told.then(|| closing(view, start, start + VALUE, b"\"")).flatten()?;
    Some(Assigned { value: (start, end), open: None, ..*found })
}

/// `Password string = "..."`: the place of the quote, when the name is followed by a type.
fn typed(view: &[u8], place: usize) -> Option<usize> {
    let end = run(view, place, place + GAP, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'[' | b']' | b'*')
    });
    let equals = run(view, end, end + 4, is_blank);
    let after = run(view, equals + 1, equals + 4, is_blank);
    let quote = matches!(at(view, after), b'"' | b'\'' | b'`');
    (end > place && equals > end && at(view, equals) == b'=' && quote).then_some(after)
}

/// The place after `value=`, `value:` or `"value":`.
fn value_word(view: &[u8], place: usize) -> Option<usize> {
    let start = place + usize::from(matches!(at(view, place), b'"' | b'\''));
    let start = start + if begins(rest(view, start), b"parameter") { b"parameter".len() } else { 0 };
    let after = begins(rest(view, start), b"value").then_some(start + 5)?;
    let after = run(view, after, after + 3, |byte| is_blank(byte) || matches!(byte, b'"' | b'\''));
    matches!(at(view, after), b'=' | b':').then_some(after + 1)
}

/// The value, whether it is quoted, and how it goes on.
type Value = ((usize, usize), bool, Option<Open>);

fn value(view: &[u8], place: usize, given: Given, name: usize) -> Option<Value> {
    let mut i = past_blanks(view, place, GAP);
    // A block or a text on the next line.
    if matches!(given, Given::Colon | Given::Equals | Given::Markup | Given::Beside | Given::Call) {
        let opened = block(view, i, given);
        i = opened.unwrap_or(i);
        if at(view, i) == b'\\' && at(view, i + 1) == b'\n' {
            i += 1;
        }
        let next = run(view, i, i + GAP, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
        if next > i && (matches!(at(view, next), b'"' | b'\'' | b'`') || opened.is_some()) {
            i = next;
        }
        if at(view, i) == b'{' && matches!(given, Given::Colon | Given::Equals) {
            i = field(view, i, b"value").map_or(i, |after| past_blanks(view, after, GAP));
        }
    }
    if given == Given::Colon {
        i = past_type(view, i);
    }
    // What was replaced already is no value; what stands beside it may be one.
    i = placeholder::beside(view, i, i + VALUE).0;
    for wrapper in
        [b"[]byte(".as_slice(), b"String::from(", b"Some(", b"new String(", b"&", b"[", b"<![CDATA["]
    {
        if begins(rest(view, i), wrapper) && !rest(view, i).starts_with(b"&quot;") {
            i += wrapper.len();
        }
    }
    // Letters before a quote: b"", r"", f'', N'', @"", $"".
    let letters =
        run(view, i, i + 2, |byte| byte.is_ascii_alphabetic() || matches!(byte, b'@' | b'$' | b'#'));
    if matches!(at(view, letters), b'"' | b'\'' | b'`') {
        i = letters;
    }
    let limit = i + VALUE;
    for quote in [b"&quot;".as_slice(), b"%22", b"\\\"", b"\\'", b"\"\"\"", b"'''", b"\"", b"'", b"`"] {
        if rest(view, i).starts_with(quote) {
            let mut start = i + quote.len();
            let mut end = closing(view, start, limit, quote);
            // A text of several lines: the first that is not empty.
            if end.is_none() && quote.len() == 3 && !quote.starts_with(b"%") {
                start = run(view, start, start + GAP, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
                let line = run(view, start, limit, |byte| !matches!(byte, b'\n' | b'\r'));
                end =
                    Some(memchr::memmem::find(part(view, start, line), quote).map_or(line, |at| start + at));
            }
            let end = end?;
            let open = (end == limit).then_some(Open::Quote(quote.last().copied().unwrap_or(b'"')));
            return (end > start).then_some(((start, end), true, open));
        }
    }
    if matches!(given, Given::Beside | Given::Call) {
        return None;
    }
    let in_query = before(view, name) == b'?' || (before(view, name) == b'&' && in_address(view, name));
    let whole_line = leads(view, name) && matches!(given, Given::Equals | Given::Colon);
    let visible = |byte: u8| byte > b' ' && byte != 0x7f;
    if given == Given::Markup {
        let end = run(view, i, limit, |byte| visible(byte) && byte != b'<');
        return (end > i).then_some(((i, end), false, (end == limit).then_some(Open::Run)));
    }
    let end = run(view, i, limit, |byte| {
        visible(byte)
            && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>')
            && (whole_line || !matches!(byte, b',' | b';' | b'&' | b')' | b'}' | b']' | b'|'))
            && !(in_query && matches!(byte, b'&' | b'#'))
    });
    let end = if whole_line { past_quotes(view, name, i, end, limit) } else { end };
    let end = next_field(view, i, end);
    let open = (end == limit).then_some(if whole_line { Open::Word } else { Open::Run });
    let end = run_back(view, end, i, |byte| matches!(byte, b',' | b';' | b')' | b'}' | b']' | b'\\'));
    let end = (i..end).find(|place| ends_line(rest(view, *place))).unwrap_or(end);
    (end > i).then_some(((i, end), false, open))
}

/// Whether the end of a line or of a variable is written here: `\n`, `\x00`.
fn ends_line(text: &[u8]) -> bool {
    at(text, 0) == b'\\'
        && (matches!(at(text, 1), b'n' | b'r' | b'0')
            || text.starts_with(b"\\x00")
            || text.starts_with(b"\\u0000"))
}

/// Past what says that the value stands on the next lines: `|2-`, `>`, `<<EOT`; past a tag or an anchor, `!!str`, `&name`.
fn block(view: &[u8], from: usize, given: Given) -> Option<usize> {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match at(view, from) {
        b'|' | b'>' if given == Given::Colon => Some(run(view, from, from + 4, |byte| {
            byte.is_ascii_digit() || matches!(byte, b'|' | b'>' | b'-' | b'+')
        })),
        b'!' | b'&' if given == Given::Colon => {
            let end = run(view, from + 1, from + GAP, |byte| name(byte) || byte == b'!');
            let next = past_blanks(view, end, GAP);
            // `&str = ` is a type.
            (end > from + 1 && next > end && at(view, next) != b'=').then_some(next)
        }
        b'<' if at(view, from + 1) == b'<' => {
            let word = run(view, from + 2, from + 4, |byte| matches!(byte, b'-' | b'~' | b'"' | b'\''));
            let end = run(view, word, word + GAP, |byte| name(byte) || matches!(byte, b'"' | b'\''));
            (end > word && matches!(at(view, end), b'\n' | b'\r')).then_some(end)
        }
        _ => None,
    }
}

/// Whether the word around a name is an address, in which `#` ends the query.
fn in_address(view: &[u8], name: usize) -> bool {
    let word = part(view, run_back(view, name, name.saturating_sub(200), |byte| byte > b' '), name);
    word.contains(&b'?') || memchr::memmem::find(word, b"://").is_some()
}

/// In a file of settings a quote or a bracket inside a value is part of it: to the end of the word, unless the line began with a quote or
/// with markup that ends there, or the sign begins a text of a program.
fn past_quotes(view: &[u8], name: usize, from: usize, end: usize, limit: usize) -> usize {
    let line = run_back(view, name, 0, |byte| byte != b'\n' && byte != b'\r');
    let head = part(view, line, name);
    let opened = head.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'`' | b'<'));
    let last = run(view, end, limit, |byte| byte > b' ' && byte != 0x7f);
    let inside = part(view, from, end);
    let call = before(view, end) == b'(' || inside.is_empty();
    let closes = matches!(at(view, last), b'\n' | b'\r' | 0) || last == view.len();
    if opened || call || !closes { end } else { last }
}

/// Where another field begins inside of a value: `a1&name=`.
fn next_field(view: &[u8], from: usize, to: usize) -> usize {
    let begins = |place: &usize| {
        at(view, *place) == b'&' && {
            let name = run(view, place + 1, (place + NAME).min(to), is_name);
            name > place + 3 && at(view, name) == b'='
        }
    };
    (from + 1..to).find(begins).unwrap_or(to)
}

/// `name: Type = value`: the place after the `=`.
fn past_type(view: &[u8], place: usize) -> usize {
    let end = run(view, place, place + GAP, |byte| {
        byte.is_ascii_alphanumeric()
            || matches!(byte, b'_' | b'<' | b'>' | b'[' | b']' | b'?' | b'&' | b'.' | b'|' | b' ' | b':')
    });
    if end == place
        || at(view, end) != b'='
        || !(at(view, place).is_ascii_alphabetic() || at(view, place) == b'&')
    {
        return place;
    }
    let after = run(view, end + 1, end + 4, is_blank);
    if matches!(at(view, after), b'"' | b'\'' | b'`') && is_blank(before(view, end)) { after } else { place }
}

/// Where the quoted text ends; on the same line.
fn closing(view: &[u8], start: usize, limit: usize, quote: &[u8]) -> Option<usize> {
    let mut i = start;
    while i < limit.min(view.len()) {
        if rest(view, i).starts_with(quote) {
            return Some(i);
        }
        match at(view, i) {
            b'\n' => return None,
            // The end of a variable in a dump of an environment.
            0 => return Some(i),
            // A text inside a text: two signs are one there, and what it escapes has one of its own or none.
            b'\\' if quote.first() == Some(&b'\\') && at(view, i + 1) == b'\\' => {
                i += if at(view, i + 2) == b'\\' { 4 } else { 3 };
            }
            b'\\' if quote.len() == 1 || quote.first() != Some(&b'\\') => i += 2,
            _ => i += 1,
        }
    }
    // No end in sight: what is there is taken, so that a long value does not go free.
    Some(limit.min(view.len()))
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests cut the texts they have made")]
mod tests {
    use super::*;

    fn check(text: &str, word: &str, expected: Option<(&str, &str)>) {
        let from = text.find(word).unwrap();
        let found = assigned(text.as_bytes(), from, from + word.len());
        let told = found
            .as_ref()
            .map(|found| (&text[found.name.0..found.name.1], &text[found.value.0..found.value.1]));
        assert_eq!(told, expected, "{text}");
    }

    // T21: the ways in which a name is given a value
    #[test]
    fn names_and_their_values() {
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
            let found = assigned(text.as_bytes(), from, from + 8);
            assert!(found.is_none() || !found.unwrap().quoted, "{text}");
        }
    }
}
