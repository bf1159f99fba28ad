//! Streams: the same output however the input is split; a fixed point; bounded memory; idle flushes.

use proptest::prelude::*;
use vambrace_redact::{HELD_BYTES, MAX_HELD_BYTES, Redactor};

use crate::fixtures::{ALNUM, SeededRng, clean, document, known, private_key, redactor};

fn in_pieces(redactor: &Redactor, text: &[u8], cuts: &[usize]) -> Vec<u8> {
    let (mut stream, mut out, mut from) = (redactor.stream(), Vec::new(), 0);
    for &cut in cuts.iter().chain([&text.len()]) {
        stream.push(&text[from..cut.max(from)], &mut out).unwrap();
        from = cut.max(from);
    }
    stream.finish(&mut out).unwrap();
    out
}

// T21: every split point of many documents
#[test]
fn the_output_does_not_depend_on_how_the_input_is_split() {
    let redactor = redactor(&["correct-horse-battery", "first line of it\nsecond line of it"]);
    let mut rng = SeededRng(7);
    for round in 0..4 {
        let (mut text, _) = document(&mut rng, 8);
        text +=
            "x correct-horse-battery y Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5 first line of it\nsecond line of it\n";
        text += &private_key(&mut rng, 3);
        text += &prefixed(&private_key(&mut rng, 3), "\nweb_1  | ");
        let whole = redactor.redact_bytes(text.as_bytes()).unwrap().0.into_owned();
        for cut in 0..=text.len() {
            assert_eq!(in_pieces(&redactor, text.as_bytes(), &[cut]), whole, "round {round}, cut at {cut}");
        }
        let each: Vec<usize> = (1..text.len()).collect();
        assert_eq!(in_pieces(&redactor, text.as_bytes(), &each), whole, "round {round}, byte by byte");
    }
}

// T21: documents longer than what is held back, split anywhere
#[test]
fn long_documents_give_the_same_output_in_any_chunks() {
    let redactor = redactor(&["correct-horse-battery"]);
    let mut rng = SeededRng(11);
    for _ in 0..2 {
        let (mut text, _) = document(&mut rng, 400);
        text += &private_key(&mut rng, 2000);
        text += &format!(" eyJhbGciOiJIUzI1NiJ9.eyJ{}.{}", rng.letters(ALNUM, 9000), rng.letters(ALNUM, 40));
        let (more, _) = document(&mut rng, 300);
        text += &more;
        text += &prefixed(&private_key(&mut rng, 2000), "\nkey.pem-12-");
        let whole = redactor.redact_bytes(text.as_bytes()).unwrap().0.into_owned();
        for size in [61, 1000, 4096, 65536] {
            let cuts: Vec<usize> = (1..text.len() / size).map(|n| n * size).collect();
            assert!(in_pieces(&redactor, text.as_bytes(), &cuts) == whole, "pieces of {size}");
        }
        for _ in 0..8 {
            let mut cuts: Vec<usize> = (0..30).map(|_| rng.below(text.len())).collect();
            cuts.sort_unstable();
            assert!(in_pieces(&redactor, text.as_bytes(), &cuts) == whole, "{cuts:?}");
        }
    }
}

/// Each line with a prefix.
fn prefixed(key: &str, before: &str) -> String {
    format!("{before}{}\n", key.replace('\n', before))
}

// T21: `docker compose logs`, `grep -n`, a diff; longer than what is replaced at once
#[test]
fn no_line_of_a_key_is_left_whatever_its_prefix() {
    let redactor = redactor(&[]);
    let mut rng = SeededRng(13);
    for lines in [4, 3000] {
        let key = private_key(&mut rng, lines);
        for before in [
            "\nweb_1  | ",
            "\n12:",
            "\n-",
            "\n+",
            "\n> ",
            "\n    ",
            "\n2026-11-16T05:37:42Z web-7f9c ",
            "\\n",
            "%0A",
            "\\u000a",
        ] {
            let text = prefixed(&key, before);
            let out = clean(&redactor, &text);
            for line in key.lines().filter(|line| !line.starts_with("-----")) {
                assert!(!out.contains(line), "{before:?}, {lines} lines: {line} of {}", out.len());
            }
            let cuts: Vec<usize> = (1..text.len() / 777).map(|n| n * 777).collect();
            assert!(
                in_pieces(&redactor, text.as_bytes(), &cuts) == out.as_bytes(),
                "{before:?}, {lines} lines"
            );
        }
    }
}

// T21: the end of a value that is longer than the window
#[test]
fn no_end_of_a_long_value_is_left() {
    let redactor = redactor(&[]);
    let mut rng = SeededRng(17);
    let signs = format!("{ALNUM}!#%,;()*+-./:=?@[]_|~ ");
    for length in [400, 700, 3000, 9000, 150_000] {
        let plain = rng.letters(ALNUM, length);
        let odd = rng.letters(&signs, length).replace(' ', "_");
        for (text, value) in [
            (format!("password=\"{odd}\"\n"), &odd),
            (format!("{{\"token\": \"{plain}\", \"x\": 1}}"), &plain),
            (format!("DB_PASSWORD={odd}\n"), &odd),
            (format!("password: '{odd}'\n"), &odd),
            (format!("client-key-data: {plain}\n"), &plain),
            (format!("Authorization: Bearer {plain}\n"), &plain),
            (format!("Authorization: Basic {plain}\n"), &plain),
            (format!("tool --token={plain} run\n"), &plain),
            (format!("machine h login u password {plain}\n"), &plain),
            (format!("Cookie: a=b; session={plain}; c=d\n"), &plain),
        ] {
            let out = clean(&redactor, &text);
            for piece in [0, length / 2, length - 24] {
                assert!(!out.contains(&value[piece..piece + 24]), "{length}, at {piece}: {}", &text[..40]);
            }
            let after = text.rsplit(value.as_str()).next().unwrap();
            assert!(out.ends_with(&format!("]{after}")), "{length}: {} -> {}", &text[..40], out.len());
            let cuts: Vec<usize> = (1..text.len() / 999).map(|n| n * 999).collect();
            assert!(
                in_pieces(&redactor, text.as_bytes(), &cuts) == out.as_bytes(),
                "{length}: {}",
                &text[..40]
            );
        }
    }
}

// T21: redacting twice changes nothing
#[test]
fn redaction_is_a_fixed_point() {
    let redactor = redactor(&["correct-horse-battery", "hunter22"]);
    let mut rng = SeededRng(3);
    for _ in 0..40 {
        let (text, secrets) = document(&mut rng, 20);
        // Also without separators.
        for text in [
            text.clone(),
            text.replace(['\n', ' '], ""),
            secrets.concat(),
            format!("hunter22{}", secrets.join("hunter22")),
        ] {
            let once = clean(&redactor, &text);
            assert_eq!(clean(&redactor, &once), once, "{text}");
        }
    }
}

// T21
#[test]
fn planted_secrets_are_replaced_and_equal_ones_look_equal() {
    let redactor = redactor(&[]);
    let mut rng = SeededRng(5);
    let (mut all, mut left) = (0, Vec::new());
    for _ in 0..60 {
        let (text, secrets) = document(&mut rng, 20);
        let out = clean(&redactor, &text);
        all += secrets.len();
        left.extend(secrets.into_iter().filter(|secret| out.contains(secret.as_str())));
    }
    assert!(left.len() * 100 <= all, "{} of {all} are left: {left:?}", left.len());
    let out = clean(&redactor, "DB_PASSWORD=aB3!xyz77\npassword: aB3!xyz77\nDB_PASSWORD=aB3!xyz78\n");
    let prints: Vec<&str> = out.lines().map(|line| &line[line.len() - 9..line.len() - 1]).collect();
    assert!(prints[0] == prints[1] && prints[0] != prints[2], "{out}");
}

#[test]
fn memory_is_bounded_for_any_input() {
    let redactor = redactor(&["correct-horse-battery"]);
    for (text, most) in [
        ("x".repeat(1 << 20), 3 * MAX_HELD_BYTES),
        ("word ".repeat(1 << 18), 3 * HELD_BYTES),
        (format!("-----BEGIN {} KEY-----\n{}", "PRIVATE", "QUJD".repeat(1 << 18)), 3 * MAX_HELD_BYTES),
        ("password=".repeat(1 << 16), 3 * MAX_HELD_BYTES),
        ("correct-horse-battery".repeat(1 << 14), 3 * MAX_HELD_BYTES),
    ] {
        let (mut stream, mut given) = (redactor.stream(), 0);
        for (n, piece) in text.as_bytes().chunks(1 << 15).enumerate() {
            let mut out = Vec::new();
            stream.push(piece, &mut out).unwrap();
            given += out.len();
            // Replacements are shorter than what they replace, so this only holds for texts without any.
            if stream.count() == 0 {
                assert!(
                    (n + 1) * (1 << 15) - given <= most + (1 << 15),
                    "{} held",
                    (n + 1) * (1 << 15) - given
                );
            }
        }
    }
}

// T21: an idle flush writes whole lines, keeps the unfinished one, and reveals neither a key nor a known value
#[test]
fn an_idle_flush_writes_whole_lines_and_reveals_no_key_or_known_value() {
    let mut rng = SeededRng(9);
    let key = private_key(&mut rng, 6);
    let redactor = redactor(&["first line of it\nsecond line of it"]);
    let text = format!("hello\nfirst line of it\nsecond line of it\n{key}\npassword=aB3!xyz77\nunfinished");
    let (mut stream, mut out) = (redactor.stream(), Vec::new());
    for line in text.split_inclusive('\n') {
        stream.push(line.as_bytes(), &mut out).unwrap();
        stream.flush_idle(&mut out).unwrap();
    }
    let flushed = String::from_utf8(out.clone()).unwrap();
    assert!(flushed.starts_with("hello\n[REDACTED:env:") && flushed.ends_with("]\n"), "{flushed}");
    for line in
        key.lines().filter(|line| !line.starts_with("---")).chain(["line of it", "aB3!xyz77", "unfinished"])
    {
        assert!(!flushed.contains(line), "{line}: {flushed}");
    }
    stream.finish(&mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().ends_with("\nunfinished"));
    // The documented price: a value on the line after its name.
    let (mut stream, mut out) = (redactor.stream(), Vec::new());
    stream.push(b"password:\n", &mut out).unwrap();
    stream.flush_idle(&mut out).unwrap();
    stream.push(b"  \"aB3!xyz77\"\n", &mut out).unwrap();
    stream.finish(&mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().contains("aB3!xyz77"));
    assert!(!clean(&redactor, "password:\n  \"aB3!xyz77\"\n").contains("aB3!xyz77"));
}

// T21: a prompt is shown, one that a secret may follow is not, and a line that continues is still one line
#[test]
fn a_prompt_is_flushed_and_half_a_secret_is_not() {
    let redactor = redactor(&["known value: of it"]);
    let flushed = |pieces: &[&str]| {
        let (mut stream, mut out) = (redactor.stream(), Vec::new());
        for piece in pieces {
            stream.push(piece.as_bytes(), &mut out).unwrap();
            stream.flush_prompt(&mut out).unwrap();
        }
        String::from_utf8(out).unwrap()
    };
    for asked in ["name? ", "line\nGo on [Y/n] ", ">>> ", "(yes/no) ", "a: b: "] {
        assert_eq!(flushed(&[asked]), asked);
    }
    for held in [
        "Password: ",
        "API-Key? ",
        "Kennwort: ",
        "no question ",
        "name?",
        "x = ",
        &format!("{}: ", "x".repeat(200)),
    ] {
        assert_eq!(flushed(&["line\n", held]), "line\n", "{held}");
    }
    assert_eq!(flushed(&["known value: ", "of it\n"]).matches("known").count(), 0);
    assert!(flushed(&["name? ", "password=aB3!xyz77\n"]).starts_with("name? password=[REDACTED"));
}

// T21: values change during a stream
#[test]
fn known_values_can_be_replaced_during_a_stream() {
    let redactor = redactor(&["old-value-of-it"]);
    let (mut stream, mut out) = (redactor.stream(), Vec::new());
    stream.push(b"old-value-of-it\n", &mut out).unwrap();
    stream.flush_idle(&mut out).unwrap();
    redactor.replace_known_values(&known(&["new-value-of-it"]));
    stream.push(b"new-value-of-it old-value-of-it\n", &mut out).unwrap();
    stream.finish(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("new-value") && text.matches("old-value-of-it").count() == 1, "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 60, ..ProptestConfig::default() })]

    // T21: any bytes, any chunks
    #[test]
    fn any_bytes_in_any_chunks_give_the_same_output(
        parts in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..40),
            prop::sample::select(vec![
                b"password=".to_vec(), b"\"secret\": \"".to_vec(), b"correct-horse-battery".to_vec(), b"aB3!xyz77".to_vec(), b"\n".to_vec(), b" ".to_vec(),
                b"https://u:".to_vec(), b"@h".to_vec(), b"Bearer ".to_vec(), b"-----BEGIN PRIVATE KEY-----\n".to_vec(), b"-----END".to_vec(),
                b"0123456789abcdefABCDEF0123456789abcdef".to_vec(), b"[REDACTED:env:01234567]".to_vec(), b"[REDACTED:".to_vec(), b"glpat-".to_vec(), b"AKIAABCDEFGHIJKLMNO2".to_vec(),
            ]),
        ], 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        static REDACTOR: std::sync::OnceLock<Redactor> = std::sync::OnceLock::new();
        let redactor = REDACTOR.get_or_init(|| redactor(&["correct-horse-battery"]));
        let text = parts.concat();
        let whole = redactor.redact_bytes(&text).unwrap().0.into_owned();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.sort_unstable();
        prop_assert_eq!(&in_pieces(redactor, &text, &places), &whole);
        prop_assert!(!whole.windows(21).any(|window| window == b"correct-horse-battery"));
        let twice = redactor.redact_bytes(&whole).unwrap().0.into_owned();
        prop_assert_eq!(String::from_utf8_lossy(&twice), String::from_utf8_lossy(&whole));
    }
}

// T21: long runs of escapes; what is found in them does not depend on the chunks either
#[test]
fn escaped_tokens_are_found_in_any_chunks_and_at_any_length() {
    let value = "hx7_Q-z!9k.Tn2@wP4$e";
    let redactor = redactor(&[value]);
    let mut rng = SeededRng(17);
    let token = |rng: &mut SeededRng| format!("gh{}%5F{}", "p", rng.letters(ALNUM, 36));
    let hex: Vec<String> = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    for junk in [0, 300, 1500] {
        let first = token(&mut rng);
        let web = format!(
            "eyJ{}%2EeyJ{}%2E{}",
            rng.letters(ALNUM, 40),
            rng.letters(ALNUM, 6000),
            rng.letters(ALNUM, 43)
        );
        let text = format!(
            "{}{first} and {web} then {}\\n{} end\n",
            "ab%5Fcd%2De-".repeat(junk),
            hex.join(":"),
            token(&mut rng)
        );
        let whole = redactor.redact_bytes(text.as_bytes()).unwrap().0.into_owned();
        let out = String::from_utf8_lossy(&whole).into_owned();
        assert!(!out.contains(&first[6..]) && !out.contains("eyJ") && !out.contains("%2E"), "{out}");
        assert!(!out.contains(&web[web.len() - 20..]) && !out.contains(&hex.join(":")), "{out}");
        assert_eq!(out.matches("%5F").count(), junk, "{out}");
        assert_eq!(*redactor.redact_bytes(&whole).unwrap().0, *whole, "a fixed point");
        for size in [1, 7, 61, 1000, 4096] {
            let cuts: Vec<usize> = (1..text.len() / size).map(|n| n * size).collect();
            assert!(in_pieces(&redactor, text.as_bytes(), &cuts) == whole, "junk {junk}, pieces of {size}");
        }
    }
}

// T21: with more passes, each would find more
#[test]
fn a_line_in_which_each_replacement_reveals_the_next_reaches_a_fixed_point() {
    let redactor = redactor(&[]);
    let mut rng = SeededRng(19);
    for line in [
        "net user ada <p> /add cmd <p> more <p> and <p> and <p> and <p>",
        "psexec -p <p> x -p <p> y -p <p> z -p <p>",
        "{\"password\":\"a1 API_TOKEN=<p> /x=1 API_TOKEN=<p> /y=2 API_TOKEN=<p> /z=3 API_TOKEN=<p> /u=4 API_TOKEN=<p>",
        "\"password\":\"HOME=/a\0API_TOKEN=<p>\0B=/b\0API_TOKEN=<p>\0C=/c\0API_TOKEN=<p>\0D=/d\0API_TOKEN=<p>\0E=/e",
    ] {
        let mut text = line.repeat(3);
        while text.contains("<p>") {
            text = text.replacen("<p>", &rng.letters(ALNUM, 20), 1);
        }
        let once = clean(&redactor, &text);
        assert_eq!(clean(&redactor, &once), once, "{text}");
    }
}
