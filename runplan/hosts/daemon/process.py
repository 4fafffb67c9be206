"""The daemon process: its main thread, the requests of callers, and its shutdown."""

import contextlib
import faulthandler
import functools
import os
import queue
import signal
import socketserver
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.date import DateTrigger
from msgspec import Struct, to_builtins
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from runplan import __version__
from runplan.adapters.clock import SystemClock
from runplan.adapters.configuration.load import load_settings, load_user, setting_variables
from runplan.adapters.configuration.places import key_directory, own_directory, socket_path, state_directory
from runplan.adapters.git import command
from runplan.adapters.git.zones import STOPPED_S
from runplan.adapters.notify import channels
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import Notice
from runplan.adapters.notify.notifier import Notifier, open_log
from runplan.adapters.processes import agent_above
from runplan.adapters.store.files import not_there
from runplan.domain.errors import Exit, RunplanError, SettingsError, Unreachable
from runplan.domain.settings.schedule import parse_schedule, slots_after
from runplan.domain.settings.schema import Settings
from runplan.domain.text import in_words
from runplan.domain.times import iso, zone
from runplan.engine.loop.context import RepositoryContext, context_at
from runplan.engine.loop.repository import open_repository
from runplan.engine.report.metrics import read_journals, render_samples, this_process
from runplan.engine.report.summary import news_of, of_morning
from runplan.engine.steps.context import OpenRepository
from runplan.hosts.background import Services
from runplan.hosts.daemon import protocol, service, state
from runplan.hosts.daemon.client import short_address
from runplan.hosts.daemon.host import ConcurrencyLimit, DaemonHost
from runplan.hosts.daemon.protocol import ACTING, AnyRequest, Done, Hello, Reply, line_of, peer_of, read_request

FOREVER_S = 86400.0  #: between two checks whether the socket is to be closed, which is not needed
CHECK_S = 60.0  #: interval of the periodic check
JUMP_S = 1.0  #: smaller changes of the clock are ignored
ENDING_S = 30.0  #: time to end all agents, in parallel
CLOSING_S = 60.0  #: what the service manager allows for the current steps at shutdown
STEP_S = 10.0  #: after this, calls to remotes are ended so that the steps end
NOTIFY_S = 2.0  #: for the last notifications
TRACED = 8  #: calls of a trace that are logged


def run_daemon(env: Mapping[str, str]) -> None:
    """Run the user's daemon until it is ended; refused when one runs."""
    directory = state_directory(env)
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)  # a client may send it before the handlers are set
    since = iso(SystemClock().now())
    with (
        state.hold_lock(directory, version=__version__, since=since, wait_s=1.0),
        open_log(directory / state.LOG) as log,
        open(directory / state.FAULT, "wb") as fault,
    ):
        faulthandler.enable(fault)
        DaemonProcess(env, since, log).run()


class DaemonProcess:
    """The main thread: accepts callers, handles signals and timers. Workers do the work."""

    def __init__(self, env: Mapping[str, str], since: str, log: FilteringBoundLogger) -> None:
        self._env = env
        self._since = since
        self._began = time.monotonic()
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  #: for the main thread
        self._end_requests = 0  #: 1 drains, 2 ends agents, 3 ends at once
        self._deadline = 0.0  #: of the shutdown
        self._state = state_directory(env)
        self._user = load_user(env)
        self._invalid = ""  #: the error in the settings of the user
        self._valid: dict[Path, Settings] = {}  #: by the root of a repository, the last valid ones
        self._lock = threading.Lock()
        self._hosts: dict[Path, DaemonHost] = {}  #: by the directory of the journal
        self._scheduler = BackgroundScheduler(timezone=UTC, executors={"default": DebugExecutor()}, daemon=True)
        self._clock = SystemClock()
        self._log = log
        self._notifier = Notifier(self._user.notify, log, env=env)
        self._links = LinkMaker(self._user.web.url, key_directory(env))
        daemon = self._user.daemon
        self._limit = ConcurrencyLimit(
            host=daemon.max_parallel, repository=daemon.max_parallel_repository, wake=self._wake_hosts
        )
        self._services = Services(
            log=log,
            notifier=self._notifier,
            links=self._links,
            clock=self._clock,
            #: Without settings variables, which would apply to the runs of every caller.
            environment={name: value for name, value in env.items() if name not in setting_variables(env)},
            is_sick=lambda: False,
            may_begin=lambda: not self._end_requests,
            open_repository=self._open_repository,
        )

    def run(self) -> None:
        self._set_signal_handlers()
        self._scheduler.start()
        server = ControlServer(socket_path(self._env), self._answer_request, self._log_failure)
        with contextlib.closing(server):
            self._log.info("started", version=__version__, pid=os.getpid(), socket=str(server.path))
            self._recall_repositories()
            self._arm_morning()
            threading.Thread(target=server.serve_forever, args=(FOREVER_S,), name="socket", daemon=True).start()
            service.notify_manager(self._env, service.READY)
            watchdog_s = service.watchdog_s(self._env)
            every_s = min(CHECK_S, watchdog_s / 2) if watchdog_s else CHECK_S
            next_check = time.monotonic() + every_s
            ahead_s = _wall_ahead_s()
            while not self._is_over:
                if self._end_requests:
                    self._do_task(min(next_check, self._deadline, time.monotonic() + STOPPED_S))
                    for host in self._all_hosts():
                        command.CALLS.end(state=host.state, older_s=STOPPED_S)  # the next daemon repeats the step
                else:
                    self._do_task(next_check)
                if abs(_wall_ahead_s() - ahead_s) >= JUMP_S:
                    next_check = 0.0
                    ahead_s = _wall_ahead_s()
                    self._attempt_task(self._scheduler.wakeup)  # the machine slept or its clock was set
                    self._attempt_task(self._wake_hosts)
                if time.monotonic() >= next_check:
                    next_check = time.monotonic() + every_s
                    service.notify_manager(self._env, service.WATCHDOG)
            self._log.info("stopping")
            service.notify_manager(self._env, service.STOPPING, service.extend_timeout(CLOSING_S))
        self._scheduler.shutdown(wait=False)
        hosts = self._all_hosts()
        for host in hosts:
            host.close()
        for _ in range(2):
            deadline = time.monotonic() + STEP_S
            while not _are_idle(hosts) and time.monotonic() < deadline and self._end_requests <= 2:
                self._do_task(deadline)  # another signal ends the process at once
            command.CALLS.end()
        if not _are_idle(hosts):
            self._log.warning("unfinished", why="a step did not end in time; the next daemon repeats it")
        command.CALLS.close()
        self._notifier.flush(within_s=0.0 if self._end_requests > 2 else NOTIFY_S)
        channels.CALLS.close()
        self._log.info("stopped")

    # --- for hosts, from any thread ---------------------------------------------------------------------

    def _wake_main_thread(self) -> None:
        self._tasks.put(lambda: None)

    def _call_at(self, key: str, moment: datetime, call: Callable[[], None]) -> None:
        """Call back then, or at once when that has passed; a key has one moment. A call has to return at once."""
        trigger = DateTrigger(run_date=moment)
        self._scheduler.add_job(call, trigger, id=key, replace_existing=True, misfire_grace_time=None, coalesce=True)

    @contextlib.contextmanager
    def _open_repository(self, root: str, wakeup: int) -> Iterator[tuple[RepositoryContext, OpenRepository]]:
        """Open the repository at `root`, and not one around it."""
        if not Path(root).is_dir():
            raise not_there(Path(root))
        with context_at(Path(root), self._services.environment, self._read_settings) as context:
            if context.root.resolve() != Path(root).resolve():
                raise not_there(Path(root))
            context = replace(context, fleet=None)  # the workers of a fleet do the rest
            with open_repository(context, wakeup=wakeup) as repository:
                yield context, repository

    def _read_settings(self, root: Path, env: Mapping[str, str]) -> Settings:
        """The settings of a repository; while they are invalid, the last valid ones."""
        try:
            self._valid[root] = load_settings(root, env=env).settings
        except SettingsError as error:
            if root not in self._valid:
                raise
            words = f"{error}; using the last valid settings"
            self._log.warning("repository-settings", repository=str(root), words=words)
        return self._valid[root]

    def _do_task(self, until: float) -> None:
        """Wait for a task and do it. A signal handler runs while the main thread waits here."""
        with contextlib.suppress(queue.Empty):
            self._attempt_task(self._tasks.get(timeout=max(0.0, until - time.monotonic())))

    def _attempt_task(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001 - the edge of a task: it must not end the daemon
            self._log_failure(error)

    def _log_failure(self, error: Exception) -> None:
        self._log.error("failed", error=str(error), trace=traceback.format_exc(limit=-TRACED))

    def _recall_repositories(self) -> None:
        """Resume the unfinished runs and schedules of the known repositories; a missing one is tried again later."""
        for known in state.list_repositories(self._state):
            with self._lock:
                if known.state not in self._hosts:
                    self._hosts[known.state] = self._make_host(known)
        self._wake_hosts()

    def _make_host(self, known: state.Known) -> DaemonHost:
        return DaemonHost(known, self._services, self._limit, call_at=self._call_at, on_idle=self._wake_main_thread)

    def _find_host(self, known: state.Known) -> DaemonHost:
        """The host of the repository, one for all its checkouts; the repository is remembered."""
        with self._lock:
            host = self._hosts.get(known.state)
            if host is None or (host.root != known.root and not Path(host.root).is_dir()):
                state.remember_repository(self._state, known)
                host = self._hosts[known.state] = self._make_host(known)
            return host

    def _all_hosts(self) -> list[DaemonHost]:
        with self._lock:
            return list(self._hosts.values())

    def _wake_hosts(self, root: str = "") -> None:
        for host in self._all_hosts():
            if root in ("", host.root):
                host.wake()

    # --- requests; in the threads of connections ------------------------------------------------------------

    def _answer_request(self, request: AnyRequest) -> Struct:
        self._wake_main_thread()
        match request:
            case protocol.Metrics():
                states = self._list_journals()
                uptime_s = time.monotonic() - self._began
                runs = {"working": len(self._limit.working), "queued": len(self._limit.waiting)}
                process = this_process(version=__version__, uptime_s=uptime_s, repositories=len(states), **runs)
                return protocol.MetricsText(render_samples([*process, *read_journals(states, now=self._clock.now())]))
            case protocol.Wake():
                self._find_host(request.repository).wake(commands=True)
            case protocol.Environment():
                self._tasks.put(self._reload_settings)
                self._find_host(request.repository).owner.environments.receive(request.name, request.env)
            case protocol.Ping():
                left = in_words(max(0.0, self._deadline - time.monotonic()) + 1)
                refusal = f"the daemon is shutting down and starts nothing new; try again in {left}"
                return Hello(
                    version=__version__,
                    pid=os.getpid(),
                    since=self._since,
                    draining=refusal if self._end_requests else "",
                    closed=tuple(host.trouble for host in self._all_hosts() if host.trouble is not None),
                )
        return Done()

    def _list_journals(self) -> dict[str, Path]:
        return {known.root: known.state for known in state.list_repositories(self._state)}

    def _set_signal_handlers(self) -> None:
        """Python writes the number of each signal into the pipe, whichever thread the kernel delivers it to."""
        signals, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda _number, _frame: None)

        def read_signals() -> None:
            while number := os.read(signals, 1):
                self._tasks.put(functools.partial(self._on_signal, number[0]))

        threading.Thread(target=read_signals, name="signals", daemon=True).start()

    def _on_signal(self, number: int) -> None:
        """Read the settings again, or drain. The second signal ends the agents; the third ends the daemon at once."""
        self._log.info("signal", number=number)
        if number == signal.SIGHUP:
            self._reload_settings()
            self._recall_repositories()
            return
        self._end_requests += 1
        if self._end_requests == 1:
            self._set_deadline("draining", self._user.daemon.grace_s)
            for host in self._all_hosts():
                if not host.is_idle:
                    host.wake()  # so that it starts nothing new
        elif self._end_requests == 2:
            self._set_deadline("ending-agents", ENDING_S)
            command.CALLS.end()  # so that the current steps end
            for host in self._all_hosts():
                host.request_end()

    def _set_deadline(self, step: str, within_s: float) -> None:
        self._deadline = time.monotonic() + within_s
        self._log.info(step, until=iso(self._clock.now() + timedelta(seconds=within_s)))
        service.notify_manager(self._env, service.STOPPING, service.extend_timeout(within_s + CLOSING_S))

    @property
    def _is_over(self) -> bool:
        """Whether the process may end; agents that still run survive under their shims."""
        if not self._end_requests:
            return False
        return _are_idle(self._all_hosts()) or self._end_requests > 2 or time.monotonic() >= self._deadline

    def _reload_settings(self) -> None:
        try:
            user = load_user(self._env)
        except SettingsError as error:
            if str(error) != self._invalid:
                self._invalid = str(error)
                self._log.warning("settings", words=f"{error}; using the last valid settings")
                title = "runplan: settings that cannot be used"
                text = f"{error}; the previous settings hold until this is fixed."
                check = "runplan config"
                self._send_notice(Notice(kind="waiting", reason="settings", title=title, text=text, command=check))
            return
        if user != self._user or self._invalid:
            self._user, self._invalid = user, ""
            self._log.info("settings-changed")
            self._limit.resize(host=user.daemon.max_parallel, repository=user.daemon.max_parallel_repository)
            self._notifier.settings = user.notify
            self._links.url = user.web.url
            self._arm_morning()

    def _send_notice(self, notice: Notice) -> None:
        self._notifier.send(replace(notice, link=self._links.link_to_page()))

    def _arm_morning(self) -> None:
        """Send the morning report at its next time; a clock that jumps may call earlier."""
        user = self._user
        if not user.notify.morning:
            return
        hour, minute = user.notify.morning.split(":")
        now = self._clock.now()
        daily = parse_schedule(f"{minute} {hour} * * *")
        due = next(slots_after(daily, after=now, zone=zone(user.run.timezone), anchor=now, seed="")).at

        def send_report() -> None:
            if user is self._user and self._clock.now() >= due:
                since = iso(due - timedelta(days=1))
                if (notice := of_morning(news_of(self._list_journals(), since=since))) is not None:
                    self._send_notice(notice)
            self._arm_morning()

        self._call_at("morning", due, lambda: self._tasks.put(send_report))


def _wall_ahead_s() -> float:
    return time.time() - time.monotonic()


def _are_idle(hosts: list[DaemonHost]) -> bool:
    return all(host.is_idle for host in hosts)


class Connection(socketserver.StreamRequestHandler):
    """Each request is answered before the next one is read."""

    timeout = 60.0  #: a caller that is silent for longer is hung up on, so that its thread and descriptor are free
    server: "ControlServer"

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the caller hung up, or was silent for too long
            pid, uid = peer_of(self.request)
            if uid != os.geteuid():
                refusal = f"this daemon serves the user {os.geteuid()}, not {uid}"
                self.request.sendall(line_of(Reply(error=refusal)))
                return
            for line in self.rfile:
                try:
                    request = read_request(line)
                    agent = agent_above(pid) if isinstance(request, ACTING) else ""
                    refusal = f"an agent may not send {type(request).__name__.lower()} ({agent})"
                    reply = Reply(error=refusal) if agent else Reply(result=to_builtins(self.server.answer(request)))
                except RunplanError as error:
                    reply = Reply(error=str(error), exit=int(error.exit))
                except Exception as error:  # noqa: BLE001 - the edge of a request: the caller gets an answer
                    self.server.failed(error)
                    text = f"unexpected {type(error).__name__} in the daemon: {error}; see its log"
                    reply = Reply(error=text, exit=Exit.UNREACHABLE)
                self.request.sendall(line_of(reply))


class ControlServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """`serve_forever` accepts callers, each in a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, path: Path, answer: Callable[[AnyRequest], Struct], failed: Callable[[Exception], None]) -> None:
        """Listen at `path`; `answer` and `failed` are called in the threads of the connections."""
        self.path = path
        self.answer = answer
        self.failed = failed
        super().__init__(str(path), Connection, bind_and_activate=False)
        draft = path.with_name(f"{path.name}.new")
        try:
            # Bound under a temporary name: a client never finds a socket that does not listen.
            own_directory(path.parent)
            draft.unlink(missing_ok=True)
            with short_address(draft) as address:
                self.socket.bind(address)
            draft.chmod(0o600)
            self.server_activate()
            os.replace(draft, path)
        except OSError as error:
            self.socket.close()
            raise Unreachable(f"cannot listen at {path}: {error.strerror}") from error

    def close(self) -> None:
        """Remove the socket; open connections end with the process."""
        self.path.unlink(missing_ok=True)
        self.server_close()
