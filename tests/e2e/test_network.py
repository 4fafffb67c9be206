"""Agents and checks whose network is a list of hosts."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.test_sandbox import Shut
from tests.support.cli import a_project
from tests.support.mounts import obstacle

#: Prints what it gets from each address, by the proxy that the environment names, and by a plain socket.
ASK = """
import socket, sys, urllib.request
for url in sys.argv[2:]:
    try:
        print("GOT", urllib.request.urlopen(url, timeout=20).read().decode())
    except OSError as error:
        print("FAILED", url, error)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
    print("PLAIN SOCKET")
except OSError as error:
    print("NO SOCKET", error)
"""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        text = f"{self.path} for {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def boxed(tmp_path: Path, port: int) -> Shut:
    if why := obstacle():
        pytest.skip(why)
    shut = Shut(a_project(tmp_path, "1"))
    shut.project.extra["RUNPLAN_AGENTS_SANDBOX"] = "auto"
    ask = shut.project.home / "ask.py"
    ask.write_text(ASK)
    line = f"python3 {ask} {port} http://127.0.0.1:{port}/one http://refused.example/two"
    set_up = f"python3 {ask} {port} http://127.0.0.1:{port}/set-up"
    shut.scripts(setup=set_up, agent=f"{line} {line[-26:]}; echo 1 >1.txt", judge="true", check=f"{line}; true")
    return shut


def test_a_process_reaches_the_named_hosts_alone_and_the_report_names_the_others(boxed: Shut, port: int) -> None:
    project = boxed.project
    for section in ("AGENTS", "TESTS"):
        project.extra[f"RUNPLAN_{section}_NETWORK"] = f"127.0.0.1:{port},*.example.com"

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err + boxed.said()
    said = boxed.said()
    assert f"GOT /one for 127.0.0.1:{port}" in said
    assert said.count(f"GOT /set-up for 127.0.0.1:{port}") == 2  # in both worktrees
    assert "FAILED http://refused.example/two HTTP Error 403" in said
    assert "NO SOCKET" in said
    assert "PLAIN SOCKET" not in said
    for text in (project.runplan("report", "X").out.replace("\\", ""), project.runplan("logs", "X").out):
        assert text.count("sh asked for refused.example:80, refused: it is not in agents.network") == 1
        assert "the gate command asked for refused.example:80, refused: it is not in tests.network" in text


def test_a_process_without_a_network_reaches_nothing(boxed: Shut) -> None:
    boxed.project.extra |= {"RUNPLAN_AGENTS_NETWORK": "none", "RUNPLAN_TESTS_NETWORK": "none"}

    ran = boxed.project.start("1", "auto")

    assert ran.code == 0, ran.err + boxed.said()
    assert "NO SOCKET" in boxed.said()
    assert "GOT" not in boxed.said()


def test_a_list_of_hosts_is_refused_where_no_sandbox_can_keep_it(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.extra |= {"RUNPLAN_AGENTS_SANDBOX": "none", "RUNPLAN_TESTS_NETWORK": "example.com"}

    project.start("1", "auto").exits(2, 'tests.network needs a sandbox: agents.sandbox = "none"')
