//! Finding a regular expression of an agent in a file, under the budget of T10: compiling and matching happen on a thread
//! that can be left behind, and the clock is looked at between matches, because counting can be quadratic although each
//! match is linear. `^` and `$` match at lines, as in search_file, so that count_matches tells what an edit will find.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use super::fault::LoomFault;
use super::found::{Found, Matches, OVER};
use super::template::{self, Part};
use super::view::{Ending, View};
use crate::search::{SearchFault, Strays, check_syntax, within};

const MAX_PATTERN_BYTES: usize = 4096;
const NEST_LIMIT: u32 = 32;
const SIZE_LIMIT: usize = 256 * 1024;
const CACHE_LIMIT: usize = 2 * 1024 * 1024;
/// The budget is for so many bytes; longer files get it again for each.
const BUDGET_BYTES: usize = 8 * 1024 * 1024;

/// Looks for a pattern and puts the filled template in the place of each match.
pub(crate) fn matches(
    strays: &Arc<Strays>,
    base: &Arc<Vec<u8>>,
    spec: &str,
    content: &str,
    expected: usize,
    budget: Duration,
) -> Result<Matches, LoomFault> {
    strays.admit()?;
    if spec.len() > MAX_PATTERN_BYTES {
        let what = format!("it is longer than {MAX_PATTERN_BYTES} bytes");
        return Err(SearchFault::OverLimit { what }.into());
    }
    let times = u32::try_from(base.len() / BUDGET_BYTES).unwrap_or(u32::MAX).saturating_add(1);
    let budget = budget.saturating_mul(times);
    let deadline = Instant::now() + budget;
    let (spec, content, shared) = (spec.to_owned(), content.to_owned(), Arc::clone(base));
    let done = within(strays, budget, move || {
        let regex = compile(&spec, simdutf8::basic::from_utf8(&shared).is_ok())?;
        let parts = template::parse(&content, |name| group(&regex, name))?;
        find(&regex, &shared, &spec, &parts, expected, deadline)
            .ok_or(LoomFault::Pattern(SearchFault::OverBudget { what: "matching it", budget }))
    })?;
    done.ok_or(SearchFault::OverBudget { what: "compiling and matching it", budget })?
}

/// In text that is UTF-8 an empty match never falls inside a character.
fn compile(spec: &str, utf8: bool) -> Result<Regex, LoomFault> {
    check_syntax(spec)?;
    let config =
        Regex::config().nfa_size_limit(Some(SIZE_LIMIT)).hybrid_cache_capacity(CACHE_LIMIT).utf8_empty(utf8);
    let syntax = syntax::Config::new().multi_line(true).utf8(false).nest_limit(NEST_LIMIT);
    Regex::builder().configure(config).syntax(syntax).build(spec).map_err(|error| {
        let fault = match error.size_limit() {
            Some(limit) => {
                SearchFault::OverLimit { what: format!("it needs more than {limit} bytes compiled") }
            }
            None => SearchFault::BadPattern { at: 1, why: one_line(&error) },
        };
        fault.into()
    })
}

fn one_line(error: &regex_automata::meta::BuildError) -> String {
    let words = error.syntax_error().map_or_else(|| error.to_string(), ToString::to_string);
    words.lines().last().unwrap_or("it is not a regular expression").trim().to_owned()
}

/// The number of a group by its number or name.
fn group(regex: &Regex, name: &str) -> Option<usize> {
    let info = regex.group_info();
    let number = match name.parse() {
        Ok(number) => number,
        Err(_) => info.to_index(regex_automata::PatternID::ZERO, name)?,
    };
    (number < info.group_len(regex_automata::PatternID::ZERO)).then_some(number)
}

/// `None` when the time is over.
fn find(
    regex: &Regex,
    base: &[u8],
    spec: &str,
    parts: &[Part],
    expected: usize,
    deadline: Instant,
) -> Option<Matches> {
    // Who writes `\r` means the bytes; everybody else means lines.
    let view = if spec.contains("\\r") || spec.contains('\r') { View::raw(base) } else { View::lines(base) };
    let ending = Ending::of(base);
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
        matches.found.push(Found { span, insert });
        if matches.found.len() > expected.saturating_add(OVER) {
            break;
        }
    }
    Some(matches)
}
