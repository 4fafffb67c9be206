"""What the tracer sees of a process that knows nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.chaos.tracer import HOLD, VARIABLE
from tests.support.cli import until

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, sqlite3, subprocess
from tests.chaos.tracer import trace
trace(os.environ)
place = os.environ["PLACE"]
open(f"{place}/a", "w").close()
open(f"{place}/a").read()
os.replace(f"{place}/a", f"{place}/b")
with sqlite3.connect(f"{place}/db") as journal:
    journal.execute("CREATE TABLE facts (fact)")
    journal.execute("INSERT INTO facts VALUES (1)")
subprocess.run(["git", "-c", "a.b=c", "version"], check=True)
os.makedirs(place, exist_ok=True)
os.remove(f"{place}/b")
"""
EFFECTS = ["open files/a", "rename files/a files/b", "commit", "git version", "remove files/b"]


def started(place: Path, *, hold: int) -> subprocess.Popen[bytes]:
    for name in ("files", "trace"):
        (place / name).mkdir()
    env = {**os.environ, "PLACE": str(place / "files"), VARIABLE: str(place / "trace"), HOLD: str(hold)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM], env=env)


def test_every_effect_is_seen_and_nothing_else(tmp_path: Path) -> None:
    with started(tmp_path, hold=0) as process:
        assert process.wait(20) == 0
    seen = (tmp_path / "trace/log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in seen] == EFFECTS


def test_a_process_is_held_before_the_effect_until_it_is_let_go(tmp_path: Path) -> None:
    with started(tmp_path, hold=2) as process:
        until(lambda: (tmp_path / "trace/at").exists())
        assert [path.name for path in (tmp_path / "files").iterdir()] == ["a"]
        (tmp_path / "trace/go").touch()
        assert process.wait(20) == 0
    assert not (tmp_path / "files/a").exists()
