"""Whether bubblewrap works on this machine; tests that need it are skipped with the reason it gives."""

from __future__ import annotations

import functools
import os

from runplan.adapters import sandbox
from runplan.core.errors import RefusedEarly


@functools.cache
def obstacle() -> str:
    try:
        sandbox.require({"PATH": os.environ["PATH"]}, setting="agents.x")
    except RefusedEarly as refusal:
        return str(refusal)
    return ""
