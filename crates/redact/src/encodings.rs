//! The encodings in which a value may appear: plain, in base64 at each of the three byte shifts, in hex,
//! percent-encoded, escaped for JSON, XML, shells and C, in UTF-16, line by line, without its line ends.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use crate::secret_bytes::SecretBytes;

/// The kind of an encoding; decides what may surround and interrupt it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EncodingKind {
    /// The bytes must match exactly.
    Plain,
    /// base64: lines may break inside it, and the adjacent letters hold bits of the value.
    Base64,
    /// Hex digits of either case; separators, line breaks and the margins of a hex dump may come between two bytes.
    Hex,
    /// Decimal numbers, as a list of bytes is printed: a comma stands for any separators between two numbers.
    Numbers,
}

/// One encoding of a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EncodedForm {
    pub(crate) encoding: EncodingKind,
    pub(crate) bytes: SecretBytes,
}

/// Minimum length of a line of a longer value that is searched for alone, in bytes.
const MIN_LINE_BYTES: usize = 8;
/// Minimum length of an encoding, in bytes; shorter ones would match by chance.
const MIN_FORM_BYTES: usize = 6;
/// Likewise for a value in another case.
const MIN_FOLDED_BYTES: usize = 12;
/// Likewise for a value that is encoded in base64 twice.
const MIN_TWICE_BYTES: usize = 8;

/// Every encoding of a value, without duplicates.
pub(crate) fn encodings(value: &[u8]) -> Vec<EncodedForm> {
    let mut all = BTreeSet::new();
    let trimmed = value.trim_ascii();
    add_encodings(&mut all, trimmed);
    if trimmed.contains(&b'\n') {
        for line in trimmed.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
            if line.len() >= MIN_LINE_BYTES && !is_pem_frame(line) {
                add_encodings(&mut all, line);
            }
        }
        let joined: Vec<u8> = trimmed.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
        add_encodings(&mut all, &joined);
        let carriage =
            SecretBytes::new(String::from_utf8_lossy(trimmed).replace("\r\n", "\n").replace('\n', "\r\n"));
        add_encodings(&mut all, carriage.expose());
    }
    let whole = |form: &EncodedForm| form.encoding == EncodingKind::Plain && form.bytes.expose() == trimmed;
    all.into_iter().filter(|form| form.bytes.expose().len() >= MIN_FORM_BYTES || whole(form)).collect()
}

/// The first and last line of a PEM key are the same in every key.
fn is_pem_frame(line: &[u8]) -> bool {
    line.starts_with(b"-----") || line.starts_with(b"Proc-Type:") || line.starts_with(b"DEK-Info:")
}

fn add_encodings(all: &mut BTreeSet<EncodedForm>, value: &[u8]) {
    let mut add = |encoding, bytes: Vec<u8>| {
        all.insert(EncodedForm { encoding, bytes: SecretBytes::new(bytes) });
    };
    add(EncodingKind::Plain, value.to_vec());
    // Programs that normalise keys and digests change their case.
    if value.len() >= MIN_FOLDED_BYTES {
        add(EncodingKind::Plain, value.to_ascii_lowercase());
        add(EncodingKind::Plain, value.to_ascii_uppercase());
    }
    for url in [false, true] {
        for shift in 0..3 {
            let packed = base64_inside(value, shift, url);
            let has = |signs: [u8; 2]| packed.iter().any(|byte| signs.contains(byte));
            if url && !has(*b"-_") {
                continue;
            }
            // `+` and `/` as URLs, JSON and markup escape them.
            for (plus, slash) in [
                ("%2B", "%2F"),
                ("%2b", "%2f"),
                ("+", "\\/"),
                ("\\u002b", "/"),
                ("\\u002B", "/"),
                ("&#43;", "&#47;"),
            ] {
                if has(*b"+/") {
                    add(EncodingKind::Base64, replace(&replace(&packed, b'+', plus), b'/', slash));
                }
            }
            // base64 of base64: a manifest that embeds a file that contains base64. The result has no `+` or `/`, so
            // both alphabets agree.
            for again in 0..3 {
                if packed.len() >= MIN_TWICE_BYTES {
                    add(EncodingKind::Base64, base64_inside(&packed, again, false));
                }
            }
            add(EncodingKind::Base64, packed);
        }
    }
    let numbers: Vec<String> = value.iter().map(u8::to_string).collect();
    add(EncodingKind::Numbers, numbers.join(",").into_bytes());
    // Only punctuation escaped; letters and digits stay.
    for sign in ESCAPES {
        add(EncodingKind::Plain, escape_with(value, |byte| byte.is_ascii_alphanumeric(), sign));
    }
    add(EncodingKind::Hex, each(value, |byte| format!("{byte:02x}")));
    add(EncodingKind::Plain, percent(value, is_unreserved, false));
    add(EncodingKind::Plain, percent(value, is_unreserved, true));
    add(
        EncodingKind::Plain,
        percent(value, |byte| is_unreserved(byte) || byte == b' ', false)
            .iter()
            .map(|&byte| if byte == b' ' { b'+' } else { byte })
            .collect(),
    );
    // The characters each library leaves unescaped: Python's quote, encodeURIComponent, encodeURI, Java's and PHP's
    // form encoding.
    for lower in [false, true] {
        add(EncodingKind::Plain, percent(value, |byte| is_unreserved(byte) || byte == b'/', lower));
        add(
            EncodingKind::Plain,
            percent(value, |byte| is_unreserved(byte) || b"!'()*".contains(&byte), lower),
        );
        add(EncodingKind::Plain, percent(value, |byte| is_path(byte) || matches!(byte, b'?' | b'#'), lower));
        for kept in [b"-_.".as_slice(), b"-_.*", b"-_./"] {
            let form = percent(
                value,
                |byte| byte.is_ascii_alphanumeric() || kept.contains(&byte) || byte == b' ',
                lower,
            );
            add(
                EncodingKind::Plain,
                form.iter().map(|&byte| if byte == b' ' { b'+' } else { byte }).collect(),
            );
        }
    }
    add(EncodingKind::Plain, percent(value, is_path, false));
    add(EncodingKind::Plain, percent(value, |_| false, false));
    add(EncodingKind::Plain, percent(value, |_| false, true));
    for slash in [false, true] {
        for text in json(value, slash) {
            add(EncodingKind::Plain, text);
        }
    }
    for quote in ["&#39;", "&apos;", "&#x27;", "'"] {
        for double in ["&quot;", "&#34;", "\""] {
            add(EncodingKind::Plain, xml(value, quote, double));
        }
    }
    // Templates that escape a few more characters: Go, .NET, Handlebars, mustache.
    for (quote, double, more) in [
        ("&#39;", "&#34;", &[(b'+', "&#43;")][..]),
        ("&#x27;", "&quot;", &[(b'+', "&#x2B;")]),
        ("&#x27;", "&quot;", &[(b'=', "&#x3D;"), (b'`', "&#x60;")]),
        ("&#39;", "&quot;", &[(b'=', "&#x3D;"), (b'`', "&#x60;"), (b'/', "&#x2F;")]),
    ] {
        let form = xml(value, quote, double);
        add(EncodingKind::Plain, more.iter().fold(form, |form, (sign, with)| replace(&form, *sign, with)));
    }
    add(EncodingKind::Plain, each(value, |byte| format!("&#{byte};")));
    add(EncodingKind::Plain, each(value, |byte| format!("&#x{byte:x};")));
    add(EncodingKind::Plain, each(value, |byte| format!("&#x{byte:X};")));
    for inside in ["'\\''", "'\"'\"'"] {
        add(EncodingKind::Plain, replace(value, b'\'', inside));
    }
    add(
        EncodingKind::Plain,
        backslashed(value, |byte| {
            !(is_unreserved(byte)
                || matches!(byte, b'/' | b':' | b'@' | b'%' | b'+' | b',' | b'=')
                || byte >= 0x80)
        }),
    );
    add(EncodingKind::Plain, backslashed(value, |byte| matches!(byte, b'"' | b'\\' | b'$' | b'`' | b'!')));
    add(EncodingKind::Plain, backslashed(value, |byte| matches!(byte, b'"' | b'\\' | b'$' | b'`')));
    for form in c_escapes(value) {
        add(EncodingKind::Plain, form);
    }
    if let Ok(text) = std::str::from_utf8(value) {
        add(EncodingKind::Plain, text.encode_utf16().flat_map(u16::to_be_bytes).collect());
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for shift in 0..3 {
            add(EncodingKind::Base64, base64_inside(&wide, shift, false));
        }
        add(EncodingKind::Plain, wide);
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        add(EncodingKind::Plain, escaped.to_uppercase().replace("\\U", "\\u").into_bytes());
        add(EncodingKind::Plain, escaped.into_bytes());
    }
}

/// The base64 letters that depend on the value alone when it begins `shift` bytes into a group of three.
fn base64_inside(value: &[u8], shift: usize, url: bool) -> Vec<u8> {
    let alphabet = if url { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let engine = GeneralPurpose::new(alphabet, GeneralPurposeConfig::new().with_encode_padding(false));
    let mut shifted = vec![0; shift];
    shifted.extend_from_slice(value);
    let text = engine.encode(&shifted).into_bytes();
    zeroize::Zeroize::zeroize(&mut shifted);
    let first = (shift * 8).div_ceil(6);
    let last = (shift + value.len()) * 8 / 6;
    text.get(first..last).unwrap_or_default().to_vec()
}

fn each(value: &[u8], write: impl Fn(u8) -> String) -> Vec<u8> {
    escape_with(value, |_| false, write)
}

/// Writes the bytes that are `plain` as they are and the others with `write`.
fn escape_with(value: &[u8], plain: impl Fn(u8) -> bool, write: impl Fn(u8) -> String) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * value.len());
    for &byte in value {
        if plain(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(write(byte).as_bytes());
        }
    }
    out
}

/// The ways to escape one character.
const ESCAPES: &[fn(u8) -> String] = &[
    |byte| format!("%{byte:02X}"),
    |byte| format!("%{byte:02x}"),
    |byte| format!("%25{byte:02X}"),
    |byte| format!("={byte:02X}"),
    |byte| format!("\\u{byte:04x}"),
    |byte| format!("\\u{byte:04X}"),
    |byte| format!("\\\\u{byte:04x}"),
    |byte| format!("\\x{byte:02x}"),
    |byte| format!("\\x{byte:02X}"),
    |byte| format!("&#{byte};"),
    |byte| format!("&#x{byte:x};"),
    |byte| format!("&#x{byte:X};"),
];

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

fn is_path(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' | b'/'
        )
}

fn percent(value: &[u8], plain: impl Fn(u8) -> bool, lower: bool) -> Vec<u8> {
    escape_with(value, plain, |byte| if lower { format!("%{byte:02x}") } else { format!("%{byte:02X}") })
}

fn replace(value: &[u8], what: u8, with: &str) -> Vec<u8> {
    escape_with(value, |byte| byte != what, |_| with.to_owned())
}

fn backslashed(value: &[u8], special: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * value.len());
    for &byte in value {
        out.extend(special(byte).then_some(b'\\'));
        out.push(byte);
    }
    out
}

/// JSON string encodings: non-ASCII letters plain or as `\u`, `/` plain or escaped, and each of these once more inside
/// another JSON string.
fn json(value: &[u8], slash: bool) -> Vec<Vec<u8>> {
    let Ok(text) = std::str::from_utf8(value) else { return Vec::new() };
    let write = |ascii: bool, escaped: &str, capitals: bool| {
        let unit = |unit: u16| if capitals { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
        let mut out = String::new();
        for c in text.chars() {
            match c {
                c if escaped.contains(c)
                    || c < ' ' && !"\n\r\t\u{8}\u{c}".contains(c)
                    || (ascii && !c.is_ascii()) =>
                {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|one| out.push_str(&unit(*one)));
                }
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '/' if slash => out.push_str("\\/"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c => out.push(c),
            }
        }
        out.into_bytes()
    };
    let mut all = Vec::new();
    // Nothing; Go and Rails; templates; .NET; PHP.
    for escaped in ["", "<>&", "<>&'", "<>&'\"+`", "<>&'\""] {
        for (ascii, capitals) in [(false, false), (true, false), (true, true), (false, true)] {
            all.push(write(ascii, escaped, capitals));
        }
    }
    let twice: Vec<Vec<u8>> =
        all.iter().map(|once| backslashed(once, |byte| matches!(byte, b'"' | b'\\'))).collect();
    all.extend(twice);
    all
}

fn xml(value: &[u8], quote: &str, double: &str) -> Vec<u8> {
    value
        .iter()
        .flat_map(|&byte| match byte {
            b'&' => b"&amp;".to_vec(),
            b'<' => b"&lt;".to_vec(),
            b'>' => b"&gt;".to_vec(),
            b'"' => double.as_bytes().to_vec(),
            b'\'' => quote.as_bytes().to_vec(),
            byte => vec![byte],
        })
        .collect()
}

/// String literals of C, Python and similar languages: special characters escaped; non-ASCII bytes, or all bytes, in
/// hex or octal.
fn c_escapes(value: &[u8]) -> Vec<Vec<u8>> {
    let short = |byte: u8| match byte {
        b'\n' => Some("\\n"),
        b'\r' => Some("\\r"),
        b'\t' => Some("\\t"),
        b'\\' => Some("\\\\"),
        _ => None,
    };
    let plain = |byte: u8| if byte >= 0x80 { vec![byte] } else { char::from(byte).to_string().into_bytes() };
    // Python's `repr`: non-ASCII letters stay.
    let shown = |quote: u8| -> Vec<u8> {
        let one = |&byte: &u8| match byte {
            byte if short(byte).is_some() => short(byte).unwrap_or_default().as_bytes().to_vec(),
            byte if byte == quote => vec![b'\\', byte],
            byte if byte < b' ' || byte == 0x7f => format!("\\x{byte:02x}").into_bytes(),
            byte => plain(byte),
        };
        value.iter().flat_map(one).collect()
    };
    let write = |quote: u8, octal: bool| {
        each(value, |byte| match byte {
            byte if short(byte).is_some() => short(byte).unwrap_or_default().to_owned(),
            byte if byte == quote => format!("\\{}", char::from(byte)),
            byte if !(b' '..0x7f).contains(&byte) && octal => format!("\\{byte:03o}"),
            byte if !(b' '..0x7f).contains(&byte) => format!("\\x{byte:02x}"),
            byte => char::from(byte).to_string(),
        })
    };
    let mut all: Vec<Vec<u8>> =
        [b'\'', b'"', 0].into_iter().flat_map(|quote| [shown(quote), ascii(value, quote)]).collect();
    all.extend([
        write(b'"', false),
        write(b'\'', false),
        write(b'"', true),
        write(b'\'', true),
        each(value, |byte| format!("\\x{byte:02x}")),
        each(value, |byte| format!("\\x{byte:02X}")),
        each(value, |byte| format!("\\{byte:03o}")),
    ]);
    all
}

/// Python's `ascii`.
fn ascii(value: &[u8], quote: u8) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(value) else { return Vec::new() };
    let one = |c: char| match u32::from(c) {
        10 => "\\n".to_owned(),
        13 => "\\r".to_owned(),
        9 => "\\t".to_owned(),
        code if c == '\\' || (code == u32::from(quote)) => format!("\\{c}"),
        32..=126 => c.to_string(),
        code @ 0..=0xff => format!("\\x{code:02x}"),
        code @ 0x100..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    };
    text.chars().map(one).collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(value: &str, form: &str) -> bool {
        encodings(value.as_bytes()).iter().any(|found| found.bytes.expose() == form.as_bytes())
    }

    // T21: each listed encoding of a value is searched for
    #[test]
    fn every_listed_encoding_is_produced() {
        let value = "p\u{e4}ss/w'rd\"<7> $x";
        for form in [
            value,
            "p%C3%A4ss%2Fw%27rd%22%3C7%3E%20%24x",
            "p%c3%a4ss%2fw%27rd%22%3c7%3e%20%24x",
            "p%C3%A4ss%2Fw%27rd%22%3C7%3E+%24x",
            "p\u{e4}ss/w'rd\\\"<7> $x",
            "p\\u00e4ss/w'rd\\\"<7> $x",
            "p\\u00e4ss\\/w'rd\\\"<7> $x",
            "p\u{e4}ss/w&#39;rd&quot;&lt;7&gt; $x",
            "p\u{e4}ss/w'\\''rd\"<7> $x",
            "p\u{e4}ss/w'rd\\\"<7> \\$x",
            "p\\xc3\\xa4ss/w\\'rd\"<7> $x",
            "p\\303\\244ss/w'rd\\\"<7> $x",
            "70c3a473732f77277264223c373e202478",
        ] {
            assert!(has(value, form), "{form}");
        }
    }

    #[test]
    fn template_escapes_of_a_few_characters_are_produced() {
        let value = "key-a+b/c=d`e";
        for form in [
            "key-a&#43;b/c=d`e",
            "key-a&#x2B;b/c=d`e",
            "key-a+b/c&#x3D;d&#x60;e",
            "key-a+b&#x2F;c&#x3D;d&#x60;e",
        ] {
            assert!(has(value, form), "{form}");
        }
    }

    #[test]
    fn base64_is_found_at_every_shift() {
        let value = "correct-horse-battery!";
        for before in ["", "a", "ab", "abc", "x:"] {
            for after in ["", "z", "zz", "zzz"] {
                let text = base64::prelude::BASE64_STANDARD.encode(format!("{before}{value}{after}"));
                let found = encodings(value.as_bytes()).iter().any(|form| {
                    let inside = form.bytes.expose();
                    form.encoding == EncodingKind::Base64
                        && text.as_bytes().windows(inside.len()).any(|window| window == inside)
                });
                assert!(found, "{before}|{after}");
            }
        }
    }

    #[test]
    fn lines_of_a_value_are_searched_alone_and_joined() {
        let key = "-----BEGIN X-----\nfirst-line-of-it\r\nsecond-line-of-it\nx\n-----END X-----\n";
        assert!(has(key, "first-line-of-it") && has(key, "second-line-of-it"));
        assert!(has(key, "-----BEGIN X-----first-line-of-itsecond-line-of-itx-----END X-----"));
        assert!(has(
            key,
            "-----BEGIN X-----\\nfirst-line-of-it\\r\\nsecond-line-of-it\\nx\\n-----END X-----"
        ));
        assert!(!has(key, "-----BEGIN X-----") && !has(key, "x"));
    }
}
