"""A folder of task files as one text: before each file is a line with its path."""

from __future__ import annotations

import re
from collections.abc import Mapping

_BORDER = rb"(?:\A|\n)<!-- runplan:file ([^\n]+) -->\n"


def join_files(files: Mapping[str, bytes]) -> bytes:
    """The one text of these files, in the order of the numbers in their names."""
    paths = sorted(files, key=_number)
    return b"\n".join(f"<!-- runplan:file {path} -->\n".encode() + files[path] for path in paths)


def _number(path: str) -> list[int]:
    """The number of the task: `task-1.2 - Title.md`."""
    return [int(number) for number in re.findall("[0-9]+", path.rpartition("/")[2].partition(" ")[0])]


def split_files(text: bytes) -> dict[str, bytes]:
    """The files of a joined text; none for the text of a single file."""
    parts = re.split(_BORDER, text)
    return {path.decode(): content for path, content in zip(parts[1::2], parts[2::2], strict=True)}
