"""The longer queries of the journal. Its tables are in migrations/repository-1.sql."""

from runplan.domain.run.kinds import UNFINISHED

SCHEMA_VERSION = 14
IS_ACTIVE = f"state IN {tuple(status.value for status in UNFINISHED)}"
NEWEST = "SELECT max(number) FROM runs WHERE ? IN ('', plan) GROUP BY plan"
OUTLINES = "SELECT plan, stamp, value FROM outlines WHERE ? IN ('', plan)"
QUEUED = "SELECT plan, verb FROM commands WHERE answer IS NULL ORDER BY seq"
REFUSED = (
    "SELECT plan, at, verb, json_extract(answer, '$.error') FROM commands WHERE seq IN"
    " (SELECT max(seq) FROM commands WHERE verb IN ('start', 'now', 'resume') AND ? IN ('', plan) GROUP BY plan)"
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


def number(field: str) -> str:
    return f"CAST(json_extract(body, '$.{field}') AS DOUBLE PRECISION)"


def total(field: str) -> str:
    return f"coalesce(sum({number(field)}), 0.0)"


PHASE = "json_extract(body, '$.phase')"
#: By plan and a further key.
FIGURES = {
    "runs": "SELECT plan, state, count(*) FROM runs GROUP BY 1, 2",
    "takeovers": "SELECT plan, count(*) FROM events WHERE type='ClaimTaken'"
    " AND coalesce(json_extract(body, '$.took_over'), '')<>'' GROUP BY 1",
    # The landing of a completed plan has no phase, and an undo lands as well: both are no landed phases.
    "landed": f"SELECT plan, count(*) FROM events WHERE type='Landed' AND {PHASE}<>'' AND run NOT IN (SELECT run FROM"
    " events WHERE type='RunStarted' AND json_extract(body, '$.mode')='undo') GROUP BY 1",
    "failed": "SELECT plan, json_extract(body, '$.reason'), count(*) FROM events WHERE type='PhaseFailed'"
    " GROUP BY 1, 2",
    "schedules": "SELECT plan, CASE WHEN paused IS NULL THEN 'active' ELSE 'paused' END, 1 FROM schedules",
    "slots": "SELECT plan, answer, count(*) FROM firings GROUP BY 1, 2",
}
#: The oldest wait of each kind.
WAITS = (
    "SELECT plan, waiting_for, min(since) FROM runs WHERE state IN ('queued', 'waiting') AND waiting_for IS NOT NULL"
    " GROUP BY 1, 2"
)
DISPATCH_TOTALS = (
    "SELECT json_extract(body, '$.role'), coalesce(json_extract(body, '$.agent'), ''), json_extract(body, '$.ending'),"
    f" count(*), {total('seconds')}, {total('usd')}, {total('input_tokens')}, {total('output_tokens')},"
    f" {total('cached_tokens')} FROM events WHERE type='DispatchEnded' GROUP BY 1, 2, 3"
)
#: Materialized: each field is extracted once.
USAGE_TOTALS = (
    "WITH ended AS MATERIALIZED (SELECT substr(at, 1, 10) AS day, plan, json_extract(body, '$.agent') AS agent,"
    f" json_extract(body, '$.role') AS role, {number('usd')} AS usd,"
    f" {number('input_tokens')} + {number('output_tokens')} AS tokens,"
    " CASE WHEN CAST(json_extract(body, '$.estimated') AS TEXT) IN ('1', 'true') THEN 1 ELSE 0 END AS estimated"
    " FROM events WHERE type='DispatchEnded' AND at>=?)"
    " SELECT day, plan, agent, role, count(*), CAST(sum(tokens) AS BIGINT), coalesce(sum(usd), 0.0),"
    " max(CASE WHEN tokens > 0 AND usd = 0 THEN 1 ELSE 0 END), max(estimated)"
    " FROM ended WHERE agent<>'' GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
)
#: An answer from the future was recorded while the clock was ahead.
ANSWER_SLOT = (
    "INSERT INTO firings (plan, slot, at, answer, why) VALUES (?,?,?,?,?) ON CONFLICT (plan, slot)"
    " DO UPDATE SET at=excluded.at, answer=excluded.answer, why=excluded.why WHERE excluded.at < firings.at"
)
#: A fence grows at each take-over, also after the claim was dropped.
RAISE_FENCE = (
    "INSERT INTO fences (kind, key, fence) VALUES (?,?,1) ON CONFLICT (kind, key)"
    " DO UPDATE SET fence=fences.fence+1 RETURNING fence"
)
