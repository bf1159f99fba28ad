//! Matches a regular expression from an agent in a file, under the budget of T10. Compiling and matching run on a thread
//! that can be abandoned, and the clock is checked between matches, because counting can be quadratic although each match is
//! linear. `^` and `$` match at lines, as in search_file, so count_matches predicts what an edit will find.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use super::error::EditError;
use super::matches::{MAX_EXCESS_MATCHES, Matches, SpanMatch};
use super::normalized_text::{LineEnding, NormalizedText};
use super::template::{self, TemplatePart};
use crate::search::{AbandonedThreads, SearchError, check_syntax, run_with_budget};

const MAX_PATTERN_BYTES: usize = 4096;
const NEST_LIMIT: u32 = 32;
const SIZE_LIMIT: usize = 256 * 1024;
const CACHE_LIMIT: usize = 2 * 1024 * 1024;
/// One budget covers this many bytes; longer files get a multiple of it.
const BUDGET_BYTES: usize = 8 * 1024 * 1024;

/// Finds a pattern; each match is replaced with the filled template.
pub(crate) fn matches(
    abandoned_threads: &Arc<AbandonedThreads>,
    base: &Arc<Vec<u8>>,
    spec: &str,
    content: &str,
    expected: usize,
    budget: Duration,
) -> Result<Matches, EditError> {
    abandoned_threads.check_limit()?;
    if spec.len() > MAX_PATTERN_BYTES {
        let what = format!("it is longer than {MAX_PATTERN_BYTES} bytes");
        return Err(SearchError::OverLimit { what }.into());
    }
    let times = u32::try_from(base.len() / BUDGET_BYTES).unwrap_or(u32::MAX).saturating_add(1);
    let budget = budget.saturating_mul(times);
    let deadline = Instant::now() + budget;
    let (spec, content, shared) = (spec.to_owned(), content.to_owned(), Arc::clone(base));
    let done = run_with_budget(abandoned_threads, budget, move || {
        let regex = compile(&spec, simdutf8::basic::from_utf8(&shared).is_ok())?;
        let parts = template::parse(&content, |name| group(&regex, name))?;
        find(&regex, &shared, &spec, &parts, expected, deadline)
            .ok_or(EditError::Pattern(SearchError::OverBudget { what: "matching it", budget }))
    })?;
    done.ok_or(SearchError::OverBudget { what: "compiling and matching it", budget })?
}

/// With `utf8`, an empty match never falls inside a character.
fn compile(spec: &str, utf8: bool) -> Result<Regex, EditError> {
    check_syntax(spec)?;
    let config =
        Regex::config().nfa_size_limit(Some(SIZE_LIMIT)).hybrid_cache_capacity(CACHE_LIMIT).utf8_empty(utf8);
    let syntax = syntax::Config::new().multi_line(true).utf8(false).nest_limit(NEST_LIMIT);
    Regex::builder().configure(config).syntax(syntax).build(spec).map_err(|error| {
        let compile_error = match error.size_limit() {
            Some(limit) => {
                SearchError::OverLimit { what: format!("it needs more than {limit} bytes compiled") }
            }
            None => SearchError::BadPattern { at: 1, why: syntax_message(&error) },
        };
        compile_error.into()
    })
}

fn syntax_message(error: &regex_automata::meta::BuildError) -> String {
    let words = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    words.lines().last().unwrap_or("it is not a regular expression").trim().to_owned()
}

/// The index of a group given by number or name.
fn group(regex: &Regex, name: &str) -> Option<usize> {
    let info = regex.group_info();
    let number = match name.parse() {
        Ok(number) => number,
        Err(_) => info.to_index(regex_automata::PatternID::ZERO, name)?,
    };
    (number < info.group_len(regex_automata::PatternID::ZERO)).then_some(number)
}

/// `None` when the deadline has passed.
fn find(
    regex: &Regex,
    base: &[u8],
    spec: &str,
    parts: &[TemplatePart],
    expected: usize,
    deadline: Instant,
) -> Option<Matches> {
    // A pattern with `\r` matches raw bytes; any other pattern matches normalized lines.
    let view = if spec.contains("\\r") || spec.contains('\r') {
        NormalizedText::raw(base)
    } else {
        NormalizedText::lines(base)
    };
    let ending = LineEnding::of(base);
    let mut matches = Matches::default();
    for captures in regex.captures_iter(view.text()) {
        if Instant::now() > deadline {
            return None;
        }
        let groups: Vec<Option<Range<usize>>> =
            captures.iter().map(|span| span.map(|span| view.span(span.range()))).collect();
        let Some(span) = groups.first().cloned().flatten() else { continue };
        let replaced = base.get(span.clone()).unwrap_or_default();
        let insert = template::fill(parts, base, &groups, |text| ending.fit(text.as_bytes(), replaced));
        matches.found.push(SpanMatch { span, insert });
        if matches.found.len() > expected.saturating_add(MAX_EXCESS_MATCHES) {
            break;
        }
    }
    Some(matches)
}
