"""Takes over what an agent left: commits the rest by name, and looks at every path it changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.app.actions.doing import phase_of
from runplan.core import tamper
from runplan.core.events import WorkRefused, WorkTaken
from runplan.core.guard import AGENT
from runplan.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.app.world import World
    from runplan.core.actions import TakeWork
    from runplan.core.events import Event
    from runplan.core.gitfacts import Change, WorktreeState
    from runplan.core.run import PhaseRun, RunState

NAMED = 8  #: paths named in one sentence
GITLINK = "160000"  #: the mode of a repository inside a tree
BEGINNING = 8192  #: bytes of a new file that are looked at


def take_work(action: TakeWork, state: RunState, world: World) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    assert phase.lease is not None
    path = world.worktrees.path(phase.lease.worktree)
    if not path.is_dir():  # somebody took it away; what the agent has committed is on its branch
        world.worktrees.attach(phase.lease.worktree, branch=phase.lease.branch, clean="", keep=())
    left = without_copies(world.worktrees.state(path), world.settings.run.copy)
    if left.branch != phase.lease.branch:
        where = (left.branch or f"the detached commit {left.head[:12]}").removeprefix("refs/heads/")
        yield WorkRefused(reason=Reason.GUARD_VIOLATED, detail=f"the agent left its worktree on {where}")
        return
    nested = [file.path for file in left.untracked if file.path.endswith("/")]
    if nested:
        yield WorkRefused(reason=Reason.TAMPERED, detail=f"{nested[0]} is a git repository of its own")
        return
    permit = _permit(phase, world)
    refusal = _refusal(tamper.unwanted(left.untracked, permit, texts=_beginnings(path, left)))
    if refusal is not None:
        yield refusal
        return
    head = _commit_rest(phase, world, path, left)
    changes = world.candidates.changes(phase.base, head)
    refusal = _foreign(changes, world, head) or _refusal(
        tamper.examine([_changed(phase, world, head, change) for change in changes], permit)
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


def without_copies(left: WorktreeState, copies: tuple[str, ...]) -> WorktreeState:
    """The state without the files of run.copy, which we put there ourselves."""
    return replace(left, untracked=tuple(file for file in left.untracked if file.path not in copies))


def _commit_rest(phase: PhaseRun, world: World, path: Path, left: WorktreeState) -> str:
    rest = [*left.changed, *(file.path for file in left.untracked if not tamper.is_lifecycle(file.path))]
    if not rest:
        return left.head
    message = f"{phase.read.title or f'Phase {phase.read.phase}'}\n"
    return world.worktrees.commit_leftovers(path, rest, message=message, identity=AGENT, when=world.git_date())


def _beginnings(path: Path, left: WorktreeState) -> dict[str, str]:
    """The first lines of every file that would be added: secrets stand there."""
    texts = {}
    for file in left.untracked:
        place = path / file.path
        if place.is_file() and not place.is_symlink():
            with place.open("rb") as stream:
                texts[file.path] = stream.read(BEGINNING).decode("utf-8", "replace")
    return texts


def _permit(phase: PhaseRun, world: World) -> tamper.Permit:
    own = (world.plan, world.report, "runplan.toml", "config/runplan.toml")
    return tamper.Permit(text=phase.read.text, touches=phase.read.touches, bookkeeping=own)


def _foreign(changes: tuple[Change, ...], world: World, head: str) -> WorkRefused | None:
    """A repository inside the work would land as a mere name of a commit that is nowhere, and its content be lost."""
    modules = _text(world, head, ".gitmodules") or ""
    for change in changes:
        if change.new_mode == GITLINK != change.old_mode and f"path = {change.path}\n" not in f"{modules}\n":
            return WorkRefused(reason=Reason.TAMPERED, detail=f"{change.path} is a git repository of its own")
    return None


def _changed(phase: PhaseRun, world: World, head: str, change: Change) -> tamper.FileChange:
    inside = tamper.wants_text(change.path)
    return tamper.FileChange(
        path=change.path,
        before=_text(world, phase.base, change.path) if inside else None,
        after=_text(world, head, change.path) if inside else None,
        deleted=change.kind == "D",
        added=change.kind == "A",
    )


def _refusal(found: tuple[tamper.Tampering, ...]) -> WorkRefused | None:
    if not found:
        return None
    scope = all(one.reason is Reason.OUT_OF_SCOPE for one in found)
    named = "; ".join(str(one) for one in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return WorkRefused(reason=Reason.OUT_OF_SCOPE if scope else Reason.TAMPERED, detail=named + more)


def _text(world: World, commit: str, path: str) -> str | None:
    content = world.objects.blob(commit, path)
    return None if content is None else content.decode("utf-8", "replace")
