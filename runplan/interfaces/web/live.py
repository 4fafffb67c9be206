"""Notifies open pages that a journal or the output of an agent has grown. Nothing runs while no page is open."""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from runplan.app.operations.model import Caller
from runplan.app.watch import Topic, Watch
from runplan.interfaces.web.render import read_number, route

INTERVAL_S = 0.25  #: between two looks at the files
HEARTBEAT_S = 15.0  #: between two lines that keep the connection open
MOST_STREAMS = 64
CHANGED = b"event: changed\ndata: 1\n\n"
ALIVE = b": alive\n\n"
#: An open page begins again this many milliseconds after it has lost the connection.
RETRY = b"retry: 1000\n\n"


class Watcher:
    """Looks at the files of all open pages, in one task that exists while a page is open."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.watches: dict[Topic, tuple[Watch, set[asyncio.Event]]] = {}  #: with the open pages
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        for _, pages in self.watches.values():
            _notify_pages(pages)

    async def stream(self, topic: Topic, seen_ns: int) -> AsyncIterator[bytes]:
        """Events for a page that was made at `seen_ns`."""
        watch, pages = self.watches.setdefault(topic, (Watch(self._caller, topic), set()))
        changed = asyncio.Event()
        pages.add(changed)
        if self._task is None:
            self._task = asyncio.create_task(self._look_forever())
        try:
            await self._look_at([(watch, pages)])
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
        finally:
            pages.remove(changed)
            if not pages:
                del self.watches[topic]
            if not self.watches:
                self._task.cancel()
                self._task = None

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self._look_at(list(self.watches.values()))

    async def _look_at(self, watches: list[tuple[Watch, set[asyncio.Event]]]) -> None:
        """Look in a thread, because a disk may not answer, and notify the pages of what has changed."""
        async with self._looking:
            changed = await asyncio.to_thread(lambda: [pages for watch, pages in watches if watch.look()])
            for pages in changed:
                _notify_pages(pages)


def _notify_pages(pages: set[asyncio.Event]) -> None:
    for changed in pages:
        changed.set()


@route("/live")
async def stream_events(request: Request) -> Response:
    """GET /live: server-sent events of one plan, one repository, or all."""
    watcher: Watcher = request.app.state.watcher
    if sum(len(pages) for _, pages in watcher.watches.values()) >= MOST_STREAMS:
        return PlainTextResponse(f"more than {MOST_STREAMS} pages are open", 503)
    query = request.query_params
    seen_ns = read_number(query.get("seen", ""), request.state.began_ns)
    topic = Topic(query.get("repo", ""), query.get("plan", ""))
    return StreamingResponse(watcher.stream(topic, seen_ns), media_type="text/event-stream")
