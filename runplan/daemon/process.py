"""The daemon process: its main thread, and the requests of callers."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
import traceback
from collections import deque
from concurrent.futures import wait
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from runplan import __version__
from runplan.clock import SystemClock
from runplan.daemon import notify, protocol, service, singleton
from runplan.daemon.lifecycle import Drain, Pulse
from runplan.daemon.logs import open_log
from runplan.daemon.notify import Notifier
from runplan.daemon.observer import Follower, Noticed, Observer
from runplan.daemon.protocol import Hello
from runplan.daemon.repositories import Configurations, Repositories
from runplan.daemon.server import listen
from runplan.daemon.slots import HostSlots, SlotTable, Timers
from runplan.daemon.worker import BUSY_S, DaemonWorker, Services
from runplan.engine.context import context_at
from runplan.engine.repository import open_repository
from runplan.errors import NotFound, RefusedEarly, Unreachable
from runplan.git import remote
from runplan.report.figures import metrics_text, this_process
from runplan.report.notices import of_settings
from runplan.run.rows import UNFINISHED, Command
from runplan.settings.load import variables
from runplan.settings.places import socket_path, socket_paths, state_directory
from runplan.store.files import not_there
from runplan.store.sqlite import Store
from runplan.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from runplan.daemon.logs import Log
    from runplan.daemon.protocol import Request
    from runplan.daemon.server import Caller, ControlServer
    from runplan.daemon.singleton import Held
    from runplan.engine.environments import Environments
    from runplan.engine.repository import OpenRepository

LOOK_S = 60.0  #: the one timer: the watchdog, settings, and a clock that jumped while the machine slept
LOG = "daemon.log"
CLOSING_S = 60.0  #: time limit for the current steps at shutdown
STEP_S = 10.0  #: after this, calls to remotes are ended so that the steps end
AT_ONCE_S = 0.5
TRACED = 8  #: calls of a trace that are logged
NOTIFY_S = 2.0  #: for the last notifications


def serve(env: Mapping[str, str]) -> None:
    """Run the user's daemon until it is ended; refused when one runs."""
    state, path = state_directory(env), socket_path(env)
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)  # a client may send it before the handlers are set
    taken = singleton.take(state, version=__version__, since=iso(SystemClock().now()), socket=path, wait_s=1.0)
    if isinstance(taken, singleton.Occupied):
        raise RefusedEarly(str(taken))
    with taken as held, contextlib.closing(open_log(state / LOG)) as log:
        DaemonProcess(env, held, log, path).run()


class DaemonProcess:
    """The main thread: accepts callers, handles signals and timers. Workers do the work."""

    def __init__(self, env: Mapping[str, str], held: Held, log: Log, path: Path) -> None:
        self._env = env
        self._held = held
        self._log = log
        self._path = path
        self._tasks: deque[Callable[[], None]] = deque()
        self._lost = False  #: the state directory was removed
        self._unheard = ""  #: why the socket cannot be opened
        self._began = time.monotonic()
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)

        self._known = Repositories(state_directory(env))
        self._configurations = Configurations(env, self._settings_told)
        self._observer = Observer(log, self._notifier(), Noticed(state_directory(env)))
        self._timers = Timers()
        self._reloading = threading.Lock()
        self._lock = threading.Lock()
        self._workers: dict[str, DaemonWorker] = {}
        settings = self._configurations.user.daemon
        slots = SlotTable(host=settings.max_parallel, repository=settings.max_parallel_repository)
        self._slots = HostSlots(slots, self._slot_is_free)
        self._services = Services(
            open_up=self._open,
            # Without settings variables, which would apply to the runs of every caller.
            environment={name: value for name, value in env.items() if name not in variables(env)},
            timers=self._timers,
            clock=SystemClock(),
            slots=self._slots,
            observer=self._observer,
            may_begin=lambda: not self._drain.begun,
            rested=lambda: self.post(lambda: None),  # wakes the loop, which checks whether it may end
        )
        self._drain = Drain(
            self,
            grace_s=lambda: self._configurations.user.daemon.grace_s,
            told=self._drain_told,
            interrupt=remote.CALLS.end,
        )

    def run(self) -> None:
        with self._signals():
            self._serve()
            self._timers.close()
            self._close()
            self._observer.notifier.flush(within_s=0.0 if self._drain.at_once else NOTIFY_S)
            notify.CALLS.close()
        self._log.info("stopped")

    def _serve(self) -> None:
        server = listen(self, [self._path])
        try:
            self._log.info("started", version=__version__, pid=os.getpid(), socket=str(self._path))
            self._recall()
            service.notify(self._env, service.READY)
            server = self._loop(server)
            self._log.info("stopping")
            service.notify(self._env, service.STOPPING, service.extended(CLOSING_S))
        finally:
            server.close()

    def _recall(self) -> None:
        """Resume the unfinished runs and schedules of the known repositories."""
        recalled = self._known.recall()
        for note in recalled.notes:
            self._log.warning("repositories", words=note)
        before = self._all()
        with self._lock:
            workers = [self._worker_of(one.root, Path(one.common) / "runplan") for one in recalled.known]
        self._slots.expect(worker.root for worker in workers if worker not in before)
        for worker in workers:
            worker.wake()

    def post(self, task: Callable[[], None]) -> None:
        """Run a task in the main thread; may be called from any thread."""
        self._tasks.append(task)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_w, b".")

    def _loop(self, server: ControlServer) -> ControlServer:
        """Serve until it is time to end; the current server."""
        pulse = Pulse(self._look_s(), look=self._look, jumped=self._look_again)
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_r, selectors.EVENT_READ)
            selector.register(server.fileno(), selectors.EVENT_READ)
            while not (self._lost or self._drain.over):
                left_s = self._drain.left_s
                selector.select(pulse.left_s if left_s is None else min(pulse.left_s, left_s))
                self._clear()
                self._attempt(server.handle_request)
                self._do_tasks()
                self._attempt(pulse.beat)
                if not server.is_reachable and (other := self._listen_anew()) is not None:
                    selector.unregister(server.fileno())
                    server.close()
                    server = other
                    selector.register(server.fileno(), selectors.EVENT_READ)
        return server

    def _do_tasks(self) -> None:
        while self._tasks:
            self._attempt(self._tasks.popleft())

    def _attempt(self, task: Callable[[], None]) -> None:
        """Run a task; an unexpected error is logged."""
        try:
            task()
        except Exception as error:  # noqa: BLE001 - the edge of a task: it must not end the daemon
            self._log.error("task-failed", error=error, trace=traceback.format_exc(limit=-TRACED))

    def request_failed(self, verb: str, error: Exception) -> None:
        self._log.error("request-failed", verb=verb, error=error, trace=traceback.format_exc(limit=-TRACED))

    def _look(self) -> None:
        """The periodic check: settings, unstored commands, the lock file, and the watchdog."""
        self.reload(anew=False)
        for worker in self._all():
            if worker.retries:
                worker.wake()
        if not (state_directory(self._env) / singleton.LOCK).exists():
            self._log.warning("ending", words="its lock file was removed; another daemon may run")
            self._lost = True
        service.notify(self._env, service.WATCHDOG)

    def _look_again(self) -> None:
        """Check what is due after the machine slept or its clock was set."""
        self._timers.look_again()
        for worker in self._all():
            worker.wake()

    def _listen_anew(self) -> ControlServer | None:
        """Open the socket again after it was removed, as a logout does; connections stay open."""
        server = None
        try:
            server = listen(self, socket_paths(self._env))
            self._held.listens(server.path)
        except (Unreachable, OSError) as error:
            if server is not None:
                server.close()
            if self._unheard != str(error):
                self._log.error("unheard", words=f"the socket cannot be opened: {error}; trying again")
            self._unheard = str(error)
            return None
        self._unheard = ""
        self._log.warning("socket", words="the socket was removed; opened it again", socket=str(server.path))
        return server

    def _look_s(self) -> float:
        """The interval of the periodic check; at most half the watchdog's."""
        watched = service.watchdog_s(self._env)
        return min(LOOK_S, watched / 2) if watched else LOOK_S

    def _clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake_r, 4096):
                pass

    # --- workers ------------------------------------------------------------------------------------------

    def worker(self, root: str) -> DaemonWorker:
        """The worker of the repository, which is remembered from now on."""
        with self._lock:
            found = self._workers.get(root)
        if found is not None and _can_serve(found, root):
            return found
        state = self._remember(root) / "runplan"
        with self._lock:
            return self._worker_of(root, state)

    def _worker_of(self, root: str, state: Path) -> DaemonWorker:
        """The one worker of that journal, for every checkout of the repository; call it under the lock."""
        of_journal = (one for one in self._workers.values() if one.state == state)
        found = next((one for one in of_journal if _can_serve(one, root)), None)
        self._workers[root] = found or DaemonWorker(root, state, self._services)
        return self._workers[root]

    def _all(self) -> list[DaemonWorker]:
        with self._lock:
            return list(dict.fromkeys(self._workers.values()))

    def _slot_is_free(self, root: str) -> None:
        with self._lock:
            worker = self._workers.get(root)
        if worker is not None:
            worker.wake()

    def _remember(self, root: str) -> Path:
        """Add the repository to the list; its common git directory. Refused where there is none."""
        from runplan.git.discovery import open_repository as look_at

        no_checkout = NotFound(f"{root} is not the checkout of a repository")
        if not Path(root).is_dir():
            known = [Path(one.common) for one in self._known.there() if one.root == root]
            if known:
                return known[0]  # away for a moment
            raise no_checkout
        repository = look_at(Path(root), env=self._env)
        try:
            if repository.root.resolve() != Path(root).resolve():
                raise no_checkout
            self._known.add(common=repository.common_dir, root=repository.root, at=iso(SystemClock().now()))
            return repository.common_dir
        finally:
            repository.git.close()

    @contextlib.contextmanager
    def _open(self, root: str, wakeup: int, environments: Environments) -> Iterator[OpenRepository]:
        """Open the repository at `root`, and not one around it."""
        if not Path(root).is_dir():
            raise not_there(Path(root))
        read = self._configurations.read
        with context_at(Path(root), self._services.environment, read) as at:
            if at.repository.root.resolve() != Path(root).resolve():
                raise not_there(Path(root))
            with open_repository(
                at,
                wakeup=wakeup,
                environment=environments.of,
                settings=lambda: read(at.repository.root, self._services.environment),
            ) as repository:
                yield repository

    @property
    def at_rest(self) -> bool:
        """Whether nothing is being done anywhere."""
        return all(worker.at_rest for worker in self._all())

    def drain(self) -> None:
        """Wake every busy worker, so that it starts nothing new."""
        for worker in self._all():
            if not worker.at_rest:
                worker.wake()

    def end_agents(self) -> None:
        """End every process; the next daemon starts the same ones again."""
        for worker in self._all():
            worker.end_agents()

    # --- requests; in the threads of callers ----------------------------------------------------------------

    @property
    def hello(self) -> Hello:
        holder = self._held.holder
        return Hello(
            version=holder.version,
            pid=os.getpid(),
            since=holder.since,
            speaks=(protocol.PROTOCOL,),
            draining=self._drain.refusal,
        )

    def answer(self, request: Request, caller: Caller) -> Mapping[str, Any]:
        if request.verb == "ping":
            return protocol.hello_fields(self.hello)
        self.reload(anew=request.verb == "reload")
        match request.verb:
            case "metrics":
                return {"text": self._metrics()}
            case "status":
                return self._status()
            case "follow":
                return self._follow(request, caller)
            case "lend":
                env = {str(name): str(value) for name, value in (request.fields.get("env") or {}).items()}
                self.worker(str(request.fields.get("root") or "")).environments.receive(
                    str(request.fields["name"]), env
                )
            case "submit":
                return self._submit(request, caller)
            case "drain":
                self.post(self._drain.hand_over)
        return {}

    def _submit(self, request: Request, caller: Caller) -> Mapping[str, Any]:
        """Execute commands: stored ones by number, unstored ones from the request."""
        worker = self.worker(str(request.fields.get("root") or ""))
        root = worker.root
        numbers = [int(number) for number in request.fields.get("commands") or ()]
        futures = [self._observer.expect(root, number) for number in numbers]
        for command in request.fields.get("unstored") or ():
            worker.submit(Command(**command))
        worker.wake(commands=bool(numbers))
        if numbers:  # a worker that was awake may have answered before we asked
            for number, answer in worker.answers(numbers).items():
                self._observer.resolve(root, number, answer)
        if request.fields.get("wait"):
            return {"answers": [to_builtins(caller.wait_for(one)) for one in futures]}
        wait(futures, timeout=BUSY_S)
        return {"answers": [to_builtins(one.result()) if one.done() else None for one in futures]}

    def _follow(self, request: Request, caller: Caller) -> Mapping[str, Any]:
        """Stream the events of a run until it ends or waits for a person."""
        root, plan, run = (str(request.fields.get(name) or "") for name in ("root", "plan", "run"))
        worker = self.worker(root)
        follower = Follower(worker.root, plan, run)
        self._observer.follow(follower)
        try:
            if not _goes_on(worker.state, plan, run):
                return {"outcome": "waiting"}
            return caller.tell(follower)
        finally:
            self._observer.unfollow(follower)

    def _status(self) -> Mapping[str, Any]:
        slots = self._slots.now
        return {
            "repositories": [worker.root for worker in self._all()],
            "closed": [to_builtins(worker.trouble) for worker in self._all() if worker.trouble is not None],
            "working": slots.working,
            "queued": slots.waiting,
            "draining": self._held.holder.draining or None,
            "settings": list(self._configurations.troubles),
        }

    def _metrics(self) -> str:
        states = {one.root: Path(one.common) / "runplan" for one in self._known.there()}
        slots = self._slots.now
        process = this_process(
            version=__version__,
            uptime_s=time.monotonic() - self._began,
            repositories=len(states),
            working=len(slots.working),
            queued=len(slots.waiting),
        )
        return metrics_text(states, now=SystemClock().now(), process=process)

    # --- shutdown -----------------------------------------------------------------------------------------

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
        # A signal may reach any thread; the descriptor wakes the main one.
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _close(self) -> None:
        """Close the workers in a thread, so that another signal can still end the process at once."""
        closer = threading.Thread(target=self._let_go, name="closing", daemon=True)
        closer.start()
        until = time.monotonic() + CLOSING_S
        while closer.is_alive() and time.monotonic() < until and not self._drain.at_once:
            closer.join(0.05)
            self._do_tasks()
        closer.join(2 * AT_ONCE_S)
        remote.CALLS.close()

    def _let_go(self) -> None:
        within_s = AT_ONCE_S if self._drain.at_once else STEP_S
        if self._close_workers(within_s):
            return
        remote.CALLS.end()
        if not self._close_workers(within_s):
            words = "a step did not end in time; the next daemon repeats it"
            self._log.warning("unfinished", words=words)

    def _close_workers(self, within_s: float) -> bool:
        """Take no further step; agents survive under their shims. False when a step takes longer."""
        for worker in self._all():
            worker.close(0.0)
        deadline = time.monotonic() + within_s
        closed = [worker.close(max(0.0, deadline - time.monotonic())) for worker in self._all()]
        return all(closed)

    def _drain_told(self, step: str, within_s: float) -> None:
        until = iso(SystemClock().now() + timedelta(seconds=within_s))
        try:
            self._held.drains(until)
        except OSError as error:  # callers are told anyway; only `status` misses it
            self._log.warning("record-failed", words=f"{singleton.RECORD} cannot be written: {error.strerror}")
        self._log.info(step, until=until)
        status = f"STATUS={step.replace('-', ' ')}, until {until}"
        service.notify(self._env, service.STOPPING, service.extended(within_s + CLOSING_S), status)

    # --- its settings -------------------------------------------------------------------------------------

    def reload(self, *, anew: bool) -> None:
        """Apply changed settings; `anew`: read all files again, and check every repository."""
        with self._reloading:
            changed = self._configurations.look(anew=anew)
            if changed.user:
                settings = self._configurations.user.daemon
                self._slots.resize(host=settings.max_parallel, repository=settings.max_parallel_repository)
                self._observer.notifier = self._notifier()
        if changed.user or changed.roots:
            self._log.info("settings-changed", user=changed.user, repositories=list(changed.roots))
        for root in changed.roots:
            self.worker(root).retime()
        if anew:
            self._recall()

    def _notifier(self) -> Notifier:
        return Notifier(self._configurations.user.notify, self._log, env=self._env)

    def _settings_told(self, whose: str, words: str) -> None:
        if not words:
            self._log.info("settings-mended", repository=whose)
            return
        self._log.error("settings", repository=whose, words=f"{words}; using the last valid settings")
        self._observer.notifier.send(of_settings(words, repository=whose))


def _can_serve(worker: DaemonWorker, root: str) -> bool:
    """Whether it can open the repository for somebody in that checkout; its own one may have been removed."""
    return worker.root == root or Path(worker.root).is_dir()


def _goes_on(state: Path, plan: str, run: str) -> bool:
    """Whether the run will send events without a person."""
    if not Store.exists(state):
        return False
    with contextlib.closing(Store(state, writable=False)) as store:
        row = store.newest(plan)
    if row is None or row.state not in UNFINISHED or run not in ("", row.id):
        return False
    return row.state != "waiting" or (bool(row.wake) and row.waiting_for != "checkout")
