"""The directory in which one landing keeps its lock, its staged files and the plan from which it is recovered.

The lock file is locked with `flock` by the landing and by every git it starts, so a free lock means that all of them
are dead. A hard link to it is the `index.lock` of the checkout: it is ours when both are the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from runplan.adapters.plainfiles import read_file
from runplan.landing.holds import InTheWay

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.adapters.checkout import TargetCheckout
    from runplan.landing.lander import Landing

SWAP, REF = BOXES = ("runplan-swap", "runplan-ref")  #: of a landing in a checkout, and of one that moves a ref alone
WAIT_S = 20.0  #: for a git of a killed landing to end
LOCK_S = 0.2  #: for the index; git's own commands hold it for milliseconds
_STEP_S = 0.01


class Box:
    """One landing at a time has it; leaving it removes it, unless the landing was killed."""

    def __init__(self, path: Path, *, files: Path | None = None) -> None:
        self.path = path
        self.files = files or path  #: where staged files lie: on the device of the checkout
        self._lock = path / "lock"
        self._plan = path / "plan"
        self.fd = -1  #: inherited by the git processes of the landing

    def __enter__(self) -> Box:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            with suppress(FileExistsError):  # `exist_ok` would look again, and it may have been removed by then
                self.path.mkdir()
            with suppress(FileNotFoundError):  # the landing before has removed the box
                self.fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                if _locked(self.fd) and _is_same(self.fd, self._lock):
                    return self
                os.close(self.fd)
            time.sleep(_STEP_S)
        raise InTheWay(f"another landing is still at work ({self.path}); wait for it, then retry the plan")

    def __exit__(self, *_: object) -> None:
        """A plan that is still there was not completed: it stays for the next landing to recover."""
        if not self._plan.exists():
            self.clear()
            self._lock.unlink(missing_ok=True)
            with suppress(OSError):  # the next landing waits in it already
                self.path.rmdir()
        os.close(self.fd)

    # --- the plan --------------------------------------------------------------------------------------

    def write_plan(self, landing: Landing, **more: Any) -> None:
        """Durable when it returns: from here on a killed landing can be recovered."""
        fields = {"id": landing.id, "ref": landing.ref, "old": landing.old, "new": landing.new, **more}
        draft = self.path / "plan.new"
        with draft.open("w", encoding="utf-8") as file:
            json.dump(fields, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._plan)
        directory = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def read_plan(self) -> dict[str, Any] | None:
        content = read_file(self._plan)
        return json.loads(content) if content is not None else None

    @property
    def planned_ns(self) -> int:
        """When the plan was written."""
        return self._plan.stat().st_mtime_ns

    def clear(self) -> None:
        """Remove what the landing staged, the plan last."""
        if self.files != self.path:
            shutil.rmtree(self.files, ignore_errors=True)
        for one in self.path.iterdir():
            if one.is_dir():
                shutil.rmtree(one)
            elif one not in (self._lock, self._plan):
                one.unlink()
        self._plan.unlink(missing_ok=True)

    # --- index.lock ------------------------------------------------------------------------------------

    def lock_index(self, checkout: TargetCheckout) -> None:
        """Take the checkout's index.lock, or keep it when it is ours already."""
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                os.link(self._lock, checkout.lock)
            except FileExistsError:
                if self.has_locked(checkout):
                    return
                if time.monotonic() > deadline:
                    raise InTheWay(
                        f"another git command is at work in {checkout.root}; if there is none, remove {checkout.lock}"
                    ) from None
                time.sleep(_STEP_S)
            else:
                return

    def has_locked(self, checkout: TargetCheckout) -> bool:
        return _is_same(self.fd, checkout.lock)

    def unlock_index(self, checkout: TargetCheckout) -> None:
        if self.has_locked(checkout):
            checkout.lock.unlink(missing_ok=True)


def remove_stale(lock: Path, *, holding: tuple[str, ...], since_ns: int) -> None:
    """Remove a lock of git that a killed git of ours left: made since then, with this content, and not moving."""
    found = _seen(lock)
    if found is None or found[1] not in holding or found[0].st_mtime_ns < since_ns:
        return
    time.sleep(5 * _STEP_S)  # a living git holds the lock of a ref for less
    again = _seen(lock)
    if again is not None and os.path.samestat(found[0], again[0]):
        lock.unlink(missing_ok=True)


def _seen(lock: Path) -> tuple[os.stat_result, str] | None:
    try:
        return lock.lstat(), lock.read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False
