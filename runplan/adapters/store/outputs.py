"""The outputs of dispatches: files of this host, and the parts of them that the database of a fleet keeps."""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

from runplan.adapters.store.files import is_held, open_untrusted, read_text, sign_files

LARGEST = 32 * 1024 * 1024  #: bytes of a file that are read at once
LOG = ".log"
EXIT = "exit.json"  #: the last file of a dispatch
_PUT = (
    "INSERT INTO outputs (dispatch, name, start, content, place) VALUES {rows}"
    " ON CONFLICT (dispatch, name, start) DO UPDATE SET content=excluded.content, written=now()"
)
_OUTPUT = "FROM outputs WHERE dispatch=? AND name=?"
_CUT = f"DELETE {_OUTPUT} AND start>=? AND start<?"
_PARTS = f"SELECT start, content, place {_OUTPUT} AND start+length(content)>? ORDER BY start"
_SIZES = "SELECT name, max(start+length(content)) FROM outputs WHERE dispatch=? GROUP BY name"
_STANDING = (
    "SELECT NOT coalesce(bool_or(name=?), false),"
    " extract(epoch FROM max(written) FILTER (WHERE right(name, 4)='.log'))::float FROM outputs WHERE dispatch=?"
)
Part: TypeAlias = tuple[str, int, bytes, str]  #: of a file: its name, where it starts, the bytes, the place


class Statements(Protocol):
    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]: ...
    def execute_alone(self, sql: str, *values: object) -> None: ...


class StoredOutputs:
    """The outputs in the database: of each log at most `cap` bytes, half of them its end; other files are small."""

    def __init__(self, store: Statements, *, host: str, cap: int) -> None:
        self._store = store
        self._host = host
        self._head = cap // 2
        self._tail = cap - self._head
        self._part = max(1, cap // 16)
        self._sizes: dict[str, dict[str, int]] = {}  #: of each output by dispatch, as far as it was stored

    def add(self, dispatch: str, name: str, file: BinaryIO, path: Path) -> None:
        """Store what the file has more than the database; after an error the next call continues."""
        self._put(dispatch, self._read_parts(dispatch, name, file, path))

    def _put(self, dispatch: str, parts: list[Part]) -> None:
        if not parts:
            return
        marks = ",".join("(?,?,?,?,?)" for _ in parts)
        values = (value for part in parts for value in (dispatch, *part))
        self._store.execute_alone(_PUT.format(rows=marks), *values)
        ends = {name: start + len(content) for name, start, content, _ in parts}
        for name, end in ends.items():
            if name.endswith(LOG) and end - self._tail > self._head:
                self._store.execute_alone(_CUT, dispatch, name, self._head, end - self._tail)
        self._sizes[dispatch] |= ends

    def _read_parts(self, dispatch: str, name: str, file: BinaryIO, path: Path) -> list[Part]:
        if dispatch not in self._sizes:
            self._sizes[dispatch] = dict(self._store.query(_SIZES, dispatch))
        start = self._sizes[dispatch].get(name, 0)
        size = file.seek(0, os.SEEK_END)
        head = self._head if name.endswith(LOG) else size
        parts: list[Part] = []
        while start < size:
            start = start if start < head else max(start, size - self._tail)
            file.seek(start)
            content = file.read(min(self._part, head - start) if start < head else self._part)
            if not content:
                break  # it was cut meanwhile
            parts.append((name, start, content, f"on host {self._host} in {path}"))
            start += len(content)
        return parts

    def add_files(self, directory: Path) -> None:
        """Store what a running dispatch has written. Its shim.json names the kind of agent."""
        self._put(directory.name, self._read_logs(directory))

    def add_end(self, directory: Path, names: Collection[str], redact: Callable[[str], str]) -> None:
        """Store the rest of a dispatch that has ended, and what its processes wrote to these files; `*` is any name."""
        parts = self._read_logs(directory)
        for path in sorted({path for name in names for path in directory.glob(name)}):
            if text := read_text(path, follow=False):
                content = BytesIO(redact(text).encode())
                parts += self._read_parts(directory.name, str(path.relative_to(directory)), content, path)
        self._put(directory.name, [*parts, *self._read_file(directory, EXIT)])

    def _read_logs(self, directory: Path) -> list[Part]:
        names = os.listdir(directory)  # noqa: PTH208 - once a second
        logs = (name for name in names if name.endswith(LOG) or name == "shim.json")
        return [part for name in logs for part in self._read_file(directory, name)]

    def _read_file(self, directory: Path, name: str) -> list[Part]:
        with suppress(OSError), open_untrusted(directory / name) as file:
            return self._read_parts(directory.name, name, file, directory / name)
        return []

    def read(self, dispatch: str, name: str, start: int = 0) -> tuple[bytes, int]:
        """As `Outputs.read`; a line names the bytes that were left out."""
        if start < 0:
            start = max(0, dict(self._store.query(_SIZES, dispatch)).get(name, 0) + start)
        pieces = []
        for part_start, content, place in self._store.query(_PARTS, dispatch, name, start):
            end = part_start + len(content)
            if part_start <= start:
                content = content[start - part_start :]
            else:
                content = content[content.find(b"\n") + 1 :]  # without half a line
                pieces.append(f"\n[runplan: {end - len(content) - start} bytes are {place}]\n".encode())
            pieces.append(content)
            start = end
        return b"".join(pieces), start

    def expect_new(self, dispatch: str) -> None:
        self._sizes[dispatch] = {}

    def read_all(self, dispatch: str) -> dict[str, bytes]:
        if self._sizes.get(dispatch) == {}:
            return {}
        names = self._store.query("SELECT DISTINCT name FROM outputs WHERE dispatch=?", dispatch)
        return {name: self.read(dispatch, name)[0] for (name,) in names}

    def get_standing(self, dispatch: str) -> tuple[bool, float | None]:
        ((is_running, written),) = self._store.query(_STANDING, EXIT, dispatch)
        return is_running, written

    def list_dispatches(self) -> set[str]:
        return {dispatch for (dispatch,) in self._store.query("SELECT DISTINCT dispatch FROM outputs")}

    def drop(self, dispatch: str) -> None:
        self._store.execute_alone("DELETE FROM outputs WHERE dispatch=?", dispatch)


class Outputs:
    """Reads the outputs of dispatches: their files where they ran on this host, else the database."""

    def __init__(self, directory: Path, stored: StoredOutputs | None) -> None:
        self._directory = directory
        self._stored = stored

    def _find_stored(self, dispatch: str) -> StoredOutputs | None:
        return None if (self._directory / dispatch / "lock").exists() else self._stored

    def read(self, dispatch: str, name: str, start: int = 0) -> tuple[bytes, int]:
        """The output from a place on, or (negative) so many last bytes, and its end; nothing when it was removed."""
        if stored := self._find_stored(dispatch):
            return stored.read(dispatch, name, start)
        with suppress(OSError), open_untrusted(self._directory / dispatch / name) as file:
            file.seek(start if start >= 0 else max(0, file.seek(0, os.SEEK_END) + start))
            return file.read(LARGEST), file.tell()
        return b"", max(0, start)

    def get_standing(self, dispatch: str) -> tuple[bool, float | None]:
        """Whether the dispatch runs, and when it last wrote, in seconds since the epoch."""
        if stored := self._find_stored(dispatch):
            return stored.get_standing(dispatch)
        directory = self._directory / dispatch
        logs = sign_files([directory / "out.log", directory / "err.log"])
        return is_held(directory / "lock"), max((changed_ns / 1e9 for _, changed_ns, _ in logs), default=None)
