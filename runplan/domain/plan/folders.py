"""A folder of task files as one text: before each file is a line with its path."""

import re
from collections.abc import Mapping


def join_files(files: Mapping[str, bytes]) -> bytes:
    """The one text of these files, in the order of the numbers in their names: `task-1.2 - Title.md`."""
    paths = sorted(files, key=lambda path: [*map(int, re.findall("[0-9]+", path.rpartition("/")[2].partition(" ")[0]))])
    return b"\n".join(f"<!-- runplan:file {path} -->\n".encode() + files[path] for path in paths)


def split_files(text: bytes, folder: str) -> dict[str, bytes]:
    """The files of the joined text of a folder; none for the text of a single file."""
    border = rb"(?:\A|\n)<!-- runplan:file (" + re.escape(folder.encode()) + rb"/[^/\n]+) -->\n"
    parts = re.split(border, text)
    return {path.decode(): content for path, content in zip(parts[1::2], parts[2::2], strict=True)}
