//! Limits that are checked before the YAML loader runs, so that no input costs much time, memory or stack. They are
//! generous upper bounds: the exact checks (depth, anchors) run on the loaded tree.

use super::yaml_tree::{MAX_DEPTH, TextPosition};

/// Maximum size of a file, in bytes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
/// Maximum column of the first character of a line, and maximum number of `- `, `? ` and `: ` in a line. Both increase
/// block nesting, and the loader's nodes are dropped recursively.
const MAX_INDENT: usize = 256;
/// Maximum cost of anchors: number of anchors times file size, in bytes. The loader copies anchored nodes.
const MAX_ANCHOR_COST: usize = 4 * 1024 * 1024;

/// Checks the limits; the error is a position, a message and a hint.
pub(crate) fn check_limits(text: &str) -> Result<(), (TextPosition, String, &'static str)> {
    let start = TextPosition { line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, more than {MAX_BYTES}", text.len());
        return Err((start, message, "a configuration is small: is this the right file?"));
    }
    if is_json(text) {
        return Ok(());
    }
    let mut anchors = 0_usize;
    for (number, line) in (1..).zip(text.split('\n')) {
        let at =
            |column: usize| TextPosition { line: number, column: u32::try_from(column).unwrap_or(u32::MAX) };
        let mut before = ' ';
        let mut openers = 0_usize;
        let mut content = false;
        for (column, c) in (1_usize..).zip(line.chars()) {
            if c == '\0' {
                return Err((at(column), "a NUL character".to_owned(), "the file is not text"));
            }
            if !content && c != ' ' {
                content = true;
                openers = if column > MAX_INDENT { MAX_INDENT } else { 0 };
            }
            if matches!(before, '-' | '?' | ':') && c.is_whitespace() {
                openers += 1;
            }
            if openers >= MAX_INDENT {
                return Err((at(column), too_deep(), DEEP_HINT));
            }
            if c == '&' && (before.is_whitespace() || matches!(before, '[' | '{' | ',' | '-' | ':' | '?')) {
                anchors += 1;
            }
            before = c;
        }
    }
    if anchors.saturating_mul(text.len()) > MAX_ANCHOR_COST {
        return Err((start, "too many anchors (`&name`)".to_owned(), "write the values out"));
    }
    Ok(())
}

/// Valid JSON has no block nesting and no anchors, and its parser limits the depth: long lines are harmless there.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Hint for text that is nested too deeply.
pub(crate) const DEEP_HINT: &str = "a configuration is flat: is this the right file?";

pub(crate) fn too_deep() -> String {
    format!("nested deeper than {MAX_DEPTH} levels")
}

/// Replaces tabs outside of strings with spaces: JSON may be indented with tabs, which YAML does not allow. Columns stay
/// the same.
pub(crate) fn tabs_to_spaces(text: &str) -> Vec<char> {
    let mut quote = None;
    let mut escaped = false;
    text.chars()
        .map(|c| {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (None, '\t') => return ' ',
                (Some('"'), '\\') if !escaped => {
                    escaped = true;
                    return c;
                }
                (Some(open), c) if open == c && !escaped => quote = None,
                _ => {}
            }
            escaped = false;
            c
        })
        .collect()
}
