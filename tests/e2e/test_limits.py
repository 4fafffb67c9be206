"""Usage limits are waited out, and budgets stop agents while they run."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runplan.domain.times import iso
from tests.support.cli import Meanwhile, Project, a_project, end_processes_of, set_up, steps, until, verify, work

#: The clock stands still until a process sleeps, and then it is later. It is today's, since a limit that ended long
#: before the agent did is none.
HERE = datetime.now(UTC).replace(microsecond=0)


RESETS = int((HERE + timedelta(hours=2)).timestamp())


def once(place: Path, name: str, *played: str) -> tuple[str, ...]:
    """Steps that only the first agent plays."""
    return tuple(f'{step}\nonce = "{place / name}.{number}"' for number, step in enumerate(played))


LIMIT = f'tell = {{trouble = "limit", words = "You have hit your limit", resets = {RESETS}}}'


BUSY = 'tell = {trouble = "overloaded", words = "529 overloaded"}'


@pytest.mark.promise
def test_a_usage_limit_is_waited_out_and_charges_no_attempt(project: Project, tmp_path: Path) -> None:
    half = 'write = "half.txt"\ntext = "half\\n"'
    project.agent(steps(*once(tmp_path, "limit", half, LIMIT, "exit = 1"), 'append = "half.txt"\ntext = "whole\\n"'))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert "(robot usage limit)" in ran.err
    assert project.show("main:half.txt") == "half\nwhole", "the next agent finds the work of the first"
    until = str(of(project, "AgentLimited")[0]["until"])
    early, late = (iso(HERE + timedelta(hours=2, minutes=minutes)) for minutes in (1, 3))
    assert early <= until <= late, "a margin of a minute, and up to two of jitter"
    assert of(project, "Paused")[0]["until"] == until
    assert [body["attempt"] for body in of(project, "Leased")] == [1]
    assert project.dispatched().count("implement") == 2


def test_a_usage_limit_holds_for_other_plans_too(project: Project, tmp_path: Path) -> None:
    project.repo.write("plans/Y.md", (project.path / "plans/X.md").read_text())
    project.repo.commit("Another plan")
    project.agent(steps(*once(tmp_path, "limit", LIMIT, "exit = 1"), 'write = "1.txt"'))
    killed = project.start("1", "auto", TEST_KILL="after Paused")
    assert killed.code == -9
    other = project.runplan("start", "Y", "1", "auto", "--foreground")
    assert other.code == 0, other.err
    assert other.err.index("(robot usage limit)") < other.err.index("implement  robot")


@pytest.mark.promise
def test_the_fallback_agent_is_used_during_a_limit(project: Project) -> None:
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
    assert len(of(project, "Paused")) == 1, "no agent replaces the verifier of its own work: the run waits"


@pytest.mark.promise
def test_an_overloaded_provider_is_tried_again_a_bounded_number_of_times(project: Project) -> None:
    project.agent(steps(BUSY, "exit = 1"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: agent-failed")
    assert "cannot run: its provider was overloaded too often in a row" in ran.err
    assert project.dispatched() == ["implement"] * 6
    waits = [str(body["until"]) for body in of(project, "Paused")]
    assert waits == sorted(waits)
    assert len(waits) == 5


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("auth", "robot (implement) cannot run: no valid key or login: Please run /login"),
        ("refusal", "robot (implement) refused the work: Please run /login"),
        ("setup", "robot (implement) cannot run: Please run /login"),
    ],
)
def test_a_login_error_fails_the_phase_with_the_agents_message(project: Project, kind: str, says: str) -> None:
    project.agent(steps(f'tell = {{trouble = "{kind}", words = "Please run /login"}}', "exit = 1"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: agent-failed")
    assert says in ran.err
    assert project.dispatched() == ["implement"]


def test_an_agent_that_eats_memory_ends_as_budget_with_the_figure(project: Project) -> None:
    eat = f"{sys.executable} -c 'import time; eaten = bytearray(200_000_000); time.sleep(60)'"
    set_up(project, agent=steps(f'run = "{eat}"'), settings="[limits]\nmemory = 150_000_000\n")

    ran = project.start("1", "auto")

    assert (ran.code, ran.last) == (1, "runplan: failed: budget")
    words = "its budget is used up: limits.memory is 150,000,000 bytes, and its processes used 2"
    assert words in " ".join(ran.err.split())


SPEND = "tell = {tokens = 600, usd = 0.6}"


@pytest.mark.promise
@pytest.mark.parametrize(
    ("limit", "says"),
    [("tokens = 500", "limits.tokens left 500 tokens"), ("plan_usd = 0.5", "limits.plan_usd left $0.50")],
)
def test_an_agent_that_uses_up_its_budget_is_ended_while_it_runs(project: Project, limit: str, says: str) -> None:
    set_up(project, agent=steps(SPEND, "sleep = 60"), settings=f"[limits]\n{limit}\n")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: budget")
    assert "robot (implement) was stopped: its budget is used up" in ran.err
    assert says in ran.err
    assert of(project, "DispatchEnded")[0]["input_tokens"] == 600


CODEX = """echo '{"type": "thread.started", "thread_id": "t"}'
for n in 1 2 3; do
echo '{"type": "item.completed", "item": {"type": "command_execution", "command": "ls", "aggregated_output": "x"}}'
done
sleep 60
"""


def test_an_agent_that_reports_nothing_until_its_end_is_ended_by_an_estimate(project: Project) -> None:
    (project.home / "codex.sh").write_text(CODEX)
    text = (project.path / "runplan.toml").read_text().replace('implementer = "robot"', 'implementer = "codex"')
    codex = f'[agents.codex]\nargv = ["sh", "{project.home / "codex.sh"}"]\n[limits]\ntokens = 30000\n'
    project.commit_file("runplan.toml", text + codex)

    ran = project.start("1", "auto")

    assert (ran.code, ran.last) == (1, "runplan: failed: budget")
    words = "limits.tokens left 30000 tokens; its use is an estimate, as this agent reports it only at its end"
    assert words in " ".join(ran.err.split())
    (ended,) = of(project, "DispatchEnded")
    assert ended["estimated"]
    report = project.runplan("report", "X").out
    assert words in " ".join(report.split())
    assert f"≈ {ended['input_tokens']:,}" in report


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("plan_usd = 0.7", "the plan's budget is used up: $1.20 of $0.70"),
        ("day_tokens = 700", "the day's budget is used up: 1200 of 700 tokens"),
    ],
)
def test_used_budgets_survive_a_restart(project: Project, limit: str, says: str) -> None:
    """The implementer stays under it, the verifier goes over it, and nothing is started after that."""
    set_up(project, agent=work(SPEND) + verify(SPEND, "sleep = 60"), settings=f"[limits]\n{limit}\n")
    first = project.start("1", "auto")
    assert (first.code, first.last) == (1, "runplan: failed: budget")
    again = project.start("1", "auto")
    assert (again.code, again.last) == (1, "runplan: failed: budget")
    assert says in again.err
    assert project.dispatched() == ["implement", "verify"]


@pytest.mark.promise
def test_a_daily_budget_resets_at_midnight(project: Project) -> None:
    set_up(project, agent=steps(SPEND, "sleep = 60"), settings="[limits]\nday_tokens = 500\n")
    assert project.start("1", "auto").last == "runplan: failed: budget"
    project.agent(work("tell = {tokens = 10}"))
    assert project.start("1", "auto").last == "runplan: failed: budget"
    tomorrow = iso(HERE.replace(hour=0, minute=0, second=1) + timedelta(days=1))
    assert project.start("1", "auto", TEST_NOW=tomorrow).code == 0


FULL = "tell = {context = 130000, window = 200000}"


@pytest.mark.promise
def test_an_agent_without_turns_is_handed_over(project: Project, tmp_path: Path) -> None:
    turns = 'tell = {trouble = "max-turns", words = "Reached the maximum number of turns"}'
    project.agent(steps(*once(tmp_path, "turns", 'write = "a.txt"', turns, "exit = 1"), 'write = "b.txt"'))
    assert project.start("1", "auto").code == 0
    assert len(of(project, "HandedOver")) == 1


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = a_project(tmp_path, "1", TEST_NOW=iso(HERE))
    yield project
    end_processes_of(project.home)


def of(project: Project, kind: str, plan: str = "plans/X.md") -> list[dict[str, object]]:
    return [body for name, body in project.events(plan) if name == kind]


def sent(project: Project) -> list[tuple[object, object]]:
    return [(body["role"], body["agent"]) for body in of(project, "DispatchStarted")]


def agents(project: Project, *, verifier: str = "robot", fallback: str = "", more: str = "") -> None:
    text = f'[agents]\nimplementer = "robot"\nverifier = "{verifier}"\nfallback = "{fallback}"\n'
    for name, file in (("robot", "agent.toml"), ("spare", "spare.toml")):
        text += f'[agents.{name}]\nkind = "script"\nscript = "{file}"\n'
    project.commit_file("runplan.toml", text + more)


def test_the_usage_of_a_stopped_agent_is_recorded(project: Project, tmp_path: Path) -> None:
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


def test_a_budget_reserved_for_a_running_agent_is_not_given_to_another_run(project: Project) -> None:
    """Its runner was killed. The reservation ends when the agent's time limit is over."""
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
echo '{"type":"system","subtype":"init","session_id":"s","model":"claude-opus"}'
echo '{"type":"assistant","message":{"id":"m","content":[],"usage":{"input_tokens":1000,"output_tokens":400000}}}'
sleep 0.6
kill -9 $PPID; sleep 60
"""


PRICE = "usd_per_mtok_in = 1.0\nusd_per_mtok_out = 10.0\n"


def with_lost(project: Project, more: str) -> None:
    """An agent that ends before it reports its cost."""
    (project.home / "lost.sh").write_text(LOST)
    agents(project)
    text = (project.path / "runplan.toml").read_text().replace('implementer = "robot"', 'implementer = "lost"')
    printed = f'[agents.lost]\nkind = "claude"\nargv = ["sh", "{project.home / "lost.sh"}"]\n'
    project.commit_file("runplan.toml", text + printed + more)


@pytest.mark.parametrize(("price", "usd"), [(PRICE, 4.001), ("", 30.015)], ids=["its price", "the highest price"])
def test_the_usage_of_a_lost_agent_is_recorded(project: Project, price: str, usd: float) -> None:
    with_lost(project, f"{price}[limits]\nplan_usd = {usd + 1}\n")

    ran = project.start("1", "auto", TEST_NOW="")

    assert (ran.code, ran.last) == (1, "runplan: failed: budget"), ran.err
    first = of(project, "DispatchEnded")[0]
    assert (first["ending"], first["output_tokens"]) == ("lost", 400_000)
    assert first["usd"] == pytest.approx(usd)
    assert isinstance(first["seconds"], float)
    assert 0.5 < first["seconds"] <= 7200
    assert len(of(project, "DispatchStarted")) <= 2


def test_the_cost_limit_of_an_agent_program_fails_as_budget(project: Project) -> None:
    project.agent(steps('tell = {trouble = "budget", words = "Reached maximum budget"}', "exit = 1"))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: budget")
    assert "used up its own budget: Reached maximum budget" in ran.err


def test_retry_does_not_wait_for_an_earlier_limit(project: Project, tmp_path: Path) -> None:
    project.agent(steps(*once(tmp_path, "once", LIMIT, "exit = 1"), 'write = "1.txt"'))
    killed = project.start("1", "auto", TEST_KILL="after Paused")
    assert killed.code == -9, killed.err
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert len(of(project, "Paused")) == 1


@pytest.mark.promise
def test_the_fallback_agent_never_verifies_its_own_work(project: Project, tmp_path: Path) -> None:
    """The implementer is the fallback, and the verifier is limited: its judge is waited for."""
    project.repo.write("spare.toml", verify(*once(tmp_path, "once", LIMIT, "exit = 1"), "pass_all = true"))
    project.repo.commit("Spare")
    agents(project, verifier="spare", fallback="robot")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert sent(project) == [("implement", "robot"), ("verify", "spare"), ("verify", "spare")]
    assert [wait["kind"] for wait in of(project, "Paused")] == ["limit"]


def test_a_fallback_agent_with_the_same_account_waits_as_well(project: Project, tmp_path: Path) -> None:
    project.repo.write("spare.toml", work())
    project.agent(steps(*once(tmp_path, "limit", LIMIT, "exit = 1"), 'write = "1.txt"') + verify("pass_all = true"))
    agents(project, fallback="spare", more='account = "robot"\n')
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert sent(project) == [("implement", "robot"), ("implement", "robot"), ("verify", "robot")]


@pytest.mark.promise
def test_a_missing_fallback_agent_is_refused_before_any_work(project: Project) -> None:
    agents(project, fallback="gone", more='[agents.gone]\nkind = "command"\nargv = ["no-such-program"]\n')
    ran = project.start("1", "auto")
    assert ran.code == 2, ran.err
    assert "agent-missing: agents.fallback: no-such-program is not installed" in ran.err
    seen = project.runplan("doctor")
    assert seen.code == 2
    assert "FAIL  fallback    no-such-program is not installed or not on PATH" in seen.out


def test_a_dollar_limit_for_an_agent_without_prices_is_refused(project: Project) -> None:
    judge = '[agents.judge]\nkind = "codex"\nargv = ["true"]\n'
    agents(project, verifier="judge", more=f"{judge}[limits]\nday_usd = 5\n")
    printed = "set usd_per_mtok_in and usd_per_mtok_out under [agents.judge], or limit tokens instead of dollars"
    ran = project.start("1", "auto")
    assert ran.code == 2, ran.err
    assert f"agents.verifier: judge reports no dollars, and [limits] are in dollars; {printed}" in ran.err
    assert printed in project.runplan("doctor").out
    agents(
        project,
        verifier="judge",
        more=f"{judge}usd_per_mtok_in = 1.25\nusd_per_mtok_out = 10\n[limits]\nday_usd = 5\n",
    )
    assert "reports no dollars" not in project.start("1", "auto").err


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
