"""Notifies open pages that a journal or the output of an agent has grown. Nothing runs while no page is open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from runplan.adapters.configuration.load import load_user
from runplan.adapters.configuration.places import state_directory
from runplan.adapters.store.files import Signature, sign_files
from runplan.adapters.store.protocol import list_store_files, open_store
from runplan.adapters.supervise.output import DispatchFiles
from runplan.app.views.repositories import find_known, list_known
from runplan.domain.errors import RunplanError
from runplan.hosts.daemon.state import RECORD, REPOSITORIES, Known
from runplan.interfaces.web.render import read_number

INTERVAL_S = 0.25  #: between two looks at the files
FLEET_S = 2.0  #: after which a page of a fleet is made again
HEARTBEAT_S = 15.0  #: between two lines that keep the connection open
MOST_STREAMS = 64
COARSE_NS = 20_000_000  #: the time of a file may be this much older than the clock
CHANGED = b"event: changed\ndata: 1\n\n"
ALIVE = b": alive\n\n"
#: An open page begins again this many milliseconds after it has lost the connection.
RETRY = b"retry: 1000\n\n"


class Topic(Struct, frozen=True):
    """What a page shows: a plan, a repository, or all repositories."""

    repo: str = ""
    plan: str = ""


def list_files(env: Mapping[str, str], topic: Topic) -> list[Path]:
    """The files whose change may change a page."""
    state = state_directory(env)
    files = [state / RECORD, state / REPOSITORIES]
    with contextlib.suppress(RunplanError):  # an unknown repository
        known = [find_known(env, topic.repo)] if topic.repo else list_known(env)
        for repository in known:
            files += list_store_files(repository.journal)
            files += _list_logs(repository, topic.plan) if topic.plan else []
    return files


def _list_logs(repository: Known, plan: str) -> list[Path]:
    """The output of the running agents of the plan."""
    with (
        contextlib.suppress(RunplanError, OSError),  # unplugged, or damaged
        contextlib.closing(open_store(repository.journal, writable=False, missing_ok=True)) as store,
    ):
        run = store.get_newest_run(plan)
        works = (run, *run.lanes) if run is not None else ()
        return [DispatchFiles(repository.state / "dispatch" / work.dispatch).out for work in works if work.dispatch]
    return []


class Watch:
    """The files of one topic, and the open pages that show it."""

    def __init__(self, env: Mapping[str, str], topic: Topic) -> None:
        self._env = env
        self._topic = topic
        self._files: list[Path] = []
        self._signature: Signature | None = None
        self._is_fleet = False
        with contextlib.suppress(RunplanError):  # settings that cannot be read
            self._is_fleet = bool(load_user(env).fleet.dsn)
        self._due_s = 0.0  #: when a page of a fleet is made again
        self.pages: set[asyncio.Event] = set()

    def look(self) -> bool:
        """Whether a file has changed since the last look, or a database may have. A journal may name other logs."""
        is_due = self._is_fleet and time.monotonic() >= self._due_s
        if self._signature == sign_files(self._files) and not is_due:
            return False
        self._due_s = time.monotonic() + FLEET_S
        self._files = list_files(self._env, self._topic)
        self._signature = sign_files(self._files)
        return True

    def is_newer(self, seen_ns: int) -> bool:
        """Whether a file has changed since a page was made."""
        return any(changed_ns > seen_ns - COARSE_NS for _, changed_ns, _ in self._signature or ())


class Watcher:
    """Looks at the files of all open pages, in one task that exists while a page is open."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._watches: dict[Topic, Watch] = {}
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._is_closed = False

    @property
    def is_watching(self) -> bool:
        return self._task is not None

    @property
    def is_full(self) -> bool:
        return sum(len(watch.pages) for watch in self._watches.values()) >= MOST_STREAMS

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for watch in self._watches.values():
            _notify_pages(watch)

    async def stream(self, topic: Topic, seen_ns: int) -> AsyncIterator[bytes]:
        """Events for a page that was made at `seen_ns`."""
        with self._subscribed(topic) as (watch, changed):
            await self._look_at([watch])
            changed.clear()
            yield RETRY
            if watch.is_newer(seen_ns):
                changed.set()
            while not self._is_closed:
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT_S)
                except TimeoutError:
                    yield ALIVE
                    continue
                changed.clear()
                yield CHANGED

    @contextlib.contextmanager
    def _subscribed(self, topic: Topic) -> Iterator[tuple[Watch, asyncio.Event]]:
        watch = self._watches.setdefault(topic, Watch(self._env, topic))
        changed = asyncio.Event()
        watch.pages.add(changed)
        if self._task is None:
            self._task = asyncio.create_task(self._look_forever())
        try:
            yield watch, changed
        finally:
            watch.pages.remove(changed)
            if not watch.pages:
                del self._watches[topic]
            if not self._watches:
                self._task.cancel()
                self._task = None

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self._look_at(list(self._watches.values()))

    async def _look_at(self, watches: list[Watch]) -> None:
        """Look in a thread, because a disk may not answer, and notify the pages of what has changed."""
        async with self._looking:
            for watch in await asyncio.to_thread(_list_changed, watches):
                _notify_pages(watch)


def _list_changed(watches: list[Watch]) -> list[Watch]:
    return [watch for watch in watches if watch.look()]


def _notify_pages(watch: Watch) -> None:
    for changed in watch.pages:
        changed.set()


async def stream_events(request: Request) -> Response:
    """GET /live: server-sent events of one plan, one repository, or all."""
    watcher: Watcher = request.app.state.watcher
    if watcher.is_full:
        return PlainTextResponse(f"more than {MOST_STREAMS} pages are open", 503)
    query = request.query_params
    seen_ns = read_number(query.get("seen", ""), request.state.began_ns)
    topic = Topic(query.get("repo", ""), query.get("plan", ""))
    return StreamingResponse(watcher.stream(topic, seen_ns), media_type="text/event-stream")
