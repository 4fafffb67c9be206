"""Fires schedules: each slot is answered once, by a run or by a recorded reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import convert
from msgspec.structs import replace

from runplan import names
from runplan.engine import issues
from runplan.errors import RunplanError
from runplan.run.decide import describe_rejection, pending_answer, rejected_phase
from runplan.run.events import RunStarted
from runplan.run.requests import Answer, RunRequest
from runplan.run.rows import FiringRow, ScheduleRow
from runplan.settings.schedule import Slot, parse_schedule, what_is_due
from runplan.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from runplan.engine.worker import RepositoryWorker
    from runplan.store.protocol import Store

IN_FLIGHT = "the plan is in flight"


def fire_schedule(row: ScheduleRow, worker: RepositoryWorker, now: datetime) -> list[FiringRow]:
    """Answer every due slot: the newest by a run, unless the plan is running; the others were missed."""

    def newest() -> tuple[str, str]:
        if row.paused:
            return "skipped", row.paused
        if row.plan in worker.runs:
            return "skipped", pending_answer(worker.newest(row.plan), row.plan) or IN_FLIGHT
        try:
            return _firing_answer(_begin_run(row, worker, now))
        except RunplanError as error:
            if not row.plan.startswith(names.WATCH):
                raise
            return "skipped", str(error)  # the forge, the remote or the settings; tried again at the next slot

    return _answer_slots(row, worker.repository.store, now, newest)


def fire_early(row: ScheduleRow, worker: RepositoryWorker, now: datetime) -> Answer | None:
    """Fire on request, and count intervals from now; this also answers a due slot."""
    store = worker.repository.store
    if row.paused and (phase := rejected_phase(worker.newest(row.plan))):
        answer: Answer | None = Answer(declined=True, why=describe_rejection(phase, row.plan))
    else:
        answer = _begin_run(row, worker, now)
    if answer is None:
        return None
    _answer_slots(row, store, now, lambda: _firing_answer(answer))
    if not answer.declined:
        row = store.get_schedule(row.plan) or row
        store.put_schedule(replace(row, anchor=iso(now)) if parse_schedule(row.spec).seconds else row)
    return answer


def give_up(row: ScheduleRow, store: Store, now: datetime, why: str) -> None:
    """Record the slots that are due, before the schedule is changed or cancelled."""
    _answer_slots(row, store, now, lambda: ("skipped", why))


def _answer_slots(
    row: ScheduleRow, store: Store, now: datetime, newest: Callable[[], tuple[str, str]]
) -> list[FiringRow]:
    """Record the answers to all due slots; `newest` gives the answer to the newest."""
    due = what_is_due(row, now)
    recorded: list[FiringRow] = []

    def answer(slot: Slot, what: str, why: str) -> None:
        firing = FiringRow(plan=row.plan, slot=_slot_key(slot), at=iso(now), answer=what, why=why)
        if store.answer_slot(firing):
            recorded.append(firing)

    if due.missed is not None:
        answer(due.missed, "missed", "it was not fired in time, nor those before it")
    if due.fire is not None and not store.is_slot_answered(row.plan, _slot_key(due.fire), before=iso(now)):
        answer(due.fire, *newest())
    return recorded


def _begin_run(row: ScheduleRow, worker: RepositoryWorker, now: datetime) -> Answer | None:
    request = request_of(row)
    if row.plan.startswith(names.WATCH):
        return issues.begin_next(row.plan, request.started, worker, now)
    return worker.begin(request)


def _firing_answer(answer: Answer | None) -> tuple[str, str]:
    if answer is None or not answer.declined:
        return ("fired", answer.run) if answer and answer.fresh else ("skipped", IN_FLIGHT)
    if not answer.owner:
        return "skipped", answer.why
    return "skipped", f"another process owns the plan ({answer.owner})"


def request_of(row: ScheduleRow) -> RunRequest:
    """The run that the schedule begins, with the options it was made with."""
    return RunRequest(started=convert(json.loads(row.request), RunStarted), fired=True)


def _slot_key(slot: Slot) -> str:
    return json.dumps([iso(slot.at), slot.key])
