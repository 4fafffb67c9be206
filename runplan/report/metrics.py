"""What can be measured of runs and the daemon, in the text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

GAUGE, COUNTER = "gauge", "counter"


class Sample(Struct, frozen=True):
    """One number with its name and what it is of."""

    name: str
    kind: str  #: gauge, counter
    help: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Used(Struct, frozen=True, kw_only=True):
    """What dispatches that ended alike have used together."""

    role: str
    agent: str  #: "" for the project's own commands
    ending: str
    count: int
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


class Figures(Struct, frozen=True, kw_only=True):
    """What is known of one repository."""

    repository: str
    runs: Mapping[tuple[str, str], int]  #: by plan and state
    landed: Mapping[str, int]  #: phases by plan
    failed: Mapping[tuple[str, str], int]  #: phases by plan and reason
    used: tuple[Used, ...] = ()
    waiting: Mapping[tuple[str, str], float]  #: seconds by plan and what is waited for
    schedules: Mapping[str, bool]  #: by plan, whether it is paused
    firings: Mapping[tuple[str, str], int]  #: slots by plan and what came of them


class Process(Struct, frozen=True, kw_only=True):
    """What is known of the daemon itself."""

    version: str
    uptime_s: float
    rss_bytes: int
    cpu_s: float
    threads: int
    repositories: int
    working: int = 0  #: runs at work
    queued: int = 0  #: runs that wait for their turn


def samples(figures: Iterable[Figures], process: Process | None = None) -> list[Sample]:
    """Everything, of all repositories and of the daemon if there is one."""
    found = [sample for one in figures for sample in _of_repository(one)]
    return found + (list(_of_process(process)) if process else [])


def render(samples: Iterable[Sample]) -> str:
    """The text: each name once with its help and kind, everything in an order that does not change."""
    lines: list[str] = []
    last = ""
    for sample in sorted(samples, key=lambda one: (one.name, one.labels)):
        if sample.name != last:
            last = sample.name
            lines.append(f"# HELP {sample.name} {_escaped(sample.help)}")
            lines.append(f"# TYPE {sample.name} {sample.kind}")
        labels = ",".join(f'{name}="{_quoted(value)}"' for name, value in sample.labels)
        lines.append(f"{sample.name}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    # A file name need not be text; what is none of it becomes a mark, since the format is UTF-8.
    plain = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return _escaped(plain).replace('"', '\\"')


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if abs(value) == float("inf"):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


# --- the list -----------------------------------------------------------------------------------------


def _of_repository(one: Figures) -> Iterator[Sample]:
    where = ("repository", one.repository)
    for (plan, state), count in one.runs.items():
        yield _gauge("runs", "Runs by the state they are in", count, where, ("plan", plan), ("state", state))
    for plan, count in one.landed.items():
        yield _counter("phases_landed_total", "Phases that have landed", count, where, ("plan", plan))
    for (plan, reason), count in one.failed.items():
        labels = (where, ("plan", plan), ("reason", reason))
        yield _counter("phases_failed_total", "Attempts at phases that have failed", count, *labels)
    for used in one.used:
        yield from _of_used(where, used)
    for (plan, what), seconds in one.waiting.items():
        labels = (where, ("plan", plan), ("for", what))
        yield _gauge("waiting_seconds", "How long runs that wait have been waiting", seconds, *labels)
    for plan, paused in one.schedules.items():
        labels = (where, ("plan", plan), ("state", "paused" if paused else "active"))
        yield _gauge("schedules", "Schedules by the state they are in", 1, *labels)
    for (plan, answer), count in one.firings.items():
        labels = (where, ("plan", plan), ("answer", answer))
        yield _counter("schedule_slots_total", "Slots of schedules by what came of them", count, *labels)


def _of_used(where: tuple[str, str], used: Used) -> Iterator[Sample]:
    who = (where, ("role", used.role), ("agent", used.agent))
    ending = ("ending", used.ending)
    yield _counter("dispatches_total", "Agents and commands that have ended", used.count, *who, ending)
    yield _counter("dispatch_seconds_total", "Time that they ran", used.seconds, *who, ending)
    if not used.agent:
        return
    for kind, tokens in (("input", used.input_tokens), ("output", used.output_tokens), ("cached", used.cached_tokens)):
        told = "Tokens that agents have used; cached ones are part of the input"
        yield _counter("tokens_total", told, tokens, *who, ending, ("kind", kind))
    yield _counter("usd_total", "Dollars that agents say they have used", used.usd, *who, ending)


def _of_process(process: Process) -> Iterator[Sample]:
    yield _gauge("daemon_info", "The daemon that answers", 1, ("version", process.version))
    yield _gauge("daemon_uptime_seconds", "How long it has been running", process.uptime_s)
    yield _gauge("daemon_resident_memory_bytes", "Memory that it holds", process.rss_bytes)
    yield _counter("daemon_cpu_seconds_total", "Processor time that it has used", process.cpu_s)
    yield _gauge("daemon_threads", "Threads that it has", process.threads)
    yield _gauge("daemon_repositories", "Repositories that it looks after", process.repositories)
    yield _gauge("daemon_runs_working", "Runs that have their turn", process.working)
    yield _gauge("daemon_runs_queued", "Runs that wait for their turn", process.queued)


def _gauge(name: str, help: str, value: float, *labels: tuple[str, str]) -> Sample:
    return Sample(f"runplan_{name}", GAUGE, help, labels, value)


def _counter(name: str, help: str, value: float, *labels: tuple[str, str]) -> Sample:
    return Sample(f"runplan_{name}", COUNTER, help, labels, value)
