"""Colours and width of the terminal, warnings and JSON. Cheap to import."""

from __future__ import annotations

import sys

from runplan.text import escaped, plain

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    from typing import TextIO

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Style:
    """Colours and width of an output stream; a pipe gets neither."""

    def __init__(self, *, colour: bool = False, width: int = 0) -> None:
        self._colour = colour
        self.width = width  #: 0 for unlimited

    @staticmethod
    def of(stream: TextIO) -> Style:
        if not stream.isatty():
            return Style()
        from os import get_terminal_size

        from runplan.settings.load import environment

        env = environment()
        columns = env.get("COLUMNS", "")
        try:
            width = int(columns) if columns.isdecimal() else get_terminal_size(stream.fileno()).columns
        except OSError:
            width = 0
        return Style(colour=not env.get("NO_COLOR") and env.get("TERM") != "dumb", width=width)

    def paint(self, text: str, names: str) -> str:
        """The text in colours such as `cyan bold`."""
        codes = ";".join(CODES[name] for name in names.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if self._colour and text and codes else text

    def wrap(self, text: str, indent: str) -> str:
        """The line, broken at the width; its further lines start with the indent."""
        if not self.width or len(text) <= self.width:
            return text
        import textwrap

        broken = textwrap.wrap(
            text, self.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        return "\n".join(broken)


def warn(text: str) -> None:
    """Print a warning of a reading verb."""
    print(f"runplan: warning: {plain(text)}", file=sys.stderr)


def as_json(value: object, indent: int | None = 2) -> str:
    import json

    from msgspec import to_builtins

    return escaped(json.dumps(to_builtins(value), ensure_ascii=False, indent=indent))
