//! Too much found is not a failure: detail is given up step by step until the answer fits, and the answer says
//! how far it went.

use super::snippet::cut;
use super::tally::Tally;
use super::{FileCount, LineMatch, SearchMode, SearchRequest, SearchResult};

/// A line in the `short` step.
const SHORT_CHARS: usize = 80;
/// What one match costs besides its words: field names, quotes, numbers.
const MATCH_OVERHEAD: usize = 80;
const LINE_OVERHEAD: usize = 4;

/// How much of what was found fitted into the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Lines with their surroundings.
    Full,
    /// Lines alone.
    NoContext,
    /// Lines cut short.
    Short,
    /// Counts per file.
    Counts,
}

impl Detail {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::NoContext => "no_context",
            Self::Short => "short",
            Self::Counts => "counts",
        }
    }
}

/// Makes the answer, as detailed as fits.
pub(crate) fn fit(mut tally: Tally, want: &SearchRequest, complete: bool) -> SearchResult {
    let mut matches = tally.take_lines();
    let cap = want.max_output_bytes;
    let mut detail = Detail::Full;
    if bytes_of(&matches) > cap {
        detail = Detail::NoContext;
        for found in &mut matches {
            found.before.clear();
            found.after.clear();
        }
    }
    if bytes_of(&matches) > cap {
        detail = Detail::Short;
        for found in &mut matches {
            found.text = cut(&found.text, SHORT_CHARS);
        }
    }
    let mut per_file = Vec::new();
    let mut cut_counts = false;
    if bytes_of(&matches) > cap {
        detail = Detail::Counts;
        matches.clear();
        let mut left = cap;
        let all = tally.per_file.into_iter().map(|(path, count)| FileCount { path, count });
        per_file = all
            .take_while(|file| {
                let cost = file.path.len() + MATCH_OVERHEAD / 2;
                cut_counts |= cost > left;
                left = left.saturating_sub(cost);
                !cut_counts
            })
            .collect();
    }
    let missing = match want.mode {
        SearchMode::Lines => (matches.len() as u64) < tally.total,
        SearchMode::Count => false,
    };
    SearchResult {
        truncated: missing || cut_counts || !complete,
        matches,
        total: tally.total,
        files: tally.files,
        detail,
        per_file,
        skipped: tally.skipped,
        complete,
    }
}

fn bytes_of(matches: &[LineMatch]) -> usize {
    let lines = |lines: &[String]| lines.iter().map(|line| line.len() + LINE_OVERHEAD).sum::<usize>();
    let one = |found: &LineMatch| {
        let words = found.path.len() + found.text.len();
        words + lines(&found.before) + lines(&found.after) + MATCH_OVERHEAD
    };
    matches.iter().map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cap: usize, expected: Detail, returned: usize) {
        let mut tally = Tally::new(100);
        for file in ["a", "b"] {
            let line = |line| LineMatch {
                path: file.to_owned(),
                line,
                column: 1,
                text: "x".repeat(200),
                before: vec!["y".repeat(200)],
                after: Vec::new(),
                masked: 0,
            };
            tally.add(file.to_owned(), 5, (1..=5).map(line).collect());
        }
        let want = SearchRequest { max_output_bytes: cap, ..SearchRequest::default() };
        let result = fit(tally, &want, true);
        assert_eq!((result.detail, result.matches.len()), (expected, returned), "cap {cap}");
        assert_eq!((result.total, result.files), (10, 2));
        assert_eq!(result.truncated, returned < 10);
    }

    // T11
    #[test]
    fn detail_is_given_up_step_by_step() {
        check(1_000_000, Detail::Full, 10);
        check(4_000, Detail::NoContext, 10);
        check(2_000, Detail::Short, 10);
        check(500, Detail::Counts, 0);
        check(1, Detail::Counts, 0);
    }
}
