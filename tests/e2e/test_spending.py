"""Budgets that hold over stops and parallel runs and name themselves; limits that a person need not wait for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from runplan.times import iso
from tests.support.cli import a_project, end_processes_of, until
from tests.support.scripts import Meanwhile, set_up, steps, verify, work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

HERE = datetime.now(UTC).replace(microsecond=0)
RESETS = int((HERE + timedelta(hours=2)).timestamp())
LIMIT = f'tell = {{trouble = "limit", words = "You have hit your limit", resets = {RESETS}}}'
SPEND = "tell = {tokens = 600, usd = 0.6}"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = a_project(tmp_path, "1", TEST_NOW=iso(HERE))
    yield project
    end_processes_of(project.home)


def once(place: Path, *played: str) -> tuple[str, ...]:
    return tuple(f'{step}\nonce = "{place / "once"}.{number}"' for number, step in enumerate(played))


def of(project: Project, kind: str, plan: str = "plans/X.md") -> list[dict[str, object]]:
    return [body for name, body in project.events(plan) if name == kind]


def sent(project: Project) -> list[tuple[object, object]]:
    return [(body["role"], body["agent"]) for body in of(project, "DispatchStarted")]


def agents(project: Project, *, verifier: str = "robot", fallback: str = "", more: str = "") -> None:
    text = f'[agents]\nimplementer = "robot"\nverifier = "{verifier}"\nfallback = "{fallback}"\n'
    for name, file in (("robot", "agent.toml"), ("spare", "spare.toml")):
        text += f'[agents.{name}]\nkind = "script"\nscript = "{file}"\n'
    project.commit_file("runplan.toml", text + more)


# --- what is used is booked ---------------------------------------------------------------------------


def test_what_a_stopped_agent_used_is_booked(project: Project, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    project.agent(steps('write = "1.txt"', SPEND, *meanwhile.pause("agent")))
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("agent")
    assert project.runplan("stop").code == 0
    until(lambda: of(project, "RunEnded"))
    (booked,) = of(project, "DispatchEnded")
    assert (booked["ending"], booked["agent"], booked["phase"]) == ("ended", "robot", "1")
    assert (booked["input_tokens"], booked["usd"]) == (600, 0.6)
    assert isinstance(booked["seconds"], float)
    assert booked["seconds"] > 0


def test_what_is_given_to_an_agent_at_work_is_not_given_to_another_run(project: Project) -> None:
    """Its runner was killed, so nobody has seen it end; when its time is over by any clock, it is not counted."""
    project.repo.write("plans/Y.md", (project.path / "plans/X.md").read_text())
    set_up(project, agent=work("tell = {tokens = 10}"), settings="[limits]\nday_tokens = 500\nwall = '10m'\n")
    killed = project.runplan("start", "Y", "1", "auto", "--foreground", TEST_KILL="after DispatchStarted")
    assert killed.code == -9, killed.err
    (given,) = of(project, "DispatchStarted", "plans/Y.md")
    assert (given["tokens"], given["seconds"], given["phase"]) == (500, 600.0, "1")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    waits = of(project, "Paused")
    assert {wait["kind"] for wait in waits} == {"budget"}
    assert "the rest of the day's budget, which running agents may use: 500 of 500 tokens" in str(waits[0]["words"])
    assert of(project, "DispatchStarted")[0]["tokens"] == 500


LOST = r"""
if test "$1" = --version; then echo "2.1.197 (Claude Code)"; exit 0; fi
echo '{"type":"system","subtype":"init","session_id":"s","model":"claude-opus"}'
echo '{"type":"assistant","message":{"id":"m","content":[],"usage":{"input_tokens":1000,"output_tokens":400000}}}'
sleep 0.6
kill -9 $PPID; sleep 60
"""


PRICE = "usd_per_mtok_in = 1.0\nusd_per_mtok_out = 10.0\n"


def with_lost(project: Project, more: str) -> None:
    """An agent that never comes to tell what it cost."""
    (project.home / "lost.sh").write_text(LOST)
    agents(project)
    text = (project.path / "runplan.toml").read_text().replace('implementer = "robot"', 'implementer = "lost"')
    told = f'[agents.lost]\nkind = "claude"\nargv = ["sh", "{project.home / "lost.sh"}"]\n'
    project.commit_file("runplan.toml", text + told + more)


@pytest.mark.parametrize(
    ("limit", "price", "usd"),
    [
        ("plan_usd = 6.0", PRICE, 4.001),
        ("phase_usd = 5.0", "", 5.0),
    ],
    ids=["plan", "by a guess, no more than it was allowed"],
)
def test_what_a_lost_agent_used_is_booked_in_every_scope(project: Project, limit: str, price: str, usd: float) -> None:
    with_lost(project, f"{price}[limits]\n{limit}\n")

    ran = project.start("1", "auto", TEST_NOW="")

    assert (ran.code, ran.last) == (1, "runplan: failed: budget"), ran.err
    first = of(project, "DispatchEnded")[0]
    assert (first["ending"], first["output_tokens"]) == ("lost", 400_000)
    assert first["usd"] == pytest.approx(usd)
    assert isinstance(first["seconds"], float)
    assert 0.5 < first["seconds"] <= 7200
    assert len(of(project, "DispatchStarted")) <= 2


# --- who ends an agent says by what -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("plan_usd = 0.5", "used up its budget and was ended: limits.plan_usd left $0.50"),
    ],
)
def test_a_budget_that_ends_an_agent_is_named(project: Project, limit: str, says: str) -> None:
    set_up(project, agent=steps(SPEND, "sleep = 60"), settings=f"[limits]\n{limit}\n")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: budget")
    assert says in ran.err


def test_a_programs_own_limit_of_cost_is_a_budget_too(project: Project) -> None:
    project.agent(steps('tell = {trouble = "budget", words = "Reached maximum budget"}', "exit = 1"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: budget")
    assert "used up its own budget: Reached maximum budget" in ran.err


# --- limits and people --------------------------------------------------------------------------------


def test_a_retry_does_not_wait_for_a_limit_that_was_met_before_it(project: Project, tmp_path: Path) -> None:
    project.agent(steps(*once(tmp_path, LIMIT, "exit = 1"), 'write = "1.txt"'))
    killed = project.start("1", "auto", TEST_KILL="after Paused")
    assert killed.code == -9, killed.err
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert "implement  robot … (started despite its usage limit until" in again.err
    assert len(of(project, "Paused")) == 1


# --- who stands in ------------------------------------------------------------------------------------


def test_nobody_stands_in_to_judge_its_own_work(project: Project, tmp_path: Path) -> None:
    """The implementer is the fallback, and the verifier is limited: its judge is waited for."""
    project.repo.write("spare.toml", verify(*once(tmp_path, LIMIT, "exit = 1"), "pass_all = true"))
    project.repo.commit("Spare")
    agents(project, verifier="spare", fallback="robot")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert sent(project) == [("implement", "robot"), ("verify", "spare"), ("verify", "spare")]
    assert [wait["kind"] for wait in of(project, "Paused")] == ["limit"]


def test_a_fallback_that_is_not_there_is_refused_before_any_work(project: Project) -> None:
    agents(project, fallback="gone", more='[agents.gone]\nkind = "command"\nargv = ["no-such-program"]\n')
    ran = project.start("1", "auto")
    assert ran.code == 2, ran.err
    assert "agent-missing: agents.fallback: no-such-program is not installed" in ran.err
    seen = project.runplan("doctor")
    assert seen.code == 2
    assert "gone: no-such-program was not found" in seen.out


def test_dollars_that_nobody_could_watch_are_refused_before_any_work(project: Project) -> None:
    judge = '[agents.judge]\nkind = "codex"\nargv = ["true"]\n'
    agents(project, verifier="judge", more=f"{judge}[limits]\nday_usd = 5\n")
    told = "set usd_per_mtok_in and usd_per_mtok_out under [agents.judge], or limit tokens instead of dollars"
    ran = project.start("1", "auto")
    assert ran.code == 2, ran.err
    assert f"agents.verifier: judge reports no dollars, and [limits] are in dollars; {told}" in ran.err
    assert told in project.runplan("doctor").out
    agents(
        project, verifier="judge", more=f"{judge}usd_per_mtok_in = 1.25\nusd_per_mtok_out = 10\n[limits]\nday_usd = 5\n"
    )
    assert "reports no dollars" not in project.start("1", "auto").err
