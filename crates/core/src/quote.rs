//! Quotes file names for one line of text, unambiguously and in the way git does: in quotes with escapes if a name
//! contains special characters.

/// The name itself, or quoted if it contains control characters, quotes, backslashes or invalid UTF-8.
#[must_use]
pub fn quoted(name: &[u8]) -> String {
    let odd = |c: char| c.is_control() || matches!(c, '"' | '\\');
    match std::str::from_utf8(name) {
        Ok(text) if !text.contains(odd) => return text.to_owned(),
        _ => {}
    }
    let mut out = String::from("\"");
    let octal = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            out.push_str(&format!("\\{byte:03o}"));
        }
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                c if c.is_control() => octal(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        octal(&mut out, chunk.invalid());
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quoted_names_are_one_line_and_unambiguous() {
        let check = |name: &[u8], expected: &str| assert_eq!(quoted(name), expected);
        check(b"src/main.rs", "src/main.rs");
        check("a b/\u{e9}".as_bytes(), "a b/\u{e9}");
        check(b"evil\nwould need: --write /", "\"evil\\nwould need: --write /\"");
        check(b"a\"b\\c\td", "\"a\\\"b\\\\c\\td\"");
        check(b"\x1b[2J\xff\x7f", "\"\\033[2J\\377\\177\"");
        check("\u{85}".as_bytes(), "\"\\302\\205\"");
    }
}
