"""The hosts of a fleet and its queue, over all repositories."""

from runplan.adapters.store.postgres import connect, translated_errors
from runplan.domain.errors import RefusedEarly
from runplan.domain.fleet import AccountLimit, FleetPlan, FleetState, Permits, WorkerHost, explain_queueing
from runplan.domain.text import in_words

_HOSTS = """
SELECT DISTINCT ON (host) host, version, labels, slots, extract(epoch FROM now() - seen)::float, draining,
       sick, free, failures, latency_s, seen <= now() - lease()
FROM workers ORDER BY host, seen DESC"""
_CLAIMS = "SELECT url, plan, split_part(owner, '/', 1) FROM claimed JOIN repositories USING (schema)"
#: A second job of a plan that a host has in hand is only a reminder for that host.
_QUEUE = """
SELECT url, args->>'plan', queue_name, extract(epoch FROM now() - at)::float
FROM procrastinate_jobs AS job JOIN repositories ON schema = args->>'schema'
CROSS JOIN LATERAL (SELECT max(at) AS at FROM procrastinate_events WHERE job_id = job.id) AS events
WHERE status = 'todo' AND task_name = 'runplan.work'
  AND NOT EXISTS (SELECT FROM procrastinate_jobs AS other WHERE other.lock = job.lock AND other.status = 'doing')
ORDER BY job.id"""
_LIMITS = """
SELECT account, until, words FROM (
    SELECT DISTINCT ON (account) account, until, words
    FROM all_events, jsonb_to_record(body::jsonb) AS event (account TEXT, until TEXT, words TEXT)
    WHERE type = 'AgentLimited' ORDER BY account, at DESC
) AS newest WHERE until::timestamptz > now() ORDER BY account"""
_UNSTEADY = "SELECT extract(epoch FROM since + lease() - now())::float FROM steady WHERE since >= now() - lease()"
_PERMITS = """
SELECT (SELECT count(*) FROM working),
       (SELECT count(*) FROM permits WHERE NOT works), fleet, repository FROM capacity"""


def read_fleet(dsn: str) -> FleetState:
    with connect(dsn) as db, translated_errors():
        repositories = db.execute("SELECT url FROM repositories ORDER BY url").fetchall()
        claims = db.execute(_CLAIMS).fetchall()
        rows = db.execute(_HOSTS).fetchall()
        queue = db.execute(_QUEUE).fetchall()
        limits = db.execute(_LIMITS).fetchall()
        (permits,) = db.execute(_PERMITS).fetchall()
        unsteady = db.execute(_UNSTEADY).fetchall()
    plans = {name: [FleetPlan(url, plan) for url, plan, owner in claims if owner == name] for name, *_ in rows}
    hosts = [WorkerHost(name, [] if about[-1] else plans[name], *about) for name, *about in rows]
    helps = explain_queueing("any", hosts)
    if unsteady and any(host.takes_plans for host in hosts):
        after = f"take-over waits {in_words(unsteady[0][0])}"
        helps = f"{after}: no heartbeat reached the database for a while, so living hosts may seem dead"
    left = [
        FleetPlan(plan.repository, plan.plan, f"its host {host.name} is dead; {helps}", host.seen_s)
        for host in hosts
        for plan in plans[host.name]
        if host.dead and (plan.repository, plan.plan) not in {queued[:2] for queued in queue}
    ]
    queued = [FleetPlan(url, plan, explain_queueing(name, hosts), age_s) for url, plan, name, age_s in queue]
    return FleetState(
        hosts=hosts,
        queue=queued + left,
        permits=Permits(*permits),
        limits=[AccountLimit(*row) for row in limits],
        repositories=[url for (url,) in repositories],
    )


def forget_host(dsn: str, host: str) -> None:
    """Forget a host that is gone for good; other hosts take its plans over as those of a dead one."""
    known = read_fleet(dsn).get_host(host)
    if not known.dead:
        raise RefusedEarly(f"{host} was seen {in_words(known.seen_s)} ago; end its worker first")
    with connect(dsn) as db, translated_errors():
        db.execute("DELETE FROM workers WHERE host=%s AND seen <= now() - lease()", (host,))


def set_draining(dsn: str, host: str, *, draining: bool) -> None:
    """Have a host hand its plans to others and take none, or take plans again."""
    read_fleet(dsn).get_host(host)
    with connect(dsn) as db, translated_errors():
        db.execute("UPDATE workers SET draining=%s WHERE host=%s", (draining, host))
        db.execute("SELECT pg_notify('runplan_workers', %s)", (host,))
