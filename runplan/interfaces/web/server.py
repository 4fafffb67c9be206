"""Serves the pages: checks the address, opens the port, and runs until a signal ends it."""

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
from collections.abc import Iterator

import uvicorn

from runplan.app.operations.model import Caller
from runplan.domain.errors import Exit, RefusedEarly, Unreachable, UsageError
from runplan.interfaces.web.access import EntryToken, Site, is_loopback, is_wildcard, list_origins, origin_of
from runplan.interfaces.web.app import ENTER, Watcher, make_app

FINISH_S = 2  #: for requests that are being answered when a signal comes
ENDING_S = 0.1  #: for a thread to end
UVICORN: dict[str, object] = {"loop": "asyncio", "http": "h11", "ws": "none", "lifespan": "off", "log_config": None}
UVICORN |= dict.fromkeys(("access_log", "proxy_headers", "server_header", "date_header"), False)  # a log has the token
UVICORN["timeout_graceful_shutdown"] = FINISH_S


class WebServer(uvicorn.Server):
    """Serves an open port until a signal. Uvicorn's own loop wakes up ten times a second."""

    def __init__(self, config: uvicorn.Config, watcher: Watcher, listener: socket.socket, address: str) -> None:
        super().__init__(config)
        self.address = address  #: to open once in a browser, with the entry token
        self.listener = listener
        self._watcher = watcher
        self._end = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._watcher.close()
        self._end.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Both signals end the server in order. Uvicorn would raise them again after that."""

        def end_quietly() -> None:
            logging.getLogger("uvicorn.error").disabled = True  # it would log each request that is broken off
            self.end()

        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, end_quietly)
        yield

    async def main_loop(self) -> None:
        await self._end.wait()

    def run_until_signal(self) -> None:
        self.run([self.listener])
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
    with _listen(address, settings.port if port is None else port) as listener:
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
        app = make_app(site, EntryToken(token, time.monotonic()))
        shown = settings.url.rstrip("/") if is_encrypted and settings.url else origin
        config = uvicorn.Config(app, **UVICORN, ssl_certfile=certificate, ssl_keyfile=key)  # type: ignore[arg-type]
        yield WebServer(config, app.app.state.watcher, listener, f"{shown}{ENTER}?token={token}")


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except (OSError, OverflowError) as error:
        number = error.errno or 0 if isinstance(error, OSError) else 0
        why = os.strerror(number) if number > 0 else error  # Python adds words to those of the system
        raise Unreachable(f"port {port} of {address}: {why}; choose another: runplan web --port 0") from None
