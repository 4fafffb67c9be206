"""The daemon's one main thread: listens to callers, to signals and to the clock; the work is done at desks.

It is also what callers ask beside the work: to end, to go by other settings, what is measured.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import threading
import time
import traceback
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from runplan import __version__
from runplan.adapters import notify, remote, sdnotify, singleton
from runplan.adapters.clock import SystemClock
from runplan.adapters.configurations import Configurations
from runplan.adapters.control.server import ControlServer
from runplan.adapters.engines.local import Timers
from runplan.adapters.logs import open_log
from runplan.adapters.measuring import metrics_text, this_process
from runplan.adapters.noticed import Noticed
from runplan.adapters.notify import Notifier
from runplan.adapters.places import socket_path, socket_paths, state_directory
from runplan.adapters.repositories import Repositories
from runplan.app.daemon import Daemon
from runplan.app.draining import Drain
from runplan.app.pulse import Pulse
from runplan.core.errors import NotFound, RefusedEarly, Unreachable
from runplan.core.notices import of_settings
from runplan.core.times import iso
from runplan.core.turns import Turns
from runplan.wiring.answering import Answering
from runplan.wiring.audience import DaemonAudience
from runplan.wiring.beside import Besides
from runplan.wiring.desks import Environments, open_desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from runplan.adapters.singleton import Held
    from runplan.ports import Log

LOOK_S = 60.0  #: the one timer: the watchdog, settings, and a clock that jumped while the machine slept
LOG = "daemon.log"
CLOSING_S = 60.0  #: what the step that is being taken may need, when it is time to let go
STEP_S = 10.0  #: after which it is waited for no longer, unless it is interrupted by ending what it asks a remote
AT_ONCE_S = 0.5
TRACED = 8  #: calls of a trace that are logged
TOLD_S = 2.0  #: what the last notifications get to be sent


def serve(env: Mapping[str, str]) -> None:
    """Be the user's daemon until somebody ends it; refused when there is one."""
    state, path = state_directory(env), socket_path(env)
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)  # whoever knows of us may ring before we can listen
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
        self._lost = False  #: somebody took our state away
        self._unheard = ""  #: why nobody can reach us
        self._began = time.monotonic()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

        self._known = Repositories(state_directory(env))
        self._configurations = Configurations(env, self._settings_told)
        self._audience = DaemonAudience(log, self._notifier(), Noticed(state_directory(env)))
        self._timers = Timers()
        settings = self._configurations.user.daemon
        environments = Environments(env)
        self._daemon = Daemon(
            functools.partial(open_desk, environments=environments, configurations=self._configurations),
            timers=self._timers,
            clock=SystemClock(),
            audience=self._audience,
            turns=Turns(host=settings.max_parallel, repository=settings.max_parallel_repository),
            rested=lambda: self.post(lambda: None),  # a look at whether all is at rest now
            beside=Besides(self._known),
            begins=lambda: not self._drain.begun,
        )
        self._drain = Drain(
            self._daemon,
            grace_s=lambda: self._configurations.user.daemon.grace_s,
            told=self._drain_told,
            interrupt=remote.CALLS.end,
        )
        self._answering = Answering(self._daemon, self, environments=environments, clock=SystemClock())
        self._audience.followers = self._answering

    def run(self) -> None:
        with self._signals():
            self._serve()
            self._timers.close()
            self._close()
            self._audience.notifier.flush(within_s=0.0 if self._drain.at_once else TOLD_S)
            notify.CALLS.close()
        self._log.info("stopped")

    def _serve(self) -> None:
        with ControlServer(self._answering, path=self._path, held=self._held, failed=self._request_failed) as server:
            self._log.info("started", version=__version__, pid=os.getpid(), socket=str(self._path))
            recalled = self._known.recall()
            for note in recalled.notes:
                self._log.warning("repositories", words=note)
            self._daemon.take_over(one.root for one in recalled.known)
            sdnotify.notify(self._env, sdnotify.READY)
            self._turn(server)
            self._log.info("stopping")
            sdnotify.notify(self._env, sdnotify.STOPPING, sdnotify.extended(CLOSING_S))

    def post(self, task: Callable[[], None]) -> None:
        """Let something be done in the main thread; may be called from any."""
        self._tasks.append(task)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_w, b".")

    def _turn(self, server: ControlServer) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(server.fileno(), selectors.EVENT_READ)
            selector.register(self._wake_r, selectors.EVENT_READ)
            pulse = Pulse(self._look_s(), look=self._look, jumped=self._daemon.look_again)
            while not (self._lost or self._drain.over):
                left_s = self._drain.left_s
                selector.select(pulse.left_s if left_s is None else min(pulse.left_s, left_s))
                self._clear()
                self._attempt(server.ready)
                self._do_tasks()
                self._attempt(server.ready)
                self._attempt(pulse.beat)
                self._stay_reachable(server)

    def _do_tasks(self) -> None:
        while self._tasks:
            self._attempt(self._tasks.popleft())

    def _attempt(self, task: Callable[[], None]) -> None:
        """Log an unexpected error of one task; the next one is done all the same."""
        try:
            task()
        except Exception as error:  # noqa: BLE001 - the edge of a task: it must not end the daemon
            self._log.error("task-failed", error=error, trace=traceback.format_exc(limit=-TRACED))

    def _request_failed(self, verb: str, error: Exception) -> None:
        self._log.error("request-failed", verb=verb, error=error, trace=traceback.format_exc(limit=-TRACED))

    def _look(self) -> None:
        """What the one timer is for, beside a clock that jumped."""
        self.reload(anew=False)
        self._daemon.remind()
        if not (state_directory(self._env) / singleton.LOCK).exists():
            self._log.warning("ending", words="its state was taken away; another daemon may be there")
            self._lost = True
        sdnotify.notify(self._env, sdnotify.WATCHDOG)

    def _stay_reachable(self, server: ControlServer) -> None:
        """Whatever woke us, it is a good moment to see whether somebody took our socket away."""
        try:
            if (path := server.stay(socket_paths(self._env))) is None:
                return
            self._unheard = ""
            self._log.warning("socket", words="its socket was taken away; it listens anew", socket=str(path))
            self._held.listens(path)
        except (Unreachable, OSError) as error:
            if self._unheard != str(error):
                self._log.error("unheard", words=f"nobody can reach this daemon: {error}; it tries again")
            self._unheard = str(error)

    def _look_s(self) -> float:
        """How often it wakes without a reason: for a service manager that watches, more often than that asks."""
        watched = sdnotify.watchdog_s(self._env)
        return min(LOOK_S, watched / 2) if watched else LOOK_S

    def _clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass

    # --- how it ends --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def on_end(number: int, _: object) -> None:
            self.post(lambda: self._log.info("signal", number=number))
            self.post(self._drain.ask)

        def on_reload(_number: int, _: object) -> None:
            self.post(lambda: self.reload(anew=True))

        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        signal.signal(signal.SIGTERM, on_end)
        signal.signal(signal.SIGINT, on_end)
        signal.signal(signal.SIGHUP, on_reload)
        # The kernel may give a signal to any thread; only this way the main one, whose it is, wakes up for it.
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _close(self) -> None:
        """Let go of every desk, in a thread of its own: whatever holds that up, a word more ends us at once."""
        closer = threading.Thread(target=self._let_go, name="closing", daemon=True)
        closer.start()
        until = time.monotonic() + CLOSING_S
        while closer.is_alive() and time.monotonic() < until and not self._drain.at_once:
            closer.join(0.05)
            self._do_tasks()
        closer.join(2 * AT_ONCE_S)
        remote.CALLS.close()  # what they have begun does not outlive us

    def _let_go(self) -> None:
        within_s = AT_ONCE_S if self._drain.at_once else STEP_S
        if self._daemon.close(within_s):
            return
        remote.CALLS.end()
        if not self._daemon.close(within_s):
            self._log.warning(
                "unfinished", words="a step is being taken that takes long; the next daemon goes on there"
            )

    def _drain_told(self, step: str, within_s: float) -> None:
        until = iso(SystemClock().now() + timedelta(seconds=within_s))
        try:
            self._held.drains(until)
        except OSError as error:  # whoever asks hears it all the same, and whoever only looks does not
            self._log.warning("untold", words=f"{singleton.RECORD} cannot be written: {error.strerror}")
        self._log.info(step, until=until)
        status = f"STATUS={step.replace('-', ' ')}, until {until}"
        sdnotify.notify(self._env, sdnotify.STOPPING, sdnotify.extended(within_s + CLOSING_S), status)

    def hand_over(self) -> None:
        self._drain.hand_over()

    @property
    def refusal(self) -> str:
        return self._drain.refusal

    # --- its settings -------------------------------------------------------------------------------------

    def reload(self, *, anew: bool) -> None:
        changed = self._configurations.look(anew=anew)
        if changed.user:
            settings = self._configurations.user.daemon
            self._daemon.turns.resize(host=settings.max_parallel, repository=settings.max_parallel_repository)
            self._audience.notifier = self._notifier()
        if changed.user or changed.roots:
            self._log.info("settings-changed", user=changed.user, repositories=list(changed.roots))
        for root in changed.roots:
            self._daemon.keeper(root).reload()
        if anew:
            self._daemon.take_over(self._daemon.roots)

    def _notifier(self) -> Notifier:
        return Notifier(self._configurations.user.notify, self._log, env=self._env)

    def _settings_told(self, whose: str, words: str) -> None:
        if not words:
            self._log.info("settings-mended", repository=whose)
            return
        self._log.error(
            "settings", repository=whose, words=f"{words}; going on with the settings that were good before"
        )
        self._audience.notifier.send(of_settings(words, repository=whose))

    # --- what it knows ------------------------------------------------------------------------------------

    def about(self) -> Mapping[str, Any]:
        return {"draining": self._held.holder.draining or None, "settings": list(self._configurations.troubles)}

    def remember(self, root: str) -> None:
        from runplan.adapters.repository import open_repository

        no_checkout = NotFound(f"{root} is not the checkout of a repository")
        if not Path(root).is_dir():
            raise no_checkout
        repository = open_repository(Path(root), env=self._env)
        try:
            if repository.root.resolve() != Path(root).resolve():
                raise no_checkout
            self._known.add(common=repository.common_dir, root=repository.root, at=iso(SystemClock().now()))
        finally:
            repository.git.close()

    def metrics(self) -> str:
        states = {one.root: Path(one.common) / "runplan" for one in self._known.there()}
        turns = self._daemon.turns.now
        process = this_process(
            version=__version__,
            uptime_s=time.monotonic() - self._began,
            repositories=len(states),
            working=len(turns.working),
            queued=len(turns.waiting),
        )
        return metrics_text(states, now=SystemClock().now(), process=process)
