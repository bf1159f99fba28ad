//! pytest with `--tb=short -rfE`: the sections of the failures, the short summary and the last line.

use std::collections::{HashMap, VecDeque};

use super::{ParsedTests, TestFailure, TestFailureKind};
use crate::bounded_text::BoundedMessage;
use crate::project_view::join;
use crate::run_output::{PlainOutput, RunLocation};

pub(super) fn read(output: &PlainOutput<'_>, at: &RunLocation<'_>) -> Option<ParsedTests> {
    let mut reader = PytestReader::default();
    for line in output.lines() {
        reader.line(line, at);
    }
    reader.finish(at)
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PytestPart {
    #[default]
    Progress,
    /// `ERRORS` and `FAILURES`.
    Sections,
    Summary,
}

/// The traceback of one test.
#[derive(Debug, Default)]
struct PytestSection {
    position: Option<(String, u32)>,
    message: BoundedMessage,
    captured: bool,
}

#[derive(Debug, Default)]
struct PytestReader {
    tests: ParsedTests,
    part: PytestPart,
    seen: bool,
    open: Option<(String, PytestSection)>,
    /// Sections by title, in order: two files can have a test of the same name.
    sections: HashMap<String, VecDeque<PytestSection>>,
    /// Kind, node id and message of the short summary.
    summary: Vec<(bool, String, String)>,
    left_out: u64,
}

impl PytestReader {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        if let Some(title) = framed(line, '=') {
            self.close_section();
            self.banner(title);
        } else if self.part == PytestPart::Sections
            && let Some(title) = framed(line, '_')
        {
            self.close_section();
            self.open = Some((title.to_owned(), PytestSection::default()));
        } else if let Some((_, section)) = &mut self.open {
            section.line(line, at);
        } else if let Some(problem) = line.strip_prefix("ERROR: ") {
            // The runner itself: a path that does not exist, a wrong option.
            self.tests.notes.push(format!("pytest: {}", crate::bounded_text::clip_name(problem)));
        } else if self.part == PytestPart::Summary {
            self.summary_line(line);
        }
        if self.open.is_none() && is_counts(line) {
            self.counts(line);
        }
    }

    fn banner(&mut self, title: &str) {
        self.part = match title {
            "ERRORS" | "FAILURES" => PytestPart::Sections,
            "short test summary info" => PytestPart::Summary,
            _ => PytestPart::Progress,
        };
        self.seen |= self.part != PytestPart::Progress || title == "test session starts";
        if is_counts(title) {
            self.counts(title);
        }
    }

    fn close_section(&mut self) {
        if let Some((title, section)) = self.open.take() {
            let title = title.strip_prefix("ERROR collecting ").map_or(title.as_str(), |path| path);
            let title = ["setup", "teardown"]
                .iter()
                .find_map(|when| title.strip_prefix(&format!("ERROR at {when} of ")))
                .unwrap_or(title);
            self.sections.entry(title.to_owned()).or_default().push_back(section);
        }
    }

    /// `FAILED tests/test_calc.py::test_div[0] - ZeroDivisionError: division by zero`
    fn summary_line(&mut self, line: &str) {
        let (error, rest) = match line.split_once(' ') {
            Some(("FAILED", rest)) => (false, rest),
            Some(("ERROR", rest)) => (true, rest),
            _ => return,
        };
        if self.summary.len() >= super::MAX_FAILURES {
            self.left_out += 1;
            return;
        }
        let (id, message) = match rest.split_once("] - ") {
            Some((id, message)) if id.contains('[') => (format!("{id}]"), message),
            _ => {
                rest.split_once(" - ").map_or((rest.to_owned(), ""), |(id, message)| (id.to_owned(), message))
            }
        };
        self.summary.push((error, id, message.to_owned()));
    }

    /// `3 failed, 2 passed, 1 skipped, 1 error in 0.21s`
    fn counts(&mut self, line: &str) {
        let Some((counts, time)) = line.trim().rsplit_once(" in ") else { return };
        self.seen = true;
        self.tests.complete = true;
        let time = time.split_once(' ').map_or(time, |(time, _)| time);
        self.tests.duration = time.strip_suffix('s').and_then(super::seconds);
        (self.tests.passed, self.tests.failed, self.tests.skipped, self.tests.errors) = (0, 0, 0, 0);
        for part in counts.split(", ") {
            let Some((count, what)) = part.split_once(' ') else { continue };
            let count: u64 = count.parse().unwrap_or(0);
            match what {
                "passed" | "xpassed" => self.tests.passed += count,
                "failed" => self.tests.failed += count,
                "skipped" | "xfailed" => self.tests.skipped += count,
                "error" | "errors" => self.tests.errors += count,
                _ => {}
            }
        }
    }

    fn finish(mut self, at: &RunLocation<'_>) -> Option<ParsedTests> {
        self.close_section();
        if !self.seen {
            return None;
        }
        for (error, id, message) in std::mem::take(&mut self.summary) {
            let (path, name) = id.split_once("::").unwrap_or((id.as_str(), ""));
            let title = if name.is_empty() { id.clone() } else { name.replace("::", ".") };
            let section = self.sections.get_mut(&title).and_then(VecDeque::pop_front).unwrap_or_default();
            let kind = match (error, name.is_empty()) {
                (true, true) => TestFailureKind::Build,
                (true, false) => TestFailureKind::Error,
                (false, _) => TestFailureKind::Test,
            };
            let (file, line) = match section.position {
                Some((file, line)) => (Some(file), Some(line)),
                None => (at.service_path(path), None),
            };
            let message = if section.message.is_empty() { message } else { section.message.finish() };
            let test = join(at.directory, &id);
            self.tests.failures.push(TestFailure { kind, test, file, line, message });
        }
        if self.left_out > 0 {
            self.tests.notes.push(format!("{} failures are only counted", self.left_out));
        }
        Some(self.tests)
    }
}

impl PytestSection {
    fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        if line.starts_with("--") && line.contains(" Captured ") {
            self.captured = true;
        }
        if self.captured {
            return;
        }
        if let Some(message) = line.strip_prefix("E  ") {
            self.message.push(message.strip_prefix(' ').unwrap_or(message));
        } else if !line.starts_with(' ')
            && let Some((place, _)) = line.split_once(": ")
            && let Some(position) = at.code_position(place)
        {
            // The last frame inside the project is where the error was raised.
            self.position = Some(position);
        }
    }
}

/// The title of `==== title ====`.
fn framed(line: &str, border: char) -> Option<&str> {
    let line = line.trim_end();
    let inner = line.strip_prefix(border)?.strip_suffix(border)?;
    let title = inner.trim_matches(border).strip_prefix(' ')?.strip_suffix(' ')?;
    (!title.is_empty()).then_some(title)
}

/// Whether a text is the last line of a run.
fn is_counts(text: &str) -> bool {
    let Some((counts, time)) = text.trim().rsplit_once(" in ") else { return false };
    let timed =
        time.split(' ').next().and_then(|time| time.strip_suffix('s')).and_then(super::seconds).is_some();
    let known = |part: &str| {
        part.split_once(' ').is_some_and(|(count, what)| {
            count.bytes().all(|byte| byte.is_ascii_digit())
                && what.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b' ')
        })
    };
    timed && (counts == "no tests ran" || counts.split(", ").all(known))
}
