-- What undoes an applied change may be large: in the row of the change it was written again whenever that moved.
CREATE TABLE ways_back (
    proposal TEXT PRIMARY KEY,
    sealed   BLOB NOT NULL
) STRICT;

INSERT INTO ways_back (proposal, sealed) SELECT id, back FROM proposals WHERE back IS NOT NULL;
ALTER TABLE proposals DROP COLUMN back;
