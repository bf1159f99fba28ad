-- Questions to a person. What they are about is sealed; only what a list shows stands here in words.
CREATE TABLE approvals (
    id        TEXT PRIMARY KEY,
    call      TEXT NOT NULL,
    session   TEXT NOT NULL,
    user      TEXT NOT NULL,
    agent     TEXT NOT NULL,
    project   TEXT NOT NULL,
    tool      TEXT NOT NULL,
    kind      TEXT NOT NULL,
    risk      TEXT NOT NULL,
    summary   TEXT NOT NULL,
    why       TEXT NOT NULL,
    grantable INTEGER NOT NULL,
    -- The call as it was asked: how the same call, asked again, finds its question.
    asked     BLOB NOT NULL,
    -- What was planned: what a yes is bound to.
    digest    BLOB NOT NULL,
    revision  BLOB NOT NULL,
    sealed    BLOB NOT NULL,
    created   INTEGER NOT NULL,
    expires   INTEGER NOT NULL,
    state     TEXT NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- One question for one call: asking again does not ask twice.
CREATE UNIQUE INDEX approvals_open ON approvals (session, asked) WHERE state IN ('pending', 'approved');
CREATE INDEX approvals_asked ON approvals (session, asked, created);
CREATE INDEX approvals_pending ON approvals (created) WHERE state = 'pending';

-- One decision for each question, whoever is first.
CREATE TABLE decisions (
    approval TEXT PRIMARY KEY REFERENCES approvals (id),
    verb     TEXT NOT NULL,
    reach    TEXT NOT NULL,
    digest   BLOB NOT NULL,
    at       INTEGER NOT NULL,
    expires  INTEGER NOT NULL,
    by       TEXT NOT NULL,
    reason   TEXT,
    note     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Changes: proposed, applied, rolled back. A change that a rule agreed to has no question.
CREATE TABLE proposals (
    id         TEXT PRIMARY KEY,
    call       TEXT NOT NULL,
    session    TEXT NOT NULL,
    user       TEXT NOT NULL,
    project    TEXT NOT NULL,
    tool       TEXT NOT NULL,
    path       TEXT NOT NULL,
    summary    TEXT NOT NULL,
    files      INTEGER NOT NULL,
    patch_hash BLOB NOT NULL,
    digest     BLOB NOT NULL,
    state      TEXT NOT NULL,
    created    INTEGER NOT NULL,
    changed    INTEGER NOT NULL,
    -- The proposal that this one undoes.
    undoes     TEXT,
    -- The process that is applying it.
    life       TEXT,
    shown      BLOB NOT NULL,
    changes    BLOB,
    back       BLOB,
    outcome    BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX proposals_open ON proposals (project) WHERE state = 'applying';
CREATE INDEX proposals_call ON proposals (call);

CREATE TABLE grants (
    id       TEXT PRIMARY KEY,
    session  TEXT NOT NULL,
    user     TEXT NOT NULL,
    agent    TEXT NOT NULL,
    reach    TEXT NOT NULL,
    shape    TEXT NOT NULL,
    by       TEXT NOT NULL,
    approval TEXT NOT NULL,
    created  INTEGER NOT NULL,
    expires  INTEGER NOT NULL,
    revoked  INTEGER,
    uses     INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX grants_session ON grants (session);

CREATE TABLE tokens (
    id      TEXT PRIMARY KEY,
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    user    TEXT NOT NULL,
    hash    BLOB NOT NULL,
    key     TEXT,
    created INTEGER NOT NULL,
    expires INTEGER,
    revoked INTEGER
) STRICT, WITHOUT ROWID;
