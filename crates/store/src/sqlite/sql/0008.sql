-- Who performs what was approved: the process in which the caller waits, and the process that took it over.
ALTER TABLE approvals ADD COLUMN waiter TEXT;
ALTER TABLE approvals ADD COLUMN performer TEXT;

-- What a person approved instead of the whole; sealed.
ALTER TABLE decisions ADD COLUMN amendment BLOB;

-- The result of an approved call whose caller was not there, until the caller gets it; sealed. The result of a change is
-- in the row of the change.
CREATE TABLE call_outcomes (
    approval TEXT PRIMARY KEY,
    sealed   BLOB NOT NULL
) STRICT;
