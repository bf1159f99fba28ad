//! Reads the quotes that git puts around names with special characters; `vambrace_core::quote` writes them.

/// The name in a quoted text; `None` if it is not one whole quoted text.
pub(crate) fn unquote(text: &[u8]) -> Option<Vec<u8>> {
    unquote_prefix(text).filter(|(_, rest)| rest.is_empty()).map(|(name, _)| name)
}

/// The name in the quoted text at the beginning, and what follows.
pub(crate) fn unquote_prefix(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (escape, after) = rest.split_first()?;
                rest = after;
                name.push(match escape {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'"' | b'\\' => *escape,
                    b'0'..=b'3' => {
                        let (digits, after) = rest.split_at_checked(2)?;
                        rest = after;
                        digits.iter().try_fold(escape - b'0', |value, digit| match digit {
                            b'0'..=b'7' => Some((value << 3) | (digit - b'0')),
                            _ => None,
                        })?
                    }
                    _ => return None,
                });
            }
            byte => name.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quoted_names_are_read_and_broken_quotes_are_not() {
        assert_eq!(unquote(br#""a\tb\303\251\"\\""#).unwrap(), b"a\tb\xc3\xa9\"\\");
        assert_eq!(unquote_prefix(br#""a" b"#).unwrap(), (b"a".to_vec(), &b" b"[..]));
        for broken in [&b"a"[..], b"\"a", b"\"\\", b"\"\\4\"", b"\"\\38\"", b"\"\\1\"", b"\"a\"b", b""] {
            assert_eq!(unquote(broken), None, "{}", broken.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn names_survive_quoting(name: Vec<u8>) {
            let quoted = vambrace_core::quote::quoted(&name);
            let read = unquote(quoted.as_bytes()).unwrap_or_else(|| quoted.into_bytes());
            prop_assert_eq!(read, name);
        }
    }
}
