"""The pages of a plan, its change, its journal and the costs, over real connections, on what a run has left."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from runplan.hosts.daemon.state import Known
from tests.support.cli import Project, a_plan, a_project, set_up, steps, verify, writes
from tests.support.web import Browser, know, signed_in

TITLE = "<img src=x onerror=alert(1)>"
SAID = "<script>alert(2)</script>\x1b[31m"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The change of phase 1 waits: a file of 2,500 lines, a small one, and hostile texts."""
    project = a_project(tmp_path_factory.mktemp("web"), "1", "2")
    large = "".join(f"line {number}\\n" for number in range(2_500))
    agent = steps(
        f'write = "large.txt"\ntext = "{large}"',
        'write = "small.py"\ntext = "x = \'</script>\'\\n"',
        'write = "1.txt"\ntext = "1\\n"',
        'commit = "Write 1"',
    )
    passed = '{item = "W1", result = "pass", evidence = [{kind = "file", ref = "1.txt", line = 1}]}'
    said = f'say = "{SAID}"'.replace("\x1b", "\\u001b")
    agent += verify(said, f'return = {{status = "done", items = [{passed}]}}')
    set_up(project, plan=a_plan("1", "2").replace("Step 1", TITLE), agent=agent + writes("2"))
    assert project.start("1").code == 4
    return project


@pytest.fixture(scope="module")
def known(project: Project) -> Known:
    return know(project.env, project.path)


@pytest.fixture(scope="module")
def browser(project: Project) -> Iterator[Browser]:
    with signed_in(project.env) as browser:
        yield browser


def address(path: str, known: Known, **query: str) -> str:
    return f"{path}?{urlencode({'repo': known.key, 'plan': 'plans/X.md', **query})}"


def hidden_fields(text: str, verb: str) -> dict[str, str]:
    """The hidden fields of the form with this verb."""
    forms = [dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)) for form in text.split("<form ")]
    return next(form for form in forms if form.get("verb") == verb)


def test_the_plan_shows_its_graph_its_dispatches_and_the_agent_as_text(browser: Browser, known: Known) -> None:
    page = browser.get(address("/plan", known))
    assert (page.status, page.text.count("<svg ")) == (200, 2)
    assert ">Review</a>" in page.text
    assert TITLE not in page.text
    assert "&lt;img src=x" in page.text
    assert "&lt;script&gt;alert(2)&lt;/script&gt;" in page.text
    assert "alert(2)</script>" not in page.text
    assert "\x1b" not in page.text
    assert " style=" not in page.text
    assert len(page.text.encode()) < 100_000
    assert 'id="item-W1"' in page.text
    other = browser.get(address("/plan", known, phase="2")).text
    assert "No run has reached this phase yet." in other


def test_the_kept_work_of_a_failed_phase_is_shown_without_forms(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    set_up(project, settings="[run]\nmax_fix_cycles = 0\n", agent=writes("1") + verify("fail = ['W1']"))
    assert project.start("auto").code == 1
    known = know(project.env, project.path)
    with signed_in(project.env) as browser:
        page = browser.get(address("/change", known, phase="1"))
    assert (page.status, "1.txt" in page.text, 'id="answer"' in page.text) == (200, True, False)


def test_the_files_of_a_trial_are_shown_as_images_or_plain_text(tmp_path: Path) -> None:
    """The first bytes decide: what an agent calls a picture may be a page with a script."""
    project = a_project(tmp_path, "1")
    serve = 'python3 -m http.server "$RUNPLAN_PORT" --bind 127.0.0.1'
    save = "cd \"${RUNPLAN_RETURN%/*}\"; printf GIF89a >a.gif; echo '<script>alert(3)</script>' >b.png"
    said = 'return = {status = "done", summary = "<i>Fine", findings = [], artifacts = ["a.gif", "b.png", "../c"]}'
    agent = writes("1") + steps(f"run = '''{save}'''", said, role="try")
    set_up(project, settings=f"[try]\npaths = ['*.txt']\nserve = '{serve}'\n", agent=agent)
    assert project.start("1").code == 4
    known = know(project.env, project.path)
    with signed_in(project.env) as browser:
        for path in ("/change", "/plan"):
            page = browser.get(address(path, known, phase="1")).text
            assert "&lt;i&gt;Fine" in page
            shown = [link.replace("&amp;", "&") for link in re.findall(r'<img class="shot" src="([^"]+)"', page)]
            assert [link.rpartition("=")[2] for link in shown] == ["trial-01-a.gif", "trial-02-b.png"]
            assert "../c: not kept: " in page
        image, text = map(browser.get, shown)
        assert (image.status, image.headers["content-type"], image.text) == (200, "image/gif", "GIF89a")
        assert text.headers["content-type"] == "text/plain; charset=utf-8"
        assert (text.headers["x-content-type-options"], text.text) == ("nosniff", "<script>alert(3)</script>\n")
        assert browser.get(shown[0].replace("trial-01-a.gif", "prompt.md")).status == 404
        browser.cookie = ""
        assert browser.get(shown[0]).status == 401


def test_the_change_shows_small_files_and_loads_large_ones(browser: Browser, known: Known) -> None:
    page = browser.get(address("/change", known, phase="1"))
    assert page.status == 200
    assert len(page.text.encode()) < 20_000
    assert "+x = &#39;&lt;/script&gt;&#39;" in page.text
    (load,) = set(re.findall(r'data-load="([^"]+)"', page.text))
    file = browser.get(load.replace("&amp;", "&"))
    assert (file.status, "+line 0<" in file.text, "+line 2499<" in file.text) == (200, True, True)


def test_an_answer_is_bound_to_what_was_shown(browser: Browser, known: Known, project: Project) -> None:
    text = browser.get(address("/change", known, phase="1")).text
    approve, reject = (hidden_fields(text, verb) for verb in ("approve", "reject"))
    shown = project.runplan("diff", "X", "--json").json
    assert (approve["tree"], reject["tree"]) == (shown["tree"], shown["tree"])
    assert (approve["csrf"], approve["phase"]) == (browser.csrf, "1")
    stale = browser.get(address("/change/file", known, phase="1", tree="0" * 40, file="0"))
    assert (stale.status, "was replaced" in stale.text) == (409, True)


def test_a_file_without_phases_is_no_plan(browser: Browser, known: Known, project: Project) -> None:
    project.repo.write("plans/README.md", "# How to write plans\n")
    answer = browser.get(address("/plan", known, plan="plans/README.md"))
    assert (answer.status, "runplan check plans/README.md" in answer.text) == (404, True)


def test_a_change_that_is_not_there_any_more_is_no_error(browser: Browser, known: Known) -> None:
    answer = browser.get(address("/change", known, phase="2"))
    assert (answer.status, "Nothing waits for you here" in answer.text) == (200, True)
    assert browser.get(address("/change/file", known, phase="1", file="99")).status == 404


def test_the_journal_tells_what_happened_and_what_followed(browser: Browser, known: Known, project: Project) -> None:
    page = browser.get(address("/journal", known))
    told = [step["why"] for step in project.runplan("explain", "X", "--json").json["steps"]]
    assert page.status == 200
    assert page.text.count('<li id="event-') == len(told)
    shown = re.findall(r"<h3>(The run|Phase 1)|<summary>([a-z ]+?) <", page.text)
    assert shown[:3] == [("Phase 1", ""), ("", "land"), ("", "verify")]
    assert shown[-2:] == [("The run", ""), ("", "between phases")]
    assert f"then: {told[-1]}".replace("'", "&#39;") in page.text
    assert "verdict    passed: 1 of 1 item proven" in page.text
    assert browser.get(address("/journal", known, run="r0")).status == 404
    for number in ("1", "-1", "x", "²", "9" * 30):  # a page that does not exist is the first one
        assert browser.get(address("/journal", known, page=number)).text.count('<li id="event-') == len(told)


def test_costs_are_shown_with_charts_and_tables(browser: Browser, known: Known) -> None:
    page = browser.get("/costs")
    assert (page.status, page.text.count('role="img"')) == (200, 2)
    assert '<th scope="row"><a href="/plan?repo=' in page.text
    assert '<th scope="row">robot</th>' in page.text
