//! Matches request paths against the allowed paths. A path that servers could interpret differently (dot segments, empty
//! segments, double escapes, backslashes) is rejected, whatever the rules allow.

/// Whether a path is allowed; `None` where it is ambiguous.
pub(super) fn is_allowed(target: &str, rules: &[String]) -> Option<bool> {
    let path = target.split('?').next().unwrap_or_default();
    let (plain, kept) = canonical(path)?;
    let among = |path: &str| {
        rules.iter().any(|rule| match rule.strip_suffix('*') {
            Some(dir) => path.strip_prefix(dir).is_some_and(|rest| !rest.is_empty() || dir == "/"),
            None => path == rule,
        })
    };
    // Some servers decode an escaped slash, some do not: the path must be allowed in both readings.
    Some(among(&plain) && among(&kept))
}

/// The path with all escapes decoded, and with all but those of slashes decoded; `None` where it is ambiguous.
fn canonical(path: &str) -> Option<(String, String)> {
    let rest = path.strip_prefix('/')?;
    let mut kept = Vec::new();
    for segment in rest.split('/') {
        kept.push(decode_segment(segment)?);
    }
    let plain = format!("/{}", kept.join("/"));
    let count = plain.matches('/').count();
    for (at, segment) in plain.split('/').skip(1).enumerate() {
        // Some servers strip path parameters (after a semicolon) first.
        let bare = segment.split(';').next().unwrap_or_default();
        let last = at + 1 == count;
        if matches!(bare, "." | "..")
            || (segment.is_empty() && !last)
            || (bare.is_empty() && !segment.is_empty())
        {
            return None;
        }
    }
    let kept: Vec<String> = kept.iter().map(|segment| segment.replace('/', "%2f")).collect();
    Some((plain, format!("/{}", kept.join("/"))))
}

fn decode_segment(segment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut left = segment.bytes();
    while let Some(byte) = left.next() {
        let byte = match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(left.next())? * 16 + digit(left.next())?).ok()?
            }
            byte => byte,
        };
        // A decoded percent sign could start another escape.
        if byte.is_ascii_control() || matches!(byte, b'\\' | b'%' | b'#') {
            return None;
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(target: &str, expected: Option<bool>) {
        let rules = ["/v1/users", "/v1/items/*", "/open/*"].map(str::to_owned);
        assert_eq!(is_allowed(target, &rules), expected, "{target}");
    }

    // P3
    #[test]
    fn paths_match_as_written() {
        check("/v1/users", Some(true));
        check("/v1/users?a=/../b", Some(true));
        check("/v1/%75sers", Some(true));
        check("/v1/users/", Some(false));
        check("/v1/usersx", Some(false));
        check("/v1/items/7/parts", Some(true));
        check("/v1/items/", Some(false));
        check("/v1/items", Some(false));
        check("/v1/items/a%2Fb", Some(true));
        // An item for one server, another path for the next.
        check("/v1%2Fitems/7", Some(false));
        check("/V1/users", Some(false));
        check("/", Some(false));
        assert_eq!(is_allowed("/", &["/*".to_owned()]), Some(true));
        assert_eq!(is_allowed("/any/thing", &["/*".to_owned()]), Some(true));
    }

    // P3
    #[test]
    fn ambiguous_paths_are_rejected() {
        for target in [
            "/open/../v1/admin",
            "/open/./x",
            "/open/%2e%2e/v1/admin",
            "/open/%2E./v1/admin",
            "/open/..%2fv1/admin",
            "/open/..%2Fv1%2Fadmin",
            "/open/%252e%252e/admin",
            "/open/..;/admin",
            "/open/..;x=1/admin",
            "/open/;/admin",
            "//open/x",
            "/open//x",
            "/open/%2Fx",
            "/open/..\\admin",
            "/open/%5c..%5cadmin",
            "/open/x%00",
            "/open/x%0d%0aHost:%20evil",
            "/open/x%",
            "/open/x%zz",
            "/open/x%c3%28",
            "/open/x#y",
            "open/x",
            "*",
            "http://good.example/open/x",
        ] {
            check(target, None);
        }
    }
}
