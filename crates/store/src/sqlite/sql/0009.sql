-- What a call would do and what policy said about it, redacted, for judging it again under another policy. A call without
-- it was recorded by an older version, or was not planned.
ALTER TABLE calls ADD COLUMN judged TEXT;
-- The same for the change that a program made and that was judged after its run.
ALTER TABLE calls ADD COLUMN judged_change TEXT;

-- The process in which a call runs, until the call ends: the next process finds the calls of one that died.
ALTER TABLE calls ADD COLUMN life TEXT;
CREATE INDEX calls_running ON calls (life) WHERE life IS NOT NULL;
