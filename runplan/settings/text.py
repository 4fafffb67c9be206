"""Settings as TOML text: the shipped file of defaults, and the file that `runplan init` writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.settings.schema import KEYS, SECTIONS, USER_SECTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.settings.schema import Key

_COLUMN = 34  # where the reasons begin

_EXAMPLE = """
# Any command can be an agent; name it above.
# [agents.local]
# kind = "command"
# argv = ["python3", "tools/agent.py"]
"""

_DEFAULTS_HEAD = """\
# Every setting of runplan with its default. Copy the lines that you want to change into runplan.toml.
"""

_USER_HEAD = """\
# In your user file only; in a repository's file they are an error.
"""

_INIT_HEAD = """\
# Settings of runplan for this repository, written by `runplan init`.
# Commented lines show the default. `runplan config` prints every value and its origin.
"""


def toml(value: object) -> str:
    """One value as TOML writes it (a JSON string is a TOML basic string)."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def defaults_text() -> str:
    own = {key.path: key.written for key in KEYS if key.section not in USER_SECTIONS}
    user = [f"# [{section}]\n{_lines(section, {})}" for section in USER_SECTIONS]
    return "\n".join((_document(_DEFAULTS_HEAD, own), _USER_HEAD, *user))


def init_text(values: Mapping[str, object], *, agents_note: str = "") -> str:
    """A runplan.toml with these values; all other keys are commented out."""
    return _document(_INIT_HEAD, values, agents_note)


def _document(head: str, values: Mapping[str, object], agents_note: str = "") -> str:
    parts = [head]
    for section in SECTIONS:
        if section not in USER_SECTIONS:
            note, example = (agents_note, _EXAMPLE) if section == "agents" else ("", "")
            parts.append(f"[{section}]\n{note}{_lines(section, values)}{example}")
    return "\n".join(parts)


def _lines(section: str, values: Mapping[str, object]) -> str:
    return "".join(_line(key, values) for key in KEYS if key.section == section)


def _line(key: Key, values: Mapping[str, object]) -> str:
    comment = "" if key.path in values else "# "
    written = f"{comment}{key.name} = {toml(values.get(key.path, key.written))}"
    return f"{written:<{_COLUMN}}  # {key.why}\n"
