"""Gives the tests an environment of their own, independent of the login that starts them.

Without it they would ask the user's daemon, write into the user's state, and go by the user's git configuration.
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

#: All that is kept of the login: where programs are, where temporary files go, the settings of `make walk`, and
#: variables of pytest for its workers.
KEPT = frozenset(
    ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "USER", "LOGNAME", "WALKS", "WALK_STEPS", "NIGHT", "NIGHTS", "DOCKER_HOST")
)
KEPT_PREFIX = "PYTEST_"


def pinned(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """The environment of the tests, with this home and the interpreter that runs them before all other programs."""
    kept = {name: value for name, value in env.items() if name in KEPT or name.startswith(KEPT_PREFIX)}
    if not Path(kept.get("TMPDIR", "/")).is_dir():
        del kept["TMPDIR"]
    own = str(Path(sys.executable).parent)
    path = [own, *(one for one in kept.get("PATH", os.defpath).split(os.pathsep) if one != own)]
    return kept | {"HOME": str(home), "PATH": os.pathsep.join(path), "GIT_CONFIG_NOSYSTEM": "1"}


@contextlib.contextmanager
def own_environment() -> Iterator[None]:
    """Give them to this process, and to all that it starts from now on; at the end their home is removed."""
    home = Path(tempfile.mkdtemp(prefix="runplan-tests-home-"))
    given = pinned(os.environ, home)
    os.environ.clear()
    os.environ.update(given)
    os.umask(0o022)
    try:
        yield
    finally:
        shutil.rmtree(home, ignore_errors=True)
