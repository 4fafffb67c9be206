"""The pages over real connections: who gets in, what is refused, and what the responses say."""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.app.operations.model import Caller
from runplan.domain.errors import RefusedEarly, Unreachable, UsageError
from runplan.interfaces.web.app import open_server
from tests.support.cli import until
from tests.support.repos import Repo, init_repo
from tests.support.tls import make_certificate
from tests.support.web import Browser, know, serving, signed_in


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return init_repo(tmp_path / "repo")


@pytest.fixture
def browser(env: dict[str, str]) -> Iterator[Browser]:
    with serving(env) as browser:
        yield browser


# --- signing in --------------------------------------------------------------------------------------------


def test_the_printed_address_signs_one_browser_in(browser: Browser) -> None:
    entered = browser.enter()
    assert (entered.status, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"} <= set(cookie)
    assert browser.get("/").status == 200
    again = Browser(browser.server)
    assert again.enter().status == 401
    assert "Each start of" in again.enter().text


def test_looking_at_the_address_does_not_use_it(browser: Browser) -> None:
    path = browser.server.address.removeprefix(browser.origin)
    assert browser.ask("HEAD", path).status == 401
    assert browser.enter().status == 303


def test_a_browser_that_is_not_signed_in_gets_a_link_to_the_same_page_of_this_site(browser: Browser) -> None:
    """A browser withholds the cookie on a click from another site."""
    for path in ("/", "/plan?repo=1&plan=x", "/live", "/nowhere", "/enter", "/enter?token="):
        assert browser.get(path).status == 401
        assert browser.get(path, Cookie=f"{browser.site.cookie}=9999999999.abc").status == 401
    assert 'href="/plan?repo=1&amp;plan=&#34;x"' in browser.get('/plan?repo=1&plan="x').text
    assert 'href="/evil.example/"' in browser.get("//evil.example/").text


# --- requests of other sites -------------------------------------------------------------------------------


def test_a_foreign_host_gets_nothing_and_a_form_of_another_site_is_refused(browser: Browser) -> None:
    browser.enter()
    for host in ("evil.example", f"evil.example:{browser.port}", "["):
        assert [browser.get(path, Host=host).status for path in ("/", "/a/x")] == [400, 400]
    for path in ("/act", "/a/x"):
        refused = browser.post(path, {"csrf": browser.csrf}, Origin="http://evil.example")
        assert (refused.status, "sent by another site" in refused.text) == (403, True)


def test_a_form_needs_the_token_of_its_browser(browser: Browser) -> None:
    browser.enter()
    for csrf in ("", "x", browser.cookie.rpartition(".")[2]):
        refused = browser.post("/act", {"csrf": csrf, "verb": "stop", "plan": "plans/X.md"})
        assert (refused.status, "out of date" in refused.text) == (403, True)


def test_a_read_only_server_takes_no_form(env: dict[str, str]) -> None:
    with signed_in(env, is_read_only=True) as browser:
        assert browser.act(verb="stop", plan="plans/X.md").status == 403
        assert browser.get("/").status == 200


# --- hostile requests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/"]
)
def test_static_files_are_those_of_their_folder(browser: Browser, path: str) -> None:
    assert browser.get("/static/live.js").status == 200
    browser.enter()
    assert browser.get(path).status == 404


@pytest.mark.parametrize("key", ["", "../repo", "0" * 16, "*", "%00"])
def test_an_unknown_repository_is_not_found(browser: Browser, key: str) -> None:
    browser.enter()
    assert browser.act(repo=key, verb="stop", plan="plans/X.md").status == 404


def test_no_text_of_a_request_becomes_a_header(browser: Browser) -> None:
    browser.enter()
    for path in (
        *("/enter?token=x%0d%0aX-Evil:1", "/%0d%0aX-Evil:1", "/static/%0d%0aX-Evil:1", "/live?repo=%0d%0aX-Evil:1"),
    ):
        response = browser.open("GET", path)
        assert "x-evil" not in {name.lower() for name, _ in response.getheaders()}
        response.close()


def test_a_large_form_is_refused(browser: Browser) -> None:
    browser.enter()
    assert browser.act(text="x" * 70_000).status == 413
    chunks = iter([b"x" * 40_000] * 2)
    assert browser.ask("POST", "/act", chunks, Origin=browser.origin).status == 413


def test_a_form_that_is_cut_off_is_no_crash(env: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with serving(env) as browser, socket.create_connection(("127.0.0.1", browser.port), timeout=30) as page:
        head = f"Host: 127.0.0.1:{browser.port}\r\nOrigin: {browser.origin}\r\nContent-Length: 9"
        page.sendall(f"POST /a/x HTTP/1.1\r\n{head}\r\n\r\nverb=".encode())
        until(lambda: len(browser.server.server_state.tasks) == 1)
        page.close()
        until(lambda: not browser.server.server_state.tasks)
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("path", ["/", "/nowhere", "/static/style.css", "/enter"])
def test_every_response_forbids_foreign_content(browser: Browser, path: str) -> None:
    headers = browser.get(path).headers
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if path.startswith("/static") else "no-store")


# --- actions -----------------------------------------------------------------------------------------------


def test_a_form_runs_the_command_and_shows_its_answer(env: dict[str, str], repo: Repo) -> None:
    known = know(env, repo.path)
    with signed_in({**repo.env, **env}) as browser:
        answer = browser.act(repo=known.key, verb="stop", plan="plans/<X>.md")
        assert answer.status == 422
        assert 'data-result="error">plans/&lt;X&gt;.md' in answer.text


# --- addresses ---------------------------------------------------------------------------------------------


def test_another_address_needs_encryption(env: dict[str, str]) -> None:
    with (
        pytest.raises(RefusedEarly, match="use --tls CERT KEY, or --behind-proxy"),
        open_server(Caller(env=env), address="192.0.2.1"),
    ):
        pass


def test_every_address_needs_a_name(env: dict[str, str]) -> None:
    with (
        pytest.raises(RefusedEarly, match="set url"),
        open_server(Caller(env=env), address="0.0.0.0", port=0, is_behind_proxy=True),
    ):
        pass
    with serving(
        {**env, "RUNPLAN_WEB_URL": "https://pages.example"}, address="0.0.0.0", is_behind_proxy=True
    ) as browser:
        assert browser.server.address.startswith("https://pages.example/enter?token=")
        assert "Secure" in browser.enter().headers["set-cookie"]
        assert browser.get("/", Host="pages.example").status == 200


def test_a_taken_port_is_named(env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Unreachable, match=f"port {port} of 127.0.0.1: .*--port 0"),
            open_server(Caller(env=env), port=port),
        ):
            pass


def test_a_certificate_makes_it_https(env: dict[str, str], tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=certificate)
    with serving(env, address="127.0.0.1", tls=trust, certificate=(certificate, key)) as browser:
        entered = browser.enter()
        assert browser.server.address.startswith("https://127.0.0.1:")
        assert entered.headers["set-cookie"].startswith("__Host-runplan-")
        assert "Secure" in entered.headers["set-cookie"]
        assert browser.get("/").status == 200
    with pytest.raises(UsageError, match="PEM"), open_server(Caller(env=env), port=0, tls=(key, key)):
        pass
    with pytest.raises(UsageError, match="No such file"), open_server(Caller(env=env), port=0, tls=("gone", key)):
        pass


# --- the command -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def command(env: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "runplan", "web", "--port", "0", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_signal_ends_it_with_open_pages_and_the_token_stays_secret(env: dict[str, str], tmp_path: Path) -> None:
    with command(env) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        token = address.partition("token=")[2]
        host = address.removeprefix("http://").partition("/")[0]
        with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=30) as page:
            page.sendall(f"GET /enter?token={token} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            cookie = re.search(rb"set-cookie: ([^;]+)", page.recv(4096))
            assert cookie is not None
            page.sendall(f"GET /live HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie[1].decode()}\r\n\r\n".encode())
            stream = page.makefile("rb")
            until(lambda: stream.readline() == b"retry: 1000\n")
            seen = Path(f"/proc/{process.pid}")
            told = b"".join((seen / name).read_bytes() for name in ("cmdline", "environ") if seen.exists())
            process.send_signal(signal.SIGTERM)
            assert stream.read().endswith(b"\r\n0\r\n\r\n")  # not broken off
            output, errors = process.communicate(timeout=10)
    assert (process.returncode, output) == (0, "")
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    for secret in (token.encode(), cookie[1].partition(b"=")[2]):
        assert secret not in told + errors.encode() + b"".join(files)


def test_an_agent_cannot_start_it(env: dict[str, str]) -> None:
    with command({**env, "RUNPLAN_AGENT": "1"}) as process:
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, "does not run inside an agent" in errors) == (2, True)


def test_without_the_extra_it_names_it(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('no', name='starlette')")
    with command({**env, "PYTHONPATH": str(tmp_path)}) as process:
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, "pip install 'runplan[web]'" in errors) == (2, True)
