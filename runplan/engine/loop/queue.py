"""Reads the outlines of the plans on the target, and the queue that they are in."""

import json
from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from runplan import __version__
from runplan.adapters.git.command import Git
from runplan.adapters.git.objects import read_plan
from runplan.adapters.store.protocol import Store
from runplan.domain.decoding import convert, decode_json
from runplan.domain.errors import NotAPlan, PlanUnreadable, Unreachable
from runplan.domain.plan.marks import ExecutionKind
from runplan.domain.standing.phases import PlanOutline
from runplan.domain.standing.queue import QueueEntry, order_queue
from runplan.engine.loop.context import RepositoryContext, plans_on_target


def read_outline(
    git: Git, blob: str, path: str, stored: tuple[str, str], new: list[tuple[str, str, str]]
) -> PlanOutline:
    """The outline that was stored for this blob; one that is made here is added to `new`."""
    stamp = f"{__version__} {blob}"
    known, outline = stored
    if known == stamp:
        with suppress(msgspec.DecodeError):  # text that is not valid Unicode
            return decode_json(outline, PlanOutline)
    text = read_plan(git, blob, path)
    if text is None:
        raise Unreachable(f"{path} cannot be read; see: git fsck")
    plan = parse_outline(text, path)
    # Not msgspec.json: a text need not be valid Unicode, and json escapes it.
    new.append((path, stamp, json.dumps(msgspec.to_builtins(plan))))
    return plan


def parse_outline(text: bytes, path: str) -> PlanOutline:
    from runplan.domain.plan import model, tracker  # slow to import, and most plans are known

    try:
        plan = model.parse_plan(text, path=path)
    except PlanUnreadable as error:
        return PlanOutline(error=str(error), is_page=isinstance(error, NotAPlan))
    outline = convert(plan, PlanOutline, from_attributes=True)
    hindrances = [phase.status != "done" and tracker.describe_hindrance(plan, phase) for phase in plan.phases]
    phases = (replace(phase, hindrance=why or "") for phase, why in zip(outline.phases, hindrances, strict=True))
    executions = (phase.execution for phase in plan.phases)
    subplans = (execution.argument for execution in executions if execution.kind == ExecutionKind.PLAN)
    return replace(outline, phases=tuple(phases), subplans=tuple(subplans))


def read_queue(context: RepositoryContext, store: Store) -> Sequence[QueueEntry]:
    facts = store.read_plan_facts()
    blobs = plans_on_target(context)
    stored = {path: facts[path].outline if path in facts else ("", "") for path in blobs}
    outlines = {path: read_outline(context.git, blob, path, stored[path], []) for path, blob in blobs.items()}
    return order_queue(outlines, facts, store.list_places())
