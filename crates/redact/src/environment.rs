//! Which values of an environment are secrets. A value is one if its variable's name says so; any other value is one if
//! it could be a key (long enough, letters with digits) and is not of a kind that every project has: paths, locales,
//! versions, hosts. Masking too much also does harm: an agent that reads a placeholder cannot edit the line.

use crate::classify::{is_placeholder, is_random_password};
use crate::secret_names::{NameHint, name_hint};

/// Words in a name that mean "secret".
const SECRET_WORDS: &[&str] = &[
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PWD_",
    "CREDENTIAL",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE",
    "AUTH",
    "COOKIE",
    "DSN",
    "DATABASE_URL",
    "CONNECTION_STRING",
    "WEBHOOK",
    "SIGNING",
    "ENCRYPTION",
    "MNEMONIC",
    "SEED_PHRASE",
];

/// Prefixes of the names of variables that never hold a secret.
const HARMLESS_NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "PWD",
    "OLDPWD",
    "SHELL",
    "TERM",
    "LANG",
    "LC_",
    "USER",
    "LOGNAME",
    "HOSTNAME",
    "HOST",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "DISPLAY",
    "XDG_",
    "LS_COLORS",
    "COLORTERM",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "CARGO",
    "RUST",
    "LD_LIBRARY_PATH",
    "SHLVL",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "NEXTEST",
    "OS_",
    "DBUS_",
    "SSH_CONNECTION",
    "SSH_CLIENT",
    "SSH_TTY",
    "WAYLAND_",
    "DEBIAN_FRONTEND",
    "NODE_ENV",
    "GPG_TTY",
    "LESS",
    "npm_",
    "PYTHON",
    "PYENV",
    "VIRTUAL_ENV",
    "CONDA",
    "JAVA_HOME",
    "GOPATH",
    "MANPATH",
    "INFOPATH",
    "SYSTEMD_",
    "INVOCATION_ID",
    "JOURNAL_",
];

/// Values that every project has.
const HARMLESS_VALUES: &[&str] = &[
    "true",
    "false",
    "localhost",
    "default",
    "password",
    "changeme",
    "development",
    "production",
    "127.0.0.1",
];

const MIN_UNNAMED_BYTES: usize = 8;

/// The secrets of a variable: its value, and the passwords inside it, as in `postgres://app:PASSWORD@db/x`. Texts
/// shorter than `min_len` bytes are left out.
#[must_use]
pub fn secrets_of(name: &str, value: &str, min_len: usize) -> Vec<String> {
    let mut all = Vec::new();
    if is_secret(name, value, min_len) {
        all.push(value.to_owned());
    }
    let inner: Vec<String> =
        secrets_inside(value, min_len).into_iter().filter(|text| !all.contains(text)).collect();
    all.extend(inner);
    all
}

/// The passwords inside a value: in a URL, in `name=value` pairs, in fields of a JSON document. A program that can read
/// the value can extract each of them.
#[must_use]
pub fn secrets_inside(value: &str, min_len: usize) -> Vec<String> {
    let usable = |text: &String| text.len() >= min_len && !is_harmless(text) && text != value;
    passwords_inside(value).into_iter().chain(json_secrets(value)).filter(usable).collect()
}

/// Whether a variable's value is a secret.
fn is_secret(name: &str, value: &str, min_len: usize) -> bool {
    let upper = name.to_ascii_uppercase();
    if is_harmless(value) {
        return false;
    }
    if says_secret(&upper) {
        return value.len() >= min_len && !is_named_path(&upper, value);
    }
    let harmless = HARMLESS_NAMES.iter().any(|start| name.starts_with(start))
        || ["_VERSION", "_HOST", "_PORT", "_DIR", "_PATH", "_ROOT", "_ADDR"]
            .iter()
            .any(|end| upper.ends_with(end));
    if harmless || is_path(value) || value.len() < MIN_UNNAMED_BYTES.max(min_len) {
        return false;
    }
    let has = |kind: fn(&char) -> bool| value.chars().any(|c| kind(&c));
    let url_with_login = value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    url_with_login
        || (has(char::is_ascii_digit)
            && has(char::is_ascii_alphabetic)
            && !value.contains(|c: char| c.is_whitespace() || c == '/' || c == ':')
            && !is_version(value))
        || (!value.contains("://")
            && !value.contains(char::is_whitespace)
            && is_random_password(value.as_bytes()))
}

fn is_harmless(value: &str) -> bool {
    HARMLESS_VALUES.contains(&value.to_ascii_lowercase().as_str())
}

fn says_secret(upper: &str) -> bool {
    let ends =
        ["_KEY", "PASS", "_PWD", "_PW", "BINDPW", "_PAT", "_JWT"].iter().any(|end| upper.ends_with(end));
    let other = ["BYPASS", "COMPASS"].iter().any(|end| upper.ends_with(end));
    (ends && !other) || upper == "KEY" || SECRET_WORDS.iter().any(|word| upper.contains(word))
}

/// The passwords inside a URL, and in the pairs of a connection string or query.
fn passwords_inside(value: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Some((_, rest)) = value.split_once("://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let login = rest
            .get(..end)
            .and_then(|authority| authority.rsplit_once('@'))
            .or_else(|| rest.rsplit_once('@'))
            .map(|(login, _)| login);
        if let Some((_, password)) = login.and_then(|login| login.split_once(':')) {
            found.push(password.to_owned());
            found.extend(percent_decoded(password));
        }
    }
    let named = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        [
            "password",
            "passwd",
            "pwd",
            "pass",
            "secret",
            "token",
            "accountkey",
            "sharedaccesskey",
            "apikey",
            "api_key",
        ]
        .iter()
        .any(|known| name == *known || name.ends_with(&format!("_{known}")))
    };
    for pair in value.split(|c: char| matches!(c, ';' | '&' | '?') || c.is_whitespace()) {
        if let Some((name, text)) = pair.split_once('=')
            && named(name)
        {
            let text = text.trim_matches(['"', '\'']);
            found.push(text.to_owned());
            found.extend(percent_decoded(text));
        }
    }
    found
}

/// The JSON strings whose field names say that they are secret.
fn json_secrets(value: &str) -> Vec<String> {
    let (mut found, mut name, mut rest) = (Vec::new(), None, value);
    while let Some(start) = rest.find('"') {
        let tail = rest.get(start + 1..).unwrap_or_default();
        let mut escaped = false;
        let end = tail.find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { break };
        let text = tail.get(..end).unwrap_or_default();
        rest = tail.get(end + 1..).unwrap_or_default();
        let between = rest.trim_start();
        if between.starts_with(':') {
            name = between.trim_start_matches(':').trim_start().starts_with('"').then_some(text);
        } else if let Some(name) = name.take()
            && matches!(name_hint(name.as_bytes()), Some(NameHint::Password | NameHint::Token))
            && !is_placeholder(text.as_bytes())
        {
            found.push(unescaped(text));
        }
    }
    found
}

/// Decodes the single-letter escapes of a JSON string; others stay.
fn unescaped(text: &str) -> String {
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some(sign @ ('"' | '\\' | '/'))) => out.push(sign),
            (c, next) => {
                out.push(c);
                out.extend(next);
            }
        }
    }
    out
}

/// Percent-decodes a text; `None` if it has no escapes.
fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut n = 0;
    while let Some(&byte) = bytes.get(n) {
        let digits = text.get(n + 1..n + 3).and_then(|two| u8::from_str_radix(two, 16).ok());
        match digits {
            Some(digits) if byte == b'%' => {
                out.push(digits);
                n += 3;
            }
            _ => {
                out.push(byte);
                n += 1;
            }
        }
    }
    String::from_utf8(out).ok().filter(|plain| plain != text)
}

fn is_path(value: &str) -> bool {
    value.starts_with(['/', '~', '.']) && !value.contains("://")
}

/// The value of a secret variable is only a path if no part of it could be a secret: `/run/secrets/db`, not `/x9Kd!`.
fn is_named_path(upper: &str, value: &str) -> bool {
    let names_file =
        ["_FILE", "_PATH", "_DIR", "_SOCK", "CREDENTIALS"].iter().any(|end| upper.ends_with(end));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~');
    let words = value.split(['/', '.']).all(|word| !is_random_password(word.as_bytes()));
    is_path(value) && (names_file || (value.matches('/').count() >= 2 && value.chars().all(plain) && words))
}

fn is_version(value: &str) -> bool {
    value.trim_start_matches('v').chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_distinguished_from_settings() {
        for (name, value, expected) in [
            ("API_TOKEN", "abc123", true),
            ("DB_PASSWORD", "correct horse", true),
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG", true),
            ("CANARY", "canary-7f3a9c11", true),
            ("DATABASE_URL", "postgres://u:p@h/db", true),
            ("SERVICE", "https://user:pw1@host/x", true),
            ("DEPLOY_KEY", "k3yk3yk3y", true),
            ("API_TOKEN", "abc", false),
            ("API_TOKEN", "true", false),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json", false),
            ("PATH", "/usr/bin:/bin", false),
            ("TERM", "xterm-256color", false),
            ("LANG", "en_US.UTF-8", false),
            ("NODE_ENV", "production", false),
            ("MODE", "noninteractive", false),
            ("SITE", "https://example.com/2024", false),
            ("APP_VERSION", "1.2.3-beta4", false),
            ("RELEASE", "2024.11.15", false),
            ("HOME", "/home/agent007", false),
            ("DB_PASS", "correcthorse", true),
            ("MYSQL_PWD", "correcthorse", true),
            ("PWD", "/home/agent007", false),
            ("SSHPASS", "correcthorse", true),
            ("GITHUB_PAT", "correcthorse", true),
            ("TLS_BYPASS", "sometimes", false),
            ("WALLET_MNEMONIC", "abandon ability able", true),
            ("MINIO_VALUE", "aB3/kd9+Qz7:xW2p", true),
            ("GREETING", "good/morning:everyone", false),
            ("DOCKER_HOST", "unix:///run/docker.sock", false),
            ("SESSION_MANAGER", "local/host:@/tmp/.ICE-unix/1234", false),
            ("DB_PASSWORD", "/x9Kd8fQ2", true),
            ("DB_PASSWORD", ".x9Kd8fQ2", true),
            ("AWS_SECRET_ACCESS_KEY", "/wJa+lrXU/tnFEMI7MDENGbPxRfiCY", true),
            ("DB_PASSWORD", "/run/secrets/db", false),
            ("DB_PASSWORD_FILE", "/x9Kd8fQ2", false),
            ("SSH_AUTH_SOCK", "/tmp/ssh-XqZk8fQ2/agent.1", false),
        ] {
            assert_eq!(is_secret(name, value, 6), expected, "{name}={value}");
        }
    }

    // T21: a program that can read the URL can read the password
    #[test]
    fn passwords_inside_a_value_are_secrets_of_their_own() {
        for (value, expected) in [
            ("postgres://app:q9Zx7p%2Fm@db/x", vec!["q9Zx7p%2Fm", "q9Zx7p/m"]),
            ("mysql://app:q9/Zx7pm@db/x", vec!["q9/Zx7pm"]),
            ("Server=db;User Id=app;Password=q9Zx7pm;", vec!["q9Zx7pm"]),
            ("host=db user=app password='q9Zx7pm'", vec!["q9Zx7pm"]),
            ("jdbc:mysql://db/x?user=app&password=q9Zx7pm", vec!["q9Zx7pm"]),
            ("https://example.com/x?y=1", vec![]),
            ("redis://localhost:6379", vec![]),
        ] {
            assert_eq!(passwords_inside(value), expected, "{value}");
        }
        assert_eq!(
            secrets_of("DATABASE_URL", "postgres://u:hunter22@h/x", 6),
            ["postgres://u:hunter22@h/x", "hunter22"]
        );
        let json = r#"{"type": "service_account", "auth_uri": "https://x/y", "private_key": "-----BEGIN\nab\/c\"d\n",
            "n": {"client_secret" : "hunter22"}, "token_type":"Bearer1", "password": "${PASSWORD}", "pin": 1, "list": ["hunter33"]}"#;
        assert_eq!(secrets_inside(json, 6), ["-----BEGIN\nab/c\"d\n", "hunter22"]);
        assert_eq!(secrets_inside("A=1\nDB_PASSWORD=hunter22\n", 6), ["hunter22"]);
        assert!(secrets_inside("{\"password\": \"x", 6).is_empty() && secrets_inside("\"\\", 6).is_empty());
        assert_eq!(secrets_of("DATABASE_URL", "postgres://u:abc@h/x", 6).len(), 1);
        assert!(secrets_of("SITE", "https://example.com/", 6).is_empty());
    }
}
