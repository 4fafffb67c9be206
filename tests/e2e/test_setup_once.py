"""run.setup runs when its inputs changed, and a stale product lets nothing pass."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_project, work

IGNORED = {".gitignore": "*.o\n"}


def prepare(project: Project, setup: str, *, test: str = "true", more: str = "", last: str = "", **files: str) -> None:
    project.repo.commit("Set up", **IGNORED, **files)
    project.settings(f"[run]\nsetup = '''{setup}'''\nmax_fix_cycles = 0\n{more}[tests]\ncommand = '''{test}'''\n{last}")


def set_ups(project: Project) -> list[tuple[str, str]]:
    """Each run of run.setup: of which worktree, and why."""
    started = [event for event in project.bodies("DispatchStarted") if event["role"] == "setup"]
    place = {(True, True): "both", (True, False): "checks", (False, False): "agents"}
    return [(place[bool(event.get("tree")), bool(event.get("agents"))], event["why"]) for event in started]


FIRST = [("both", "first use of the worktree")]  # at the same time


@pytest.mark.promise
def test_set_up_runs_once_in_each_worktree_and_again_where_a_lock_file_changed(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2", "3")
    setup = "mkdir new.o && cp package-lock.json new.o/lock"  # fails where old products lie
    prepare(project, setup, test="cmp package-lock.json new.o/lock", **{"package-lock.json": "1"})
    lock = 'write = "package-lock.json"\ntext = "2"'
    project.agent(work() + work(lock, 'commit = "Lock"', phase="2") + work(phase="3"))
    project.start("finish", "auto").exits(0)
    changed = "package-lock.json changed"
    assert set_ups(project) == [*FIRST, ("checks", changed), ("agents", changed)]
    report = project.show("main:reports/plan-x.md")
    assert "- Set-up ran 1 time: first use of the worktree (checks and agents, 0s)" in report
    assert f"- Set-up ran 1 time: {changed} (checks, 0s)" in report


READS = {"do.sh": "cat $(git ls-files src) >made.o", "src/__init__.py": "good\n"}
EDIT = 'write = "src/__init__.py"\ntext = "bad"'


def test_set_up_runs_again_where_a_file_of_setup_inputs_changed(project: Project) -> None:
    """As for `pip install .`: a stale copy of the sources would pass the test that is to fail."""
    prepare(project, "sh do.sh", test="grep -q good made.o", more='setup_inputs = ["src/**"]\n', **READS)
    project.agent(work() + work(EDIT, phase="2"))
    ran = project.start("finish", "auto")
    assert ran.last == "runplan: failed: tests-failed", ran.err
    assert set_ups(project) == [*FIRST, ("checks", "src/__init__.py changed")]


COUNTS = """\
git ls-files | wc -l | cmp -s - count.o && echo "=== 2 passed in 0.01s ===" && exit
echo "=== short test summary info ==="; echo "FAILED t.py::test_a - x"; echo "=== 1 failed, 1 passed in 0.01s ==="
exit 1
"""
STALE = 'passed with a fresh set-up, so the earlier one was stale: name what it reads, run.setup_inputs = ["PATH"]'


def test_a_check_that_passes_only_after_a_fresh_set_up_shows_a_forgotten_input(project: Project) -> None:
    check = {"check.sh": COUNTS}
    prepare(project, "git ls-files | wc -l >count.o", test="sh check.sh", last="rerun = 'sh check.sh'", **check)
    ran = project.start("finish", "auto").exits(0)
    failure = "1 test fails that did not fail before: t.py::test_a"
    red = f"the second run failed, too: {failure}, with products of an earlier set-up"
    whys = [why for place, why in set_ups(project) if place != "agents"]
    assert whys == ["first use of the worktree", red, red], "each phase adds a file"
    lines = [event["line"] for event in project.bodies("GateJudged")][:3]
    assert [STALE in line for line in lines] == [False, False, True], "all tests, the failed one, all of them"
    assert "gate       runs … (all tests, with a fresh set-up)" in ran.err
    assert project.show("main:reports/plan-x.md").count(STALE) == 2
