"""Views made by podman or docker, in an image of the user's: one container for each process that runplan starts."""

import os
import resource
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from runplan.adapters import processes
from runplan.adapters.sandbox import bubblewrap, forward
from runplan.adapters.sandbox.home import HomeMounts
from runplan.adapters.sandbox.proxy import SOCKET
from runplan.adapters.sandbox.view import Places, Sandbox, View
from runplan.adapters.store.files import make_below, read_script
from runplan.domain.errors import RefusedEarly
from runplan.domain.names import digest_of
from runplan.domain.run.dispatch import TEMPORARY
from runplan.domain.settings.schema import CONTAINER_ENGINES, ContainerSettings

ASK_S = 60.0  #: an engine in a virtual machine takes seconds to answer
BUILD_S = 3600.0
MOST_PROCESSES = 32768  #: that podman lets a container have
MOST_FILES = 1 << 20  #: that the kernel lets a process have open, usually
_LABEL = "runplan"  #: of a container; its value is the repository's directory of private homes
_KERNEL = {"podman": "{{.Host.Kernel}}", "docker": "{{.KernelVersion}}"}
_RUN, _END = (read_script(__file__, name) for name in ("run_container.sh", "end_containers.sh"))
#: The first process of a container. It has no handler for signals, so none from a container ends it.
_INIT = '"$@"; exit $?'


class Engine(Struct, frozen=True):
    program: str
    name: str
    host: str = ""  #: of a docker that the user's DOCKER_HOST names
    is_local: bool = True  #: it shares this machine's kernel

    def run(self, *words: str, env: Mapping[str, str], within_s: float = ASK_S) -> tuple[int, str, str]:
        host = ("-H", self.host) if self.host else ()
        return processes.run_program((self.program, *host, *words), env, within_s=within_s)


class Container(Sandbox, frozen=True):
    engine: Engine
    settings: ContainerSettings
    env: Mapping[str, str]
    places: Places  #: the directory of the private homes is the owner of its containers

    def wrap(self, command: Sequence[str], view: View) -> tuple[str, ...]:
        state = self.places.state
        if state and state.is_dir():
            for name in bubblewrap.MADE:  # a container sees no place that is made after this
                make_below(state, state / name)
        entries = HomeMounts(self.env, view.uses)
        copies = dict[str, str]()  #: directories, with the places of their copies
        mounts = dict(self._list_mounts(entries, view, copies))  # a later one of a place counts
        me = (processes.identity(os.getpid()) or "").replace(":", "_")
        name = f"{view.dispatch}--{view.cwd.name}" if view.dispatch else f"{me}--{secrets.token_hex(8)}"
        words = ["--rm", "--interactive", "--read-only", "--log-driver=none", f"--workdir={view.cwd}"]
        words += [f"--name=runplan-{name}", f"--label={_LABEL}.dispatch={view.dispatch}"]
        words.append(f"--label={_LABEL}={self.places.homes}")
        words += ["--security-opt=no-new-privileges", "--security-opt=label=disable", "--cap-drop=ALL"]
        words += ["--read-only-tmpfs=false"] if self.engine.name == "podman" else []
        is_mapped = self.engine.name == "podman" and os.geteuid() and not self.settings.user
        words += ["--userns=keep-id"] if is_mapped else []
        words += [f"--cap-add={kept}" for kept in bubblewrap.KEPT] if os.geteuid() == 0 else []
        words.append(f"--user={self.settings.user or f'{os.geteuid()}:{os.getegid()}'}")
        if view.network != "all":
            words.append("--network=none")
        elif self.engine.is_local:
            words.append("--network=host")
        words += _list_limits(self.engine)
        for place, (source, mode) in sorted(mounts.items()):
            if source:
                words.append(f"--volume={source}:{place}{mode}")
            else:
                # Else it is root's, with the mode of the place (https://github.com/opencontainers/runc/issues/1647).
                words.append(f"--tmpfs={place}:exec,{'notmpcopyup,U' if self.engine.name == 'podman' else 'mode=1777'}")
        words += [f"--device={place}" for place in view.uses.mounts if _is_device(place)]
        inside = [*(bubblewrap.prepare_home(entries, view, {}) if view.home else ())]
        if not isinstance(view.network, str):
            inside += ("python3", "-I", "-S", forward.__file__, f"/run/{SOCKET}", ",".join(view.network))
        inside += command
        folder = str(view.scratch) if view.scratch else ""
        pairs = (word for pair in copies.items() for word in pair)
        first = ("/bin/sh", "-c", _RUN, "sh", self.engine.program, self.engine.host, folder, *pairs, "--")
        return (*first, *words, "--entrypoint=/bin/sh", self.places.image, "-c", _INIT, "sh", *inside)

    def end(self, dispatch: str) -> tuple[str, ...]:
        label = f"label={_LABEL}.dispatch={dispatch}"
        return ("/bin/sh", "-c", _END, "sh", self.engine.program, self.engine.host, label)

    def remove_leftovers(self, list_live: Callable[[], Collection[str]]) -> None:
        label = f"label={_LABEL}={self.places.homes}"
        listed = self.engine.run("ps", "-a", f"--filter={label}", "--format={{.Names}}", env=self.env)[1]
        live = list_live() if listed else ()
        for name in listed.split():
            user = name.removeprefix("runplan-").rpartition("--")[0]
            if user not in live and not processes.alive(user.replace("_", ":")):
                self.engine.run("rm", "-f", name, env=self.env)

    def _list_mounts(
        self, entries: HomeMounts, view: View, copies: dict[str, str]
    ) -> Iterator[tuple[str, tuple[str, str]]]:
        """Each place with its source, "" for memory, and its mode; directories that have to be copied are noted."""
        top = os.path.realpath(entries.path)
        for place, name in TEMPORARY.items():
            yield place, (str(view.scratch / name) if view.scratch else "", "")
        needed = bubblewrap.resolve_paths((view.cwd, *self.places.needed))
        yield from ((path, (path, ":ro")) for path in needed if Path(path).exists())
        if view.home is None:
            yield top, ("", "")
        else:
            make_below(view.home.parents[1], view.home / "home")
            home = str(view.home / "home")
            yield top, self._drop(home, 0, view, copies) if view.drops_home else (home, "")
        for name in entries.private:
            if name[0] != "/" and view.is_judge and name not in (*entries.copied, *entries.shared):
                yield f"{top}/{name}", ("", "")
            elif name[0] == "/" and view.home is not None:
                make_below(view.home, view.home / quote(name, safe=""))
                yield name, (str(view.home / quote(name, safe="")), "")
        for names, mode in ((entries.readable, ":ro"), (entries.shared, "")):
            for name in (name for name in names if (entries.path / name).exists()):
                yield str(Path(top) / name), (os.path.realpath(entries.path / name), mode)
        for number, name in enumerate(entries.copied):
            if (entries.path / name).exists():
                yield f"{bubblewrap.COPIED}{number}", (str(entries.path / name), ":ro")
        named = (place for place in view.uses.mounts if Path(place).exists() and not _is_device(place))
        yield from ((place, (place, "")) for place in named)
        for place in self.settings.mounts:
            source, _, rest = place.partition(":")
            target, _, mode = rest.partition(":")
            yield target or source, (source, f":{mode or 'ro'}")
        for number, place in enumerate(bubblewrap.resolve_paths(view.layers), 1):
            yield place, self._drop(place, number, view, copies)
        for place, source in bubblewrap.list_parts(self.places, view):
            if not source or Path(source).exists():
                yield place, (source, ":ro" if source else "")
        for path in entries.list_below(needed):
            yield path, ("", "") if Path(path).is_dir() else (bubblewrap.EMPTY_FILE, ":ro")
        yield from ((path, (path, "")) for path in bubblewrap.resolve_paths(view.writable))
        if not isinstance(view.network, str):
            yield forward.__file__, (forward.__file__, ":ro")

    def _drop(self, source: str, number: int, view: View, copies: dict[str, str]) -> tuple[str, str]:
        assert view.scratch is not None
        if self.engine.name == "podman" and not view.is_copy:
            return source, ":O"
        copies[source] = str(view.scratch / "layers" / str(number))
        return copies[source], ""


def _list_limits(engine: Engine) -> Iterator[str]:
    """A container has the limits of this process; an engine's own may be more than the kernel allows."""
    yield f"--shm-size={bubblewrap.SHARED_MEMORY}"
    kinds = {"nofile": (resource.RLIMIT_NOFILE, MOST_FILES), "nproc": (resource.RLIMIT_NPROC, MOST_PROCESSES)}
    for name, (kind, most) in kinds.items() if engine.is_local else ():
        hard = resource.getrlimit(kind)[1]
        count = most if hard == resource.RLIM_INFINITY else min(hard, most)
        yield f"--ulimit={name}={count}:{count}"


def _is_device(place: str) -> bool:
    return Path(place).is_char_device() or Path(place).is_block_device()


def find_engine(settings: ContainerSettings, env: Mapping[str, str]) -> Engine:
    """The first engine that answers; RefusedEarly when none does."""
    names = CONTAINER_ENGINES[1:] if settings.engine == "auto" else (settings.engine,)
    programs = {name: program for name in names if (program := shutil.which(name, path=env.get("PATH", "")))}
    if not programs:
        raise RefusedEarly(f"{' and '.join(names)}: not on PATH; install podman or docker, e.g. apt install podman")
    failures = []
    for name, program in programs.items():
        host = env.get("DOCKER_HOST", "") if name == "docker" else ""
        try:
            return _ask_engine(name, program, host, tuple(env.items()))
        except OSError as error:
            failures.append(f"{name} does not work: {error}")
    raise RefusedEarly(f"{', '.join(failures)}; start it (podman machine start, systemctl start docker)")


@cache
def _ask_engine(name: str, program: str, host: str, env: tuple[tuple[str, str], ...]) -> Engine:
    """An engine that answers is asked once per process."""
    code, kernel, error = Engine(program, name, host).run("info", f"--format={_KERNEL[name]}", env=dict(env))
    if code or not kernel.strip():
        raise OSError(" ".join(error.split())[:300] or f"it ends with code {code}")
    return Engine(program, name, host, is_local=kernel.strip() == os.uname().release)


def find_image(
    engine: Engine,
    settings: ContainerSettings,
    env: Mapping[str, str],
    tree: str,
    export: Callable[[Path], None],
    *,
    owner: str,
) -> str:
    """The id of the image; one that is built is made from the files of `tree`, which `export` writes."""
    name = settings.image or f"runplan-build:{digest_of(f'{tree} {settings.build} {settings.context}'.encode())[:16]}"
    if (image := _ask_image(engine, name, env)) or settings.image:
        if not image:
            raise RefusedEarly(f"the image {name} is not on this machine; get it: {engine.name} pull {name}")
        return image
    with tempfile.TemporaryDirectory(prefix="runplan-build-") as place:
        top = Path(place).resolve()
        export(top)
        file, folder = (top / settings.build).resolve(), (top / settings.context).resolve()
        if not file.is_relative_to(top) or not file.is_file():
            raise RefusedEarly(f"agents.container.build: the target has no {settings.build}; commit it")
        if not folder.is_relative_to(top) or not folder.is_dir():
            raise RefusedEarly(f"agents.container.context: the target has no folder {settings.context}")
        words = ["build", f"--tag={name}", f"--label={_LABEL}.build={owner}", f"--file={file}"]
        words += ["--network=host"] if engine.is_local else []
        words += [*_list_limits(engine), str(folder)]
        code, output, error = engine.run(*words, env=env, within_s=BUILD_S)
    if code:
        last = " ".join(f"{output}\n{error}".split())[-600:]
        raise RefusedEarly(f"agents.container.build: {engine.name} cannot build {settings.build}: {last}")
    return _ask_image(engine, name, env)


def list_built_images(engine: Engine, owner: str, env: Mapping[str, str]) -> list[str]:
    """The names of the images that were built for a repository, the newest first."""
    label = f"--filter=label={_LABEL}.build={owner}"
    return engine.run("image", "ls", label, "--format={{.Repository}}:{{.Tag}}", env=env)[1].split()


def _ask_image(engine: Engine, name: str, env: Mapping[str, str]) -> str:
    return engine.run("image", "inspect", "--format={{.Id}}", "--", name, env=env)[1].strip()


def try_image(container: Container, programs: Sequence[str]) -> tuple[float, list[str]]:
    """How long an empty container takes, in seconds, and which of these programs the image lacks."""
    look = 'for name; do command -v "$name" >/dev/null 2>&1 || echo "$name"; done'
    with tempfile.TemporaryDirectory(prefix="runplan-") as place:
        argv = container.wrap(("/bin/sh", "-c", look, "sh", *programs), View(cwd=Path(place), network="none"))
        began = time.monotonic()
        code, output, error = processes.run_program(argv, container.env, within_s=ASK_S)
    if code:
        raise RefusedEarly(f"agents.container: no container starts: {' '.join(error.split())[-300:]}")
    return time.monotonic() - began, output.split()
