//! Fuzz targets: functions that must neither panic nor break their invariants, whatever bytes they get.

use vambrace_redact::{KnownValue, Redactor, RuleSet, SecretBytes};

/// The stream: the same output in chunks as at once, a fixed point, no known value left.
pub(crate) fn stream(bytes: &[u8]) {
    thread_local! {
        static REDACTOR: Redactor = {
            let values = [KnownValue { kind: "env".to_owned(), value: SecretBytes::from("correct-horse") }];
            let rules = RuleSet::built_in().expect("the built-in rules load");
            Redactor::new(rules, &values, &[], &[7; 32])
        };
    }
    REDACTOR.with(|redactor| {
        let whole = redactor.redact_bytes(bytes).expect("any bytes can be redacted").0.into_owned();
        let step = usize::from(bytes.first().copied().unwrap_or(0)) + 1;
        let (mut stream, mut out) = (redactor.stream(), Vec::new());
        for piece in bytes.chunks(step) {
            stream.push(piece, &mut out).expect("any bytes can be redacted");
        }
        stream.finish(&mut out).expect("any bytes can be redacted");
        assert!(out == whole, "chunks of {step} bytes give another output");
        let twice = redactor.redact_bytes(&whole).expect("any bytes can be redacted").0;
        assert!(*twice == *whole, "not a fixed point");
        assert!(!whole.windows(13).any(|window| window == b"correct-horse"), "a known value is left");
    });
}

/// The rule loader: any text is either a rule set or an error with its location.
pub(crate) fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match RuleSet::empty().with_file(text, std::path::Path::new("fuzzed.toml")) {
        Ok(rules) => {
            let redactor = Redactor::new(rules, &[], &[], &[7; 32]);
            let _ = redactor.redact_bytes(b"abc_defghij = 'klmnop'");
        }
        Err(error) => assert!(!error.to_string().is_empty() && error.file == "fuzzed.toml"),
    }
}
