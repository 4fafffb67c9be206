"""The daemon's one main thread: listens to callers, to signals and to the clock; the work is done at desks."""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from runplan import __version__
from runplan.adapters import sdnotify, singleton
from runplan.adapters.clock import SystemClock
from runplan.adapters.control.server import ControlServer
from runplan.adapters.engines.local import Timers
from runplan.adapters.logs import open_log
from runplan.adapters.measuring import metrics_text, this_process
from runplan.adapters.notify import Notifier
from runplan.adapters.places import socket_path, state_directory
from runplan.adapters.repositories import Repositories
from runplan.adapters.settings import load_user
from runplan.app.daemon import Daemon
from runplan.core.errors import RefusedEarly
from runplan.core.times import iso
from runplan.core.turns import Turns
from runplan.wiring.answering import Answering
from runplan.wiring.audience import DaemonAudience
from runplan.wiring.desks import Configurations, Environments, open_desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runplan.adapters.singleton import Held
    from runplan.ports import Log

LOOK_S = 60.0  #: the one timer: the watchdog, and a clock that jumped while the machine slept
LOG = "daemon.log"


def serve(env: Mapping[str, str]) -> None:
    """Be the user's daemon until somebody ends it; refused when there is one."""
    state, path = state_directory(env), socket_path(env)
    taken = singleton.take(state, version=__version__, since=iso(SystemClock().now()), socket=path, wait_s=1.0)
    if isinstance(taken, singleton.Occupied):
        raise RefusedEarly(str(taken))
    with taken as held, contextlib.closing(open_log(state / LOG)) as log:
        _Loop(env, held, log, path).run()


class _Loop:
    """Everything that happens in the main thread."""

    def __init__(self, env: Mapping[str, str], held: Held, log: Log, path: Path) -> None:
        self._env = env
        self._held = held
        self._log = log
        self._path = path
        self._tasks: deque[Callable[[], None]] = deque()
        self._ending = False
        self._began = time.monotonic()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

    def run(self) -> None:
        settings = load_user(self._env)
        clock = SystemClock()
        timers = Timers()
        environments = Environments(self._env)
        configurations = Configurations(lambda root, words: self._log.warning("settings", repository=root, words=words))
        audience = DaemonAudience(self._log, Notifier(settings.notify, self._log, env=self._env))
        daemon = Daemon(
            functools.partial(open_desk, environments=environments, configurations=configurations),
            timers=timers,
            clock=clock,
            audience=audience,
            turns=Turns(host=settings.daemon.max_parallel, repository=settings.daemon.max_parallel_repository),
        )
        known = Repositories(state_directory(self._env))
        answering = Answering(
            daemon,
            environments=environments,
            clock=clock,
            post=self.post,
            known=lambda root: self._remember(known, root),
            metrics=lambda: self._metrics(daemon, known),
            drain=self.end,
        )
        audience.followers = answering
        with ControlServer(answering, path=self._path, held=self._held) as server, self._signals(daemon):
            self._log.info("started", version=__version__, pid=os.getpid(), socket=str(self._path))
            recalled = known.recall()
            for note in recalled.notes:
                self._log.warning("repositories", words=note)
            daemon.take_over(one.root for one in recalled.known)
            sdnotify.notify(self._env, sdnotify.READY)
            self._turn(server, timers)
            self._log.info("stopping")
            sdnotify.notify(self._env, sdnotify.STOPPING)
        timers.close()
        daemon.close()
        self._log.info("stopped")

    def post(self, task: Callable[[], None]) -> None:
        """Let something be done in the main thread; may be called from any."""
        self._tasks.append(task)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_w, b".")

    def end(self) -> None:
        """No further step; what runs lives on under its shims, and the next daemon takes it up."""
        self._ending = True

    def _turn(self, server: ControlServer, timers: Timers) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(server.fileno(), selectors.EVENT_READ)
            selector.register(self._wake_r, selectors.EVENT_READ)
            last, look_s = time.time(), self._look_s()
            while not self._ending:
                selector.select(look_s)
                self._clear()
                server.ready()
                while self._tasks:
                    self._tasks.popleft()()
                server.ready()
                now = time.time()
                if abs(now - last) >= look_s - 1:
                    timers.look_again()
                    if not (state_directory(self._env) / singleton.LOCK).exists():
                        self._log.warning("ending", words="its state was taken away; another daemon may be there")
                        self.end()
                    sdnotify.notify(self._env, sdnotify.WATCHDOG)
                    last = now

    def _look_s(self) -> float:
        """How often it wakes without a reason: for a service manager that watches, more often than that asks."""
        watched = sdnotify.watchdog_s(self._env)
        return min(LOOK_S, watched / 2) if watched else LOOK_S

    def _clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass

    def _remember(self, known: Repositories, root: str) -> None:
        from runplan.adapters.repository import open_repository

        repository = open_repository(Path(root), env=self._env)
        try:
            known.add(common=repository.common_dir, root=repository.root, at=iso(SystemClock().now()))
        finally:
            repository.git.close()

    def _metrics(self, daemon: Daemon, known: Repositories) -> str:
        states = {one.root: Path(one.common) / "runplan" for one in known.recall().known}
        turns = daemon.turns.now
        process = this_process(
            version=__version__,
            uptime_s=time.monotonic() - self._began,
            repositories=len(states),
            working=len(turns.working),
            queued=len(turns.waiting),
        )
        return metrics_text(states, now=SystemClock().now(), process=process)

    @contextlib.contextmanager
    def _signals(self, daemon: Daemon) -> Iterator[None]:
        def on_end(number: int, _: object) -> None:
            self.post(lambda: self._log.info("signal", number=number))
            self.post(self.end)

        def on_reload(_number: int, _: object) -> None:
            self.post(lambda: daemon.take_over(daemon.roots))

        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        signal.signal(signal.SIGTERM, on_end)
        signal.signal(signal.SIGINT, on_end)
        signal.signal(signal.SIGHUP, on_reload)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
