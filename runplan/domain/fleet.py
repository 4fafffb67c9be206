"""The state of a fleet: its hosts, the plans that wait for one, and the limits that all of them share."""

from collections.abc import Collection, Sequence
from itertools import combinations

from msgspec import Struct

from runplan.domain.errors import NotFound
from runplan.domain.text import counted

ANY = "any"  #: the queue of plans that need no label
MAX_LABELS = 8  #: of one host, which looks into a queue for each combination of them


class FleetPlan(Struct, frozen=True):
    repository: str
    plan: str
    why: str = ""  #: it waits
    age_s: float = 0.0  #: of the wait


class WorkerHost(Struct, frozen=True):
    name: str
    plans: Sequence[FleetPlan]  #: that it has in hand
    version: str
    labels: Sequence[str]
    slots: int
    seen_s: float  #: since its last heartbeat
    draining: bool
    sick: str  #: why it takes no plans, by its own check
    free: int  #: bytes on its disk
    failures: int  #: heartbeats of its worker that did not reach the database
    latency_s: float  #: of the database, by its last heartbeat
    dead: bool

    @property
    def takes_plans(self) -> bool:
        return not (self.dead or self.draining or self.sick)


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
    hosts: Sequence[WorkerHost]
    queue: Sequence[FleetPlan]  #: which no host has in hand
    permits: Permits
    limits: Sequence[AccountLimit]  #: of use, which all hosts wait for
    repositories: Sequence[str]

    def get_host(self, name: str) -> WorkerHost:
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts)
        hint = f"there are: {known}" if known else "no worker has registered; start one: runplan worker"
        raise NotFound(f"{name}: no such host; {hint}")


def explain_queueing(queue: str, hosts: Sequence[WorkerHost]) -> str:
    labels = [] if queue == ANY else queue.split("+")
    taking = [host for host in hosts if host.takes_plans]
    fitting = [host for host in taking if set(labels) <= set(host.labels)]
    if not taking:
        return "no host takes plans; start one: runplan worker"
    if not fitting:
        return f"no host has the labels {', '.join(labels)}; start one: runplan worker --labels {','.join(labels)}"
    if all(len(host.plans) >= host.slots for host in fitting):
        return f"every slot of {counted(len(fitting), 'host')} is in use"
    return "a host takes it now"


def name_queue(labels: Collection[str]) -> str:
    return "+".join(sorted(labels)) or ANY


def list_queues(labels: Collection[str]) -> list[str]:
    named = sorted(set(labels))
    return [name_queue(chosen) for count in range(len(named) + 1) for chosen in combinations(named, count)]
