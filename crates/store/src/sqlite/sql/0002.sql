-- The tree over the lines of the ledger: its size, its right edge, and the hash of its last record.
CREATE TABLE tree (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    size INTEGER NOT NULL,
    edge BLOB NOT NULL,
    hash TEXT NOT NULL
) STRICT;

-- Roots of complete subtrees of 256 records and more, so that a proof need not read the whole ledger.
CREATE TABLE tree_nodes (
    height INTEGER NOT NULL,
    place  INTEGER NOT NULL,
    hash   BLOB NOT NULL,
    PRIMARY KEY (height, place)
) STRICT, WITHOUT ROWID;

-- Signed checkpoints, never more than 4096 records apart. Those that a segment was sealed with are kept for ever.
CREATE TABLE checkpoints (
    size   INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    sealed INTEGER NOT NULL DEFAULT 0,
    note   TEXT NOT NULL
) STRICT;

-- The keys of the ledger and the records from which on they count.
CREATE TABLE ledger_keys (
    seq INTEGER PRIMARY KEY,
    key TEXT NOT NULL
) STRICT;
