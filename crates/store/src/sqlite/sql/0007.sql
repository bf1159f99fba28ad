-- A session belongs to a tenant, a user and a project; a token to a tenant and a user. There was one tenant until now.
ALTER TABLE sessions ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
ALTER TABLE tokens ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
