//! Where something long ends whose end is not in what counts: the lines of a private key, a long token, a long value. INVARIANT: a part of it
//! is at most [`LONG`] bytes, so that what is held back is bounded.

use crate::bytes::{before, part};
use crate::context::Open;
use crate::finding::Layer;
use crate::found::Endless;
use crate::pem;

/// Bytes of one key or token that are held at once; longer ones are replaced in parts.
pub(crate) const LONG: usize = 1 << 16;

/// A key or token whose end is not seen yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tail {
    pub(crate) from: usize,
    pub(crate) what: Endless,
    pub(crate) kind: u16,
    pub(crate) layer: Layer,
}

/// More of the text is needed to go on.
pub(crate) struct More;

/// Where something endless ends.
pub(crate) struct Ending {
    pub(crate) end: usize,
    /// Whether it is long enough to be a key.
    pub(crate) body: bool,
    /// Whether it reaches the end of the text.
    pub(crate) open: bool,
    /// Whether it was cut because it is too long to hold.
    pub(crate) cut: bool,
}

pub(crate) fn ending(text: &[u8], start: usize, tail: Tail, end: bool) -> Result<Ending, More> {
    let most = (start + LONG).max(tail.from);
    let limit = most.min(text.len());
    let ending = match tail.what {
        Endless::Key(prefix) => {
            let walked = pem::walk(text, tail.from, limit, start == tail.from, &prefix);
            let last = if walked.open && limit == most { limit } else { walked.end };
            Ending { end: last, body: walked.is_key(), open: walked.open, cut: walked.open && limit == most }
        }
        Endless::Run | Endless::Value(Open::Run) => run_on(text, tail.from, limit, most, |_, byte| {
            byte > b' '
                && byte != 0x7f
                && !matches!(byte, b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b',' | b';')
        }),
        Endless::Value(Open::Word) => {
            run_on(text, tail.from, limit, most, |_, byte| byte > b' ' && byte != 0x7f)
        }
        Endless::Value(Open::Quote(quote)) => run_on(text, tail.from, limit, most, |last, byte| {
            byte != b'\n' && (byte != quote || last == b'\\')
        }),
    };
    if ending.open && !ending.cut && !end { Err(More) } else { Ok(ending) }
}

/// To where bytes belong to it; each is asked together with the one before it.
fn run_on(text: &[u8], from: usize, limit: usize, most: usize, belongs: impl Fn(u8, u8) -> bool) -> Ending {
    let mut last = before(text, from);
    let there =
        part(text, from, limit).iter().position(|&byte| !belongs(std::mem::replace(&mut last, byte), byte));
    let end = there.map_or(limit, |there| from + there);
    Ending { end, body: true, open: end == limit, cut: end == limit && limit == most }
}
