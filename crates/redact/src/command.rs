//! Passwords that a program takes by a short flag (`mysql -pSECRET`, `sshpass -p SECRET`, `redis-cli -a SECRET`, `docker login -p SECRET`), and
//! those of statements and files without a name before them: `IDENTIFIED BY '...'`, a line of `.pgpass`.

use crate::bytes::{at, before, begins, contains, is_blank, part, rest, run, run_back};
use crate::judge::{is_drawn_password, is_login_password};

/// The longest command line that is looked at.
const LINE: usize = 2400;

/// Words of a command line that are looked at.
const WORDS: usize = 40;
/// Flags of it that may be the one.
const FLAGS_ASKED: usize = 3;

/// How a program takes its password.
struct Flag {
    program: &'static str,
    flag: &'static [u8],
    /// Whether the password may also, or must, stand right behind the flag.
    joined: Joined,
}

/// What stands between user and password where a flag takes both.
fn split(program: &str) -> Option<u8> {
    match program {
        "smbclient " => Some(b'%'),
        "lftp " => Some(b','),
        "curl " => Some(b':'),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Joined {
    Never,
    May,
    Must,
}

/// The programs; what is looked for is the name with a blank.
#[rustfmt::skip]
const FLAGS: &[Flag] = &[
    Flag { program: "mysql ", flag: b"-p", joined: Joined::Must },
    Flag { program: "mysqldump ", flag: b"-p", joined: Joined::Must },
    Flag { program: "mysqladmin ", flag: b"-p", joined: Joined::Must },
    Flag { program: "mysqlimport ", flag: b"-p", joined: Joined::Must },
    Flag { program: "mariadb ", flag: b"-p", joined: Joined::Must },
    Flag { program: "mariadb-dump ", flag: b"-p", joined: Joined::Must },
    Flag { program: "sshpass ", flag: b"-p", joined: Joined::May },
    Flag { program: "redis-cli ", flag: b"-a", joined: Joined::Never },
    Flag { program: "docker login ", flag: b"-p", joined: Joined::Never },
    Flag { program: "podman login ", flag: b"-p", joined: Joined::Never },
    Flag { program: "registry login ", flag: b"-p", joined: Joined::Never },
    Flag { program: "oras login ", flag: b"-p", joined: Joined::Never },
    Flag { program: "az login ", flag: b"-p", joined: Joined::Never },
    Flag { program: "oc login ", flag: b"-p", joined: Joined::Never },
    Flag { program: "mongo ", flag: b"-p", joined: Joined::May },
    Flag { program: "mongosh ", flag: b"-p", joined: Joined::May },
    Flag { program: "mongodump ", flag: b"-p", joined: Joined::May },
    Flag { program: "mongorestore ", flag: b"-p", joined: Joined::May },
    Flag { program: "ldapsearch ", flag: b"-w", joined: Joined::May },
    Flag { program: "ldapmodify ", flag: b"-w", joined: Joined::May },
    Flag { program: "ldapadd ", flag: b"-w", joined: Joined::May },
    Flag { program: "sqlcmd ", flag: b"-P", joined: Joined::May },
    Flag { program: "zip ", flag: b"-P", joined: Joined::May },
    Flag { program: "7z ", flag: b"-p", joined: Joined::Must },
    Flag { program: "smbclient ", flag: b"-U", joined: Joined::May },
    Flag { program: "lftp ", flag: b"-u", joined: Joined::May },
    Flag { program: "bcp ", flag: b"-P", joined: Joined::May },
    Flag { program: "curl ", flag: b"-u", joined: Joined::May },
    Flag { program: "psexec ", flag: b"-p", joined: Joined::Never },
    Flag { program: "openssl enc ", flag: b"-k", joined: Joined::Never },
    Flag { program: "xfreerdp ", flag: b"/p:", joined: Joined::Must },
    // Without a flag: whatever of the words was drawn.
    Flag { program: "net use ", flag: b"", joined: Joined::Must },
    Flag { program: "net user ", flag: b"", joined: Joined::Must },
    Flag { program: "htpasswd ", flag: b"", joined: Joined::Must },
];

/// What scanning looks for.
pub(crate) fn programs() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().map(|flag| flag.program)
}

/// The password on the command line whose program stands from `from` to `after`.
pub(crate) fn password(view: &[u8], from: usize, after: usize) -> Option<(usize, usize)> {
    let told = part(view, from, after);
    let known = FLAGS.iter().find(|flag| told.eq_ignore_ascii_case(flag.program.as_bytes()))?;
    let (mut place, mut flags) = (after, 0);
    for _ in 0..WORDS {
        let (start, end) = word(view, place, after + LINE)?;
        place = end;
        let text = part(view, start, end);
        if known.flag.is_empty() {
            let value = unquoted(view, (start, end));
            let text = part(view, value.0, value.1);
            if is_replaced(text) {
                return None;
            }
            let named = text.iter().any(|byte| matches!(byte, b'/' | b'\\')) || text.starts_with(b"-");
            if !named && is_drawn_password(text) {
                return Some(value);
            }
            continue;
        }
        // `curl -sSu user:password`
        let bundled = known.program == "curl " && text.starts_with(b"-") && text.ends_with(b"u") && {
            part(text, 1, text.len()).iter().all(u8::is_ascii_alphabetic)
        };
        if !text.starts_with(known.flag) && !bundled {
            continue;
        }
        flags += 1;
        if flags > FLAGS_ASKED {
            return None;
        }
        let value = match (text.len() == known.flag.len() || bundled, known.joined) {
            (true, Joined::Must) | (false, Joined::Never) => continue,
            (true, _) => word(view, end, after + LINE)?,
            (false, _) => (start + known.flag.len(), end),
        };
        let mut value = unquoted(view, value);
        if let Some(sign) = split(known.program) {
            value.0 = run(view, value.0, value.1, |byte| byte != sign) + 1;
        }
        let text = part(view, value.0, value.1);
        if is_typed(text) || is_replaced(text) {
            return Some(value).filter(|_| !is_replaced(text));
        }
    }
    None
}

/// A password that was replaced is the one of its line: no other is looked for in its place.
fn is_replaced(text: &[u8]) -> bool {
    memchr::memmem::find(text, crate::placeholder::MARK).is_some()
}

/// What stands where only a password stands.
fn is_typed(text: &[u8]) -> bool {
    let told = is_login_password(b"", text) && text.iter().any(u8::is_ascii_digit);
    text.len() >= 5 && (told || is_drawn_password(text))
}

/// `echo PASSWORD | docker login --password-stdin`, `echo user:PASSWORD | chpasswd`: what is given to the program that is named at a place.
pub(crate) fn piped(view: &[u8], program: usize) -> Option<(usize, usize)> {
    let line = run_back(view, program, program.saturating_sub(400), |byte| !matches!(byte, b'\n' | b'\r'));
    let pipe = line + memchr::memrchr(b'|', part(view, line, program))?;
    let told = |word: &[u8]| {
        memchr::memmem::rfind(part(view, line, pipe), word).map(|place| line + place + word.len())
    };
    let (mut place, mut last) = (told(b"echo ").or_else(|| told(b"printf "))?, None);
    while let Some(next) = word(view, place, pipe) {
        (place, last) = (next.1, Some(next));
    }
    let (mut start, end) = unquoted(view, last?);
    if rest(view, program).starts_with(b"chpasswd") {
        start = run(view, start, end, |byte| byte != b':') + 1;
    }
    is_typed(part(view, start, end)).then_some((start, end))
}

/// The last word of `AUTH PASSWORD` or `AUTH user PASSWORD`, a line of its own or behind a prompt; also as the protocol counts its words.
pub(crate) fn auth(view: &[u8], from: usize, after: usize) -> Option<(usize, usize)> {
    let line = run_back(view, from, from.saturating_sub(120), |byte| !matches!(byte, b'\n' | b'\r'));
    let head = part(view, line, from).trim_ascii_end();
    if !(head.is_empty() || matches!(head.last(), Some(b'>' | b'"' | b'\''))) {
        return None;
    }
    let counted = at(view, after) == b'$';
    let (mut place, mut last) = (after, None);
    for _ in 0..2 {
        if counted {
            let number = run(view, place + 1, place + 8, |byte| byte.is_ascii_digit());
            place = run(view, number, number + 2, |byte| matches!(byte, b'\n' | b'\r'));
        }
        let Some(next) = word(view, place, after + LINE) else { break };
        place = if counted {
            run(view, next.1, next.1 + 2, |byte| matches!(byte, b'\n' | b'\r'))
        } else {
            next.1
        };
        last = Some(next);
        if counted && at(view, place) != b'$' {
            break;
        }
    }
    let mut value = unquoted(view, last?);
    // `"AUTH ..."`: to the quote.
    if let Some(quote) = head.last().filter(|byte| **byte != b'>') {
        value.1 = run(view, value.0, value.1, |byte| byte != *quote);
    }
    let ends = counted || matches!(at(view, place), b'\n' | b'\r' | 0 | b'\\');
    let text = part(view, value.0, value.1);
    // `AUTH CRAM-MD5`: how, not with what.
    let means = text.len() < 20
        && text.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'-');
    (ends && !means && is_drawn_password(text)).then_some(value)
}

/// The next word of a command line: up to a blank outside of quotes.
fn word(view: &[u8], place: usize, limit: usize) -> Option<(usize, usize)> {
    let mut start = run(view, place, limit, is_blank);
    // The line goes on.
    while at(view, start) == b'\\' && matches!(at(view, start + 1), b'\n' | b'\r') {
        start = run(view, start + 1, limit, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
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
    let stop = matches!(part(view, start, end), b"|" | b"||" | b"&&" | b";" | b"&");
    (end > start && !stop).then_some((start, end))
}

fn unquoted(view: &[u8], (start, end): (usize, usize)) -> (usize, usize) {
    let quote = at(view, start);
    if matches!(quote, b'"' | b'\'') && end > start + 1 {
        return (start + 1, run(view, start + 1, end, |byte| byte != quote));
    }
    // What closes a text around the whole command is no part of it.
    (start, run_back(view, end, start, |byte| matches!(byte, b'"' | b'\'' | b'`' | b';')))
}

/// The second of two texts that a call is given, the first of which is a user: `HTTPBasicAuth("ada", "...")`.
pub(crate) fn arguments(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let text = |place: usize| {
        let start = run(view, place, place + 40, |byte| is_blank(byte) || matches!(byte, b'\n' | b'\r'));
        let quote = at(view, start);
        let end = run(view, start + 1, start + 1 + LINE, |byte| byte != quote && byte >= b' ');
        (matches!(quote, b'"' | b'\'') && at(view, end) == quote).then_some((start + 1, end))
    };
    // `getConnection(url, "ada", "...")`
    let connects = part(view, 0, after).to_ascii_lowercase().ends_with(b"getconnection(");
    let comma = connects.then(|| run(view, after, after + 300, |byte| byte != b',' && byte >= b' '));
    let user = text(comma.map_or(after, |comma| comma + 1))?;
    let comma = run(view, user.1 + 1, user.1 + 9, is_blank);
    let password = text((at(view, comma) == b',').then_some(comma + 1)?)?;
    let (user, told) = (part(view, user.0, user.1), part(view, password.0, password.1));
    let mixed = told.iter().any(u8::is_ascii_digit) && told.len() >= 6 && is_login_password(user, told);
    (mixed || is_drawn_password(told)).then_some(password)
}

/// The text of `IDENTIFIED [WITH x] BY [PASSWORD] '...'`, whose first word ends at `after`.
pub(crate) fn identified(view: &[u8], after: usize) -> Option<(usize, usize)> {
    let mut place = after;
    for _ in 0..5 {
        let end = run(view, place, place + 40, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let next = run(view, end, end + 4, is_blank);
        if next == end {
            break;
        }
        place = next;
    }
    let quote = at(view, place);
    let by = contains(part(view, after, place), b"by ");
    if !by || !matches!(quote, b'"' | b'\'') {
        return None;
    }
    let end = run(view, place + 1, place + 1 + LINE, |byte| byte != quote && byte >= b' ');
    let text = part(view, place + 1, end);
    // "the thing identified by 'sequence'" is no statement.
    let mixed = text.iter().any(u8::is_ascii_digit) && is_login_password(b"", text);
    let told = mixed || is_drawn_password(text);
    (at(view, end) == quote && told).then_some((place + 1, end))
}

/// The last of `host:port:database:user:password`, whose port stands around `place`.
pub(crate) fn pgpass(view: &[u8], place: usize) -> Option<(usize, usize)> {
    let start = run_back(view, place, place.saturating_sub(120), |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'*' | b'/')
    });
    let end = run(view, place, place + LINE, |byte| byte > b' ' && byte != 0x7f);
    let line = part(view, start, end);
    let colons: Vec<usize> = line
        .iter()
        .enumerate()
        .filter(|(n, byte)| **byte == b':' && (*n == 0 || at(line, n - 1) != b'\\'))
        .map(|(n, _)| n)
        .take(4)
        .collect();
    let &[host, port, database, user] = colons.as_slice() else { return None };
    let number = part(line, host + 1, port);
    let name = |from: usize, to: usize| {
        let text = part(line, from, to);
        !text.is_empty()
            && text
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'*'))
    };
    // `arn:aws:logs:*:*:...` has more before it.
    let fits = host > 0
        && before(view, start) != b':'
        && start + host <= place + 1
        && (number == b"*"
            || (!number.is_empty() && number.len() <= 5 && number.iter().all(u8::is_ascii_digit)))
        && name(port + 1, database)
        && name(database + 1, user);
    let password = rest(line, user + 1);
    let quoted = begins(password, b"\"") || begins(password, b"'");
    (fits && !quoted && password.len() >= 5 && is_login_password(part(line, database + 1, user), password))
        .then_some((start + user + 1, end))
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests cut the texts they have made")]
mod tests {
    use super::*;

    // T21
    #[test]
    fn passwords_behind_short_flags() {
        let found = |text: &'static str| {
            programs()
                .filter_map(|program| text.find(program).map(|from| (from, from + program.len())))
                .find_map(|(from, after)| password(text.as_bytes(), from, after))
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
    fn statements_and_lines_of_pgpass() {
        let found = |text: &'static str| {
            identified(text.as_bytes(), text.find("IED ").unwrap() + 4).map(|(from, to)| &text[from..to])
        };
        assert_eq!(found("CREATE USER a IDENTIFIED BY 'q9Zx7pLm2';"), Some("q9Zx7pLm2"));
        assert_eq!(found("IDENTIFIED WITH caching_sha2_password BY \"q9Zx7pLm2\""), Some("q9Zx7pLm2"));
        assert_eq!(found("IDENTIFIED BY 'password'"), None);
        assert_eq!(found("IDENTIFIED in the 'q9Zx7pLm2'"), None);
        let found = |text: &'static str| {
            pgpass(text.as_bytes(), text.find(":5432:").unwrap_or(1)).map(|(from, to)| &text[from..to])
        };
        assert_eq!(found("db.internal:5432:orders:app:q9Zx7pLm2\n"), Some("q9Zx7pLm2"));
        assert_eq!(found("*:*:*:app:q9Z:x7pLm2\n"), Some("q9Z:x7pLm2"));
        for clean in ["db:5432:a:b", "h:5432:x y:a:q9Zx7pLm2", "http://h:5432:a:b:password"] {
            assert_eq!(found(clean), None, "{clean}");
        }
    }
}
