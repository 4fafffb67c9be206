"""Views made by bubblewrap, on Linux."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from runplan.adapters.processes import run_program
from runplan.adapters.sandbox import forward
from runplan.adapters.sandbox.home import HomeMounts, list_programs
from runplan.adapters.sandbox.proxy import SOCKET
from runplan.adapters.sandbox.view import Obstacle, Places, Sandbox, View
from runplan.adapters.store.files import make_below, read_file, read_script, remove_directory
from runplan.domain.names import GIT_CONFIG, is_below
from runplan.domain.run.dispatch import TEMPORARY

PROBE_S = 10.0
SHARED_MEMORY = 1 << 30  #: bytes of /dev/shm
#: Rules of seccomp, by which the kernel has no add_key, request_key and keyctl: keys do not belong to a namespace.
_RULES = str(Path(__file__).with_name("no_keys.bpf"))
EMPTY_FILE = str(Path(__file__).parents[2] / "py.typed")  #: not /dev/null, which a bind mount makes unreadable
#: Capabilities that root keeps: what installers need. With others it could remount, or open files by their number.
KEPT = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE", "SYS_CHROOT")
#: With a pid namespace, programs can signal no process outside.
_BASE = (
    *("--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc", "--unshare-ipc"),
    *("--die-with-parent", "--cap-drop", "ALL"),
    *(word for name in (KEPT if os.geteuid() == 0 else ()) for word in ("--cap-add", f"CAP_{name}")),
    *(("--ro-bind", "/proc/sys", "/proc/sys") if os.geteuid() == 0 else ()),  # settings of the kernel
    *("--size", str(SHARED_MEMORY), "--tmpfs", "/dev/shm"),  # noqa: S108
)
MADE = ("lanes", "proof", "lent", "seen", "handover")  #: folders in runplan's own directory that may be made later
COPIED = "/run/copied-"  #: the originals of files that a program replaces
_PREPARE, _CALL = (read_script(__file__, name) for name in ("prepare_home.sh", "start_bubblewrap.sh"))
#: Variables for temporary files, caches and state; they follow the view.
_VARIABLES = {"XDG_CACHE_HOME": ".cache", "XDG_STATE_HOME": ".local/state"}


class Bubblewrap(Sandbox, frozen=True):
    """The kernel ends a view with its first process, so nothing is left of one."""

    program: str
    env: Mapping[str, str]
    places: Places = Places()

    def wrap(self, command: Sequence[str], view: View) -> tuple[str, ...]:
        program = str(view.cwd / command[0]) if "/" in command[0] else command[0]
        if shutil.which(program, path=self.env.get("PATH", "")) is None:
            return tuple(command)  # the shim reports a missing program by name; bwrap would only exit with 1
        cwd = os.path.realpath(view.cwd)
        entries = HomeMounts(self.env, view.uses)
        mounts = [*self._private(entries, view), *self._named(entries, view)]
        mounts += (("--bind", path, path) for path in resolve_paths(view.writable))
        network = () if view.network == "all" else ("--unshare-net",)
        words = (*_BASE, *network, *chain(*mounts), *self._variables(), "--chdir", cwd, "--")
        if view.home:
            _remove_links(view.home / "home", (mount[-1] for mount in mounts), os.path.realpath(entries.path))
            words += prepare_home(entries, view, entries.links)
        if not isinstance(view.network, str):
            words += (sys.executable, "-I", "-S", forward.__file__, f"/run/{SOCKET}", ",".join(view.network))
        words += tuple(command)
        below = dict(enumerate(resolve_paths(view.layers), 1))
        if view.drops_home and view.home:
            below[0] = os.path.realpath(view.home / "home")
        namespace = find_namespace()  # in which the layers are made; later mounts of the machine do not get into it
        # In a user namespace of its own the process would be root.
        ids = ("--unshare-user", "--uid", str(os.geteuid()), "--gid", str(os.getegid())) if "-r" in namespace else ()
        # A process could connect to the socket of a server that it can only read. Temporary files are private, except
        # below the places that are shown.
        shown = [os.path.realpath(place) for place in (entries.path, *self.places.needed)]
        rows = (read_file("/proc/net/unix") or b"").splitlines()[1:] if namespace else ()
        servers = {os.fsdecode(row.split(None, 7)[7]) for row in rows if row.count(b" /")}
        seen = (path for path in servers if not is_below(path, TEMPORARY) or is_below(path, shown))
        sockets = sorted(path for path in seen if path.startswith("/") and not is_below(path, view.uses.mounts))
        how = "overlay" if namespace and not view.is_copy else "copy"
        pairs = (word for number, path in below.items() for word in (str(number), path))
        layers = (str(_layer(view, 0).parents[1]), how, *pairs) if below else ()
        return (*namespace, *_call(self.program, (*ids, *words), *layers, sockets=sockets))

    def _private(self, entries: HomeMounts, view: View) -> Iterator[tuple[str, ...]]:
        """Temporary files, and the private home with what is readable of the real one mounted into it."""
        for place, name in TEMPORARY.items():
            if not Path(place).is_dir() or Path(place).is_symlink():
                continue
            yield ("--bind", str(view.scratch / name), place) if view.scratch else ("--tmpfs", place)
        resolver = os.path.realpath("/etc/resolv.conf")
        if is_below(resolver, TEMPORARY):
            yield ("--ro-bind-try", resolver, resolver)
        top = os.path.realpath(entries.path)
        if not entries.path.is_dir() or top == "/":
            return
        if view.home is None:
            yield ("--tmpfs", top)
        else:
            make_below(view.home.parents[1], view.home / "home")
            yield ("--bind", str(_layer(view, 0) if view.drops_home else view.home / "home"), top)
        for name in (*entries.programs, *entries.private) if view.is_judge else ():
            if name[0] != "/" and name not in (*entries.copied, *entries.shared):
                yield ("--tmpfs", f"{top}/{name}")
        for name, real in entries.shown.items():
            if name not in entries.links:
                yield ("--ro-bind-try", real, f"{top}/{name}")
            elif view.home is None:
                yield ("--symlink", real, f"{top}/{name}")
        for number, name in enumerate(entries.copied):
            yield ("--ro-bind-try", str(entries.path / name), f"{COPIED}{number}")

    def _named(self, entries: HomeMounts, view: View) -> Iterator[tuple[str, ...]]:
        """Places that are needed although they lie below a private one, the view's own ones, and secrets elsewhere."""
        home = os.path.realpath(entries.path)
        programs = (path for path in list_programs(self.env) if not is_below(os.path.realpath(path), [home]))
        own = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[3]))
        named = resolve_paths((view.cwd, *self.places.needed, *map(Path, (*own, *programs))))
        private = (*TEMPORARY, "/dev/shm", home)  # noqa: S108
        shown = [path for path in named if is_below(path, private) and not is_below(home, [path])]
        for path in shown:
            yield ("--ro-bind-try", path, path)
        for place in view.uses.mounts:
            yield ("--dev-bind-try", place, place)
        for place in (name for name in entries.private if name.startswith("/") and Path(name).is_dir()):
            if view.home is None:
                yield ("--tmpfs", place)
            else:
                own_place = view.home / quote(place, safe="")
                make_below(view.home, own_place)
                yield ("--bind", str(own_place), place)
        for name in (name for name in entries.readable if name.startswith("/")):
            yield ("--ro-bind-try", name, name)
        for number, place in enumerate(resolve_paths(view.layers), 1):
            yield ("--bind", str(_layer(view, number)), place)
        for name in entries.shared:
            yield ("--bind-try", os.path.realpath(entries.path / name), str(Path(home) / name))
        parts = dict(list_parts(self.places, view))
        for path, source in parts.items():
            yield ("--ro-bind-try", source, path) if source else ("--tmpfs", path)
        for path in (*entries.hidden, *entries.list_below(shown)):
            yield ("--tmpfs", path) if Path(path).is_dir() else ("--ro-bind", EMPTY_FILE, path)
        yield from (("--remount-ro", path) for path, source in parts.items() if not source)

    def _variables(self) -> Iterator[str]:
        yield from ("--unsetenv", "TMPDIR", "--setenv", "XDG_RUNTIME_DIR", "/run")
        for name, place in _VARIABLES.items() if self.env.get("HOME") else ():
            if self.env.get(name):
                yield from ("--setenv", name, f"{self.env['HOME']}/{place}")


def prepare_home(entries: HomeMounts, view: View, links: Mapping[str, str]) -> tuple[str, ...]:
    """The words before a command that makes links and copies in the home. It runs inside, since agents write there."""
    made = [("cp -fp", f"{COPIED}{number}", name) for number, name in enumerate(entries.copied)]
    made += [("ln -sfn", real, name) for name, real in links.items()]  # a program needs the files beside it
    cleared = os.path.realpath(entries.path) if view.is_judge else ""
    rows = (word for how, source, name in made for word in (how, source, str(entries.path / name)))
    return ("/bin/sh", "-c", _PREPARE, "sh", cleared, *rows, "--") if made or cleared else ()


def _remove_links(home: Path, places: Iterable[str], top: str) -> None:
    """Remove links, and files in the place of directories, from the way to mounts below `top`: they lead elsewhere."""
    for place in dict.fromkeys(place.removeprefix(f"{top}/") for place in places if place.startswith(f"{top}/")):
        *folders, last = Path(place).parts
        for depth in range(1, len(folders) + 2):
            path = home.joinpath(*(*folders, last)[:depth])
            if path.is_symlink() or (depth <= len(folders) and path.exists() and not path.is_dir()):
                remove_directory(path)


def _layer(view: View, number: int) -> Path:
    """Where the layer with this number is; 0: that of the home."""
    assert view.scratch is not None
    return view.scratch / "layers" / str(number) / "merged"


def _call(program: str, words: Sequence[str], *layers: str, sockets: Iterable[str] = ()) -> tuple[str, ...]:
    return ("/bin/sh", "-c", _CALL, "sh", _RULES, EMPTY_FILE, *sockets, "--", *layers, "--", program, *words)


@cache
def find_namespace() -> tuple[str, ...]:
    """The command that gives a program a mount namespace of its own; () where there is none."""
    unshare = shutil.which("unshare", path=os.defpath) or ""
    command = (unshare, *([] if os.geteuid() == 0 else ["-r"]), "-m")
    works = unshare and run_program((*command, "/bin/true"), {}, within_s=PROBE_S)[0] == 0
    return command if works else ()


def list_parts(places: Places, view: View) -> Iterator[tuple[str, str]]:
    """Places in git's directory with what is mounted there, "" for memory: copies of `shown`; no journal, no locks.

    A mount over a file vanishes when a program outside replaces the file, so its folder is put together from its other
    entries. A process that reads the journal or a lock could lock it, and nobody else could.
    """
    copies = {os.path.realpath(file): str(copy) for file, copy in places.shown.items()}
    state = places.state
    if state is None or not state.is_dir():
        yield from copies.items()
        return
    hidden = ("locks", "dispatch") if view.scratch else ("locks",)  # a script writes files of a dispatch to a worktree
    own, common_dir = os.path.realpath(state), os.path.realpath(state.parent)
    yield from ((file, copy) for file, copy in copies.items() if not is_below(file, [common_dir]))
    folders = {os.path.realpath(Path(file).parent) for file in copies if is_below(file, [common_dir])}
    for folder in sorted({*folders, own}):
        yield folder, ""
        for entry in os.scandir(folder):
            is_needed = entry.is_dir() and entry.name not in hidden if folder == own else not Path(entry).is_socket()
            if is_needed or entry.name == GIT_CONFIG or entry.path in copies:
                yield entry.path, copies.get(entry.path, entry.path)
    for place in (*(state / name for name in MADE), *((view.scratch.parent,) if view.scratch else ())):
        yield str(place), str(place)


def resolve_paths(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(sorted({os.path.realpath(path) for path in paths}))


def find_obstacle(env: Mapping[str, str]) -> Obstacle | None:
    """None where bubblewrap works. Each bwrap is tried once per process."""
    if sys.platform != "linux":
        return Obstacle("bubblewrap is for Linux only", "run runplan on Linux")
    program = find_program(env)
    if program is None:
        return Obstacle("bwrap is not on PATH", "apt install bubblewrap")
    allow = "sudo sysctl -w user.max_user_namespaces=10000 (Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)"
    failed = _probe(program)
    return Obstacle(failed, f"allow user namespaces, e.g. {allow}") if failed else None


@cache
def _probe(program: str) -> str:
    """The error of a bwrap that cannot make a sandbox, else ""."""
    argv = _call(program, (*_BASE, "--tmpfs", "/tmp", "--", "/bin/sh", "-c", ":"))  # noqa: S108
    code, _, error = run_program(argv, {}, within_s=PROBE_S)
    if code < 0:
        return f"{program} does not run: {error}"
    return "" if code == 0 else " ".join(error.split())[:300] or f"{program} ends with code {code}"


def find_program(env: Mapping[str, str]) -> str | None:
    return shutil.which("bwrap", path=env.get("PATH", ""))
