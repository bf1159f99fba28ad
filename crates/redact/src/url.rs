//! Addresses that carry a password: `scheme://user:password@host`.

use crate::bytes::{at, begins, entropy, part, run, run_back};
use crate::judge::{is_drawn_password, is_login_password, is_placeholder};
use crate::placeholder;

/// The longest address that is looked at.
const LONGEST: usize = 3000;

/// What of an address is secret.
pub(crate) struct Login {
    pub(crate) secret: (usize, usize),
    pub(crate) database: bool,
}

/// Schemes of databases and brokers of messages.
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

/// The secret of the address whose `://` ends at `after`.
pub(crate) fn login(view: &[u8], after: usize) -> Option<Login> {
    let colon = after - 3;
    let scheme = part(
        view,
        run_back(view, colon, colon.saturating_sub(24), |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-')
        }),
        colon,
    );
    let database = DATABASES.iter().any(|name| begins(scheme, name.as_bytes()));
    let end = run(view, after, after + LONGEST, |byte| {
        byte > b' '
            && byte != 0x7f
            && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'|' | b'^')
    });
    let authority = run(view, after, end, |byte| !matches!(byte, b'/' | b'?' | b'#' | b',' | b')'));
    let last_at =
        |to: usize| part(view, after, to).iter().rposition(|byte| *byte == b'@').map(|place| after + place);
    let host = match last_at(authority) {
        Some(host) => host,
        // A password with a sign in it that ends the host elsewhere: only where addresses with passwords are usual.
        None if database => last_at(end)?,
        None => return None,
    };
    let login = part(view, after, host);
    // A name that was replaced holds colons of its own.
    let named = placeholder::beside(view, after, host).0 - after;
    let Some(split) =
        part(login, named, login.len()).iter().position(|byte| *byte == b':').map(|at| named + at)
    else {
        let alone = login.len() >= 20
            && entropy(login) >= if login.len() >= 32 { 3.0 } else { 3.5 }
            && login.iter().any(u8::is_ascii_digit)
            && !is_placeholder(login)
            && login.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        return alone.then_some(Login { secret: (after, host), database });
    };
    let user = part(login, 0, split);
    let secret = placeholder::beside(view, after + split + 1, host);
    let password = part(view, secret.0, secret.1);
    let port_and_path =
        password.iter().take_while(|byte| byte.is_ascii_digit()).count() >= 2 && password.contains(&b'/');
    if port_and_path || !at(view, host + 1).is_ascii_graphic() || password.is_empty() {
        return None;
    }
    let plain = !database && password.iter().all(u8::is_ascii_lowercase) && !is_drawn_password(password);
    (!plain && is_login_password(user, password)).then_some(Login { secret, database })
}

/// The password of `user:password@tcp(host)` and of `jdbc:oracle:thin:user/password@host`, whose mark stands at `mark`.
pub(crate) fn source(view: &[u8], mark: usize) -> Option<(usize, usize)> {
    let visible =
        |byte: u8| byte > b' ' && byte != 0x7f && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>');
    let (from, to, split) = if at(view, mark) == b'@' {
        (run_back(view, mark, mark.saturating_sub(300), visible), mark, b':')
    } else {
        let from = mark + b":thin:".len();
        let end = run(view, from, from + 300, visible);
        let host = part(view, from, end).iter().rposition(|byte| *byte == b'@')?;
        (from, from + host, b'/')
    };
    let login = part(view, from, to);
    let split = login.iter().position(|byte| *byte == split)?;
    let (user, password) = (part(login, 0, split), part(login, split + 1, login.len()));
    let named = !user.is_empty()
        && user.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    (named && is_login_password(user, password)).then_some((from + split + 1, to))
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests cut the texts they have made")]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let after = text.find("://").unwrap() + 3;
        let found = login(text.as_bytes(), after).map(|login| &text[login.secret.0..login.secret.1]);
        assert_eq!(found, expected, "{text}");
    }

    // T21
    #[test]
    fn passwords_of_addresses() {
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
