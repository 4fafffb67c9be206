"""The queue of a fleet: Procrastinate, with a worker that survives errors of the database.

A job is a reminder: "look at this plan". Who works on a plan is decided by its claim alone, so a job that is lost,
doubled or late does no harm.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition
from procrastinate.worker import Worker
from structlog.typing import FilteringBoundLogger

from runplan.adapters.store import heartbeat as store
from runplan.adapters.store.postgres import complete_dsn
from runplan.domain.run.rules.hosts import ANY

POLL_S = 5.0  #: between two looks for jobs whose time has come
RETRY_S = 1.0  #: after an error of the database
NEVER_S = 86_400.0


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
