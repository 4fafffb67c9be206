"""Text that others wrote is shown as text: in titles, commit messages, agents' output, questions and test names."""

import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from runplan.domain.standing.actions import EFFECTS
from tests.support.cli import Project, until
from tests.support.daemons import none_left, run_of, until_runs_are, user_settings
from tests.support.repos import init_repo
from tests.web.site import Site, Visitor, serve

PLAN = "plans/X.md"
MARKUP = "<script>window.hacked=1</script><img src=x onerror=window.hacked=2>"
LINK = "[a](javascript:window.hacked=3) javascript:window.hacked=4 http://evil.example/x.png"
TERMINAL = "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \u202eesrever\u202c"
HOSTILE = f"{MARKUP} {LINK} {TERMINAL} '\"`</pre></textarea>--> {{{{7*7}}}}"

SCRIPT = """\
import json, os, pathlib, subprocess, sys
words = pathlib.Path("words.txt").read_text()
print("said " + words, flush=True)
if os.environ["RUNPLAN_ROLE"] == "verify":
    items = [{"item": name, "result": "pass", "evidence": f"1.txt seen {words}"} for name in ("W1", "C1")]
    answer = {"status": "done", "summary": words, "items": items}
    pathlib.Path(os.environ["RUNPLAN_RETURN"]).write_text(json.dumps(answer))
elif os.environ["RUNPLAN_PHASE"] == "2":
    print("BLOCKER: " + words.strip())
else:
    pathlib.Path("1.txt").write_text(words)
    pathlib.Path("a<img src=x onerror=hacked()>.txt").write_text(words)
    subprocess.run(["git", "add", "-A"], check=True)
    subprocess.run(["git", "commit", "-qm", "committed " + words], check=True)
"""
TESTS = """\
echo 1..1
printf 'ok 1 - tested '; cat words.txt
"""
TEXT = f"""\
---
title: '{HOSTILE.replace("'", "''").replace(chr(27), "").replace(chr(7), "")}'
status: active
---
# {HOSTILE}

## Progress Tracker

| Phase | Status | Commit | Notes |
|---|---|---|---|
| 1 — {MARKUP} | ⬚ | | |
| 2 — {MARKUP} | ⬚ | | |

## Phase 1 — {MARKUP}

### Work Items

- [ ] {HOSTILE}

### Acceptance Criteria

- {HOSTILE}

## Phase 2 — {MARKUP}

### Work Items

- [ ] {HOSTILE}
"""
SETTINGS_OF_AGENT = """\
[agents]
implementer = "robot"
verifier = "robot"
[agents.robot]
kind = "command"
argv = ["python3", "agent.py"]
[tests]
command = "sh tests/run.sh"
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Project]:
    """A change waits whose plan, agents, tests, files and commits all have hostile words."""
    home = tmp_path / "home"
    home.mkdir()
    repo = init_repo(tmp_path / "<img src=x onerror=hacked()>")
    files = {"runplan.toml": SETTINGS_OF_AGENT, "agent.py": SCRIPT, "tests/run.sh": TESTS, PLAN: TEXT}
    for name, text in {**files, "words.txt": HOSTILE + "\n"}.items():
        repo.write(name, text)
    repo.commit(HOSTILE.replace("\x07", ""))
    with none_left(home):
        project = Project(repo=repo, home=home)
        user_settings(project, "[daemon]\nmax_parallel_repository = 2\n")
        project.runplan("start", "X", "1").exits(0)
        until(lambda: run_of(project).get("waiting_for") == "approval")
        yield project


ALONE = ("/", "/inbox", "/schedules", "/start", "/reports", "/costs", "/health")
OF_PLAN = ("/plan", "/change", "/journal")
#: Pages on which the title of the plan is.
WITH_TITLE = ("/", "/inbox", "/plan", "/change", "/journal", "/report", "/reports")


def look(visitor: Visitor, path: str, **query: str) -> None:
    """Nothing of the words has an effect."""
    page = visitor.see(path, **query)
    text = page.evaluate("document.body.textContent")
    assert page.evaluate("window.hacked") is None, path
    assert page.locator('img, iframe, object, a[href^="javascript:"], main script').count() == 0, path
    assert page.locator("a[href*='evil.example']").count() == 0, path
    assert not {"\x1b", "\x07", "\u202e", "\u202c"} & set(text), path
    assert "<script>window.hacked=1</script>" in text or path not in WITH_TITLE, path
    assert visitor.complaints == [], path


def test_hostile_words_are_text_on_every_page(browser: Browser, hostile: Project) -> None:
    with serve(hostile) as site, Visitor.enter(browser, site) as visitor:
        for path in ALONE:
            look(visitor, path)
        for path in OF_PLAN:
            look(visitor, path, plan=PLAN)
        expect(visitor.see("/plan", plan=PLAN).locator("#phase .names")).to_contain_text(f"tested {MARKUP}")
        page = visitor.see("/change", plan=PLAN, phase="1")
        expect(page.locator("#evidence")).to_contain_text(f"seen {MARKUP}")
        expect(page.locator("#diff")).to_contain_text("a<img src=x onerror=hacked()>.txt")

        page.get_by_role("button", name="Approve").click()

        expect(page.locator(".result")).to_have_text(EFFECTS["approve"])
        until_runs_are(hostile, "done")
        assert hostile.landed() == ["1"]
        look(visitor, "/report", plan=PLAN)
        expect(page.locator("main")).to_contain_text(f"committed {MARKUP}")
        look(visitor, "/plan", plan=PLAN)
        expect(page.locator("#agents")).to_contain_text(f"said {MARKUP}")
        assert hostile.runplan("start", "X", "2", "auto").code == 0
        page = visitor.see("/inbox")
        expect(page.locator("main article")).to_contain_text(MARKUP)
        page = visitor.see("/plan", plan=PLAN)
        expect(page.locator("#agents")).to_contain_text(MARKUP)
        assert page.evaluate("window.hacked") is None


def test_a_server_on_another_port_does_not_get_the_cookie(browser: Browser, site: Site) -> None:
    """Such as one that an agent has started. Browsers send a cookie to every port of its host."""
    cookies: list[str] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie", ""))
            page = b"<title>my app</title><a href='/again'>again</a>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Neighbour) as server, closing(browser.new_context()) as context:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = context.new_page()
        page.goto(site.address)
        expect(page.get_by_role("heading", name="Board")).to_be_visible()
        for host in ("127.0.0.1", "localhost"):
            page.goto(f"http://{host}:{server.server_port}/")
            page.get_by_role("link", name="again").click()
            page.wait_for_url("**/again")
        server.shutdown()
    assert len(cookies) >= 4
    assert set(cookies) == {""}
