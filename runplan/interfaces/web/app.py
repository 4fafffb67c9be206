"""The application: its server, its routes, what holds for every request, and the events that tell open pages."""

import argparse
import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runplan.app.operations.commands import LinkEnded
from runplan.app.operations.model import Caller
from runplan.app.watch import Topic, Watch
from runplan.domain.errors import Exit, RefusedEarly, RunplanError, Unreachable, UsageError, refused_by_system
from runplan.interfaces.cli.terminal import say
from runplan.interfaces.web import access, actions  # noqa: F401 - actions add routes
from runplan.interfaces.web.access import EntryToken, Site, is_loopback, is_wildcard, list_origins, origin_of
from runplan.interfaces.web.pages import change, plan, tools  # noqa: F401 - they add their routes
from runplan.interfaces.web.render import FOLDER, ROUTES, read_number, render, route

INTERVAL_S = 0.25  #: between two looks at the files
HEARTBEAT_S = 15.0  #: between two lines that keep the connection open
MOST_STREAMS = 64
CHANGED = b"event: changed\ndata: 1\n\n"
ALIVE = b": alive\n\n"
#: An open page begins again this many milliseconds after it has lost the connection.
RETRY = b"retry: 1000\n\n"
ENTER = "/enter"
STATIC = "/static/"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
#: The status of a page that shows an error, by the exit code of a command with this error.
STATUSES = {Exit.NOT_FOUND: 404, Exit.WAITING: 409, Exit.UNREACHABLE: 503}
#: Pages that need no cookie: a signed link permits one answer.
OPEN = ("/a/",)
ENDING_S = 0.1  #: for a thread to end
FINISH_S = 2  #: for requests that are being answered when a signal comes
UVICORN: dict[str, object] = {"loop": "asyncio", "http": "h11", "ws": "none", "lifespan": "off", "log_config": None}
UVICORN |= dict.fromkeys(("access_log", "proxy_headers", "server_header", "date_header"), False)  # a log has the token
UVICORN["timeout_graceful_shutdown"] = FINISH_S


class Watcher:
    """Tells the open pages of changes. Nothing looks at files while no page is open."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._closed = asyncio.Event()
        self.pages = 0

    def close(self) -> None:
        self._closed.set()

    async def stream(self, topic: Topic, seen_ns: int) -> AsyncIterator[bytes]:
        """Events for a page that was made at `seen_ns`."""
        watch = Watch(self._caller, topic)
        self.pages += 1
        try:
            await asyncio.to_thread(watch.look)  # a disk may not answer
            yield RETRY
            message = CHANGED if watch.newest_ns > seen_ns else b""
            quiet_since_s = time.monotonic()
            while not self._closed.is_set():
                if not message and time.monotonic() - quiet_since_s >= HEARTBEAT_S:
                    message = ALIVE
                if message:
                    yield message
                    quiet_since_s = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), INTERVAL_S)
                message = CHANGED if await asyncio.to_thread(watch.look) else b""
        finally:
            self.pages -= 1


@route("/live")
async def stream_events(request: Request) -> Response:
    """GET /live: server-sent events of one plan, one repository, or all."""
    watcher: Watcher = request.app.state.watcher
    if watcher.pages >= MOST_STREAMS:
        return PlainTextResponse(f"more than {MOST_STREAMS} pages are open", 503)
    query = request.query_params
    seen_ns = read_number(query.get("seen", ""), request.state.began_ns)
    topic = Topic(query.get("repo", ""), query.get("plan", ""))
    return StreamingResponse(watcher.stream(topic, seen_ns), media_type="text/event-stream")


class AccessControl:
    """The application, behind what refuses requests of others and sets the headers of every response."""

    def __init__(self, site: Site, entry: EntryToken) -> None:
        routes = [*ROUTES, Mount(STATIC.rstrip("/"), StaticFiles(directory=FOLDER / "static"))]
        handlers = dict.fromkeys((HTTPException, RunplanError, OSError, Exception), show_error)
        self.app = Starlette(routes=routes, exception_handlers=handlers)
        self.app.state.site = site
        self.app.state.watcher = Watcher(Caller(env=site.env))
        self._site = site
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self.app
        request = Request(scope)
        cookie = request.cookies.get(self._site.cookie, "")
        request.state.began_ns = time.time_ns()
        request.state.session = cookie if access.is_session(self._site, cookie, time.time()) else ""
        answer: ASGIApp = self._intercept(request) or self.app

        # A browser asks whether a static file has changed.
        headers = {**HEADERS, "cache-control": "no-cache" if scope["path"].startswith(STATIC) else "no-store"}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in headers.items()]
                message["headers"] = [*message.get("headers", []), *added]
            await send(message)

        await answer(scope, receive, send_with_headers)

    def _intercept(self, request: Request) -> Response | None:
        """The answer to a request of another site or of a browser that is not signed in; None for the pages."""
        site = self._site
        headers = request.headers
        if headers.get("host", "").lower() not in site.hosts:  # it may resolve to this machine (DNS rebinding)
            return _plain_page(request, 400, "Unknown host", "These pages are not served under this name.")
        is_reading = request.method in ("GET", "HEAD")
        if site.is_read_only and not is_reading:
            return _plain_page(request, 403, "Read-only", "These pages were started to show only.")
        if not is_reading and not access.is_own_origin(site, headers.get("origin"), headers.get("sec-fetch-site")):
            return _plain_page(request, 403, "Refused", "The form was sent by another site.")
        path: str = request.scope["path"]  # not of request.url, which is made with the text of the Host
        is_shown = request.method == "GET"
        is_entry = path == ENTER
        if is_entry and is_shown and request.state.session:
            return RedirectResponse("/", 303)
        if is_entry and is_shown and self._entry.use(request.query_params.get("token", ""), time.monotonic()):
            response = RedirectResponse("/", 303)
            session = access.make_session(site, time.time())
            cookie = partial(response.set_cookie, site.cookie, session, secure=site.is_secure)
            cookie(max_age=access.SESSION_S, httponly=True, samesite="strict")
            return response
        if path.startswith((STATIC, *OPEN)) or (request.state.session and not is_entry):
            return None
        # A browser also withholds the cookie on a click from another site: a click on the page's own link sends it.
        query = request.scope["query_string"].decode("latin-1")
        again = quote("/" + path.lstrip("/")) + (f"?{query}" if query else "") if is_shown and not is_entry else "/"
        return render(request, "sign_in.html", status=401, again=again, is_entry=is_entry)


def _plain_page(request: Request, status: int, title: str, text: str) -> Response:
    return render(request, "message.html", status=status, title=title, text=text, again="", count_waiting=lambda: 0)


def show_error(request: Request, error: Exception) -> Response:
    match error:
        case HTTPException(status_code=404):
            status, text = 404, "There is no such page."
        case HTTPException():
            status, text = error.status_code, error.detail
        case LinkEnded():
            status, text = 410, str(error)
        case RunplanError():
            status, text = STATUSES.get(error.exit, 422), str(error)
        case OSError():  # such as of a repository that was unplugged while it was read
            status, text = 503, refused_by_system(error) or f"{error.filename or 'the system'}: {error.strerror}"
        case _:
            status, text = 500, f"unexpected {type(error).__name__}; the terminal of runplan web shows where"
    return _plain_page(request, status, "That did not work", text)


class WebServer(uvicorn.Server):
    """Serves an open port until a signal. Uvicorn's own loop wakes up ten times a second."""

    def __init__(self, config: uvicorn.Config, watcher: Watcher, listener: socket.socket, address: str) -> None:
        super().__init__(config)
        self.address = address  #: to open once in a browser, with the entry token
        self.listener = listener
        self._watcher = watcher
        self._end = asyncio.Event()

    def end(self) -> None:
        logging.getLogger("uvicorn.error").disabled = True  # it would log each request that is broken off
        self.should_exit = True
        self._watcher.close()
        self._end.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Both signals end the server in order. Uvicorn would raise them again after that."""
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.end)
        yield

    async def main_loop(self) -> None:
        await self._end.wait()


def run_web(args: argparse.Namespace) -> None:
    tls = tuple(args.tls) if args.tls else None
    shown = {"is_behind_proxy": args.behind_proxy, "is_read_only": args.read_only}
    with open_server(Caller(), address=args.address, port=args.port, tls=tls, **shown) as server:
        print(server.address, flush=True)  # noqa: T201 - the output of the command
        say("open this address in a browser; it can be used once, within 10 minutes. Ctrl-C ends the server.")
        server.run([server.listener])
        threads = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(ENDING_S)
        if any(thread.is_alive() and not thread.daemon for thread in threads):
            os._exit(Exit.DONE)  # Python would wait for a page that is being read; a command goes on by itself


@contextlib.contextmanager
def open_server(
    caller: Caller,
    *,
    address: str | None = None,
    port: int | None = None,
    tls: tuple[str, str] | None = None,
    is_behind_proxy: bool = False,
    is_read_only: bool = False,
) -> Iterator[WebServer]:
    """Listen; None for the setting, `tls` has the files of the certificate and its key."""
    settings = caller.user_settings.web
    address = address or settings.address
    is_encrypted = bool(tls) or is_behind_proxy
    if not is_loopback(address) and not is_encrypted:
        raise RefusedEarly(
            f"{address} can be reached from other machines, and http is not encrypted; "
            "use --tls CERT KEY, or --behind-proxy if a proxy in front of it speaks https"
        )
    if is_wildcard(address) and not settings.url:
        where = 'set url = "https://HOST:PORT" in [web] of your settings'
        raise RefusedEarly(f"{address} is no name for a browser; {where}")
    certificate, key = tls or (None, None)
    try:
        if certificate:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # also of ssl
        why = error.strerror or error
        raise UsageError(f"--tls {certificate} {key}: {why}; give the files in PEM format") from None
    scheme = "https" if tls else "http"
    # Browsers send the cookie of 127.0.0.1 to every port of it, as to the server that an agent has started.
    host = f"{secrets.token_hex(8)}.localhost" if is_loopback(address) and not tls else address
    port = settings.port if port is None else port
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family)
    except (OSError, OverflowError) as error:
        number = error.errno or 0 if isinstance(error, OSError) else 0
        reason = os.strerror(number) if number > 0 else error  # Python adds words to those of the system
        raise Unreachable(f"port {port} of {address}: {reason}; choose another: runplan web --port 0") from None
    with listener:
        bound: int = listener.getsockname()[1]
        origin = origin_of(scheme, host, bound)
        site = Site(
            env=caller.env,
            key=secrets.token_bytes(32),
            origins=list_origins(scheme, address, bound, settings.url) | {origin},
            port=bound,
            is_secure=is_encrypted,
            is_read_only=is_read_only,
        )
        token = secrets.token_urlsafe(32)
        app = AccessControl(site, EntryToken(token, time.monotonic()))
        shown = settings.url.rstrip("/") if is_encrypted and settings.url else origin
        config = uvicorn.Config(app, **UVICORN, ssl_certfile=certificate, ssl_keyfile=key)  # type: ignore[arg-type]
        yield WebServer(config, app.app.state.watcher, listener, f"{shown}{ENTER}?token={token}")
