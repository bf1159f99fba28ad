-- One truth for records: the line. Nothing of it is repeated in a column that could say something else.
CREATE TABLE ledger (
    seq  INTEGER PRIMARY KEY,
    line TEXT NOT NULL
) STRICT;

CREATE TABLE head (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    writer     TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    event_hash TEXT NOT NULL
) STRICT;

-- How far a projection of the ledger has come: the last record, and its end in bytes within the segment.
CREATE TABLE projection (
    name    TEXT PRIMARY KEY,
    seq     INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    offset  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id      TEXT PRIMARY KEY,
    user    TEXT NOT NULL,
    agent   TEXT NOT NULL,
    role    TEXT NOT NULL,
    project TEXT NOT NULL,
    state   TEXT NOT NULL,
    opened  INTEGER NOT NULL,
    changed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (
    id          TEXT PRIMARY KEY,
    session     TEXT NOT NULL,
    tool        TEXT NOT NULL,
    state       TEXT NOT NULL,
    started     INTEGER NOT NULL,
    counted     INTEGER NOT NULL,
    plan_digest BLOB,
    finished    INTEGER,
    error       TEXT,
    first_seq   INTEGER,
    last_seq    INTEGER
) STRICT, WITHOUT ROWID;

-- Partial: a call without a rate limit costs no page of this.
CREATE INDEX calls_counted ON calls (session, tool, started) WHERE counted = 1;

CREATE TABLE events (
    call             TEXT NOT NULL,
    n                INTEGER NOT NULL,
    ts               INTEGER NOT NULL,
    phase            TEXT NOT NULL,
    action           TEXT NOT NULL,
    tool             TEXT NOT NULL,
    policy           TEXT,
    verdict          TEXT,
    violation_type   TEXT,
    attempted_action TEXT,
    status           TEXT NOT NULL,
    error            TEXT,
    message          TEXT,
    attempt          INTEGER,
    duration_us      INTEGER NOT NULL,
    PRIMARY KEY (call, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE violations (
    id             INTEGER PRIMARY KEY,
    ts             INTEGER NOT NULL,
    session        TEXT NOT NULL,
    call           TEXT,
    violation_type TEXT NOT NULL,
    target         TEXT
) STRICT;

CREATE INDEX violations_session ON violations (session, ts);

CREATE TABLE trust (
    project BLOB PRIMARY KEY,
    path    TEXT NOT NULL,
    digest  BLOB NOT NULL,
    by      TEXT NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The first record has the number 1 and names 64 zeros as the one before.
INSERT INTO head (id, writer, seq, event_hash)
VALUES (1, 'w-' || lower(hex(randomblob(8))), 0,
        'sha256:0000000000000000000000000000000000000000000000000000000000000000');
