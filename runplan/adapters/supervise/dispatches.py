"""Starts dispatches, waits for them, ends them, and adopts those of a runner that died."""

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Collection
from itertools import chain
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from runplan.adapters import processes
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.environment import own_environment
from runplan.adapters.clock import until
from runplan.adapters.configuration.load import environment
from runplan.adapters.processes import AGENT_MARK, Process
from runplan.adapters.store.files import Anchor, file_lock, lock_descriptor, make_below, publish, read_file, read_text
from runplan.adapters.store.outputs import StoredOutputs
from runplan.adapters.supervise.output import DispatchFiles
from runplan.domain.decoding import to_json
from runplan.domain.errors import Unreachable
from runplan.domain.names import run_of
from runplan.domain.run.dispatch import OWN, TOLD, DispatchStanding, Ending, Launch, NeverStarted, Outcome, Running

ANSWER_S = 30.0  #: a spawner that has not answered after this is considered dead
LOCK_CHECK_S = 0.02  #: a reader that checks whether a lock is held holds it itself for some microseconds
UNBORN_POLL_S = 0.005  #: how often to look for a shim that holds its lock and has not written its identity yet
POLL_S = 0.05  #: how often shims are checked on systems without process descriptors
LONGEST_SLEEP_S = 86_400.0  #: the kernel refuses to sleep for much longer at once
FORCED_S = processes.KILLED_S + 2.0  #: how long a shim may take to kill at once and to write its exit record
STORE_S = 1.0  #: how often the output of running dispatches is stored
SWEEP_GRACE_S = 0.5  #: time between SIGTERM and SIGKILL for processes whose shim is gone
_HEADER = struct.Struct("!I")
#: The first ports of worktrees; each has ten. They are below those that a system gives out by itself.
PORTS = range(20_000, 24_000, 10)


def claim_ports(state: Path, worktree: Path) -> int:
    """The first of the ports that no other worktree of this user has as long as its directory is there."""
    first = crc32(os.fsencode(worktree)) % len(PORTS)  # of several users too, most have different ones
    ports: list[int] = [*PORTS[first:], *PORTS[:first]]
    file = state / "ports.json"
    with contextlib.suppress(OSError, ValueError):  # where nothing can be recorded, ports are only likely to be its own
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(state / "ports.lock"):
            owners: dict[str, str] = json.loads(read_file(file) or b"{}")
            assigned = (port for port in ports if owners.get(str(port)) == str(worktree))
            free = (port for port in ports if not ((owner := owners.get(str(port))) and Path(owner).is_dir()))
            port = next(chain(assigned, free), ports[0])
            if owners.get(str(port)) != str(worktree):
                publish(file, json.dumps({**owners, str(port): str(worktree)}).encode(), sync=False)
            return port
    return ports[0]


class Spawner:
    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(ANSWER_S)
        with theirs:
            self.process = subprocess.Popen(
                # -P: a json.py of the repository must not shadow the standard library's.
                [sys.executable, "-P", "-m", "runplan.adapters.supervise.shim", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None,  # ours, until the first shim brings the log
                cwd="/",
                # An ancestor of every process of a dispatch: it shows that they are an agent's, whatever they hide.
                env={**own_environment(environment()), AGENT_MARK: "1"},
                start_new_session=True,
            )

    def close(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()


class Dispatches:
    """The dispatches of one repository. They live on after it is closed."""

    def __init__(self, directory: Path, *, wakeup: int | None = None) -> None:
        """`wakeup` is a descriptor that interrupts `wait` when it becomes readable."""
        self.stored: StoredOutputs | None = None  #: the outputs in the database of a fleet
        self._directory = directory
        self._spawner_log = directory / "spawner.log"
        self._anchor = Anchor(directory.parent)
        self._wakeup = wakeup
        self._spawner: Spawner | None = None
        self._made: set[str] = set()  #: dispatches whose directory exists
        self._begun: set[str] = set()  #: dispatches started here
        self._shims: dict[str, Process] = {}  #: of these, unless the shim had ended before it was looked up
        self._links: dict[str, socket.socket] = {}  #: to the shims of running dispatches that were started here

    def __enter__(self) -> "Dispatches":
        self._spawner = Spawner()  # it imports while the run is resolved
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the spawner; agents and their shims keep running."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._close_spawner()

    def _close_spawner(self) -> None:
        if self._spawner:
            self._spawner.close()
        self._spawner = None

    def directory(self, dispatch: str) -> Path:
        path = self._files(dispatch).directory
        if dispatch not in self._made:
            self._fetch(dispatch)
            make_below(self._directory.parent, path / OWN)
            self._made.add(dispatch)
        return path

    def expect_new(self, dispatch: str) -> None:
        """No host has stored outputs of this dispatch: it was never recorded."""
        if self.stored is not None:
            self.stored.expect_new(dispatch)

    def _fetch(self, dispatch: str) -> None:
        """Write the outputs of a dispatch that ran on another host to files here, all or none."""
        path = self._files(dispatch).directory
        if self.stored is None or path.exists() or not (outputs := self.stored.read_all(dispatch)):
            return
        draft = path.with_name(f".{dispatch}.new")
        make_below(self._directory.parent, draft / OWN)
        for name, content in outputs.items():
            publish(draft / name, content, sync=False)
        draft.rename(path)

    def read(self, dispatch: str, name: str) -> str | None:
        return read_text(self.directory(dispatch) / name, follow=False)

    def write(self, dispatch: str, name: str, text: str) -> None:
        # Not synced: a power cut that loses the file also ends its reader.
        publish(self.directory(dispatch) / name, text.encode("utf-8", "surrogateescape"), sync=False)

    def start(self, launch: Launch) -> None:
        """Start the process under a shim, and return as soon as the shim runs. An id is started once."""
        files = DispatchFiles(self.directory(launch.id))
        for name, content in launch.files:
            publish(files.directory / name, content.encode("utf-8", "surrogateescape"), sync=True)
        request = to_json((str(files.directory), replace(launch, files=()))).encode()
        for _ in range(2):  # the spawner may have died
            lock = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if not lock_descriptor(lock, within_s=LOCK_CHECK_S) or files.standing() != NeverStarted():
                    raise Unreachable(f"dispatch {launch.id} has already been started; see {files.directory}")
                is_started = self._submit(launch, request, lock)
            finally:
                # Closed, not unlocked: the shim holds the same lock through its own descriptor.
                os.close(lock)
            # A shim that died without an answer may have started the process before.
            if is_started or files.locked():
                return
        raise Unreachable(f"no shim could be started; see {self._spawner_log}")

    def _submit(self, launch: Launch, text: bytes, lock: int) -> bool:
        """Give the dispatch to a new shim; False when it did not answer."""
        with contextlib.ExitStack() as on_failure, contextlib.suppress(OSError, struct.error):
            on_failure.callback(self._close_spawner)
            self._spawner = self._spawner or Spawner()
            self._spawner_log.touch(0o600)
            ours, theirs = socket.socketpair()
            link = on_failure.enter_context(ours)
            with theirs, self._spawner_log.open("ab") as log:
                kind = launch.reader.encode() or b" "
                socket.send_fds(self._spawner.socket, [kind], [theirs.fileno(), log.fileno()])
            link.settimeout(ANSWER_S)
            socket.send_fds(link, [_HEADER.pack(len(text))], [lock])
            link.sendall(text)
            (pid,) = _HEADER.unpack(link.recv(_HEADER.size))
            on_failure.pop_all()
            link.setblocking(False)
            self._links[launch.id] = link
            self._begun.add(launch.id)
            if shim := processes.process(pid):
                self._shims[launch.id] = shim
            return True
        return False

    def tell(self, dispatch: str, text: str) -> bool:
        """Give a message to the agent of a running dispatch; False when it takes none while it runs."""
        files = self._files(dispatch)
        kind = files.shim().reader if self._is_running(dispatch) else ""
        if not kind or not agent_of(kind).encode_message(text):
            return False
        make_below(files.directory, files.directory / TOLD)
        publish(files.directory / TOLD / f"{time.time_ns()}.txt", text.encode("utf-8", "surrogateescape"), sync=False)
        if shim := self._shim(dispatch):
            processes.send(shim, signal.SIGURG)
        return True

    def standing(self, dispatch: str) -> DispatchStanding:
        """Whether the dispatch runs, never started, or how it ended; Unreachable while the repository is missing."""
        if self._is_running(dispatch):
            return Running()  # also while the repository is missing, if it was started here
        self._fetch(dispatch)
        files = self._files(dispatch)
        standing = files.standing()
        if standing == NeverStarted() or (isinstance(standing, Outcome) and standing.ending is Ending.LOST):
            self._anchor.require()  # after reading: the repository may have been missing just then
        is_removed = standing == NeverStarted() and dispatch in self._begun
        return files.lost() if is_removed else standing

    def wait(self, ids: Collection[str], *, timeout_s: float | None) -> None:
        """Return when one has ended, on a wakeup, or when the time is up."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        longest_s = LONGEST_SLEEP_S if self.stored is None else STORE_S
        while True:
            if self.stored is not None:
                with contextlib.suppress(Unreachable, OSError):  # a database that is away gets it later
                    for dispatch in ids:
                        self.stored.add_files(self.directory(dispatch))
            rest = longest_s if deadline is None else min(longest_s, max(0.0, deadline - time.monotonic()))
            with contextlib.ExitStack() as stack:
                selector = stack.enter_context(selectors.DefaultSelector())
                if self._wakeup is not None:
                    selector.register(self._wakeup, selectors.EVENT_READ)
                for dispatch in ids:
                    shim, link = self._shim(dispatch), self._links.get(dispatch)
                    handle = os.dup(link.fileno()) if link else processes.descriptor(shim) if shim else None
                    if handle is not None:
                        stack.callback(os.close, handle)
                        selector.register(handle, selectors.EVENT_READ)
                    else:
                        rest = min(POLL_S if shim else UNBORN_POLL_S, rest)
                    if self.standing(dispatch) != Running():
                        return
                if selector.select(rest) or (deadline is not None and time.monotonic() >= deadline):
                    return

    def _shim(self, dispatch: str) -> Process | None:
        """Its live shim: the one started here, else the one that wrote its identity and holds the lock."""
        if not self._is_running(dispatch):
            return None
        return self._shims.get(dispatch) or processes.living(self._files(dispatch).shim().identity)

    def _is_running(self, dispatch: str) -> bool:
        """Whether a shim works on it: by the link to one that was started here, else by the lock."""
        link = self._links.get(dispatch)
        if link is None:
            return self._files(dispatch).locked()
        with contextlib.suppress(ConnectionError):
            try:
                link.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return True
        self._links.pop(dispatch, None)  # the shim has exited or died
        link.close()
        return False

    def list_live(self) -> dict[str, str]:
        """The run of each dispatch that runs, whoever started it, by its id."""
        ids = [path.name for path in self._directory.iterdir()] if self._directory.is_dir() else []
        return {id_: run_of(id_.rpartition(".")[0]) for id_ in ids if self._files(id_).locked()}

    def end(self, ids: Collection[str], *, grace_s: float) -> None:
        """End them and all their processes: ask, force after the grace, then end what is left."""
        self._signal_shims(ids, signal.SIGTERM, within_s=grace_s)
        self._signal_shims(ids, signal.SIGTERM, within_s=FORCED_S)
        self._signal_shims(ids, signal.SIGKILL, within_s=processes.KILLED_S)
        left = [dispatch for dispatch in ids if not self._is_running(dispatch)]
        processes.end_all(lambda: chain.from_iterable(map(processes.family, left)), grace_s=SWEEP_GRACE_S)

    def _signal_shims(self, ids: Collection[str], number: signal.Signals, *, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        running = [dispatch for dispatch in ids if self._is_running(dispatch)]
        until(
            lambda: all(self._shim(dispatch) or not self._is_running(dispatch) for dispatch in running),
            within_s=within_s,
            every_s=UNBORN_POLL_S,
        )
        shims = [shim for dispatch in running if (shim := self._shim(dispatch))]
        for shim in shims:
            processes.send(shim, number)
            processes.send(shim, signal.SIGCONT)  # it may be stopped
        processes.await_gone(shims, timeout_s=deadline - time.monotonic())

    def _files(self, dispatch: str) -> DispatchFiles:
        return DispatchFiles(self._directory / dispatch)
