"""The methods of a store in SQL that both SQLite and PostgreSQL understand.

Events are only appended. The events of a run, its row (what `status` reads) and the fence of its claim change in one
transaction, so they agree after a crash.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from runplan.adapters.store import tables
from runplan.domain.decoding import parse_json, to_json
from runplan.domain.errors import Fenced
from runplan.domain.run import rows as r
from runplan.domain.run.kinds import FOR_ANSWER, Reason
from runplan.domain.times import parse_iso

if TYPE_CHECKING:  # `status` does without it
    from runplan.adapters.store.outputs import StoredOutputs
    from runplan.domain.run.recorded import E, Recorded


WAITS = "waits ORDER BY plan"
_TYPES = "events WHERE type IN "
SCHEDULES = "schedules ORDER BY plan"
COMMANDS = "SELECT seq, plan, verb, arguments, by, at FROM commands WHERE answer IS NULL ORDER BY seq"
LONGEST_S = 5.0  #: between two looks of a client at what is recorded
KEPT = 200  #: answered commands that are kept for callers that ask late
R = TypeVar("R", bound=Struct)
Rows: TypeAlias = list[tuple[Any, ...]]


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchall(self) -> Rows: ...


class Append(Struct, frozen=True):
    events: Sequence[tuple[str, str, str]]  #: (at, type, body) of a run
    row: r.RunRow  #: after them
    fence: int
    pauses: str = ""  #: why the plan's schedule pauses


class Store(ABC):
    """One open connection, for use in one thread. Each method that writes does so whole or not at all."""

    BEGIN = "BEGIN"

    def __init__(self) -> None:
        self._waiting: list[Append] = []

    # --- what differs between databases ------------------------------------------------------------------

    @property
    def outputs(self) -> StoredOutputs | None:
        """The outputs of dispatches on all hosts; None where all of them run on this one."""
        return None

    @abstractmethod
    def run_statement(self, sql: str, values: Sequence[object]) -> Cursor:
        """Execute one statement, whose values are marked by `?`."""

    def fetch_rows(self, sql: str, values: Sequence[object]) -> Rows:
        return self.run_statement(sql, values).fetchall()

    @abstractmethod
    def translated_errors(self) -> AbstractContextManager[None]:
        """Errors of the database become those of `runplan.domain.errors`."""

    @abstractmethod
    def commit(self) -> None: ...
    @abstractmethod
    def roll_back(self) -> None: ...
    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def get_owner_state(self, owner: str) -> r.OwnerState: ...
    def lock_claim(self, kind: str, key: str) -> None:  # noqa: B027 - a transaction of SQLite is the only one
        """Let no other transaction change this claim until the end of this one."""

    def require_there(self) -> None:  # noqa: B027 - a server answers, or the transaction fails
        """Fail while the store is not where it was opened, as when the repository is unplugged."""

    def announce_command(self, plan: str) -> None:  # noqa: B027 - a caller wakes the daemon itself
        """Have a worker execute the new command of the plan; inside its transaction."""

    def await_change(self, *, every_s: float, within_s: float = LONGEST_S) -> None:
        """Wait until something may have been recorded: so long, or (a server) until it says so."""
        time.sleep(min(every_s, within_s))

    def list_host_labels(self) -> list[tuple[str, ...]]:
        """The labels of each living worker that takes plans; none without a fleet."""
        return []

    def list_shared_facts(self, kind: type[E], *, since: str) -> list[Recorded[E]]:
        """The events of one kind from a moment on, in all repositories of a fleet."""
        return self.list_facts(kind, since=since)

    # --- statements --------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, *appends: Append) -> Iterator[None]:
        """All or nothing; waiting events are written first. Fails when the journal was moved away."""
        with self.translated_errors():
            self.execute(self.BEGIN)
            waiting = self._waiting
            self._waiting = []
            try:
                self._append_all([*waiting, *appends])
                yield
                self.require_there()
                self.commit()
            except BaseException as error:
                self.roll_back()
                if not isinstance(error, Fenced):  # else another process records the run now
                    self._waiting = waiting
                raise

    def flush(self) -> None:
        if self._waiting:
            with self.transaction():
                pass

    def query(self, sql: str, *values: object) -> Rows:
        self.flush()
        return self._read_now(sql, *values)

    def _read_now(self, sql: str, *values: object) -> Rows:
        """The rows on disk; events that wait are not written for it."""
        with self.translated_errors():
            return self.fetch_rows(sql, values)

    def select_rows(self, kind: type[R], table_and_where: str, *values: object) -> list[R]:
        """The rows of a table whose columns are the fields of `kind`."""
        self.flush()
        return self._select_now(kind, table_and_where, *values)

    def _select_now(self, kind: type[R], table_and_where: str, *values: object) -> list[R]:
        rows = self._read_now(_select(kind, table_and_where), *values)
        return [kind(**dict(zip(kind.__struct_fields__, row, strict=True))) for row in rows]

    def execute(self, sql: str, *values: object) -> None:
        """Execute one statement inside a transaction, before its next read or its end."""
        self.run_statement(sql, values)

    def execute_alone(self, sql: str, *values: object) -> None:
        """Execute one statement outside of a transaction; events that wait are not written for it."""
        with self.translated_errors():
            self.run_statement(sql, values)

    def _change(self, query: str, *values: object) -> bool:
        """Execute one statement; whether it changed a row."""
        with self.transaction():
            return self.run_statement(query, values).rowcount > 0

    # --- runs and events -------------------------------------------------------------------------------

    def append(self, append: Append, *, waits: bool = False) -> None:
        """Record events of a run and its row, now or (`waits`) with the next write.

        Fails when the plan was taken over. The claims of a run that has ended are dropped with it.
        """
        if waits:
            self._waiting.append(append)
            return
        with self.transaction(append):
            pass

    def _append_all(self, appends: Sequence[Append]) -> None:
        """The claims are read last, so that a server gets all of it in one message."""
        fences = {append.row.plan: append.fence for append in appends}
        for plan in fences:
            self.lock_claim("plan", plan)
        for append in appends:
            for moment, kind, body in append.events:
                insert = "INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,?)"
                self.execute(insert, append.row.id, append.row.plan, moment, kind, body)
            if append.pauses:
                self.execute("UPDATE schedules SET paused=? WHERE plan=?", append.pauses, append.row.plan)
        rows = {append.row.id: append.row for append in appends}
        for row in rows.values():
            self.execute(*_upsert("runs", "id", id=row.id, row=to_json(row)))
        for plan, fence in fences.items():
            claim = self.get_claim("plan", plan)
            if claim is None or claim.fence != fence:
                raise Fenced(f"another process has taken over {plan}; this one stops")
        for row in rows.values():
            if row.outcome is not None:
                self.execute("DELETE FROM claims WHERE run=?", row.id)

    def list_events(self, run: str, *, after: int = 0) -> list[r.EventRow]:
        return self.select_rows(r.EventRow, "events WHERE run=? AND seq>? ORDER BY seq", run, after)

    def list_facts(
        self, *kinds: type[E], plan: str = "", since: str = "", naming: Sequence[str] = ()
    ) -> list[Recorded[E]]:
        """The events of these kinds over all runs, of a plan or from a moment on; oldest first.

        Of those, the events whose text has one of some hashes, if there are any.
        """
        names = [kind.__name__ for kind in kinds]
        for name in names:
            self._flush_kind(name)
        where, value = ("plan=?", plan) if plan else ("at>=?", since)
        marks = ",".join("?" for _ in names)
        named = f" AND ({' OR '.join('body LIKE ?' for _ in naming)})" if naming else ""
        texts = (f"%{text}%" for text in naming)
        return self._read_facts(f"{_TYPES}({marks}){named} AND {where} ORDER BY seq", *names, *texts, value)

    def _read_facts(self, table_and_where: str, *values: str) -> list[Recorded[E]]:
        from runplan.domain.run.recorded import read_row  # 14 ms, and `status` reads no event

        rows = self._select_now(r.EventRow, table_and_where, *values)
        return [record for row in rows if (record := read_row(row))]  # type: ignore[misc]

    def _flush_kind(self, kind: str) -> None:
        if any(kind == name for append in self._waiting for _, name, _ in append.events):
            self.flush()

    def _select_runs(self, where: str, *values: object) -> list[r.RunRow]:
        rows = self.query(f"SELECT row FROM runs WHERE {where}", *values)
        return [parse_json(row, r.RunRow) for (row,) in rows]

    def list_runs(self, plan: str | None = None, *, limit: int = 50) -> list[r.RunRow]:
        """The newest runs first."""
        where, values = ("plan=?", [plan]) if plan is not None else ("number > 0", [])
        return self._select_runs(f"{where} ORDER BY number DESC LIMIT ?", *values, limit)

    def get_run(self, run: str) -> r.RunRow | None:
        return next(iter(self._select_runs("id=?", run)), None)

    def get_newest_run(self, plan: str) -> r.RunRow | None:
        return next(iter(self.list_runs(plan, limit=1)), None)

    def list_plans(self) -> list[str]:
        return [plan for (plan,) in self.query("SELECT DISTINCT plan FROM runs ORDER BY plan")]

    def list_active_plans(self, *, queued: bool = False) -> list[str]:
        """The plans with an unfinished run, a schedule or (`queued`) a queued command; and works on the queue."""
        query = f"SELECT plan FROM runs WHERE {tables.IS_ACTIVE} UNION SELECT plan FROM schedules"
        query += " UNION SELECT plan FROM waits WHERE kind='queue'"
        query += " UNION SELECT plan FROM commands WHERE answer IS NULL" if queued else ""
        return [plan for (plan,) in self.query(query)]

    def get_interrupted_run(self, plan: str) -> r.RunRow | None:
        """The newest run of the plan, if it has not ended."""
        row = self.get_newest_run(plan)
        return row if row is not None and row.is_active else None

    def list_unfinished_runs(self) -> list[r.RunRow]:
        return self._select_runs(f"{tables.IS_ACTIVE} ORDER BY number")

    def list_waiting(self) -> list[tuple[str, str, str]]:
        """The plan, phase and kind of wait of each run that waits for a person's answer."""
        query = "SELECT plan, phase, waiting_for FROM runs WHERE state='waiting' AND waiting_for IN (?, ?, ?)"
        return [(plan, phase or "", kind) for plan, phase, kind in self._read_now(query, *FOR_ANSWER)]

    def list_failures(self, plan: str) -> tuple[r.FailureRow, ...]:
        """The newest failure of each phase that has not landed since, unless a person ended the attempt."""
        newest = {phase: why for phase, *why in reversed(self.query(tables.FAILURES, plan))}
        return tuple(r.FailureRow(phase, *why) for phase, why in newest.items() if phase and why[0] != Reason.STOPPED)

    def count_leases(self, plan: str, branch: str) -> int:
        """The number of attempts of the plan that worked on the branch."""
        self._flush_kind("Leased")
        query = "SELECT count(*) FROM events WHERE plan=? AND type='Leased' AND json_extract(body, '$.branch')=?"
        return int(self._read_now(query, plan, branch)[0][0])

    def get_run_of_command(self, command: int) -> str:
        """The run that a command began; "" for none."""
        begun = "type='RunStarted' AND CAST(json_extract(body, '$.command') AS TEXT)=?"
        rows = self.query(f"SELECT run FROM events WHERE {begun} LIMIT 1", str(command))
        return next((str(run) for (run,) in rows), "")

    def get_newest_event(self) -> int:
        """The number of the newest event; 0 for none."""
        return int(self.query("SELECT coalesce(max(seq), 0) FROM events")[0][0])

    def get_newest_landing(self) -> str:
        """When a phase or a pull request has landed last; "" for never."""
        newest = "SELECT coalesce(max(at), '') FROM events WHERE type=?"  # for both PostgreSQL would read every event
        return max(str(self.query(newest, kind)[0][0]) for kind in ("Landed", "Concluded"))

    def compute_figures(self, now: float) -> r.Figures:
        figures = {name: {tuple(key): value for *key, value in self.query(sql)} for name, sql in tables.FIGURES.items()}
        waits: dict[tuple[str, ...], float] = {
            (plan, kind): max(0.0, now - parse_iso(since).timestamp()) for plan, kind, since in self.query(tables.WAITS)
        }
        totals = tuple(r.DispatchTotal(*row) for row in self.query(tables.DISPATCH_TOTALS))
        return r.Figures(**figures, waiting_s=waits, dispatches=totals)

    def sum_usage(self, since: str) -> list[r.UsageTotal]:
        """What agents that ended since a moment have used, by day, plan, agent and role, in this order."""
        return [r.UsageTotal(*row[:-2], *map(bool, row[-2:])) for row in self.query(tables.USAGE_TOTALS, since)]

    def read_plan_facts(self, plan: str = "") -> dict[str, r.PlanFacts]:
        """The facts about one plan, or about all, by plan."""
        refused = (row for row in self.query(tables.REFUSED, plan) if row[-1])
        sources: dict[str, Iterable[tuple[str, object]]] = {
            "run": ((row.plan, row) for row in self._select_runs(f"number IN ({tables.NEWEST})", plan)),
            "owner": self.list_owners().items(),
            "schedule": ((row.plan, row) for row in self.list_schedules()),
            "queued": self.query(tables.QUEUED),
            "refused": ((of, (moment, verb, error)) for of, moment, verb, error in refused),
            "wait": ((row.plan, row) for row in self.list_waits()),
            "outline": ((plan, (stamp, value)) for plan, stamp, value in self.query(tables.OUTLINES, plan)),
        }
        facts_by_plan: dict[str, r.PlanFacts] = {}
        for name, values in sources.items():
            for of, value in values:
                facts_by_plan[of] = replace(facts_by_plan.get(of, r.PlanFacts()), **{name: value})
        return facts_by_plan

    # --- claims ----------------------------------------------------------------------------------------

    def claim_plan(self, plan: str, *, run: str, owner: str) -> r.ClaimResult:
        """Claim the plan for the run and its owner; the claim of a dead one is taken over with a higher fence."""
        with self.transaction():
            self.lock_claim("plan", plan)
            claim = self.get_claim("plan", plan)
            if claim is not None and claim.owner == owner:
                if claim.run != run:  # of a start that failed
                    self.execute("UPDATE claims SET run=? WHERE kind='plan' AND key=?", run, plan)
                return r.Reentered(fence=claim.fence)
            if claim is not None and self.get_owner_state(claim.owner) is not r.OwnerState.GONE:
                return r.HeldByOther(owner=claim.owner)
            fence = self.set_claim("plan", plan, run=run, owner=owner)
        return r.Acquired(fence=fence, took_over=claim.owner if claim else "")

    def claim_issue(self, number: int, *, run: str, owner: str) -> r.RunRow | None:
        """Claim an issue for the run; another unfinished run that has it."""
        with self.transaction():
            self.lock_claim("issue", str(number))
            claim = self.get_claim("issue", str(number))
            if claim is not None and claim.run == run:
                return None
            other = self.get_run(claim.run) if claim is not None else None
            if other is not None and other.is_active:
                return other
            self.set_claim("issue", str(number), run=run, owner=owner)
        return None

    def get_claim(self, kind: str, key: str) -> r.ClaimRow | None:
        return next(iter(self._select_now(r.ClaimRow, "claims WHERE kind=? AND key=?", kind, key)), None)

    def set_claim(self, kind: str, key: str, *, run: str, owner: str) -> int:
        """Write the claim with a higher fence than any before; inside a transaction."""
        ((fence,),) = self.fetch_rows(tables.RAISE_FENCE, (kind, key))
        self.execute(*_upsert("claims", "kind, key", kind=kind, key=key, run=run, owner=owner, fence=fence))
        return int(fence)

    def release_plan(self, plan: str, *, run: str, owner: str) -> None:
        """Release the plan if this owner holds it for this run; the run's issues stay claimed until it ends."""
        self._change("DELETE FROM claims WHERE kind='plan' AND key=? AND run=? AND owner=?", plan, run, owner)

    def list_owners(self) -> dict[str, str]:
        return dict(self._read_now("SELECT key, owner FROM claims WHERE kind='plan' ORDER BY key"))

    def get_living_owner(self, plan: str) -> str:
        """The owner of the plan, if it lives; "" for none."""
        owner = self.list_owners().get(plan, "")
        return owner if owner and self.get_owner_state(owner) is not r.OwnerState.GONE else ""

    def record_notice(self, run: str, about: str) -> bool:
        """Record that a person is notified; False when that was recorded before."""
        return self._change("INSERT INTO notices (run, about) VALUES (?,?) ON CONFLICT DO NOTHING", run, about)

    def list_notices(self, run: str) -> set[str]:
        return {about for (about,) in self._read_now("SELECT about FROM notices WHERE run=?", run)}

    # --- commands --------------------------------------------------------------------------------------

    def add_command(self, command: r.Command, *, work: r.WaitRow | None = None) -> int:
        """Queue a command, and record the work on the queue that asks for it; its number."""
        values = (command.plan, command.verb, json.dumps(command.arguments), command.by, command.at)
        with self.transaction():
            if work is not None:
                self.execute(*_upsert("waits", "plan", **asdict(work)))
            insert = "INSERT INTO commands (plan, verb, arguments, by, at) VALUES (?,?,?,?,?) RETURNING seq"
            ((number,),) = self.fetch_rows(insert, values)
            self.execute("DELETE FROM commands WHERE answer IS NOT NULL AND seq <= ?", number - KEPT)
            self.announce_command(command.plan)
        return int(number)

    def list_queued_commands(self) -> list[r.Command]:
        """The commands without an answer, oldest first; one that another client wrote wrongly has no verb."""
        commands = []
        for seq, plan, verb, arguments, by, moment in self.query(COMMANDS):
            command = r.Command(seq=seq, plan=plan, verb="", arguments={}, by=by, at=moment)
            with suppress(ValueError):
                command = replace(command, verb=verb, arguments=parse_json(arguments, dict[str, Any]))
            commands.append(command)
        return commands

    def answer_command(self, seq: int, answer: r.Answer) -> None:
        """Record the answer once; it is kept for callers that ask late."""
        self._change("UPDATE commands SET answer=? WHERE seq=? AND answer IS NULL", to_json(answer), seq)

    def get_answer(self, seq: int) -> r.Answer | None:
        """None while the command is queued."""
        answers = self.query("SELECT answer FROM commands WHERE seq=? AND answer IS NOT NULL", seq)
        return parse_json(answers[0][0], r.Answer) if answers else None

    # --- schedules and waits ---------------------------------------------------------------------------

    def list_schedules(self) -> list[r.ScheduleRow]:
        return self.select_rows(r.ScheduleRow, SCHEDULES)

    def get_schedule(self, plan: str) -> r.ScheduleRow | None:
        return next(iter(self.select_rows(r.ScheduleRow, "schedules WHERE plan=?", plan)), None)

    def put_schedule(self, row: r.ScheduleRow) -> None:
        """Make or replace the schedule of a plan; its next slot is recorded by `arm_schedule`."""
        self._change(*_upsert("schedules", "plan", **asdict(replace(row, next=None))))

    def arm_schedule(self, plan: str, following: str) -> None:
        """Record the next slot of a schedule, for `status` and `next`."""
        self._change("UPDATE schedules SET next=? WHERE plan=?", following, plan)

    def drop_schedule(self, plan: str) -> bool:
        """Remove the schedule; False when there is none."""
        return self._change("DELETE FROM schedules WHERE plan=?", plan)

    def pause_schedule(self, plan: str, why: str | None) -> bool:
        """Pause the schedule with a reason, or resume it (None); False when there is none."""
        return self._change("UPDATE schedules SET paused=? WHERE plan=?", why, plan)

    def answer_slot(self, firing: r.FiringRow) -> bool:
        """Record the answer to a slot once; False if it has one. An answer from the future is replaced."""
        with self.transaction():
            fresh = self.run_statement(tables.ANSWER_SLOT, astuple(firing)).rowcount
            self.execute("UPDATE schedules SET last=?, next=NULL WHERE plan=?", firing.slot, firing.plan)
        return fresh > 0

    def is_slot_answered(self, plan: str, slot: str, *, before: str) -> bool:
        """Whether the slot has an answer; one from the future, by a wrong clock, does not count."""
        return bool(self.query("SELECT 1 FROM firings WHERE plan=? AND slot=? AND at<=?", plan, slot, before))

    def list_firings(self, plan: str, *, limit: int = 20) -> list[r.FiringRow]:
        """The newest first."""
        return self.select_rows(r.FiringRow, "firings WHERE plan=? ORDER BY seq DESC LIMIT ?", plan, limit)

    def list_waits(self) -> list[r.WaitRow]:
        return self.select_rows(r.WaitRow, WAITS)

    def put_wait(self, row: r.WaitRow) -> None:
        self._change(*_upsert("waits", "plan", **asdict(row)))

    def drop_wait(self, plan: str) -> None:
        self._change("DELETE FROM waits WHERE plan=?", plan)

    def list_places(self) -> dict[str, int]:
        """Where persons have put plans in the queue; 0 for a pinned one."""
        return dict(self.query("SELECT plan, place FROM places"))

    def put_places(self, places: Mapping[str, int]) -> None:
        with self.transaction():
            self.execute("DELETE FROM places")
            for plan, place in places.items():
                self.execute("INSERT INTO places (plan, place) VALUES (?,?)", plan, place)

    # --- baselines -------------------------------------------------------------------------------------

    def get_baseline(self, key: str) -> str | None:
        rows = self._read_now("SELECT results FROM baselines WHERE key=?", key)
        return str(rows[0][0]) if rows else None

    def put_baseline(self, key: str, results: str) -> None:
        self._change(*_upsert("baselines", "key", key=key, results=results))

    def put_outlines(self, outlines: Sequence[tuple[str, str, str]]) -> None:
        """Keep (plan, stamp, outline) for the next reader."""
        with self.transaction():
            for plan, stamp, value in outlines:
                self.execute(*_upsert("outlines", "plan", plan=plan, stamp=stamp, value=value))


def _select(kind: type[Struct], table_and_where: str) -> str:
    return f"SELECT {', '.join(kind.__struct_fields__)} FROM {table_and_where}"


FACTS = _select(r.EventRow, _TYPES)  #: begins a query of facts, whose last value is the plan or a moment
#: What a host looks at in each turn.
AGENDA = (_select(r.WaitRow, WAITS), _select(r.ScheduleRow, SCHEDULES), COMMANDS)


def _upsert(table: str, key: str, /, **values: object) -> tuple[str, *tuple[object, ...]]:
    """The statement that inserts a row, or replaces the one with the same key, and its values."""
    marks = ",".join("?" for _ in values)
    changes = ", ".join(f"{name}=excluded.{name}" for name in values)
    insert = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
    return f"{insert} ON CONFLICT ({key}) DO UPDATE SET {changes}", *values.values()
