"""What is asked for while a desk is at a step has its own step afterwards, whoever had one before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan.app.holding import Declined, Errand
from runplan.core.events import Approved, Rejected, RunStarted
from tests.integration.test_keeper import Audience, Timers, a_keeper
from tests.support.cli import a_plan, a_project, until, with_remote
from tests.support.daemons import none_left, run_of, shell_agent, states, until_runs_are
from tests.support.scripts import Meanwhile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.app.keeper import Keeper
    from tests.support.cli import Project

#: The remote takes what is pushed when it is let on.
HOOK = """\
#!/bin/sh
touch {place}/push.here
until test -e {place}/push.on; do sleep 0.01; done
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        made = a_project(tmp_path, "1", "2")
        made.plan(a_plan("9"), "plans/Y.md")
        shell_agent(made, tmp_path)
        hook = with_remote(made, tmp_path / "origin").path / "hooks/pre-receive"
        hook.write_text(HOOK.format(place=tmp_path))
        hook.chmod(0o755)
        yield made


@pytest.fixture
def keeper(project: Project) -> Iterator[Keeper]:
    made = a_keeper(project, Timers(), Audience())
    yield made
    assert made.close(20)


def started(plan: str = "plans/X.md", *, auto: bool = True, landing: str = "direct") -> RunStarted:
    return RunStarted(
        plan=plan, title="", mode="next", wanted="", auto=auto, landing=landing, target="main", slug=plan[6].lower(),
        max_fix_cycles=2, test_command="", remote="origin" if landing == "direct" else "", daemon=True,
    )  # fmt: skip


def test_a_run_that_is_begun_while_the_one_before_it_lands_is_worked(
    project: Project, keeper: Keeper, tmp_path: Path
) -> None:
    meanwhile = Meanwhile(tmp_path)
    keeper.begin(Errand(started=started()))
    meanwhile.reached("push")
    again = keeper.begin(Errand(started=started()))
    meanwhile.let_on("push")
    assert again.result(30)
    until_runs_are(project, "done", "done")


def test_a_retry_while_the_run_ends_well_begins_nothing(project: Project, keeper: Keeper, tmp_path: Path) -> None:
    """Whether there is anything to retry is known at the desk, not to whoever looked before it."""
    meanwhile = Meanwhile(tmp_path)
    keeper.begin(Errand(started=started()))
    meanwhile.reached("push")
    again = keeper.begin(Errand(started=started(), again=True))
    meanwhile.let_on("push")
    told = again.result(30)
    assert isinstance(told, Declined)
    assert (told.owner, told.why) == ("", "the last run of plans/X.md ended well; nothing to retry")
    late = keeper.begin(Errand(started=started(), answer=Approved(tree="0" * 40))).result(30)
    assert isinstance(late, Declined)
    assert late.why == "no candidate of plans/X.md waits any more; see: runplan status plans/X.md"
    assert states(project) == ["done"]
    assert project.runplan("start", "X", "auto", "--foreground").code == 0, "nobody owns the plan"


def test_what_is_approved_while_another_plan_lands_goes_on(project: Project, keeper: Keeper, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    asks = started(auto=False, landing="cherry-pick")
    keeper.begin(Errand(started=asks))
    until_runs_are(project, "waiting")
    keeper.begin(Errand(started=started("plans/Y.md")))
    meanwhile.reached("push")
    approved = keeper.begin(Errand(started=asks, answer=Approved(tree=asked_for(project))))
    meanwhile.let_on("push")
    assert approved.result(30)
    until(lambda: next_after(project, "Approved") == "LandingMoved")  # the other plan has moved the target


def test_a_rejection_of_what_does_not_wait_any_more_refuses_nothing_else(
    project: Project, keeper: Keeper, tmp_path: Path
) -> None:
    meanwhile = Meanwhile(tmp_path)
    keeper.begin(Errand(started=started()))
    meanwhile.reached("push")
    keeper.begin(Errand(started=started(auto=False)))  # the next phase, which will ask
    meanwhile.let_on("push")
    until_runs_are(project, "done", "waiting")
    late = keeper.begin(Errand(started=started(auto=False), answer=Rejected(tree="0" * 40, why="no")))
    late.result(30)
    assert states(project) == ["done", "waiting"]


def next_after(project: Project, kind: str) -> str:
    """What was recorded right after that."""
    kinds = [each for each, _ in project.events()]
    return kinds[kinds.index(kind) + 1] if kind in kinds[:-1] else ""


def asked_for(project: Project) -> str:
    """The tree that a person is asked about."""
    assert run_of(project)["waiting_for"] == "approval"
    (body,) = [body for kind, body in project.events() if kind == "ApprovalAsked"]
    return str(body["tree"])
