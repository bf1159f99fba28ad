//! Values that only stand for a secret: placeholders, references to where the value is stored, the printed examples of
//! standards.

use std::sync::OnceLock;

use crate::bytes::{at, contains_ignoring_case, entropy, rest, run_end, starts_with_ignoring_case};

const PUBLISHED_EXAMPLES: &str = include_str!("../../rules/published.txt");
const MAX_PLACEHOLDER_BYTES: usize = 128;
/// Texts that a placeholder contains.
#[rustfmt::skip]
const PLACEHOLDERS: &[&str] = &[
    "example", "sample", "placeholder", "changeme", "change_me", "change-me", "change-this", "changethis",
    "replace", "your_", "your-", "yourp", "yours", "yourt", "yoursecret", "insert", "redacted", "xxxx", "****",
    "....", "dummy", "fixme", "<", "{{", "${", "$(", "not-a", "not_a", "todo", "my-secret", "my_secret", "mysecret",
    "supersecret", "super-secret", "super_secret", "fake", "mock", "secret-key", "secret_key", "secretkey",
    "api-key", "api_key", "apikey", "access_token", "accesstoken", "access-token", "goes-here", "goes_here",
    "goeshere", "notasecret", "topsecret", "top-secret", "undefined", "abcdefghijklmnop", "123456789012345678901234567890",
];

/// How references begin.
#[rustfmt::skip]
const REFERENCES: &[&str] = &[
    "$", "%(", "%{", "{", "#{", "@{", "@", "process.env", "os.environ", "os.getenv", "getenv", "env.", "env(",
    "config.", "secrets.", "secret.", "var.", "vars.", "local.", "data.", "self.", "this.", "params.", "args.",
    "options.", "settings.", "vault:", "op://", "arn:", "projects/", "kms:", "ref+", "!", "http://", "https://",
    "file:", "/", "./", "../", "~/", "\\\\", "c:\\", "sha256:", "sha512-", "sha1-", "data:", "urn:", "mailto:", "&",
    "*", "(", "[", "function", "return!", "new ", "await ", "return ",
];

/// Whether a standard or manual prints this value as its example.
pub(crate) fn is_published(value: &[u8]) -> bool {
    PUBLISHED_EXAMPLES.lines().any(|line| line.as_bytes() == value && !line.starts_with('#'))
}

/// Whether a value only stands for another: `${VAR}`, `<password>`, `changeme`, a path, a URL.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    // Placeholders are short; a long value is not searched to its end for each of the words.
    let value = value.get(..MAX_PLACEHOLDER_BYTES).unwrap_or(value);
    let first = at(value, 0);
    let one_letter = value.iter().all(|byte| *byte == first);
    one_letter
        || contains_ignoring_case(value, b"[REDACTED:")
        || contains_word(value, |_| true)
        || REFERENCES.iter().any(|start| {
            starts_with_ignoring_case(value, start.as_bytes())
                && !is_password_not_reference(value, start.as_bytes())
        })
        || (first == b'%' && value.last() == Some(&b'%'))
        || (first == b'_' && value.last() == Some(&b'_'))
        || value == b"REDACTED"
        || value.windows(2).any(|two| two == b"..")
}

/// Likewise for a value that looks random: punctuation says nothing there; words and whole forms do.
pub(crate) fn is_placeholder_or_reference(value: &[u8]) -> bool {
    let value = value.get(..MAX_PLACEHOLDER_BYTES).unwrap_or(value);
    let signs = |word: &&&str| word.bytes().any(|byte| byte.is_ascii_alphabetic());
    let closed = |open: &[u8], close: u8| value.starts_with(open) && value.last() == Some(&close);
    contains_ignoring_case(value, b"[REDACTED:")
        || contains_ignoring_case(value, b"****")
        || contains_ignoring_case(value, b"...")
        || SECRET_WORDS.iter().any(|word| contains_ignoring_case(value, word.as_bytes()))
        || has_template_field(value)
        || contains_word(value, |word| word.iter().any(u8::is_ascii_alphabetic))
        || REFERENCES.iter().filter(signs).any(|start| starts_with_ignoring_case(value, start.as_bytes()))
        || closed(b"${", b'}')
        || closed(b"$(", b')')
        || closed(b"{", b'}')
        || closed(b"<", b'>')
        || closed(b"%", b'%')
        || closed(b"[", b']')
        || contains_ignoring_case(value, b"{{") && contains_ignoring_case(value, b"}}")
}

/// Whether a text contains one of the words that `wanted` accepts. The words are indexed by first letter, so each
/// position is compared with a few.
fn contains_word(value: &[u8], wanted: impl Fn(&[u8]) -> bool) -> bool {
    static BY_LETTER: OnceLock<Vec<Vec<&'static [u8]>>> = OnceLock::new();
    let by_letter = BY_LETTER.get_or_init(|| {
        let mut all = vec![Vec::new(); 256];
        for word in PLACEHOLDERS.iter().map(|word| word.as_bytes()) {
            if let Some(those) = all.get_mut(usize::from(at(word, 0))) {
                those.push(word);
            }
        }
        all
    });
    value.iter().enumerate().any(|(place, byte)| {
        let those =
            by_letter.get(usize::from(byte.to_ascii_lowercase())).map(Vec::as_slice).unwrap_or_default();
        those.iter().any(|word| starts_with_ignoring_case(rest(value, place), word) && wanted(word))
    })
}

/// Names of the thing itself: `p4passwd`, `tokenXyz`.
const SECRET_WORDS: &[&str] = &["passw", "passphrase", "secret", "token", "credential"];

/// `prefix-{name}`: a template field that is filled in later.
fn has_template_field(value: &[u8]) -> bool {
    value.iter().enumerate().filter(|(_, byte)| **byte == b'{').any(|(n, _)| {
        let end = run_end(value, n + 1, value.len(), |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
        });
        end > n + 1 && at(value, end) == b'}'
    })
}

/// A character that begins references also begins passwords: `$ecret1!`, `@dm1n-77`, `/x9Kd8..`.
fn is_password_not_reference(value: &[u8], start: &[u8]) -> bool {
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
