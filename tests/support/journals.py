"""Journals as runs would have left them, without working any."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from runplan.run.rows import RunRow
from runplan.times import iso

if TYPE_CHECKING:
    from runplan.store.sqlite import Store

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(
    store: Store,
    run: str,
    plan: str,
    *events: tuple[str, dict[str, Any]],
    now: datetime = NOW,
    owner: str = "me",
    **row: Any,
) -> None:
    """A run with these events, one a minute, the last a minute ago."""
    with store.transaction():
        fence = store.set_claim("plan", plan, run=run, owner=owner, at=iso(now))
    shown = RunRow(
        **{
            "id": run,
            "plan": plan,
            "started": iso(now),
            "state": "running",
            "phase": "1",
            "step": "implement",
            "since": iso(now),
            "attempt": 1,
            "outcome": None,
            "reason": None,
            "waiting_for": None,
            "landing": "cherry-pick",
            **row,
        }
    )
    told = [
        (iso(now - timedelta(minutes=len(events) - number)), kind, json.dumps(body))
        for number, (kind, body) in enumerate(events)
    ]
    store.append(told, shown, fence=fence)
