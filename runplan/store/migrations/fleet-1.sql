-- Of all repositories. The owner of the database applies it: runplan fleet init
-- Each new table gives runplan_worker all rights on its rows, but for those that are revoked here.

CREATE TABLE version (version INTEGER NOT NULL);
INSERT INTO version VALUES (1);
CREATE TABLE repositories (url TEXT PRIMARY KEY, schema TEXT NOT NULL UNIQUE);
REVOKE INSERT, UPDATE, DELETE ON version, repositories FROM runplan_worker;
CREATE TABLE workers (
    owner TEXT PRIMARY KEY, host TEXT NOT NULL, labels TEXT[] NOT NULL, slots INTEGER NOT NULL,
    version TEXT NOT NULL, started TIMESTAMPTZ NOT NULL DEFAULT now(), seen TIMESTAMPTZ NOT NULL DEFAULT now(),
    draining BOOLEAN NOT NULL DEFAULT false
);
-- As SQLite has it; every value is returned as text.
CREATE FUNCTION json_extract(body TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN body::jsonb #>> string_to_array(substr(path, 3), '.');
