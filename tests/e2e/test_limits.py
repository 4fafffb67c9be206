"""Usage limits are waited out, budgets bite, and a full context is handed over."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from runplan.times import iso
from tests.support.cli import a_project
from tests.support.scripts import set_up, steps, verify, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cli import Project

#: The clock stands still until somebody sleeps, and then it is later. It is today's, since a limit that ended long
#: before the agent did is none.
HERE = datetime.now(UTC).replace(microsecond=0)
NOW = iso(HERE)
RESETS = int((HERE + timedelta(hours=2)).timestamp())


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1", TEST_NOW=NOW)


def once(place: Path, name: str, *played: str) -> tuple[str, ...]:
    """Steps that only the first agent plays."""
    return tuple(f'{step}\nonce = "{place / name}.{number}"' for number, step in enumerate(played))


def of(project: Project, kind: str) -> list[dict[str, object]]:
    return [body for name, body in project.events() if name == kind]


LIMIT = f'tell = {{trouble = "limit", words = "You have hit your limit", resets = {RESETS}}}'
TOKEN = "ghp_" + 36 * "a"
BUSY = 'tell = {trouble = "overloaded", words = "529 overloaded"}'


def test_a_usage_limit_is_waited_out_and_charges_no_attempt(project: Project, tmp_path: Path) -> None:
    project.agent(steps(*once(tmp_path, "limit", LIMIT, "exit = 1"), 'write = "1.txt"\ntext = "1\\n"'))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert "(robot usage limit)" in ran.err
    until = str(of(project, "AgentLimited")[0]["until"])
    early, late = (iso(HERE + timedelta(hours=2, minutes=minutes)) for minutes in (1, 3))
    assert early <= until <= late, "a margin of a minute, and up to two of jitter"
    assert of(project, "Paused")[0]["until"] == until
    assert [body["attempt"] for body in of(project, "Leased")] == [1]
    assert project.dispatched().count("implement") == 2


def test_work_that_a_limit_interrupted_is_gone_on_with(project: Project, tmp_path: Path) -> None:
    """Half of it lies in the worktree, and the next agent finds it there."""
    half = 'write = "half.txt"\ntext = "half\\n"'
    project.agent(steps(*once(tmp_path, "limit", half, LIMIT, "exit = 1"), 'append = "half.txt"\ntext = "whole\\n"'))
    assert project.start("1", "auto").code == 0
    assert project.show("main:half.txt") == "half\nwhole"


def test_status_tells_until_when_and_for_what_it_waits(project: Project) -> None:
    """Killed while it waits, a run still tells; and an agent that is limited is not started."""
    project.agent(steps(LIMIT, "exit = 1"))
    killed = project.start("1", "auto", TEST_KILL="after Paused")
    assert killed.code == -9, killed.err
    view = project.runplan("status", "X", "--json").json["run"]
    assert (view["state"], view["waiting_for"], view["about"]) == ("waiting", "limit", "robot usage limit")
    assert view["wake"] > iso(HERE + timedelta(hours=2))
    told = project.runplan("status", "X").out
    assert f"{view['wake'][11:16]} UTC (robot usage limit; phase 1, implement)" in told
    assert project.dispatched() == ["implement"]


def test_a_limited_agent_is_not_started_by_another_plan_either(project: Project, tmp_path: Path) -> None:
    project.repo.write("plans/Y.md", (project.path / "plans/X.md").read_text())
    project.repo.commit("Another plan")
    project.agent(steps(*once(tmp_path, "limit", LIMIT, "exit = 1"), 'write = "1.txt"'))
    killed = project.start("1", "auto", TEST_KILL="after Paused")
    assert killed.code == -9
    other = project.runplan("start", "Y", "1", "auto", "--foreground")
    assert other.code == 0, other.err
    assert other.err.index("(robot usage limit)") < other.err.index("implement  robot")


def test_another_agent_stands_in_while_the_limit_lasts(project: Project) -> None:
    project.repo.write("spare.toml", work())
    set_up(
        project,
        agent=steps(LIMIT, "exit = 1") + verify("pass_all = true"),
        settings='[agents.spare]\nkind = "script"\nscript = "spare.toml"\n',
    )
    text = (project.path / "runplan.toml").read_text().replace("[agents]\n", '[agents]\nfallback = "spare"\n', 1)
    project.commit_file("runplan.toml", text)
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    started = [(body["role"], body["agent"]) for body in of(project, "DispatchStarted")]
    assert started == [("implement", "robot"), ("implement", "spare"), ("verify", "robot")]
    assert len(of(project, "Paused")) == 1, "nobody stands in to judge its own work: the judge is waited for"


def test_an_overloaded_provider_is_tried_again_a_bounded_number_of_times(project: Project) -> None:
    project.agent(steps(BUSY, "exit = 1"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: agent-failed")
    assert "cannot run: its provider was overloaded too often in a row" in ran.err
    assert project.dispatched() == ["implement"] * 6
    waits = [str(body["until"]) for body in of(project, "Paused")]
    assert waits == sorted(waits)
    assert len(waits) == 5


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("auth", "robot (implement) cannot run: no valid key or login: Please run /login"),
        ("refusal", "robot (implement) refused the work: Please run /login"),
        ("setup", "robot (implement) cannot run: Please run /login"),
    ],
)
def test_what_only_a_person_can_mend_ends_the_phase_with_the_agents_own_words(
    project: Project, kind: str, says: str
) -> None:
    project.agent(steps(f'tell = {{trouble = "{kind}", words = "Please run /login"}}', "exit = 1"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: agent-failed")
    assert says in ran.err
    assert project.dispatched() == ["implement"]


# --- budgets ------------------------------------------------------------------------------------------

SPEND = "tell = {tokens = 600, usd = 0.6}"


@pytest.mark.parametrize("limit", ["tokens = 500", "plan_usd = 0.5"])
def test_an_agent_that_uses_up_its_budget_is_ended_while_it_runs(project: Project, limit: str) -> None:
    set_up(project, agent=steps(SPEND, "sleep = 60"), settings=f"[limits]\n{limit}\n")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: budget")
    assert "robot (implement) was stopped: its budget is used up" in ran.err
    assert of(project, "DispatchEnded")[0]["input_tokens"] == 600


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("plan_usd = 0.7", "the plan's budget is used up: $1.20 of $0.70"),
        ("day_tokens = 700", "the day's budget is used up: 1200 of 700 tokens"),
    ],
)
def test_what_a_phase_a_plan_and_a_day_have_used_survives_a_restart(project: Project, limit: str, says: str) -> None:
    """The implementer stays under it, the verifier goes over it, and nothing is started after that."""
    set_up(project, agent=work(SPEND) + verify(SPEND, "sleep = 60"), settings=f"[limits]\n{limit}\n")
    first = project.start("1", "auto")
    assert (first.code, first.last) == (1, "runplan: failed: budget")
    again = project.start("1", "auto")
    assert (again.code, again.last) == (1, "runplan: failed: budget")
    assert says in again.err
    assert project.dispatched() == ["implement", "verify"]


def test_a_day_is_over_at_midnight(project: Project) -> None:
    set_up(project, agent=steps(SPEND), settings="[limits]\nday_tokens = 500\n")
    assert project.start("1", "auto").last == "runplan: failed: budget"
    project.agent(work("tell = {tokens = 10}"))
    assert project.start("1", "auto").last == "runplan: failed: budget"
    tomorrow = iso(HERE.replace(hour=0, minute=0, second=1) + timedelta(days=1))
    assert project.start("1", "auto", TEST_NOW=tomorrow).code == 0


# --- hand-over ----------------------------------------------------------------------------------------

FULL = "tell = {context = 130000, window = 200000}"


def test_hand_overs_that_change_nothing_are_no_progress(project: Project) -> None:
    project.agent(steps(FULL, "sleep = 60"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: no-progress")
    assert len(of(project, "HandedOver")) == 2
    assert project.dispatched().count("implement") == 2, "a third would fill its context as well"


@pytest.mark.parametrize(
    ("left", "reason", "told"),
    [
        pytest.param(('write = "big.bin"\nmegabytes = 6',), "tampered", "big.bin: 6", id="too large"),
    ],
)
def test_what_is_refused_at_the_end_is_refused_at_a_hand_over(
    project: Project, tmp_path: Path, left: tuple[str, ...], reason: str, told: str
) -> None:
    project.agent(steps(*once(tmp_path, "left", *left, FULL, "sleep = 60"), 'write = "1.txt"', 'commit = "Write 1"'))
    tip = project.repo.head("main")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, f"runplan: failed: {reason}"), ran.err
    assert told in project.runplan("report", "X").out
    assert of(project, "HandedOver") == []
    assert project.dispatched().count("implement") == 1
    assert project.repo.head("main") == tip
    assert "wip" not in project.repo.git("log", "--all", "--format=%s"), "nothing was committed for it"


def test_a_phase_is_handed_over_at_most_three_times(project: Project) -> None:
    project.agent(steps('append = "1.txt"\ntext = "more\\n"', FULL, "sleep = 60"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: agent-failed")
    assert len(of(project, "HandedOver")) == 3
    assert project.repo.git("show", "runplan/x/1:1.txt").count("more") == 3, "the last one's is kept beside it"


def test_an_agent_that_used_up_its_turns_hands_over_as_well(project: Project, tmp_path: Path) -> None:
    turns = 'tell = {trouble = "max-turns", words = "Reached the maximum number of turns"}'
    project.agent(steps(*once(tmp_path, "turns", 'write = "a.txt"', turns, "exit = 1"), 'write = "b.txt"'))
    assert project.start("1", "auto").code == 0
    assert len(of(project, "HandedOver")) == 1


# --- the brake ----------------------------------------------------------------------------------------


def test_the_same_tree_and_the_same_failure_twice_is_no_progress(project: Project) -> None:
    """And a person may try again all the same."""
    set_up(project, agent=work() + verify('fail = ["W1"]'), settings="[run]\nmax_fix_cycles = 0\n")
    project.agent(work('commit = "Write 1"\ndate = "2026-01-01T00:00:00Z"') + verify('fail = ["W1"]'))
    assert project.start("1", "auto").last == "runplan: failed: verification-failed"
    again = project.start("1", "auto")
    assert again.last == "runplan: failed: no-progress"
    assert "same tree and same failure as the previous attempt" in again.err
    project.agent(work())
    assert project.runplan("retry", "X").code == 0


def test_a_return_that_still_says_in_progress_is_no_return(project: Project) -> None:
    """It is written before the agent starts, so that one that was interrupted can be told from one that forgot."""
    project.agent(work() + verify('say = "I did not come to it"'))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: invalid-verdict")
    first = str(of(project, "DispatchStarted")[0]["id"])
    kept = project.path / ".git/runplan/dispatch" / first / "own/return.json"
    assert json.loads(kept.read_text()) == {"status": "in_progress"}
