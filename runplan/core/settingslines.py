"""Finds the line of a settings file that an error is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.core.config import Layer

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
