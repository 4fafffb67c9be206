"""A repository with a plan in every state, for tests that look at all pages."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.cli import Project, until
from tests.support.daemons import none_left, run_of, until_runs_are
from tests.support.planning import GOAL, planner
from tests.support.repos import init_repo
from tests.web.site import Site

CHECKOUT = "plans/checkout.md"
DONE = "plans/receipts.md"
FAILED = "plans/currency.md"
QUESTION = "plans/mail.md"
RUNNING = "plans/search.md"
NIGHTLY = "plans/nightly.md"
PROPOSAL = "plans/greet-people.md"
SETTINGS = """\
[agents]
implementer = "robot"
verifier = "robot"
planner = "robot"
[agents.robot]
kind = "script"
script = "agent.toml"
[tests]
command = "sh tests/run.sh"
[limits]
usd = 5.0
"""

#: Prints TAP: a test for each file.
TESTS = """\
echo 1..4
n=0
for name in "adds prices" "takes a discount off" "refuses a negative discount" "prints a receipt with a long name \
that says everything about what it promises to whom"; do
    n=$((n + 1)); echo "ok $n - $name"
done
"""

AGENT = """\
[[phase."*".implement]]
say = "I read `shop/prices.py` and its tests. The total is a float; I keep it, and round once at the end."
[[phase."*".implement]]
run = "for n in 1 2 3 4 5 6 7 8; do echo \\"step = $n  # a line of code\\"; done >shop/step$RUNPLAN_PHASE.py"
[[phase."*".implement]]
tell = {tokens = 48211, usd = 0.4321}
[[phase."*".implement]]
git = ["add", "-A"]
[[phase."*".implement]]
git = ["commit", "-qm", "Write the module of this phase"]
[[phase."*".implement]]
say = "Done: the module is written, and its tests pass."
[[phase."*".verify]]
tell = {tokens = 9120, usd = 0.0712}
[[phase."*".verify]]
pass_all = true
summary = "Each item is in the code, and its test passed."

[[phase."7".verify]]
fail = ["W1"]
evidence = "The amount is rounded twice, in `shop/step7.py` line 3 and again where it is printed."
[[phase."7".fix]]
append = "shop/step7.py"
text = "more = 1\\n"
[[phase."8".implement]]
say = "BLOCKER: Which address do the mails come from: shop@example.org or no-reply@example.org?"
[[phase."9".implement]]
say = "I look for the callers of `search()` first."
[[phase."9".implement]]
run = "echo shop/index.py; sleep 600"
"""


def write_plan(title: str, phases: dict[str, str], depends: dict[str, str] | None = None) -> str:
    """A plan; the phases are ids with their titles."""
    rows = "".join(f"| {number} — {name} | ⬚ | | |\n" for number, name in phases.items())
    sections = "".join(
        f"\n## Phase {number} — {name}\n\n### Work Items\n\n- [ ] Write `shop/step{number}.py`.\n"
        "- [ ] Keep the old names working.\n\n### Acceptance Criteria\n\n- The tests of the shop pass.\n"
        + (f"\n### Dependencies\n\n{depends[number]}\n" if depends and number in depends else "")
        for number, name in phases.items()
    )
    return (
        f"---\ntitle: {title}\nstatus: active\n---\n# {title}\n\n## Progress Tracker\n\n"
        f"| Phase | Status | Commit | Notes |\n|---|---|---|---|\n{rows}{sections}"
    )


TEXTS = {
    CHECKOUT: write_plan(
        "Rebuild the checkout",
        {
            "1": "A basket that counts",
            "2": "Prices in cents",
            "3": "Pay by card, by invoice and by a voucher that was bought before",
            "4": "Mail the receipt",
            "5": "Close the old checkout",
        },
        {"2": "Phase 1", "3": "Phase 2", "4": "Phase 1", "5": "Phases 3 and 4"},
    ),
    DONE: write_plan("Print receipts", {"6": "Print one line for each article"}),
    FAILED: write_plan("Support more currencies", {"7": "Round once"}),
    QUESTION: write_plan("Send mails", {"8": "Send a mail for each order"}),
    RUNNING: write_plan("Search faster", {"9": "Build the index", "10": "Rank by relevance"}, {"10": "Phase 9"}),
    NIGHTLY: write_plan("Update the catalogue each night", {"11": "Read the new catalogue"}),
}


@contextlib.contextmanager
def a_gallery(place: Path) -> Iterator[Project]:
    """The repository, once every plan has reached its state."""
    home = place / "home"
    home.mkdir(parents=True)
    repo = init_repo(place / "shop")
    files = {"runplan.toml": SETTINGS, "agent.toml": AGENT + planner(), "tests/run.sh": TESTS, **TEXTS}
    for name, text in {"README.md": "# A shop\n", "shop/prices.py": "def total(prices): ...\n", **files}.items():
        repo.write(name, text)
    repo.commit("Begin")
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
