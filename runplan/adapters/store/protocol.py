"""The store of a repository: what is recorded about its runs, claims, commands and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from runplan.adapters.store.location import FleetLocation, Location
from runplan.adapters.store.outputs import StoredOutputs
from runplan.adapters.store.sqlite import JOURNAL, SqliteStore
from runplan.domain.errors import RefusedEarly
from runplan.domain.run import rows

if TYPE_CHECKING:  # `status` does without it
    from runplan.domain.run.recorded import E, Recorded


def open_store(location: Location, *, writable: bool = True, missing_ok: bool = False) -> Store:
    """Open the store; a writer creates an absent one on this machine. With `missing_ok` it reads as empty."""
    if isinstance(location, FleetLocation):
        store: Store = load_postgres().PostgresStore(location)
        return store
    return SqliteStore(location, writable=writable, missing_ok=missing_ok)


def load_postgres() -> Any:
    """The module for the database of a fleet, which needs the extra `fleet`."""
    try:
        return import_module("runplan.adapters.store.postgres")
    except ModuleNotFoundError as error:
        why = f"fleet.dsn is set, and a fleet needs the module {error.name}"
        raise RefusedEarly(f"{why}; install it: pip install 'runplan[fleet]'") from None


def store_exists(location: Location) -> bool:
    return isinstance(location, FleetLocation) or (location / JOURNAL).exists()


def list_store_files(location: Location) -> list[Path]:
    """The files that change with the store; they need not exist."""
    return [] if isinstance(location, FleetLocation) else [location / JOURNAL, location / f"{JOURNAL}-wal"]


class Store(Protocol):
    """Events are only appended. Each method that writes does so whole or not at all. Use a store in one thread."""

    @property
    def outputs(self) -> StoredOutputs | None:
        """The outputs of dispatches on all hosts; None where all of them run on this one."""

    def require_there(self) -> None:
        """Fail while the store is not where it was opened, as when the repository is unplugged."""

    def close(self) -> None: ...

    # --- runs and events -------------------------------------------------------------------------------

    def append(
        self, events: Sequence[tuple[str, str, str]], row: rows.RunRow, *, fence: int, pauses: str, waits: bool
    ) -> None:
        """Record (at, type, body) events of a run and its row, now or (`waits`) with the next write.

        Fails when the plan was taken over. The claims of a run that has ended are dropped with it. `pauses` is the
        reason why the plan's schedule pauses.
        """

    def flush(self) -> None:
        """Write the events that wait."""

    def list_events(self, run: str, *, after: int = 0) -> list[rows.EventRow]: ...
    def list_facts(self, kind: type[E], *, plan: str = "", since: str = "") -> list[Recorded[E]]:
        """The events of one kind over all runs, of a plan or from a moment on; oldest first."""

    def list_shared_facts(self, kind: type[E], *, since: str) -> list[Recorded[E]]:
        """The events of one kind from a moment on, in all repositories of a fleet."""

    def get_newest_event(self) -> int:
        """The number of the newest event; 0 for none."""

    def get_newest_landing(self) -> str:
        """When a phase or a pull request has landed last; "" for never."""

    def list_runs(self, plan: str | None = None, *, limit: int = 50) -> list[rows.RunRow]:
        """The newest runs first."""

    def get_run(self, run: str) -> rows.RunRow | None: ...
    def get_newest_run(self, plan: str) -> rows.RunRow | None: ...
    def get_interrupted_run(self, plan: str) -> rows.RunRow | None:
        """The newest run of the plan, if it has not ended."""

    def get_run_of_command(self, command: int) -> str:
        """The run that a command began; "" for none."""

    def list_unfinished_runs(self) -> list[rows.RunRow]: ...
    def list_sign_offs(self) -> list[tuple[str, str]]:
        """(plan, phase) of the runs that wait for a person's approval or sign-off."""

    def list_plans(self) -> list[str]:
        """Every plan that was ever run."""

    def list_active_plans(self, *, queued: bool = False) -> list[str]:
        """The plans with an unfinished run, a schedule or (`queued`) a queued command."""

    def list_failures(self, plan: str) -> tuple[rows.FailureRow, ...]:
        """The newest failure of each phase that has not landed since, unless a person ended the attempt."""

    def count_leases(self, plan: str, branch: str) -> int:
        """The number of attempts of the plan that worked on the branch."""

    def read_plan_facts(self, plan: str = "") -> dict[str, rows.PlanFacts]:
        """The facts about one plan, or about all, by plan."""

    def compute_figures(self, now: float) -> rows.Figures: ...
    def sum_usage(self, since: str) -> list[rows.UsageTotal]:
        """What agents that ended since a moment have used, by day, plan, agent and role, in this order."""

    # --- claims ----------------------------------------------------------------------------------------

    def claim_plan(self, plan: str, *, run: str, owner: str) -> rows.ClaimResult:
        """Claim the plan for the owner; the claim of a dead one is taken over with a higher fence."""

    def claim_issue(self, number: int, *, run: str, owner: str) -> rows.RunRow | None:
        """Claim an issue for the run; another unfinished run that has it."""

    def release_plan(self, plan: str, *, run: str, owner: str) -> None:
        """Release the plan if this owner holds it for this run; the run's issues stay claimed until it ends."""

    def get_claim(self, kind: str, key: str) -> rows.ClaimRow | None: ...
    def list_owners(self) -> dict[str, str]:
        """The owner of each claimed plan."""

    def get_owner_state(self, owner: str) -> rows.OwnerState: ...
    def list_host_labels(self) -> list[tuple[str, ...]]:
        """The labels of each living worker that takes plans; none without a fleet."""

    def get_living_owner(self, plan: str) -> str:
        """The owner of the plan, if it lives; "" for none."""

    # --- commands --------------------------------------------------------------------------------------

    def add_command(self, command: rows.Command) -> int:
        """Queue a command; its number."""

    def list_queued_commands(self) -> list[rows.Command]:
        """The commands without an answer, oldest first."""

    def answer_command(self, seq: int, answer: rows.Answer) -> None:
        """Record the answer once; it is kept for callers that ask late."""

    def get_answer(self, seq: int) -> rows.Answer | None:
        """None while the command is queued."""

    # --- schedules and waits ---------------------------------------------------------------------------

    def list_schedules(self) -> list[rows.ScheduleRow]: ...
    def get_schedule(self, plan: str) -> rows.ScheduleRow | None: ...
    def put_schedule(self, row: rows.ScheduleRow) -> None:
        """Make or replace the schedule of a plan; its next slot is recorded by `arm_schedule`."""

    def arm_schedule(self, plan: str, following: str) -> None:
        """Record the next slot of a schedule, for `status` and `next`."""

    def drop_schedule(self, plan: str) -> bool:
        """Remove the schedule; False when there is none."""

    def pause_schedule(self, plan: str, why: str | None) -> bool:
        """Pause the schedule with a reason, or resume it (None); False when there is none."""

    def answer_slot(self, firing: rows.FiringRow) -> bool:
        """Record the answer to a slot once; False if it has one. An answer from the future is replaced."""

    def is_slot_answered(self, plan: str, slot: str, *, before: str) -> bool:
        """Whether the slot has an answer; one from the future, by a wrong clock, does not count."""

    def list_firings(self, plan: str, *, limit: int = 20) -> list[rows.FiringRow]:
        """The newest first."""

    def list_waits(self) -> list[rows.WaitRow]: ...
    def put_wait(self, row: rows.WaitRow) -> None: ...
    def drop_wait(self, plan: str) -> None: ...

    # --- notices, baselines, outlines --------------------------------------------------------------------

    def record_notice(self, run: str, about: str) -> bool:
        """Record that a person is notified; False when that was recorded before."""

    def get_baseline(self, key: str) -> str | None: ...
    def put_baseline(self, key: str, results: str) -> None: ...
    def put_outlines(self, outlines: Sequence[tuple[str, str, str]]) -> None:
        """Keep (plan, stamp, outline) for the next reader."""
