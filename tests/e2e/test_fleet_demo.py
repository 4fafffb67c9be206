"""make demo-fleet: one of two hosts is killed, the plan lands once, and nothing is left behind."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.documents import ROOT

MARKS = ("$ runplan fleet init", "is killed: kill -9", "has taken over after", "continued what", "each landed once")


def test_the_demo_of_a_fleet_lands_each_phase_once_and_leaves_nothing() -> None:
    """The demo itself counts the landings of each phase on the remote."""
    words = ["-m", "tests.support.fleet_demo", "--lease", "2", "--pause", "0.3"]
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # the server runs as another user
        env = {**os.environ, "TMPDIR": place, "RUNPLAN_RUN_LANDING": "pr", "GIT_DIR": f"{place}/nowhere"}
        ran = subprocess.run([sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        left = list(Path(place).iterdir())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [mark for mark in MARKS if mark not in ran.stdout] == []
    assert sorted(MARKS, key=ran.stdout.index) == list(MARKS)
    assert left == []
