"""Takes over what an agent left: commits the rest by name, and looks at every path it changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.app.actions.doing import phase_of
from runplan.app.actions.leaking import leaked
from runplan.app.actions.leftovers import commit_leftovers, permit_of, refusal_of
from runplan.core import tamper
from runplan.core.events import WorkRefused, WorkTaken
from runplan.core.lineage import off_base
from runplan.core.reasons import Reason
from runplan.core.told import unsolved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runplan.app.runcontext import RunContext
    from runplan.core.actions import TakeWork
    from runplan.core.events import Event
    from runplan.core.gitfacts import Change
    from runplan.core.run import PhaseRun, RunState

GITLINK = "160000"  #: the mode of a repository inside a tree


def take_work(action: TakeWork, state: RunState, world: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    head = commit_leftovers(phase, world, message=f"{phase.read.title or f'Phase {phase.read.phase}'}\n")
    if isinstance(head, WorkRefused):
        yield head
        return
    if why := _off_base(phase, world, head):
        yield WorkRefused(reason=Reason.OFF_BASE, detail=why)
        return
    changes = world.candidates.changes(phase.base, head)
    refusal = (
        _half_merged(phase, world, head) or _foreign(changes, world, head) or _tampered(phase, world, head, changes)
    )
    if refusal is not None:
        yield refusal
        return
    commits = world.candidates.commits(phase.base, head)
    yield WorkTaken(
        head=head,
        tree=world.objects.commit(head).tree,
        commits=0 if not changes else len(commits) if commits else 1,
        files=tuple(change.path for change in changes),
    )


def _off_base(phase: PhaseRun, world: RunContext, head: str) -> str:
    assert phase.lease is not None
    branch = phase.lease.branch
    found = world.candidates.lineage(phase.base, head, branch=branch, run=world.mark)
    return off_base(found, branch=branch, base=phase.base)


def _half_merged(phase: PhaseRun, world: RunContext, head: str) -> WorkRefused | None:
    """Conflict markers in a file whose conflict the fixer had to solve, and that the target does not have."""
    for path in phase.unsolved.paths if phase.unsolved else ():
        if _has_markers(_text(world, head, path)) and not _has_markers(_text(world, phase.base, path)):
            return WorkRefused(reason=Reason.CONFLICT, detail=unsolved(phase, f"it left conflict markers in {path}"))
    return None


def _has_markers(text: str | None) -> bool:
    lines = (text or "").splitlines()
    return all(any(line.startswith(mark) for line in lines) for mark in ("<<<<<<< ", ">>>>>>> "))


def _foreign(changes: tuple[Change, ...], world: RunContext, head: str) -> WorkRefused | None:
    """A repository inside the work would land as a mere name of a commit that is nowhere, and its content be lost."""
    modules = _text(world, head, ".gitmodules") or ""
    for change in changes:
        if change.new_mode == GITLINK != change.old_mode and f"path = {change.path}\n" not in f"{modules}\n":
            return WorkRefused(reason=Reason.TAMPERED, detail=f"{change.path} is a git repository of its own")
    return None


def _tampered(phase: PhaseRun, world: RunContext, head: str, changes: tuple[Change, ...]) -> WorkRefused | None:
    permit = permit_of(phase, world)
    found = tamper.examine([_changed(phase, world, head, change) for change in changes], permit)
    command = tamper.examine_command(
        world.settings.tests.command,
        permit,
        before=lambda path: _text(world, phase.base, path),
        after=lambda path: _text(world, head, path),
    )
    return refusal_of((*found, *command, *leaked(phase, world, head, permit)))


def _changed(phase: PhaseRun, world: RunContext, head: str, change: Change) -> tamper.FileChange:
    inside = tamper.wants_text(change.path)
    return tamper.FileChange(
        path=change.path,
        before=_text(world, phase.base, change.path) if inside else None,
        after=_text(world, head, change.path) if inside else None,
        deleted=change.kind == "D",
        added=change.kind == "A",
    )


def _text(world: RunContext, commit: str, path: str) -> str | None:
    content = world.objects.blob(commit, path)
    return None if content is None else content.decode("utf-8", "replace")
