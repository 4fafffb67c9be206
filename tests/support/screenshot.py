"""Takes the screenshot of the start page: the board of repositories in which scripted agents work.

`python -m tests.support.screenshot` (`make docs`) needs Chromium and Playwright.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.support.cli import RUNPLAN
from tests.support.documents import ROOT
from tests.support.environment import own_environment
from tests.support.transcripts import AGENTS, Stage, a_stage

PICTURE = ROOT / "docs/board.png"
MOST_BYTES = 150_000
SETTINGS = f"{AGENTS}\n[limits]\nplan_usd = 5.0\n"
#: Titles and phases of plans.
SEARCH = ("Search in notes", ("Find words", "Best match first", "Highlight matches"))
DARK = ("Dark mode", ("Name the colours", "Follow the system"))
EXPORT = ("Export notes", ("Write a file", "Choose a folder"))
#: The last phase is at work while the picture is taken.
AT_WORK = """
[[phase."*".implement]]
append = "code.py"
text = "pass\\n"
[[phase."*".implement]]
tell = {{tokens = {tokens}, usd = {usd}}}
[[phase."{last}".{role}]]
sleep = 300
"""
ASKING = '[[phase."1".implement]]\nsay = "BLOCKER: Is the file JSON or Markdown?"\n'


def make_shop(stage: Stage) -> None:
    """The project of the demo: the first phase has landed, the second waits for approval."""
    stage.run(f"cp -r {ROOT}/config/demo shop && cd shop && git init -q -b main")
    stage.write("check", "exec python3 -m unittest discover -v -s tests\n")
    stage.run("git add . && git commit -qm Start")
    stage.run("runplan start DISCOUNT finish --foreground; runplan approve DISCOUNT; cd ..")


def make_project(stage: Stage, name: str, plan: tuple[str, tuple[str, ...]], script: str, *words: str) -> None:
    """A project with a plan that is started."""
    title, phases = plan
    stage.run(f"mkdir {name} && cd {name} && git init -q -b main")
    stage.write("plans/PLAN.md", f"# Plan: {title}\n\n" + "".join(f"- [ ] {phase}\n" for phase in phases))
    stage.write("runplan.toml", SETTINGS)
    stage.write("actor.toml", script)
    stage.run("git add . && git commit -qm Start")
    stage.run(f"runplan start PLAN finish auto {' '.join(words)}; cd ..")


@contextlib.contextmanager
def serve(stage: Stage) -> Iterator[str]:
    """The address of the pages of this person."""
    argv = [str(RUNPLAN), "web", "--port", "0"]
    with subprocess.Popen(argv, cwd=stage.home, env=stage.env, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().decode().strip()
        finally:
            server.terminate()


def take_picture(address: str) -> bytes:
    words = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=shutil.which("chromium"), args=words) as browser,
    ):
        page = browser.new_page(viewport={"width": 1100, "height": 400}, color_scheme="light")
        page.goto(address)
        for current in ("Refuse impossible discounts", "Write a file", "Highlight matches", "Follow the system"):
            expect(page.get_by_text(current).first).to_be_visible(timeout=60_000)
        picture: bytes = page.screenshot(full_page=True)
        return picture


def main() -> None:
    with own_environment(), tempfile.TemporaryDirectory() as place, a_stage(Path(place) / "uma") as stage:
        make_shop(stage)
        make_project(stage, "files", EXPORT, ASKING, "--foreground")
        make_project(stage, "notes", SEARCH, AT_WORK.format(tokens=48120, usd=0.37, last=3, role="implement"))
        make_project(stage, "site", DARK, AT_WORK.format(tokens=91800, usd=0.82, last=2, role="verify"))
        with serve(stage) as address:
            picture = take_picture(address)
    assert len(picture) <= MOST_BYTES, f"{len(picture)} bytes: make it smaller"
    PICTURE.write_bytes(picture)


if __name__ == "__main__":
    main()
