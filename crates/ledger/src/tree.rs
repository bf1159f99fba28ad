//! The Merkle tree of RFC 6962 over the lines of the ledger. Only its right edge is ever kept: the roots of the
//! complete subtrees, one for each binary digit of the size that is set. That is enough to go on, and to say the
//! root at any moment; proofs are made by walking the lines once more (`proof.rs`).

use crate::digest::Digest;
use crate::hash;

/// In front of a leaf and of an inner node, so that neither can be taken for the other.
pub(crate) const LEAF: u8 = 0;
const NODE: u8 = 1;

/// The leaf of a line (without its newline).
#[must_use]
pub fn leaf(line: &[u8]) -> Digest {
    hash::prefixed(LEAF, line)
}

/// The leaves of two lines, faster than one after the other.
#[must_use]
pub fn leaves(first: &[u8], second: &[u8]) -> (Digest, Digest) {
    hash::prefixed_pair(LEAF, first, second)
}

/// The node above two others.
#[must_use]
pub fn node(left: &Digest, right: &Digest) -> Digest {
    hash::node(NODE, left, right)
}

/// So many leaves are put together at once, which is faster.
const BUNCH: usize = 16;

/// The height of the subtree that a bunch makes up. Those below it are never told of.
pub const BUNCH_HEIGHT: u32 = BUNCH.ilog2();

/// The root over a bunch of leaves.
fn bunch(leaves: &[Digest; BUNCH]) -> Digest {
    let [left, right] = above::<4, 2>(&above::<8, 4>(&above::<BUNCH, 8>(leaves)));
    node(&left, &right)
}

/// The nodes above a row of nodes, which are twice as many.
fn above<const ROW: usize, const HALF: usize>(row: &[Digest; ROW]) -> [Digest; HALF] {
    let mut nodes = [Digest::ZERO; HALF];
    for (two, four) in nodes.as_chunks_mut().0.iter_mut().zip(row.as_chunks().0) {
        *two = hash::node_pair(NODE, four);
    }
    nodes
}

/// The right edge of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    // INVARIANT: one for each set bit of `size`, the largest subtree first.
    peaks: Vec<Digest>,
}

impl Frontier {
    /// A tree without leaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A tree as it was kept: its size and [`Frontier::bytes`].
    #[must_use]
    pub fn from_bytes(size: u64, bytes: &[u8]) -> Option<Self> {
        let (peaks, rest) = bytes.as_chunks::<32>();
        let fits = rest.is_empty() && peaks.len() == size.count_ones() as usize;
        fits.then(|| Self { size, peaks: peaks.iter().copied().map(Digest::from_bytes).collect() })
    }

    /// What has to be kept besides the size.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.peaks.iter().flat_map(|peak| *peak.as_bytes()).collect()
    }

    /// How many leaves there are.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf.
    pub fn push(&mut self, leaf: Digest) {
        self.grow(0, leaf, |_, _, _| {});
    }

    /// Adds a leaf and tells every subtree that it completes: its height, its place among those of its height
    /// (counted from zero) and its root.
    pub fn push_telling(&mut self, leaf: Digest, completed: impl FnMut(u32, u64, Digest)) {
        self.grow(0, leaf, completed);
    }

    /// Adds a complete subtree of `2^height` leaves; false, and nothing is added, when it cannot stand here.
    #[must_use]
    pub fn graft(&mut self, height: u32, root: Digest) -> bool {
        self.graft_telling(height, root, |_, _, _| {})
    }

    fn graft_telling(&mut self, height: u32, root: Digest, completed: impl FnMut(u32, u64, Digest)) -> bool {
        let fits = height < u64::BITS && self.size.trailing_zeros() >= height;
        if fits {
            self.grow(height, root, completed);
        }
        fits
    }

    /// Adds the leaves of another tree behind ours. Right where our size is a multiple of the largest complete
    /// subtree of the other, which is for the caller to see to; else nothing is added and it is false.
    #[must_use]
    pub fn join(&mut self, other: &Self) -> bool {
        if other.size > 0 && self.size.trailing_zeros() < other.size.ilog2() {
            return false;
        }
        let heights = (0..u64::BITS).rev().filter(|height| other.size >> height & 1 == 1);
        heights.zip(&other.peaks).all(|(height, peak)| self.graft(height, *peak))
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Digest {
        let mut peaks = self.peaks.iter().rev();
        match peaks.next() {
            None => Digest::of(b""),
            Some(last) => peaks.fold(*last, |right, left| node(left, &right)),
        }
    }

    fn grow(&mut self, height: u32, root: Digest, mut completed: impl FnMut(u32, u64, Digest)) {
        let (mut right, mut carried) = (root, height);
        while self.size >> carried & 1 == 1
            && let Some(left) = self.peaks.pop()
        {
            right = node(&left, &right);
            carried += 1;
            completed(carried, self.size >> carried, right);
        }
        self.peaks.push(right);
        self.size = self.size.saturating_add(1 << height);
    }
}

/// The leaves of a stretch of the ledger that begins anywhere, as the complete subtrees that they make up. Several
/// can be made at the same time and then be put behind each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    next: u64,
    /// Height and root, in the order of the leaves.
    subtrees: Vec<(u32, Digest)>,
}

impl Stretch {
    /// A stretch whose first leaf will be the one with this number, counted from zero.
    #[must_use]
    pub fn starting(at: u64) -> Self {
        Self { next: at, subtrees: Vec::new() }
    }

    /// Adds the next leaf.
    pub fn push(&mut self, leaf: Digest) {
        self.push_telling(leaf, |_, _, _| {});
    }

    /// Adds the next leaf and tells every subtree that it completes within the stretch, as
    /// [`Frontier::push_telling`] does.
    pub fn push_telling(&mut self, leaf: Digest, completed: impl FnMut(u32, u64, Digest)) {
        self.grow(0, leaf, completed);
    }

    /// Adds the next leaves and tells the completed subtrees that are higher than [`BUNCH_HEIGHT`].
    pub fn extend_telling(&mut self, mut leaves: &[Digest], mut completed: impl FnMut(u32, u64, Digest)) {
        while let Some((first, rest)) = leaves.split_first() {
            match leaves.split_first_chunk() {
                Some((together, rest)) if self.next.is_multiple_of(BUNCH as u64) => {
                    self.grow(BUNCH_HEIGHT, bunch(together), &mut completed);
                    leaves = rest;
                }
                _ => {
                    self.grow(0, *first, |height, place, root| {
                        if height > BUNCH_HEIGHT {
                            completed(height, place, root);
                        }
                    });
                    leaves = rest;
                }
            }
        }
    }

    fn grow(&mut self, mut height: u32, mut root: Digest, mut completed: impl FnMut(u32, u64, Digest)) {
        let size = 1 << height;
        while self.next >> height & 1 == 1
            && let Some((_, left)) = self.subtrees.pop_if(|(left, _)| *left == height)
        {
            root = node(&left, &root);
            height += 1;
            completed(height, self.next >> height, root);
        }
        self.subtrees.push((height, root));
        self.next += size;
    }

    /// Puts the leaves behind those of a tree; false when they do not belong there.
    #[must_use]
    pub fn join(&self, tree: &mut Frontier) -> bool {
        self.join_telling(tree, |_, _, _| {})
    }

    /// The same, and tells every subtree that is completed only by putting both together.
    #[must_use]
    pub fn join_telling(&self, tree: &mut Frontier, mut completed: impl FnMut(u32, u64, Digest)) -> bool {
        self.subtrees.iter().all(|(height, root)| tree.graft_telling(*height, *root, &mut completed))
            && tree.size() == self.next
    }
}

#[cfg(test)]
mod tests {
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use sha2::Sha256;

    use super::*;

    pub(crate) fn line(n: u64) -> Vec<u8> {
        format!("line {n}").into_bytes()
    }

    #[test]
    fn the_root_is_that_of_another_implementation_at_every_size() {
        let mut ours = Frontier::new();
        let mut theirs = MemoryBackedTree::<Sha256, Vec<u8>>::new();
        assert_eq!(ours.root().as_bytes().as_slice(), theirs.root().as_bytes().as_slice());
        for n in 0..1100 {
            ours.push(leaf(&line(n)));
            theirs.push(line(n));
            assert_eq!(
                ours.root().as_bytes().as_slice(),
                theirs.root().as_bytes().as_slice(),
                "size {}",
                n + 1
            );
            let kept = Frontier::from_bytes(ours.size(), &ours.bytes());
            assert_eq!(kept.as_ref(), Some(&ours));
        }
    }

    #[test]
    fn trees_join_where_a_subtree_ends_and_nowhere_else() {
        let tree = |from: u64, to: u64| {
            let mut tree = Frontier::new();
            (from..to).for_each(|n| tree.push(leaf(&line(n))));
            tree
        };
        for before in [0, 8, 16, 24] {
            for more in 0..=8 {
                let mut joined = tree(0, before);
                assert!(joined.join(&tree(before, before + more)));
                assert_eq!(joined, tree(0, before + more), "{before} and {more}");
            }
        }
        let mut ragged = tree(0, 3);
        assert!(!ragged.join(&tree(3, 7)));
        assert_eq!(ragged, tree(0, 3));
    }

    #[test]
    fn stretches_that_begin_anywhere_make_up_the_tree() {
        for cuts in [[0, 1, 2, 40], [3, 17, 18, 40], [5, 5, 31, 33], [16, 32, 39, 40]] {
            let (mut tree, mut told) = (Frontier::new(), Vec::new());
            let mut at = 0;
            for end in cuts.into_iter().chain([40]) {
                let mut stretch = Stretch::starting(at);
                let mut tell = |height, place, root| told.push((height, place, root));
                (at..end).for_each(|n| stretch.push_telling(leaf(&line(n)), &mut tell));
                assert!(stretch.join_telling(&mut tree, &mut tell));
                at = end;
            }
            let (mut whole, mut expected) = (Frontier::new(), Vec::new());
            for n in 0..40 {
                whole
                    .push_telling(leaf(&line(n)), |height, place, root| expected.push((height, place, root)));
            }
            assert_eq!(tree, whole, "{cuts:?}");
            told.sort_unstable();
            expected.sort_unstable();
            assert_eq!(told, expected, "{cuts:?}");
        }
        let mut lost = Stretch::starting(7);
        lost.push(leaf(&line(7)));
        assert!(!lost.join(&mut Frontier::new()));
    }

    #[test]
    fn leaves_added_together_make_up_the_same_stretch() {
        let leaves: Vec<Digest> = (0..300).map(|n| leaf(&line(n))).collect();
        for (start, step) in [(0, 300), (0, 16), (0, 7), (5, 300), (13, 40), (16, 33), (31, 1)] {
            let (mut one, mut expected) = (Stretch::starting(start), Vec::new());
            let (mut many, mut told) = (Stretch::starting(start), Vec::new());
            for some in leaves.chunks(step) {
                some.iter().for_each(|leaf| {
                    one.push_telling(*leaf, |height, place, root| expected.push((height, place, root)));
                });
                many.extend_telling(some, |height, place, root| told.push((height, place, root)));
                assert_eq!(many, one, "from {start} by {step}");
            }
            expected.retain(|(height, ..)| *height > BUNCH_HEIGHT);
            assert_eq!(told, expected, "from {start} by {step}");
        }
    }

    #[test]
    fn a_damaged_edge_is_not_taken() {
        assert_eq!(Frontier::from_bytes(3, &[0; 32]), None);
        assert_eq!(Frontier::from_bytes(3, &[0; 65]), None);
        assert_eq!(Frontier::from_bytes(0, &[]), Some(Frontier::new()));
    }
}
