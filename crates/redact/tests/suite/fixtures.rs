//! Redactors and texts for the tests. Tokens are concatenated here, so that no scanner finds one in this file.

use vambrace_core::redacted::Redact as _;
use vambrace_redact::{KnownValue, Redactor, RuleSet, SecretBytes};

pub(crate) fn redactor(values: &[&str]) -> Redactor {
    Redactor::new(RuleSet::built_in().unwrap(), &known(values), &[], &[7; 32])
}

pub(crate) fn known(values: &[&str]) -> Vec<KnownValue> {
    values
        .iter()
        .map(|value| KnownValue { kind: "env".to_owned(), value: SecretBytes::from(*value) })
        .collect()
}

pub(crate) fn clean(redactor: &Redactor, text: &str) -> String {
    redactor.redact(text).unwrap().text.into_owned()
}

/// A small seeded generator: the same texts in every run.
pub(crate) struct SeededRng(pub(crate) u64);

impl SeededRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(most.max(1)).unwrap()).unwrap()
    }

    pub(crate) fn letters(&mut self, alphabet: &str, count: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        (0..count).map(|_| letters[self.below(letters.len())]).collect()
    }
}

pub(crate) const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
pub(crate) const HEX: &str = "0123456789abcdef";

/// A fake private key.
pub(crate) fn private_key(rng: &mut SeededRng, lines: usize) -> String {
    let body: String = (0..lines).map(|_| rng.letters(ALNUM, 64) + "\n").collect();
    format!("-----BEGIN {0} KEY-----\n{body}{1}==\n-----END {0} KEY-----", "PRIVATE", rng.letters(ALNUM, 22))
}

/// Lines that each contain a secret, with the secret.
pub(crate) fn planted(rng: &mut SeededRng) -> Vec<(String, String)> {
    let github = format!("gh{}_{}", "p", rng.letters(ALNUM, 36));
    let aws = format!("AK{}{}", "IA", rng.letters("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16));
    let slack = format!("xo{}-{}-{}", "xb", rng.letters("0123456789", 12), rng.letters(ALNUM, 24));
    let password = format!("{}!{}", rng.letters(ALNUM, 6), rng.letters("0123456789", 3));
    let opaque = rng.letters(ALNUM, 40);
    let hex = rng.letters(HEX, 32);
    vec![
        (format!("token: {github}"), github.clone()),
        (format!("export AWS_ACCESS_KEY_ID={aws}"), aws.clone()),
        (format!("  \"slack\": \"{slack}\","), slack.clone()),
        (format!("DB_PASSWORD={password}"), password.clone()),
        (format!("{{\"password\": \"{password}\"}}"), password.clone()),
        (format!("url = postgres://app:{password}@db.internal:5432/x"), password.clone()),
        (format!("curl https://ada:{password}@files.internal/x"), password.clone()),
        (format!("Authorization: Bearer {opaque}"), opaque.clone()),
        (format!("api_key = \"{hex}\""), hex.clone()),
        (format!("machine h login u password {password}"), password.clone()),
        (format!("<password>{password}</password>"), password),
    ]
}

/// A line without a secret.
pub(crate) fn plain(rng: &mut SeededRng) -> String {
    let lines = [
        "fn main() { println!(\"hello\"); }".to_owned(),
        format!("commit {}", rng.letters(HEX, 40)),
        "the password must have eight letters".to_owned(),
        format!("\"integrity\": \"sha512-{}==\"", rng.letters(ALNUM, 86)),
        "\u{e4}\u{f6}\u{fc} \u{1f511} token = None".to_owned(),
        format!(
            "id: {}-{}-4{}-a{}-{}",
            rng.letters(HEX, 8),
            rng.letters(HEX, 4),
            rng.letters(HEX, 3),
            rng.letters(HEX, 3),
            rng.letters(HEX, 12)
        ),
    ];
    lines[rng.below(lines.len())].clone()
}

/// A document with secrets of many kinds, and the secrets.
pub(crate) fn document(rng: &mut SeededRng, lines: usize) -> (String, Vec<String>) {
    let (mut text, mut secrets) = (String::new(), Vec::new());
    for _ in 0..lines {
        if rng.below(3) == 0 {
            let mut planted = planted(rng);
            let (line, secret) = planted.swap_remove(rng.below(planted.len()));
            text += &line;
            secrets.push(secret);
        } else {
            text += &plain(rng);
        }
        text.push(if rng.below(8) == 0 { ' ' } else { '\n' });
    }
    (text, secrets)
}
