"""A tally as JSON has it, for exit.json."""

from __future__ import annotations

from typing import Any

from runplan.core.agentevents import Finished, ToolUsed, Trouble, TroubleKind, Usage
from runplan.core.tally import Tally

_PLAIN = ("session", "model", "version", "context", "window", "estimated", "retries", "waiting", "unread")


def record_of(tally: Tally) -> dict[str, object]:
    """What is written."""
    ended = tally.finished
    return {
        **{name: getattr(tally, name) for name in _PLAIN},
        "usage": usage_record(tally.usage),
        "troubles": [[each.kind.value, each.words, each.resets] for each in tally.troubles],
        "finished": None if ended is None else [ended.ok, ended.words, ended.so_far],
        "denied": [[each.tool, each.path] for each in tally.denied],
    }


def tally_of(record: dict[str, Any]) -> Tally:
    """What is read back."""
    ended = record["finished"]
    return Tally(
        **{name: record[name] for name in _PLAIN},
        usage=usage_of(record["usage"]),
        troubles=tuple(
            Trouble(kind=TroubleKind(kind), words=words, resets=resets) for kind, words, resets in record["troubles"]
        ),
        finished=None if ended is None else Finished(ok=ended[0], words=ended[1], so_far=ended[2]),
        denied=tuple(ToolUsed(tool=tool, path=path, denied=True) for tool, path in record["denied"]),
    )


def usage_record(usage: Usage) -> list[object]:
    return [usage.input_tokens, usage.output_tokens, usage.usd, usage.cached_tokens]


def usage_of(record: list[Any]) -> Usage:
    sent, answered, usd, cached = record
    return Usage(input_tokens=sent, output_tokens=answered, usd=usd, cached_tokens=cached)
