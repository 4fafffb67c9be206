"""Every way a run can fail: named, nothing landed, the work kept, and the command to continue."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runplan.domain.run.kinds import Reason
from tests.support.cli import BUSY_FIXER, Project, a_plan, assert_nothing_runs, set_up, steps, verify, work, writes

PHASES = ("1",)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure and its messages."""

    reason: str
    agent: str
    step: str
    says: str  #: stands in the terminal and in the report
    settings: str = ""
    env: dict[str, str] = field(default_factory=dict)
    plan: str = ""
    kept: bool = True  #: the branch holds the implementer's commit
    also: tuple[str, ...] = ()  #: likewise
    shows: str = ""  #: evidence that stands in the report


#: An output that looks like a secret must not reach the repository with the report.
TOKEN = "ghp_" + 36 * "a"

CASES = {
    "no change": Case(reason="no-commits", agent="", step="implement", says="the agent left no change", kept=False),
    "the base amended": Case(
        reason="off-base",
        agent=steps('git = ["commit", "-q", "--amend", "-m", "Mine"]') + work(),
        step="implement",
        says="no longer contains its base",
    ),
    "two fix cycles are not enough": Case(
        reason="verification-failed",
        agent=work() + BUSY_FIXER + verify('fail = ["W1"]\nevidence = "1.txt is not signed"'),
        step="verify",
        says="not proven: W1",
        shows="W1: 1.txt is not signed",
    ),
    "no verdict": Case(
        reason="invalid-verdict", agent=work() + verify('say = "fine"'), step="verify", says="no return"
    ),
    "red gate": Case(
        reason="tests-failed",
        agent=work() + BUSY_FIXER,
        settings=f'[tests]\ncommand = "test ! -e 1.txt || {{ echo it is there; echo {TOKEN}; exit 3; }}"\n',
        step="gate",
        says="the checks failed: exit code 3",
        shows="it is there",
    ),
    "endless gate": Case(
        reason="tests-unfinished",
        agent=work(),
        settings='[tests]\ncommand = "test ! -e 1.txt || { echo begun; sleep 60; }"\ntimeout = "1s"\n',
        step="gate",
        says="did not end by itself",
        shows="begun",
    ),
    "plan, settings and CI committed": Case(
        reason="tampered",
        agent=work(
            'append = "plans/X.md"\ntext = "x"',
            'append = "runplan.toml"\ntext = "# x"',
            'write = ".github/workflows/ci.yml"\ntext = "x"',
            'commit = "Meddle"',
        ),
        step="fix",
        says="plans/X.md: belongs to runplan; an agent may not change it",
        also=(".github/workflows/ci.yml: a file of the CI or a hook was changed", "runplan.toml: belongs to runplan"),
    ),
    "outside Touches": Case(
        reason="out-of-scope",
        agent=work('write = "other.txt"\ntext = "x"', 'commit = "x"'),
        plan=a_plan("1").replace("### Work Items", "Touches: 1.txt\n\n### Work Items"),
        step="fix",
        says="other.txt: outside Touches: 1.txt",
    ),
    "branch of the user's moved by the agent": Case(
        reason="guard-violated",
        agent=work("""run = 'git -C "$main" update-ref refs/heads/moved main'"""),
        step="implement",
        says="the agent changed refs/heads/moved in your repository",
    ),
    "writing verifier": Case(
        reason="readonly-violated",
        agent=work() + verify('append = "1.txt"\ntext = "x"', "pass_all = true"),
        step="verify",
        says="the verifier changed 1.txt",
    ),
    "an agent that fails in the middle of its work": Case(
        reason="agent-failed",
        agent=steps('write = "1.txt"\ntext = "1, and half of it"', 'say = "I give up"', "exit = 3"),
        settings='[tests]\ncommand = "true"\n',
        step="implement",
        says="exited with code 3: I give up",
    ),
    "a verdict with evidence that does not exist": Case(
        reason="verification-failed",
        agent=work() + BUSY_FIXER + verify('pass_all = true\nevidence = "1.txt:99"'),
        step="verify",
        says="W1: passed, but no reference resolves: 1.txt:99: has ",
    ),
    "a verdict in a failed process": Case(
        reason="agent-failed",
        agent=work() + verify("pass_all = true", "exit = 3"),
        step="verify",
        says="robot (verify) exited with code 3",
    ),
    "wall limit": Case(
        reason="timeout",
        agent=work("sleep = 60"),
        settings='[limits]\nwall = "1s"\n',
        step="implement",
        says="was stopped: it ran longer than its time limit",
    ),
    "silence limit": Case(
        reason="silent",
        agent=work("sleep = 60"),
        settings='[limits]\nsilence = "1s"\n',
        step="implement",
        says="was stopped: no output or activity",
    ),
    "idle fixer": Case(
        reason="no-progress",
        agent=work() + verify('fail = ["W1"]\nevidence = "1.txt is not signed"'),
        step="fix",
        says="the fixer changed nothing; not proven: W1",
        shows="W1: 1.txt is not signed",
    ),
    "program that cannot be run": Case(
        reason="agent-missing",
        agent="",
        settings='[agents.other]\nkind = "command"\nargv = ["./broken"]\n',
        env={"RUNPLAN_AGENTS_IMPLEMENTER": "other"},
        step="implement",
        says="other (implement) could not be started",
        kept=False,
    ),
    "agents that vanish": Case(
        reason="crashed",
        agent="",
        settings='[agents.other]\nkind = "command"\nargv = ["sh", "-c", "kill -9 $PPID; exec sleep 60"]\n',
        env={"RUNPLAN_AGENTS_IMPLEMENTER": "other"},
        step="implement",
        says="3 processes in a row were gone and left no result",
        kept=False,
    ),
    "setup": Case(
        reason="setup-failed",
        agent=work(),
        settings='[run]\nsetup = "echo no such package; exit 4"\n',
        step="setup",
        says="the setup command exited with code 4",
        shows="no such package",
        kept=False,
    ),
    "red base": Case(
        reason="baseline-red",
        agent=work(),
        settings='[tests]\ncommand = "echo broken; exit 3"\n',
        step="baseline",
        says="on the base: exit code 3",
        shows="broken",
        kept=False,
    ),
    "endless base": Case(
        reason="baseline-red",
        agent=work(),
        settings='[tests]\ncommand = "echo begun; sleep 60"\ntimeout = "1s"\n',
        step="baseline",
        says="did not end by itself; if it took too long, raise its timeout",
        shows="begun",
        kept=False,
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("case", CASES.values(), ids=[f"{case.reason}: {name}" for name, case in CASES.items()])
def test_a_failure_is_named_lands_nothing_and_keeps_the_work(project: Project, case: Case) -> None:
    project.repo.write("broken", "#!/nonexistent/interpreter\n").chmod(0o755)
    set_up(project, agent=case.agent, settings=case.settings, **({"plan": case.plan} if case.plan else {}))
    before, status = project.repo.head("main"), project.repo.status()

    ran = project.start("finish", "auto", **case.env)

    refused = case.reason == Reason.BASELINE_RED
    assert (ran.code, ran.out) == (2 if refused else 1, ""), ran.err
    assert ran.last == f"runplan: {'refused' if refused else 'failed'}: {case.reason}"
    assert f"phase 1 failed at {case.step}\n" in ran.err
    assert all(part in ran.err for part in (case.says, *case.also))
    if case.step in ("setup", "baseline", "gate") and case.shows:  # the last lines of the output, once
        assert [line.strip() for line in ran.err.splitlines()].count(case.shows) == 1
    assert "Traceback" not in ran.err
    assert project.repo.head("main") == before
    assert project.repo.status() == status
    assert_the_work_is_kept(project, case, ran.err)
    assert_the_report_shows_the_failure(project, case)
    assert_status_shows_the_failure(assert_nothing_runs(project), case)


def assert_the_work_is_kept(project: Project, case: Case, printed: str) -> None:
    branch = project.repo.git("for-each-ref", "--format=%(refname)", "refs/heads/runplan/")
    if case.kept:
        assert "The work is kept on the branch runplan/x/1" in printed
        assert project.show("runplan/x/1:1.txt").startswith("1")
    else:
        assert branch == ""
    assert "Work that is on no branch is kept" not in printed


def assert_the_report_shows_the_failure(project: Project, case: Case) -> None:
    report = project.runplan("report", "X").exits(0)
    for part in (
        "## Run Failed — ",
        "**Plan:** `plans/X.md`",
        "**Phase:** 1 Step 1",
        f"**Failed at:** {case.step}\n",
        f"**Reason:** `{case.reason}`. {Reason(case.reason).advice}",
        case.says,
        *case.also,
        case.shows,
        "**To resume:** `runplan retry plans/X.md`",
    ):
        assert part in report.out
    assert TOKEN not in report.out
    assert ("kept on the branch `runplan/x/1`" in report.out) == case.kept


def assert_status_shows_the_failure(view: dict[str, Any], case: Case) -> None:
    assert view["phases"][0]["status"] == "todo"
    assert view["next"] == "1"
    run = view["run"]
    outcome = "refused" if case.reason == Reason.BASELINE_RED else "failed"
    assert (run["state"], run["outcome"], run["reason"]) == ("failed", outcome, case.reason)
    assert (run["phase"], run["step"], run["attempt"], run["waiting_for"]) == ("1", None, 1, None)


@pytest.mark.promise
def test_phases_landed_before_a_failure_stay(project: Project) -> None:
    """The report is written too when the plan is damaged meanwhile."""
    set_up(project, plan=a_plan("1", "2", "3"), agent=writes("1", "3") + work("exit = 3", phase="2"))
    project.start("finish", "auto").ends(1, "runplan: failed: agent-failed", "runplan: 1 phase landed (1)\n")
    assert project.landed() == ["1"]
    view = assert_nothing_runs(project)
    assert [phase["status"] for phase in view["phases"]] == ["done", "todo", "todo"]
    set_up(project, plan="# Broken\n")
    report = project.runplan("report", "X").exits(0)
    assert report.out.index("## Run Failed — ") < report.out.index("## Phase — 1 Step 1")


@pytest.mark.promise
def test_every_failure_reason_is_tested() -> None:
    """Each reason is reached above, in a test that needs more than one case, or by what is not there yet."""
    elsewhere = {
        *("blocked", "conflict", "already-on-target", "stopped", "plan-not-committed", "target-moving", "protected")
    }
    later = {"drift", "budget", "ci-failed", "pr-closed", "forge-unreachable", "plan-invalid"}
    assert {case.reason for case in CASES.values()} | elsewhere | later == set(Reason)


@pytest.mark.promise
def test_one_crash_of_an_agent_is_retried_and_reported(project: Project, tmp_path: Path) -> None:
    killed = f'run = "kill -KILL $$"\nonce = "{tmp_path}/killed"'
    crashed = f'exit = 3\nonce = "{tmp_path}/crashed"'
    set_up(project, agent=steps(killed, 'write = "1.txt"') + verify(crashed, "pass_all = true"))

    ran = project.start("1", "auto").exits(0)
    assert project.dispatched() == ["implement", "implement", "verify", "verify"]
    again = [body["again"] for body in project.bodies("DispatchStarted")]
    assert again == ["", "robot (implement) was killed by signal 9", "", "robot (verify) exited with code 3"]
    assert "(second try: robot (implement) was killed by signal 9)" in ran.err
    report = project.show("main:reports/plan-x.md")
    assert "**Status:** Completed (verified, landed)\n" in report
    assert "- Warning: robot (implement) was killed by signal 9; it was tried once more" in report
    assert "- Warning: robot (verify) exited with code 3; it was tried once more" in report


DEFECT = """
from runplan.interfaces.cli.main import entry
from runplan.engine.steps import work
def fail(*given):
    return {}["key"]
fail.__name__ = work.take_work.__name__
work.take_work = fail
entry()
"""


def test_a_run_that_runplan_itself_failed_at_is_taken_up_once_and_then_waits(project: Project) -> None:
    defect = [sys.executable, "-P", "-c", DEFECT, "start", "X", "1", "auto", "--foreground"]
    ran = project.run_program(*defect)
    assert ran.err.count("  crashed    KeyError: 'key' (a defect of runplan)") == 1, ran.err
    again = "runplan retry plans/X.md"
    words = f"unexpected KeyError: 'key' (--debug shows the traceback); the work is kept. Continue with: {again}"
    ran.ends(5, f"runplan: {words}")
    (entry,) = project.runplan("inbox", "--json").json["entries"]
    assert (entry["kind"], entry["text"], entry["commands"]) == ("crash", "KeyError: 'key'", [again])
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "waiting"
    assert "\n  1  Crashed  Step 1\n" in project.runplan("status", "X").out
    project.runplan("retry", "X", "--foreground").exits(0)
    assert project.landed() == ["1"]
    assert project.dispatched() == ["implement", "verify"]
