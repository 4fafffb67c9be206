"""The pages that list plans and run commands, requested from a real server."""

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import pytest

from runplan.adapters.clock import SystemClock
from runplan.adapters.store.journal import Journal
from runplan.adapters.store.protocol import open_store
from runplan.domain.run.attempt_parts import StepCrashed
from runplan.domain.run.events import Answered, Event, Halted
from runplan.domain.run.rows import Acquired
from tests.support.cli import Project, a_plan, a_project, set_up, steps, writes
from tests.support.web import Browser, know, signed_in

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A landed phase, a change that waits, and a question; the title of a plan is hostile."""
    project = a_project(tmp_path_factory.mktemp("web"), "1", "2", "3")
    project.plan(a_plan("7").replace("title: X", "title: Ask"), "plans/ask.md")
    project.plan(a_plan("8").replace("title: X", "title: Bad"), "plans/bad.md")
    plan = a_plan("1", "2", "3").replace("title: X", f'title: "{HOSTILE}"').replace("Plan: X", f"Plan: {HOSTILE}")
    asks = steps('say = "BLOCKER: which <port>?"', "exit = 0", phase="7") + steps('say = "nothing"', phase="8")
    set_up(project, plan=plan, agent=writes("1", "2", "3") + asks, settings="[limits]\nplan_usd = 5.0\n")
    assert project.start("1", "auto").code == 0
    assert project.start("2").code == 4
    assert project.runplan("start", "ask", "--foreground").code == 4
    assert project.runplan("start", "bad", "--foreground").code == 1
    return project


@pytest.fixture
def browser(project: Project) -> Iterator[Browser]:
    with signed_in(project.env) as browser:
        yield browser


def address(project: Project, path: str, **query: str) -> str:
    return f"{path}?{urlencode({'repo': know(project.env, project.path).key, **query})}"


def list_pages(project: Project) -> list[str]:
    chosen = {"plan": "plans/X.md", "scope": "finish", "auto": "auto"}
    return [
        *("/", "/inbox", "/schedules", "/start", "/reports", "/report?since=today", "/health"),
        address(project, "/start", plan="plans/X.md"),
        address(project, "/start", **chosen),
        address(project, "/report", plan="plans/X.md"),
        address(project, "/health"),
        address(project, "/plan", plan="plans/X.md"),
        address(project, "/change", plan="plans/X.md"),
    ]


@pytest.mark.rest
def test_a_hostile_title_is_text_on_every_page(browser: Browser, project: Project) -> None:
    answers = {path: browser.get(path) for path in list_pages(project)}
    assert {path: answer.status for path, answer in answers.items() if answer.status != 200} == {}
    assert [path for path, answer in answers.items() if HOSTILE in answer.text] == []
    assert "&lt;script&gt;alert(1)" in answers["/"].text
    assert "which &lt;port&gt;?" in answers["/inbox"].text


def test_cards_lead_to_the_next_action(browser: Browser) -> None:
    board = browser.get("/").text
    assert re.search(r'class="button primary" href="/change\?repo=\w+&amp;plan=plans%2FX.md&amp;phase=2">Review', board)
    assert '<a class="button primary" href="/inbox">Answer' in board
    assert "$0.00 of $5.00" in board
    assert 'aria-label="1 of 3 phases done"' in board


def test_the_queue_is_a_column_of_the_board_that_can_be_reordered(browser: Browser, project: Project) -> None:
    def queue() -> list[str]:
        section = browser.get("/").text.partition('<section id="queue"')[2]
        return re.findall(r'<th scope="row">\d\. <a href="[^"]*plan=plans%2F(\w+).md"', section)

    assert queue() == ["X", "ask", "bad"]
    section = browser.get("/").text.partition('<section id="queue"')[2]
    assert section.count('name="action" value="move ') == 6, "up and down"
    assert section.count('name="verb" value="queue"') == 3, "one form a plan"
    assert section.count("disabled") == 2, "the first plan does not move up, the last one not down"
    assert "runplan " not in section.partition("</table>")[0], "a page has buttons, no command lines"
    repo = know(project.env, project.path).key
    moved = browser.act(verb="queue", repo=repo, plan="plans/bad.md", action="move 1")
    assert (moved.status, moved.headers["location"]) == (303, "/#queue")
    assert queue() == ["bad", "X", "ask"]
    browser.act(verb="queue", repo=repo, plan="plans/bad.md", action="unpin")
    assert queue() == ["X", "ask", "bad"]


def test_a_question_and_a_failed_plan_have_a_form(browser: Browser, project: Project) -> None:
    (asked,) = [body["id"] for kind, body in project.events("plans/ask.md") if kind == "QuestionAsked"]
    *_, inbox, failed = browser.get("/inbox").text.split("<article ")
    assert 'name="verb" value="retry"' in failed
    assert "phase 8: no-commits: the agent left no change" in failed
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', inbox))
    assert fields.pop("repo")
    assert fields == {"csrf": browser.csrf, "verb": "answer", "plan": "plans/ask.md", "id": asked}
    assert f'<label for="answer-{asked}">' in inbox


def test_a_start_is_shown_as_the_command_before_it_is_made(browser: Browser, project: Project) -> None:
    choose = browser.get(address(project, "/start", plan="plans/X.md")).text
    assert '<option value="phase 3">only phase 3 Step 3</option>' in choose
    assert 'name="csrf"' not in choose
    chosen = browser.get(address(project, "/start", plan="plans/X.md", scope="phase 3", auto="auto", landing="pr")).text
    assert "runplan start plans/X.md 3 auto pr</code>" in chosen
    assert '<input type="hidden" name="words" value="3 auto pr">' in chosen
    wrong = browser.get(address(project, "/start", plan="plans/X.md", scope="next", every="now and then")).text
    assert 'name="words"' not in wrong


def test_a_report_is_a_page_with_folded_diffs(browser: Browser, project: Project) -> None:
    report = browser.get(address(project, "/report", plan="plans/X.md")).text
    assert 'Write 1</summary>\n<pre tabindex="0">diff --git a/1.txt b/1.txt' in report
    assert "<title>Plan Report — &lt;script&gt;" in report


def test_the_health_of_a_repository_is_what_doctor_says(browser: Browser, project: Project) -> None:
    machine = browser.get("/health").text
    assert "took" not in machine
    assert re.search(r"\d [kMGT]?B of [\d.]+ [kMGT]?B free", machine)
    health = browser.get(address(project, "/health")).text
    assert "robot (agent.toml)" in health
    assert "set tests.command in runplan.toml" in health


def test_read_only_pages_have_no_form(project: Project) -> None:
    with signed_in(project.env, is_read_only=True) as browser:
        forms = {path: re.findall(r"<form [^>]*>", browser.get(path).text) for path in list_pages(project)}
    assert {form for found in forms.values() for form in found} == {'<form method="dialog">'}


@pytest.mark.parametrize("path", ["/start", "/report", "/plan", "/change"])
def test_only_plans_of_the_repository_are_found(browser: Browser, project: Project, path: str) -> None:
    for plan in ("plans/none.md", "../../etc/passwd", "/etc/passwd", "--help"):
        answer = browser.get(address(project, path, plan=plan))
        assert (answer.status, "root:" in answer.text) == (404, False)


def test_an_unplugged_repository_is_a_card_that_says_so(browser: Browser, project: Project, tmp_path: Path) -> None:
    stick = tmp_path / "stick"
    shutil.copytree(project.path, stick)
    key = know(project.env, stick).key
    assert "Out of reach" not in browser.get("/").text
    shutil.rmtree(stick)
    board = browser.get("/").text
    assert f'id="missing-{key}"' in board
    assert "&lt;script&gt;alert(1)" in board
    assert browser.get("/inbox").status == 200
    assert browser.get(f"/start?repo={key}&plan=plans/X.md").status == 503


def append(repository: Path, *events: Event) -> None:
    """Record events of the newest run of the plan, as a process that has ended."""
    with closing(open_store(repository / ".git/runplan")) as store:
        run = store.list_runs("plans/X.md", limit=1)[0]
        claim = store.claim_plan(run.plan, run=run.id, owner="0:0")
        assert isinstance(claim, Acquired)
        journal = Journal(store, SystemClock(), run=run.id, plan=run.plan, fence=claim.fence, on_event=lambda *_: None)
        journal.append(*events)


def test_the_pages_say_that_a_run_is_paused(browser: Browser, project: Project, tmp_path: Path) -> None:
    copy = shutil.copytree(project.path, tmp_path / "paused")
    key = know(project.env, copy).key
    tree = project.runplan("diff", "X", "--json").json["tree"]
    append(copy, Answered(tree=tree, approved=True, why="", by="Uma"), Halted(by="Uma"))
    pages = [browser.get(path).text for path in ("/", f"/plan?repo={key}&plan=plans/X.md")]
    project.repo.git("-C", str(copy), "rm", "-q", "plans/X.md")
    project.repo.git("-C", str(copy), "commit", "-qm", "Remove the plan")
    gone = [browser.get(path).text for path in ("/", f"/plan?repo={key}&plan=plans/X.md")]
    shutil.rmtree(copy)
    for text in (*pages, *gone):
        assert "Paused: phase 2, land, for " in text
    for text in gone:
        assert "the plan is gone" in text


def test_a_run_that_runplan_itself_failed_at_can_be_retried(browser: Browser, project: Project, tmp_path: Path) -> None:
    copy = shutil.copytree(project.path, tmp_path / "crashed")
    know(project.env, copy)
    append(copy, *[StepCrashed(detail="KeyError: 'key'", trace="")] * 2)
    inbox = browser.get("/inbox")
    shutil.rmtree(copy)
    (crashed,) = [entry for entry in inbox.text.split("<article ") if "KeyError" in entry]
    assert 'name="verb" value="retry"' in crashed
