"""Reads the diff of two commits into files, hunks and lines."""

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.text import visible

_FILE = "diff --git "
_CHANGES = {"rename": "renamed", "copy": "copied", "new": "added", "deleted": "removed"}


class Line(Struct, frozen=True):
    mark: str  #: "+", "-" or " "; "\\" of a note, such as that the file has no newline at its end
    number: int  #: in the new file; of a removed line in the old one
    text: str  #: without the mark; every character is visible


class Hunk(Struct, frozen=True):
    head: str  #: the places, and the function around them
    lines: Sequence[Line]


class FileDiff(Struct, frozen=True, kw_only=True):
    path: str  #: of the new file; of the old one after a removal
    old_path: str = ""  #: before a rename, or the origin of a copy
    change: str = "changed"  #: added, changed, copied, removed, renamed
    mode: str = ""  #: old and new mode where they differ, or that of a new file that is not ordinary
    is_binary: bool = False
    hunks: tuple[Hunk, ...] = ()

    @property
    def added(self) -> int:
        return sum(line.mark == "+" for hunk in self.hunks for line in hunk.lines)

    @property
    def removed(self) -> int:
        return sum(line.mark == "-" for hunk in self.hunks for line in hunk.lines)

    @property
    def line_count(self) -> int:
        """The lines to show, with those around the changes."""
        return sum(len(hunk.lines) for hunk in self.hunks)


def parse_diff(text: str) -> list[FileDiff]:
    """The files of a diff. Lines before the first file, such as a summary, are skipped."""
    files: list[FileDiff] = []
    hunk: list[Line] = []  #: the lines of the newest one
    old = old_left = new = new_left = 0  # the head of a hunk counts its lines: they may look like heads themselves
    for line in text.split("\n"):  # a line of code may contain other line ends
        mark = line[:1]
        if old_left > 0 or new_left > 0 or (hunk and mark == "\\"):
            number = {"\\": 0, "-": old}.get(mark, new)
            hunk.append(Line(mark or " ", number, visible(line[1:])))
            is_old, is_new = mark not in ("+", "\\"), mark not in ("-", "\\")
            old, old_left = old + is_old, old_left - is_old
            new, new_left = new + is_new, new_left - is_new
        elif line.startswith(_FILE):
            # The line is ambiguous where a name has spaces; later lines name a renamed file again.
            names = line.removeprefix(_FILE)
            same = re.fullmatch(r"a/(.*) b/\1", names)  # of a file without a rename
            quoted = names.endswith('"')
            last = names.rpartition(' "b/' if quoted else " b/")[2]
            files.append(FileDiff(path=same[1] if same else _unquote(f'"{last}' if quoted else last)))
        elif line.startswith("--- ") and not files:  # a diff of texts has no other head
            files.append(FileDiff(path=_read_path(line[4:])))
        elif files and (match := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)", line)):
            hunk = []
            files[-1] = replace(files[-1], hunks=(*files[-1].hunks, Hunk(visible(line), hunk)))
            old, old_left, new, new_left = (int(number or 1) for number in match.groups()[:4])
        elif files and not files[-1].hunks:
            files[-1] = _read_head(files[-1], line)
    return files


def _read_head(file: FileDiff, line: str) -> FileDiff:
    word, _, rest = line.partition(" ")
    mode = line.rpartition(" ")[2]
    if line.startswith(("rename from ", "copy from ")):
        return replace(file, old_path=_unquote(rest.removeprefix("from ")), change=_CHANGES[word])
    if line.startswith(("rename to ", "copy to ")):
        return replace(file, path=_unquote(rest.removeprefix("to ")))
    if line.startswith(("new file mode ", "deleted file mode ")):
        return replace(file, change=_CHANGES[word], mode="" if mode == "100644" else mode)
    if line.startswith(("old mode ", "new mode ")):
        return replace(file, mode=f"{file.mode} → {mode}" if file.mode else mode)
    if line.startswith(("--- ", "+++ ")):
        return replace(file, path=_read_path(rest) or file.path)
    return replace(file, is_binary=file.is_binary or line.startswith(("Binary files ", "GIT binary patch")))


def _read_path(text: str) -> str:
    """The path in a line with `---` or `+++`; "" where there is no file. A tab follows a path with spaces."""
    path = _unquote(text.rstrip("\t"))
    return "" if path == "/dev/null" else re.sub("^[ab]/", "", path)


def _unquote(text: str) -> str:
    """The path that git has quoted because of special characters, or the same text."""
    if not (len(text) > 1 and text.startswith('"') and text.endswith('"')):
        return text
    # Git escapes bytes as Python does: in octal, or by a letter.
    raw = text[1:-1].encode("utf-8", "replace").decode("unicode_escape").encode("latin-1")
    return raw.decode("utf-8", "backslashreplace")
