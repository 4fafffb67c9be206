"""The entries of a user's home: secrets are absent in a view, state and caches are private, all else is readable."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, cached_property
from glob import escape
from pathlib import Path

from runplan.adapters.configuration.places import credential_files, home as home_of, state_directory
from runplan.adapters.sandbox.view import HomeUse
from runplan.domain.names import is_below
from runplan.domain.run.dispatch import TEMPORARY
from runplan.domain.text import counted


class HomeEntry(Enum):
    SECRET = "absent"  # noqa: S105 - no password
    PRIVATE = "private"
    READABLE = "read-only"


#: State and caches: a program must be able to write them, and what it writes must reach nobody else.
PRIVATE = {
    "caches": (
        *(".cache", ".npm", ".pnpm-store", ".yarn", ".cargo/registry", ".cargo/git", ".cargo/.package-cache"),
        *(".cargo/.global-cache", ".rustup/downloads", ".rustup/tmp", ".rustup/update-hashes", ".nvm/.cache"),
        *("go/pkg", ".gradle", ".m2/repository", ".ivy2", ".sbt", ".nuget/packages", ".pub-cache", ".hex", ".mix"),
        *(".bundle/cache", ".local/share/pnpm/store", ".local/share/virtualenv", ".bun/install/cache", ".config/yarn"),
        ".local/share/mise/downloads",
    ),
    "state": (
        *(".local/state", ".config/configstore", ".local/share/Trash", ".bash_history", ".zsh_history", ".lesshst"),
        *(".python_history", ".node_repl_history", ".viminfo", ".wget-hsts", ".dbus", ".pki", ".Xauthority"),
    ),
    "agents": (
        *(".claude", ".claude.json", ".codex", ".gemini", ".qwen", ".aider", ".config/opencode"),
        *(".local/share/opencode", ".config/mini-swe-agent"),
    ),
}
#: Entries below private ones that are downloaded once and only read.
_GRADLE = (".gradle/gradle.properties", ".gradle/init.d", ".gradle/init.gradle")
READABLE = (".cache/huggingface", ".cache/torch", *_GRADLE)
#: Directories into which programs install: private ones, in which each entry of the real one is readable, except for
#: names with a dot, which are locks and other state.
INSTALLED = (
    *(".cache/ms-playwright", ".cache/puppeteer/chrome", ".cache/Cypress", ".local/bin", ".cargo/bin", "go/bin"),
    *(".local/share/uv/python", ".local/share/uv/tools", ".local/share/pipx/venvs", ".pyenv/versions", ".pyenv/shims"),
    *(".rustup/toolchains", ".nvm/versions/node", ".local/share/fnm/node-versions", ".local/share/mise/shims"),
    ".local/share/mise/installs",
)
_TOOLS = ".local/share/mise/installs"  #: a directory for each program, into which its versions are installed
#: Entries of a directory that are mounted; the time grows with the square, and bubblewrap takes 3,000 at most.
MOST = 500
_PATH = re.compile(r"/[^\s'\"`:,;|()\[\]{}<>]*[^\s'\"`:,;|()\[\]{}<>.]")


class HomeMounts:
    def __init__(self, env: Mapping[str, str], uses: HomeUse) -> None:
        self.path = home_of(env)
        self._tops = (f"{self.path}/", f"{os.path.realpath(self.path)}/")
        self._table = frozenset(self._shorten(*map(str, (*credential_files(env), state_directory(env)))))
        kinds = dict.fromkeys(self._table, HomeEntry.SECRET)
        programs = [name for name in self._shorten(*list_programs(env)) if not is_below(name, ("", *kinds))]
        self.programs = [name for name in programs if name[0] != "/"]
        kinds |= {name: HomeEntry.PRIVATE for names in PRIVATE.values() for name in names}
        own = self._shorten(*uses.private)
        shown = (name for name in (*READABLE, *INSTALLED) if not is_below(name, own))
        kinds |= dict.fromkeys((*shown, *programs), HomeEntry.READABLE)
        self.private = self._shorten(*uses.private, *uses.copied, *uses.shared)
        self.readable = self._shorten(*uses.readable)
        self.shared = self._shorten(*uses.shared)
        self.copied = self._shorten(*uses.copied)
        self._mounts = uses.mounts
        kinds |= dict.fromkeys(self.private, HomeEntry.PRIVATE) | dict.fromkeys(self.readable, HomeEntry.READABLE)
        self._kinds = kinds  #: by the path from the home; an absolute path lies outside
        self._parents = {name[: match.start()] for name in kinds for match in re.finditer("/", name)}
        self.left_out = dict[str, int]()  #: how many entries of a directory were too many to be mounted

    def _shorten(self, *paths: str) -> tuple[str, ...]:
        nominal, real = self._tops
        return tuple(path.removeprefix(nominal).removeprefix(real).rstrip("/") for path in paths)

    @property
    def secrets(self) -> list[str]:
        return sorted(name for name, kind in self._kinds.items() if kind is HomeEntry.SECRET)

    @cached_property
    def _real_places(self) -> dict[str, Path]:
        """The real place of each secret, whether it is there or not."""
        resolve = cache(os.path.realpath)  # many share a folder
        paths = {name: self.path / name for name in self._table}
        places = {name: Path(resolve(path.parent), path.name) for name, path in paths.items()}
        return {name: place.resolve() if place.is_symlink() else place for name, place in places.items()}

    @cached_property
    def hidden(self) -> list[str]:
        """Existing places with secrets that lie elsewhere: outside the home, or where a link in it leads."""
        top = os.path.realpath(self.path)
        there = {name: path for name in self.secrets if os.path.lexists(path := self._real_places[name])}
        places = {path for name, path in there.items() if path != Path(top, name) or not path.is_relative_to(top)}
        return sorted(map(str, places))

    @cached_property
    def shown(self) -> dict[str, str]:
        """The largest entries of the home that are readable as a whole, with their real paths."""
        return dict(self._list_readable("", HomeEntry.READABLE))

    def _list_readable(self, folder: str, kind: HomeEntry) -> Iterator[tuple[str, str]]:
        top = os.path.realpath(self.path / folder)
        try:
            found = sorted(os.scandir(top), key=lambda entry: entry.name)  # those with a dot first
        except OSError:
            return
        for number, entry in enumerate(found):
            name = f"{folder}/{entry.name}" if folder else entry.name
            its_kind = self._kinds.get(name, HomeEntry.SECRET if self._is_backup(name) else kind)
            if (_is_installed_into(name) or name in self._parents) and entry.is_dir():
                yield from self._list_readable(name, its_kind)
            elif its_kind is HomeEntry.READABLE and not (_is_installed_into(folder) and entry.name.startswith(".")):
                real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                if number >= MOST and name not in self._kinds:
                    self.left_out[folder] = self.left_out.get(folder, 0) + 1
                elif self._is_shown(entry, name, real):
                    yield name, real

    def _is_backup(self, name: str) -> bool:
        """Whether it has the name of a secret and a suffix, such as `.netrc~`."""
        ends = (match.start() for match in re.finditer(r"[~._-]", name))
        return name not in self._kinds and any(name[:end] in self._table for end in ends)

    def list_below(self, tops: Iterable[str]) -> Iterator[str]:
        """The existing secrets, and backups of them, below these real paths."""
        for path in self._real_places.values():
            if is_below(str(path.parent), tops):
                names = self._shorten(*map(str, path.parent.glob(f"{escape(path.name)}*")))
                yield from (str(self.path / name) for name in names if name in self.secrets or self._is_backup(name))

    def describe_left_out(self) -> list[str]:
        shows = f"the sandbox shows {counted(len(self.shown), 'entry', 'entries')} of your home"
        left_out = (f"not the last {count} of {self.path / name}" for name, count in self.left_out.items())
        return [f"{shows}, {words}; name what is needed in agents.home or tests.home" for words in left_out]

    @cached_property
    def links(self) -> dict[str, str]:
        """The readable entries that are links, with the places that they lead to, where a view shows these too."""
        links = ((name, real) for name, real in self.shown.items() if (self.path / name).is_symlink())
        return {name: real for name, real in links if self._kind_of(*self._shorten(real)) is HomeEntry.READABLE}

    def find_hidden(self, text: str) -> dict[str, list[str]]:
        """The places that a text names, which exist and hold no secret, but are hidden, by the setting to show them."""
        hidden: dict[str, list[str]] = {"home": [], "mounts": []}
        paths = {os.path.normpath(path).replace("/var/run/", "/run/") for path in _PATH.findall(text)}
        for name in self._shorten(*sorted(paths)):
            top = next((top for top in self._kinds if name.startswith(f"{top}/")), name)
            place = "/".join(name.split("/")[: top.count("/") + 2]) if name[0] != "/" else name
            if name.startswith("/run/") and not name.startswith("/run/user/"):
                place = "/".join(name.split("/")[:3])
            is_there = Path(name).is_socket() if place == name and name[0] == "/" else (self.path / name).exists()
            if is_there and self._kind_of(name) is HomeEntry.PRIVATE and not is_below(name, self._mounts):
                hidden["mounts" if name[0] == "/" else "home"].append(place)
        return {key: list(dict.fromkeys(names)) for key, names in hidden.items() if names}

    def _kind_of(self, name: str) -> HomeEntry:
        """The kind of the nearest entry in the table. Outside the home, places of temporary files are private."""
        tops = (name, *map(str, Path(name).parents))
        default = HomeEntry.PRIVATE if is_below(name, TEMPORARY) else HomeEntry.READABLE
        return next((self._kinds[top] for top in tops if top in self._kinds), default)

    def _is_shown(self, entry: os.DirEntry[str], name: str, real: str) -> bool:
        """Whether it is there, no socket and no secret, and no link to what a view hides at its own place."""
        try:
            mode = Path(real).stat().st_mode
        except OSError:
            return False
        place = self._shorten(real)[0]
        if stat.S_ISSOCK(mode) or self._is_backup(place) or is_below(real, self.hidden):
            return False
        if name in self.readable or not entry.is_symlink() or (kind := self._kind_of(place)) is HomeEntry.READABLE:
            return True
        is_program = entry.is_file() and entry.stat().st_mode & 0o111  # it may lie beside state
        is_outside = place[0] == "/" and real not in TEMPORARY and not is_below(real, ("/run",))
        return kind is not HomeEntry.SECRET and bool(is_outside or is_program)


def _is_installed_into(folder: str) -> bool:
    return folder in INSTALLED or os.path.dirname(folder) == _TOOLS  # noqa: PTH120


def list_programs(env: Mapping[str, str]) -> list[str]:
    return [path for path in env.get("PATH", "").split(":") if path.startswith("/")]
