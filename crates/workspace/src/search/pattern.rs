//! Compiles a pattern into a matcher, within limits on length, depth, size and time. The size limit bounds repetition (a
//! 26-character pattern took 13 s on 300 bytes without it); the time limit is for Unicode classes, which are expanded before
//! the size is known.

use std::time::Duration;

use grep_regex::{ErrorKind as BuildErrorKind, RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ast::{self, ErrorKind};

use super::error::SearchError;
use super::worker_pool::{AbandonedThreads, run_with_budget};

const MAX_PATTERN_BYTES: usize = 4096;
const NEST_LIMIT: u32 = 32;
const SIZE_LIMIT: usize = 256 * 1024;
const DFA_SIZE_LIMIT: usize = 2 * 1024 * 1024;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct SearchPattern {
    pub(crate) matcher: RegexMatcher,
    /// Whether a match depends on the character before or after it, as with `\b`.
    pub(crate) uses_word_boundary: bool,
}

/// Compiles a pattern as `rg` does by default.
pub(crate) fn compile(
    abandoned_threads: &std::sync::Arc<AbandonedThreads>,
    pattern: &str,
    budget: Duration,
) -> Result<SearchPattern, SearchError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        let what = format!("it is longer than {MAX_PATTERN_BYTES} bytes");
        return Err(SearchError::OverLimit { what });
    }
    let plain = !pattern.chars().any(|c| regex_syntax::is_meta_character(c) || c.is_control());
    if plain {
        return Ok(SearchPattern { matcher: build(pattern)?, uses_word_boundary: false });
    }
    let owned = pattern.to_owned();
    let work = move || {
        check_syntax(&owned)?;
        Ok(SearchPattern { matcher: build(&owned)?, uses_word_boundary: uses_word_boundary(&owned) })
    };
    run_with_budget(abandoned_threads, budget, work)?
        .ok_or(SearchError::OverBudget { what: "compiling it", budget })?
}

/// Rejects constructs that the engine does not support, with their position.
pub(crate) fn check_syntax(pattern: &str) -> Result<(), SearchError> {
    let parsed = ast::parse::ParserBuilder::new().nest_limit(NEST_LIMIT).build().parse(pattern);
    let Err(error) = parsed else { return Ok(()) };
    let at = pattern.get(..error.span().start.offset).map_or(1, |head| head.chars().count() + 1);
    Err(match error.kind() {
        ErrorKind::UnsupportedBackreference => SearchError::Unsupported { construct: "a backreference", at },
        ErrorKind::UnsupportedLookAround => SearchError::Unsupported { construct: "look-around", at },
        ErrorKind::NestLimitExceeded(limit) => {
            SearchError::OverLimit { what: format!("it is nested deeper than {limit} levels") }
        }
        kind => SearchError::BadPattern { at, why: kind.to_string() },
    })
}

fn build(pattern: &str) -> Result<RegexMatcher, SearchError> {
    let built = RegexMatcherBuilder::new()
        .multi_line(true)
        .unicode(true)
        .octal(false)
        .line_terminator(Some(b'\n'))
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(DFA_SIZE_LIMIT)
        // grep-regex wraps the pattern in a group of its own.
        .nest_limit(NEST_LIMIT + 1)
        .build(pattern);
    built.map_err(|error| match error.kind() {
        BuildErrorKind::Regex(why) if why.contains("exceeds size limit") => {
            SearchError::OverLimit { what: format!("it needs more than {SIZE_LIMIT} bytes compiled") }
        }
        BuildErrorKind::NotAllowed(_) => SearchError::BadPattern {
            at: pattern.find("\\n").or_else(|| pattern.find('\n')).map_or(1, |at| at + 1),
            why: "it is matched line by line and cannot contain a line end".to_owned(),
        },
        _ => locate(pattern, &error.to_string()),
    })
}

fn uses_word_boundary(pattern: &str) -> bool {
    // `^` and `$` do not count: masking does not move line starts and ends.
    let parsed = regex_syntax::ParserBuilder::new().utf8(false).build().parse(pattern);
    parsed.map_or(true, |parsed| parsed.properties().look_set().contains_word())
}

/// Finds the position of an error that only the parser's translation stage reports.
fn locate(pattern: &str, why: &str) -> SearchError {
    let parsed = regex_syntax::ParserBuilder::new().utf8(false).build().parse(pattern);
    let (at, why) = match parsed {
        Err(regex_syntax::Error::Translate(error)) => {
            (error.span().start.offset + 1, error.kind().to_string())
        }
        _ => (1, why.lines().last().unwrap_or(why).trim().to_owned()),
    };
    SearchError::BadPattern { at, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vambrace_core::ErrorCode;

    #[track_caller]
    fn check(pattern: &str, expected: Option<ErrorCode>, words: &str) {
        // Generous budget: this tests the kind of error, not the speed of the machine.
        let got = compile(&std::sync::Arc::default(), pattern, Duration::from_secs(20));
        let error = got.err();
        assert_eq!(error.as_ref().map(SearchError::code), expected, "{pattern}: {error:?}");
        let message = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains(words), "{message}");
    }

    // T10
    #[test]
    fn nonlinear_or_large_patterns_are_rejected_with_their_position() {
        use ErrorCode::{InvalidArguments, SecurityError};
        for pattern in ["", "foo", r"fn\s+\w+", "(a|b)*c", r"\bword\b", "^$", "(?i)straße", "漢+"] {
            check(pattern, None, "");
        }
        check(r"(a)\1", Some(InvalidArguments), "a backreference at character 4");
        check(r"ä(?=b)", Some(InvalidArguments), "look-around at character 2");
        check(r"(?<!b)", Some(InvalidArguments), "look-around at character 1");
        check("a(b", Some(InvalidArguments), "at character 2: unclosed group");
        check("a{,3", Some(InvalidArguments), "character");
        check(r"x\p{Nope}", Some(InvalidArguments), "at character 2: Unicode property not found");
        check(r"a\nb", Some(InvalidArguments), "at character 2: it is matched line by line");
        check("a\nb", Some(InvalidArguments), "line by line");
        check(&"a".repeat(4097), Some(SecurityError), "4096");
        check(&format!("{}a{}", "(".repeat(40), ")".repeat(40)), Some(SecurityError), "32 levels");
        check("((a{0,100}){0,100}){0,10}$", Some(SecurityError), "compiled");
        check(r"\pL{50}\pN", Some(SecurityError), "compiled");
        check(r"(?i)[\w\W]{900}\pL{80}", Some(SecurityError), "compiled");
    }

    #[test]
    fn compiling_past_the_budget_fails() {
        let abandoned_threads = std::sync::Arc::default();
        let got = compile(&abandoned_threads, r"\w{40}", Duration::ZERO);
        assert_eq!(got.err().map(|error| error.code()), Some(ErrorCode::SecurityError));
    }
}
