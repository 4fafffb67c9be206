"""Reads the refs that runplan makes: it makes no symbolic ones, so one that stands for another ref is not believed."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from runplan.adapters.plainfiles import read_file
from runplan.adapters.repository import resolved_refs, stored_refs
from runplan.core.guard import read_log
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.adapters.git import Git
    from runplan.adapters.registry import Entry
    from runplan.core.gitfacts import Oid

_SYMBOLIC = "ref: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Refs:
    """All refs of a repository at one moment."""

    resolved: Mapping[str, Oid]  #: every ref that leads to an object
    symbolic: Mapping[str, str]  #: those that stand for another ref, and for which

    @property
    def plain(self) -> dict[str, Oid]:
        return {name: oid for name, oid in self.resolved.items() if name not in self.symbolic}


def read_refs(common_dir: Path, git: Git) -> Refs:
    """Every ref; costs no process where refs are files."""
    stored = stored_refs(common_dir, git)
    symbolic = {
        name: value.removeprefix(_SYMBOLIC).strip() for name, value in stored.items() if value.startswith(_SYMBOLIC)
    }
    return Refs(resolved=resolved_refs(stored), symbolic=symbolic)


def is_symbolic(common_dir: Path, git: Git, ref: str) -> bool:
    """Whether a full ref name stands for another ref; costs no process where refs are files."""
    if (common_dir / "reftable").is_dir():
        return git.run("symbolic-ref", "-q", ref, ok=(0, 1, 128)).code == 0
    path = os.path.join(common_dir, ref)
    if os.path.islink(path):  # noqa: PTH114 - asked for every branch we look at
        return True
    return (read_file(path) or b"").startswith(_SYMBOLIC.encode())


def own_tip(common_dir: Path, git: Git, ref: str) -> Oid | None:
    """The commit a ref of ours holds itself."""
    if _is_odd(os.path.join(common_dir, ref)) or is_symbolic(common_dir, git, ref):
        return None
    return git.tip(ref)


def _is_odd(path: str) -> bool:
    """Whether it is there and no file, a pipe for instance: it holds nothing, and git would wait for it."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - asked for every branch we look at
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def drop_broken(common_dir: Path, git: Git, ref: str) -> None:
    """Take a ref of ours away that holds no commit: a symbolic one, and nothing of what it stands for; a lost one."""
    if is_symbolic(common_dir, git, ref):
        git.run("update-ref", "--no-deref", "-d", ref)
    elif ref in stored_refs(common_dir, git):
        git.run("update-ref", "--no-deref", "-d", ref, ok=(0, 1))
    else:  # git deletes no ref whose file it cannot read
        (common_dir / ref).unlink(missing_ok=True)
        (common_dir / "logs" / ref).unlink(missing_ok=True)


def last_logged(common_dir: Path, git: Git, ref: str) -> Oid | None:
    """The newest commit that a ref of ours held, by its log, and that is still there."""
    log = os.fsdecode(read_file(common_dir / "logs" / ref) or b"")
    return next((entry.new for entry in reversed(read_log(log)) if git.tip(entry.new) is not None), None)


def leads(common_dir: Path, git: Git, entry: Entry) -> bool:
    """Whether HEAD of a worktree leads to a commit, or to a branch that has none yet: else git refuses to work."""
    if git.tip(f"worktrees/{entry.directory.name}/HEAD") is not None:
        return True
    branch = entry.attached
    return (
        branch is not None and not os.path.lexists(common_dir / branch) and branch not in stored_refs(common_dir, git)
    )
