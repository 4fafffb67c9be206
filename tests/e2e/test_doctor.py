"""`doctor --run` runs set-up and tests as a phase would, and leaves nothing."""

import signal
from pathlib import Path

import pytest

from tests.support.cli import Project, until

SETUP = (
    '[run]\nsetup = "echo made | tee made.txt >>agent.toml"\n[tests]\ncommand = "cat made.txt && pwd >>{log}{more}"\n'
)

PYTEST_RED = "printf '%s\\\\n' '= short test summary info =' 'FAILED a.py::b' '1 failed, 2 passed in 0.1s'; false"


def untouched(project: Project) -> bool:
    dispatches = project.path / ".git/runplan/dispatch"
    left = [path for path in dispatches.iterdir() if path.is_dir()] if dispatches.is_dir() else []
    return project.repo.status() == "" and project.leftovers() == [] and left == []


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("more", "code", "shown"),
    [
        ("", 0, "ok    run         set-up 0s, tests 0s; passed"),
        (
            " && echo No module named pytest && exit 3",
            2,
            f"exit 3` failed on the base: exit code 3\n{'':18}made\n{'':18}No module named pytest\n",
        ),
        (f"; {PYTEST_RED}", 0, "WARN  run         set-up 0s, tests 0s; 2 passed, 1 failed\n"),
        ("; missing-program", 2, "FAIL  run         not run, because of: tests\n"),
    ],
)
def test_set_up_and_tests_run_in_a_worktree(project: Project, tmp_path: Path, more: str, code: int, shown: str) -> None:
    log = tmp_path / "log"
    project.settings(SETUP.format(log=log, more=more))
    for _ in range(2):  # also when it is known that they pass
        ran = project.runplan("doctor", "--run")
        assert (ran.code, shown.format(log=log) in ran.out) == (code, True), ran.out
        assert untouched(project)
    places = log.read_text().splitlines() if log.exists() else []
    assert len(places) == (0 if "missing" in more else 2)
    assert all(Path(place).parent == project.worktrees for place in places)
    assert project.rows("SELECT 1 FROM events") == []


@pytest.mark.promise
def test_an_interrupted_run_of_the_doctor_leaves_nothing(project: Project, tmp_path: Path) -> None:
    project.settings(f'[tests]\ncommand = "touch {tmp_path}/begun; sleep 100"\n')
    with project.running("doctor", "--run") as process:
        until(lambda: (tmp_path / "begun").exists())
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert untouched(project)
