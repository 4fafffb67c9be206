"""A run keeps the settings of its start; the daemon takes up changed settings without a restart."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import SETTINGS, Meanwhile, Project, a_plan, a_project, copied, steps, until, work
from tests.support.daemons import (
    daemon_of,
    in_foreground,
    kill_daemon,
    log_of,
    none_left,
    several_plans,
    until_runs_are,
    user_settings,
)


def hang_up(project: Project) -> None:
    os.kill(daemon_of(project), signal.SIGHUP)


def test_invalid_settings_are_reported_once_and_the_old_ones_stay(project: Project, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    good = f'[notify]\ncommand = "echo $RUNPLAN_REASON: $RUNPLAN_TEXT >>{printed}"\n'
    user_settings(project, good)
    assert project.runplan("start", "X", "1", "--wait").code == 4
    until(lambda: printed.exists())
    printed.unlink()
    daemon = daemon_of(project)
    user_settings(project, f"{good}[daemon]\nmax_parallel = = 2\n")
    file = project.home / ".config/runplan/runplan.toml"
    for _ in range(3):
        hang_up(project)
    until(lambda: printed.exists() and printed.read_text().endswith("\n"))
    error = f"{file}: invalid TOML: Invalid value (at line 4, column 16)"
    assert printed.read_text() == f"settings: {error}; the previous settings hold until this is fixed.\n"
    (line,) = log_of(project, "settings")
    assert (line["level"], error in line["words"]) == ("warning", True)
    project.runplan("status").exits(0, f"{file}: invalid TOML")
    user_settings(project, good)
    hang_up(project)
    until(lambda: len(log_of(project, "settings-changed")) == 1)
    assert daemon_of(project) == daemon
    assert log_of(project, "closed") == [], "the repository stayed open"


OTHER = '[agents.other]\nkind = "script"\nscript = "agent.toml"\n'


def sent(project: Project, plan: str = "plans/X.md") -> list[str]:
    """The dispatches of the plan's run, as role:agent."""
    started = [body for body in project.bodies("DispatchStarted", plan) if body["agent"]]
    return [f"{body['role']}:{body['agent']}" for body in started]


def test_environment_settings_hold_for_their_own_run_only(project: Project, meanwhile: Meanwhile) -> None:
    """The files are read again during the run, and a run of another plan uses them."""
    project.repo.write("runplan.toml", SETTINGS + OTHER)
    first = steps(*meanwhile.pause("agent"), 'write = "1.txt"')
    project.repo.write("agent.toml", first + "".join(steps(f'write = "{n}.txt"', phase=n) for n in ("2", "3")))
    *_, third = several_plans(project, 3)
    assert project.runplan("start", "X", "finish", "auto", RUNPLAN_AGENTS_IMPLEMENTER="other").code == 0
    meanwhile.reached("agent")
    assert project.runplan("start", third, "auto").code == 0
    project.repo.write("runplan.toml", f'{SETTINGS}{OTHER}[limits]\nwall = "1h"\n')
    hang_up(project)
    meanwhile.let_on("agent")
    until_runs_are(project, "done")
    until_runs_are(project, "done", plan=third)
    assert sent(project) == [*2 * ["implement:other", "verify:robot"], "verify:robot"]  # the last one: all phases
    assert sent(project, third) == ["implement:robot", "verify:robot"]


CHECKED = f'{SETTINGS}[tests]\ncommand = "echo as-started"\n'

OTHER_SETTINGS = SETTINGS.replace('verifier = "robot"', 'verifier = "judge"') + (
    '[agents.judge]\nkind = "script"\nscript = "judge.toml"\n[tests]\ncommand = "echo edited"\n'
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with two phases, to be copied."""
    project = a_project(tmp_path_factory.mktemp("model"), "1", "2")
    project.commit_file("judge.toml", "")
    return project


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    with none_left(made.home):
        yield made


def verifiers(project: Project) -> list[str]:
    return [body["agent"] for body in project.bodies("DispatchStarted") if body["role"] == "verify"]


def checks(project: Project) -> list[str]:
    """The output of the test command for each gate and baseline, in order."""
    ids = [body["id"] for body in project.bodies("DispatchStarted") if not body["agent"]]
    return [(project.path / ".git/runplan/dispatch" / one / "out.log").read_text().strip() for one in ids]


def test_edited_settings_do_not_change_a_running_run(project: Project, meanwhile: Meanwhile) -> None:
    project.repo.write("runplan.toml", CHECKED)
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    project.repo.commit("Set up")
    with in_foreground(project):
        assert project.runplan("start", "X", "1", "auto").code == 0
        meanwhile.reached("agent")
        project.commit_file("runplan.toml", OTHER_SETTINGS)
        user_settings(project, '[run]\nclean = "untracked"\n[tests]\nsummary = "never printed"\n')
        kill_daemon(project)
    with in_foreground(project):
        meanwhile.let_on("agent")
        until_runs_are(project, "done")
    assert (set(verifiers(project)), set(checks(project))) == ({"robot"}, {"as-started"})


@pytest.mark.promise
def test_a_start_uses_the_committed_settings_and_says_so(project: Project) -> None:
    project.commit_file("runplan.toml", CHECKED)
    tip = project.repo.head("main")
    project.repo.write("runplan.toml", OTHER_SETTINGS)
    ran = project.start("1", "auto").exits(0)
    printed = (
        f"runplan: runplan.toml in the checkout is not committed on main; the version of main ({tip[:12]}) is used. "
        "To use yours: git add runplan.toml && git commit -m 'Settings of runplan' -- runplan.toml\n"
    )
    assert ran.err.count(printed) == 1
    assert (verifiers(project), checks(project)) == (["robot"], ["as-started", "as-started"])
    shown = project.runplan("config")
    assert "is not committed on main" in shown.err
    assert ("as-started" in shown.out, "edited" in shown.out) == (True, False)


def test_an_uncommitted_settings_file_is_used_and_stored_with_the_run(project: Project) -> None:
    """There is no other version; who first tries runplan need not commit its settings."""
    project.repo.git("rm", "-q", "--cached", "runplan.toml")
    project.repo.git("commit", "-qm", "Without settings")
    project.repo.write("runplan.toml", CHECKED)
    ran = project.start("1").exits(4)
    commit = "git add runplan.toml && git commit -m 'Settings of runplan' -- runplan.toml"
    assert (
        f"runplan: runplan.toml is not committed on main; the checkout's file is used. To commit it: {commit}"
        in ran.err
    )
    project.repo.write("runplan.toml", OTHER_SETTINGS)
    project.commit_file("aside.txt", "the target moves, so the candidate is checked again\n")
    project.runplan("approve", "X").exits(4)
    assert project.runplan("approve", "X").code == 0
    assert (len(checks(project)) > 2, set(checks(project))) == (True, {"as-started"})


@pytest.mark.promise
def test_config_shows_no_secret_of_an_address(project: Project) -> None:
    urls = '["tgram://t0ken/chat", {url = "json://me:passw0rd@example.org/x", on = ["failed"]}]'
    webhook = 'webhook = "https://me:passw0rd@hooks.example.org/t0ken"'
    fleet = 'dsn = "postgresql://me:passw0rd@db.example.org/fleet?sslpassword=t0ken"'
    user_settings(project, f"[notify]\nurls = {urls}\n{webhook}\n[fleet]\n{fleet}\n")
    for words in (("config",), ("config", "--json")):
        shown = project.runplan(*words).out
        assert ("tgram://…" in shown, "https://hooks.example.org/…" in shown) == (True, True), shown
        assert ("t0ken" in shown, "passw0rd" in shown) == (False, False), shown
        assert '"postgresql://me@db.example.org/fleet"' in shown


#: A program with claude's options and output, which notes its arguments.
CLAUDE = """\
echo "$*" >> {log}
test "$RUNPLAN_ROLE" != implement || echo done > $RUNPLAN_PHASE.txt
echo '{{"type": "result", "subtype": "success", "is_error": false, "result": "done"}}'
"""


@pytest.mark.promise
def test_a_phase_names_its_agent_model_effort_and_tests(tmp_path: Path) -> None:
    project = a_project(tmp_path)
    log = project.home / "arguments"
    (project.home / "claude.sh").write_text(CLAUDE.format(log=log))
    claude = f'[agents.thinker]\nkind = "claude"\nargv = ["sh", "{project.home / "claude.sh"}"]\n'
    project.settings(f'{claude}[tests]\ncommand = "true all"\n')
    plan = a_plan("1", "2", "3")
    lines = {
        "1": "Agent: `thinker`\nModel: `big`\nEffort: `high`\nTests: `true some`",
        "2": "Agent: `thinker`\nVerifier: `robot`",
        "3": "Tests: `false`",  # the plan ends with it, so all tests run
    }
    for phase, own in lines.items():
        plan = plan.replace(f"## Phase {phase} — Step {phase}\n", f"## Phase {phase} — Step {phase}\n\n{own}\n")
    project.plan(plan)
    project.agent(work("""run = 'test "$RUNPLAN_MODEL" = small'""", phase="3"))
    checked = project.runplan("check", "X", "--json").json["phases"]
    assert checked[0]["own"] == {"agent": "thinker", "model": "big", "effort": "high", "tests": "true some"}
    assert "  tests: true some" in project.runplan("check", "X").out
    ran = project.runplan("start", "X", "finish", "auto", "--foreground", "--model", "small")
    assert (ran.code, project.landed()) == (0, ["1", "2", "3"]), ran.err

    first, second = log.read_text().splitlines()
    assert "--model big --effort high" in first
    assert "--model" not in second  # the option is for the implementer of the settings
    started = project.bodies("DispatchStarted")
    wanted = [(body["agent"], body["model"]) for body in started if body["role"] == "implement"]
    assert wanted == [("thinker", "big"), ("thinker", ""), ("robot", "small")]
    gates = [body["argv"][-1] for body in started if body["role"] == "gate"]
    assert ["some" in gate for gate in gates] == [True, False, False]
    report = project.show("main:reports/plan-x.md")
    assert "Set by the phase: agent `thinker`, model `big`, effort `high`, tests `true some`" in report

    project.plan(a_plan("1").replace("Step 1\n\n", "Step 1\n\nVerifier: `nobody`\n\n"), "plans/Y.md")
    project.runplan("start", "Y").exits(2, "plans/Y.md:13: phase 1: there is no agent nobody; ")


def test_check_with_preflight_refuses_what_a_start_would(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    assert project.runplan("check", "X", "--preflight").code == 0
    project.settings('[agents.gone]\nkind = "claude"\nargv = ["no-such-program"]\n')
    project.commit_file("runplan.toml", project.show("HEAD:runplan.toml").replace('"robot"', '"gone"'))
    project.runplan("check", "X", "--preflight").exits(1, "a start would be refused: agent-missing: ")
    assert project.runplan("check", "X").code == 0
    project.runplan("start", "X", "--dry-run").exits(0, "warning: a start would be refused: agent-missing: ")


def test_an_agent_that_an_edit_names_and_nobody_knows_fails_the_phase(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.agent(work() + work(phase="2"))
    assert project.start("finish").code == 4
    plan = project.show("main:plans/X.md") + "\n"
    project.plan(plan.replace("Step 2\n\n", "Step 2\n\nAgent: `nobody`\n\n"))
    ended = project.runplan("approve", "X")
    while ended.code == 4:  # the target has moved
        ended = project.runplan("approve", "X")
    assert (ended.last, project.landed()) == ("runplan: failed: agent-missing", ["1"])


def test_a_verifier_does_not_judge_its_own_work_in_a_phase_with_its_name(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.agent(work())
    other = '[agents.other]\nkind = "script"\nscript = "agent.toml"\n'
    project.settings(other)
    project.commit_file(
        "runplan.toml", project.show("HEAD:runplan.toml").replace('verifier = "robot"', 'verifier = "other"')
    )
    project.plan(a_plan("1").replace("Step 1\n\n", "Step 1\n\nAgent: `other`\n\n"))
    assert project.start("auto").code == 0
    started = [(body["role"], body["agent"]) for body in project.bodies("DispatchStarted")]
    assert started == [("implement", "other"), ("verify", "robot")]


def test_all_tests_run_where_a_narrowed_phase_turns_out_to_be_the_last(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.agent(work())
    project.settings('[tests]\ncommand = "test ! -e 1.txt"\n')
    project.plan(a_plan("1", "2").replace("Step 1\n\n", "Step 1\n\nTests: `true`\n\n"))
    assert project.start("1").code == 4
    plan = project.show("main:plans/X.md") + "\n"
    project.plan(plan.replace("| 2 — Step 2 | ⬚ |", "| 2 — Step 2 | ✅ Done |"))
    ended = project.runplan("approve", "X")
    while ended.code == 4:
        ended = project.runplan("approve", "X")
    assert (ended.code, project.landed()) == (1, [])
    gates = [body["argv"][-1] for body in project.bodies("DispatchStarted") if body["role"] == "gate"]
    assert ["test ! -e" in gate for gate in gates[:2]] == [False, True]
