//! What a diff leaves out. A person who agrees to the loss of a hundred megabytes reads none of them: of a long run of
//! lines the first and the last are written, and a line in between says how many are not. What comes is always written
//! out, unless it was there before.

use std::ops::Range;

use memchr::memrchr;

use super::{line_count, line_end};

/// A run of lines is written out up to here.
const LONGEST_RUN: usize = 256 * 1024;
/// Of a longer one so much is written of each end, in whole lines.
const END: usize = 32 * 1024;
const OLD: &str = "removed";
const NEW: &str = "added";

/// How much of a change its diff shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Showing {
    /// All of it: it can be applied.
    Whole,
    /// For who decides: all that comes, and of what goes the ends of long runs.
    New,
    /// For who undoes: what comes was there before.
    Ends,
}

/// Lines that are left out of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Lines that go.
    pub old: u64,
    /// Lines that come.
    pub new: u64,
}

impl Gap {
    /// What a line of a hunk says of lines that are left out. Content stands behind a sign, so none can say it.
    #[must_use]
    pub fn told(line: &[u8]) -> Option<Self> {
        let told = std::str::from_utf8(line.strip_prefix(b"\\ ")?).ok()?;
        let mut words = told.split(' ');
        let count = words.next()?.parse().ok()?;
        match words.next()? {
            OLD => Some(Self { old: count, new: 0 }),
            NEW => Some(Self { old: 0, new: count }),
            _ => None,
        }
    }
}

/// The part of a run of lines that is not written.
pub(super) fn of_run(run: &[u8], mark: u8, showing: Showing) -> Option<Range<usize>> {
    let shortens = match showing {
        Showing::Whole => false,
        Showing::New => mark == b'-',
        Showing::Ends => mark != b' ',
    };
    if !shortens || run.len() <= LONGEST_RUN {
        return None;
    }
    let head = run.get(..END).and_then(|head| memrchr(b'\n', head)).map_or(0, |newline| newline + 1);
    Some(head..line_end(run, run.len().saturating_sub(END)))
}

/// Says what is not written; returns how many lines that is.
pub(super) fn tell(out: &mut Vec<u8>, mark: u8, hidden: &[u8]) -> usize {
    let lines = line_count(hidden);
    let what = if mark == b'-' { OLD } else { NEW };
    let told = format!("\\ {lines} {what} lines with {} bytes are not shown\n", hidden.len());
    out.extend_from_slice(told.as_bytes());
    lines
}
