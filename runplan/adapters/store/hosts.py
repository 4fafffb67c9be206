"""The hosts of a fleet and its queue, over all repositories."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from runplan.adapters.store.postgres import connect, translated_errors
from runplan.domain.errors import NotFound
from runplan.domain.text import counted

_HOSTS = """
SELECT DISTINCT ON (host) host, version, labels, slots, extract(epoch FROM now() - seen)::float, draining,
       seen <= now() - lease()
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
_PERMITS = """
SELECT (SELECT count(*) FROM working),
       (SELECT count(*) FROM permits WHERE NOT works), fleet, repository FROM capacity"""


class FleetPlan(Struct, frozen=True):
    repository: str
    plan: str
    why: str = ""  #: it waits
    age_s: float = 0.0  #: of the wait


class Host(Struct, frozen=True):
    """The newest worker of a host."""

    name: str
    plans: Sequence[FleetPlan]  #: that it has in hand
    version: str
    labels: Sequence[str]
    slots: int
    seen_s: float  #: since its last heartbeat
    draining: bool
    dead: bool

    @property
    def takes_plans(self) -> bool:
        return not (self.dead or self.draining)


class AccountLimit(Struct, frozen=True):
    account: str
    until: str
    words: str


class Permits(Struct, frozen=True):
    working: int
    waiting: int
    most: int  #: in the fleet; 0 for no limit
    most_in_repository: int


class FleetState(Struct, frozen=True, kw_only=True):
    hosts: Sequence[Host]
    queue: Sequence[FleetPlan]  #: which no host has in hand
    permits: Permits
    limits: Sequence[AccountLimit]  #: of use, which all hosts wait for
    repositories: Sequence[str]

    def get_host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts)
        hint = f"there are: {known}" if known else "no worker has registered; start one: runplan worker"
        raise NotFound(f"{name}: no such host; {hint}")


def read_fleet(dsn: str) -> FleetState:
    with connect(dsn) as db, translated_errors():
        repositories = db.execute("SELECT url FROM repositories ORDER BY url").fetchall()
        claims = db.execute(_CLAIMS).fetchall()
        rows = db.execute(_HOSTS).fetchall()
        queue = db.execute(_QUEUE).fetchall()
        limits = db.execute(_LIMITS).fetchall()
        (permits,) = db.execute(_PERMITS).fetchall()
    plans = {name: [FleetPlan(url, plan) for url, plan, owner in claims if owner == name] for name, *_ in rows}
    hosts = [Host(name, [] if about[-1] else plans[name], *about) for name, *about in rows]
    helps = explain_queueing("any", hosts)
    left = [
        FleetPlan(plan.repository, plan.plan, f"its host {host.name} is dead; {helps}", host.seen_s)
        for host in hosts
        for plan in plans[host.name]
        if host.dead and (plan.repository, plan.plan) not in {queued[:2] for queued in queue}
    ]
    return FleetState(
        hosts=hosts,
        queue=[
            *(FleetPlan(url, plan, explain_queueing(name, hosts), age_s) for url, plan, name, age_s in queue),
            *left,
        ],
        permits=Permits(*permits),
        limits=[AccountLimit(*row) for row in limits],
        repositories=[url for (url,) in repositories],
    )


def explain_queueing(queue: str, hosts: Sequence[Host]) -> str:
    """Why no host has taken a plan from this queue, which is named after labels."""
    labels = [] if queue == "any" else queue.split("+")
    taking = [host for host in hosts if host.takes_plans]
    fitting = [host for host in taking if set(labels) <= set(host.labels)]
    if not taking:
        return "no host takes plans; start one: runplan worker"
    if not fitting:
        return f"no host has the labels {', '.join(labels)}; start one: runplan worker --labels {','.join(labels)}"
    if all(len(host.plans) >= host.slots for host in fitting):
        return f"every slot of {counted(len(fitting), 'host')} is in use"
    return "a host takes it now"


def set_draining(dsn: str, host: str, *, draining: bool) -> None:
    """Have a host hand its plans to others and take none, or take plans again."""
    read_fleet(dsn).get_host(host)
    with connect(dsn) as db, translated_errors():
        db.execute("UPDATE workers SET draining=%s WHERE host=%s", (draining, host))
        db.execute("SELECT pg_notify('runplan_workers', %s)", (host,))
