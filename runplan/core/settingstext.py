"""Settings as TOML text for people: every key with one line why, set or commented out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.core.keys import KEYS, SECTIONS, USER_SECTIONS, Key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.core.facts import Facts

_COLUMN = 34  # where the reasons begin

_EXAMPLE = """\
# Any command can be an agent; name it above.
# [agents.local]
# kind = "command"
# argv = ["python3", "tools/agent.py"]
"""

_DEFAULTS_HEAD = """\
# Every setting of runplan with its default. Copy what you want to change into runplan.toml.
"""

_USER_HEAD = """\
# In your user file only; in a repository's file they are an error.
"""

_INIT_HEAD = """\
# Settings of runplan for this repository, written by `runplan init`.
# What is commented out shows the default. `runplan config` prints every value and where it comes from.
"""

_NO_AGENT = """\
# None of the known agents ({known}) was found on PATH.
# Install one, or let any command be the agent: see [agents.local] below.
"""


def toml(value: object) -> str:
    """One value as TOML writes it (a JSON string is a TOML basic string)."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def defaults_text() -> str:
    """The text of config/runplan.toml."""
    own = {key.path: key.default for key in KEYS if key.section not in USER_SECTIONS}
    return "\n".join((_document(_DEFAULTS_HEAD, own, notes={}), _USER_HEAD, *map(_user_section, USER_SECTIONS)))


def init_text(facts: Facts) -> str:
    """The runplan.toml that fits what was found; what was not found is left commented out."""
    found: dict[str, object] = {}
    if facts.default_branch:
        found["run.target"] = facts.default_branch
    if facts.remotes and "origin" not in facts.remotes:
        found["run.remote"] = facts.remotes[0]
    if facts.tests.command:
        found["tests.command"] = facts.tests.command
    cast = casting(facts.installed)
    notes = {} if facts.installed else {"agents": _NO_AGENT.format(known=", ".join(facts.known))}
    return _document(_INIT_HEAD, found | cast, notes=notes)


def casting(installed: tuple[str, ...]) -> dict[str, object]:
    """Who plays which role; the verifier is somebody else than the implementer where there is a choice."""
    if not installed:
        return {}
    first, second = installed[0], installed[min(1, len(installed) - 1)]
    return {"agents.implementer": first, "agents.verifier": second, "agents.planner": first}


def _document(head: str, values: Mapping[str, object], *, notes: Mapping[str, str]) -> str:
    parts = [head]
    for section in SECTIONS:
        if section in USER_SECTIONS:
            continue
        lines = "".join(_line(key, values) for key in KEYS if key.section == section)
        example = _EXAMPLE if section == "agents" else ""
        parts.append(f"[{section}]\n{notes.get(section, '')}{lines}{example and chr(10) + example}")
    return "\n".join(parts)


def _user_section(section: str) -> str:
    return f"# [{section}]\n" + "".join(_line(key, {}) for key in KEYS if key.section == section)


def _line(key: Key, values: Mapping[str, object]) -> str:
    set_here = key.path in values
    written = f"{key.name} = {toml(values[key.path] if set_here else key.default)}"
    return f"{'' if set_here else '# '}{written:<{_COLUMN if set_here else _COLUMN - 2}}  # {key.why}\n"
