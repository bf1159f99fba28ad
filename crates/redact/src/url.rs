//! URLs that contain a password: `scheme://user:password@host`.

use crate::bytes::{at, entropy, run_end, run_start, slice, starts_with_ignoring_case};
use crate::classify::{is_login_password, is_placeholder, is_random_password};
use crate::placeholder;

/// Maximum length of a URL, in bytes.
const MAX_URL_BYTES: usize = 3000;

/// The secret part of a URL.
pub(crate) struct UrlLogin {
    pub(crate) secret: (usize, usize),
    pub(crate) database: bool,
}

/// Schemes of databases and message brokers.
const DATABASES: &[&str] = &[
    "postgres",
    "postgresql",
    "mysql",
    "mariadb",
    "mongodb",
    "redis",
    "rediss",
    "amqp",
    "amqps",
    "mssql",
    "sqlserver",
    "oracle",
    "clickhouse",
    "cockroachdb",
    "couchdb",
    "cassandra",
    "neo4j",
    "bolt",
    "kafka",
    "nats",
    "ldap",
    "ldaps",
    "snowflake",
    "jdbc",
];

/// The secret in the URL whose `://` ends at `after`.
pub(crate) fn login(view: &[u8], after: usize) -> Option<UrlLogin> {
    let colon = after - 3;
    let scheme = slice(
        view,
        run_start(view, colon, colon.saturating_sub(24), |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-')
        }),
        colon,
    );
    let database = DATABASES.iter().any(|name| starts_with_ignoring_case(scheme, name.as_bytes()));
    let end = run_end(view, after, after + MAX_URL_BYTES, |byte| {
        byte > b' '
            && byte != 0x7f
            && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'|' | b'^')
    });
    let authority = run_end(view, after, end, |byte| !matches!(byte, b'/' | b'?' | b'#' | b',' | b')'));
    let last_at =
        |to: usize| slice(view, after, to).iter().rposition(|byte| *byte == b'@').map(|place| after + place);
    let host = match last_at(authority) {
        Some(host) => host,
        // The password contains a character that usually ends the host: only for schemes where passwords are common.
        None if database => last_at(end)?,
        None => return None,
    };
    let login = slice(view, after, host);
    // A user name that was replaced by a placeholder contains colons.
    let named = placeholder::trim_placeholders(view, after, host).0 - after;
    let Some(split) =
        slice(login, named, login.len()).iter().position(|byte| *byte == b':').map(|at| named + at)
    else {
        let alone = login.len() >= 20
            && entropy(login) >= if login.len() >= 32 { 3.0 } else { 3.5 }
            && login.iter().any(u8::is_ascii_digit)
            && !is_placeholder(login)
            && login.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        return alone.then_some(UrlLogin { secret: (after, host), database });
    };
    let user = slice(login, 0, split);
    let secret = placeholder::trim_placeholders(view, after + split + 1, host);
    let password = slice(view, secret.0, secret.1);
    let port_and_path =
        password.iter().take_while(|byte| byte.is_ascii_digit()).count() >= 2 && password.contains(&b'/');
    if port_and_path || !at(view, host + 1).is_ascii_graphic() || password.is_empty() {
        return None;
    }
    let plain = !database && password.iter().all(u8::is_ascii_lowercase) && !is_random_password(password);
    (!plain && is_login_password(user, password)).then_some(UrlLogin { secret, database })
}

/// The password in `user:password@tcp(host)` or `jdbc:oracle:thin:user/password@host`; the anchor is at `anchor`.
pub(crate) fn dsn_password(view: &[u8], anchor: usize) -> Option<(usize, usize)> {
    let visible =
        |byte: u8| byte > b' ' && byte != 0x7f && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>');
    let (from, to, split) = if at(view, anchor) == b'@' {
        (run_start(view, anchor, anchor.saturating_sub(300), visible), anchor, b':')
    } else {
        let from = anchor + b":thin:".len();
        let end = run_end(view, from, from + 300, visible);
        let host = slice(view, from, end).iter().rposition(|byte| *byte == b'@')?;
        (from, from + host, b'/')
    };
    let login = slice(view, from, to);
    let split = login.iter().position(|byte| *byte == split)?;
    let (user, password) = (slice(login, 0, split), slice(login, split + 1, login.len()));
    let named = !user.is_empty()
        && user.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    (named && is_login_password(user, password)).then_some((from + split + 1, to))
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests slice strings that they created")]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let after = text.find("://").unwrap() + 3;
        let found = login(text.as_bytes(), after).map(|login| &text[login.secret.0..login.secret.1]);
        assert_eq!(found, expected, "{text}");
    }

    // T21
    #[test]
    fn passwords_in_urls_are_found() {
        check("postgres://app:s3cr7tX@db:5432/x", Some("s3cr7tX"));
        check("x mysql://nimda:m42p!o@2wd@google.com:5434/e", Some("m42p!o@2wd"));
        check("mongodb+srv://u:pa%2Fss9@h.mongodb.net/?w=1", Some("pa%2Fss9"));
        check("redis://:V3ry9Long@cache", Some("V3ry9Long"));
        check("https://eaRIWNkE:qyOIhJiM@j2LYY414Q5cCYD", Some("qyOIhJiM"));
        check(
            "https://0123456789abcdef0123456789abcdef01234567@github.com/x",
            Some("0123456789abcdef0123456789abcdef01234567"),
        );
        for clean in [
            "https://example.com/a@b",
            "https://user@host/x",
            "postgres://user:password@localhost/db",
            "https://${USER}:${PASS}@h",
            "redis://localhost:6379/0",
            "http://h:8080/@scope/pkg",
            "postgres://postgres:postgres@db",
            "https://<user>:<pass>@h",
            "https://[::1]:80/",
            "https://h/npm/@types/node@1.2.3",
            "mysql://root:***@h",
        ] {
            check(clean, None);
        }
    }
}
