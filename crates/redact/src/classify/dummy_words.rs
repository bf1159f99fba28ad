//! Dummy words: the vocabulary of examples and of code about secrets, and values that consist of nothing else.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::shape::char_classes;
use crate::bytes::at;

/// What people write in place of a secret. A value made of these alone is not one.
#[rustfmt::skip]
const DUMMY_WORDS: &[&str] = &[
    "password", "passwd", "passwort", "passphrase", "passcode", "pass", "psw", "pwd", "secret", "token", "key", "test",
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
    "security", "sshpass", "utf", "ascii", "latin", "passwords", "tokens", "secrets", "keys",
];

/// Only dummy words and simple numbers: `my-test-token-1`, `PASSWORD_FIELD`, `secret123`.
pub(super) fn is_dummy_phrase(value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    // Split where letters, digits and punctuation meet, and before upper case.
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
    // In a long value, a sequence proves nothing.
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
    // `secret-3-levels`, `test_user_pass`: plain words around a dummy word.
    let plain = pieces.iter().all(|piece| {
        let word = piece.iter().all(u8::is_ascii_alphabetic);
        !word || piece.len() >= 3 || is_dummy(piece)
    });
    let numbers = pieces.iter().filter(|piece| piece.iter().all(u8::is_ascii_digit)).count();
    let trade = pieces.iter().any(|piece| piece.len() >= 3 && is_dummy_word(piece));
    let words = pieces.iter().filter(|piece| piece.iter().all(u8::is_ascii_alphabetic)).count();
    if plain
        && trade
        && words >= 2
        && numbers <= 1
        && char_classes(value) <= 3
        && value
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'%'))
    {
        return true;
    }
    // Words joined by punctuation, without a digit: a name, a path, a sentence.
    let digits = value.iter().any(u8::is_ascii_digit);
    let joined = value.iter().all(|byte| {
        byte.is_ascii_alphabetic()
            || matches!(byte, b'_' | b'-' | b'.' | b':' | b'/' | b' ' | b',' | b'!' | b'?')
    });
    !digits
        && joined
        && pieces.len() > 1
        && pieces.iter().all(|piece| piece.iter().all(|byte| !byte.is_ascii_alphabetic()) || piece.len() >= 2)
        && char_classes(value) < 4
        || (unknown <= 2 && value.len() < 12 && pieces.len() <= 3)
}

/// Whether a lower-case word is a dummy word.
pub(crate) fn is_dummy_word(word: &[u8]) -> bool {
    static SET: OnceLock<HashSet<&'static [u8]>> = OnceLock::new();
    SET.get_or_init(|| DUMMY_WORDS.iter().map(|dummy| dummy.as_bytes()).collect()).contains(word)
}

/// Likewise, or two dummy words joined.
fn is_dummy(word: &[u8]) -> bool {
    if is_dummy_word(word) {
        return true;
    }
    (2..word.len().saturating_sub(1)).any(|cut| {
        let (head, tail) = word.split_at(cut);
        is_dummy_word(head) && is_dummy_word(tail)
    })
}

/// `1234`, `abcd`, `9876`, `1111`.
pub(super) fn is_sequence(piece: &[u8]) -> bool {
    let steps: Vec<i16> = piece.windows(2).map(|two| i16::from(at(two, 1)) - i16::from(at(two, 0))).collect();
    piece.len() >= 2
        && [0, 1, -1]
            .iter()
            .any(|step| steps.iter().all(|found| found == step || (*step == 1 && *found == -9)))
}

/// Maps look-alike digits and punctuation, and escapes, back to letters: `s3cr3t`, `verschl\u00fcsselt`.
pub(super) fn plain_letters(value: &[u8]) -> Vec<u8> {
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
