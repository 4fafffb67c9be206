"""runplan worker: one process of a fleet. It takes plans from the queue, and each one is worked on in a thread.

The queue is that of Procrastinate, with a worker that survives errors of the database. A job is a reminder: "look at
this plan". Who works on a plan is decided by its claim alone, so a job that is lost, doubled or late does no harm.
"""

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition
from procrastinate.worker import Worker
from structlog.typing import FilteringBoundLogger

from runplan import __version__
from runplan.adapters import processes
from runplan.adapters.clock import SystemClock
from runplan.adapters.configuration.load import load_settings, load_user
from runplan.adapters.configuration.places import key_directory, own_directory, state_directory, worktree_root
from runplan.adapters.git import command
from runplan.adapters.notify import channels
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notifier import Notifier, open_log
from runplan.adapters.store import heartbeat as store
from runplan.adapters.store.files import file_lock, first_line, publish
from runplan.adapters.store.location import FleetLocation
from runplan.adapters.store.postgres import CHANNEL, SCHEMA_VERSION, NewerDatabase, complete_dsn, hide_keys, list_fleet
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain.errors import RefusedEarly, RunplanError, SettingsError, Unreachable
from runplan.domain.fleet import ANY, list_queues
from runplan.domain.settings.schema import Settings
from runplan.domain.times import iso
from runplan.engine.loop.context import RepositoryContext, context_at
from runplan.engine.loop.repository import open_repository
from runplan.engine.steps.context import OpenRepository
from runplan.hosts.background import Services
from runplan.hosts.daemon import service
from runplan.hosts.daemon.process import CLOSING_S, ENDING_S, NOTIFY_S
from runplan.hosts.fleet.clones import REMOTE, find_full_disk, find_sickness, open_clone, read_default
from runplan.hosts.fleet.host import FleetHost

POLL_S = 5.0  #: between two looks for jobs whose time has come
RETRY_S = 1.0  #: after an error of the database, also at a heartbeat
NEVER_S = 86_400.0
LOG = "worker.log"
BEATS = 6  #: in the time of a lease


class JobQueue(Worker):
    """Calls `work` for each plan that is to be looked at; belongs to the thread of an event loop.

    It takes jobs again after an error of the database, where the original ends its side tasks and takes no more jobs.
    It overrides private methods, so Procrastinate is pinned to one minor version; docs/dependencies.md lists them.
    """

    def __init__(
        self,
        dsn: str,
        *,
        queues: Sequence[str],
        slots: int,
        recover_s: float,
        work: Callable[[str, str], Coroutine[Any, Any, None]],
        may_begin: Callable[[], bool],
        log: FilteringBoundLogger,
    ) -> None:
        conninfo = complete_dsn(dsn)
        connector = PsycopgConnector(conninfo=conninfo, min_size=1, max_size=4, timeout=10.0, reconnect_timeout=5.0)
        app = App(connector=connector)
        app.task(name="runplan.work", queue=ANY)(work)
        app.task(name="runplan.wake", queue=ANY)(self._wake)
        recover = app.task(name="runplan.recover", queue=ANY, queueing_lock="runplan.recover")(self._recover)
        app.periodic(cron=f"* * * * * */{max(1, round(recover_s))}")(recover)
        super().__init__(
            app,
            queues=queues,
            concurrency=slots,
            fetch_job_polling_interval=POLL_S,
            abort_job_polling_interval=NEVER_S,
            listen_notify=False,  # the heartbeat listens
            delete_jobs=DeleteJobCondition.ALWAYS,
            install_signal_handlers=False,
            stalled_worker_timeout=NEVER_S,  # its jobs are queued again before it is forgotten
        )
        self._work = work
        self._slots = slots
        self._left = 0  #: plans of an earlier worker in hand
        self._may_begin = may_begin
        self._events = log
        self._is_unsure = False  #: a job may have been taken or ended, and the answer was lost
        self._is_stopped = False

    async def run_until_stopped(self, left: Sequence[tuple[str, str]] = ()) -> None:
        """Work until `stop`, through all errors of the database; plans of an earlier worker occupy slots first."""
        self._left = len(left)
        self.concurrency = max(0, self._slots - self._left)
        tasks = [asyncio.create_task(self._work(schema, plan)) for schema, plan in left]
        for task in tasks:
            task.add_done_callback(self._free_slot)
        async with self.app.open_async():
            while not self._is_stopped:
                with contextlib.suppress(ConnectorException):
                    await self.run()  # type: ignore[no-untyped-call]
                if not self._is_stopped:
                    self._events.warning("queue-away")
                    await asyncio.sleep(RETRY_S)
            await asyncio.gather(*tasks)

    def _free_slot(self, _task: asyncio.Task[None]) -> None:
        self._left -= 1
        if self._left < self._slots:
            self.concurrency += 1
            self._job_semaphore.release()

    async def _wake(self, schema: str, plan: str) -> None:
        await self.app.connector.execute_query_async(store.QUEUE_PLAN, schema=schema, plan=plan)

    async def _recover(self, timestamp: int) -> None:  # noqa: ARG002
        await self.app.connector.execute_query_async(store.RECOVER_PLANS)

    def stop(self) -> None:
        self._is_stopped = True
        super().stop()  # type: ignore[no-untyped-call]

    def look(self) -> None:
        self._new_job_event.set()

    async def _fetch_and_process_jobs(self) -> None:
        try:
            if self._is_unsure:  # queue the jobs again that this worker has by the database, and does not know
                known = {context.job.id for context in self._running_jobs.values()}
                jobs = await self.app.job_manager.list_jobs_async(worker_id=self.worker_id, status="doing")
                lost = [job.id for job in jobs if job.id not in known]
                await self.app.connector.execute_query_async(store.REQUEUE_JOBS, ids=lost)
                self._is_unsure = False
            if self._may_begin():
                await super()._fetch_and_process_jobs()  # type: ignore[no-untyped-call]
        except ConnectorException as error:
            self._is_unsure = True
            self._events.warning("queue-trouble", error=str(error.__cause__ or error))
        finally:
            self._new_job_event.clear()

    async def _persist_job_status(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super()._persist_job_status(*args, **kwargs)
        except ConnectorException:
            self._is_unsure = True
        self.look()  # for a job that waited for the end of this one

    async def _update_heartbeat(self) -> None:
        await asyncio.Event().wait()  # another thread does it, also while this one is busy

    async def _periodic_deferrer(self) -> None:
        while True:
            with contextlib.suppress(ConnectorException):
                await super()._periodic_deferrer()  # type: ignore[no-untyped-call]
            await asyncio.sleep(RETRY_S)


def work_on_plans(env: Mapping[str, str], row: store.WorkerRow, say: Callable[[str], None]) -> None:
    """Work on plans of the fleet until the process is ended; refused when a worker of this name runs here."""
    user = load_user(env)
    env = hide_keys(user.fleet.dsn, env)
    directory = own_directory(state_directory(env) / "fleet" / row.host)
    lock = file_lock(directory / "worker.lock")
    try:
        lock.acquire(timeout=1.0)
    except TimeoutError:
        raise RefusedEarly(f"a worker of the host {row.host} is running already; see {directory / LOG}") from None
    with lock, open_log(directory / LOG) as log:
        if (machine := first_line(directory / "machine")) is None:
            machine = os.urandom(8).hex()
            publish(directory / "machine", machine.encode(), sync=True)
        FleetWorker(env, user, replace(row, machine=machine), directory, log, say).run()


class FleetWorker(Struct, eq=False, dict=True):
    """The main thread has the queue and the signals, a second one the heartbeat; each plan in hand has its own."""

    env: Mapping[str, str]
    user: Settings
    row: store.WorkerRow
    directory: Path
    log: FilteringBoundLogger
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self._dsn = self.user.fleet.dsn
        self._plans: dict[tuple[str, str], FleetHost] = {}  #: in hand, by schema and plan
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=4 * self.row.slots + 4)
        self._end_requests = 0  #: 1 drains, 2 ends agents, 3 ends at once
        self._is_draining = False  #: by `runplan fleet drain`
        self._failures = 0  #: heartbeats that did not reach the database
        self._sickness = ""  #: why this machine takes no plans
        self._check = threading.Lock()  #: of the machine; one at a time
        self._refusal: RunplanError | None = None  #: why the fleet has no place for this worker any more
        self._is_over = threading.Event()
        self._notifier = Notifier(self.user.notify, self.log, env=self.env)
        self._clock = SystemClock()

    def run(self) -> None:
        with contextlib.closing(self._await_database()) as heartbeat:
            self._lease_s = heartbeat.lease_s
            self._is_draining = self._take_name(heartbeat)
            names = {owned: owned[-1].rpartition("/")[2] for owned in heartbeat.list_owned()}
            ours = (owned for owned, name in names.items() if processes.is_of_this_boot(name))
            left = [owned for owned in ours if not processes.alive(names[owned])]
            most_in_repository = self.user.daemon.max_parallel_repository
            heartbeat.set_capacity(fleet=self.user.fleet.max_parallel, repository=most_in_repository)
        for place in self.directory.glob("repositories/*/.git/runplan/dispatch"):  # agents of an earlier worker
            dispatches = Dispatches(place)
            runs = {run for schema, _, run, _ in left if schema == place.parents[2].name}
            dispatches.end([id_ for id_, run in dispatches.list_live().items() if run not in runs], grace_s=0.0)
        self._queue = JobQueue(
            self._dsn,
            queues=list_queues(self.row.labels),
            slots=self.row.slots,
            recover_s=self._lease_s / 3,
            work=self._work,
            may_begin=self._may_begin,
            log=self.log,
        )
        self._left = {(schema, plan): run for schema, plan, run, _ in left}
        asyncio.run(self._run_queue())
        with contextlib.suppress(RunplanError), contextlib.closing(store.Heartbeat(self._dsn, self.row)) as heartbeat:
            heartbeat.leave()
        self._notifier.flush(within_s=NOTIFY_S)
        channels.CALLS.close()
        self._threads.shutdown(wait=False)
        self.log.info("stopped")
        if self._refusal is not None:
            raise self._refusal

    def _await_database(self) -> store.Heartbeat:
        """The first connection; a database that is away is waited for."""
        is_told = False
        while True:
            try:
                return store.Heartbeat(self._dsn, self.row)
            except NewerDatabase as error:  # a restart helps, once runplan is updated here
                raise Unreachable(str(error)) from error
            except Unreachable as error:
                if not is_told:
                    self.say(f"{error}. This worker waits for it")
                    self.log.warning("database-away", error=str(error))
                is_told = True
                time.sleep(RETRY_S)

    def _take_name(self, heartbeat: store.Heartbeat) -> bool:
        """The first heartbeat. A host that was made anew waits out the lease of its predecessor."""
        deadline = time.monotonic() + self._lease_s
        while True:
            try:
                return heartbeat.beat(None)
            except store.NameTaken:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    async def _run_queue(self) -> None:
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._request_end)
        threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True).start()
        self.log.info("started", version=__version__, pid=os.getpid(), host=self.row.host)
        self.say(f"{self.row.host} takes plans, {self.row.slots} at once; its log is {self.directory / LOG}")
        service.notify_manager(self.env, service.READY)
        await self._queue.run_until_stopped(list(self._left))
        self._is_over.set()

    def _may_begin(self) -> bool:
        return not self._end_requests and not self._is_draining and not self._sickness

    def _is_sick(self) -> bool:
        """Check this machine, unless it is known to be sick; then the heartbeat has it checked again and again."""
        if not self._sickness:
            self._examine()
        return bool(self._sickness)

    def _examine(self) -> None:
        with self._check:
            try:
                remotes = {row.schema: row.remote for row in list_fleet(self._dsn)}
            except RunplanError:  # the database is away, which says nothing about this machine
                return
            before = self._sickness
            self._sickness = find_sickness(remotes, self.directory, self.env)
        if bool(before) != bool(self._sickness):
            self.log.warning("sick" if self._sickness else "well", why=self._sickness or before)
            self._wake_all()

    async def _work(self, schema: str, plan: str) -> None:
        """Work on a plan in a thread; one that is in hand already looks at its commands."""
        await self._loop.run_in_executor(self._threads, self._work_on_plan, schema, plan)

    def _work_on_plan(self, schema: str, plan: str) -> None:
        worker: FleetHost | None = None
        while True:
            try:
                worker = worker or self._take_plan(schema, plan)
                if worker is not None:
                    worker.run()
                break
            except Exception as error:  # noqa: BLE001 - the edge of the thread: this host may own the plan
                self.log.warning("trouble", plan=plan, error=str(error))
                self._is_over.wait(RETRY_S)
        if worker is not None:
            with self._lock:
                del self._plans[schema, plan]

    def _take_plan(self, schema: str, plan: str) -> FleetHost | None:
        """A worker for the plan; None when one has it in hand already, or the repository is unknown."""
        known = next((row for row in list_fleet(self._dsn) if row.schema == schema), None)
        if known is None:
            return None
        fleet = FleetLocation(self._dsn, known.url, output=self.user.fleet.output, host=self.row.host)
        services = Services(
            log=self.log,
            notifier=self._notifier,
            links=LinkMaker(self.user.web.url, key_directory(self.env)),
            clock=self._clock,
            environment=self.env,
            may_begin=self._may_begin,
            is_sick=self._is_sick,
            open_repository=functools.partial(self._open_repository, known.remote, fleet),
        )
        root = self.directory / "repositories" / schema
        worker = FleetHost(plan, root, services, fleet, left=self._left.pop((schema, plan), ""))
        with self._lock:
            in_hand = self._plans.setdefault((schema, plan), worker)
        if in_hand is worker:
            return worker
        in_hand.ask(commands=True)
        return None

    @contextlib.contextmanager
    def _open_repository(
        self, remote: str, fleet: FleetLocation, root: str, wakeup: int
    ) -> Iterator[tuple[RepositoryContext, OpenRepository]]:
        """Open the clone of a repository, with the settings on its default branch."""
        open_clone(remote, Path(root), self.env)
        with context_at(Path(root), self.env, lambda path, env: load_settings(path, env=env).settings) as context:
            context = context.with_landing("direct", target=read_default(context.git), remote=REMOTE)
            with contextlib.suppress(SettingsError):  # a start is refused; a stop is not
                context = context.with_committed_settings().with_landing("direct", remote=REMOTE)
            # Not the default directory, which is removed when it is empty: another plan may be about to use it.
            place = str(worktree_root(context.root, context.settings, self.env))
            settings = replace(context.settings, run=replace(context.settings.run, worktrees=place))
            context = replace(context, settings=settings, fleet=fleet)
            with open_repository(context, wakeup=wakeup) as repository:
                yield context, replace(repository, labels=tuple(self.row.labels))

    def _keep_beating(self) -> None:
        """Show that this host lives, and pass on what is notified; errors of the database do not end it."""
        while not self._is_over.is_set():
            try:
                with contextlib.closing(store.Heartbeat(self._dsn, self.row)) as heartbeat:
                    self._wake_all()  # notices were lost meanwhile
                    due = 0.0
                    while not self._is_over.is_set():
                        if time.monotonic() >= due:
                            due = time.monotonic() + self._lease_s / BEATS
                            self._beat(heartbeat)
                        for channel, text in heartbeat.wait(max(0.0, due - time.monotonic())):
                            self._on_notice(channel, text)
                            due = 0.0 if channel == store.WORKERS else due
            except store.NameTaken as error:  # after the lease, so its plans are those of other hosts
                self.log.warning("name-taken", error=str(error))
                self._refusal = error
                self._loop.call_soon_threadsafe(self._request_end)
                self._loop.call_soon_threadsafe(self._request_end)
                return
            except Exception as error:  # noqa: BLE001 - the edge of the thread: it must not end while the process lives
                self._failures += 1
                self.log.warning("heartbeat-failed", error=str(error))
                self._is_over.wait(RETRY_S)

    def _beat(self, heartbeat: store.Heartbeat) -> None:
        if (self._sickness or find_full_disk(self.directory)) and not self._check.locked():
            self._threads.submit(self._examine)
        free = shutil.disk_usage(self.directory).free
        is_draining = heartbeat.beat(self._queue.worker_id, sick=self._sickness, free=free, failures=self._failures)
        if self._refusal is None and heartbeat.version > SCHEMA_VERSION:
            self._refusal = Unreachable("the fleet's database was updated; update runplan on this host")
            self.log.warning("outdated", version=heartbeat.version)
            self._loop.call_soon_threadsafe(self._request_end)
        if is_draining != self._is_draining:
            self._is_draining = is_draining
            self.log.info("draining" if is_draining else "taking-plans")
            self._wake_all()
        # A plan that it is about to take over still belongs to the dead owner. What began since is none of these.
        in_hand = [(schema, worker, list(worker.owner.runs)) for (schema, _), worker in self._list_plans()]
        claims = heartbeat.list_owned() if in_hand else []
        own = {(schema, plan) for schema, plan, _, owner in claims if owner == self.row.owner}
        for schema, worker, plans in in_hand:
            # Another worker owns them, or has ended or left the run since.
            if lost := frozenset(plan for plan in plans if (schema, plan) not in own):
                worker.lost |= lost  # it ends their agents, and records nothing
                worker.poke()

    def _on_notice(self, channel: str, text: str) -> None:
        if channel != CHANNEL:
            self._loop.call_soon_threadsafe(self._queue.look)
            return
        for (schema, _), worker in self._list_plans():
            if schema == text:
                self._threads.submit(functools.partial(worker.ask, commands=True))

    def _list_plans(self) -> list[tuple[tuple[str, str], FleetHost]]:
        with self._lock:
            return list(self._plans.items())

    def _wake_all(self) -> None:
        for _, worker in self._list_plans():
            worker.ask(commands=False)
        self._loop.call_soon_threadsafe(self._queue.look)

    def _request_end(self) -> None:
        """Drain. The second call ends the agents; the third ends the process at once."""
        self._end_requests += 1
        workers = [worker for _, worker in self._list_plans()]
        if self._end_requests == 1:
            self._set_deadline("stopping", self.user.daemon.grace_s)
            self._queue.stop()
            for worker in workers:
                worker.ask(commands=False)
        elif self._end_requests == 2:
            self._set_deadline("ending-agents", ENDING_S)
            command.CALLS.end()
            for worker in workers:
                worker.request_end()
        else:
            for worker in workers:
                worker.close()
            command.CALLS.close()
            self.log.info("stopped-at-once")
            os._exit(0)  # agents live on, and the next worker on this host continues them

    def _set_deadline(self, step: str, within_s: float) -> None:
        self.log.info(step, until=iso(self._clock.now() + timedelta(seconds=within_s)))
        service.notify_manager(self.env, service.STOPPING, service.extend_timeout(within_s + CLOSING_S))
        requests = self._end_requests
        self._loop.call_later(within_s, lambda: self._request_end() if self._end_requests == requests else None)
