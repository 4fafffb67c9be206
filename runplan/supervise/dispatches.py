"""Starts dispatches, follows them to their end, ends them, and takes up those of a runner that died."""

from __future__ import annotations

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
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace

from runplan import processes
from runplan.agents.context import READING
from runplan.agents.environment import own_environment
from runplan.errors import Unreachable
from runplan.polling import until
from runplan.processes import Process
from runplan.run.dispatch import OWN, Ending, NeverStarted, Outcome, Running
from runplan.settings.load import environment
from runplan.store.files import Anchor, lock_descriptor, make_below
from runplan.supervise import cgroups, files as bell
from runplan.supervise.files import DispatchFiles, directory_name, publish, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from runplan.run.dispatch import DispatchStanding, Launch

SPAWNER = "runplan.supervise.spawner"

#: A spawner that has not answered after this has to be called dead.
ANSWER_S = 30.0

#: A reader that asks whether a lock is held holds it itself for some microseconds.
LOOKED_AT_S = 0.02

#: Between the hand-over of a lock and the shim's first word there is nothing to wait on but time.
UNBORN_POLL_S = 0.005

#: Where the kernel has no process descriptors, living shims are looked at this often.
POLL_S = 0.05

#: The kernel refuses to sleep for much longer at once.
LONGEST_SLEEP_S = 86_400.0

#: What a shim gets to write its exit after it was told to kill at once.
FORCED_S = 2.0

#: For processes whose shim is gone.
SWEEP_GRACE_S = 0.5

_HEADER = struct.Struct("!I")


class Dispatches:
    """The dispatches of one repository, as one runner sees them; close it and they live on."""

    def __init__(
        self, directory: Path, *, wakeup: int | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`wakeup` is a descriptor that interrupts `wait` when it becomes readable."""
        self._directory = directory
        self._anchor = Anchor(directory.parent)
        self._wakeup = wakeup
        self._now = now
        self._spawner: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._made: set[str] = set()  #: dispatches whose directory is there
        self._shims: dict[str, Process] = {}  #: of dispatches that were started here or taken up
        self._due: dict[str, float] = {}  #: when those that run have to be over, at the latest
        self._rung: set[str] = set()  #: dispatches whose bell has woken us; once is enough, whoever rings

    def __enter__(self) -> Dispatches:
        self._sweep_groups()
        self._start_spawner()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the spawner go; shims and agents are not touched."""
        if self._socket:
            self._socket.close()
        if self._spawner:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._spawner.wait(timeout=ANSWER_S)
        self._socket = self._spawner = None

    def directory(self, dispatch: str) -> Path:
        """The directory of the dispatch; made when there is none."""
        path = self._directory / directory_name(dispatch)
        if dispatch not in self._made:
            make_below(self._directory.parent, path / OWN)
            self._made.add(dispatch)
        return path

    def read(self, dispatch: str, name: str) -> str | None:
        """The text of one of its files; None when there is none, or one that is too large."""
        return read_text(self.directory(dispatch) / name)

    def write(self, dispatch: str, name: str, text: str) -> None:
        """Put a file among them."""
        # Not synced: a power cut that takes it takes its reader along, and what we go by is in the journal.
        publish(self.directory(dispatch) / name, text.encode("utf-8", "surrogateescape"), sync=False)

    # --- starting -----------------------------------------------------------------------------------

    def start(self, launch: Launch) -> None:
        """Start the process under a shim and return as soon as that runs; an id is started once."""
        files = DispatchFiles(self.directory(launch.id))
        if launch.arm_at:
            bell.hang(files.directory)
        for name, content in launch.files:
            publish(files.directory / name, content.encode("utf-8", "surrogateescape"), sync=True)
        asked = to_builtins(replace(launch, files=()))
        text = json.dumps({"launch": asked, "directory": str(files.directory)}).encode()
        for _ in range(2):
            lock = _take_lock(files, launch.id)
            try:
                if files.standing_unlocked() != NeverStarted():
                    raise Unreachable(f"dispatch {launch.id} has already been started; see {files.directory}")
                shim = self._ask(text, lock)
            finally:
                # Closed, not unlocked: the shim holds the same lock through its own descriptor.
                os.close(lock)
            # A spawner that died without an answer may have forked the shim before that.
            if shim:
                self._shims[launch.id] = processes.process(shim) or Process(pid=shim, started="gone")
            if shim or files.locked():
                return
        raise Unreachable(f"no shim could be started; see {self._spawner_log}")

    def _ask(self, text: bytes, lock: int) -> int:
        """The pid of the new shim; 0 when the spawner did not answer."""
        if self._socket is None:
            self._start_spawner()
        assert self._socket is not None
        try:
            socket.send_fds(self._socket, [_HEADER.pack(len(text))], [lock])
            self._socket.sendall(text)
            if answer := self._socket.recv(_HEADER.size):
                return int(_HEADER.unpack(answer)[0])
        except OSError:
            pass
        self.close()
        return 0

    def _start_spawner(self) -> None:
        make_below(self._directory.parent, self._directory)
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_S)
        with theirs, self._spawner_log.open("ab") as log:
            self._spawner = subprocess.Popen(
                # -P: a repository's own json.py must not be taken for the library's.
                [sys.executable, "-P", "-m", SPAWNER, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd="/",
                env=own_environment(environment()),
                start_new_session=True,
            )
        self._socket = ours

    @property
    def _spawner_log(self) -> Path:
        return self._directory / "spawner.log"

    # --- following ----------------------------------------------------------------------------------

    def standing(self, dispatch: str) -> DispatchStanding:
        """Whether the dispatch runs, never started, or how it ended; Unreachable while the repository is not there."""
        if (runs := self._known_runs(dispatch)) is True:
            return Running()  # also while the repository is away
        files = self._files(dispatch)
        told = files.standing() if runs is None else files.standing_unlocked()
        if told == NeverStarted() or (isinstance(told, Outcome) and told.ending is Ending.LOST):
            self._anchor.require()  # after the look: what is not there now may have been away just then
        # It was started, so somebody took its records away.
        return files.lost() if runs is False and told == NeverStarted() else told

    def overdue(self, dispatch: str, *, left_s: float | None) -> bool:
        """Whether it has run for longer than it may; `left_s` is what it has left when this is first asked.

        From then on it is our own clock that counts, which stands still with its shim's while the machine sleeps.
        """
        if left_s is None:
            return False
        return self._now() >= self._due.setdefault(dispatch, self._now() + left_s)

    def wait(self, ids: Collection[str], *, timeout_s: float | None) -> None:
        """Return when one is not running any more, is overdue or has rung, on a wakeup, or when the time is up."""
        moments = [self._due[dispatch] for dispatch in ids if dispatch in self._due]
        moments += [] if timeout_s is None else [self._now() + timeout_s]
        deadline = min(moments, default=None)
        while True:
            rest = None if deadline is None else min(LONGEST_SLEEP_S, max(0.0, deadline - self._now()))
            if self._settled(ids, rest) or (deadline is not None and self._now() >= deadline):
                return

    def _settled(self, ids: Collection[str], timeout_s: float | None) -> bool:
        """Wait once; False when it has to be looked at again."""
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            if self._wakeup is not None:
                selector.register(self._wakeup, selectors.EVENT_READ)
            for dispatch in ids:
                handle = self._handle(dispatch)
                if handle is not None:
                    stack.callback(os.close, handle)
                    selector.register(handle, selectors.EVENT_READ)
                if self.standing(dispatch) != Running():
                    return True
                if self._has_rung(dispatch, selector, stack):
                    return True
                if handle is None:
                    look_again_s = POLL_S if self._files(dispatch).shim_identity() else UNBORN_POLL_S
                    timeout_s = look_again_s if timeout_s is None else min(look_again_s, timeout_s)
            ready = selector.select(timeout_s)
            self._rung |= {key.data for key, _ in ready if key.data is not None}
            return bool(ready)

    def _has_rung(self, dispatch: str, selector: selectors.BaseSelector, stack: contextlib.ExitStack) -> bool:
        """Listen to its bell; True when it rang before anybody listened."""
        directory = self._directory / directory_name(dispatch)
        if dispatch in self._rung or (handle := bell.listen(directory)) is None:
            return False
        stack.callback(os.close, handle)
        selector.register(handle, selectors.EVENT_READ, dispatch)
        if not (directory / READING).exists():
            return False
        self._rung.add(dispatch)
        return True

    def _handle(self, dispatch: str) -> int | None:
        """A descriptor that becomes readable when the shim ends, if there is one already."""
        shim = self._shim(dispatch)
        return processes.descriptor(shim) if shim else None

    def _shim(self, dispatch: str) -> Process | None:
        """Its living shim: the one that answered us, else the one that wrote its identity and holds the lock."""
        if dispatch not in self._shims:
            files = self._files(dispatch)
            if files.locked() and (found := processes.living(files.shim_identity() or "")):
                self._shims[dispatch] = found
        return self._shims[dispatch] if self._known_runs(dispatch) else None

    def _known_runs(self, dispatch: str) -> bool | None:
        """Whether its shim lives; None when nobody here has seen it."""
        known = self._shims.get(dispatch)
        return None if known is None else processes.lives(known)

    # --- ending -------------------------------------------------------------------------------------

    def end(self, ids: Collection[str], *, grace_s: float) -> None:
        """End them with all they started: all are asked first, forced after the grace, and swept when they are over."""
        self._ask_shims(ids, signal.SIGTERM, patience_s=grace_s)
        self._ask_shims(ids, signal.SIGTERM, patience_s=FORCED_S)
        self._ask_shims(ids, signal.SIGKILL, patience_s=processes.KILLED_S)
        self.sweep(ids)

    def _ask_shims(self, ids: Collection[str], number: signal.Signals, *, patience_s: float) -> None:
        """Signal all of them before waiting for any."""
        deadline = time.monotonic() + patience_s
        asked: dict[str, Process] = {}

        def all_asked() -> bool:
            unborn = [dispatch for dispatch in ids if dispatch not in asked and self._runs(dispatch)]
            for dispatch in unborn:
                if shim := self._shim(dispatch):
                    asked[dispatch] = shim
                    processes.send(shim, number)
                    processes.send(shim, signal.SIGCONT)  # somebody may have stopped it
            return all(dispatch in asked for dispatch in unborn)

        until(all_asked, within_s=patience_s, every_s=UNBORN_POLL_S)
        processes.await_gone(asked.values(), timeout_s=deadline - time.monotonic())

    def _runs(self, dispatch: str) -> bool:
        """The same as its standing tells, for those who end it: that need not wait until the repository is back."""
        known = self._known_runs(dispatch)
        return self._files(dispatch).locked() if known is None else known

    def sweep(self, ids: Collection[str]) -> int:
        """End the processes that dispatches left whose shim died; says how many there were."""
        over = [dispatch for dispatch in ids if not self._runs(dispatch)]
        files = [self._files(dispatch) for dispatch in over]
        groups = [group for one in files for group in cgroups.left(one.directory, told=one.cgroup())]

        def marked() -> list[Process]:
            return [process for dispatch in over for process in processes.marked(dispatch)]

        return cgroups.end(groups, marked, grace_s=SWEEP_GRACE_S)

    def _sweep_groups(self) -> None:
        """End what is left in the control groups of dispatches that are over, also those the journal does not know."""
        for name in cgroups.all_left(self._directory):
            files = DispatchFiles(self._directory / name)
            # Whoever starts one has the lock before there is a group, and the shim until there is none.
            if not files.locked():
                cgroups.end(cgroups.left(files.directory, told=""), list, grace_s=SWEEP_GRACE_S)

    def _files(self, dispatch: str) -> DispatchFiles:
        return DispatchFiles(self._directory / directory_name(dispatch))


def _take_lock(files: DispatchFiles, dispatch: str) -> int:
    descriptor = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if lock_descriptor(descriptor, within_s=LOOKED_AT_S):
        return descriptor
    os.close(descriptor)
    raise Unreachable(f"dispatch {dispatch} is already running; see {files.directory}")
