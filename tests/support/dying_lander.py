"""A process that lands and dies by SIGKILL at a named point, alone or with every git it started.

Usage: dying_lander.py ROOT POINT alone|all recover|land LANDING-AS-JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from runplan.adapters.git import Git
from runplan.adapters.landers.cherry_pick import CherryPick
from runplan.core.gitfacts import Landing


def main(root: str, at: str, who: str, verb: str, given: str) -> None:
    def die(point: str) -> None:
        if point == at:
            os.kill(0 if who == "all" else os.getpid(), signal.SIGKILL)

    fields = json.loads(given)
    landing = Landing(**{**fields, "locks": tuple(fields["locks"])})
    with Git(Path(root), env=os.environ) as git:
        lander = CherryPick(git, ref=landing.ref, root=Path(root), common_dir=Path(root) / ".git", point=die)
        if verb == "recover":
            lander.recover(landing)
        else:
            lander.land(landing)


if __name__ == "__main__":
    main(*sys.argv[1:])
