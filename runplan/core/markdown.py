"""Puts foreign text into Markdown so that it never becomes structure: no heading, table, fence or tag."""

from __future__ import annotations

import re

# Colours, controls and direction marks: they hide text, or reorder it, in a file meant to be read.
_HIDDEN = re.compile(
    "\x1b\\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_SPAN = re.compile(r"((?<!`)(`+)(?!`).{1,2000}?(?<!`)\2(?!`))")


def inline(text: str) -> str:
    """One line of foreign text, to stand last in its block and never first: tags are shown, not obeyed."""
    line = flat(text)
    if "\\`" in line:  # an escaped backtick opens no code span; do not reason about the rest
        return line.replace("<", "&lt;")
    pieces = _SPAN.split(line)
    # split() gives: outside, span, its fence, outside, span, its fence, … outside
    for outside in range(0, len(pieces), 3):
        pieces[outside] = pieces[outside].replace("<", "&lt;")
    return "".join(piece for number, piece in enumerate(pieces) if number % 3 != 2)


def first(text: str) -> str:
    """One line of foreign text that may also stand first in its block."""
    line = re.sub(r"^(\d+)([.)])", r"\1\\\2", inline(text))
    return f"\\{line}" if line.startswith(("#", ">", "+", "-", "*", "_", "=", "~", "|", "[", "```")) else line


def code(text: str) -> str:
    """A code span that shows the text whatever backticks are in it."""
    line = flat(text)
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def cell(text: str) -> str:
    """Already inline Markdown as a table cell: a pipe, and backslashes before it, lose their meaning."""
    return re.sub(r"(?<!\\)(\\*)\|", lambda pipe: pipe.group(1) * 2 + r"\|", text)


def row(*cells: str) -> str:
    """One table row."""
    return f"| {' | '.join(cell(text) for text in cells)} |"


def block(text: str) -> str:
    """Many lines of foreign text as an indented block, which nothing in it can end."""
    lines = (_HIDDEN.sub("", line) for line in encodable(text).strip("\r\n").splitlines())
    return "\n".join(f"    {line}".rstrip() for line in lines)


def flat(text: str) -> str:
    """The text on one line, without what cannot be seen."""
    return " ".join(_HIDDEN.sub("", encodable(text)).split())


def encodable(text: str) -> str:
    """The text without half surrogate pairs, which no file takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
