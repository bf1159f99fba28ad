//! Limits that hold before a loader looks at a text, so that no text costs much time, memory or stack. They
//! are generous upper bounds: the exact refusals (depth, anchors) are made on the loaded tree.

use super::tree::{MAX_DEPTH, Place};

/// The largest text that is looked at.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;
/// Block nesting grows with the column, or by `- `, `? ` and `: ` within a line: past this column, or this
/// many of them, nothing is loaded, because the loader's nodes are dropped recursively.
const MAX_INDENT: usize = 256;
/// Anchored nodes are copied by the loader; this bounds what copying can cost, in bytes looked at.
const MAX_ANCHOR_COST: usize = 4 * 1024 * 1024;

/// The limits that hold before a loader looks at the text.
pub(crate) fn guard(text: &str) -> Result<(), (Place, String, &'static str)> {
    let start = Place { line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, more than {MAX_BYTES}", text.len());
        return Err((start, message, "a configuration is small: is this the right file?"));
    }
    if is_json(text) {
        return Ok(());
    }
    let mut anchors = 0_usize;
    for (number, line) in (1..).zip(text.split('\n')) {
        let at = |column: usize| Place { line: number, column: u32::try_from(column).unwrap_or(u32::MAX) };
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
        return Err((start, "too many anchors (`&name`)".to_owned(), "write values out"));
    }
    Ok(())
}

/// JSON proper has no blocks and no anchors, and its reader bounds the depth: long lines are fine there.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// What is said about nesting.
pub(crate) const DEEP_HINT: &str = "a configuration is flat: is this the right file?";

pub(crate) fn too_deep() -> String {
    format!("nested deeper than {MAX_DEPTH} levels")
}

/// JSON may be indented with tabs; inside brackets a tab and a space mean the same, and a column stays one
/// character. Texts keep theirs.
pub(crate) fn untabbed(text: &str) -> Vec<char> {
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
