//! Passwords that a program takes as a short flag (`mysql -pSECRET`, `sshpass -p SECRET`, `redis-cli -a SECRET`,
//! `docker login -p SECRET`), and passwords without a name before them: SQL's `IDENTIFIED BY '...'`, a line of
//! `.pgpass`.

use crate::bytes::{
    at, before, contains_ignoring_case, is_blank, rest, run_end, run_start, slice, starts_with_ignoring_case,
};
use crate::classify::{is_login_password, is_random_password};

/// Maximum length of a command line, in bytes.
const MAX_LINE_BYTES: usize = 2400;

/// Maximum number of words of a command line that are examined.
const MAX_WORDS: usize = 40;
/// Maximum number of occurrences of the flag that are examined.
const MAX_FLAG_USES: usize = 3;

/// How a program takes its password.
struct PasswordFlag {
    program: &'static str,
    flag: &'static [u8],
    /// Whether the password may or must be joined to the flag.
    joined: FlagJoin,
}

/// The separator of user and password where a flag takes both.
fn login_separator(program: &str) -> Option<u8> {
    match program {
        "smbclient " => Some(b'%'),
        "lftp " => Some(b','),
        "curl " => Some(b':'),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagJoin {
    Never,
    May,
    Must,
}

/// The programs. The anchor is the name with a space.
#[rustfmt::skip]
const PASSWORD_FLAGS: &[PasswordFlag] = &[
    PasswordFlag { program: "mysql ", flag: b"-p", joined: FlagJoin::Must },
    PasswordFlag { program: "mysqldump ", flag: b"-p", joined: FlagJoin::Must },
    PasswordFlag { program: "mysqladmin ", flag: b"-p", joined: FlagJoin::Must },
    PasswordFlag { program: "mysqlimport ", flag: b"-p", joined: FlagJoin::Must },
    PasswordFlag { program: "mariadb ", flag: b"-p", joined: FlagJoin::Must },
    PasswordFlag { program: "mariadb-dump ", flag: b"-p", joined: FlagJoin::Must },
    PasswordFlag { program: "sshpass ", flag: b"-p", joined: FlagJoin::May },
    PasswordFlag { program: "redis-cli ", flag: b"-a", joined: FlagJoin::Never },
    PasswordFlag { program: "docker login ", flag: b"-p", joined: FlagJoin::Never },
    PasswordFlag { program: "podman login ", flag: b"-p", joined: FlagJoin::Never },
    PasswordFlag { program: "registry login ", flag: b"-p", joined: FlagJoin::Never },
    PasswordFlag { program: "oras login ", flag: b"-p", joined: FlagJoin::Never },
    PasswordFlag { program: "az login ", flag: b"-p", joined: FlagJoin::Never },
    PasswordFlag { program: "oc login ", flag: b"-p", joined: FlagJoin::Never },
    PasswordFlag { program: "mongo ", flag: b"-p", joined: FlagJoin::May },
    PasswordFlag { program: "mongosh ", flag: b"-p", joined: FlagJoin::May },
    PasswordFlag { program: "mongodump ", flag: b"-p", joined: FlagJoin::May },
    PasswordFlag { program: "mongorestore ", flag: b"-p", joined: FlagJoin::May },
    PasswordFlag { program: "ldapsearch ", flag: b"-w", joined: FlagJoin::May },
    PasswordFlag { program: "ldapmodify ", flag: b"-w", joined: FlagJoin::May },
    PasswordFlag { program: "ldapadd ", flag: b"-w", joined: FlagJoin::May },
    PasswordFlag { program: "sqlcmd ", flag: b"-P", joined: FlagJoin::May },
    PasswordFlag { program: "zip ", flag: b"-P", joined: FlagJoin::May },
    PasswordFlag { program: "7z ", flag: b"-p", joined: FlagJoin::Must },
    PasswordFlag { program: "smbclient ", flag: b"-U", joined: FlagJoin::May },
    PasswordFlag { program: "lftp ", flag: b"-u", joined: FlagJoin::May },
    PasswordFlag { program: "bcp ", flag: b"-P", joined: FlagJoin::May },
    PasswordFlag { program: "curl ", flag: b"-u", joined: FlagJoin::May },
    PasswordFlag { program: "psexec ", flag: b"-p", joined: FlagJoin::Never },
    PasswordFlag { program: "openssl enc ", flag: b"-k", joined: FlagJoin::Never },
    PasswordFlag { program: "xfreerdp ", flag: b"/p:", joined: FlagJoin::Must },
    // Without a flag: any word that looks random.
    PasswordFlag { program: "net use ", flag: b"", joined: FlagJoin::Must },
    PasswordFlag { program: "net user ", flag: b"", joined: FlagJoin::Must },
    PasswordFlag { program: "htpasswd ", flag: b"", joined: FlagJoin::Must },
];

/// The anchors of this module.
pub(crate) fn anchors() -> impl Iterator<Item = &'static str> {
    PASSWORD_FLAGS.iter().map(|flag| flag.program)
}

/// The password on the command line whose program name spans `from..after`.
pub(crate) fn flag_password(view: &[u8], from: usize, after: usize) -> Option<(usize, usize)> {
    let program = slice(view, from, after);
    let known = PASSWORD_FLAGS.iter().find(|flag| program.eq_ignore_ascii_case(flag.program.as_bytes()))?;
    let (mut place, mut flags) = (after, 0);
    for _ in 0..MAX_WORDS {
        let (start, end) = word(view, place, after + MAX_LINE_BYTES)?;
        place = end;
        let text = slice(view, start, end);
        if known.flag.is_empty() {
            let value = unquoted(view, (start, end));
            let text = slice(view, value.0, value.1);
            if is_replaced(text) {
                return None;
            }
            let named = text.iter().any(|byte| matches!(byte, b'/' | b'\\')) || text.starts_with(b"-");
            if !named && is_random_password(text) {
                return Some(value);
            }
            continue;
        }
        // `curl -sSu user:password`
        let bundled = known.program == "curl " && text.starts_with(b"-") && text.ends_with(b"u") && {
            slice(text, 1, text.len()).iter().all(u8::is_ascii_alphabetic)
        };
        if !text.starts_with(known.flag) && !bundled {
            continue;
        }
        flags += 1;
        if flags > MAX_FLAG_USES {
            return None;
        }
        let value = match (text.len() == known.flag.len() || bundled, known.joined) {
            (true, FlagJoin::Must) | (false, FlagJoin::Never) => continue,
            (true, _) => word(view, end, after + MAX_LINE_BYTES)?,
            (false, _) => (start + known.flag.len(), end),
        };
        let mut value = unquoted(view, value);
        if let Some(sign) = login_separator(known.program) {
            value.0 = run_end(view, value.0, value.1, |byte| byte != sign) + 1;
        }
        let text = slice(view, value.0, value.1);
        if is_password(text) || is_replaced(text) {
            return Some(value).filter(|_| !is_replaced(text));
        }
    }
    None
}

/// A line has one password: once it is replaced, no other is searched for.
fn is_replaced(text: &[u8]) -> bool {
    memchr::memmem::find(text, crate::placeholder::PLACEHOLDER_START).is_some()
}

/// Whether a value is a password, at a position where nothing else can be.
fn is_password(text: &[u8]) -> bool {
    let plausible = is_login_password(b"", text) && text.iter().any(u8::is_ascii_digit);
    text.len() >= 5 && (plausible || is_random_password(text))
}

/// `echo PASSWORD | docker login --password-stdin`, `echo user:PASSWORD | chpasswd`: the password piped into the
/// program at a position.
pub(crate) fn piped_password(view: &[u8], program: usize) -> Option<(usize, usize)> {
    let line = run_start(view, program, program.saturating_sub(400), |byte| !matches!(byte, b'\n' | b'\r'));
    let pipe = line + memchr::memrchr(b'|', slice(view, line, program))?;
    let after_word = |word: &[u8]| {
        memchr::memmem::rfind(slice(view, line, pipe), word).map(|place| line + place + word.len())
    };
    let (mut place, mut last) = (after_word(b"echo ").or_else(|| after_word(b"printf "))?, None);
    while let Some(next) = word(view, place, pipe) {
        (place, last) = (next.1, Some(next));
    }
    let (mut start, end) = unquoted(view, last?);
    if rest(view, program).starts_with(b"chpasswd") {
        start = run_end(view, start, end, |byte| byte != b':') + 1;
    }
    is_password(slice(view, start, end)).then_some((start, end))
}

/// The last word of `AUTH PASSWORD` or `AUTH user PASSWORD`, on a line of its own or after a prompt; also in the Redis
/// wire protocol, which prefixes each word with its length.
pub(crate) fn redis_auth(view: &[u8], from: usize, after: usize) -> Option<(usize, usize)> {
    let line = run_start(view, from, from.saturating_sub(120), |byte| !matches!(byte, b'\n' | b'\r'));
    let head = slice(view, line, from).trim_ascii_end();
    if !(head.is_empty() || matches!(head.last(), Some(b'>' | b'"' | b'\''))) {
        return None;
    }
    let counted = at(view, after) == b'$';
    let (mut place, mut last) = (after, None);
    for _ in 0..2 {
        if counted {
            let number = run_end(view, place + 1, place + 8, |byte| byte.is_ascii_digit());
            place = run_end(view, number, number + 2, |byte| matches!(byte, b'\n' | b'\r'));
        }
        let Some(next) = word(view, place, after + MAX_LINE_BYTES) else { break };
        place = if counted {
            run_end(view, next.1, next.1 + 2, |byte| matches!(byte, b'\n' | b'\r'))
        } else {
            next.1
        };
        last = Some(next);
        if counted && at(view, place) != b'$' {
            break;
        }
    }
    let mut value = unquoted(view, last?);
    // `"AUTH ..."`: up to the quote.
    if let Some(quote) = head.last().filter(|byte| **byte != b'>') {
        value.1 = run_end(view, value.0, value.1, |byte| byte != *quote);
    }
    let ends = counted || matches!(at(view, place), b'\n' | b'\r' | 0 | b'\\');
    let text = slice(view, value.0, value.1);
    // `AUTH CRAM-MD5` names a mechanism.
    let means = text.len() < 20
        && text.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'-');
    (ends && !means && is_random_password(text)).then_some(value)
}

/// The next word of a command line, up to a space outside quotes.
fn word(view: &[u8], place: usize, limit: usize) -> Option<(usize, usize)> {
    let mut start = run_end(view, place, limit, is_blank);
    // A backslash continues the line.
    while at(view, start) == b'\\' && matches!(at(view, start + 1), b'\n' | b'\r') {
        start = run_end(view, start + 1, limit, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
    }
    let (mut end, mut quote) = (start, 0);
    while end < limit.min(view.len()) {
        let byte = at(view, end);
        match byte {
            b'\n' | b'\r' => break,
            _ if byte == quote => quote = 0,
            b'"' | b'\'' if quote == 0 => quote = byte,
            _ if is_blank(byte) && quote == 0 => break,
            _ => {}
        }
        end += 1;
    }
    let stop = matches!(slice(view, start, end), b"|" | b"||" | b"&&" | b";" | b"&");
    (end > start && !stop).then_some((start, end))
}

fn unquoted(view: &[u8], (start, end): (usize, usize)) -> (usize, usize) {
    let quote = at(view, start);
    if matches!(quote, b'"' | b'\'') && end > start + 1 {
        return (start + 1, run_end(view, start + 1, end, |byte| byte != quote));
    }
    // A quote that closes a string around the whole command is not part of the word.
    (start, run_start(view, end, start, |byte| matches!(byte, b'"' | b'\'' | b'`' | b';')))
}

/// The second of two string arguments, of which the first is a user: `HTTPBasicAuth("ada", "...")`.
pub(crate) fn login_call(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let text = |place: usize| {
        let start = run_end(view, place, place + 40, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
        let quote = at(view, start);
        let end = run_end(view, start + 1, start + 1 + MAX_LINE_BYTES, |byte| byte != quote && byte >= b' ');
        (matches!(quote, b'"' | b'\'') && at(view, end) == quote).then_some((start + 1, end))
    };
    // `getConnection(url, "ada", "...")`
    let connects = slice(view, 0, after).to_ascii_lowercase().ends_with(b"getconnection(");
    let comma = connects.then(|| run_end(view, after, after + 300, |byte| byte != b',' && byte >= b' '));
    let user = text(comma.map_or(after, |comma| comma + 1))?;
    let comma = run_end(view, user.1 + 1, user.1 + 9, is_blank);
    let password = text((at(view, comma) == b',').then_some(comma + 1)?)?;
    let (user, text) = (slice(view, user.0, user.1), slice(view, password.0, password.1));
    let mixed = text.iter().any(u8::is_ascii_digit) && text.len() >= 6 && is_login_password(user, text);
    (mixed || is_random_password(text)).then_some(password)
}

/// The string in `IDENTIFIED [WITH x] BY [PASSWORD] '...'`; the first word ends at `after`.
pub(crate) fn sql_identified(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let mut place = after;
    for _ in 0..5 {
        let end = run_end(view, place, place + 40, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let next = run_end(view, end, end + 4, is_blank);
        if next == end {
            break;
        }
        place = next;
    }
    let quote = at(view, place);
    let by = contains_ignoring_case(slice(view, after, place), b"by ");
    if !by || !matches!(quote, b'"' | b'\'') {
        return None;
    }
    let end = run_end(view, place + 1, place + 1 + MAX_LINE_BYTES, |byte| byte != quote && byte >= b' ');
    let text = slice(view, place + 1, end);
    // "the thing identified by 'sequence'" is prose.
    let mixed = text.iter().any(u8::is_ascii_digit) && is_login_password(b"", text);
    let plausible = mixed || is_random_password(text);
    (at(view, end) == quote && plausible).then_some((place + 1, end))
}

/// The last field of `host:port:database:user:password`; `place` is in the port.
pub(crate) fn pgpass_password(view: &[u8], place: usize) -> Option<(usize, usize)> {
    let start = run_start(view, place, place.saturating_sub(120), |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'*' | b'/')
    });
    let end = run_end(view, place, place + MAX_LINE_BYTES, |byte| byte > b' ' && byte != 0x7f);
    let line = slice(view, start, end);
    let colons: Vec<usize> = line
        .iter()
        .enumerate()
        .filter(|(n, byte)| **byte == b':' && (*n == 0 || at(line, n - 1) != b'\\'))
        .map(|(n, _)| n)
        .take(4)
        .collect();
    let &[host, port, database, user] = colons.as_slice() else { return None };
    let number = slice(line, host + 1, port);
    let name = |from: usize, to: usize| {
        let text = slice(line, from, to);
        !text.is_empty()
            && text
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'*'))
    };
    // `arn:aws:logs:*:*:...` has a colon before it.
    let fits = host > 0
        && before(view, start) != b':'
        && start + host <= place + 1
        && (number == b"*"
            || (!number.is_empty() && number.len() <= 5 && number.iter().all(u8::is_ascii_digit)))
        && name(port + 1, database)
        && name(database + 1, user);
    let password = rest(line, user + 1);
    let quoted = starts_with_ignoring_case(password, b"\"") || starts_with_ignoring_case(password, b"'");
    (fits && !quoted && password.len() >= 5 && is_login_password(slice(line, database + 1, user), password))
        .then_some((start + user + 1, end))
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests slice strings that they created")]
mod tests {
    use super::*;

    // T21
    #[test]
    fn passwords_after_short_flags_are_found() {
        let found = |text: &'static str| {
            anchors()
                .filter_map(|program| text.find(program).map(|from| (from, from + program.len())))
                .find_map(|(from, after)| flag_password(text.as_bytes(), from, after))
                .map(|(from, to)| &text[from..to])
        };
        for (text, expected) in [
            ("mysql -u root -pq9Zx7pLm2 orders", Some("q9Zx7pLm2")),
            ("mysqldump -uroot -p'q9!Zx7pLm2' orders", Some("q9!Zx7pLm2")),
            ("sshpass -p q9Zx7pLm2 ssh ada@h", Some("q9Zx7pLm2")),
            ("sshpass -pq9Zx7pLm2 ssh ada@h", Some("q9Zx7pLm2")),
            ("redis-cli -h cache -a q9Zx7pLm2 ping", Some("q9Zx7pLm2")),
            ("docker login -u ada \\\n  -p q9Zx7pLm2 h", Some("q9Zx7pLm2")),
            ("\"mysql -u root -pq9Zx7pLm2\"", Some("q9Zx7pLm2")),
            ("mysql -u root -p", None),
            ("mysql -u root -p orders", None),
            ("mysql -u root -p$PASSWORD", None),
            ("mysql -h db | grep -pq9Zx7pLm2", None),
            ("docker login -u ada -p $TOKEN", None),
            ("mysql -u root -ppassword", None),
            ("the mysql documentation says -p", None),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    // T21
    #[test]
    fn passwords_in_sql_statements_and_pgpass_lines_are_found() {
        let found = |text: &'static str| {
            sql_identified(text.as_bytes(), text.find("IED ").unwrap() + 4).map(|(from, to)| &text[from..to])
        };
        assert_eq!(found("CREATE USER a IDENTIFIED BY 'q9Zx7pLm2';"), Some("q9Zx7pLm2"));
        assert_eq!(found("IDENTIFIED WITH caching_sha2_password BY \"q9Zx7pLm2\""), Some("q9Zx7pLm2"));
        assert_eq!(found("IDENTIFIED BY 'password'"), None);
        assert_eq!(found("IDENTIFIED in the 'q9Zx7pLm2'"), None);
        let found = |text: &'static str| {
            pgpass_password(text.as_bytes(), text.find(":5432:").unwrap_or(1))
                .map(|(from, to)| &text[from..to])
        };
        assert_eq!(found("db.internal:5432:orders:app:q9Zx7pLm2\n"), Some("q9Zx7pLm2"));
        assert_eq!(found("*:*:*:app:q9Z:x7pLm2\n"), Some("q9Z:x7pLm2"));
        for clean in ["db:5432:a:b", "h:5432:x y:a:q9Zx7pLm2", "http://h:5432:a:b:password"] {
            assert_eq!(found(clean), None, "{clean}");
        }
    }
}
