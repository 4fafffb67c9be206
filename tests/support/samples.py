"""Streams of real agents, and what is made of them: the reading of the lines and the judgement of the end."""

import json
import tomllib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.endings import AgentEnding, judge_ending
from runplan.adapters.supervise.output import EventCollector
from runplan.domain.run.dispatch import AgentEvent, Ending, Outcome

SAMPLES = Path(__file__).parent.parent / "samples"
FOLDERS = sorted(path.name for path in SAMPLES.iterdir())

#: In each folder: what is expected of the agent, and of every stream there.
EXPECTED = "expected.toml"

#: When the samples were made.
THEN = datetime(2026, 11, 15, 1, 5, tzinfo=UTC).timestamp()


@cache
def expected(cli: str) -> dict[str, Any]:
    """The expectations of the folder for its agent."""
    return tomllib.loads((SAMPLES / cli / EXPECTED).read_text(encoding="utf-8"))


def expected_of(stream: str) -> dict[str, Any]:
    """The expectations of the folder for one stream."""
    cli, _, name = stream.partition("/")
    found: dict[str, Any] = expected(cli)["samples"][name.partition(".")[0]]
    return found


def streams(cli: str = "*") -> list[str]:
    """Every captured stream, as `<cli>/<file>`."""
    return sorted(
        path.relative_to(SAMPLES).as_posix()
        for path in SAMPLES.glob(f"{cli}/*")
        if path.is_file() and path.name != EXPECTED and not path.name.endswith(".meta.json")
    )


def meta(stream: str) -> dict[str, Any]:
    """How the stream came about."""
    found: dict[str, Any] = json.loads((SAMPLES / stream).with_suffix(".meta.json").read_text(encoding="utf-8"))
    return found


def lines(stream: str) -> list[bytes]:
    """Its lines; one object that was printed over many lines is one."""
    data = (SAMPLES / stream).read_bytes()
    return [json.dumps(json.loads(data)).encode()] if stream.endswith(".json") else data.splitlines()


def files(stream: str) -> Path:
    """The directory with what its program left in files; it need not be there."""
    return (SAMPLES / stream).with_suffix(".files")


def outcome(stream: str) -> Outcome:
    """The outcome that a shim would record."""
    recorded, cli = meta(stream), stream.partition("/")[0]
    rest = agent_of(cli).read_reports(files(stream))
    return outcome_of(cli, lines(stream), code=recorded["rc"], error=recorded["stderr_tail"], rest=rest)


def outcome_of(
    cli: str,
    output: list[bytes],
    *,
    code: int | None = 0,
    error: str = "",
    rest: tuple[AgentEvent, ...] = (),
    ending: Ending = Ending.EXITED,
    at: float = THEN,
) -> Outcome:
    events = EventCollector(agent_of(cli).read_line)
    for line in output:
        events.read_line(line)
    events.add(rest)
    return Outcome(
        ending=ending, code=code, signal=None, message=events.message, tally=events.tally, error=error, ended_at=at
    )


def ending(cli: str, found: Outcome, *, writes: bool = True) -> AgentEnding:
    return judge_ending(found, agent_of(cli), writes=writes)
