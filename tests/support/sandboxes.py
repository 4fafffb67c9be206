"""Whether bubblewrap works on this machine; tests that need it are skipped with the reason."""

from __future__ import annotations

import os

from runplan.agents import sandbox


def obstacle() -> str:
    found = sandbox.obstacle({"PATH": os.environ["PATH"]})
    return f"the sandbox does not work here: {found.why}" if found else ""
