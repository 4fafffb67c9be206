"""A store in memory: the second implementation of the protocol, for its contract."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from runplan.adapters.store.sql import KEPT
from runplan.domain.errors import Fenced
from runplan.domain.run import events as e
from runplan.domain.run.kinds import UNFINISHED
from runplan.domain.run.recorded import E, Recorded, read_row
from runplan.domain.run.rows import (
    Acquired,
    Answer,
    ClaimResult,
    ClaimRow,
    Command,
    DispatchTotal,
    EventRow,
    FailureRow,
    Figures,
    FiringRow,
    HeldByOther,
    OwnerState,
    PlanFacts,
    Reentered,
    RunRow,
    ScheduleRow,
    UsageTotal,
    WaitRow,
)
from runplan.domain.times import parse_iso

Append = tuple[Sequence[tuple[str, str, str]], RunRow, int, str]


class MemoryStore:
    """Everything is lost with the object; `owners` are the living ones."""

    outputs = None

    def __init__(self, owners: Mapping[str, OwnerState]) -> None:
        self._states = owners
        self._events: list[tuple[str, EventRow]] = []  #: with their plan
        self._runs: dict[str, RunRow] = {}
        self._claims: dict[tuple[str, str], ClaimRow] = {}
        self._fences: Counter[tuple[str, str]] = Counter()
        self._commands: dict[int, tuple[Command, Answer | None]] = {}
        self._numbered = 0
        self._schedules: dict[str, ScheduleRow] = {}
        self._firings: dict[tuple[str, str], FiringRow] = {}
        self._waits: dict[str, WaitRow] = {}
        self._notices: set[tuple[str, str]] = set()
        self._baselines: dict[str, str] = {}
        self._outlines: dict[str, tuple[str, str]] = {}
        self._waiting: list[Append] = []

    def require_there(self) -> None: ...
    def close(self) -> None: ...

    # --- runs and events -------------------------------------------------------------------------------

    def append(
        self, events: Sequence[tuple[str, str, str]], row: RunRow, *, fence: int, pauses: str = "", waits: bool = False
    ) -> None:
        self._waiting.append((events, row, fence, pauses))
        if not waits:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, row, fence, _ in waiting:
            claim = self.get_claim("plan", row.plan)
            if claim is None or claim.fence != fence:
                raise Fenced(f"another process has taken over {row.plan}; this one stops")
        for events, row, _, pauses in waiting:
            for at, kind, body in events:
                seq = len(self._events) + 1
                self._events.append((row.plan, EventRow(seq=seq, run=row.id, at=at, type=kind, body=body)))
            self._runs[row.id] = row
            if row.outcome is not None:
                self._claims = {key: claim for key, claim in self._claims.items() if claim.run != row.id}
            if pauses:
                self.pause_schedule(row.plan, pauses)

    def list_events(self, run: str, *, after: int = 0) -> list[EventRow]:
        self.flush()
        return [row for _, row in self._events if row.run == run and row.seq > after]

    def list_facts(self, kind: type[E], *, plan: str = "", since: str = "") -> list[Recorded[E]]:
        records = (record for of, record in self._facts(kind) if plan in ("", of))
        return [record for record in records if plan or record.at >= since]

    def list_shared_facts(self, kind: type[E], *, since: str) -> list[Recorded[E]]:
        return self.list_facts(kind, since=since)

    def _facts(self, kind: type[E]) -> list[tuple[str, Recorded[E]]]:
        self.flush()
        rows = [(plan, row) for plan, row in self._events if row.type == kind.__name__]
        return [(plan, record) for plan, row in rows if (record := read_row(row))]  # type: ignore[misc]

    def get_newest_event(self) -> int:
        self.flush()
        return len(self._events)

    def get_newest_landing(self) -> str:
        self.flush()
        return max((row.at for _, row in self._events if row.type in ("Landed", "Concluded")), default="")

    def list_runs(self, plan: str | None = None, *, limit: int = 50) -> list[RunRow]:
        self.flush()
        return [row for row in reversed(self._runs.values()) if plan in (None, row.plan)][:limit]

    def get_run(self, run: str) -> RunRow | None:
        self.flush()
        return self._runs.get(run)

    def get_newest_run(self, plan: str) -> RunRow | None:
        return next(iter(self.list_runs(plan)), None)

    def get_interrupted_run(self, plan: str) -> RunRow | None:
        row = self.get_newest_run(plan)
        return row if row is not None and row.is_active else None

    def get_run_of_command(self, command: int) -> str:
        return next((fact.run for fact in self.list_facts(e.RunStarted) if fact.event.command == command), "")

    def list_unfinished_runs(self) -> list[RunRow]:
        self.flush()
        return [row for row in self._runs.values() if row.state in UNFINISHED]

    def list_sign_offs(self) -> list[tuple[str, str]]:
        waiting = [row for row in self.list_unfinished_runs() if row.state == "waiting"]
        return [(row.plan, row.phase or "") for row in waiting if row.waiting_for in ("approval", "sign-off")]

    def list_plans(self) -> list[str]:
        self.flush()
        return sorted({row.plan for row in self._runs.values()})

    def list_active_plans(self, *, queued: bool = False) -> list[str]:
        commands = [command.plan for command in self.list_queued_commands()] if queued else []
        return sorted({*(row.plan for row in self.list_unfinished_runs()), *self._schedules, *commands})

    def list_failures(self, plan: str) -> tuple[FailureRow, ...]:
        landed = {fact.event.phase: fact.seq for fact in self.list_facts(e.Landed, plan=plan)}
        facts = [fact for fact in self.list_facts(e.PhaseFailed, plan=plan) if fact.event.phase]
        newest = {fact.event.phase: fact.event for fact in facts if fact.seq > landed.get(fact.event.phase, 0)}
        rows = (FailureRow(phase, one.reason, one.detail, one.output) for phase, one in newest.items())
        return tuple(row for row in rows if row.reason != "stopped")

    def count_leases(self, plan: str, branch: str) -> int:
        return sum(fact.event.branch == branch for fact in self.list_facts(e.Leased, plan=plan))

    def read_plan_facts(self, plan: str = "") -> dict[str, PlanFacts]:
        facts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        for name in self.list_plans():
            facts[name]["run"] = self.get_newest_run(name)
        for name, owner in self.list_owners().items():
            facts[name]["owner"] = owner
        for schedule in self.list_schedules():
            facts[schedule.plan]["schedule"] = schedule
        for command, answer in self._commands.values():
            if answer is None:
                facts[command.plan]["queued"] = command.verb
            if command.verb in ("start", "now", "resume"):
                refused = (command.at, command.verb, answer.error) if answer and answer.error else ("", "", "")
                facts[command.plan]["refused"] = refused
        for wait in self.list_waits():
            facts[wait.plan]["wait"] = wait
        for name, outline in self._outlines.items():
            facts[name]["outline"] = outline
        return {name: PlanFacts(**known) for name, known in facts.items() if plan in ("", name)}

    def compute_figures(self, now: float) -> Figures:
        undone = {fact.run for fact in self.list_facts(e.RunStarted) if fact.event.mode == "undo"}
        landed = [(plan,) for plan, fact in self._facts(e.Landed) if fact.event.phase and fact.run not in undone]
        waits: dict[tuple[str, ...], float] = {}
        for row in self.list_unfinished_runs():
            if row.waiting_for is not None and row.state != "running":
                waited_s = max(0.0, now - parse_iso(row.since).timestamp())
                waits[row.plan, row.waiting_for] = max(waited_s, waits.get((row.plan, row.waiting_for), 0.0))
        schedules = self.list_schedules()
        return Figures(
            runs=Counter((row.plan, row.state) for row in self._runs.values()),
            landed=Counter(landed),
            failed=Counter((plan, fact.event.reason) for plan, fact in self._facts(e.PhaseFailed)),
            waiting_s=waits,
            schedules={(row.plan, "active" if row.paused is None else "paused"): 1 for row in schedules},
            slots=Counter((firing.plan, firing.answer) for firing in self._firings.values()),
            dispatches=tuple(_totals(fact.event for fact in self.list_facts(e.DispatchEnded))),
        )

    def sum_usage(self, since: str) -> list[UsageTotal]:
        totals: dict[tuple[str, ...], UsageTotal] = {}
        for of, fact in self._facts(e.DispatchEnded):
            event = fact.event
            if not event.agent or fact.at < since:
                continue
            key = (fact.at[:10], of, event.agent, event.role.value)
            before = totals.get(key, UsageTotal(*key, 0, 0, 0.0, False, False))
            tokens = event.input_tokens + event.output_tokens
            totals[key] = UsageTotal(
                *key,
                before.count + 1,
                before.tokens + tokens,
                before.usd + event.usd,
                before.unpriced or bool(tokens and not event.usd),
                before.estimated or event.estimated,
            )
        return [totals[key] for key in sorted(totals)]

    # --- claims ----------------------------------------------------------------------------------------

    def claim_plan(self, plan: str, *, run: str, owner: str) -> ClaimResult:
        claim = self.get_claim("plan", plan)
        if claim is not None and claim.owner == owner:
            return Reentered(fence=claim.fence)
        if claim is not None and self.get_owner_state(claim.owner) is not OwnerState.GONE:
            return HeldByOther(owner=claim.owner)
        fence = self._set_claim("plan", plan, run, owner)
        return Acquired(fence=fence, took_over=claim.owner if claim else "")

    def claim_issue(self, number: int, *, run: str, owner: str) -> RunRow | None:
        claim = self.get_claim("issue", str(number))
        other = self.get_run(claim.run) if claim is not None else None
        if claim is not None and claim.run == run:
            return None
        if other is not None and other.is_active:
            return other
        self._set_claim("issue", str(number), run, owner)
        return None

    def _set_claim(self, kind: str, key: str, run: str, owner: str) -> int:
        self._fences[kind, key] += 1
        self._claims[kind, key] = ClaimRow(run=run, owner=owner, fence=self._fences[kind, key])
        return self._fences[kind, key]

    def release_plan(self, plan: str, *, run: str, owner: str) -> None:
        claim = self.get_claim("plan", plan)
        if claim is not None and (claim.run, claim.owner) == (run, owner):
            del self._claims["plan", plan]

    def get_claim(self, kind: str, key: str) -> ClaimRow | None:
        return self._claims.get((kind, key))

    def list_owners(self) -> dict[str, str]:
        return {key: claim.owner for (kind, key), claim in sorted(self._claims.items()) if kind == "plan"}

    def get_owner_state(self, owner: str) -> OwnerState:
        return self._states.get(owner, OwnerState.GONE)

    def list_host_labels(self) -> list[tuple[str, ...]]:
        return []

    def get_living_owner(self, plan: str) -> str:
        owner = self.list_owners().get(plan, "")
        return owner if self.get_owner_state(owner) is not OwnerState.GONE else ""

    # --- commands --------------------------------------------------------------------------------------

    def add_command(self, command: Command) -> int:
        self._numbered += 1
        self._commands[self._numbered] = (replace(command, seq=self._numbered), None)
        old = [seq for seq, (_, answer) in self._commands.items() if answer and seq <= self._numbered - KEPT]
        for seq in old:
            del self._commands[seq]
        return self._numbered

    def list_queued_commands(self) -> list[Command]:
        return [command for command, answer in self._commands.values() if answer is None]

    def answer_command(self, seq: int, answer: Answer) -> None:
        command, earlier = self._commands[seq]
        self._commands[seq] = (command, earlier or answer)

    def get_answer(self, seq: int) -> Answer | None:
        return self._commands[seq][1] if seq in self._commands else None

    # --- schedules and waits ---------------------------------------------------------------------------

    def list_schedules(self) -> list[ScheduleRow]:
        self.flush()
        return [row for _, row in sorted(self._schedules.items())]

    def get_schedule(self, plan: str) -> ScheduleRow | None:
        self.flush()
        return self._schedules.get(plan)

    def put_schedule(self, row: ScheduleRow) -> None:
        self._schedules[row.plan] = replace(row, next=None)

    def _change_schedule(self, plan: str, **fields: str | None) -> bool:
        if plan in self._schedules:
            self._schedules[plan] = replace(self._schedules[plan], **fields)
        return plan in self._schedules

    def arm_schedule(self, plan: str, following: str) -> None:
        self._change_schedule(plan, next=following)

    def drop_schedule(self, plan: str) -> bool:
        return self._schedules.pop(plan, None) is not None

    def pause_schedule(self, plan: str, why: str | None) -> bool:
        return self._change_schedule(plan, paused=why)

    def answer_slot(self, firing: FiringRow) -> bool:
        key = (firing.plan, firing.slot)
        earlier = self._firings.get(key)
        self._change_schedule(firing.plan, last=firing.slot, next=None)
        if earlier is None or firing.at < earlier.at:
            self._firings[key] = firing
            return True
        return False

    def is_slot_answered(self, plan: str, slot: str, *, before: str) -> bool:
        firing = self._firings.get((plan, slot))
        return firing is not None and firing.at <= before

    def list_firings(self, plan: str, *, limit: int = 20) -> list[FiringRow]:
        return [firing for firing in reversed(self._firings.values()) if firing.plan == plan][:limit]

    def list_waits(self) -> list[WaitRow]:
        return [row for _, row in sorted(self._waits.items())]

    def put_wait(self, row: WaitRow) -> None:
        self._waits[row.plan] = row

    def drop_wait(self, plan: str) -> None:
        self._waits.pop(plan, None)

    # --- notices, baselines, outlines --------------------------------------------------------------------

    def record_notice(self, run: str, about: str) -> bool:
        is_new = (run, about) not in self._notices
        self._notices.add((run, about))
        return is_new

    def get_baseline(self, key: str) -> str | None:
        return self._baselines.get(key)

    def put_baseline(self, key: str, results: str) -> None:
        self._baselines[key] = results

    def put_outlines(self, outlines: Sequence[tuple[str, str, str]]) -> None:
        self._outlines |= {plan: (stamp, outline) for plan, stamp, outline in outlines}


def _totals(endings: Iterable[e.DispatchEnded]) -> Iterable[DispatchTotal]:
    groups: defaultdict[tuple[str, str, str], list[e.DispatchEnded]] = defaultdict(list)
    for ending in endings:
        groups[ending.role, ending.agent, ending.ending].append(ending)
    names = ("seconds", "usd", "input_tokens", "output_tokens", "cached_tokens")
    for key, group in sorted(groups.items()):
        yield DispatchTotal(*key, len(group), *(sum(getattr(one, name) or 0 for one in group) for name in names))
