//! Whether a value that stands where a secret would stand is one. Placeholders, references to other places, code, words and
//! addresses are not; what a machine has made is recognised by how its letters are spread. Entropy counts only here,
//! inside a context, never alone.

use crate::bytes::{at, begins, contains, entropy};
use crate::context::Given;
use crate::names::Promise;

const PUBLISHED: &str = include_str!("../rules/published.txt");

/// How a value stands there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) quoted: bool,
    pub(crate) given: Given,
    /// The line begins with the name.
    pub(crate) own_line: bool,
    /// The name is written in capitals, as in an environment.
    pub(crate) capitals: bool,
    /// The telling word is the last of the name.
    pub(crate) last: bool,
}

const LONGEST_PLACEHOLDER: usize = 128;
/// Nobody types a longer password.
const LONGEST_PASSWORD: usize = 200;

/// Texts that a placeholder contains.
#[rustfmt::skip]
const PLACEHOLDERS: &[&str] = &[
    "example", "sample", "placeholder", "changeme", "change_me", "change-me", "change-this", "changethis",
    "replace", "your_", "your-", "yourp", "yours", "yourt", "yoursecret", "insert", "redacted", "xxxx", "****",
    "....", "dummy", "fixme", "<", "{{", "${", "$(", "not-a", "not_a", "todo", "my-secret", "my_secret", "mysecret",
    "supersecret", "super-secret", "super_secret", "fake", "mock", "secret-key", "secret_key", "secretkey",
    "api-key", "api_key", "apikey", "access_token", "accesstoken", "access-token", "goes-here", "goes_here",
    "goeshere", "notasecret", "topsecret", "top-secret", "undefined", "123456789012345678901234567890",
];
/// How a reference to another place begins.
#[rustfmt::skip]
const REFERENCES: &[&str] = &[
    "$", "%(", "%{", "{", "#{", "@{", "@", "process.env", "os.environ", "os.getenv", "getenv", "env.", "env(",
    "config.", "secrets.", "secret.", "var.", "vars.", "local.", "data.", "self.", "this.", "params.", "args.",
    "options.", "settings.", "vault:", "op://", "arn:", "projects/", "kms:", "ref+", "!", "http://", "https://",
    "file:", "/", "./", "../", "~/", "\\\\", "c:\\", "sha256:", "sha512-", "sha1-", "data:", "urn:", "mailto:", "&",
    "*", "(", "[", "function", "new ", "await ", "return ",
];
/// What people write where a secret would stand: told apart by nothing but these, it is none.
#[rustfmt::skip]
const DUMMIES: &[&str] = &[
    "password", "passwd", "passwort", "passphrase", "passcode", "pass", "pwd", "secret", "token", "key", "test",
    "testing", "tester", "foo", "bar", "baz", "qux", "admin", "root", "user", "username", "guest", "demo",
    "default", "value", "string", "text", "some", "my", "the", "a", "an", "is", "of", "for", "new", "old", "valid",
    "invalid", "wrong", "bad", "good", "correct", "incorrect", "real", "none", "null", "nil", "true", "false",
    "yes", "no", "on", "off", "abc", "abcd", "abcde", "abcdef", "xyz", "qwerty", "letmein", "hello", "world", "api",
    "auth", "login", "access", "client", "private", "public", "bearer", "basic", "session", "refresh", "id", "db",
    "database", "postgres", "mysql", "redis", "mongo", "rabbitmq", "app", "application", "dev", "prod",
    "production", "staging", "local", "localhost", "temp", "tmp", "random", "generated", "required", "optional",
    "empty", "blank", "hidden", "very", "super", "top", "strong", "weak", "simple", "short", "long", "first",
    "second", "another", "other", "same", "different", "one", "two", "three", "field", "input", "name", "type",
    "hash", "hashed", "salt", "encrypted", "plain", "data", "with", "and", "or", "not", "your", "here", "this",
    "that", "sekret", "seekrit", "passw", "word", "changeit", "letme", "in", "unknown", "error", "code", "number",
    "reset", "confirm", "check", "verify", "current", "next", "previous", "service", "server", "account", "email",
    "mail", "phone", "x", "y", "z", "b", "c", "v", "p", "w", "s", "t", "k", "i", "it", "to", "be", "me", "on", "at",
    "oauth", "jwt", "csrf", "scope", "grant", "credentials", "credential", "signature", "sign", "master", "primary",
    "secondary", "shared", "signing", "encryption", "storage", "cache", "config", "env", "variable", "param", "arg",
    "argument", "fixture", "stub", "spec", "case", "bot", "web", "http", "https", "url", "uri", "host", "port",
    "path", "file", "read", "write", "only", "all", "any", "expired", "missing", "unused", "bogus", "garbage",
    "whatever", "something", "anything", "nothing", "placeholder", "dummy", "sample", "example", "scott", "tiger",
    "security", "utf", "ascii", "latin", "passwords", "tokens", "secrets", "keys",
];

/// Whether a value is a secret.
pub(crate) fn is_secret(promise: Promise, value: &[u8], standing: Standing) -> bool {
    let value = value.trim_ascii();
    if value.len() < 4 || is_placeholder(value) || !value.is_ascii() && value.iter().any(|&byte| byte < b' ')
    {
        return false;
    }
    if value.iter().any(u8::is_ascii_whitespace) || is_path(value) || is_number(value) {
        return false;
    }
    // An argument beside the name says less than an assignment.
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    let odd = value.len() >= 8 || digits >= 2 || value.iter().any(u8::is_ascii_punctuation);
    if standing.given == Given::Beside
        && !(standing.last && odd && sorts(value) >= 2 && !is_identifier(value))
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
        Promise::Password => is_password(value, standing),
        Promise::Token => is_machine_made(value, standing, 10, 2.9) || is_long_number(value, standing),
        Promise::Key => is_machine_made(value, standing, 16, 3.2) && !is_uuid(value),
        Promise::AnyKey => is_random_key(value, standing),
        Promise::Service => {
            is_machine_made(value, standing, 16, 3.0) && !is_uuid(value) && standing.given != Given::Blank
        }
    }
}

/// Whether a standard or a manual prints it as its example.
pub(crate) fn is_published(value: &[u8]) -> bool {
    PUBLISHED.lines().any(|line| line.as_bytes() == value && !line.starts_with('#'))
}

/// Whether it only stands for a value: `${VAR}`, `<password>`, `changeme`, a path, an address.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    // Placeholders are short; a long value is not searched to its end for each of the words.
    let value = value.get(..LONGEST_PLACEHOLDER).unwrap_or(value);
    let first = at(value, 0);
    let one_letter = value.iter().all(|byte| *byte == first);
    one_letter
        || contains(value, b"[REDACTED:")
        || PLACEHOLDERS.iter().any(|word| contains(value, word.as_bytes()))
        || REFERENCES
            .iter()
            .any(|start| begins(value, start.as_bytes()) && !stands_alone(value, start.as_bytes()))
        || (first == b'%' && value.last() == Some(&b'%'))
        || (first == b'_' && value.last() == Some(&b'_'))
        || value == b"REDACTED"
        || value.windows(2).any(|two| two == b"..")
}

/// A sign that begins references also begins passwords: `$ecret1!`, `@dm1n-77`, `/x9Kd8..`.
fn stands_alone(value: &[u8], start: &[u8]) -> bool {
    let tail = value.get(start.len()..).unwrap_or_default();
    match start {
        b"$" | b"@" | b"*" | b"&" | b"!" => {
            let odd = tail.iter().any(|byte| {
                !byte.is_ascii_alphanumeric()
                    && !matches!(
                        byte,
                        b'_' | b'.' | b':' | b'-' | b'>' | b'{' | b'}' | b'(' | b')' | b'[' | b']'
                    )
            });
            odd && tail.iter().any(u8::is_ascii_digit) && tail.len() >= 6
        }
        b"/" => {
            tail.len() >= 24
                && tail.iter().filter(|byte| **byte == b'/').count() <= tail.len() / 12
                && entropy(tail) > 4.0
                && tail.iter().any(u8::is_ascii_digit)
                && tail.iter().any(u8::is_ascii_uppercase)
        }
        _ => false,
    }
}

/// What a person may have thought up: more than one sort of character, and more than the words of every example.
fn is_password(value: &[u8], standing: Standing) -> bool {
    let bare = !standing.quoted;
    if value.len() < 5
        || value.len() > LONGEST_PASSWORD
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
        && standing.given != Given::Beside
        && entropy(value) >= 3.5
        && value
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'='))
        && !is_uuid(value)
        && is_machine_made(value, standing, 20, 3.5)
        && !value.split(|byte| !byte.is_ascii_alphanumeric()).all(|word| word.len() < 8)
}

/// How many of small letters, capitals, digits and signs there are.
fn sorts(value: &[u8]) -> usize {
    let has = |sort: fn(&u8) -> bool| usize::from(value.iter().any(sort));
    has(u8::is_ascii_lowercase)
        + has(u8::is_ascii_uppercase)
        + has(u8::is_ascii_digit)
        + has(u8::is_ascii_punctuation)
        + has(|byte| !byte.is_ascii())
}

/// An expression of a program rather than a text.
fn is_code(value: &[u8]) -> bool {
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
    // `e.HEX=e.MARK=`: one assignment after another.
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

/// Letters written as digits and signs, and as escapes, are letters again: `s3cr3t`, `verschl\u00fcsselt`.
fn plain_letters(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut i = 0;
    while i < value.len() {
        let two = (at(value, i), at(value, i + 1));
        let (letter, width) = match two {
            (b'\\', b'u') => (b'u', 6),
            (b'\\', b'x') => (b'x', 4),
            (b'0', _) => (b'o', 1),
            (b'1', _) => (b'i', 1),
            (b'3', _) => (b'e', 1),
            (b'4' | b'@', _) => (b'a', 1),
            (b'5' | b'$', _) => (b's', 1),
            (b'7', _) => (b't', 1),
            (byte, _) => (byte.to_ascii_lowercase(), 1),
        };
        out.push(letter);
        i += width;
    }
    out
}

/// `source@address`, `someone@example.org`: small letters alone on both sides.
fn is_address(value: &[u8]) -> bool {
    let mut sides = value.split(|byte| *byte == b'@');
    let plain = |side: Option<&[u8]>| {
        side.is_some_and(|side| {
            side.len() >= 4
                && side.iter().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'.' | b'-'))
        })
    };
    plain(sides.next()) && plain(sides.next()) && sides.next().is_none()
}

/// Names of programs seldom end in a number; passwords that people think up often do.
fn ends_in_number(value: &[u8]) -> bool {
    value.len() >= 2 && value.iter().rev().take(2).all(u8::is_ascii_digit)
}

/// A path of files: `a/b/c.rs`, `x.*.y`.
fn is_path(value: &[u8]) -> bool {
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

/// `x.rs`, `x.tar`: one to four small letters after the last dot.
fn ends_as_file(value: &[u8]) -> bool {
    let ending = value.iter().rev().take_while(|byte| byte.is_ascii_lowercase()).count();
    (1..=4).contains(&ending) && value.len().checked_sub(ending + 1).is_some_and(|dot| at(value, dot) == b'.')
}

/// `Mistral3ForConditionalGeneration`: words written together, each begun by a capital.
pub(crate) fn is_camel(value: &[u8]) -> bool {
    let capitals = value.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let digits = value.iter().filter(|byte| byte.is_ascii_digit()).count();
    capitals >= 2 && capitals * 4 < value.len() && digits <= 2 && is_identifier(value)
}

/// Data packed into a text, such as a parser's tables: longer than a token, full of signs that tokens do not have.
fn is_table(value: &[u8]) -> bool {
    let signs = |byte: &&u8| {
        !byte.is_ascii_alphanumeric()
            && !matches!(**byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'.' | b':' | b'~' | b'%' | b'|')
    };
    value.len() > 64 && value.iter().filter(signs).count() * 8 > value.len()
}

/// `OBJ_pkcs12_BagIds`: words joined by `_`, each with a short number at most.
fn is_snake(value: &[u8]) -> bool {
    value.contains(&b'_')
        && value.split(|byte| *byte == b'_').all(|word| {
            let letters = word.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
            (1..=12).contains(&letters)
                && word.len() - letters <= 3
                && word.iter().skip(letters).all(u8::is_ascii_digit)
        })
}

/// `65535i32`, `0xff`, `1_000`.
fn is_number(value: &[u8]) -> bool {
    // What follows a sign is no part of it: `0x10,/*`.
    let end = value.iter().position(|byte| matches!(byte, b',' | b';' | b')')).unwrap_or(value.len());
    let value = value.get(..end).unwrap_or(value);
    let hex = begins(value, b"0x") && value.len() <= 18;
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'_').count();
    let suffix = value.get(digits..).unwrap_or_default();
    let typed = digits > 0
        && (suffix.is_empty()
            || (suffix.len() <= 5
                && matches!(at(suffix, 0), b'i' | b'u' | b'f' | b'n' | b'l' | b'L' | b'U')));
    (hex && value.iter().skip(2).all(u8::is_ascii_hexdigit)) || (typed && value.len() < 16)
}

/// A name of a program: `ClientCapabilities2026Schema`, `anon_sym_RBRACE3`, `pkcs-9-at-pkcs15Token`. Words in it are long, digits few.
fn is_identifier(value: &[u8]) -> bool {
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

/// Nothing but words of the trade and simple numbers: `my-test-token-1`, `PASSWORD_FIELD`, `secret123`.
fn is_words(value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    // Split where letters, digits and signs meet, and where capitals begin.
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut from = 0;
    for n in 1..=value.len() {
        let (last, next) = (at(value, n - 1), at(value, n));
        let sort = |byte: u8| {
            if byte.is_ascii_digit() {
                1
            } else if byte.is_ascii_alphabetic() {
                2
            } else {
                3
            }
        };
        if n == value.len()
            || sort(last) != sort(next)
            || (last.is_ascii_lowercase() && next.is_ascii_uppercase())
        {
            pieces.push(lower.get(from..n).unwrap_or_default());
            from = n;
        }
    }
    // In a long value a run of letters or digits is as good as any other.
    let long = value.len() >= 16 && pieces.len() >= 2;
    let is_sequence = |piece: &[u8]| is_sequence(piece) && !(long && piece.len() > 4);
    let wordy = pieces.iter().any(|piece| piece.len() >= 4 && is_dummy(piece));
    let trivial = |piece: &[u8]| {
        let is = |sort: fn(&u8) -> bool| piece.iter().all(sort);
        if is(u8::is_ascii_digit) {
            return piece.len() <= 4 || is_sequence(piece);
        }
        if is(u8::is_ascii_alphabetic) {
            // Single letters are words only among words.
            return (is_sequence(piece) && piece.len() > 3)
                || (is_dummy(piece) && (piece.len() > 1 || wordy));
        }
        true
    };
    let unknown: usize = pieces.iter().filter(|piece| !trivial(piece)).map(|piece| piece.len()).sum();
    if unknown == 0 {
        return true;
    }
    // `secret-3-levels`, `test_user_pass`: plain words around one of the trade.
    let plain = pieces.iter().all(|piece| {
        let word = piece.iter().all(u8::is_ascii_alphabetic);
        !word || piece.len() >= 3 || is_dummy(piece)
    });
    let numbers = pieces.iter().filter(|piece| piece.iter().all(u8::is_ascii_digit)).count();
    let trade =
        pieces.iter().any(|piece| piece.len() >= 3 && DUMMIES.iter().any(|dummy| dummy.as_bytes() == *piece));
    let words = pieces.iter().filter(|piece| piece.iter().all(u8::is_ascii_alphabetic)).count();
    if plain
        && trade
        && words >= 2
        && numbers <= 1
        && sorts(value) <= 3
        && value
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'%'))
    {
        return true;
    }
    // Words joined by signs, without a digit: a name, a path, a sentence.
    let digits = value.iter().any(u8::is_ascii_digit);
    let joined = value.iter().all(|byte| {
        byte.is_ascii_alphabetic()
            || matches!(byte, b'_' | b'-' | b'.' | b':' | b'/' | b' ' | b',' | b'!' | b'?')
    });
    !digits
        && joined
        && pieces.len() > 1
        && pieces.iter().all(|piece| piece.iter().all(|byte| !byte.is_ascii_alphabetic()) || piece.len() >= 2)
        && sorts(value) < 4
        || (unknown <= 2 && value.len() < 12 && pieces.len() <= 3)
}

/// A word of every example, in small letters.
pub(crate) fn is_dummy_word(word: &[u8]) -> bool {
    DUMMIES.iter().any(|dummy| dummy.as_bytes() == word)
}

/// The same, or several of them written together.
fn is_dummy(word: &[u8]) -> bool {
    if is_dummy_word(word) {
        return true;
    }
    (2..word.len().saturating_sub(1)).any(|cut| {
        let (head, tail) = word.split_at(cut);
        let is = |part: &[u8]| DUMMIES.iter().any(|dummy| dummy.as_bytes() == part);
        is(head) && is(tail)
    })
}

/// `1234`, `abcd`, `9876`, `1111`.
fn is_sequence(piece: &[u8]) -> bool {
    let steps: Vec<i16> = piece.windows(2).map(|two| i16::from(at(two, 1)) - i16::from(at(two, 0))).collect();
    piece.len() >= 2
        && [0, 1, -1]
            .iter()
            .any(|step| steps.iter().all(|found| found == step || (*step == 1 && *found == -9)))
}

/// Letters of both cases as no words have them: a third to two thirds are capitals, and they lie scattered.
fn is_mixed(value: &[u8]) -> bool {
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

/// Whether a password in an address, a command line or `.netrc` is one: anything but a word of every example.
pub(crate) fn is_login_password(user: &[u8], password: &[u8]) -> bool {
    password.len() >= 3
        && !password.eq_ignore_ascii_case(user)
        && !is_placeholder(password)
        && !password.iter().any(|byte| matches!(byte, b'{' | b'}' | b'<' | b'>' | b'(' | b')' | b'*' | b' '))
        && (!is_words(password) || is_mixed(password))
        && (password.len() >= 6 || !password.iter().all(u8::is_ascii_digit))
}
