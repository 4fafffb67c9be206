"""What agents have used so far, from the journal, and what the next one may use."""

from __future__ import annotations

import json
from datetime import UTC
from typing import TYPE_CHECKING

from runplan.core.budgets import Budget, Cost, Left, UsedUp, left
from runplan.core.times import iso, zone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.app.world import World
    from runplan.core.rows import EventRow


def allowance(world: World, *, phase: str) -> Left | UsedUp:
    """What a dispatch for this phase may use; the journal is asked only for scopes that have a limit."""
    limits = world.settings.limits
    budgets = {
        "dispatch": Budget(tokens=limits.tokens, usd=limits.usd, seconds=limits.wall_s),
        "phase": Budget(tokens=limits.phase_tokens, usd=limits.phase_usd, seconds=limits.phase_wall_s),
        "plan": Budget(tokens=limits.plan_tokens, usd=limits.plan_usd, seconds=limits.plan_wall_s),
        "day": Budget(tokens=limits.day_tokens, usd=limits.day_usd, seconds=limits.day_wall_s),
    }
    spent: dict[str, Cost] = {}
    if budgets["phase"] != Budget() or budgets["plan"] != Budget():
        rows = world.store.facts(world.plan, "DispatchEnded")
        spent["plan"] = _cost(rows)
        spent["phase"] = _cost(row for row in rows if json.loads(row.body).get("phase") == phase)
    if budgets["day"] != Budget():
        spent["day"] = _cost(world.store.since("DispatchEnded", _midnight(world)))
    return left(budgets, spent)


def _cost(rows: Iterable[EventRow]) -> Cost:
    total = Cost()
    for row in rows:
        body = json.loads(row.body)
        if body.get("agent"):
            tokens = body.get("input_tokens", 0) + body.get("output_tokens", 0)
            total = total.plus(Cost(tokens=tokens, usd=body.get("usd", 0.0), seconds=body.get("seconds", 0.0)))
    return total


def _midnight(world: World) -> str:
    """When the day began in run.timezone."""
    today = world.clock.now().astimezone(zone(world.settings.run.timezone))
    return iso(today.replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC))
