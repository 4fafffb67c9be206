"""The list of the daemon's repositories: a JSON file in the user's state directory."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from runplan.adapters.locks import file_lock
from runplan.adapters.places import own_directory
from runplan.core.errors import Unreachable
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

FILE = "repositories.json"
FORMAT = 1
LOOK_AGAIN_S = 0.01  #: while another process changes the list


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One repository."""

    common: str  #: its common git directory, by which it is known
    root: str  #: its main checkout
    added: str  #: UTC, ISO 8601


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """The repositories, and notes about those that were dropped."""

    known: tuple[Known, ...]
    notes: tuple[str, ...]


class Repositories:
    """The list of one user; every change is atomic and synced."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._file = state / FILE

    def add(self, *, common: Path, root: Path, at: str) -> bool:
        """Add the repository, or update its checkout; False when nothing changed."""
        with self._locked():
            known, _ = self._read()
            found = next((one for one in known if one.common == str(common)), None)
            if found and found.root == str(root):
                return False
            new = Known(common=str(common), root=str(root), added=found.added if found else at)
            self._write([*(one for one in known if one is not found), new])
            return True

    def recall(self) -> Recalled:
        """All that still exist; the others are dropped, with a note."""
        with self._locked():
            known, notes = self._read()
            there = [one for one in known if _is_there(one)]
            if len(there) < len(known):
                self._write(there)
            gone = [
                f"{one.root} is gone; removed it from the list of repositories" for one in known if one not in there
            ]
            return Recalled(known=tuple(there), notes=(*notes, *gone))

    def there(self) -> tuple[Known, ...]:
        """All that still exist; the list is not changed."""
        with self._locked():
            return tuple(one for one in self._read()[0] if _is_there(one))

    # --- the file -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = file_lock(own_directory(self._state) / f"{FILE}.lock")
        try:
            held = lock.acquire(poll_interval=LOOK_AGAIN_S)
        except OSError as error:
            raise Unreachable(f"{self._file}.lock cannot be opened: {error.strerror}") from error
        with held:
            yield

    def _read(self) -> tuple[list[Known], list[str]]:
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return [], []
        except OSError as error:
            raise Unreachable(f"{self._file} cannot be read: {error.strerror}") from error
        try:
            return [_known(one) for one in json.loads(text)["repositories"]], []
        except (ValueError, KeyError, TypeError, RecursionError):
            aside = self._set_aside()
            return [], [f"{self._file} is damaged; kept as {aside.name}, a new list was started"]

    def _set_aside(self) -> Path:
        """Rename a damaged file to a free name."""
        number = 1
        while (aside := self._file.with_name(f"{FILE}.damaged-{number}")).exists():
            number += 1
        return self._file.rename(aside)

    def _write(self, known: Sequence[Known]) -> None:
        entries = [{"common": one.common, "root": one.root, "added": one.added} for one in known]
        text = json.dumps({"format": FORMAT, "repositories": entries}, indent=1)
        draft = f"{self._file}.new"
        try:
            with open(draft, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self._file)
            _sync(self._state)
        except OSError as error:
            raise Unreachable(f"{self._file} cannot be written: {error.strerror}") from error


def _known(entry: Any) -> Known:
    fields = {name: entry[name] for name in ("common", "root", "added")}
    if not all(isinstance(value, str) for value in fields.values()):
        raise TypeError("an entry is three texts")
    return Known(**fields)


def _is_there(one: Known) -> bool:
    """Whether the repository exists; True when that cannot be checked."""
    try:
        return stat.S_ISREG(os.stat(os.path.join(one.common, "HEAD")).st_mode)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
