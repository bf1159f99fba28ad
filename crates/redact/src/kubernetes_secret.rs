//! Kubernetes secrets: the values under `data:` or `stringData:` of a manifest whose kind is `Secret`, in YAML or JSON.

use crate::bytes::{at, is_blank, run_end, run_start, slice};
use crate::classify::is_placeholder;

/// Maximum number of entries of a manifest that are examined.
const MAX_ENTRIES: usize = 64;

/// The values under the `data:` that ends at `after`; empty unless the manifest is a secret.
pub(crate) fn values(view: &[u8], from: usize, after: usize) -> Vec<(usize, usize)> {
    let secret = [
        b"kind: Secret\n".as_slice(),
        b"kind: Secret\r",
        b"\"kind\": \"Secret\"",
        b"\"kind\":\"Secret\"",
        b"kind: \"Secret\"",
    ];
    let is_secret = || {
        secret.iter().any(|kind| memchr::memmem::find(view, kind).is_some())
            || view.ends_with(b"kind: Secret")
    };
    let start = run_start(view, from, 0, |byte| byte.is_ascii_alphabetic());
    let quoted = at(view, start.wrapping_sub(1)) == b'"';
    let spaced = run_end(view, after, after + 8, is_blank);
    let opened = quoted && at(view, spaced) == b'{';
    let block = !quoted && matches!(at(view, spaced), b'\n' | b'\r');
    if !(opened || block) || !is_secret() {
        return Vec::new();
    }
    if opened { fields(view, spaced + 1) } else { lines(view, start, spaced) }
}

/// `name: value`, each on a line that is indented deeper than `data:`.
fn lines(view: &[u8], start: usize, end: usize) -> Vec<(usize, usize)> {
    let indent = |line: usize| run_end(view, line, line + 80, |byte| byte == b' ') - line;
    let outer = start - run_start(view, start, 0, |byte| byte == b' ');
    let (mut found, mut place) = (Vec::new(), end);
    for _ in 0..MAX_ENTRIES {
        let line = run_end(view, place, place + 4, |byte| matches!(byte, b'\n' | b'\r'));
        let inner = indent(line);
        if line == place || inner <= outer || line >= view.len() {
            break;
        }
        let last = run_end(view, line, view.len(), |byte| !matches!(byte, b'\n' | b'\r'));
        place = last;
        let name = run_end(view, line + inner, last, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'"' | b'\'')
        });
        if at(view, name) != b':' {
            continue;
        }
        let value = run_end(view, name + 1, last, is_blank);
        let quote = usize::from(matches!(at(view, value), b'"' | b'\''));
        let text = slice(view, value + quote, last).trim_ascii_end();
        push(view, &mut found, (value + quote, value + quote + text.len() - quote.min(text.len())));
    }
    found
}

/// `"name": "value"`, up to the closing brace.
fn fields(view: &[u8], from: usize) -> Vec<(usize, usize)> {
    let (mut found, mut place) = (Vec::new(), from);
    let outside = |byte: u8| !matches!(byte, b'"' | b'}');
    let inside = |byte: u8| byte != b'"';
    for _ in 0..MAX_ENTRIES {
        let name = run_end(view, place, view.len(), outside);
        let close = run_end(view, name + 1, view.len(), inside);
        let value = run_end(view, close + 1, view.len(), outside);
        let end = run_end(view, value + 1, view.len(), inside);
        if at(view, name) != b'"' || at(view, value) != b'"' || at(view, end) != b'"' {
            break;
        }
        push(view, &mut found, (value + 1, end));
        place = end + 1;
    }
    found
}

fn push(view: &[u8], found: &mut Vec<(usize, usize)>, value: (usize, usize)) {
    let text = slice(view, value.0, value.1);
    let block = matches!(at(text, 0), b'|' | b'>');
    if text.len() >= 4 && !block && !is_placeholder(text) && !text.iter().any(|byte| is_blank(*byte)) {
        found.push(value);
    }
}

#[cfg(test)]
#[expect(clippy::string_slice, reason = "tests slice strings that they created")]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let from = text.find("ata").unwrap() - 1;
        let after = text[from..].find(':').unwrap() + from + 1;
        values(text.as_bytes(), from, after).into_iter().map(|(from, to)| &text[from..to]).collect()
    }

    // T21
    #[test]
    fn only_values_of_a_kubernetes_secret_are_found() {
        let yaml = "apiVersion: v1\ndata:\n  user: YWRh\n  tls.key: \"aHVudGVyMg==\"\nkind: Secret\n";
        assert_eq!(found(yaml), ["YWRh", "aHVudGVyMg=="]);
        assert_eq!(found(&yaml.replace("Secret", "ConfigMap")), Vec::<&str>::new());
        let nested = "items:\n- kind: Secret\n  stringData:\n    a: wordplain\n  type: Opaque\n";
        assert_eq!(found(nested), ["wordplain"]);
        let json =
            "{\"kind\": \"Secret\", \"data\": {\"a\": \"YWRhYWRh\", \"b\": \"YmJi\"}, \"type\": \"Opaque\"}";
        assert_eq!(found(json), ["YWRhYWRh", "YmJi"]);
        assert_eq!(found("kind: Secret\ndata:\n  a: ${A}\n  b: {{ .Values.b }}\n"), Vec::<&str>::new());
    }
}
