"""Usage limits are waited out, and budgets stop agents while they run."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runplan.domain.times import iso
from tests.support.cli import Project, a_plan, a_project, end_processes_of, once, set_up, steps, until, verify, work
from tests.support.daemons import until_runs_are

#: The clock stands still until a process sleeps, and then it is later. It is today's, since a limit that ended long
#: before the agent did is none.
HERE = datetime.now(UTC).replace(microsecond=0)
RESETS = int((HERE + timedelta(hours=2)).timestamp())


LIMIT = f'tell = {{trouble = "limit", words = "You have hit your limit", resets = {RESETS}}}'
BUSY = 'tell = {trouble = "overloaded", words = "529 overloaded"}'


@pytest.mark.promise
def test_a_usage_limit_is_waited_out_and_charges_no_attempt(project: Project, tmp_path: Path) -> None:
    half = 'write = "half.txt"\ntext = "half\\n"'
    project.agent(steps(*once(tmp_path, "limit", half, LIMIT, "exit = 1"), 'append = "half.txt"\ntext = "whole\\n"'))
    project.start("1", "auto").exits(0, "(robot usage limit)")
    assert project.show("main:half.txt") == "half\nwhole", "the next agent finds the work of the first"
    until = str(project.bodies("AgentLimited")[0]["until"])
    early, late = (iso(HERE + timedelta(hours=2, minutes=minutes)) for minutes in (1, 3))
    assert early <= until <= late, "a margin of a minute, and up to two of jitter"
    assert project.bodies("Paused")[0]["until"] == until
    assert [body["attempt"] for body in project.bodies("Leased")] == [1]
    assert project.dispatched().count("implement") == 2


@pytest.mark.promise
def test_during_a_limit_fallback_agents_are_tried_in_order(project: Project) -> None:
    project.commit_file("spare.toml", work())
    longer = LIMIT.replace(str(RESETS), str(RESETS + 3600))
    project.commit_file("first.toml", steps(longer, "exit = 1"))
    project.agent(steps(LIMIT, "exit = 1") + verify("pass_all = true"))
    agents(project, fallback='["first", "spare"]', more='[agents.first]\nkind = "script"\nscript = "first.toml"\n')
    project.start("1", "auto").exits(0)
    tried = [("implement", agent) for agent in ("robot", "first", "spare")]
    assert sent(project) == [*tried, ("verify", "robot")]
    assert len(project.bodies("Paused")) == 1, "no agent replaces the verifier of its own work: the run waits"


@pytest.mark.promise
def test_a_run_waits_when_its_pace_is_reached_and_goes_on_by_itself(project: Project) -> None:
    spent = f"tell = {{quota = 71, resets = {RESETS}}}"
    set_up(project, agent=work(spent) + verify("pass_all = true"), settings="[run]\npace = 70\n")
    project.start("1", "auto").exits(0)
    (wait,) = project.bodies("Paused")
    assert (wait["kind"], wait["words"]) == ("limit", "71% of its usage window are used, and run.pace is 70")
    assert project.dispatched() == ["implement", "verify"], "the work that has reached it is not repeated"
    other = '[agents.other]\nkind = "command"\nargv = ["true"]\n[run]\npace = 70\n'
    project.plan(a_plan("1"))
    agents(project, verifier="other", more=other)
    silent = "run.pace has no effect on other, which report no use of their usage window"
    assert silent in project.start("1").err


def test_an_overloaded_provider_is_tried_again_a_bounded_number_of_times(project: Project) -> None:
    project.agent(steps(BUSY, "exit = 1"))
    project.start("1", "auto").ends(
        1, "runplan: failed: agent-failed", "cannot run: its provider was overloaded too often in a row"
    )
    assert project.dispatched() == ["implement"] * 6
    waits = [str(body["until"]) for body in project.bodies("Paused")]
    assert waits == sorted(waits)
    assert len(waits) == 5


SPEND = "tell = {tokens = 600, usd = 0.6}"


@pytest.mark.promise
def test_an_agent_that_uses_up_its_budget_is_ended_and_a_daily_one_resets_at_midnight(project: Project) -> None:
    set_up(project, agent=steps(SPEND, "sleep = 60"), settings="[limits]\nday_tokens = 500\n")
    project.start("1", "auto").ends(
        1,
        "runplan: failed: budget",
        "robot (implement) was stopped: its budget is used up",
        "limits.day_tokens left 500 tokens",
    )
    assert project.bodies("DispatchEnded")[0]["input_tokens"] == 600
    project.agent(work("tell = {tokens = 10}"))
    again = project.start("1", "auto")
    assert again.last == "runplan: failed: budget"
    assert "the day's budget is used up: 600 of 500 tokens" in again.err
    tomorrow = iso(HERE.replace(hour=0, minute=0, second=1) + timedelta(days=1))
    assert project.start("1", "auto", TEST_NOW=tomorrow).code == 0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = a_project(tmp_path, "1", TEST_NOW=iso(HERE))
    yield project
    end_processes_of(project.home)


def sent(project: Project) -> list[tuple[object, object]]:
    return [(body["role"], body["agent"]) for body in project.bodies("DispatchStarted")]


def agents(project: Project, *, verifier: str = "robot", fallback: str = "", more: str = "") -> None:
    named = fallback if fallback.startswith("[") else f'"{fallback}"'
    text = f'[agents]\nimplementer = "robot"\nverifier = "{verifier}"\nfallback = {named}\n'
    for name, file in (("robot", "agent.toml"), ("spare", "spare.toml")):
        text += f'[agents.{name}]\nkind = "script"\nscript = "{file}"\n'
    project.commit_file("runplan.toml", text + more)


@pytest.mark.promise
def test_the_fallback_agent_never_verifies_its_own_work(project: Project, tmp_path: Path) -> None:
    """The implementer is the fallback, and the verifier is limited: its judge is waited for."""
    project.commit_file("spare.toml", verify(*once(tmp_path, "once", LIMIT, "exit = 1"), "pass_all = true"))
    agents(project, verifier="spare", fallback="robot")
    project.start("1", "auto").exits(0)
    assert sent(project) == [("implement", "robot"), ("verify", "spare"), ("verify", "spare")]
    assert [wait["kind"] for wait in project.bodies("Paused")] == ["limit"]


def test_a_run_waits_for_its_hours(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.agent(work())
    begin, end = (f"{datetime.now(UTC) + timedelta(hours=hours):%H:%M}" for hours in (2, 3))
    project.settings(f'[run]\nhours = "{begin}-{end}"\n')
    assert project.runplan("start", "X", "auto").code == 0
    until(lambda: project.runplan("status", "X", "--json").json["run"]["waiting_for"] == "hours")
    assert f"agents begin in run.hours, {begin}-{end}" in project.runplan("status", "X").out
    assert project.dispatched() == []
    assert project.runplan("retry", "X").code == 0
    until_runs_are(project, "done")  # a person who retries does not wait
    project.settings('[run]\nhours = "22:00"\n')
    project.runplan("start", "X").exits(2, "hours: must be like 22:00-07:00")


@pytest.mark.parametrize(
    ("kills", "verb"),
    [(((0, "Paused"), (1, "RunResumed")), "status"), (((24_000, "Paused"),), "stop")],
    ids=["set back behind a retry", "years ahead in another run"],
)
def test_a_limit_is_waited_out_once_though_the_clock_was_ahead(
    project: Project, tmp_path: Path, kills: tuple[tuple[int, str], ...], verb: str
) -> None:
    limits = [step for hours, _ in kills for step in once(tmp_path, str(hours), LIMIT, "exit = 1")]
    project.agent(steps(*limits, 'write = "1.txt"'))
    for hours, point in kills:
        now = iso(HERE + timedelta(hours=hours))
        assert project.start("1", "auto", TEST_NOW=now, TEST_KILL=f"after {point}").code == -9
    project.runplan(verb, "X").exits(0)
    project.start("1", "auto").exits(0)
    assert len(project.bodies("Paused")) == len(kills), "else an agent would start again and again"
