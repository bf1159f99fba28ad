//! A splice: at an offset, remove a number of bytes and insert others. Pure arithmetic over bytes; a base of the wrong
//! length is an error, never a wrong file.

/// One edit of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Offset in the old content.
    pub at: u64,
    /// Number of bytes to remove.
    pub remove: u64,
    /// Bytes to insert.
    pub insert: Vec<u8>,
}

/// Splices that do not fit the content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the edits of a change do not fit its file")]
pub struct BadSplice;

impl Splice {
    /// The whole content of a new file.
    #[must_use]
    pub fn whole(content: Vec<u8>) -> Vec<Self> {
        if content.is_empty() { Vec::new() } else { vec![Self { at: 0, remove: 0, insert: content }] }
    }

    /// At most one splice from one content to another: the common prefix and suffix stay.
    #[must_use]
    pub fn between(old: &[u8], new: &[u8]) -> Vec<Self> {
        if old == new {
            return Vec::new();
        }
        let head = common_head(old, new);
        let (old_rest, new_rest) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
        let tail = common_tail(old_rest, new_rest);
        let insert = new_rest.get(..new_rest.len() - tail).unwrap_or_default().to_vec();
        vec![Self { at: head as u64, remove: (old_rest.len() - tail) as u64, insert }]
    }

    /// Merges adjacent splices and drops empty ones. The input must be sorted and free of overlaps.
    #[must_use]
    pub fn merged(splices: Vec<Self>) -> Vec<Self> {
        let mut merged: Vec<Self> = Vec::with_capacity(splices.len());
        for splice in splices {
            if splice.remove == 0 && splice.insert.is_empty() {
                continue;
            }
            match merged.last_mut() {
                Some(last) if last.end() == Some(splice.at) => {
                    last.remove = last.remove.saturating_add(splice.remove);
                    last.insert.extend_from_slice(&splice.insert);
                }
                _ => merged.push(splice),
            }
        }
        merged
    }

    fn end(&self) -> Option<u64> {
        self.at.checked_add(self.remove)
    }
}

/// Block size in bytes. Contents are compared in blocks first: large files usually differ in a few bytes.
const BLOCK: usize = 256;

fn common_head(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK)).take_while(|(a, b)| a == b).count() * BLOCK;
    let rest = a.iter().skip(blocks).zip(b.iter().skip(blocks));
    blocks + rest.take_while(|(a, b)| a == b).count()
}

fn common_tail(a: &[u8], b: &[u8]) -> usize {
    let blocks =
        a.rchunks_exact(BLOCK).zip(b.rchunks_exact(BLOCK)).take_while(|(a, b)| a == b).count() * BLOCK;
    let rest = a.iter().rev().skip(blocks).zip(b.iter().rev().skip(blocks));
    blocks + rest.take_while(|(a, b)| a == b).count()
}

/// Checks that splices are sorted, not adjacent, inside the old content, and add up to the new size.
pub fn check_splices(splices: &[Splice], old_size: u64, new_size: u64) -> Result<(), BadSplice> {
    let mut last_end: Option<u64> = None;
    let (mut removed, mut inserted) = (0_u64, 0_u64);
    for splice in splices {
        let end = splice.end().filter(|end| *end <= old_size).ok_or(BadSplice)?;
        let empty = splice.remove == 0 && splice.insert.is_empty();
        // Adjacent splices must be merged, so that the reverse has one form too.
        if empty || last_end.is_some_and(|last| splice.at <= last) {
            return Err(BadSplice);
        }
        removed = removed.checked_add(splice.remove).ok_or(BadSplice)?;
        inserted = inserted.checked_add(splice.insert.len() as u64).ok_or(BadSplice)?;
        last_end = Some(end);
    }
    let size = old_size.checked_sub(removed).and_then(|kept| kept.checked_add(inserted));
    if size == Some(new_size) { Ok(()) } else { Err(BadSplice) }
}

/// The pieces of the new content, in order; unchanged ones are borrowed from the base.
pub fn pieces<'a>(
    base: &'a [u8],
    splices: &'a [Splice],
) -> impl Iterator<Item = Result<&'a [u8], BadSplice>> {
    let mut at = 0_usize;
    let mut rest = splices.iter();
    let mut pending: Option<&'a [u8]> = None;
    let mut ended = false;
    std::iter::from_fn(move || {
        if let Some(insert) = pending.take() {
            return Some(Ok(insert));
        }
        if ended {
            return None;
        }
        let Some(splice) = rest.next() else {
            ended = true;
            return Some(base.get(at..).ok_or(BadSplice));
        };
        let start = usize::try_from(splice.at).unwrap_or(usize::MAX);
        let kept = base.get(at..start).ok_or(BadSplice);
        at = splice.end().and_then(|end| usize::try_from(end).ok()).unwrap_or(usize::MAX);
        pending = Some(&splice.insert);
        ended = kept.is_err();
        Some(kept)
    })
}

/// The new content.
pub fn spliced(base: &[u8], splices: &[Splice]) -> Result<Vec<u8>, BadSplice> {
    let more: usize = splices.iter().map(|splice| splice.insert.len()).sum();
    let mut new = Vec::with_capacity(base.len().saturating_add(more));
    for piece in pieces(base, splices) {
        new.extend_from_slice(piece?);
    }
    Ok(new)
}

/// The splices that undo the given ones.
pub(crate) fn reversed(splices: &[Splice], base: &[u8]) -> Result<Vec<Splice>, BadSplice> {
    let mut shift = 0_i128;
    let mut back = Vec::with_capacity(splices.len());
    for splice in splices {
        let start = usize::try_from(splice.at).map_err(|_| BadSplice)?;
        let end = splice.end().and_then(|end| usize::try_from(end).ok()).ok_or(BadSplice)?;
        let old = base.get(start..end).ok_or(BadSplice)?;
        let at = u64::try_from(i128::from(splice.at) + shift).map_err(|_| BadSplice)?;
        back.push(Splice { at, remove: splice.insert.len() as u64, insert: old.to_vec() });
        shift += splice.insert.len() as i128 - i128::from(splice.remove);
    }
    Ok(back)
}
