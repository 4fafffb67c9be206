"""A repository with a plan in every state, for tests that look at all pages."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support.cli import Project, until
from tests.support.daemons import none_left, run_of, until_runs_are
from tests.support.planning import GOAL, planner
from tests.support.repos import init_repo
from tests.web.site import Site

#: The files of the repository.
SHOP = Path(__file__).with_name("shop")
CHECKOUT = "plans/checkout.md"
DONE = "plans/receipts.md"
FAILED = "plans/currency.md"
QUESTION = "plans/mail.md"
RUNNING = "plans/search.md"
NIGHTLY = "plans/nightly.md"
PROPOSAL = "plans/greet-people.md"


@contextlib.contextmanager
def a_gallery(place: Path) -> Iterator[Project]:
    """The repository, once every plan has reached its state."""
    home = place / "home"
    home.mkdir(parents=True)
    repo = init_repo(place / "shop")
    shutil.copytree(SHOP, repo.path, dirs_exist_ok=True)
    agent = (SHOP / "agent.toml").read_text(encoding="utf-8") + planner()
    repo.commit("Begin", **{"agent.toml": agent, "shop/prices.py": "def total(prices): ...\n"})
    with none_left(home):
        project = Project(repo=repo, home=home)
        _work(project)
        yield project


def _work(project: Project) -> None:
    _run(project, "start", DONE, "finish", "auto")
    _run(project, "start", FAILED, "auto")
    until_runs_are(project, "done", plan=DONE)
    _run(project, "start", CHECKOUT, "finish")
    for _ in range(2):
        until(lambda: run_of(project, CHECKOUT).get("waiting_for") == "approval")
        _run(project, "approve", CHECKOUT)
        until(lambda: run_of(project, CHECKOUT).get("waiting_for") != "approval")
    _run(project, "start", QUESTION, "auto")
    _run(project, "start", NIGHTLY, "every", "day", "at", "3am")
    _run(project, "start", RUNNING, "auto")
    _run(project, "plan", GOAL, "--quick")
    until_runs_are(project, "failed", plan=FAILED)
    for plan, wait in ((CHECKOUT, "approval"), (QUESTION, "question"), (PROPOSAL, "approval")):
        until(lambda plan=plan, wait=wait: run_of(project, plan).get("waiting_for") == wait)  # type: ignore[misc]


def _run(project: Project, *words: str) -> None:
    ran = project.runplan(*words)
    assert ran.code in (0, 4), (words, ran.err)


ALONE = ("inbox", "schedules", "start", "reports", "costs", "health")
OF_PLANS = {
    "plan": ("/plan", {"plan": CHECKOUT}),
    "plan-running": ("/plan", {"plan": RUNNING}),
    "plan-failed": ("/plan", {"plan": FAILED}),
    "plan-proposed": ("/plan", {"plan": PROPOSAL}),
    "change": ("/change", {"plan": CHECKOUT, "phase": "3"}),
    "change-proposed": ("/change", {"plan": PROPOSAL}),
    "change-file": ("/change/file", {"plan": CHECKOUT, "phase": "3", "file": "0"}),
    "start-plan": ("/start", {"plan": NIGHTLY}),
    "start-chosen": ("/start", {"plan": NIGHTLY, "scope": "next", "auto": "auto"}),
    "report": ("/report", {"plan": CHECKOUT}),
    "journal": ("/journal", {"plan": CHECKOUT}),
    "missing": ("/plan", {"plan": "plans/none.md"}),
}
PAGES = ("board", *ALONE, *OF_PLANS, "log")


def list_pages(site: Site) -> dict[str, str]:
    """The addresses of all pages by name."""
    addresses = {name: site.url(path, **query) for name, (path, query) in OF_PLANS.items()}
    step = site.project.bodies("DispatchStarted", CHECKOUT)[0]["id"]
    addresses["log"] = site.url("/log", plan=CHECKOUT, dispatch=step)
    return {"board": site.url("/"), **{name: site.url(f"/{name}") for name in ALONE}, **addresses}
