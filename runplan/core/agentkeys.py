"""The table of what an [agents.<name>] table may hold."""

from __future__ import annotations

from runplan.core import values
from runplan.core.key import Key
from runplan.core.values import Shape

SANDBOXES = ("auto", "bwrap", "none")

AGENT_KEYS: tuple[Key, ...] = (
    Key(section="agents.*", name="kind", default="", why="which built-in kind it is"),
    Key(section="agents.*", name="argv", shape=Shape.LIST, default=(), why="the program and its arguments"),
    Key(
        section="agents.*",
        name="script",
        default="",
        rule=values.not_empty,
        why="the file a script agent plays",
    ),
    Key(
        section="agents.*",
        name="env",
        shape=Shape.LIST,
        default=(),
        rule=values.all_passed_on,
        why="names of further environment variables it is given",
    ),
    Key(section="agents.*", name="model", default="", rule=values.not_empty, why="the model it is asked to use"),
    Key(section="agents.*", name="args", shape=Shape.LIST, default=(), why="further arguments for its program"),
    Key(
        section="agents.*",
        name="context",
        shape=Shape.COUNT,
        default=0,
        rule=values.not_negative,
        why="tokens its context has room for; 0: as it tells, or by the model's name",
    ),
    Key(
        section="agents.*",
        name="usd_per_mtok_in",
        shape=Shape.MONEY,
        default=0.0,
        rule=values.not_negative,
        why="dollars per million tokens sent, where it tells none; 0: unknown",
    ),
    Key(
        section="agents.*",
        name="usd_per_mtok_out",
        shape=Shape.MONEY,
        default=0.0,
        rule=values.not_negative,
        why="dollars per million tokens received, where it tells none; 0: unknown",
    ),
    Key(
        section="agents.*",
        name="private",
        shape=Shape.FLAG,
        default=False,
        why="a configuration of its own for each dispatch; unset: when there is a key and no configuration of yours",
    ),
    Key(
        section="agents.*",
        name="sandbox",
        default="auto",
        choices=SANDBOXES,
        why="whether this agent runs under bubblewrap; unset: agents.sandbox",
    ),
)
