"""Colours and width of the terminal, messages and warnings. Cheap to import."""

import os
import re
import sys
import textwrap
from typing import TextIO

from runplan.domain.text import plain

CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "reverse": "7"}
#: A command in a message, with the words before it: `Report: runplan report plans/X.md`.
_COMMAND = r"(?:\w+ )?\w+: (?:runplan|git|cd|kill) .+?(?=[;,.)]?$|[;,.)] )"


class Style:
    """Colours and width of an output stream; a pipe gets neither."""

    def __init__(self, *, colour: bool = False, width: int = 0) -> None:
        self._colour = colour
        self.width = width  #: 0 for unlimited

    @staticmethod
    def of(stream: TextIO) -> "Style":
        if not stream.isatty():
            return Style()
        from runplan.app.operations.model import Caller  # `--version` asks for nothing

        env = Caller().env
        columns = env.get("COLUMNS", "")
        try:
            width = int(columns) if columns.isdecimal() else os.get_terminal_size(stream.fileno()).columns
        except OSError:
            width = 0
        return Style(colour=not env.get("NO_COLOR") and env.get("TERM") != "dumb", width=width)

    def paint(self, text: str, names: str) -> str:
        """The text in colours such as `cyan bold`."""
        codes = ";".join(CODES[name] for name in names.split())
        return f"\x1b[{codes}m{text}\x1b[0m" if self._colour and text and codes else text

    def wrap(self, text: str, indent: str, *, most: int | None = None) -> str:
        """The text in lines of the width, at most `most`; further ones start with the indent, commands stay whole."""
        if not self.width or len(text) <= self.width:
            return text
        words = re.sub(_COMMAND, lambda match: match[0].replace(" ", "\0"), text.lstrip())
        first = text[: len(text) - len(words)]
        form = textwrap.TextWrapper(self.width, initial_indent=first, subsequent_indent=indent, max_lines=most)
        form.placeholder = " …"
        form.break_long_words = form.break_on_hyphens = False
        return "\n".join(form.wrap(words)).replace("\0", " ")

    def fit_columns(self, text: str) -> str:
        """The lines of a help text within the width; where both do not fit, a remark goes below its command."""
        if self.width:  # a line of prose continues the one before it
            text = re.sub(r"(?<=[a-z,])\n(?=[a-z])", " ", text)
        lines = []
        for line in text.split("\n"):
            columns = re.fullmatch(r"( *\S.*? {2,})(\S.*)", line) if 0 < self.width < len(line) else None
            if columns is not None and len(columns[1]) > self.width // 3:
                lines += [columns[1].rstrip(), self.wrap(f"      {columns[2]}", " " * 6)]
            else:
                lines.append(self.wrap(line, " " * len(columns[1]) if columns else ""))
        return "\n".join(lines)


def say(text: str) -> None:
    """Print a message on standard error. It needs no library: one that is missing is a message, too."""
    try:
        style = Style(width=os.get_terminal_size(sys.stderr.fileno()).columns)
    except (AttributeError, OSError, ValueError):  # no terminal, or closed
        style = Style()
    lines = f"runplan: {plain(text)}".split("\n")
    print("\n".join(style.wrap(line, " " * 9) for line in lines), file=sys.stderr)


def warn(text: str) -> None:
    say(f"warning: {text}")
