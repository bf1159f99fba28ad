//! The output of one Rust test: the panic's place and message, or the last words of a test without one.

use super::TestFailure;
use crate::bounded_text::BoundedMessage;
use crate::run_output::RunLocation;

/// Collects the output of one test.
#[derive(Debug, Default)]
pub(super) struct RustPanic {
    position: Option<(String, u32)>,
    message: BoundedMessage,
    /// Lines outside of a panic.
    other: BoundedMessage,
    inside: PanicPart,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum PanicPart {
    #[default]
    Outside,
    Message,
    Backtrace,
}

impl RustPanic {
    /// Reads one line of the test's output.
    pub(super) fn line(&mut self, line: &str, at: &RunLocation<'_>) {
        if let Some((_, place)) = line.split_once(" panicked at ")
            && line.trim_start().starts_with("thread ")
        {
            self.panic(place, at);
        } else if line.starts_with("stack backtrace:") {
            self.inside = PanicPart::Backtrace;
        } else if line.starts_with("note: run with `RUST_BACKTRACE") || line.starts_with("note: Some details")
        {
            self.inside = PanicPart::Outside;
        } else if self.inside == PanicPart::Message {
            self.message.push(line);
        } else if self.inside == PanicPart::Outside && !is_harness_line(line) {
            // `#[should_panic]` names the place of the test.
            if let Some((_, place)) = line.split_once("did not panic as expected at ") {
                self.position = self.position.take().or_else(|| at.code_position(place));
            }
            self.other.push(line);
        }
    }

    fn panic(&mut self, place: &str, at: &RunLocation<'_>) {
        if !self.message.is_empty() {
            // A second panic, as in a destructor: the first one is the reason.
            self.inside = PanicPart::Backtrace;
            return;
        }
        // Before Rust 1.73: `panicked at 'message', src/lib.rs:1:2`.
        let place = match place.strip_prefix('\'').and_then(|old| old.rsplit_once("', ")) {
            Some((message, place)) => {
                self.message.push(message);
                place
            }
            None => place,
        };
        self.position = at.code_position(place);
        self.inside = PanicPart::Message;
    }

    /// Writes what was found into a failure.
    pub(super) fn fill(self, failure: &mut TestFailure) {
        if let Some((file, line)) = self.position {
            failure.file = Some(file);
            failure.line = Some(line);
        }
        let message = if self.message.is_empty() { self.other } else { self.message };
        if !message.is_empty() {
            failure.message = message.finish();
        }
    }
}

/// Lines that the test harness prints around a single test.
fn is_harness_line(line: &str) -> bool {
    let framed = line.starts_with("---- ") && line.ends_with(" ----");
    let result = line.starts_with("test ") && line.contains(" ... ");
    let running = line.starts_with("running ") && line.trim_end().ends_with(['t', 's']);
    let indented_name = line.starts_with("    ") && line.contains("::") && !line.trim().contains(' ');
    framed || result || running || indented_name || line == "failures:" || line.starts_with("test result: ")
}
