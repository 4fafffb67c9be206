"""The pages of `runplan web` on a free port of this machine, and a browser without a window."""

import asyncio
import contextlib
import http.client
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from runplan.adapters.configuration.places import state_directory
from runplan.app.operations.model import Caller
from runplan.hosts.daemon.state import Known, remember_repository
from runplan.interfaces.web.access import Site, make_form_token
from runplan.interfaces.web.app import Watcher, WebServer, open_server


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass
class Browser:
    """Requests to one server; it keeps the cookie."""

    server: WebServer
    tls: ssl.SSLContext | None = None
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.server.listener.getsockname()[1])

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def site(self) -> Site:
        site: Site = self.server.config.app.app.state.site  # type: ignore[union-attr]
        return site

    @property
    def watcher(self) -> Watcher:
        watcher: Watcher = self.server.config.app.app.state.watcher  # type: ignore[union-attr]
        return watcher

    @property
    def csrf(self) -> str:
        return make_form_token(self.site, self.cookie.partition("=")[2])

    def connect(self) -> http.client.HTTPConnection:
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        """Send a request; the caller reads the response."""
        sent = {"Connection": "close", **({"Cookie": self.cookie} if self.cookie else {})}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self.connect()
        connection.request(method, path, body=body, headers=sent)
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return _read(self.open(method, path, body, **headers))

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Answer:
        """Send a form as a page of the server does."""
        form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": self.origin}
        return self.ask("POST", path, urlencode(fields), **form | headers)

    def act(self, **fields: str) -> Answer:
        return self.post("/act", {"csrf": self.csrf, **fields})

    def enter(self) -> Answer:
        """Open the printed address, and keep the cookie."""
        parts = urlsplit(self.server.address)
        answer = self.get(f"{parts.path}?{parts.query}")
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer


def _read(response: http.client.HTTPResponse) -> Answer:
    with contextlib.closing(response):
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read().decode())


@contextlib.contextmanager
def serving(
    env: Mapping[str, str],
    *,
    tls: ssl.SSLContext | None = None,
    certificate: tuple[str, str] | None = None,
    **options: Any,
) -> Iterator[Browser]:
    """A server in a thread, and a browser that has not signed in."""
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve(server: WebServer) -> None:
        loops.append(asyncio.get_running_loop())
        await server.serve([server.listener])

    with open_server(Caller(env=env), port=0, tls=certificate, **options) as server:
        thread = threading.Thread(target=lambda: asyncio.run(serve(server)))
        thread.start()
        try:
            yield Browser(server, tls)
        finally:
            loops[0].call_soon_threadsafe(server.end)
            thread.join(30)
    assert not thread.is_alive()


@contextlib.contextmanager
def signed_in(env: Mapping[str, str], **options: Any) -> Iterator[Browser]:
    with serving(env, **options) as browser:
        browser.enter()
        yield browser


def know(env: Mapping[str, str], root: Path) -> Known:
    """Have runplan know the repository, as after a first run."""
    known = Known(common=str(root / ".git"), root=str(root))
    remember_repository(state_directory(env), known)
    return known
