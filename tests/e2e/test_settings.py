"""A run keeps the settings of its start; the daemon takes up changed settings without a restart."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.cli import SETTINGS, Meanwhile, Project, a_plan, a_project, steps, until, work
from tests.support.daemons import daemon_of, in_foreground, kill_daemon, log_of, until_runs_are, user_settings


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


CHECKED = f'{SETTINGS}[tests]\ncommand = "echo as-started"\n'

OTHER_SETTINGS = SETTINGS.replace('verifier = "robot"', 'verifier = "judge"') + (
    '[agents.judge]\nkind = "script"\nscript = "agent.toml"\n[tests]\ncommand = "echo edited"\n'
)


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
def test_a_phase_names_its_agent_model_effort_and_tests(project: Project) -> None:
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
