"""A small page is served, an agent clicks in it with Chromium, and a person sees its screenshot before approving."""

import sys

import pytest
from playwright.sync_api import expect

from tests.support.cli import SETTINGS, Project, a_plan, fix, set_up, steps
from tests.support.mounts import obstacle
from tests.web.site import Visitor, check_look

PAGE = "<!doctype html><title>Counter</title><button>Add</button><output>0</output><script>{}</script>\n"
IDLE = PAGE.format("")
COUNTS = PAGE.format("document.querySelector('button').onclick = () => document.querySelector('output').value++")
#: The agent, with Playwright as its browser tool.
TESTER = """\
import json, os, pathlib, shutil
from playwright.sync_api import sync_playwright

answer = pathlib.Path(os.environ["RUNPLAN_RETURN"])
words = ["--disable-dev-shm-usage", "--no-sandbox"]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=words)
    page = browser.new_page(viewport={"width": 320, "height": 200})
    page.goto("http://127.0.0.1:" + os.environ["RUNPLAN_PORT"])
    page.get_by_role("button", name="Add").click()
    shown = page.locator("output").text_content()
    page.screenshot(path=answer.parent / "counter.png")
    browser.close()
findings = [] if shown == "1" else [f"I clicked Add, and the counter shows {shown}."]
shot = {"path": "counter.png", "kind": "screenshot", "summary": "After one click"}
said = {"status": "done", "summary": "Clicked Add once.", "findings": findings, "artifacts": [shot]}
answer.write_text(json.dumps(said))
"""


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_what_an_agent_finds_in_chromium_is_fixed_and_its_screenshot_is_on_the_page(
    visitor: Visitor, project: Project, sandbox: str
) -> None:
    if sandbox == "bwrap" and (why := obstacle()):
        pytest.skip(why)
    project.extra["RUNPLAN_AGENTS_SANDBOX"] = sandbox
    (project.home / "tester.py").write_text(TESTER)
    tester = f'[agents.tester]\nkind = "command"\nargv = ["{sys.executable}", "{project.home / "tester.py"}"]\n'
    settings = SETTINGS.replace('verifier = "robot"', 'verifier = "robot"\ntry = "tester"') + tester
    serve = "serve = 'python3 -m http.server $RUNPLAN_PORT --bind 127.0.0.1 --directory web'"
    project.commit_file("runplan.toml", f"{settings}[try]\npaths = ['web/**']\n{serve}\n")
    agent = steps(f"write = 'web/index.html'\ntext = '''{IDLE}'''")
    agent += fix(f'write = "web/index.html"\ntext = """{COUNTS}"""')
    set_up(project, agent=agent, plan=a_plan("1").replace("Write 1.txt", "Write web/index.html, a counter"))

    project.start("1").exits(4)
    first, second = project.bodies("TrialJudged")
    assert first["findings"] == ["I clicked Add, and the counter shows 0."]
    assert second.get("findings", []) == []
    page = visitor.see("/change", plan="plans/X.md", phase="1")
    shot = page.get_by_role("img", name="After one click")
    shot.scroll_into_view_if_needed()
    expect(shot).to_be_visible()
    page.wait_for_function("document.querySelector('img.shot').naturalWidth === 320")
    check_look(page)
