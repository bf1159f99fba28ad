-- Payloads beside the chain, found by their record. The line holds the commitment to salt and content; both are only
-- here, and `audit forget` deletes both.
--
-- The first 4061 bytes of a row may lie in a page of the tree, which copies its cells about when it grows or shrinks;
-- all that follows lies in pages of its own, which are never copied and are zeroed when the row goes. The padding
-- sees to it that salt and content are in the latter.
CREATE TABLE payloads (
    seq     INTEGER NOT NULL,
    field   TEXT NOT NULL,
    padding BLOB NOT NULL DEFAULT (zeroblob(4096)),
    salt    BLOB NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (seq, field)
) STRICT;
