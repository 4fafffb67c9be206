"""The settings of the daemon: those of the files, or the last valid ones while a file is broken.

The settings of a run are fixed when it starts.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from runplan.adapters.settings import file_layers, load_user, settled, user_file
from runplan.core.errors import SettingsError
from runplan.core.keys import FILES
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from runplan.core.config import Settings

    #: What tells a file from what it was before; None where there is none.
    Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
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
            self._good[root] = settled(file_layers(root, self._env), env={}, flags={}).settings
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
