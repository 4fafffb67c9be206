"""Notifies open pages that a journal or the output of an agent has grown. Nothing runs while no page is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from runplan.app.operations.model import Caller
from runplan.app.watch import Topic, Watch
from runplan.interfaces.web.render import read_number

INTERVAL_S = 0.25  #: between two looks at the files
HEARTBEAT_S = 15.0  #: between two lines that keep the connection open
MOST_STREAMS = 64
CHANGED = b"event: changed\ndata: 1\n\n"
ALIVE = b": alive\n\n"
#: An open page begins again this many milliseconds after it has lost the connection.
RETRY = b"retry: 1000\n\n"


class OpenPages(Watch):
    """The open pages that show one topic."""

    def __init__(self, caller: Caller, topic: Topic) -> None:
        super().__init__(caller, topic)
        self.pages: set[asyncio.Event] = set()


class Watcher:
    """Looks at the files of all open pages, in one task that exists while a page is open."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._watches: dict[Topic, OpenPages] = {}
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
    def _subscribed(self, topic: Topic) -> Iterator[tuple[OpenPages, asyncio.Event]]:
        watch = self._watches.setdefault(topic, OpenPages(self._caller, topic))
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

    async def _look_at(self, watches: list[OpenPages]) -> None:
        """Look in a thread, because a disk may not answer, and notify the pages of what has changed."""
        async with self._looking:
            for watch in await asyncio.to_thread(_list_changed, watches):
                _notify_pages(watch)


def _list_changed(watches: list[OpenPages]) -> list[OpenPages]:
    return [watch for watch in watches if watch.look()]


def _notify_pages(watch: OpenPages) -> None:
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
