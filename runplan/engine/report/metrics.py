"""Prometheus metrics of the journals and the daemon, in its text format."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from runplan.adapters.store.location import Location
from runplan.adapters.store.protocol import Store, open_store, store_exists
from runplan.domain.errors import RunplanError
from runplan.domain.fleet import FleetState

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})  #: in the value of a label
#: Metrics of a journal by their figure: name, help and labels.
_METRICS = {
    "runs": ("runs", "Runs by state", ("plan", "state")),
    "takeovers": ("takeovers_total", "Runs that were taken over from a dead process", ("plan",)),
    "landed": ("phases_landed_total", "Landed phases", ("plan",)),
    "failed": ("phases_failed_total", "Failed attempts at phases", ("plan", "reason")),
    "waiting_s": ("waiting_seconds", "Waiting time of waiting runs", ("plan", "for")),
    "schedules": ("schedules", "Schedules by state", ("plan", "state")),
    "slots": ("schedule_slots_total", "Slots of schedules by answer", ("plan", "answer")),
}


class Sample(Struct, frozen=True):
    """One value; a name that ends in `_total` is a counter, all others are gauges."""

    name: str
    help: str
    labels: tuple[tuple[str, str], ...]
    value: float


def collect_samples(store: Store, *, repository: str, now: datetime) -> Iterator[Sample]:
    where = ("repository", repository)
    figures = store.compute_figures(now.timestamp())
    for figure, (name, help_, labels) in _METRICS.items():
        for values, value in getattr(figures, figure).items():
            yield Sample(f"runplan_{name}", help_, (where, *zip(labels, values, strict=True)), value)
    for total in figures.dispatches:
        who = (where, ("role", total.role), ("agent", total.agent), ("ending", total.ending))
        yield Sample("runplan_dispatches_total", "Ended agents and commands", who, total.count)
        yield Sample("runplan_dispatch_seconds_total", "Total run time", who, total.seconds)
        if total.agent:
            yield Sample("runplan_usd_total", "Cost that agents report", who, total.usd)
            tokens = {"input": total.input_tokens, "output": total.output_tokens, "cached": total.cached_tokens}
            for kind, value in tokens.items():
                help_ = "Tokens that agents report; cached ones are part of the input"
                yield Sample("runplan_tokens_total", help_, (*who, ("kind", kind)), value)


def read_journals(journals: Mapping[str, Location], *, now: datetime) -> list[Sample]:
    all_samples: list[Sample] = []
    for root, journal in journals.items():
        # One that was moved away, is damaged or of a newer version: `status` there says which.
        with contextlib.suppress(RunplanError, OSError):
            if store_exists(journal):
                with contextlib.closing(open_store(journal, writable=False)) as store:
                    all_samples += collect_samples(store, repository=root, now=now)
    return all_samples


def this_process(*, version: str, uptime_s: float, repositories: int, working: int, queued: int) -> list[Sample]:
    import psutil  # slow to import

    about = (
        ("uptime_seconds", "Time since the start", uptime_s),
        ("resident_memory_bytes", "Resident memory", psutil.Process().memory_info().rss),
        ("cpu_seconds_total", "Processor time", time.process_time()),
        ("threads", "Thread count", threading.active_count()),
        ("repositories", "Known repositories", repositories),
        ("runs_working", "Running runs", working),
        ("runs_queued", "Queued runs", queued),
    )
    info = Sample("runplan_daemon_info", "The daemon that answers", (("version", version),), 1)
    return [info, *(Sample(f"runplan_daemon_{name}", help_, (), value) for name, help_, value in about)]


def collect_fleet_samples(state: FleetState) -> Iterator[Sample]:
    for host in state.hosts:
        about = (("host", host.name),)
        yield Sample("runplan_fleet_host_up", "1 for a host that takes plans", about, host.takes_plans)
        sick = bool(host.sick and not host.dead)
        yield Sample("runplan_fleet_host_sick", "1 for a host that fails its own check", about, sick)
        yield Sample("runplan_fleet_disk_free_bytes", "Free bytes on the disk of a host", about, host.free)
        yield Sample("runplan_fleet_heartbeat_age_seconds", "Time since the last heartbeat", about, host.seen_s)
        help_ = "Heartbeats of the running worker that did not reach the database"
        yield Sample("runplan_fleet_heartbeats_failed_total", help_, about, host.failures)
        yield Sample("runplan_fleet_database_seconds", "Time of its last heartbeat's statement", about, host.latency_s)
        yield Sample("runplan_fleet_slots", "Plans that a host works on at the same time", about, host.slots)
        yield Sample("runplan_fleet_plans", "Plans that a host has in hand", about, len(host.plans))
    ages = [queued.age_s for queued in state.queue]
    yield Sample("runplan_fleet_queue_length", "Plans that no host has in hand", (), len(ages))
    yield Sample("runplan_fleet_queue_age_seconds", "Waiting time of the oldest of them", (), max(ages, default=0.0))


def render_samples(samples: Iterable[Sample]) -> str:
    lines: list[str] = []
    last = ""
    for sample in sorted(samples, key=lambda sample: (sample.name, sample.labels)):
        if sample.name != last:
            last = sample.name
            kind = "counter" if sample.name.endswith("_total") else "gauge"
            lines += [f"# HELP {sample.name} {sample.help}", f"# TYPE {sample.name} {kind}"]
        # The format is UTF-8; other bytes of a file name become U+FFFD.
        encoded = ((name, text.encode("utf-8", "surrogateescape")) for name, text in sample.labels)
        texts = {name: text.decode("utf-8", "replace") for name, text in encoded}
        labels = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in texts.items())
        value = sample.value
        number = int(value) if abs(value) < 2**53 and value == int(value) else value
        lines.append(f"{sample.name}{f'{{{labels}}}' if labels else ''} {number!r}")
    return "".join(f"{line}\n" for line in lines)
