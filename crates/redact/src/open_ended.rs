//! Finds the end of a match that continues beyond the window: the lines of a private key, a long token, a long value.
//! INVARIANT: each part is at most [`MAX_OPEN_BYTES`] long, so the bytes held back are bounded.

use crate::assignment::OpenValue;
use crate::bytes::{before, slice};
use crate::candidates::OpenEnded;
use crate::finding::DetectionLayer;
use crate::pem;

/// Bytes of one key or token that are held at once; longer ones are replaced in parts.
pub(crate) const MAX_OPEN_BYTES: usize = 1 << 16;

/// A match whose end has not been seen yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenTail {
    pub(crate) from: usize,
    pub(crate) continuation: OpenEnded,
    pub(crate) kind: u16,
    pub(crate) layer: DetectionLayer,
}

/// More input is needed to continue.
pub(crate) struct NeedMore;

/// Where an open-ended match ends.
pub(crate) struct TailEnd {
    pub(crate) end: usize,
    /// Whether the match is long enough to be a key.
    pub(crate) body: bool,
    /// Whether the match reaches the end of the text.
    pub(crate) open: bool,
    /// Whether the match was cut because it is too long to hold.
    pub(crate) cut: bool,
}

pub(crate) fn find_end(text: &[u8], start: usize, tail: OpenTail, end: bool) -> Result<TailEnd, NeedMore> {
    let max_end = (start + MAX_OPEN_BYTES).max(tail.from);
    let limit = max_end.min(text.len());
    let ending = match tail.continuation {
        OpenEnded::Key(prefix) => {
            let walked = pem::walk(text, tail.from, limit, start == tail.from, &prefix);
            let last = if walked.open && limit == max_end { limit } else { walked.end };
            TailEnd {
                end: last,
                body: walked.is_key(),
                open: walked.open,
                cut: walked.open && limit == max_end,
            }
        }
        OpenEnded::Run | OpenEnded::Value(OpenValue::Run) => {
            extend_run(text, tail.from, limit, max_end, |_, byte| {
                byte > b' '
                    && byte != 0x7f
                    && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b',' | b';')
            })
        }
        OpenEnded::Value(OpenValue::Word) => {
            extend_run(text, tail.from, limit, max_end, |_, byte| byte > b' ' && byte != 0x7f)
        }
        OpenEnded::Value(OpenValue::Quote(quote)) => {
            extend_run(text, tail.from, limit, max_end, |last, byte| {
                byte != b'\n' && (byte != quote || last == b'\\')
            })
        }
    };
    if ending.open && !ending.cut && !end { Err(NeedMore) } else { Ok(ending) }
}

/// Extends a run while `belongs(previous byte, byte)` holds.
fn extend_run(
    text: &[u8],
    from: usize,
    limit: usize,
    max_end: usize,
    belongs: impl Fn(u8, u8) -> bool,
) -> TailEnd {
    let mut last = before(text, from);
    let there =
        slice(text, from, limit).iter().position(|&byte| !belongs(std::mem::replace(&mut last, byte), byte));
    let end = there.map_or(limit, |there| from + there);
    TailEnd { end, body: true, open: end == limit, cut: end == limit && limit == max_end }
}
