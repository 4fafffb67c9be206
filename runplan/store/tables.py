"""The tables of the journal, and its longer queries."""

from __future__ import annotations

from runplan.run.kinds import UNFINISHED

SCHEMA_VERSION = 12
SCHEMA = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, row TEXT NOT NULL,
    plan TEXT AS (json_extract(row, '$.plan')) STORED, state TEXT AS (json_extract(row, '$.state')) STORED,
    phase TEXT AS (json_extract(row, '$.phase')), waiting_for TEXT AS (json_extract(row, '$.waiting_for')),
    since TEXT AS (json_extract(row, '$.since'))
);
CREATE INDEX runs_by_plan ON runs (plan, number);
CREATE INDEX runs_by_state ON runs (state);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, plan TEXT NOT NULL, at TEXT NOT NULL,
    type TEXT NOT NULL, body TEXT NOT NULL
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
    seq INTEGER PRIMARY KEY AUTOINCREMENT, plan TEXT NOT NULL, verb TEXT NOT NULL, arguments TEXT NOT NULL,
    by TEXT NOT NULL, at TEXT NOT NULL, answer TEXT
);
CREATE INDEX commands_queued ON commands (seq) WHERE answer IS NULL;
CREATE TABLE schedules (
    plan TEXT PRIMARY KEY, spec TEXT NOT NULL, zone TEXT NOT NULL, misfire TEXT NOT NULL, request TEXT NOT NULL,
    anchor TEXT NOT NULL, made TEXT NOT NULL, last TEXT, paused TEXT, next TEXT
);
CREATE TABLE firings (
    plan TEXT NOT NULL, slot TEXT NOT NULL, at TEXT NOT NULL, answer TEXT NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (plan, slot)
);
CREATE TABLE notices (run TEXT NOT NULL, about TEXT NOT NULL, PRIMARY KEY (run, about));
CREATE TABLE waits (
    kind TEXT NOT NULL, plan TEXT PRIMARY KEY, about TEXT NOT NULL, since TEXT NOT NULL, wake TEXT,
    times INTEGER NOT NULL
);
CREATE TABLE outlines (plan TEXT PRIMARY KEY, stamp TEXT NOT NULL, value TEXT NOT NULL);
"""
IS_ACTIVE = f"state IN {tuple(status.value for status in UNFINISHED)}"
NEWEST = "SELECT max(number) FROM runs WHERE ?1 IN ('', plan) GROUP BY plan"
OUTLINES = "SELECT plan, stamp, value FROM outlines WHERE ?1 IN ('', plan)"
QUEUED = "SELECT plan, verb FROM commands WHERE answer IS NULL ORDER BY seq"
REFUSED = (
    "SELECT plan, at, verb, json_extract(answer, '$.error') FROM commands WHERE seq IN"
    " (SELECT max(seq) FROM commands WHERE verb IN ('start', 'now', 'resume') AND ?1 IN ('', plan) GROUP BY plan)"
)
#: A scheduled plan can have failed very often.
FAILURES = (
    "SELECT phase, json_extract(body, '$.reason'), json_extract(body, '$.detail'),"
    " coalesce(json_extract(body, '$.output'), '') FROM"
    " (SELECT seq, plan, body, json_extract(body, '$.phase') AS phase FROM events"
    " WHERE plan=? AND type='PhaseFailed' ORDER BY seq DESC LIMIT 100) AS failed"
    " WHERE NOT EXISTS (SELECT 1 FROM events AS later WHERE later.plan=failed.plan AND later.type='Landed'"
    " AND later.seq>failed.seq AND json_extract(later.body, '$.phase')=failed.phase) ORDER BY seq DESC"
)

PHASE = "json_extract(body, '$.phase')"
#: By plan and a further key.
FIGURES = {
    "runs": "SELECT plan, state, count(*) FROM runs GROUP BY 1, 2",
    # The landing of a completed plan has no phase, and an undo lands as well: both are no landed phases.
    "landed": f"SELECT plan, count(*) FROM events WHERE type='Landed' AND {PHASE}<>'' AND run NOT IN (SELECT run FROM"
    " events WHERE type='RunStarted' AND json_extract(body, '$.mode')='undo') GROUP BY 1",
    "failed": "SELECT plan, json_extract(body, '$.reason'), count(*) FROM events WHERE type='PhaseFailed'"
    " GROUP BY 1, 2",
    "waiting_s": "SELECT plan, waiting_for, max(0, max(?1 - strftime('%s', since))) FROM runs"
    " WHERE state IN ('queued', 'waiting') AND waiting_for IS NOT NULL GROUP BY 1, 2",
    "schedules": "SELECT plan, CASE WHEN paused IS NULL THEN 'active' ELSE 'paused' END, 1 FROM schedules",
    "slots": "SELECT plan, answer, count(*) FROM firings GROUP BY 1, 2",
}
DISPATCH_TOTALS = (
    "SELECT json_extract(body, '$.role'), coalesce(json_extract(body, '$.agent'), ''), json_extract(body, '$.ending'),"
    " count(*), total(json_extract(body, '$.seconds')), total(json_extract(body, '$.usd')),"
    " total(json_extract(body, '$.input_tokens')), total(json_extract(body, '$.output_tokens')),"
    " total(json_extract(body, '$.cached_tokens')) FROM events WHERE type='DispatchEnded' GROUP BY 1, 2, 3"
)
#: Materialized: each field is extracted once.
USAGE_TOTALS = (
    "WITH ended AS MATERIALIZED (SELECT substr(at, 1, 10) AS day, plan, json_extract(body, '$.agent') AS agent,"
    " json_extract(body, '$.role') AS role, json_extract(body, '$.usd') AS usd,"
    " json_extract(body, '$.input_tokens') + json_extract(body, '$.output_tokens') AS tokens,"
    " json_extract(body, '$.estimated') AS estimated FROM events WHERE type='DispatchEnded' AND at>=?)"
    " SELECT day, plan, agent, role, count(*), sum(tokens), total(usd), max(tokens > 0 AND usd = 0), max(estimated)"
    " FROM ended WHERE agent<>'' GROUP BY 1, 2, 3, 4"
)
#: An answer from the future was recorded while the clock was ahead.
ANSWER_SLOT = (
    "INSERT INTO firings (plan, slot, at, answer, why) VALUES (?,?,?,?,?) ON CONFLICT (plan, slot)"
    " DO UPDATE SET at=excluded.at, answer=excluded.answer, why=excluded.why WHERE excluded.at < at"
)
