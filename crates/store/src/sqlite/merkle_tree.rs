//! The stored Merkle tree of the ledger: its right edge, to continue from, and the roots of larger subtrees, so
//! that computing the root of any range reads a few hundred lines at most. None of it is trusted: a proof is
//! checked against a signed root before it is returned, and `verify` rebuilds the whole tree.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension};
use vambrace_ledger::{ChainHead, Digest, Frontier, leaf};

use crate::sqlite::rows::signed;

/// Subtrees of `2^MIN_STORED_HEIGHT` records and more are stored.
pub(crate) const MIN_STORED_HEIGHT: u32 = 8;

/// A stored subtree: its height, its index and its root.
pub(crate) type TreeNode = (u32, u64, Digest);

/// How far the tree has grown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MerkleTree {
    pub(crate) edge: Frontier,
    /// The hash of its last record.
    pub(crate) hash: Digest,
}

impl MerkleTree {
    pub(crate) fn new() -> Self {
        Self { edge: Frontier::new(), hash: Digest::ZERO }
    }

    /// The stored tree; `None` if it is damaged.
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT size, edge, hash FROM tree WHERE id = 1";
        let row = connection.prepare_cached(sql)?.query_row((), |row| {
            let size = row.get::<_, i64>(0)?.unsigned_abs();
            let edge = Frontier::from_bytes(size, row.get_ref(1)?.as_bytes()?);
            let hash = row.get_ref(2)?.as_str()?.parse().ok();
            Ok(edge.zip(hash).map(|(edge, hash)| Self { edge, hash }))
        });
        Ok(row.optional()?.unwrap_or(Some(Self::new())))
    }

    /// The record at its end.
    pub(crate) fn head(&self) -> ChainHead {
        ChainHead { seq: self.edge.size(), hash: self.hash }
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, leaf: Digest, hash: Digest, completed: &mut Vec<TreeNode>) {
        self.edge.push_with(leaf, |height, place, root| {
            if height >= MIN_STORED_HEIGHT {
                completed.push((height, place, root));
            }
        });
        self.hash = hash;
    }

    /// The caller holds the writer lock.
    pub(crate) fn store(&self, connection: &Connection, completed: &[TreeNode]) -> rusqlite::Result<()> {
        let sql = "INSERT INTO tree (id, size, edge, hash) VALUES (1, ?1, ?2, ?3)
                   ON CONFLICT (id) DO UPDATE SET size = ?1, edge = ?2, hash = ?3";
        let row = (signed(self.edge.size()), self.edge.bytes(), self.hash.to_string());
        connection.prepare_cached(sql)?.execute(row)?;
        let sql = "INSERT OR REPLACE INTO tree_nodes (height, place, hash) VALUES (?1, ?2, ?3)";
        let mut insert = connection.prepare_cached(sql)?;
        for (height, place, root) in completed {
            insert.execute((height, signed(*place), root.as_bytes().as_slice()))?;
        }
        Ok(())
    }
}

/// Every stored subtree, smallest first.
pub(crate) fn nodes(connection: &Connection) -> rusqlite::Result<Vec<TreeNode>> {
    let sql = "SELECT height, place, hash FROM tree_nodes ORDER BY height, place";
    let mut statement = connection.prepare_cached(sql)?;
    let nodes = statement.query_map((), |row| {
        // A value that is not a hash cannot match any subtree.
        let hash = row.get::<_, [u8; 32]>(2).map_or(Digest::ZERO, Digest::from_bytes);
        let height = row.get::<_, i64>(0)?.try_into().unwrap_or(u32::MAX);
        Ok((height, row.get::<_, i64>(1)?.cast_unsigned(), hash))
    })?;
    nodes.collect()
}

/// The root over a range of records, counted from zero. The range begins at a multiple of a power of two that
/// is at least its length (as the ranges of proofs do). `None` if records are missing.
pub(crate) fn root(connection: &Connection, stretch: Range<u64>) -> rusqlite::Result<Option<Digest>> {
    Ok(edge(connection, stretch)?.map(|edge| edge.root()))
}

/// The right edge of such a range.
pub(crate) fn edge(connection: &Connection, stretch: Range<u64>) -> rusqlite::Result<Option<Frontier>> {
    let mut tree = Frontier::new();
    let mut at = stretch.start;
    while at < stretch.end {
        let left = stretch.end - at;
        let height = at.trailing_zeros().min((at - stretch.start).trailing_zeros()).min(left.ilog2());
        let kept = if height >= MIN_STORED_HEIGHT { node(connection, height, at >> height)? } else { None };
        if let Some(root) = kept {
            if !tree.graft(height, root) {
                return Ok(None);
            }
            at += 1 << height;
            continue;
        }
        let step = 1 << MIN_STORED_HEIGHT;
        let end = (at / step + 1).saturating_mul(step).min(stretch.end);
        if !leaves(connection, at..end, &mut tree)? {
            return Ok(None);
        }
        at = end;
    }
    Ok(Some(tree))
}

fn node(connection: &Connection, height: u32, place: u64) -> rusqlite::Result<Option<Digest>> {
    let sql = "SELECT hash FROM tree_nodes WHERE height = ?1 AND place = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let hash = statement.query_row((height, signed(place)), |row| row.get::<_, [u8; 32]>(0)).optional()?;
    Ok(hash.map(Digest::from_bytes))
}

fn leaves(connection: &Connection, stretch: Range<u64>, tree: &mut Frontier) -> rusqlite::Result<bool> {
    let sql = "SELECT seq, line FROM ledger WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((signed(stretch.start), signed(stretch.end)))?;
    let mut next = stretch.start;
    while let Some(row) = rows.next()? {
        next += 1;
        if row.get::<_, i64>(0)? != signed(next) {
            return Ok(false);
        }
        tree.push(leaf(row.get_ref(1)?.as_bytes()?));
    }
    Ok(next == stretch.end)
}
