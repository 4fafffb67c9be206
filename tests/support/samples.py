"""Streams of real agents, and what is made of them: the reading of the lines and the judgement of the end."""

from __future__ import annotations

import importlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runplan.adapters.shim_output import Harvest
from runplan.core.dispatch import Ending, Outcome
from runplan.core.endings import AgentEnding, Profile, judge

SAMPLES = Path(__file__).parent.parent / "samples"

#: When the samples were made.
THEN = datetime(2026, 11, 15, 1, 5, tzinfo=UTC).timestamp()


def streams(cli: str = "*") -> list[str]:
    """Every captured stream, as `<cli>/<file>`."""
    return sorted(
        path.relative_to(SAMPLES).as_posix()
        for path in SAMPLES.glob(f"{cli}/*")
        if not path.name.endswith((".meta.json", ".trajectory.json"))
    )


def meta(stream: str) -> dict[str, Any]:
    """How the stream came about."""
    found: dict[str, Any] = json.loads((SAMPLES / stream).with_suffix(".meta.json").read_text(encoding="utf-8"))
    return found


def lines(stream: str) -> list[bytes]:
    """Its lines; one object that was printed over many lines is one."""
    data = (SAMPLES / stream).read_bytes()
    return [json.dumps(json.loads(data)).encode()] if stream.endswith(".json") else data.splitlines()


def outcome(stream: str) -> Outcome:
    """What a shim would have made of it."""
    told = meta(stream)
    trajectory = (SAMPLES / stream).with_suffix(".trajectory.json")
    more = trajectory.read_bytes() if trajectory.exists() else b""
    return outcome_of(stream.partition("/")[0], lines(stream), code=told["rc"], error=told["stderr_tail"], more=more)


def outcome_of(
    cli: str,
    told: list[bytes],
    *,
    code: int | None = 0,
    error: str = "",
    more: bytes = b"",
    ending: Ending = Ending.EXITED,
    at: float = THEN,
) -> Outcome:
    module = importlib.import_module(f"runplan.adapters.agents.{cli}")
    harvest = Harvest(module.read)
    for line in told:
        harvest.take(line)
    if more:
        harvest.take_events(module.read_trajectory(more))
    return Outcome(
        ending=ending,
        code=code,
        signal=None,
        message=harvest.message,
        events=harvest.events,
        tally=harvest.tally,
        error=error,
        ended_at=at,
    )


def profile(cli: str, *, writes: bool = True) -> Profile:
    module = importlib.import_module(f"runplan.adapters.agents.{cli}")
    return Profile(closes=module.CLOSES, answers=True, writes=writes, codes=getattr(module, "CODES", ()), zone=UTC)


def ending(cli: str, found: Outcome, *, writes: bool = True) -> AgentEnding:
    return judge(found, profile(cli, writes=writes))
