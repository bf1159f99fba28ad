//! TAP with YAML blocks, as `node --test --test-reporter=tap` writes it. Parents that failed only because of a subtest are
//! not reported again.

use super::stack_frame::frame;
use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::bounded_text::{BoundedMessage, clip_name};
use crate::run_output::{PlainOutput, RunLocation};

/// Indentation of a subtest, in spaces.
const INDENT: usize = 4;
/// Maximum depth of subtests whose names are kept.
const MAX_DEPTH: usize = 32;

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    if !output.stdout.lines().any(|line| line.starts_with("TAP version ")) {
        return None;
    }
    let mut reader = TapReader::default();
    for line in output.stdout.lines() {
        reader.line(line, at);
    }
    reader.finish(output)
}

#[derive(Debug, Default)]
struct TapReader {
    tests: ParsedTests,
    /// Names of the open subtests, outermost first.
    names: Vec<String>,
    open: Option<TapFailure>,
    in_block: bool,
    /// Counts by result lines, for producers without a summary.
    counted: (u64, u64, u64),
    plan: Option<u64>,
    summary: bool,
    /// Comments before a failed file: node prints the reason there.
    comments: BoundedMessage,
}

#[derive(Debug, Default)]
struct TapFailure {
    failure: TestFailure,
    message: BoundedMessage,
    field: TapField,
    parent: bool,
    place: Option<(String, u32)>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum TapField {
    #[default]
    Other,
    Error,
    Stack,
}

impl TapReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        let trimmed = line.trim_start();
        let depth = (line.len() - trimmed.len()) / INDENT;
        match trimmed {
            "---" => self.in_block = true,
            "..." => {
                self.in_block = false;
                self.close();
            }
            field if self.in_block => {
                if let Some(open) = &mut self.open {
                    open.field(field, line, at);
                }
            }
            other => self.outside(other, depth, at),
        }
    }

    fn outside(&mut self, line: &str, depth: usize, at: &RunLocation<'_>) {
        if let Some(name) = line.strip_prefix("# Subtest: ") {
            self.names.truncate(depth.min(MAX_DEPTH));
            self.names.push(clip_name(name));
        } else if let Some(comment) = line.strip_prefix("# ") {
            if depth == 0 && !self.summary_line(comment) {
                self.comments.push(comment);
            }
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            self.result(rest, depth, false, at);
        } else if let Some(rest) = line.strip_prefix("ok ") {
            self.result(rest, depth, true, at);
        } else if depth == 0
            && let Some(count) = line.strip_prefix("1..")
        {
            self.plan = count.split(' ').next().and_then(|count| count.parse().ok());
        }
    }

    fn result(&mut self, rest: &str, depth: usize, ok: bool, at: &RunLocation<'_>) {
        self.close();
        let (rest, directive) =
            rest.rsplit_once(" # ").map_or((rest, ""), |(rest, directive)| (rest, directive));
        let directive = directive.split(' ').next().unwrap_or_default();
        let skipped = ["SKIP", "TODO"].iter().any(|word| directive.eq_ignore_ascii_case(word));
        match (skipped, ok) {
            (true, _) => self.counted.2 += 1,
            (false, true) => self.counted.0 += 1,
            (false, false) => self.counted.1 += 1,
        }
        let comments = std::mem::take(&mut self.comments);
        if ok || skipped {
            return;
        }
        let name = rest.split_once(" - ").map_or(rest, |(_, name)| name);
        self.names.truncate(depth.min(MAX_DEPTH));
        let mut whole = self.names.join(" > ");
        if !whole.is_empty() {
            whole.push_str(" > ");
        }
        whole.push_str(&clip_name(name));
        let mut failure = TestFailure { test: whole, ..TestFailure::default() };
        // A file as a test: it did not load, and the comments before it tell why.
        if depth == 0
            && name.starts_with('/')
            && let Some(path) = at.service_path(name)
        {
            let line = comments.clone().finish().lines().find_map(|line| frame(line, at));
            failure.kind = TestFailureKind::Build;
            failure.line = line.filter(|(file, _)| *file == path).map(|(_, line)| line);
            failure.test.clone_from(&path);
            failure.file = Some(path);
            failure.message = comments.finish();
        }
        self.open = Some(TapFailure { failure, ..TapFailure::default() });
    }

    /// `pass 2`; whether the comment is part of the summary.
    fn summary_line(&mut self, comment: &str) -> bool {
        let Some((name, value)) = comment.split_once(' ') else { return false };
        if name == "duration_ms" {
            self.tests.duration = super::milliseconds(value);
            return self.tests.duration.is_some();
        }
        let Ok(count) = value.parse::<u64>() else { return false };
        match name {
            "pass" => {
                self.summary = true;
                self.tests.passed = count;
            }
            "fail" => self.tests.failed = count,
            "cancelled" => self.tests.errors = count,
            "skipped" | "todo" => self.tests.skipped = self.tests.skipped.saturating_add(count),
            "tests" | "suites" => {}
            _ => return false,
        }
        true
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.parent {
            return;
        }
        let mut failure = open.failure;
        if let Some((file, line)) = open.place
            && failure.kind != TestFailureKind::Build
        {
            failure.file = Some(file);
            failure.line = Some(line);
        }
        if failure.message.is_empty() {
            failure.message = open.message.finish();
        }
        self.tests.failures.push(failure);
    }

    fn finish(mut self, output: &PlainOutput<'_>) -> Option<ParsedTests> {
        self.close();
        let (passed, failed, skipped) = self.counted;
        if !self.summary {
            (self.tests.passed, self.tests.failed, self.tests.skipped) = (passed, failed, skipped);
        }
        self.tests.complete = self.summary || (self.plan.is_some() && output.exit_code.is_some());
        (self.summary || self.plan.is_some() || passed + failed + skipped > 0).then_some(self.tests)
    }
}

impl TapFailure {
    fn field(&mut self, field: &str, line: &str, at: &RunLocation<'_>) {
        let named = field.split_once(": ").or_else(|| field.strip_suffix(':').map(|name| (name, "")));
        let key = named.filter(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        match key {
            Some(("failureType", value)) => self.parent = unquoted(value) == "subtestsFailed",
            Some(("location", value)) => {
                self.place = self.place.take().or_else(|| at.code_position(unquoted(value)))
            }
            Some(("error" | "message", value)) => {
                self.field = TapField::Error;
                if !value.starts_with(['|', '>']) {
                    self.message.push(unquoted(value));
                }
                return;
            }
            Some(("stack", _)) => {
                self.field = TapField::Stack;
                return;
            }
            Some(_) => {}
            None if self.field == TapField::Error => return self.message.push(line.trim_start()),
            None if self.field == TapField::Stack => {
                if let Some(place) = frame(field, at) {
                    // The first frame is more exact than the declaration of the test.
                    self.place = Some(place);
                    self.field = TapField::Other;
                }
                return;
            }
            None => return,
        }
        self.field = TapField::Other;
    }
}

fn unquoted(value: &str) -> &str {
    let value = value.trim();
    value.strip_prefix('\'').and_then(|value| value.strip_suffix('\'')).unwrap_or(value)
}
