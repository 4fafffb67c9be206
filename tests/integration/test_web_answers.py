"""A signed link shows one change without a sign-in, and takes one answer to it."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.adapters.configuration.places import key_directory
from runplan.adapters.notify.links import Link, LinkMaker, load_key, sign_link
from runplan.app.views.repositories import list_known
from runplan.domain.standing.actions import EFFECTS
from tests.support.cli import Project, a_project, until
from tests.support.daemons import none_left
from tests.support.web import Browser, serving, signed_in


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Its only phase waits for an approval."""
    with none_left(tmp_path / "home"):
        project = a_project(tmp_path, "1")
        assert project.start().code == 4
        yield project


@pytest.fixture
def link(project: Project) -> Link:
    (known,) = list_known(project.env)
    view = project.runplan("diff", "X", "--json").json
    named = {name: view[name] for name in ("plan", "phase", "run", "tree")}
    return Link(repo=known.key, expires=int(time.time()) + 60, nonce="n1", **named)


@pytest.fixture
def browser(project: Project) -> Iterator[Browser]:
    """It is not signed in."""
    with serving(project.env) as browser:
        yield browser


def address(project: Project, link: Link) -> str:
    return f"/a/{sign_link(load_key(key_directory(project.env)), link)}"


def answers(project: Project) -> list[str]:
    return [body["by"] for kind, body in project.events() if kind == "Answered"]


def test_the_report_names_who_approved_on_the_page(project: Project, link: Link) -> None:
    with signed_in(project.env) as browser:
        fields = {"csrf": browser.csrf, "verb": "approve", "repo": link.repo, "plan": link.plan, "tree": link.tree}
        assert browser.post("/act", fields).status == 303
    until(lambda: project.landed() == ["1"])
    assert answers(project) == ["Uma User (page)"]
    assert f"- Approved by Uma User (page) on tree `{link.tree}`" in project.runplan("report", "X").out


@pytest.mark.rest
def test_the_page_has_words_for_agents_and_forgets_what_was_learned(project: Project, link: Link) -> None:
    with signed_in(project.env) as browser:
        fields = {"csrf": browser.csrf, "repo": link.repo, "plan": link.plan}
        assert 'id="tell-text"' not in browser.get(f"/plan?repo={link.repo}&plan={link.plan}").text
        terminal = browser.post("/act", {**fields, "verb": "tell", "text": "use tabs"})
        assert (terminal.status, "runs in a terminal, not in the daemon" in terminal.text) == (422, True)
        rejected = {**fields, "verb": "reject", "tree": link.tree, "text": "no spaces"}
        assert browser.post("/act", rejected).status == 303
        until(lambda: "no spaces" in project.runplan("memory").out)
        assert "a person rejected work: no spaces" in browser.get(f"/health?repo={link.repo}").text
        (lesson,) = project.runplan("memory", "--json").json
        forgotten = browser.post("/act", {**fields, "plan": "", "verb": "forget", "id": lesson["id"]})
        assert (forgotten.status, EFFECTS["forget"] in forgotten.text) == (200, True)
    assert project.runplan("memory", "--json").json == []


def test_a_link_approves_the_change_that_it_shows_once(project: Project, link: Link, browser: Browser) -> None:
    links = LinkMaker("http://pc.example", key_directory(project.env))
    path = links.link_to_answer(link.repo, link.plan, link.phase, link.run, link.tree).removeprefix("http://pc.example")
    page = browser.get(path)
    assert (page.status, f'action="{path}"' in page.text, "1.txt" in page.text) == (200, True, True)
    assert "set-cookie" not in page.headers
    approved = browser.post(path, {"verb": "approve", "plan": "plans/other.md", "tree": "0" * 40})
    assert (approved.status, EFFECTS["approve"] in approved.text) == (200, True)
    until(lambda: project.landed() == ["1"])
    (by,) = answers(project)
    assert re.fullmatch("link [0-9a-f]{16}", by)
    for again in (browser.get(path), browser.post(path, {"verb": "approve"})):
        assert (again.status, "was used" in again.text) == (410, True)


def test_a_link_is_for_one_change_and_a_time(project: Project, link: Link, browser: Browser) -> None:
    path = address(project, link)
    refused = {
        path[:-2]: 404,
        path.replace(".", ".x"): 404,
        "/a/x": 404,
        address(project, replace(link, expires=int(time.time()))): 410,
        address(project, replace(link, tree="0" * 40)): 409,
        address(project, replace(link, run="r0")): 409,
        address(project, replace(link, repo="0" * 16)): 409,
    }
    for wrong, status in refused.items():
        assert [browser.get(wrong).status, browser.post(wrong, {"verb": "approve"}).status] == [status, status]
    other = browser.post(path, {"verb": "start", "words": "auto"})
    assert (other.status, "a link approves or rejects one change" in other.text) == (422, True)
    assert browser.post(path, {"verb": "approve"}, Origin="http://evil.example").status == 403
    assert [browser.get(page).status for page in ("/", "/change?repo=1&plan=plans/X.md", "/inbox")] == [401] * 3
    assert answers(project) == []
