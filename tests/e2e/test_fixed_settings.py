"""A run's settings are fixed when it starts: from the target's tip and the user's file, and kept with the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import SETTINGS, Project, a_project, copied
from tests.support.daemons import in_foreground, kill_daemon, none_left, until_runs_are, user_settings
from tests.support.scripts import steps, work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.scripts import Meanwhile

CHECKED = f'{SETTINGS}[tests]\ncommand = "echo as-started"\n'
OTHER = SETTINGS.replace('verifier = "robot"', 'verifier = "judge"') + (
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
    return [body["agent"] for kind, body in project.events() if kind == "DispatchStarted" and body["role"] == "verify"]


def checks(project: Project) -> list[str]:
    """What the test command of each gate and baseline printed, in order."""
    ids = [body["id"] for kind, body in project.events() if kind == "DispatchStarted" and not body["agent"]]
    return [(project.path / ".git/runplan/dispatch" / one / "out.log").read_text().strip() for one in ids]


@pytest.mark.parametrize("restart", [True], ids=["next-daemon"])
def test_an_agent_that_edits_settings_changes_neither_its_verifier_nor_its_tests(
    project: Project, meanwhile: Meanwhile, restart: bool
) -> None:
    project.repo.write("runplan.toml", CHECKED)
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"'))
    project.repo.commit("Set up")
    with in_foreground(project):
        assert project.runplan("start", "X", "1", "auto").code == 0
        meanwhile.reached("agent")
        project.repo.write("runplan.toml", OTHER)
        user_settings(project, '[run]\nclean = "untracked"\n[tests]\nsummary = "never printed"\n')
        if restart:
            kill_daemon(project)
        else:
            meanwhile.let_on("agent")
            until_runs_are(project, "done")
    if restart:
        with in_foreground(project):
            meanwhile.let_on("agent")
            until_runs_are(project, "done")
    assert (verifiers(project), checks(project)) == (["robot"], ["as-started", "as-started"])


def test_a_start_uses_the_committed_file_and_says_so_of_an_edited_one(project: Project) -> None:
    project.commit_file("runplan.toml", CHECKED)
    tip = project.repo.head("main")
    project.repo.write("runplan.toml", OTHER)
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    told = f"runplan: runplan.toml in the checkout is not committed on main; the version of main ({tip[:12]}) is used\n"
    assert ran.err.count(told) == 1
    assert (verifiers(project), checks(project)) == (["robot"], ["as-started", "as-started"])
    shown = project.runplan("config")
    assert "is not committed on main" in shown.err
    assert ("as-started" in shown.out, "edited" in shown.out) == (True, False)


def test_a_file_that_was_never_committed_is_used_and_kept_with_the_run(project: Project) -> None:
    """There is no other version; who first tries runplan need not commit its settings."""
    project.repo.git("rm", "-q", "--cached", "runplan.toml")
    project.repo.git("commit", "-qm", "Without settings")
    project.repo.write("runplan.toml", CHECKED)
    ran = project.start("1")
    assert ran.code == 4, ran.err
    commit = "git add runplan.toml && git commit -m 'Settings of runplan' -- runplan.toml"
    assert (
        f"runplan: runplan.toml is not committed on main; the checkout's file is used. To commit it: {commit}"
        in ran.err
    )
    project.repo.write("runplan.toml", OTHER)
    project.commit_file("aside.txt", "the target moves, so the candidate is checked anew\n")
    yes = project.runplan("approve", "X")
    assert yes.code == 4, yes.err
    assert project.runplan("approve", "X").code == 0
    assert (len(checks(project)) > 2, set(checks(project))) == (True, {"as-started"})


def test_a_landed_change_holds_for_the_next_run_and_is_named_in_the_report(
    project: Project, meanwhile: Meanwhile
) -> None:
    project.repo.write("runplan.toml", CHECKED)
    project.agent(steps(*meanwhile.pause("agent"), 'write = "1.txt"') + work(phase="2"))
    project.repo.commit("Set up")
    with project.running("start", "X", "1", "auto", "--foreground") as running:
        meanwhile.reached("agent")
        project.commit_file("runplan.toml", OTHER)
        meanwhile.let_on("agent")
        running.communicate(timeout=90)
        assert running.returncode == 0
    assert (set(verifiers(project)), set(checks(project))) == ({"robot"}, {"as-started"})
    told = "runplan.toml changed on main since the run started; the change holds from the next run on"
    assert told in project.show("main:reports/plan-x.md")
    assert project.start("2", "auto").code == 0
    assert (verifiers(project)[-1], checks(project)[-1]) == ("judge", "edited")
    assert project.show("main:reports/plan-x.md").count(told) == 1


def test_each_run_of_a_schedule_has_the_settings_of_its_own_start(project: Project) -> None:
    project.commit_file("runplan.toml", CHECKED)
    with in_foreground(project):
        made = project.runplan("start", "X", "every", "day at 9:15", RUNPLAN_AGENTS_VERIFIER="robot")
        assert made.code == 0, made.err
        kill_daemon(project)
    project.commit_file("runplan.toml", OTHER)
    with in_foreground(project):
        assert project.runplan("now").code == 0
        until_runs_are(project, "done")
    assert set(checks(project)) == {"edited"}
    assert verifiers(project) == ["robot"], "a variable ranks above the files, and is kept with the schedule"
