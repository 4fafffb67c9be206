"""The proxy of a dispatch whose network is a list of hosts."""

import socket
import threading
from pathlib import Path

import pytest

from runplan.adapters.sandbox.forward import join
from runplan.adapters.sandbox.proxy import SOCKET, Proxy


class Peer:
    """A server that keeps what it gets, up to an empty line, and answers; or leads to another address, as a proxy."""

    def __init__(self, target: int = 0) -> None:
        self.got: list[bytes] = []
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1024)
            self.got.append(head)
            if self._target:
                client.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                join(client, socket.create_connection(("127.0.0.1", self._target)))
            else:
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                client.close()


@pytest.fixture
def peer() -> Peer:
    return Peer()


def ask(place: Path, text: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(place / SOCKET))
        client.sendall(text.encode())
        answer = b""
        while piece := client.recv(4096):
            answer += piece
        return answer.decode()


def test_an_absolute_address_is_asked_for_by_its_path_and_no_second_request_follows(tmp_path: Path, peer: Peer) -> None:
    Proxy(tmp_path, ("127.0.0.1",), {})
    answer = ask(tmp_path, f"GET http://127.0.0.1:{peer.port}/a?b=c HTTP/1.1\r\nProxy-Connection: keep-alive\r\n\r\n")
    assert answer.endswith("\r\n\r\nhi")
    assert peer.got == [b"GET /a?b=c HTTP/1.1\r\nConnection: close\r\n\r\n"]


def test_a_tunnel_leads_through_the_proxy_of_the_user(tmp_path: Path, peer: Peer) -> None:
    upstream = Peer(peer.port)
    Proxy(tmp_path, ("api.example",), {"HTTPS_PROXY": f"http://me:word@127.0.0.1:{upstream.port}"})
    answer = ask(tmp_path, "CONNECT api.example:443 HTTP/1.1\r\n\r\nhello\r\n\r\n")
    assert answer == "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    assert upstream.got[0].startswith(b"CONNECT api.example:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6d29yZA==" in upstream.got[0]
    assert peer.got == [b"hello\r\n\r\n"]


def test_a_refused_host_is_kept_once(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path, ("example.com",), {})
    asked = ("CONNECT evil.example:443", "CONNECT EVIL.example:443", "GET http://user@evil.example/?example.com")
    for line in (*asked, "CONNECT [::1]:22"):
        assert ask(tmp_path, f"{line} HTTP/1.1\r\nHost: example.com\r\n\r\n").startswith("HTTP/1.1 403 Forbidden")
    assert list(proxy.refused) == ["evil.example:443", "evil.example:80", "::1:22"]


@pytest.mark.parametrize("request_line", ["GET /path HTTP/1.1", "CONNECT example.com HTTP/1.1", "nonsense"])
def test_other_requests_are_no_requests_to_a_proxy(tmp_path: Path, request_line: str) -> None:
    Proxy(tmp_path, ("example.com",), {})
    assert ask(tmp_path, f"{request_line}\r\n\r\n").startswith("HTTP/1.1 400 ")
