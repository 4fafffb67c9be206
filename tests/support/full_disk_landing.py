"""Lands in a repository on a small disk that becomes full at a named point; to be run in a mount namespace of its own.

Usage: full_disk_landing.py DIRECTORY POINT
Fails when the landing says no reason, something of the user's has changed, or a retry does not land.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from runplan.errors import RunplanError
from runplan.landing.lander import Landed, Pending
from tests.support.landings import candidate, files_of, intent, lander, snapshot
from tests.support.repos import make_repo


def main(place: Path, point: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)], check=True)
    repo = make_repo(place / "repo", **{f"{number}.txt": f"{number}\n" for number in range(20)})
    repo.write("mine.txt", "untracked\n")
    files: dict[str, str | None] = {f"{number}.txt": "x" * 5000 for number in range(15)}
    landing = intent(repo, candidate(repo, {**files, "16.txt": None, "new/n.txt": "n\n"}))
    before, ballast = snapshot(repo), place / "ballast"

    def passed(name: str) -> None:
        if name == point:
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

    passed("begin")
    try:
        with lander(repo, passed) as cherry_pick:
            found = cherry_pick.land(landing)
            answer = found.why if isinstance(found, Pending) else str(found)
    except RunplanError as error:
        answer = str(error)
    ballast.unlink()
    if repo.head() == landing.old:
        assert answer.startswith("git cannot"), answer
        assert snapshot(repo) == before
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    assert repo.status() == "?? mine.txt"
    assert (place / "repo/mine.txt").read_text() == "untracked\n"
    assert len(files_of(repo.path)) == 21


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
