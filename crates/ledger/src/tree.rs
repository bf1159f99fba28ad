//! The Merkle tree of RFC 6962 over the lines of the ledger. Only its right edge is kept: the roots of the complete
//! subtrees, one per set bit of the size. That is enough to append and to compute the root at any moment; proofs are
//! made by walking the lines again (`proof.rs`).

use crate::digest::Digest;
use crate::hash;

/// Hashed before a leaf or an inner node, so that neither can pass for the other.
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

/// The parent of two nodes.
#[must_use]
pub fn node(left: &Digest, right: &Digest) -> Digest {
    hash::node(NODE, left, right)
}

/// Number of leaves that are hashed together, which is faster.
const BATCH_LEAVES: usize = 16;

/// The height of the subtree over one batch of leaves. Smaller subtrees are not reported.
pub const BATCH_HEIGHT: u32 = BATCH_LEAVES.ilog2();

/// The root over a batch of leaves.
fn batch_root(leaves: &[Digest; BATCH_LEAVES]) -> Digest {
    let [left, right] = parents::<4, 2>(&parents::<8, 4>(&parents::<BATCH_LEAVES, 8>(leaves)));
    node(&left, &right)
}

/// The parents of a row of nodes.
fn parents<const ROW: usize, const HALF: usize>(row: &[Digest; ROW]) -> [Digest; HALF] {
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
    // INVARIANT: one per set bit of `size`, the largest subtree first.
    peaks: Vec<Digest>,
}

impl Frontier {
    /// A tree without leaves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores a tree from its size and [`Frontier::bytes`].
    #[must_use]
    pub fn from_bytes(size: u64, bytes: &[u8]) -> Option<Self> {
        let (peaks, rest) = bytes.as_chunks::<32>();
        let fits = rest.is_empty() && peaks.len() == size.count_ones() as usize;
        fits.then(|| Self { size, peaks: peaks.iter().copied().map(Digest::from_bytes).collect() })
    }

    /// What has to be stored besides the size.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.peaks.iter().flat_map(|peak| *peak.as_bytes()).collect()
    }

    /// Number of leaves.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a leaf.
    pub fn push(&mut self, leaf: Digest) {
        self.grow(0, leaf, |_, _, _| {});
    }

    /// Adds a leaf and reports every subtree that it completes: its height, its index among those of its height
    /// (counted from zero), and its root.
    pub fn push_with(&mut self, leaf: Digest, completed: impl FnMut(u32, u64, Digest)) {
        self.grow(0, leaf, completed);
    }

    /// Adds a complete subtree of `2^height` leaves. Returns false and adds nothing if the subtree cannot follow here.
    #[must_use]
    pub fn graft(&mut self, height: u32, root: Digest) -> bool {
        self.graft_with(height, root, |_, _, _| {})
    }

    fn graft_with(&mut self, height: u32, root: Digest, completed: impl FnMut(u32, u64, Digest)) -> bool {
        let fits = height < u64::BITS && self.size.trailing_zeros() >= height;
        if fits {
            self.grow(height, root, completed);
        }
        fits
    }

    /// Appends the leaves of another tree. Correct where our size is a multiple of the other's largest complete
    /// subtree, which the caller ensures; otherwise returns false and adds nothing.
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

/// The leaves of any contiguous part of the ledger, as the complete subtrees that they form. Several parts can be built
/// in parallel and then appended in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartialTree {
    next: u64,
    /// Height and root, in the order of the leaves.
    subtrees: Vec<(u32, Digest)>,
}

impl PartialTree {
    /// A part whose first leaf has this index, counted from zero.
    #[must_use]
    pub fn starting(at: u64) -> Self {
        Self { next: at, subtrees: Vec::new() }
    }

    /// Adds the next leaf.
    pub fn push(&mut self, leaf: Digest) {
        self.push_with(leaf, |_, _, _| {});
    }

    /// Adds the next leaf and reports every subtree that it completes within the part, like [`Frontier::push_with`].
    pub fn push_with(&mut self, leaf: Digest, completed: impl FnMut(u32, u64, Digest)) {
        self.grow(0, leaf, completed);
    }

    /// Adds the next leaves and reports the completed subtrees that are higher than [`BATCH_HEIGHT`].
    pub fn extend_with(&mut self, mut leaves: &[Digest], mut completed: impl FnMut(u32, u64, Digest)) {
        while let Some((first, rest)) = leaves.split_first() {
            match leaves.split_first_chunk() {
                Some((together, rest)) if self.next.is_multiple_of(BATCH_LEAVES as u64) => {
                    self.grow(BATCH_HEIGHT, batch_root(together), &mut completed);
                    leaves = rest;
                }
                _ => {
                    self.grow(0, *first, |height, place, root| {
                        if height > BATCH_HEIGHT {
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

    /// Appends the leaves to a tree; false if they do not follow its leaves.
    #[must_use]
    pub fn join(&self, tree: &mut Frontier) -> bool {
        self.join_with(tree, |_, _, _| {})
    }

    /// Like [`PartialTree::join`], and reports every subtree that is completed only by the join.
    #[must_use]
    pub fn join_with(&self, tree: &mut Frontier, mut completed: impl FnMut(u32, u64, Digest)) -> bool {
        self.subtrees.iter().all(|(height, root)| tree.graft_with(*height, *root, &mut completed))
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
    fn the_root_equals_that_of_another_implementation_at_every_size() {
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
    fn trees_join_only_where_a_subtree_ends() {
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
    fn partial_trees_that_begin_anywhere_join_to_the_whole_tree() {
        for cuts in [[0, 1, 2, 40], [3, 17, 18, 40], [5, 5, 31, 33], [16, 32, 39, 40]] {
            let (mut tree, mut reported) = (Frontier::new(), Vec::new());
            let mut at = 0;
            for end in cuts.into_iter().chain([40]) {
                let mut stretch = PartialTree::starting(at);
                let mut report = |height, place, root| reported.push((height, place, root));
                (at..end).for_each(|n| stretch.push_with(leaf(&line(n)), &mut report));
                assert!(stretch.join_with(&mut tree, &mut report));
                at = end;
            }
            let (mut whole, mut expected) = (Frontier::new(), Vec::new());
            for n in 0..40 {
                whole.push_with(leaf(&line(n)), |height, place, root| expected.push((height, place, root)));
            }
            assert_eq!(tree, whole, "{cuts:?}");
            reported.sort_unstable();
            expected.sort_unstable();
            assert_eq!(reported, expected, "{cuts:?}");
        }
        let mut lost = PartialTree::starting(7);
        lost.push(leaf(&line(7)));
        assert!(!lost.join(&mut Frontier::new()));
    }

    #[test]
    fn leaves_added_in_batches_give_the_same_partial_tree() {
        let leaves: Vec<Digest> = (0..300).map(|n| leaf(&line(n))).collect();
        for (start, step) in [(0, 300), (0, 16), (0, 7), (5, 300), (13, 40), (16, 33), (31, 1)] {
            let (mut one, mut expected) = (PartialTree::starting(start), Vec::new());
            let (mut many, mut reported) = (PartialTree::starting(start), Vec::new());
            for some in leaves.chunks(step) {
                some.iter().for_each(|leaf| {
                    one.push_with(*leaf, |height, place, root| expected.push((height, place, root)));
                });
                many.extend_with(some, |height, place, root| reported.push((height, place, root)));
                assert_eq!(many, one, "from {start} by {step}");
            }
            expected.retain(|(height, ..)| *height > BATCH_HEIGHT);
            assert_eq!(reported, expected, "from {start} by {step}");
        }
    }

    #[test]
    fn a_damaged_frontier_is_rejected() {
        assert_eq!(Frontier::from_bytes(3, &[0; 32]), None);
        assert_eq!(Frontier::from_bytes(3, &[0; 65]), None);
        assert_eq!(Frontier::from_bytes(0, &[]), Some(Frontier::new()));
    }
}
