//! Fits a result into the output limit: detail is dropped step by step until it fits, and the result says how much was
//! dropped.

use super::result_collector::ResultCollector;
use super::snippet::cut;
use super::{FileCount, LineMatch, SearchMode, SearchRequest, SearchResult};

/// Maximum line length at `Short`, in characters.
const SHORT_CHARS: usize = 80;
/// Estimated JSON overhead of one match in bytes: field names, quotes, numbers.
const MATCH_OVERHEAD: usize = 80;
const LINE_OVERHEAD: usize = 4;

/// How much of the matches fitted into the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchDetail {
    /// Lines with context.
    Full,
    /// Lines without context.
    NoContext,
    /// Truncated lines.
    Short,
    /// Only counts per file.
    Counts,
}

impl SearchDetail {
    /// The wire name.
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

/// Builds the result, as detailed as fits.
pub(crate) fn fit(mut results: ResultCollector, request: &SearchRequest, complete: bool) -> SearchResult {
    let mut matches = results.take_lines();
    let cap = request.max_output_bytes;
    let mut detail = SearchDetail::Full;
    if bytes_of(&matches) > cap {
        detail = SearchDetail::NoContext;
        for found in &mut matches {
            found.before.clear();
            found.after.clear();
        }
    }
    if bytes_of(&matches) > cap {
        detail = SearchDetail::Short;
        for found in &mut matches {
            found.text = cut(&found.text, SHORT_CHARS);
        }
    }
    let mut per_file = Vec::new();
    let mut cut_counts = false;
    if bytes_of(&matches) > cap {
        detail = SearchDetail::Counts;
        matches.clear();
        let mut left = cap;
        let all = results.per_file.into_iter().map(|(path, count)| FileCount { path, count });
        per_file = all
            .take_while(|file| {
                let cost = file.path.len() + MATCH_OVERHEAD / 2;
                cut_counts |= cost > left;
                left = left.saturating_sub(cost);
                !cut_counts
            })
            .collect();
    }
    let missing = match request.mode {
        SearchMode::Lines => (matches.len() as u64) < results.total,
        SearchMode::Count => false,
    };
    SearchResult {
        truncated: missing || cut_counts || !complete,
        matches,
        total: results.total,
        files: results.files,
        detail,
        per_file,
        skipped: results.skipped,
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

    fn check(cap: usize, expected: SearchDetail, returned: usize) {
        let mut results = ResultCollector::new(100);
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
            results.add(file.to_owned(), 5, (1..=5).map(line).collect());
        }
        let request = SearchRequest { max_output_bytes: cap, ..SearchRequest::default() };
        let result = fit(results, &request, true);
        assert_eq!((result.detail, result.matches.len()), (expected, returned), "cap {cap}");
        assert_eq!((result.total, result.files), (10, 2));
        assert_eq!(result.truncated, returned < 10);
    }

    // T11
    #[test]
    fn detail_is_dropped_step_by_step() {
        check(1_000_000, SearchDetail::Full, 10);
        check(4_000, SearchDetail::NoContext, 10);
        check(2_000, SearchDetail::Short, 10);
        check(500, SearchDetail::Counts, 0);
        check(1, SearchDetail::Counts, 0);
    }
}
