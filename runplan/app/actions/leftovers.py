"""Commits what an agent left lying about, by name, onto its own branch and nowhere else; or says why not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.core import tamper
from runplan.core.errors import ObjectsRefused
from runplan.core.events import WorkRefused
from runplan.core.gitfacts import AGENT, Unstored, signing
from runplan.core.keys import FILES
from runplan.core.reasons import Reason
from runplan.core.secrets import redacted

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.app.runcontext import RunContext
    from runplan.core.gitfacts import WorktreeState
    from runplan.core.run import PhaseRun

NAMED = 8  #: paths named in one sentence
BEGINNING = 8192  #: bytes of a new file that are looked at


def commit_leftovers(phase: PhaseRun, world: RunContext, *, message: str) -> str | WorkRefused:
    """The commit on the branch that holds everything; nothing is committed where anything is amiss."""
    assert phase.lease is not None
    assert phase.ended is not None
    path = world.worktrees.path(phase.lease.worktree)
    try:
        tip = world.worktrees.take(phase.lease.worktree, branch=phase.lease.branch, base=phase.base)
    except ObjectsRefused as error:
        return WorkRefused(reason=Reason.TAMPERED, detail=redacted(str(error)))
    if not path.is_dir() or not any(path.iterdir()):  # the agent deleted it; what it has committed is on its branch
        return tip
    left = without_copies(world.worktrees.state(path), world.settings.run.copy)
    refusal = _nested(left) or _unwanted(phase, world, path, left)
    if refusal is not None:
        return refusal
    rest = [*left.changed, *(file.path for file in left.untracked if not tamper.is_lifecycle(file.path))]
    if not rest:
        return left.head
    maker = signing(phase.ended.id)
    made = world.worktrees.commit_leftovers(
        path,
        rest,
        branch=phase.lease.branch,
        message=message,
        author=AGENT,
        committer=maker,
        when=world.git_date(),
    )
    if isinstance(made, Unstored):
        reason = Reason.BLOCKED if made.filtered else Reason.TAMPERED
        return WorkRefused(reason=reason, detail=f"{made.path} cannot be committed: {made.why}")
    return made


def without_copies(left: WorktreeState, copies: tuple[str, ...]) -> WorktreeState:
    """The state without the files of run.copy, which we put there ourselves."""
    return replace(left, untracked=tuple(file for file in left.untracked if file.path not in copies))


def _nested(left: WorktreeState) -> WorkRefused | None:
    nested = [file.path for file in left.untracked if file.path.endswith("/")]
    return WorkRefused(reason=Reason.TAMPERED, detail=f"{nested[0]} is a git repository of its own") if nested else None


def _unwanted(phase: PhaseRun, world: RunContext, path: Path, left: WorktreeState) -> WorkRefused | None:
    found = tamper.unwanted(left.untracked, permit_of(phase, world), texts=_beginnings(path, left))
    return refusal_of(found)


def _beginnings(path: Path, left: WorktreeState) -> dict[str, str]:
    """The first lines of every file that would be added: secrets stand there."""
    texts = {}
    for file in left.untracked:
        place = path / file.path
        if place.is_file() and not place.is_symlink():
            with place.open("rb") as stream:
                texts[file.path] = stream.read(BEGINNING).decode("utf-8", "replace")
    return texts


def permit_of(phase: PhaseRun, world: RunContext) -> tamper.Permit:
    written = (world.plan, world.report)
    own = (*written, *FILES)
    read = phase.read
    return tamper.Permit(text=read.text, touches=read.touches, allows=read.allows, bookkeeping=own, written=written)


def refusal_of(found: tuple[tamper.Tampering, ...]) -> WorkRefused | None:
    """What was found as one refusal, the first few by name; None when nothing was."""
    if not found:
        return None
    scope = all(one.reason is Reason.OUT_OF_SCOPE for one in found)
    named = "; ".join(str(one) for one in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return WorkRefused(
        reason=Reason.OUT_OF_SCOPE if scope else Reason.TAMPERED, detail=named + more + tamper.remedy(found)
    )
