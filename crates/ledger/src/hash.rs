//! Two SHA-256 hashes at the same time. Verification needs two hashes of nearly the same bytes: the one in the line and
//! the one of its leaf in the tree. A single hash mostly waits for its own previous step, so two that alternate block
//! by block cost little more than one (measured: 0.62 against 0.46 of the speed of hashing the bytes once).

use sha2::block_api::compress256;

use crate::digest::Digest;

const BLOCK: usize = 64;
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Two blocks with space for 65 bytes and the padding after them: a one bit, and the length of 520 bits.
const PADDED: [[u8; BLOCK]; 2] = {
    let mut second = [0; BLOCK];
    let [_, end, .., high, low] = &mut second;
    (*end, *high, *low) = (0x80, 0x02, 0x08);
    [[0; BLOCK], second]
};

/// The digests of `first`, and of `prefix` followed by `second`. Copies nothing except the first and last blocks.
pub(crate) fn pair(first: &[u8], prefix: u8, second: &[u8]) -> (Digest, Digest) {
    // The first block of the second text includes the prefix, so its other blocks begin one byte earlier.
    let Some((start, rest)) = second.split_first_chunk::<{ BLOCK - 1 }>() else {
        return (Digest::of(first), Digest::of(&[&[prefix], second].concat()));
    };
    let mut state = START;
    compress256(&mut state, &[first_block(prefix, start)]);
    finish_alternating((START, first, first.len()), (state, rest, second.len() + 1))
}

/// The digests of `prefix` followed by either text.
pub(crate) fn prefixed_pair(prefix: u8, first: &[u8], second: &[u8]) -> (Digest, Digest) {
    let split = |text| <[u8]>::split_first_chunk::<{ BLOCK - 1 }>(text);
    let (Some((start, rest)), Some((other_start, other_rest))) = (split(first), split(second)) else {
        return (prefixed(prefix, first), prefixed(prefix, second));
    };
    let (mut left, mut right) = (START, START);
    compress256(&mut left, &[first_block(prefix, start)]);
    compress256(&mut right, &[first_block(prefix, other_start)]);
    finish_alternating((left, rest, first.len() + 1), (right, other_rest, second.len() + 1))
}

/// The state of a hash, the bytes still to process, and the length of the whole text.
type HashState<'a> = ([u32; 8], &'a [u8], usize);

/// Finishes two hashes, alternating block by block.
fn finish_alternating(
    (mut left, first, length): HashState<'_>,
    (mut right, second, other_length): HashState<'_>,
) -> (Digest, Digest) {
    let ((a, a_rest), (b, b_rest)) = (first.as_chunks::<BLOCK>(), second.as_chunks::<BLOCK>());
    let (a_end, b_end) = (padded(a_rest, length), padded(b_rest, other_length));
    for (one, other) in a.iter().zip(b) {
        compress256(&mut left, std::slice::from_ref(one));
        compress256(&mut right, std::slice::from_ref(other));
    }
    let both = a.len().min(b.len());
    compress256(&mut left, a.get(both..).unwrap_or_default());
    compress256(&mut right, b.get(both..).unwrap_or_default());
    compress256(&mut left, a_end.blocks());
    compress256(&mut right, b_end.blocks());
    (digest(left), digest(right))
}

/// The digest of `prefix` followed by a text. Copies nothing except the first and last blocks.
pub(crate) fn prefixed(prefix: u8, text: &[u8]) -> Digest {
    let Some((start, rest)) = text.split_first_chunk::<{ BLOCK - 1 }>() else {
        return Digest::of(&[&[prefix], text].concat());
    };
    let (blocks, end) = rest.as_chunks::<BLOCK>();
    let mut state = START;
    compress256(&mut state, &[first_block(prefix, start)]);
    compress256(&mut state, blocks);
    compress256(&mut state, padded(end, text.len() + 1).blocks());
    digest(state)
}

/// The first block of a text after a prefix.
fn first_block(prefix: u8, start: &[u8; BLOCK - 1]) -> [u8; BLOCK] {
    let mut head = [prefix; BLOCK];
    if let Some((_, room)) = head.split_first_chunk_mut::<1>() {
        room.copy_from_slice(start);
    }
    head
}

/// The end of a text with the padding of FIPS 180-4.
struct PaddedEnd {
    room: [[u8; BLOCK]; 2],
    /// Whether the second block is needed.
    is_long: bool,
}

impl PaddedEnd {
    fn blocks(&self) -> &[[u8; BLOCK]] {
        let [first, _] = &self.room;
        if self.is_long { &self.room } else { std::slice::from_ref(first) }
    }
}

/// Pads what remains of a text of `length` bytes after its whole blocks.
fn padded(rest: &[u8], length: usize) -> PaddedEnd {
    let mut end = PaddedEnd { room: [[0; BLOCK]; 2], is_long: rest.len() + 9 > BLOCK };
    let text = end.room.as_flattened_mut();
    if let Some((room, behind)) = text.split_at_mut_checked(rest.len()) {
        room.copy_from_slice(rest);
        behind.iter_mut().take(1).for_each(|byte| *byte = 0x80);
    }
    let [first, second] = &mut end.room;
    let last = if end.is_long { second } else { first };
    if let Some(bits) = last.last_chunk_mut() {
        *bits = (length as u64 * 8).to_be_bytes();
    }
    end
}

/// The digest of a prefix and two digests: an inner node of the tree, in exactly two blocks.
pub(crate) fn node(prefix: u8, left: &Digest, right: &Digest) -> Digest {
    let mut state = START;
    compress256(&mut state, &node_blocks(prefix, left, right));
    digest(state)
}

/// Two such nodes, alternating block by block.
pub(crate) fn node_pair(prefix: u8, [a, b, c, d]: &[Digest; 4]) -> [Digest; 2] {
    let (mut left, mut right) = (START, START);
    for (one, other) in node_blocks(prefix, a, b).iter().zip(&node_blocks(prefix, c, d)) {
        compress256(&mut left, std::slice::from_ref(one));
        compress256(&mut right, std::slice::from_ref(other));
    }
    [digest(left), digest(right)]
}

/// The blocks of a node. The padding is already there; the parts are copied whole, because byte by byte costs as much
/// as hashing.
fn node_blocks(prefix: u8, left: &Digest, right: &Digest) -> [[u8; BLOCK]; 2] {
    let mut blocks = PADDED;
    let text = blocks.as_flattened_mut();
    if let Some((first, rest)) = text.split_first_mut()
        && let Some((one, rest)) = rest.split_first_chunk_mut()
        && let Some((other, _)) = rest.split_first_chunk_mut()
    {
        *first = prefix;
        *one = *left.as_bytes();
        *other = *right.as_bytes();
    }
    blocks
}

fn digest(state: [u32; 8]) -> Digest {
    let mut bytes = [0; 32];
    for (place, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_be_bytes();
    }
    Digest::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternating_hashes_equal_plain_hashes_at_every_length() {
        let text: Vec<u8> = (0..700_u32).map(|n| (n * 7 + n / 5) as u8).collect();
        for length in 0..text.len() {
            for other in [0, length / 2, length] {
                let (first, second) = pair(&text[..other], 9, &text[..length]);
                assert_eq!(first, Digest::of(&text[..other]));
                assert_eq!(second, Digest::of(&[&[9], &text[..length]].concat()));
                assert_eq!(second, prefixed(9, &text[..length]));
                let both = prefixed_pair(9, &text[..length], &text[..other]);
                assert_eq!(both, (second, prefixed(9, &text[..other])));
            }
        }
    }

    #[test]
    fn a_node_is_the_hash_of_its_prefix_and_its_children() {
        let (left, right) = (Digest::of(b"l"), Digest::of(b"r"));
        let text = [&[1], left.as_bytes().as_slice(), right.as_bytes().as_slice()].concat();
        assert_eq!(node(1, &left, &right), Digest::of(&text));
        let two = node_pair(1, &[left, right, right, left]);
        assert_eq!(two, [node(1, &left, &right), node(1, &right, &left)]);
    }
}
