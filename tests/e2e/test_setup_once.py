"""run.setup runs when its inputs changed, and a stale product lets nothing pass."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.steps.setup import Inputs
from tests.support.cli import Meanwhile, Project, a_project, ended, work
from tests.support.mounts import inside
from tests.support.repos import init_repo

IGNORED = {".gitignore": "*.o\n"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1", "2")


def prepare(project: Project, setup: str, *, test: str = "true", more: str = "", last: str = "", **files: str) -> None:
    project.repo.commit("Set up", **IGNORED, **files)
    project.settings(f"[run]\nsetup = '''{setup}'''\nmax_fix_cycles = 0\n{more}[tests]\ncommand = '''{test}'''\n{last}")


def set_ups(project: Project) -> list[tuple[str, str]]:
    """Each run of run.setup: of which worktree, and why."""
    started = [event for name, event in project.events() if name == "DispatchStarted" and event["role"] == "setup"]
    place = {(True, True): "both", (True, False): "checks", (False, False): "agents"}
    return [(place[bool(event.get("tree")), bool(event.get("agents"))], event["why"]) for event in started]


FIRST = [("both", "first use of the worktree")]  # at the same time


def test_set_up_runs_once_in_each_worktree_and_again_where_a_lock_file_changed(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2", "3")
    setup = "mkdir new.o && cp package-lock.json new.o/lock"  # fails where old products lie
    prepare(project, setup, test="cmp package-lock.json new.o/lock", **{"package-lock.json": "1"})
    lock = 'write = "package-lock.json"\ntext = "2"'
    project.agent(work() + work(lock, 'commit = "Lock"', phase="2") + work(phase="3"))
    ran = project.start("finish", "auto")
    assert ran.code == 0, ran.err
    changed = "package-lock.json changed"
    assert set_ups(project) == [*FIRST, ("checks", changed), ("agents", changed)]
    report = project.show("main:reports/plan-x.md")
    assert "- Set-up ran 1 time: first use of the worktree (checks and agents, 0s)" in report
    assert f"- Set-up ran 1 time: {changed} (checks, 0s)" in report


def test_set_up_runs_again_where_an_agent_changed_a_product(project: Project) -> None:
    prepare(project, "mkdir -p deps.o && echo 1 >deps.o/a")
    project.agent(work('write = "deps.o/a"\ntext = "2"') + work(phase="2"))
    assert project.start("finish", "auto").code == 0
    assert set_ups(project) == [*FIRST, ("agents", "a product changed: deps.o/a")]


def test_products_stay_where_an_agent_left_a_directory_that_nobody_may_write(tmp_path: Path) -> None:
    """Whoever runs the tests as root may write it."""
    project = a_project(tmp_path, "1", "2")
    prepare(project, "mkdir deps.o && touch deps.o/a")
    shut = "mkdir shut && echo 1 >shut/a && chmod 555 shut"
    project.agent(work(f'run = "{shut}"') + work('run = "test -e deps.o/a"', phase="2"))
    ran = project.start("finish", "auto")
    assert ran.code == 0, ran.err
    assert set_ups(project) == FIRST


def test_set_up_runs_again_where_a_file_changed_that_it_had_read(tmp_path: Path) -> None:
    """As `pip install .` does: a stale copy of the sources would pass the test that is to fail."""
    project = a_project(tmp_path, "1", "2", "3")
    prepare(
        project,
        "true src; cat $(git ls-files | grep /m) >made.o",  # a word may be the name of a folder by chance
        test="grep -q good made.o",
        **{"src/mod": "good\n", "src/other": "x\n"},
    )
    bad = 'write = "src/mod"\ntext = "bad"'
    new = 'write = "src/more"\ntext = "new"'
    other = 'write = "src/other"\ntext = "y"'
    project.agent(work(other) + work(new, phase="2") + work(bad, phase="3"))
    ran = project.start("finish", "auto")
    assert ran.last == "runplan: failed: tests-failed", ran.err
    assert set(project.landed()) == {"1", "2"}
    whys = [why for place, why in set_ups(project) if place != "agents"]
    assert whys == ["first use of the worktree", "src/mod changed"], "not for a file that set-up did not read"


@pytest.mark.parametrize(
    ("bad", "test", "why"),
    [
        ("chmod +x src/mod", "! test -x copy.o/mod", "src/mod changed"),
        ("echo bad >src/bad.txt", "! test -e copy.o/bad.txt", "src/ changed"),
    ],
    ids=["mode", "file of a new kind"],
)
def test_set_up_runs_again_where_only_a_mode_or_a_name_changed(project: Project, bad: str, test: str, why: str) -> None:
    prepare(project, "sh do.sh", test=test, **{"do.sh": "cp -rp src copy.o", "src/mod": "x\n"})
    project.agent(work() + work(f'run = "{bad}"', phase="2"))
    ran = project.start("finish", "auto")
    assert ran.last == "runplan: failed: tests-failed", ran.err
    assert set_ups(project) == [*FIRST, ("checks", why)]


def test_set_up_runs_again_where_a_submodule_moved_and_only_there(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2", "3")
    repo, module = project.repo, init_repo(tmp_path / "module")
    good, bad = (module.commit(word, lib=word) for word in ("good", "bad"))
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(module.path), "sub")
    repo.git("-C", "sub", "checkout", "-q", good)
    repo.git("add", "sub")
    prepare(project, "cp sub/lib lib.o", test="grep -q good lib.o")
    move = f"git -C sub checkout -q {bad} && git add sub"
    project.agent(work() + work(phase="2") + work(f'run = "{move}"', phase="3"))
    ran = project.start("finish", "auto")
    assert ran.last == "runplan: failed: tests-failed", ran.err
    assert set_ups(project) == [*FIRST, ("checks", "sub changed")]


def test_a_baseline_that_is_known_needs_no_set_up(project: Project) -> None:
    prepare(project, "true")
    assert project.start("1", "auto").code == 0
    before = len(project.events())
    assert project.start("2", "auto").code == 0
    roles = [event["role"] for name, event in project.events()[before:] if name == "DispatchStarted"]
    assert roles == ["setup", "implement", "setup", "gate", "verify"]
    assert "then: a command is running (setup: first use of the worktree)" in project.runplan("explain", "X").out


COUNTS = """\
git ls-files | wc -l | cmp -s - count.o && echo "=== 2 passed in 0.01s ===" && exit
echo "=== short test summary info ==="; echo "FAILED t.py::test_a - x"; echo "=== 1 failed, 1 passed in 0.01s ==="
exit 1
"""
HIDDEN = "run.setup depends on files that run.setup_inputs does not name"


def test_a_forgotten_input_is_shown_and_from_then_on_set_up_runs_on_every_tree(project: Project) -> None:
    check = {"check.sh": COUNTS}
    prepare(project, "git ls-files | wc -l >count.o", test="sh check.sh", last="rerun = 'sh check.sh'", **check)
    ran = project.start("finish", "auto")
    assert ran.code == 0, ran.err
    failure = "1 test fails that did not fail before: t.py::test_a"
    red = f"the second run failed, too: {failure}, with products of an earlier set-up"
    whys = [why for place, why in set_ups(project) if place != "agents"]
    assert whys == ["first use of the worktree", red, "the code changed"]
    report = project.show("main:reports/plan-x.md")
    runs = [event["line"] for name, event in project.events() if name == "GateJudged"][:3]
    assert [HIDDEN in line for line in runs] == [False, False, True], "all tests, the failed one, all of them"
    assert "gate       runs … (all tests, with a fresh set-up)" in ran.err
    assert report.count(HIDDEN) == 1
    assert "Warning: run.setup runs on every tree from now on; name its input files in run.setup_inputs" in report


def test_a_flaky_test_costs_no_set_up(project: Project, tmp_path: Path) -> None:
    flaky = f"""\
test -e 1.txt || {{ echo "=== 2 passed in 0.01s ==="; exit; }}
mkdir {tmp_path}/seen || {{ echo "=== 2 passed in 0.01s ==="; exit; }}
echo "=== short test summary info ==="; echo "FAILED t.py::test_a - x"; echo "=== 1 failed, 1 passed in 0.01s ==="
exit 1
"""
    prepare(project, "true", test="sh check.sh", last="rerun = 'sh check.sh'", **{"check.sh": flaky})
    ran = project.start("finish", "auto")
    assert ran.code == 0, ran.err
    assert "flaky, passed when run again: t.py::test_a" in ran.err
    assert set_ups(project) == FIRST


def test_a_red_baseline_is_repeated_with_a_fresh_set_up(project: Project, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    prepare(project, "git ls-files | wc -l >count.o", test="git ls-files | wc -l | cmp - count.o")
    project.agent(work(*meanwhile.pause("implement")))
    running = project.popen("start", "X", "1", "auto", "--foreground")
    meanwhile.reached("implement")
    project.repo.commit("Theirs", **{"theirs.txt": "x\n"})
    meanwhile.let_on("implement")
    ran = ended(running)
    assert ran.code == 0, ran.err
    assert f"baseline   passed with a fresh set-up: {HIDDEN}" in ran.err


INPUTS = Inputs(command="make deps", environment="e", files={"go.mod": "1", "go.sum": "1"})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"command": "make all"}, "its command changed"),
        ({"environment": "f"}, "its environment changed"),
        ({"files": {"go.mod": "1", "go.sum": "2"}}, "go.sum changed"),
        ({"files": {"go.mod": "1", "a": "", "b": ""}}, "a, b, go.sum changed"),
    ],
)
def test_the_reason_of_a_set_up_names_what_changed(changes: dict[str, Any], expected: str) -> None:
    assert replace(INPUTS, **changes).describe_change(INPUTS) == expected


@pytest.mark.parametrize("named", ["", 'setup_inputs = ["src"]\n'])
def test_where_reading_leaves_no_trace_inputs_are_named_or_set_up_runs_on_every_tree(
    project: Project, named: str
) -> None:
    prepare(project, "true", more=named)
    with inside(project) as there:
        there.sh('mkdir -p "$1"; mount -t tmpfs -o noatime none "$1"', project.worktrees)
        assert ("records no access times" in there.runplan("doctor").out) == (not named)
        ran = there.start("1", "auto")
    assert ran.code == 0, ran.err
    whys = [why for place, why in set_ups(project) if place != "agents"]
    assert whys == ["first use of the worktree", *([] if named else ["the code changed"])]
