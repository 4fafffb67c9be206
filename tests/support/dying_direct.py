"""A process that lands by direct push and dies by SIGKILL at a named point, alone or with every git it started.

Usage: dying_direct.py ROOT POINT alone|all recover|land|tip LANDING-AS-JSON
Its children find its process id in LANDER.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from runplan.git.command import Git
from runplan.landing.direct import Direct
from runplan.landing.lander import Landing


def main(root: str, at: str, who: str, verb: str, given: str) -> None:
    def die(point: str) -> None:
        if point == at:
            os.kill(0 if who == "all" else os.getpid(), signal.SIGKILL)

    fields = json.loads(given)
    landing = Landing(**fields)
    env = {**os.environ, "LANDER": str(os.getpid())}
    with Git(Path(root), env=env) as git:
        lander = Direct(
            git,
            remote="origin",
            branch="main",
            root=Path(root),
            common_dir=Path(root) / ".git",
            tool=Path(root) / ".git/runplan/tool.git",
            caller=env,
            point=die,
        )
        if verb == "tip":
            lander.tip()
        elif verb == "recover":
            lander.recover(landing)
        else:
            lander.land(landing)


if __name__ == "__main__":
    main(*sys.argv[1:])
