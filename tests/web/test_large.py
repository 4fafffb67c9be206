"""A long past and a large diff do not make the pages slow or heavy."""

import time

from playwright.sync_api import Browser, Page, expect

from bench.growth import fill
from runplan.domain.standing.actions import EFFECTS
from tests.support.cli import Project, a_plan, steps, until
from tests.support.daemons import run_of
from tests.web.site import Visitor, serve

HEAVIEST = 100_000  #: bytes of a page with its style and script, without the diff
LONGEST_S = 5.0  #: for a page, on a busy machine

#: The bytes of the page, its style and its script, without the stream of events.
WEIGHT = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .filter((entry) => !entry.name.includes("/live?")).reduce((sum, entry) => sum + entry.decodedBodySize, 0)"""


def weigh(page: Page) -> int:
    return page.evaluate(WEIGHT)


def test_fifty_plans_with_a_thousand_runs_are_shown_at_once(browser: Browser, project: Project) -> None:
    names = [f"plans/P{number}.md" for number in range(50)]
    for number, name in enumerate(names):
        project.repo.write(name, a_plan("1", "2").replace("title: X", f"title: Plan {number}"))
    project.repo.commit("Plans")
    assert project.start("1", "auto").code == 0
    fill(project.path, names * 20, has_logs=False)
    assert len(project.rows("SELECT id FROM runs")) == 1_001
    queries = {"/plan": "plans/P7.md", "/journal": "plans/P7.md", "/report": "plans/P7.md"}
    alone = ("/", "/inbox", "/schedules", "/start", "/reports", "/costs")
    with serve(project) as site, Visitor.enter(browser, site) as visitor:
        expect(visitor.page().locator(".card").first).to_be_visible()
        for path in (*alone, *queries):
            began = time.monotonic()
            page = visitor.see(path, **({"plan": queries[path]} if path in queries else {}))
            took = time.monotonic() - began
            expect(page.locator("main h1")).to_have_count(1)
            weight = weigh(page)
            assert took < LONGEST_S, (path, took)
            assert 1_000 < weight < HEAVIEST, (path, weight)
        page = visitor.see()
        expect(page.locator("main")).to_contain_text("51 plans" if page.locator(".card").count() < 51 else "Plan 49")


def test_a_diff_of_20000_lines_is_folded_and_a_file_loads_when_it_is_opened(visitor: Visitor, project: Project) -> None:
    lines = ("seq 1 20000 >big.txt", "seq 1 30 >small.txt")
    commit = ('git = ["add", "-A"]', 'git = ["commit", "-qm", "Much"]')
    project.agent(steps(*(f'run = "{line}"' for line in lines), 'write = "1.txt"\ntext = "1\\n"', *commit))
    assert project.runplan("start", "X", "1").code == 0
    until(lambda: run_of(project).get("waiting_for") == "approval")

    page = visitor.see("/change", plan="plans/X.md", phase="1")

    assert weigh(page) < HEAVIEST
    big = page.locator("#diff details").filter(has_text="big.txt")
    assert big.get_attribute("open") is None
    expect(big).not_to_contain_text("+1999")
    big.locator("summary").click()
    expect(big).to_contain_text("+20000")
    small = page.locator("#diff details").filter(has_text="small.txt")
    if small.get_attribute("open") is None:
        small.locator("summary").click()
    expect(small).to_contain_text("+30")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".result")).to_have_text(EFFECTS["approve"])
