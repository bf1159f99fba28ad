//! Known values: every encoding, in every context.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use vambrace_core::redacted::Redact as _;
use vambrace_redact::{Redactor, RuleSet};

use crate::fixtures::{clean, known, redactor};

/// The encodings of a value, computed without the redactor's code.
fn forms(value: &str) -> Vec<(String, String)> {
    let bytes = value.as_bytes();
    let each = |write: &dyn Fn(u8) -> String| bytes.iter().map(|byte| write(*byte)).collect::<String>();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let mut all = vec![
        ("raw".to_owned(), value.to_owned()),
        ("json".to_owned(), serde_json::to_string(value).unwrap().trim_matches('"').to_owned()),
        ("json twice".to_owned(), serde_json::to_string(&serde_json::to_string(value).unwrap()).unwrap()),
        ("hex".to_owned(), each(&|byte| format!("{byte:02x}"))),
        ("HEX".to_owned(), each(&|byte| format!("{byte:02X}"))),
        (
            "percent".to_owned(),
            each(&|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }),
        ),
        (
            "percent small".to_owned(),
            each(&|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }),
        ),
        ("percent all".to_owned(), each(&|byte| format!("%{byte:02X}"))),
        ("c".to_owned(), each(&|byte| format!("\\x{byte:02x}"))),
        (
            "xml".to_owned(),
            value
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;")
                .replace('\'', "&apos;"),
        ),
        ("shell".to_owned(), value.replace('\'', "'\\''")),
        ("stripped".to_owned(), value.replace('\n', "")),
    ];
    // The characters each library leaves unescaped: Python's quote and quote_plus, encodeURIComponent, encodeURI,
    // Java's and PHP's form encoding.
    for (name, kept) in [
        ("quote", "-_.~/"),
        ("quote_plus", "-_.~ "),
        ("quote_plus, safe /", "-_./ "),
        ("encodeURIComponent", "-_.~!'()*"),
        ("encodeURI", "-_.~!'()*;/?:@&=+$,#"),
        ("URLEncoder", "-_.* "),
        ("urlencode", "-_. "),
    ] {
        let form = each(&|byte| match byte {
            b' ' if kept.contains(' ') => "+".to_owned(),
            byte if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        });
        all.push((name.to_owned(), form));
    }
    // What each writes as `\u`: Go, a template, .NET, PHP.
    for (name, escaped, capitals) in [
        ("go", "<>&", false),
        ("template", "<>&'", false),
        ("net", "<>&'\"+`", true),
        ("php", "<>&'\"", true),
    ] {
        let one = |c: char| match c {
            c if escaped.contains(c) || (capitals && !c.is_ascii()) => {
                let unit =
                    |unit: &u16| if capitals { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
                c.encode_utf16(&mut [0; 2]).iter().map(unit).collect()
            }
            c => serde_json::to_string(&c.to_string()).unwrap().trim_matches('"').to_owned(),
        };
        // Trimming a lone quote would leave nothing.
        all.push((
            name.to_owned(),
            value
                .chars()
                .map(|c| if c == '"' && !escaped.contains('"') { "\\\"".to_owned() } else { one(c) })
                .collect(),
        ));
    }
    // Python's `repr` of a string, and of its bytes.
    let shown = |quote: char, high: &dyn Fn(char) -> String| {
        let one = |c: char| match c {
            '\n' => "\\n".to_owned(),
            c if c == '\\' || c == quote => format!("\\{c}"),
            c if c.is_ascii() => c.to_string(),
            c => high(c),
        };
        value.chars().map(one).collect::<String>()
    };
    all.push(("repr".to_owned(), shown('\'', &|c| c.to_string())));
    all.push((
        "repr of bytes".to_owned(),
        shown('\'', &|c| c.to_string().bytes().map(|byte| format!("\\x{byte:02x}")).collect()),
    ));
    all.push((
        "ascii".to_owned(),
        shown('\'', &|c| match u32::from(c) {
            code @ 0..=0xff => format!("\\x{code:02x}"),
            code @ 0x100..=0xffff => format!("\\u{code:04x}"),
            code => format!("\\U{code:08x}"),
        }),
    ));
    for before in ["", "u", "u:", "u:p"] {
        for after in ["", "x", "xy"] {
            let text = format!("{before}{value}{after}");
            all.push((format!("base64 {before}|{after}"), BASE64_STANDARD.encode(&text)));
            all.push((format!("base64 open {before}|{after}"), BASE64_STANDARD_NO_PAD.encode(&text)));
            all.push((format!("base64 url {before}|{after}"), BASE64_URL_SAFE.encode(&text)));
            all.push((format!("base64 url open {before}|{after}"), BASE64_URL_SAFE_NO_PAD.encode(&text)));
        }
    }
    all
}

// T21: known values in all encodings: nothing is left that reveals the value
#[test]
fn every_encoding_is_found_in_every_context() {
    for value in [
        "hunter22hunter22",
        "p@ss/w'rd\"<7>&$x!",
        "s\u{e9}cret-\u{1f511}-value",
        "two words and more",
        "line one of the value\nline two of the value",
        "A1b2+/==xyz",
        "0123456789",
    ] {
        let redactor = redactor(&[value]);
        for (name, form) in forms(value) {
            for text in [form.clone(), format!("x={form};"), format!("{form}{form}"), format!("[{form}]\n")] {
                let out = clean(&redactor, &text);
                assert!(out.contains("[REDACTED:env:"), "{value} as {name}: {text} -> {out}");
                let piece = |text: &str| text.chars().take(12).collect::<String>();
                assert!(
                    !out.contains(&piece(&form)) || name.starts_with("base64"),
                    "{value} as {name}: {out}"
                );
                assert!(!out.contains(&form), "{value} as {name}: {out}");
            }
        }
        let wide: Vec<u8> = format!("x{value}y").encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert!(redactor.redact_bytes(&wide).unwrap().1 > 0, "{value} in UTF-16");
    }
}

#[test]
fn base64_may_be_broken_into_lines() {
    let value = "a-rather-long-secret-value-that-does-not-fit-on-one-line-of-base64-at-all-0123456789";
    let redactor = redactor(&[value]);
    for width in [20, 57, 64, 76] {
        let packed = BASE64_STANDARD.encode(format!("user:{value}"));
        let text: Vec<&str> =
            packed.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        for between in [
            "\n",
            "\r\n",
            "\n    ",
            "\n\t\t",
            "\\n",
            "\\r\\n",
            "\\\\n",
            "&#10;",
            "%0A",
            "\" +\n        \"",
            "\n> ",
        ] {
            let out = clean(&redactor, &text.join(between));
            assert!(out.contains("[REDACTED:env:") && out.len() < 60, "{width} {between:?}: {out}");
        }
    }
}

// T21: at every position of the line breaks
#[test]
fn base64_is_found_wherever_its_lines_break() {
    let value = "a-rather-long-secret-value-0123456789";
    let redactor = redactor(&[value]);
    for between in ["\n", "\n        ", "\\n"] {
        for shift in 0..70 {
            let packed = BASE64_STANDARD.encode(format!("{}{value} and more", "x".repeat(shift)));
            let lines: Vec<&str> =
                packed.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
            let text = lines.join(between);
            let out = clean(&redactor, &text);
            assert!(
                out.contains("[REDACTED:env:") && out.len() + 20 < text.len(),
                "{between:?} {shift}: {text} -> {out}"
            );
        }
    }
}

// T21: base64 whose punctuation is escaped as in a URL or in JSON
#[test]
fn escaped_characters_of_base64_are_recognised() {
    let value = "\u{3ff}\u{3ff}~~?>>\u{3ff}>?<\u{3ff}~>>?";
    let packed = BASE64_STANDARD.encode(value);
    assert!(packed.contains('/') && packed.contains('+'), "{packed}");
    let redactor = redactor(&[value]);
    for (plus, slash) in [("%2B", "%2F"), ("%2b", "%2f"), ("\\u002B", "/"), ("+", "\\/"), ("&#43;", "&#47;")]
    {
        let text = packed.replace('+', plus).replace('/', slash);
        let out = clean(&redactor, &format!("x={text};"));
        assert!(out.starts_with("x=[REDACTED:env:") && out.len() < 40, "{text} -> {out}");
    }
}

// T21: the configuration sets the minimum length
#[test]
fn the_minimum_length_of_a_known_value_is_configurable() {
    let with = |least| {
        Redactor::with_min_length(
            RuleSet::built_in().unwrap(),
            &known(&["q9Zx", "q9Zx7pLm"]),
            &[],
            least,
            &[7; 32],
        )
    };
    assert_eq!(clean(&with(4), "x q9Zx y q9Zx7pLm").matches("[REDACTED:env:").count(), 2);
    assert_eq!(clean(&with(6), "x q9Zx y q9Zx7pLm").matches("[REDACTED:env:").count(), 1);
    assert_eq!(clean(&with(12), "x q9Zx y q9Zx7pLm").matches("[REDACTED:env:").count(), 0);
}

// T21: a minimum length, and values that are never secrets
#[test]
fn short_values_and_allowed_values_are_left_alone() {
    let redactor = redactor(&["short", "true", "longenough9"]);
    assert_eq!(clean(&redactor, "short true"), "short true");
    let allowed = Redactor::new(
        RuleSet::built_in().unwrap(),
        &known(&["longenough9"]),
        &["longenough9".to_owned()],
        &[7; 32],
    );
    assert_eq!(clean(&allowed, "x longenough9 y"), "x longenough9 y");
    assert_eq!(clean(&allowed, "password = \"longenough9\""), "password = \"longenough9\"");
}

// T21: equal secrets look equal in any encoding; those of another installation look different
#[test]
fn one_value_has_one_fingerprint() {
    let value = "hunter22hunter22";
    let print = |redactor: &Redactor, text: &str| {
        clean(redactor, text).trim_start_matches("[REDACTED:env:").trim_end_matches(']').to_owned()
    };
    let ours = redactor(&[value]);
    assert_eq!(print(&ours, value), print(&ours, &BASE64_STANDARD.encode(value)));
    let theirs = Redactor::new(RuleSet::built_in().unwrap(), &known(&[value]), &[], &[8; 32]);
    assert_ne!(print(&ours, value), print(&theirs, value));
}

// T21: a value at the edge of a text that was cut
#[test]
fn a_secret_at_the_edge_of_a_cut_text_is_redacted() {
    let redactor = redactor(&["sk-abcdef0123456789XYZ", "first line of a key\nsecond line of a key"]);
    for text in ["key=sk-abcdef0123456789XY", "key=sk-ab", "9XYZ and more", "second line of a key"] {
        let masked = redactor.redact_cut(text).unwrap();
        assert!(masked.count >= 1, "{text}: {masked:?}");
        assert!(
            !masked.text.contains("sk-ab")
                && !masked.text.contains("9XYZ")
                && !masked.text.contains("second"),
            "{masked:?}"
        );
    }
    assert_eq!(redactor.redact_cut("nothing of it sk-").unwrap().count, 0);
    let token = format!("gh{}_0a1b2c3d", "p");
    for text in [
        format!("x = {token}"),
        "\"password\": \"aB3!x".to_owned(),
        format!("QUJDREVGR0hJSktMTU5Px7\nQUJD\n-----END RSA {} KEY-----\n", "PRIVATE"),
    ] {
        assert!(redactor.redact_cut(&text).unwrap().count >= 1, "{text}");
    }
}

// T21: a forged placeholder cannot smuggle anything out
#[test]
fn a_forged_placeholder_hides_nothing() {
    let redactor = redactor(&["my-secret-value-9"]);
    let out = clean(&redactor, "[REDACTED:my-secret-value-9:01234567]");
    assert!(!out.contains("my-secret-value-9"), "{out}");
}

// T21: nor can one beside a secret
#[test]
fn a_forged_placeholder_does_not_hide_its_neighbour() {
    let redactor = redactor(&[]);
    let forged = "[REDACTED:x:00000000]";
    for text in [
        format!("password={forged}aB3!xyz77Q"),
        format!("password=aB3!xyz77Q{forged}"),
        format!("DB_PASSWORD=\"{forged}aB3!xyz77Q\""),
        format!("x = f(password=\"aB3!xyz77Q{forged}\")"),
        format!("{{\"password\": \"{forged}{forged}aB3!xyz77Q{forged}\"}}"),
        format!("postgres://app:{forged}aB3!xyz77Q@db/x"),
        format!("postgres://{forged}:aB3!xyz77Q@db/x"),
        format!("machine h login u password {forged}aB3!xyz77Q"),
        format!("password: {forged}aB3!xyz77Q"),
        "password=[REDACTED:kq9zx7plm2vw:00000000]aB3!xyz77Q".to_owned(),
    ] {
        let out = clean(&redactor, &text);
        assert!(!out.contains("aB3!xyz77Q"), "{text} -> {out}");
        assert_eq!(clean(&redactor, &out), out, "{text}");
    }
}

// T21: only punctuation escaped; base64 twice; bytes as a dump, in source code, as a list
#[test]
fn a_known_value_is_found_in_any_dump_of_its_bytes() {
    let value = "hx7_Q-z!9k.Tn2@wP4$e"; // 20 bytes: a dump needs two lines
    let redactor = redactor(&[value]);
    let bytes = value.as_bytes();
    let hex =
        |between: &str| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between);
    let numbers = |between: &str| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(between);
    let signs = |write: fn(u32) -> String| {
        let one = |c: char| if c.is_ascii_alphanumeric() { c.to_string() } else { write(u32::from(c)) };
        value.chars().map(one).collect::<String>()
    };
    // As `xxd`, `hexdump -C` and `od` print it, beginning at any column.
    let dump = |before: usize, number: fn(usize) -> String, group: usize, letters: bool| {
        let text = format!("{}{value} and so on", "=".repeat(before));
        let line = |(n, line): (usize, &[u8])| {
            let shown: Vec<String> = line
                .chunks(group)
                .map(|few| few.iter().map(|byte| format!("{byte:02x}")).collect())
                .collect();
            let beside =
                if letters { format!("  |{}|", String::from_utf8_lossy(line)) } else { String::new() };
            format!("{}{}{beside}\n", number(n * 16), shown.join(" "))
        };
        text.as_bytes().chunks(16).enumerate().map(line).collect::<String>()
    };
    let mut texts = vec![
        hex(" "),
        hex(":"),
        hex("-"),
        hex(", "),
        hex(",0x"),
        hex(", 0x"),
        hex(" 0x"),
        hex("\\x"),
        hex(":\n    "),
    ];
    texts.extend([numbers(","), numbers(", "), numbers(" "), numbers(",\n      ")]);
    texts.extend([
        signs(|code| format!("%{code:02X}")),
        signs(|code| format!("%25{code:02X}")),
        signs(|code| format!("={code:02X}")),
        value.to_uppercase(),
        value.to_lowercase(),
        signs(|code| format!("\\u{code:04x}")),
        signs(|code| format!("\\u{code:04X}")),
        signs(|code| format!("\\\\u{code:04x}")),
        signs(|code| format!("\\x{code:02X}")),
        signs(|code| format!("&#{code};")),
        signs(|code| format!("&#x{code:X};")),
    ]);
    for before in 0..16 {
        texts.push(dump(before, |n| format!("{n:08x}: "), 2, true));
        texts.push(dump(before, |n| format!("{n:08x}  "), 1, true));
        texts.push(dump(before, |n| format!("{n:07o} "), 1, false));
    }
    for before in ["", "u", "u:"] {
        for outer in ["", "{", "{\""] {
            let inner = BASE64_STANDARD.encode(format!("{before}{value}more"));
            texts.push(BASE64_STANDARD.encode(format!("{outer}{inner}\"}}")));
        }
        let wide: Vec<u8> =
            format!("{before}{value}more").encode_utf16().flat_map(u16::to_le_bytes).collect();
        texts.push(BASE64_STANDARD.encode(wide));
    }
    for text in texts {
        let out = clean(&redactor, &format!("x [{text}] y"));
        assert!(out.contains("[REDACTED:env:"), "{text} -> {out}");
        let mut pieces = value.as_bytes().windows(5).map(|five| std::str::from_utf8(five).unwrap());
        assert!(!pieces.any(|piece| out.contains(piece)), "{text} -> {out}");
        assert!(out.len() < text.len() / 2 + 140, "{text} -> {out}");
    }
}
