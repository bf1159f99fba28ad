//! Proofs of RFC 6962: that a line is in a tree, and that one tree is the beginning of another. A proof is a list of
//! roots, each over a range of leaves. This module computes the ranges; the caller, who has the leaves, computes the
//! roots. Checking follows RFC 9162, 2.1.3.2 and 2.1.4.2.

use std::ops::Range;

use crate::digest::Digest;
use crate::tree::{Frontier, node};

/// Maximum number of hashes in a proof: more than a tree of 2^63 leaves needs.
pub const MAX_PROOF_HASHES: usize = 63;

/// The ranges whose roots prove that the leaf `index` (counted from zero) is in the tree of `size` leaves.
#[must_use]
pub fn inclusion(index: u64, size: u64) -> Option<Vec<Range<u64>>> {
    (index < size).then(|| path(index, 0..size))
}

/// The ranges whose roots prove that the tree of `old` leaves is the beginning of the tree of `new` leaves.
#[must_use]
pub fn consistency(old: u64, new: u64) -> Option<Vec<Range<u64>>> {
    match old {
        _ if old > new => None,
        0 => Some(Vec::new()),
        _ => Some(subproof(old, 0..new, true)),
    }
}

/// PATH of RFC 6962, 2.1.1, as ranges of leaves.
fn path(index: u64, tree: Range<u64>) -> Vec<Range<u64>> {
    let Some(half) = left_end(&tree) else { return Vec::new() };
    let (mut proof, other) = if index < half {
        (path(index, tree.start..half), half..tree.end)
    } else {
        (path(index, half..tree.end), tree.start..half)
    };
    proof.push(other);
    proof
}

/// SUBPROOF of RFC 6962, 2.1.2, as ranges of leaves.
fn subproof(old: u64, tree: Range<u64>, known: bool) -> Vec<Range<u64>> {
    if old == tree.end {
        return if known { Vec::new() } else { vec![tree] };
    }
    let Some(half) = left_end(&tree) else { return Vec::new() };
    let (mut proof, other) = if old <= half {
        (subproof(old, tree.start..half, known), half..tree.end)
    } else {
        (subproof(old, half..tree.end, false), tree.start..half)
    };
    proof.push(other);
    proof
}

/// Where the left subtree ends: the largest power of two below the size. `None` for a leaf.
fn left_end(tree: &Range<u64>) -> Option<u64> {
    let size = tree.end - tree.start;
    (size > 1).then(|| tree.start + (1 << (size - 1).ilog2()))
}

/// Whether a proof shows that a leaf is in the tree with this root.
#[must_use]
pub fn is_included(index: u64, size: u64, leaf: Digest, proof: &[Digest], root: Digest) -> bool {
    if index >= size {
        return false;
    }
    let (mut place, mut last, mut hash) = (index, size - 1, leaf);
    for other in proof {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            hash = node(other, &hash);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(&hash, other);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && hash == root
}

/// Whether a proof shows that the tree `old` is the beginning of the tree `new`; each is a size and a root.
#[must_use]
pub fn is_consistent(old: (u64, Digest), new: (u64, Digest), proof: &[Digest]) -> bool {
    let ((old, old_root), (new, new_root)) = (old, new);
    if old > new {
        return false;
    }
    if old == new || old == 0 {
        let same = old != new || old_root == new_root;
        let empty = old != 0 || old_root == Frontier::new().root();
        return proof.is_empty() && same && empty;
    }
    // A complete subtree is its own first hash.
    let mut hashes = old.is_power_of_two().then_some(&old_root).into_iter().chain(proof);
    let Some(first) = hashes.next() else { return false };
    let (mut place, mut last) = (old - 1, new - 1);
    while place & 1 == 1 {
        place >>= 1;
        last >>= 1;
    }
    let (mut before, mut after) = (*first, *first);
    for other in hashes {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            before = node(other, &before);
            after = node(other, &after);
            while place & 1 == 0 && place != 0 {
                place >>= 1;
                last >>= 1;
            }
        } else {
            after = node(&after, other);
        }
        place >>= 1;
        last >>= 1;
    }
    last == 0 && before == old_root && after == new_root
}

#[cfg(test)]
mod tests {
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use sha2::Sha256;

    use super::*;
    use crate::tree::leaf;

    fn line(n: u64) -> Vec<u8> {
        format!("line {n}").into_bytes()
    }

    fn tree(size: u64) -> Frontier {
        let mut tree = Frontier::new();
        (0..size).for_each(|n| tree.push(leaf(&line(n))));
        tree
    }

    fn run(stretches: Option<Vec<Range<u64>>>) -> Vec<Digest> {
        let root = |stretch: Range<u64>| {
            let mut tree = Frontier::new();
            stretch.for_each(|n| tree.push(leaf(&line(n))));
            tree.root()
        };
        stretches.unwrap().into_iter().map(root).collect()
    }

    fn bytes(proof: &[Digest]) -> Vec<u8> {
        proof.iter().flat_map(|hash| *hash.as_bytes()).collect()
    }

    #[test]
    fn inclusion_proofs_equal_those_of_another_implementation_and_verify() {
        let mut theirs = MemoryBackedTree::<Sha256, Vec<u8>>::new();
        for size in 1..=70 {
            theirs.push(line(size - 1));
            let root = tree(size).root();
            for index in 0..size {
                let proof = run(inclusion(index, size));
                let place = usize::try_from(index).unwrap();
                assert_eq!(bytes(&proof), theirs.prove_inclusion(place).as_bytes(), "{index} of {size}");
                assert!(is_included(index, size, leaf(&line(index)), &proof, root));
            }
        }
    }

    #[test]
    fn consistency_proofs_equal_those_of_another_implementation_and_verify() {
        let mut theirs = MemoryBackedTree::<Sha256, Vec<u8>>::new();
        for new in 1..=70 {
            theirs.push(line(new - 1));
            for old in 1..=new {
                let proof = run(consistency(old, new));
                if old < new {
                    let added = usize::try_from(new - old).unwrap();
                    assert_eq!(bytes(&proof), theirs.prove_consistency(added).as_bytes(), "{old} to {new}");
                }
                assert!(is_consistent((old, tree(old).root()), (new, tree(new).root()), &proof));
            }
        }
    }

    #[test]
    fn an_altered_proof_does_not_verify() {
        let (index, size) = (37, 70);
        let root = tree(size).root();
        let proof = run(inclusion(index, size));
        let this = leaf(&line(index));
        for place in 0..proof.len() {
            let mut bad = proof.clone();
            bad[place] = Digest::ZERO;
            assert!(!is_included(index, size, this, &bad, root));
            bad.remove(place);
            assert!(!is_included(index, size, this, &bad, root));
        }
        let longer = [proof.as_slice(), &[Digest::ZERO]].concat();
        assert!(!is_included(index, size, this, &longer, root));
        for other in (0..size).filter(|other| *other != index) {
            assert!(!is_included(other, size, this, &proof, root), "at {other}");
        }
        for (old, new) in [(37, 70), (64, 70), (1, 2)] {
            let proof = run(consistency(old, new));
            let (before, after) = (tree(old).root(), tree(new).root());
            for place in 0..proof.len() {
                let mut bad = proof.clone();
                bad[place] = Digest::ZERO;
                assert!(!is_consistent((old, before), (new, after), &bad));
                bad.remove(place);
                assert!(!is_consistent((old, before), (new, after), &bad));
            }
            assert!(!is_consistent((old, Digest::ZERO), (new, after), &proof));
            assert!(!is_consistent((old, before), (new, Digest::ZERO), &proof));
            assert!(!is_consistent((new, after), (old, before), &proof));
        }
    }

    #[test]
    fn an_empty_tree_has_one_root_only() {
        let (empty, two) = (tree(0).root(), tree(2).root());
        assert!(is_consistent((0, empty), (0, empty), &[]));
        assert!(is_consistent((0, empty), (2, two), &[]));
        assert!(!is_consistent((0, empty), (0, two), &[]));
        assert!(!is_consistent((0, two), (0, two), &[]));
        assert!(!is_consistent((0, two), (2, two), &[]));
        assert!(!is_consistent((0, empty), (2, two), &[two]));
    }
}
