"""Looks whether the files behind a page have changed."""

import contextlib
import time
from pathlib import Path

from msgspec import Struct

from runplan.adapters.configuration.places import state_directory
from runplan.adapters.store.files import Signature, sign_files
from runplan.adapters.store.protocol import list_store_files, open_store
from runplan.adapters.supervise.output import DispatchFiles
from runplan.app.operations.model import Caller
from runplan.app.views.repositories import find_known, list_with_current
from runplan.domain.errors import RunplanError
from runplan.hosts.daemon.state import RECORD, REPOSITORIES, Known

FLEET_S = 2.0  #: after which a database of a fleet may have changed
COARSE_NS = 20_000_000  #: the time of a file may be this much older than the clock


class Topic(Struct, frozen=True):
    """What a page shows: a plan, a repository, or all repositories."""

    repo: str = ""
    plan: str = ""


class Watch:
    def __init__(self, caller: Caller, topic: Topic) -> None:
        self._env = caller.env
        self._topic = topic
        self._files: list[Path] = []
        self._signature: Signature | None = None
        self.newest_ns = 0  #: a file may have changed so late
        self._is_fleet = False
        with contextlib.suppress(RunplanError):  # settings that cannot be read
            self._is_fleet = bool(caller.user_settings.fleet.dsn)
        self._due_s = 0.0  #: when a database may have changed

    def look(self) -> bool:
        """Whether a file has changed since the last look, or a database may have. A journal may name other logs."""
        is_due = self._is_fleet and time.monotonic() >= self._due_s
        if self._signature == sign_files(self._files) and not is_due:
            return False
        self._due_s = time.monotonic() + FLEET_S
        state = state_directory(self._env)
        self._files = [state / RECORD, state / REPOSITORIES]
        topic = self._topic
        with contextlib.suppress(RunplanError):  # an unknown repository
            for known in [find_known(self._env, topic.repo)] if topic.repo else list_with_current(self._env):
                common = Path(known.common)
                self._files += list_store_files(known.journal)
                self._files += [common / name for name in ("HEAD", "logs/HEAD", "packed-refs")]
                self._files += _list_logs(known, topic.plan) if topic.plan else []
        self._signature = sign_files(self._files)
        self.newest_ns = max((changed_ns for _, changed_ns, _ in self._signature), default=0) + COARSE_NS
        return True


def _list_logs(repository: Known, plan: str) -> list[Path]:
    with (
        contextlib.suppress(RunplanError, OSError),  # unplugged, or damaged
        contextlib.closing(open_store(repository.journal, writable=False, missing_ok=True)) as store,
    ):
        run = store.get_newest_run(plan)
        works = (run, *run.lanes) if run is not None else ()
        return [DispatchFiles(repository.state / "dispatch" / work.dispatch).out for work in works if work.dispatch]
    return []
