"""Agents, crashes and users at their worst: every run ends by name, nothing is lost, nothing is paid for ever."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_plan, a_project, ended, processes_of, until, writes
from tests.support.scripts import Meanwhile, verify, work

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


def command_agent(project: Project, script: str) -> None:
    """A shell script implements; the scripted agent still verifies."""
    (project.home / "agent.sh").write_text(script)
    project.settings(f'[agents.sh]\nkind = "command"\nargv = ["sh", "{project.home / "agent.sh"}"]\n')
    text = (project.path / "runplan.toml").read_text().replace('implementer = "robot"', 'implementer = "sh"')
    project.commit_file("runplan.toml", text)


def test_an_agent_that_takes_away_its_own_records_is_not_sent_for_ever(project: Project) -> None:
    command_agent(project, 'echo x > 1.txt; rm -rf "$(dirname "$(dirname "$RUNPLAN_RETURN")")"\n')
    ran = project.start("1", "auto")
    assert ran.code == 1, ran.err
    assert len([event for event in project.events() if event[0] == "DispatchStarted"]) <= 3


def test_an_agent_that_stops_its_shim_is_out_of_time_for_the_next_runner_too(project: Project) -> None:
    command_agent(project, f"echo x >1.txt; kill -STOP $PPID; touch {project.home}/stopped; sleep 60\n")
    with project.popen("start", "X", "1", "auto", "--foreground", RUNPLAN_TEST_NOW="2026-11-15T12:00:00Z") as runner:
        until((project.home / "stopped").exists)
        runner.kill()

    ran = project.start("1", "auto", RUNPLAN_TEST_NOW="2026-11-15T15:00:00Z")

    assert (ran.code, ran.last) == (1, "runplan: failed: timeout"), ran.err
    assert project.dispatched() == ["implement"]
    assert processes_of(project.home) == []


def test_an_agent_whose_shim_is_killed_has_not_succeeded(project: Project) -> None:
    command_agent(project, "echo x > 1.txt; kill -9 $PPID; sleep 5\n")
    ran = project.start("1", "auto")
    assert ran.code == 1, ran.err
    assert "vanished without a trace" in ran.err
    assert len(project.dispatched()) <= 3
    assert project.landed() == []


def test_a_repository_inside_the_work_does_not_land_as_an_empty_name(project: Project) -> None:
    inner = "git init -q inner && cd inner && echo y > y && git add y && git commit -qm y && cd .."
    command_agent(project, f"{inner} && git add inner && git commit -qm inner\n")
    ran = project.start("1", "auto")
    assert ran.last == "runplan: failed: tampered", ran.err
    assert "inner is a git repository of its own" in ran.err


def test_a_return_that_is_no_file_is_no_return(project: Project) -> None:
    command_agent(project, 'mkdir "$RUNPLAN_RETURN"; echo x > 1.txt\n')
    assert project.start("1", "auto").code == 0
    assert project.landed() == ["1"]


def test_a_file_whose_name_is_no_text_lands(project: Project) -> None:
    command_agent(project, "printf x > \"$(printf 'caf\\351.txt')\"\n")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert r"caf\351.txt" in project.repo.git("ls-tree", "--name-only", "main")
    assert project.runplan("logs", "X", "--json").code == 0


def test_evidence_of_any_length_leaves_a_report_of_some_length(project: Project) -> None:
    project.agent(writes("1") + verify(f'pass_all = true\nevidence = "{"long " * 20000}"'))
    assert project.start("1", "auto").code == 0
    assert len(project.show("main:reports/plan-x.md")) < 10_000


@pytest.mark.parametrize("lock", ["index.lock", "HEAD.lock"])
def test_locks_left_in_the_worktree_do_not_stop_a_run_for_good(project: Project, lock: str) -> None:
    command_agent(project, f'touch "$(git rev-parse --absolute-git-dir)/{lock}"; exit 3\n')
    ran = project.start("1", "auto")
    assert ran.last == "runplan: failed: agent-failed", ran.err
    assert project.leftovers() == []


@pytest.mark.parametrize("ref", ["refs/heads/runplan/x/1", "refs/runplan/candidate/rx"])
def test_locks_left_on_our_own_refs_do_not_stop_a_run_for_good(project: Project, ref: str) -> None:
    killed = project.start("1", "auto", RUNPLAN_TEST_RUN="rx", RUNPLAN_TEST_KILL="BuildCandidate.CandidateBuilt.after")
    assert killed.code == -signal.SIGKILL
    (project.path / f".git/runplan/tool.git/{ref}.lock").touch()
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert project.leftovers() == []


def test_a_worktree_that_somebody_emptied_is_made_again(project: Project) -> None:
    killed = project.start("1", "auto", RUNPLAN_TEST_KILL="JudgeGate.GateJudged.after")
    assert killed.code == -signal.SIGKILL
    place = project.home / ".cache/runplan/worktrees"
    place.rename(place.with_name("gone"))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert project.landed() == ["1"]


def test_a_candidate_whose_commits_are_gone_ends_by_name(project: Project) -> None:
    assert project.start("1").code == 4
    for ref in project.leftovers():
        if ref.startswith("refs/"):
            project.repo.git("update-ref", "-d", ref)
    project.repo.git("gc", "-q", "--prune=now")
    for place in ("tool.git", "lanes"):
        shutil.rmtree(project.path / ".git/runplan" / place)
    ran = project.runplan("approve", "X")
    assert ran.last == "runplan: failed: no-commits", ran.err
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "failed"


def test_finish_ends_when_the_target_says_so_and_not_before(tmp_path: Path) -> None:
    """A phase that somebody adds while the last one runs is worked too."""
    project = a_project(tmp_path, "1")
    meanwhile = Meanwhile(tmp_path)
    project.agent(work(*meanwhile.pause("implement")) + writes("2"))
    running = project.popen("start", "X", "finish", "auto", "--foreground")
    meanwhile.reached("implement")
    project.plan(a_plan("1", "2"))
    meanwhile.let_on("implement")
    ran = ended(running)
    assert ran.code == 0, ran.err
    assert project.landed() == ["1", "2"]
    assert "status: complete" in project.show("main:plans/X.md")


def test_a_phase_does_not_land_on_a_dependency_that_was_taken_back(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.plan(a_plan("1", "2", depends={"2": "Phase 1"}))
    meanwhile = Meanwhile(tmp_path)
    project.agent(writes("1") + work(*meanwhile.pause("implement"), phase="2"))
    running = project.popen("start", "X", "finish", "auto", "--foreground")
    meanwhile.reached("implement")
    project.repo.git("revert", "--no-edit", "HEAD")
    meanwhile.let_on("implement")
    ran = ended(running)
    assert ran.code == 4, ran.err
    assert "phase 2 depends on 1" in ran.err
    assert project.landed() == ["1"]


HALF_MADE = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size=1")  # so that pages reach the file before the transaction ends
db.execute("BEGIN")
db.execute("CREATE TABLE half (made TEXT)")
db.executemany("INSERT INTO half VALUES (?)", [("x" * 3000,)] * 50)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_journal_whose_making_was_killed_is_made_again(project: Project) -> None:
    place = project.path / ".git/runplan"
    place.mkdir()
    subprocess.run([sys.executable, "-c", HALF_MADE, place / "journal.db"], check=False)
    assert (place / "journal.db-journal").exists()
    status = project.runplan("status")
    assert status.code == 0, status.err
    assert project.start("1", "auto").code == 0
