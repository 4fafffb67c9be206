"""Journals of earlier runs mean the same today. A change that breaks one is a change of the format: CONTRIBUTING.md."""

from contextlib import closing
from datetime import UTC, datetime

import pytest

from runplan.adapters.store.protocol import open_store
from runplan.adapters.store.sql import Append
from runplan.app.operations.model import Caller
from runplan.app.views.journal import read_steps
from runplan.app.views.plans import read_plans
from runplan.app.views.reports import read_report
from runplan.app.views.status import PlanView
from runplan.domain.decoding import to_json
from runplan.domain.run.decide import decide
from runplan.domain.run.rows import Acquired
from tests.support.histories import PLACE, History, describe_actions, describe_end, load_history
from tests.support.repos import make_repo

FILES = {file.stem: file for file in sorted(PLACE.glob("*.jsonl"))}


@pytest.fixture(scope="module")
def histories() -> dict[str, History]:
    return {name: load_history(file) for name, file in FILES.items()}


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory, histories: dict[str, History]) -> Caller:
    """In a repository whose journal has all histories, each as the run of a plan of its own."""
    repo = make_repo(tmp_path_factory.mktemp("histories") / "repo")
    caller = Caller(cwd=repo.path, env={**repo.env, "HOME": str(repo.path.parent)})
    with caller.open() as context, closing(open_store(context.journal)) as store:
        for name, history in histories.items():
            plan = plan_of(name)
            events = [(line.at, type(event).__name__, to_json(event)) for line, event, _ in history.replay()]
            claim = store.claim_plan(plan, run=name, owner="1:1:boot")
            assert isinstance(claim, Acquired)
            store.append(Append(events, history.project(name, plan), claim.fence))
    return caller


@pytest.fixture(scope="module")
def status(caller: Caller) -> dict[str, PlanView]:
    with caller.open() as context:
        return {view.plan: view for view in read_plans(context, "", datetime(2026, 1, 2, tzinfo=UTC), warn=print)[0]}


def plan_of(name: str) -> str:
    return f"plans/{name}.md"


def test_there_are_histories_of_every_landing_mode_and_outcome(histories: dict[str, History]) -> None:
    assert len(histories) >= 30
    assert {history.lines[0].body["landing"] for history in histories.values()} >= {"cherry-pick", "direct", "pr"}


@pytest.mark.parametrize("name", FILES)
def test_fold_and_decide_give_the_recorded_actions(name: str, histories: dict[str, History]) -> None:
    history = histories[name]
    replayed = [f"{line.type}: {describe_actions(decide(state))}" for line, _, state in history.replay()]
    assert replayed == [f"{line.type}: {line.then}" for line in history.lines]
    assert describe_end(history.project(name, history.plan)) == history.end


@pytest.mark.parametrize("name", FILES)
def test_status_report_and_explain_read_it(
    name: str, histories: dict[str, History], caller: Caller, status: dict[str, PlanView]
) -> None:
    history = histories[name]
    run = status[plan_of(name)].run
    assert run is not None
    assert run.state == history.end["state"]
    assert name in read_report(caller, name).markdown
    with caller.open() as context:
        steps, _ = read_steps(context.store(), name)
    assert [step.event for step in steps] == [line.type for line in history.lines]
    assert not [step for step in steps if not step.why or "()" in step.why]
