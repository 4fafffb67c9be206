"""The repositories that the daemon knows, and the settings of the user and of each of them."""

from __future__ import annotations

import json
import os
import stat
import threading
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from runplan.errors import SettingsError, Unreachable
from runplan.settings.load import load_files, load_user
from runplan.settings.places import own_directory, user_file
from runplan.settings.schema import FILES
from runplan.store.files import file_lock, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from runplan.settings.schema import Settings

FILE = "repositories.json"
POLL_S = 0.01  #: while another process changes the list


class Known(Struct, frozen=True, kw_only=True):
    """One repository."""

    common: str  #: its common git directory, by which it is known
    root: str  #: its main checkout


class Repositories:
    """The list of one user; every change is atomic and synced."""

    def __init__(self, state: Path) -> None:
        self._file = state / FILE

    def add(self, *, common: Path, root: Path) -> None:
        """Add the repository, or update its checkout."""
        new = Known(common=str(common), root=str(root))
        with file_lock(own_directory(self._file.parent) / f"{FILE}.lock").acquire(poll_interval=POLL_S):
            known = self.all()
            if new not in known:
                self._write([*(one for one in known if one.common != new.common), new])

    def recall(self) -> tuple[list[Known], list[Known]]:
        """The repositories that exist, and those that are gone, which are dropped from the list."""
        with file_lock(own_directory(self._file.parent) / f"{FILE}.lock").acquire(poll_interval=POLL_S):
            known = self.all()
            gone = [one for one in known if not _exists(one)]
            found = [one for one in known if one not in gone]
            if gone:
                self._write(found)
        return found, gone

    def all(self) -> list[Known]:
        try:
            return msgspec.convert(json.loads(self._file.read_bytes()), list[Known])
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise Unreachable(
                f"{self._file} cannot be read: {error}; remove it. "
                "The daemon adds each repository again when a command is given there"
            ) from error

    def _write(self, known: Sequence[Known]) -> None:
        # Not msgspec.json: a path need not be UTF-8, and json escapes it.
        text = json.dumps(msgspec.to_builtins(known), indent=1)
        try:
            publish(self._file, text.encode("ascii"), sync=True)
        except OSError as error:
            raise Unreachable(f"{self._file} cannot be written: {error.strerror}") from error


def _exists(one: Known) -> bool:
    """Whether the repository exists; True when that cannot be checked."""
    try:
        return stat.S_ISREG(os.stat(os.path.join(one.common, "HEAD")).st_mode)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


class _Entry:
    """The settings of one repository, or of the user."""

    stamp: tuple[object, ...] = ()  #: of the files, when they were read
    settings: Settings | None = None  #: the last valid ones
    reported: Settings | None = None  #: at the last check for changes
    error: str = ""  #: in the files


class SettingsFiles:
    """Reads settings files when they change, and keeps the last valid settings. May be called from any thread."""

    def __init__(self, env: Mapping[str, str], report: Callable[[str, str], None]) -> None:
        """`report` is called once with each error and its root ("" for the user); with "" when it is fixed.

        Settings that are invalid from the start are a SettingsError.
        """
        self._env = env
        self._report = report
        self._lock = threading.RLock()
        self._entries: dict[Path | None, _Entry] = {}  #: None: the user
        self._read(None)

    @property
    def user(self) -> Settings:
        """The settings of the user, as of the last check."""
        settings = self._entries[None].settings
        assert settings is not None
        return settings

    @property
    def errors(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(dict.fromkeys(entry.error for entry in self._entries.values() if entry.error))

    def read(self, root: Path, _env: Mapping[str, str]) -> Settings:
        with self._lock:
            return self._read(root)

    def changes(self, *, anew: bool) -> list[Path | None]:
        """The roots whose settings have changed since the last call, None for the user; `anew`: read all files."""
        changed: list[Path | None] = []
        with self._lock:
            for root, entry in list(self._entries.items()):
                before = entry.reported
                entry.stamp = () if anew else entry.stamp
                try:
                    entry.reported = self._read(root)
                except SettingsError:
                    continue
                if entry.reported != before:
                    changed.append(root)
        return changed

    def _read(self, root: Path | None) -> Settings:
        entry, stamp = self._entries.setdefault(root, _Entry()), self._stamp(root)
        if entry.settings is not None and entry.stamp == stamp:
            return entry.settings
        entry.stamp, before, error = stamp, self.errors, ""
        try:
            entry.settings = load_user(self._env) if root is None else load_files(root, self._env)
            entry.reported = entry.reported or entry.settings
        except SettingsError as invalid:
            if entry.settings is None:
                raise
            error = str(invalid)
        entry.error = error
        if set(before) != set(self.errors):
            self._report(str(root or ""), error)
        return entry.settings

    def _stamp(self, root: Path | None) -> tuple[object, ...]:
        files = [user_file(self._env), *(root / name for name in FILES if root is not None)]
        return tuple(_file_stamp(file) for file in files)


def _file_stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
