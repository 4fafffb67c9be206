"""The proxy of a dispatch whose network is a list of hosts. It is part of the shim, and ends with it."""

import contextlib
import os
import re
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from runplan.adapters.sandbox.forward import join
from runplan.domain.settings.schema import is_allowed_host

SOCKET = "runplan-proxy"  #: in the folder of a dispatch that is /run in its view
CONNECT_S = 30.0
LARGEST_HEAD = 65536  #: bytes of a request before its body
MOST_REFUSED = 100  #: names that are kept
_PER_HOP = re.compile(rb"^(?:Proxy-[^\r\n]*|(?:Keep-Alive|Connection):[^\r\n]*)\r\n", re.IGNORECASE | re.MULTILINE)


class Proxy:
    """Answers CONNECT and absolute-form requests for the named hosts, on a socket in `folder`."""

    def __init__(self, folder: Path, hosts: tuple[str, ...], env: Mapping[str, str]) -> None:
        self.refused: dict[str, None] = {}  #: each host with its port, in the order of the first request
        self._hosts = hosts
        self._upstream = env.get("HTTPS_PROXY") or env.get("https_proxy") or ""
        self._listener = socket.socket(socket.AF_UNIX)
        before = os.open(".", os.O_RDONLY)
        try:
            os.chdir(folder)  # the path of a socket has at most 107 bytes
            self._listener.bind(SOCKET)
        finally:
            os.fchdir(before)
            os.close(before)
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # too many connections are open
                time.sleep(0.1)
                continue
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(CONNECT_S)
            head, body = _read_head(client)
            request = re.match(rb"([A-Z]+) (\S+) (HTTP/1\.[01])\r\n", head)
            is_tunnel = request is not None and request[1] == b"CONNECT"
            target = request[2].decode("latin-1") if request else ""
            authority, path = (target, "") if is_tunnel else _split_address(target)
            named = re.fullmatch(r"\[?([0-9A-Za-z._:-]{1,253}?)\]?:(\d{1,5})", authority)
            if request is None or named is None:
                client.sendall(_answer_with("400 Bad Request", "this is a proxy for http and https"))
                return
            host, port = named[1].lower(), int(named[2])
            if not is_allowed_host(host, port, self._hosts):
                name = f"{host}:{port}"
                if len(self.refused) < MOST_REFUSED:
                    self.refused[name] = None
                client.sendall(_answer_with("403 Forbidden", f"{name} is not among the hosts of the settings"))
                return
            try:
                server, early = self._connect(host, port)
            except OSError as error:
                client.sendall(_answer_with("502 Bad Gateway", f"{host}:{port} cannot be reached: {error}"))
                return
            if is_tunnel:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + early)
                server.sendall(body)
            else:  # one request per connection, so that the next one is looked at
                rest = _PER_HOP.sub(b"", head[request.end() :])
                server.sendall(b"%s %s %s\r\nConnection: close\r\n" % (request[1], path.encode("latin-1"), request[3]))
                server.sendall(rest + body)
            for end in (client, server):
                end.settimeout(None)
            join(client, server)

    def _connect(self, host: str, port: int) -> tuple[socket.socket, bytes]:
        """A connection to the host, through the user's own proxy if there is one, and the first bytes from there."""
        if not self._upstream:
            return socket.create_connection((host, port), CONNECT_S), b""
        url = urlsplit(self._upstream)
        server = socket.create_connection((url.hostname or "", url.port or 80), CONNECT_S)
        login = b64encode(f"{unquote(url.username or '')}:{unquote(url.password or '')}".encode()).decode()
        sent = f"Proxy-Authorization: Basic {login}\r\n" if url.username else ""
        server.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{sent}\r\n".encode())
        head, early = _read_head(server)
        if not re.match(rb"HTTP/1\.[01] 2", head):
            raise OSError(f"the proxy {url.hostname} answers {head.partition(bytes([13]))[0].decode('latin-1')}")
        return server, early


def _read_head(source: socket.socket) -> tuple[bytes, bytes]:
    """A head with its last empty line, and what came after it; two empty texts when none comes."""
    content = b""
    while b"\r\n\r\n" not in content and len(content) < LARGEST_HEAD and (piece := source.recv(LARGEST_HEAD)):
        content += piece
    head, end, rest = content.partition(b"\r\n\r\n")
    return (head + end, rest) if end else (b"", b"")


def _split_address(target: str) -> tuple[str, str]:
    """Host and port of an absolute address, and the path there."""
    with contextlib.suppress(ValueError):
        url = urlsplit(target)
        if url.scheme == "http" and url.hostname:
            path = url._replace(scheme="", netloc="", fragment="").geturl()
            return f"{url.hostname}:{url.port or 80}", path if path.startswith("/") else f"/{path}"
    return "", ""


def _answer_with(status: str, words: str) -> bytes:
    text = f"runplan: {words}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    return head.encode() + text
