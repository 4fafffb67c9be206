"""Settings as text: TOML for people, JSON to be kept with a run, and the line an error is about."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import convert, to_builtins

from runplan.settings.config import Settings
from runplan.settings.keys import KEYS, SECTIONS, USER_SECTIONS, Key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.settings.config import Layer
    from runplan.settings.facts import Facts


_ABOUT = re.compile(r"(?:\[(?P<section>[^\]]+)\])? ?(?P<name>[^:\s]*): ")
_HEADER = re.compile(r"\s*+\[([^\[\]]++)\]\s*+(?:#.*)?")
_KEY = re.compile(r"\s*+([^\s=#\[][^=]*+)=")


def located(said: str, layers: Sequence[Layer]) -> str:
    """What was said of one of the layers, `origin: [section] name: …`, with the line in it where that is found."""
    for layer in layers:
        origin = f"{layer.origin}: "
        about = _ABOUT.match(said, len(origin)) if layer.text and said.startswith(origin) else None
        if about is not None and (line := line_of(layer.text, about["section"] or "", about["name"])):
            return f"{layer.origin}:{line}: {said.removeprefix(origin)}"
    return said


def line_of(text: str, section: str, name: str) -> int:
    """The line of a key in its section, or of the section's heading where no key is named; 0 when it is not found."""
    here = ""
    for number, line in enumerate(text.splitlines(), 1):
        if (header := _HEADER.fullmatch(line)) is not None:
            here = _plain(header[1])
            if not name and here == section:
                return number
        elif name and (key := _KEY.match(line)) is not None and _joined(here, key[1]) == _joined(section, name):
            return number
    return 0


def _joined(section: str, name: str) -> str:
    return ".".join(part for part in (section, _plain(name)) if part)


def _plain(dotted: str) -> str:
    """A dotted name without the quotes that TOML allows around its parts."""
    return ".".join(part.strip().strip("\"'") for part in dotted.split("."))


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


def kept(settings: Settings) -> str:
    """The settings as they are kept with a run; without those of the user, which may hold secrets."""
    values = {section: fields for section, fields in to_builtins(settings).items() if section not in USER_SECTIONS}
    return json.dumps(values, separators=(",", ":"))


def file_mark(content: bytes | None) -> str:
    """What tells one version of the repository's settings file from another; "" for none."""
    return "" if content is None else sha256(content).hexdigest()


def restored(text: str, base: Settings) -> Settings:
    """The settings that were kept; `base` has what this version knows and the one that kept them did not."""
    return convert(to_builtins(base) | json.loads(text), Settings)
