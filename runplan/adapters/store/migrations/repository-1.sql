-- The tables of one repository, on SQLite and on PostgreSQL. There an INTEGER PRIMARY KEY counts by itself, too.

CREATE TABLE runs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, row TEXT NOT NULL,
    plan TEXT GENERATED ALWAYS AS (json_extract(row, '$.plan')) STORED,
    state TEXT GENERATED ALWAYS AS (json_extract(row, '$.state')) STORED,
    phase TEXT GENERATED ALWAYS AS (json_extract(row, '$.phase')) STORED,
    waiting_for TEXT GENERATED ALWAYS AS (json_extract(row, '$.waiting_for')) STORED,
    since TEXT GENERATED ALWAYS AS (json_extract(row, '$.since')) STORED
);
CREATE INDEX runs_by_plan ON runs (plan, number);
CREATE INDEX runs_by_state ON runs (state);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, run TEXT NOT NULL, plan TEXT NOT NULL, at TEXT NOT NULL, type TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX events_by_run ON events (run, seq);
CREATE INDEX events_by_plan ON events (plan, type, seq);
CREATE INDEX events_by_time ON events (type, at);
CREATE INDEX leases_by_branch ON events (plan, json_extract(body, '$.branch')) WHERE type='Leased';
CREATE TABLE claims (
    kind TEXT NOT NULL, key TEXT NOT NULL, run TEXT NOT NULL, owner TEXT NOT NULL,
    fence INTEGER NOT NULL, PRIMARY KEY (kind, key)
);
CREATE TABLE fences (kind TEXT NOT NULL, key TEXT NOT NULL, fence INTEGER NOT NULL, PRIMARY KEY (kind, key));
CREATE TABLE baselines (key TEXT PRIMARY KEY, results TEXT NOT NULL);
CREATE TABLE commands (
    seq INTEGER PRIMARY KEY, plan TEXT NOT NULL, verb TEXT NOT NULL, arguments TEXT NOT NULL, by TEXT NOT NULL,
    at TEXT NOT NULL, answer TEXT
);
CREATE INDEX commands_queued ON commands (seq) WHERE answer IS NULL;
CREATE TABLE schedules (
    plan TEXT PRIMARY KEY, spec TEXT NOT NULL, zone TEXT NOT NULL, misfire TEXT NOT NULL, request TEXT NOT NULL,
    anchor TEXT NOT NULL, made TEXT NOT NULL, last TEXT, paused TEXT, next TEXT
);
CREATE TABLE firings (
    seq INTEGER PRIMARY KEY, plan TEXT NOT NULL, slot TEXT NOT NULL, at TEXT NOT NULL, answer TEXT NOT NULL,
    why TEXT NOT NULL, UNIQUE (plan, slot)
);
CREATE TABLE notices (run TEXT NOT NULL, about TEXT NOT NULL, PRIMARY KEY (run, about));
CREATE TABLE waits (
    kind TEXT NOT NULL, plan TEXT PRIMARY KEY, about TEXT NOT NULL, since TEXT NOT NULL, wake TEXT,
    times INTEGER NOT NULL
);
CREATE TABLE places (plan TEXT PRIMARY KEY, place INTEGER NOT NULL);
CREATE TABLE outlines (plan TEXT PRIMARY KEY, stamp TEXT NOT NULL, value TEXT NOT NULL);
