//! Frames of JavaScript stack traces: `at name (file:line:column)`, `at file:line:column`.

use crate::run_output::RunLocation;

/// The first frame inside the project.
pub(super) fn first_in_project(text: &str, at: &RunLocation<'_>) -> Option<(String, u32)> {
    text.lines().find_map(|line| frame(line, at))
}

/// The position of a frame, if the line is one and lies inside the project.
pub(super) fn frame(line: &str, at: &RunLocation<'_>) -> Option<(String, u32)> {
    let line = line.trim();
    let line = line.strip_prefix("at ").or_else(|| line.strip_prefix("❯ ")).unwrap_or(line);
    let place = match line.rsplit_once('(') {
        Some((_, inside)) => inside.split_once(')').map_or(inside, |(inside, _)| inside),
        // `❯ name file:line:column`
        None => line.rsplit_once(' ').map_or(line, |(_, place)| place),
    };
    // A path has a suffix or a directory; `12:30:00` has neither.
    place.contains(['.', '/']).then(|| at.code_position(place)).flatten()
}

/// Whether a line is a frame of a stack trace, inside the project or not.
pub(super) fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("at ") && (line.contains('(') || line.contains(':'))
}

/// The message of an error whose stack trace follows it.
pub(super) fn message_before_frames(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take_while(|line| !is_frame(line)).take(50).collect();
    lines.join("\n")
}
