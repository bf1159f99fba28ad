//! What is new in a change, and whether it may be written: no secret (T7), and no placeholder of a redacted one, which
//! would destroy the original. A file is looked at around every change, as it is and as it shall be, so a secret that only
//! comes about together with lines that stay is seen too; what stood there already is not new.

use std::collections::BTreeMap;
use std::ops::Range;

use vambrace_core::change::{FileChange, Splice};
use vambrace_core::error::{CallError, ErrorCode};
use vambrace_core::redacted::{Redact, RedactError};
use vambrace_workspace::{Armour, SECRET_REACH};

/// How each placeholder begins, in whatever case.
const MARK: &str = "[redacted";
/// A placeholder is not longer.
const LONGEST: usize = 200;

/// Refuses new secrets and placeholders in a file, by kind and line.
pub(crate) fn check(file: &FileChange, base: &[u8], redactor: &dyn Redact) -> Result<(), CallError> {
    let Some(after) = file.after().filter(|after| !after.splices.is_empty()) else { return Ok(()) };
    let places = places(base, &after.splices);
    let (mut was, mut shall): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for place in &places {
        was.push(String::from_utf8_lossy(base.get(place.span.clone()).unwrap_or_default()).into_owned());
        shall.push(String::from_utf8_lossy(&place.new_text(base)).into_owned());
    }
    if let Some(found) = first_new(&shall, &was) {
        let line = line(base, &after.splices, &places, &shall, &found);
        let why = format!(
            "line {line} of the new content of `{}` holds the placeholder of a redacted secret; writing it would destroy the original",
            after.path
        );
        return Err(CallError::new(ErrorCode::SecretInContent, why)
            .suggest("leave the line with the secret as it is: edit around it"));
    }
    let Some(shall_masked) = masked(&shall, redactor)? else { return Ok(()) };
    let known = masked(&was, redactor)?.unwrap_or(was);
    if let Some(found) = first_new(&shall_masked, &known) {
        let line = line(base, &after.splices, &places, &shall, &found);
        let kind = kind(found.mark);
        let why = format!("line {line} of the new content of `{}` holds a secret ({kind})", after.path);
        return Err(CallError::new(ErrorCode::SecretInContent, why));
    }
    Ok(())
}

/// The texts without their secrets; `None` when there are none in them.
fn masked(texts: &[String], redactor: &dyn Redact) -> Result<Option<Vec<String>>, CallError> {
    let failed = |error: RedactError| CallError::new(ErrorCode::Internal, error.to_string());
    let mut count = 0;
    let mut clean = Vec::with_capacity(texts.len());
    for text in texts {
        let masked = redactor.redact(text).map_err(failed)?;
        count += masked.count;
        clean.push(masked.text.into_owned());
    }
    Ok((count > 0).then_some(clean))
}

/// A part of the old content, and what happens to it.
pub(crate) struct Place<'c> {
    pub(crate) span: Range<usize>,
    pub(crate) splices: &'c [Splice],
}

impl Place<'_> {
    pub(crate) fn new_text(&self, base: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.span.len());
        let mut at = self.span.start;
        for splice in self.splices {
            let (start, end) = bounds(splice);
            text.extend_from_slice(base.get(at..start).unwrap_or_default());
            text.extend_from_slice(&splice.insert);
            at = end;
        }
        text.extend_from_slice(base.get(at..self.span.end).unwrap_or_default());
        text
    }
}

pub(crate) fn bounds(splice: &Splice) -> (usize, usize) {
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    (place(splice.at), place(splice.at.saturating_add(splice.remove)))
}

/// The places around the changes, those that meet made one.
pub(crate) fn places<'c>(base: &[u8], splices: &'c [Splice]) -> Vec<Place<'c>> {
    let mut places: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    let mut armour = Armour::default();
    for (number, splice) in splices.iter().enumerate() {
        let (start, end) = bounds(splice);
        let (start, end) = (armour.reach_back(base, start), end.saturating_add(SECRET_REACH).min(base.len()));
        match places.last_mut() {
            Some((span, own)) if start <= span.end => (span.end, own.end) = (end, number + 1),
            _ => places.push((start..end, number..number + 1)),
        }
    }
    let place = |(span, own): (Range<usize>, Range<usize>)| Place {
        span,
        splices: splices.get(own).unwrap_or_default(),
    };
    places.into_iter().map(place).collect()
}

/// A placeholder that was not there as often.
struct Fresh<'t> {
    /// Which text it is in.
    text: usize,
    /// The text before it, from the placeholder before that on; in front of it the same of those before.
    between: Vec<&'t str>,
    mark: &'t str,
}

/// The first placeholder of some texts that others do not hold as often.
fn first_new<'t>(texts: &'t [String], known: &'t [String]) -> Option<Fresh<'t>> {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, mark) in known.iter().flat_map(|text| placeholders(text)) {
        *left.entry(mark).or_default() += 1;
    }
    for (number, text) in texts.iter().enumerate() {
        let (mut between, mut end) = (Vec::new(), 0);
        for (at, mark) in placeholders(text) {
            between.push(text.get(end..at).unwrap_or_default());
            end = at + mark.len();
            match left.get_mut(mark) {
                Some(count) if *count > 0 => *count -= 1,
                _ => return Some(Fresh { text: number, between, mark }),
            }
        }
    }
    None
}

/// Where placeholders are, and they.
fn placeholders(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + memchr::memchr(b'[', text.as_bytes().get(from..)?)?;
            from = at + 1;
            let tail = text.get(at..)?;
            let named = tail.get(..MARK.len()).is_some_and(|head| head.eq_ignore_ascii_case(MARK));
            // A word of prose is no placeholder.
            let ours = match tail.as_bytes().get(MARK.len()) {
                Some(b':') => named,
                Some(b']') => named && tail.starts_with("[REDACTED"),
                _ => false,
            };
            if ours {
                let end = tail.find(']').map_or(tail.len(), |end| end + 1).min(LONGEST);
                let mark = tail.get(..end).or(tail.get(..MARK.len()))?;
                from = at + mark.len();
                return Some((at, mark));
            }
        }
    })
}

/// The line of the new content in which it stands. Of a text with secrets that were taken out, what is left between them is
/// looked up in the text as it was.
fn line(base: &[u8], splices: &[Splice], places: &[Place<'_>], shall: &[String], found: &Fresh<'_>) -> usize {
    let breaks = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count();
    let start = places.get(found.text).map_or(0, |place| place.span.start);
    let (mut gone, mut come) = (0, 0);
    for splice in splices.iter().take_while(|splice| bounds(splice).0 < start) {
        let (from, to) = bounds(splice);
        gone += breaks(base.get(from..to).unwrap_or_default());
        come += breaks(&splice.insert);
    }
    let above = (breaks(base.get(..start).unwrap_or_default()) + come).saturating_sub(gone);
    let text = shall.get(found.text).map_or("", String::as_str);
    let mut at = 0;
    for piece in &found.between {
        let here = text.get(at..).and_then(|rest| rest.find(piece)).unwrap_or(0);
        at = (at + here + piece.len()).min(text.len());
    }
    above + breaks(text.as_bytes().get(..at).unwrap_or_default()) + 1
}

fn kind(mark: &str) -> &str {
    let inner = mark.get(MARK.len()..).unwrap_or_default().trim_start_matches(':').trim_end_matches(']');
    match inner.split(':').next() {
        Some(kind) if !kind.is_empty() => kind,
        _ => "secret",
    }
}

#[cfg(test)]
mod tests {
    use vambrace_core::change::{Facts, Target, spliced};
    use vambrace_core::digest::Digest;
    use vambrace_core::path::AskedPath;
    use vambrace_core::redacted::Masked;

    use super::*;

    struct Knows;
    impl Redact for Knows {
        fn redact<'a>(&self, text: &'a str) -> Result<Masked<'a>, RedactError> {
            let secrets = ["hunter2", "swordfish", "BEGIN\nabc\nEND"];
            let count = secrets.iter().map(|secret| text.matches(secret).count()).sum::<usize>();
            let text = secrets.iter().zip(1..).fold(text.to_owned(), |text, (secret, number)| {
                text.replace(secret, &format!("[REDACTED:env:{number}]"))
            });
            Ok(Masked { text: text.into(), count: u32::try_from(count).unwrap() })
        }
    }

    fn refused_by(old: &str, splices: Vec<Splice>) -> Option<String> {
        let new = spliced(old.as_bytes(), &splices).unwrap();
        let path = AskedPath::new("x").parse().unwrap();
        let before = Facts { hash: Digest::of(old.as_bytes()), size: old.len() as u64, mode: 0o644 };
        let after = Target {
            path: path.clone(),
            hash: Digest::of(&new),
            size: new.len() as u64,
            mode: None,
            splices,
        };
        let change = FileChange::modify(path, before, after).unwrap();
        check(&change, old.as_bytes(), &Knows).err().map(|error| {
            assert_eq!(error.code, ErrorCode::SecretInContent);
            assert!(!error.message.contains("hunter2"));
            error.message
        })
    }

    fn refused(old: &str, new: &str) -> Option<String> {
        refused_by(old, Splice::between(old.as_bytes(), new.as_bytes()))
    }

    // T7
    #[test]
    fn a_new_secret_is_named_by_kind_and_line_never_by_value() {
        let said = refused("a\nb\n", "a\nfine\np = hunter2\nb\n").unwrap();
        assert!(said.contains("line 3 ") && said.contains("(env)"), "{said}");
        assert_eq!(refused("a\n", "b\n"), None);
        // In the context or removed: nothing new.
        assert_eq!(refused("hunter2\nb\n", "b\n"), None);
        assert_eq!(refused("hunter2\nb\n", "hunter2\nc\n"), None);
    }

    // T7: lines that stay are looked at together with those that come
    #[test]
    fn a_secret_that_is_completed_across_lines_that_stay_is_refused() {
        assert!(refused("x\nabc\ny\n", "x\nBEGIN\nabc\nEND\ny\n").unwrap().contains("line 2 "));
        assert!(refused("x\nBEGIN\nabc\ny\n", "x\nBEGIN\nabc\nEND\ny\n").is_some());
        // Nothing is added at all.
        assert!(refused("BEGIN\nnoise\nabc\nEND\n", "BEGIN\nabc\nEND\n").is_some());
        assert!(refused("hunt\nmore\ner2\n", "hunter2\n").is_some());
        // A half is moved from one end of the file to the other.
        let far = "z\n".repeat(200_000);
        let (old, half) = (format!("hunt\n{far}er2\n"), 5);
        let there = (half + far.len()) as u64;
        let moved = vec![
            Splice { at: 0, remove: half as u64, insert: Vec::new() },
            Splice { at: there, remove: 0, insert: b"hunt".to_vec() },
        ];
        let said = refused_by(&old, moved).unwrap();
        assert!(said.contains("line 200001 "), "{said}");
    }

    #[test]
    fn the_line_is_told_behind_a_secret_of_several_lines() {
        let old = "BEGIN\nabc\nEND\nx\ny\n";
        assert!(refused(old, "BEGIN\nabc\nEND\nx\nhunter2\ny\n").unwrap().contains("line 5 "));
    }

    #[test]
    fn a_secret_that_stood_there_may_stay_or_move_and_another_may_not_take_its_place() {
        assert_eq!(refused("p = hunter2 # old\n", "p = hunter2 # new\n"), None);
        assert_eq!(refused("hunter2\na\nb\n", "a\nb\nhunter2\n"), None);
        assert!(refused("p = hunter2\n", "p = swordfish\n").is_some());
        assert!(refused("a\np = hunter2\n", "a\np = hunter2; q = hunter2\n").unwrap().contains("line 2 "));
    }

    #[test]
    fn a_placeholder_is_not_written_over_the_original() {
        for new in ["p = [REDACTED:env:1111]", "[redacted:env:1111]", "[Redacted:x", "[REDACTED]"] {
            assert!(refused("p = x", new).unwrap().contains("placeholder"), "{new}");
        }
        assert_eq!(refused("say [REDACTED:env:1] a", "say [REDACTED:env:1] b"), None);
        for prose in
            ["[REDACTEDly] spoken", "[redacted] by the court", "redacted: [x]", "\u{e4}[redacte\u{e4}d"]
        {
            assert_eq!(refused("a", prose), None, "{prose}");
        }
    }
}
