"""Faults of a fleet, each with its proof: every phase landed once, no run stuck, and who worked on what at once."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cli import until
from tests.support.fleet import Fleet, Host, Mark, set_lease, skewed_clock

ENDED = ("done", "failed", "stopped")
LEASE_S = 30.0  #: of `lease()` in the database
LONGEST_S = 400.0  #: until the plans of a trial are given up
AWAY_S = 300.0  #: how long a remote is away
NAMES = ("alpha", "beta", "gamma", "delta")


@dataclass
class Outcome:
    """What has become of the phases."""

    name: str
    phases: int = 0
    lost: int = 0
    doubled: int = 0
    stuck: int = 0  #: runs that did not end as done
    dispatches: int = 0  #: implementers that began
    repeated: int = 0  #: of them, second ones of a phase
    fenced: int = 0  #: second live dispatches of a phase after a take-over
    overlaps: int = 0  #: second live dispatches without a take-over
    seconds: float = 0.0
    ended_s: float = 0.0  #: how long agents of a fenced host lived after it woke up

    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.stuck or self.overlaps or self.wrong)


def prove(fleet: Fleet, plans: dict[str, tuple[str, ...]], outcome: Outcome) -> None:
    """Compare remote, journal and marks."""
    landings = fleet.landings()
    for plan, phases in plans.items():
        for phase in phases:
            outcome.phases += 1
            outcome.lost += landings[plan, phase] == 0
            outcome.doubled += landings[plan, phase] > 1
    states = fleet.states()
    outcome.stuck = sum(states.get(plan) != "done" for plan in plans)
    outcome.wrong += [f"{plan} is {states.get(plan)}" for plan in plans if states.get(plan) != "done"]
    marks = [mark for mark in fleet.read_marks("begin") if mark.plan in plans]
    begun = Counter((mark.plan, mark.phase) for mark in marks if mark.role == "implement")
    outcome.dispatches = begun.total()
    outcome.repeated = sum(count - 1 for count in begun.values())
    for overlap in (mark for mark in fleet.read_marks("overlap") if mark.plan in plans):
        is_fenced = _is_taken_over(fleet, overlap)
        outcome.fenced += is_fenced
        outcome.overlaps += not is_fenced
    if not outcome.stuck:
        with suppress(AssertionError):  # a worker ends its job after the run
            until(lambda: not list(_leftovers(fleet)), seconds=10)
        outcome.wrong += _leftovers(fleet)


def _is_taken_over(fleet: Fleet, overlap: Mark) -> bool:
    """Whether the host of the second dispatch took the plan, with a higher fence, after the first one began."""
    older = next(mark for mark in fleet.read_marks("begin") if mark.dispatch == overlap.held_by)
    return any(older.at < at < overlap.at for at in fleet.list_takings(overlap.plan, overlap.host))


def _leftovers(fleet: Fleet) -> Iterator[str]:
    for kind, key, owner in fleet.rows("SELECT kind, key, owner FROM claims"):
        yield f"the claim {kind} {key} of {owner} is left"
    for ref in fleet.remote.git("for-each-ref", "--format=%(refname)").split():
        if ref != "refs/heads/main":
            yield f"{ref} is left at the remote"
    for task, status in fleet.rows("SELECT task_name, status FROM procrastinate_jobs WHERE task_name='runplan.work'"):
        yield f"a job of {task} is left: {status}"


@dataclass
class Trial:
    """Plans that a fleet works on, and a fault that meets the host `alpha` while its agents work."""

    fleet: Fleet
    plans: dict[str, tuple[str, ...]]
    lost: list[Mark] = field(default_factory=list)  #: dispatches of the victim at the fault
    ended_s: float = 0.0  #: how long their agents lived after their host woke up

    @property
    def victim(self) -> Host:
        return self.fleet.hosts["alpha"]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """From when agents of the victim are at work; they go on afterwards."""
        until(self._list_working)
        self.lost = self._list_working()
        yield
        self.fleet.release(self.victim.name)

    def start(self, way: str = "direct") -> None:
        """Start the plans; agents of the victim wait."""
        self.fleet.hold(self.victim.name)
        for plan in self.plans:
            self.fleet.hosts["desk"].run("start", plan, "finish", "auto", way).exits(0)

    def _list_working(self) -> list[Mark]:
        ended = {mark.dispatch for mark in self.fleet.read_marks("end")}
        begun = [mark for mark in self.fleet.read_marks("begin") if mark.host == self.victim.name]
        working = [mark for mark in begun if mark.dispatch not in ended and mark.role == "implement"]
        return [mark for mark in working if mark.plan in self.plans]

    def until_taken_over(self) -> None:
        """Wait until another host works on the phases that the victim had."""
        until(lambda: self._missing_phases() == set(), seconds=LEASE_S + 60)

    def _missing_phases(self) -> set[tuple[str, str]]:
        others = [mark for mark in self.fleet.read_marks("begin") if mark.host != self.victim.name]
        lost = {(mark.plan, mark.phase) for mark in self.lost}
        return lost - {(mark.plan, mark.phase) for mark in others if mark.at > self.lost[0].at}

    def until_agents_end(self) -> None:
        """Wait until the agents of a host that was fenced are gone."""
        began = time.monotonic()
        until(lambda: not any(self.victim.has_dispatch(mark.dispatch) for mark in self.lost), seconds=LEASE_S + 30)
        self.ended_s = time.monotonic() - began


def _do_nothing(trial: Trial) -> None:
    with trial.at_work():
        pass


def _kill_worker(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.stop_worker(signal.SIGKILL)
        trial.until_taken_over()


def _kill_worker_of_service(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.stop_worker(signal.SIGKILL)
        trial.victim.start_worker("--slots", "2")
        until(lambda: trial.fleet.list_takings(trial.lost[0].plan, "alpha")[1:])


def _kill_host(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.kill()


def _reboot_host(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.kill()
    trial.until_taken_over()
    trial.victim.start_worker("--slots", "2")


def _freeze_host(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.freeze()
        trial.until_taken_over()
        trial.victim.thaw()
        trial.until_agents_end()


def _freeze_host_until_agents_are_done(trial: Trial) -> None:
    """When the host wakes up its agents are done, and it is about to land."""
    with trial.at_work():
        trial.victim.freeze()
        trial.until_taken_over()
    trial.victim.thaw()


def _freeze_worker(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.signal_worker(signal.SIGSTOP)
        trial.until_taken_over()
        trial.victim.signal_worker(signal.SIGCONT)
        trial.until_agents_end()


def _stop_worker(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.signal_worker(signal.SIGTERM)


def _restart_database(trial: Trial) -> None:
    with trial.at_work():
        trial.fleet.restart_database()


def _lose_database(trial: Trial) -> None:
    with trial.at_work():
        trial.fleet.restart_database(away_s=1.5 * LEASE_S)


def _move_database(trial: Trial) -> None:
    with trial.at_work():
        trial.fleet.move_database()


def _cut_connections(trial: Trial) -> None:
    with trial.at_work():
        pass
    for _ in range(12):
        for host in trial.fleet.hosts.values():
            host.proxy.cut()
        time.sleep(0.7)  # the moments are arbitrary on purpose


def _delay_connections(trial: Trial) -> None:
    with trial.at_work():
        for host in trial.fleet.hosts.values():
            host.proxy.delay_s = 0.02


def _swallow_database(trial: Trial) -> None:
    """The host reaches the remote, not the database, for longer than the lease. Its agents are done meanwhile."""
    with trial.at_work():
        trial.victim.proxy.swallows = True
        trial.until_taken_over()
    time.sleep(3)  # in which it would land
    trial.victim.proxy.heal()


def _unplug_host(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.unplug()
        trial.until_taken_over()
        trial.victim.plug()
        trial.until_agents_end()


def _fill_disk(trial: Trial) -> None:
    with trial.at_work():
        trial.victim.fill_disk()
    time.sleep(15)  # in which it tries
    trial.victim.make_room()


def _lose_remote(trial: Trial) -> None:
    with trial.at_work():
        trial.fleet.git.stop()
    time.sleep(AWAY_S)
    trial.fleet.git.start()


@dataclass(frozen=True)
class Fault:
    """One fault."""

    name: str
    strike: Callable[[Trial], None]
    skew_s: int = 0  #: of the victim's clock
    is_direct: bool = False  #: whether hosts know both addresses of PostgreSQL
    disk_mb: int = 0  #: of the victim's home


FAULTS = (
    Fault("no fault", _do_nothing),
    Fault("kill -9 of a worker, which stays away", _kill_worker),
    Fault("kill -9 of a worker, started again at once", _kill_worker_of_service),
    Fault("kill -9 of a host, which stays away", _kill_host),
    Fault("kill -9 of a host, back after the take-over", _reboot_host),
    Fault("SIGSTOP of a host for longer than the lease", _freeze_host),
    Fault("the same, and its agents are done when it wakes up", _freeze_host_until_agents_are_done),
    Fault("SIGSTOP of a worker alone for longer than the lease", _freeze_worker),
    Fault("SIGTERM of a worker", _stop_worker),
    Fault("PostgreSQL crashes and restarts", _restart_database),
    Fault("PostgreSQL away for longer than the lease", _lose_database),
    Fault("the same data at another address", _move_database, is_direct=True),
    Fault("connections cut 12 times", _cut_connections),
    Fault("connections delayed by 20 ms each way", _delay_connections),
    Fault("a host does not reach PostgreSQL for longer than the lease", _swallow_database),
    Fault("a host is unplugged for longer than the lease", _unplug_host),
    Fault("the clock of a host is a minute ahead", _do_nothing, skew_s=60),
    Fault("the clock of a host is a minute behind", _do_nothing, skew_s=-60),
    Fault("full disk on a host", _fill_disk, disk_mb=64),
    Fault("the remote is away", _lose_remote),
)


def try_fault(place: Path, fault: Fault, *, way: str = "direct") -> Outcome:
    """Work on four plans of three phases with two workers; the fault meets the first."""
    plans = make_plans(4, 3)
    outcome = Outcome(fault.name)
    try:
        with running(place, plans, fault=fault) as fleet:
            fleet.set_pace(1.0)
            trial = Trial(fleet, plans)
            _work(trial, outcome, lambda: fault.strike(trial), way=way)
    except AssertionError as error:
        outcome.wrong.append(str(error))
    return outcome


def make_plans(count: int, phases: int) -> dict[str, tuple[str, ...]]:
    return {f"P{number}": tuple(map(str, range(1, phases + 1))) for number in range(1, count + 1)}


def _work(trial: Trial, outcome: Outcome, strike: Callable[[], None], *, way: str = "direct") -> None:
    """Start the plans, do something meanwhile, and wait for the end."""
    fleet = trial.fleet
    began = time.monotonic()
    trial.start(way)
    try:
        strike()
        until(lambda: is_ended(fleet, list(trial.plans)), seconds=LONGEST_S)
    except AssertionError as error:
        outcome.wrong.append(str(error))
    outcome.seconds = time.monotonic() - began
    outcome.ended_s = trial.ended_s
    prove(fleet, trial.plans, outcome)


def is_ended(fleet: Fleet, plans: Sequence[str]) -> bool:
    states = fleet.states()
    return all(states.get(plan) in ENDED for plan in plans)


@contextmanager
def running(
    place: Path,
    plans: dict[str, tuple[str, ...]],
    *,
    workers: int = 2,
    slots: int = 2,
    lease_s: float = LEASE_S,
    fault: Fault | None = None,
) -> Iterator[Fleet]:
    """A fleet whose workers wait for plans."""
    fault = fault or FAULTS[0]
    with Fleet(place) as fleet:
        desk = fleet.add_desk(plans)
        ran = desk.run("fleet", "init")
        assert ran.code == 0, f"{ran.err} {desk.proxy.errors}"
        fleet.watch_claims()
        set_lease(fleet.location.dsn, lease_s)
        for name in NAMES[:workers]:
            is_victim = name == NAMES[0]
            host = fleet.add_host(
                name,
                dsn=fleet.both_addresses if fault.is_direct else "",
                disk_mb=fault.disk_mb if is_victim else 0,
                **(skewed_clock(place / "clock", fault.skew_s) if fault.skew_s and is_victim else {}),
            )
            host.start_worker("--slots", str(slots))
        until(lambda: fleet.rows("SELECT count(*) FROM workers") == [(workers,)])
        yield fleet


def try_load(place: Path, *, workers: int, plans: int = 20, phases: int = 5) -> Outcome:
    """Many plans on one remote."""
    named = make_plans(plans, phases)
    outcome = Outcome(f"{workers} workers, {plans} plans of {phases} phases")
    with running(place, named, workers=workers) as fleet:
        trial = Trial(fleet, named)
        _work(trial, outcome, lambda: _do_nothing(trial))
    return outcome
