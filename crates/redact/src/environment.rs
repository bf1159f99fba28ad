//! Which values of an environment are treated as secrets. A variable whose name says so is one; any other value is
//! one when it could be a key (long enough, letters with digits) and is not of a kind that stands in every project:
//! paths, locales, versions, hosts. Over-masking harms too: an agent that reads a placeholder cannot edit the line.

/// Words in a name that say "secret".
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
];

/// Variables that never hold one, by the beginning of their name.
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

/// Values that stand in every project.
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

const LEAST_NAMED: usize = 6;
const LEAST_UNNAMED: usize = 8;

/// Whether a variable's value is masked.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    if HARMLESS_VALUES.contains(&value.to_ascii_lowercase().as_str()) || is_path(value) {
        return false;
    }
    if SECRET_WORDS.iter().any(|word| upper.contains(word)) || upper.ends_with("_KEY") || upper == "KEY" {
        return value.len() >= LEAST_NAMED;
    }
    let harmless = HARMLESS_NAMES.iter().any(|start| name.starts_with(start))
        || ["_VERSION", "_HOST", "_PORT", "_DIR", "_PATH", "_ROOT", "_ADDR"]
            .iter()
            .any(|end| upper.ends_with(end));
    if harmless || value.len() < LEAST_UNNAMED {
        return false;
    }
    let has = |kind: fn(&char) -> bool| value.chars().any(|c| kind(&c));
    let url_with_login = value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    url_with_login
        || (has(char::is_ascii_digit)
            && has(char::is_ascii_alphabetic)
            && !value.contains(|c: char| c.is_whitespace() || c == '/' || c == ':')
            && !is_version(value))
}

fn is_path(value: &str) -> bool {
    value.starts_with(['/', '~', '.']) && !value.contains("://")
}

fn is_version(value: &str) -> bool {
    value.trim_start_matches('v').chars().all(|c| c.is_ascii_digit() || c == '.' || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_from_settings() {
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
        ] {
            assert_eq!(is_secret(name, value), expected, "{name}={value}");
        }
    }
}
