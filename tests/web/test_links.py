"""Signed links of notifications: they show one change and answer it once, without a cookie."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from runplan.adapters.configuration.places import key_directory
from runplan.adapters.notify.links import Link, load_key, sign_link
from tests.support.cli import Project, fix, until, writes
from tests.support.daemons import run_of, until_runs_are
from tests.web.site import Site, Visitor, check_look, key_of

PLAN = "plans/X.md"


@pytest.fixture
def stranger(browser: Browser, site: Site) -> Iterator[Visitor]:
    """The browser of a phone, which has never signed in."""
    with Visitor.open(browser, site, viewport={"width": 390, "height": 844}) as visitor:
        yield visitor


def wait_for_approval(project: Project) -> str:
    """The tree of the change that waits."""
    project.agent(writes("1", "2") + fix('append = "1.txt"\ntext = "and more\\n"', 'commit = "Write more"'))
    assert project.runplan("start", "X", "1").code == 0
    until(lambda: run_of(project).get("waiting_for") == "approval")
    return str(project.runplan("diff", "X", "--json").json["tree"])


def make_link(site: Site, tree: str, *, nonce: str = "1a2b", valid_s: int = 600) -> str:
    run = run_of(site.project)["id"]
    expires = int(time.time()) + valid_s
    link = Link(repo=key_of(site.project), plan=PLAN, phase="1", run=run, tree=tree, expires=expires, nonce=nonce)
    return f"{site.origin}/a/{sign_link(load_key(key_directory(site.project.env)), link)}"


def test_a_link_shows_the_change_and_approves_it_once(stranger: Visitor, project: Project) -> None:
    address = make_link(stranger.site, wait_for_approval(project))
    page = stranger.page()
    page.goto(address)
    expect(page.locator("#diff .add")).to_have_text("+1")
    assert [kind for kind, _ in project.events() if kind == "Answered"] == [], "to look is no answer"
    check_look(page)

    page.get_by_role("button", name="Approve").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Done")
    expect(page.locator("form")).to_have_count(0)
    until_runs_are(project, "done")
    (answer,) = [body for kind, body in project.events() if kind == "Answered"]
    assert (answer["approved"], answer["by"]) == (True, "link 1a2b")
    page.goto(address)
    expect(page.locator("main")).to_contain_text("used")
    expect(page.locator("form")).to_have_count(0)
    page.goto(stranger.site.url("/"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    check_look(page)


def test_a_link_rejects_with_words_and_is_used_up(stranger: Visitor, project: Project) -> None:
    page = stranger.page()
    address = make_link(stranger.site, wait_for_approval(project))
    page.goto(address)
    page.get_by_label("What should be different?").fill("More.")
    page.get_by_role("button", name="Request changes").click()
    until(lambda: times_asked(project) == 2)
    page.goto(address)
    expect(page.locator("form")).to_have_count(0)
    assert project.landed() == []


def times_asked(project: Project) -> int:
    return sum(1 for kind, _ in project.events() if kind == "ApprovalAsked")
