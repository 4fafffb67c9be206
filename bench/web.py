"""`runplan web` with fifty plans and a thousand runs behind it, against a bare Starlette page on the same uvicorn.

`python -m bench.web [ROUNDS]` measures it alone. Without Chromium the time until a page shows an event is left out.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from bench.daemon import size, spent
from bench.growth import RUNPLAN, fill, first_run, git
from bench.projects import environment, make, plan
from runplan.app.views.repositories import list_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

PLANS = 50
RUNS = 1_000
STREAMS = 50
IDLE_S = 10
SHOWN_PLAN = "plans/P0.md"

#: A page with one line, and a stream that sends an event for each POST.
BARE = """
import asyncio, socket, uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
SCRIPT = '''new EventSource("/live").onmessage = async () => {
  document.querySelector("main").innerHTML = await (await fetch("/")).text() }'''
PAGE = f"<!doctype html><title>Bare</title><main>One line</main><script>{SCRIPT}</script>"
queues = set()
def page(request):
    return HTMLResponse(PAGE)
async def poke(request):
    for queue in queues:
        queue.put_nowait(1)
    return Response()
async def stream():
    queue = asyncio.Queue()
    queues.add(queue)
    yield b"retry: 1000\\n\\n"
    while True:
        await queue.get()
        yield b"data: 1\\n\\n"
async def live(request):
    return StreamingResponse(stream(), media_type="text/event-stream")
routes = [Route("/", page), Route("/live", live), Route("/poke", poke, methods=["POST"])]
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
config = uvicorn.Config(Starlette(routes=routes), loop="asyncio", http="h11", log_level="critical",
                        timeout_graceful_shutdown=1)
uvicorn.Server(config).run([listener])
"""

#: Resolves with the time of the next change of the page's text, in milliseconds.
NEXT_CHANGE = """() => { window.changed = new Promise((resolve, reject) => {
  setTimeout(() => reject(new Error("the page does not change")), 20000);
  new MutationObserver(() => resolve(performance.timeOrigin + performance.now()))
    .observe(document.querySelector("main"), {childList: true, subtree: true, characterData: true, attributes: true});
}) }"""


class Server(Struct, frozen=True, kw_only=True):
    """A server under measurement, and how its pages are asked for."""

    address: str
    pid: int
    cookie: str = ""

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{urlsplit(self.address).port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.netloc, timeout=60)

    def get(self, connection: http.client.HTTPConnection, path: str) -> tuple[float, bytes]:
        """The seconds to the first byte of the answer, and the answer."""
        began = time.perf_counter()
        connection.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
        answer = connection.getresponse()
        first = answer.read(1)
        took = time.perf_counter() - began
        body = first + answer.read()
        assert answer.status == 200, (path, answer.status, body[:500])
        return took, body


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tempfile.TemporaryDirectory() as place:
        web(Path(place), rounds)


def web(place: Path, rounds: int) -> None:
    root = make_past(place)
    env = environment(root.parent / "home")
    (known,) = list_known(env)
    shown = urlencode({"repo": known.key, "plan": SHOWN_PLAN})
    with (
        started([sys.executable, "-c", BARE], root, env) as bare,
        started([RUNPLAN, "web", "--port", "0"], root, env) as printed,
    ):
        ours = sign_in(printed)
        idle(ours, "no page open")
        first_bytes(bare, ours, {"board": "/", "plan": f"/plan?{shown}"}, rounds)
        weights(ours, list_pages(shown))
        updates(bare, ours, root, f"/plan?{shown}", max(5, rounds // 3))
        memory(bare, ours, shown)
        idle(ours, f"{STREAMS} pages closed again")


def make_past(place: Path) -> Path:
    """A repository with the plans, and finished runs of all of them."""
    root = make(place / "web", files=100, phases=2)
    names = [f"plans/P{number}.md" for number in range(PLANS)]
    for name in names:
        (root / name).write_text(plan(2), encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Plans")
    first_run(root)
    fill(root, names * (RUNS // PLANS))
    return root


def list_pages(shown: str) -> list[str]:
    """Every page but the change: a finished plan has none."""
    alone = ["/", "/inbox", "/schedules", "/start", "/reports", "/costs", "/health"]
    return [*alone, *(f"{path}?{shown}" for path in ("/plan", "/report", "/journal"))]


# --- figures ---------------------------------------------------------------------------------------------------


def first_bytes(bare: Server, ours: Server, pages: dict[str, str], rounds: int) -> None:
    """The time to the first byte of each page, interleaved with the bare one."""
    with closing(bare.connect()) as bare_connection, closing(ours.connect()) as connection:
        floor = []
        took: dict[str, list[float]] = {name: [] for name in pages}
        for number in range(rounds + 2):
            floor_s, _ = bare.get(bare_connection, "/")
            seconds = {name: ours.get(connection, path)[0] for name, path in pages.items()}
            if number >= 2:  # the first ones compile templates
                floor.append(floor_s)
                for name in pages:
                    took[name].append(seconds[name])
    bare_s = statistics.median(floor)
    for name, seconds_of in took.items():
        ours_s = statistics.median(seconds_of)
        print(
            f"web, {name} with {PLANS} plans and {RUNS} runs: first byte after {ours_s * 1000:.1f} ms, bare page "
            f"{bare_s * 1000:.2f} ms, ratio {ours_s / bare_s:.0f}",
            flush=True,
        )


def weights(ours: Server, paths: list[str]) -> None:
    """The bytes of each page with its style and script."""
    with closing(ours.connect()) as connection:
        shared = sum(len(ours.get(connection, f"/static/{name}")[1]) for name in ("style.css", "live.js"))
        sizes = [(path.partition("?")[0], len(ours.get(connection, path)[1]) + shared) for path in paths]
    shown = ", ".join(f"{path} {count / 1000:.1f}" for path, count in sizes)
    print(f"web, weight of the pages in kB, of which style and script {shared / 1000:.1f}: {shown} (at most 100)")


def updates(bare: Server, ours: Server, root: Path, path: str, rounds: int) -> None:
    """From an event in the journal to the change of the page in Chromium, and the same for a bare stream."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("web, time from an event to the page: not measured, there is no chromium; see: make install-browser")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, ExitStack() as stack:
        browser = stack.enter_context(playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]))
        page = browser.new_page()
        name, _, value = ours.cookie.partition("=")
        page.context.add_cookies([{"name": name, "value": value, "url": f"http://{ours.netloc}"}])
        page.goto(f"http://{ours.netloc}{path}")
        bare_page = browser.new_page()
        bare_page.goto(bare.address)
        time.sleep(1)  # until both streams are open
        floor, took = [], []
        for _ in range(rounds):
            floor.append(update_s(bare_page, lambda: poke(bare)))
            took.append(update_s(page, lambda: fill(root, [SHOWN_PLAN])))
    a, b = statistics.median(took), statistics.median(floor)
    print(
        f"web, page shows an event after {a * 1000:.0f} ms ({min(took) * 1000:.0f}..{max(took) * 1000:.0f}), "
        f"bare stream {b * 1000:.0f} ms, ratio {a / b:.1f}",
        flush=True,
    )


def update_s(page: Page, act: Callable[[], None]) -> float:
    """The seconds from the act to the change of the page that it causes."""
    page.evaluate(NEXT_CHANGE)
    acted = time.time()
    act()
    changed: float = page.evaluate("window.changed")
    page.wait_for_timeout(600)  # until later changes of the same event are drawn
    return changed / 1000 - acted


def poke(bare: Server) -> None:
    with closing(bare.connect()) as connection:
        connection.request("POST", "/poke", headers={"Content-Length": "0"})
        connection.getresponse().read()


def memory(bare: Server, ours: Server, shown: str) -> None:
    """The memory of both servers with many open streams, each of a page that was loaded."""
    before = size(ours.pid)[0]
    with ExitStack() as stack:
        for number in range(STREAMS):
            query = shown if number % 2 else ""
            with closing(ours.connect()) as connection:
                ours.get(connection, f"/plan?{query}" if query else "/")
            stack.enter_context(stream(ours, f"/live?{query}"))
            stack.enter_context(stream(bare, "/live"))
        floor, most = size(bare.pid)[0], size(ours.pid)[0]
    print(
        f"web, {STREAMS} open pages: {most / 1024:.0f} MiB, before {before / 1024:.0f} MiB, bare server with as many "
        f"streams {floor / 1024:.0f} MiB, ratio {most / floor:.2f}",
        flush=True,
    )


@contextmanager
def stream(server: Server, path: str) -> Iterator[None]:
    """An open stream that has sent its first bytes."""
    host, port = server.netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        cookie = f"Cookie: {server.cookie}\r\n" if server.cookie else ""
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {server.netloc}\r\n{cookie}\r\n".encode())
        received = b""
        while b"retry:" not in received:
            received += connection.recv(4096)
        yield


def idle(ours: Server, called: str) -> None:
    """What the server does while no page is open."""
    time.sleep(2)
    before = spent(ours.pid)
    time.sleep(IDLE_S)
    after = spent(ours.pid)
    print(
        f"web, {called}: {after[0] - before[0]:.2f} CPU seconds and {after[1] - before[1]} wake-ups in {IDLE_S} s "
        f"(target 0)",
        flush=True,
    )


# --- the processes ---------------------------------------------------------------------------------------------


@contextmanager
def started(command: list[str], cwd: Path, env: dict[str, str]) -> Iterator[Server]:
    """A server that has printed its address."""
    with subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        try:
            yield Server(address=process.stdout.readline().decode().strip(), pid=process.pid)
        finally:
            process.terminate()
            process.wait(60)


def sign_in(server: Server) -> Server:
    """The server with the cookie that its printed address gives."""
    parts = urlsplit(server.address)
    with closing(server.connect()) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        cookie = (answer.headers["Set-Cookie"] or "").partition(";")[0]
    return Server(address=server.address, pid=server.pid, cookie=cookie)


if __name__ == "__main__":
    main()
