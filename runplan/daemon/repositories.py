"""The repositories that the daemon knows, and the settings of the user and of each of them."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.errors import SettingsError, Unreachable
from runplan.settings.load import load_files, load_user
from runplan.settings.places import own_directory, user_file
from runplan.settings.schema import FILES
from runplan.store.files import file_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from runplan.settings.schema import Settings

    Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]
    from collections.abc import Iterator, Sequence


class Changed(Struct, frozen=True, kw_only=True):
    """Whose settings have changed since the last look."""

    user: bool
    roots: tuple[str, ...]


class Configurations:
    """The settings of the user and of each repository; may be asked in any thread."""

    def __init__(self, env: Mapping[str, str], told: Callable[[str, str], None]) -> None:
        """`told` hears once what is wrong with the settings of a repository, or of the user (""); "" when it is mended.

        Settings that are broken from the start are a SettingsError: nothing good was there before.
        """
        self._env = env
        self._told = told
        self._lock = threading.RLock()
        self._file = user_file(env)
        self._user_stamp = _stamp(self._file)
        self._user = load_user(env)
        self._good: dict[Path, Settings] = {}
        self._stamps: dict[Path, Stamp] = {}
        self._shown: dict[Path, Settings] = {}  #: as of the last look
        self._broken: dict[str, str] = {}  #: by whose it is: what is wrong with it
        self._first: dict[str, str] = {}  #: what was told, and of whom

    @property
    def user(self) -> Settings:
        """What holds for all repositories, as of the last look."""
        return self._user

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong with files, one line each."""
        with self._lock:
            return tuple(dict.fromkeys(self._broken.values()))

    def read(self, root: Path, _env: Mapping[str, str]) -> Settings:
        """The repository's settings by its files, which are read only when they are others than before."""
        with self._lock:
            return self._by_files(root)

    def _by_files(self, root: Path) -> Settings:
        stamp = self._stamp_of(root)
        if root in self._good and stamp == self._stamps.get(root):
            return self._good[root]
        self._stamps[root] = stamp
        try:
            self._good[root] = load_files(root, self._env)
        except SettingsError as error:
            if root not in self._good:
                raise
            self._tell(str(root), str(error))
        else:
            self._tell(str(root), "")
            self._shown.setdefault(root, self._good[root])
        return self._good[root]

    def look(self, *, anew: bool = False) -> Changed:
        """See which files are others than before; `anew`: read them whether or not they are."""
        with self._lock:
            if anew:
                self._stamps.clear()
            user = self._look_at_user(anew=anew)
            roots = [root for root in self._stamps | self._good if self._differs(root)]
            for root in roots:
                self._shown[root] = self._good[root]
            return Changed(user=user, roots=tuple(str(root) for root in roots))

    def _differs(self, root: Path) -> bool:
        """Whether it has others than at the last look; one that never had good ones may have them now."""
        before = self._shown.get(root)
        if root in self._good or self._stamp_of(root) != self._stamps.get(root):
            with contextlib.suppress(SettingsError):
                return self._by_files(root) != before
        return False

    def _stamp_of(self, root: Path) -> Stamp:
        return (*_stamp(self._file), *_stamp(*(root / name for name in FILES)))

    def _look_at_user(self, *, anew: bool) -> bool:
        stamp = _stamp(self._file)
        if stamp == self._user_stamp and not anew:
            return False
        before, self._user_stamp = self._user, stamp
        try:
            self._user = load_user(self._env)
        except SettingsError as error:
            self._tell("", str(error))
        else:
            self._tell("", "")
        return self._user != before

    def _tell(self, whose: str, words: str) -> None:
        """Once for each thing that is wrong, however many repositories it is wrong for."""
        before = self._broken.pop(whose, "")
        if words:
            self._broken[whose] = words
        if before and before not in self._broken.values():
            self._told(self._first.pop(before), "")
        if words and words not in self._first:
            self._first[words] = whose
            self._told(whose, words)


def _stamp(*files: Path) -> Stamp:
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            seen = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
    return tuple(found)


FILE = "repositories.json"
FORMAT = 1
LOOK_AGAIN_S = 0.01  #: while another process changes the list


class Known(Struct, frozen=True, kw_only=True):
    """One repository."""

    common: str  #: its common git directory, by which it is known
    root: str  #: its main checkout
    added: str  #: UTC, ISO 8601


class Recalled(Struct, frozen=True, kw_only=True):
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
