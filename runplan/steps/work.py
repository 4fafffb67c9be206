"""Takes over an agent's work: commits what is left by name, and checks every changed path."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.checks import tamper
from runplan.checks.lineage import off_base
from runplan.checks.secrets import redacted
from runplan.checks.tamper import Written, leaks
from runplan.errors import ObjectsRefused
from runplan.git.lane import Unstored
from runplan.gitfacts import AGENT, signing
from runplan.run.events import WorkRefused, WorkTaken
from runplan.run.reasons import Reason, unsolved
from runplan.settings.schema import FILES
from runplan.steps.context import phase_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.checks.tamper import Permit, Tampering
    from runplan.gitfacts import Change, WorktreeState
    from runplan.run.actions import TakeWork
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext


LOOKED_AT = 1_000_000  #: bytes of a file
_BINARY = 8000  #: git, too, calls a file binary that has a NUL within as many bytes


def leaked(phase: PhaseRun, world: RunContext, head: str, permit: Permit) -> tuple[Tampering, ...]:
    """The secrets that the work brings: what one commit adds and the next takes away would land as well."""
    line = None if phase.handovers else world.candidates.commits(phase.base, head)
    steps = [phase.base, *(commit.oid for commit in line)] if line else [phase.base, head]
    changes = {
        (change.path, change.new): change
        for old, new in pairwise(steps)
        for change in world.candidates.changes(old, new)
    }
    # The first change of a path starts from what was there before the phase.
    before = {change.path: _text(world, change.old) for change in reversed(changes.values())}
    files = [
        Written(
            path=path,
            before=before[path],
            after=_text(world, change.new),
            added=change.kind == "A",
        )
        for (path, _), change in changes.items()
    ]
    # What was handed over lands as one commit, under the title of the phase.
    messages = [] if phase.handovers else [one.message for one in line or (world.objects.commit(head),)]
    return leaks(files, messages, permit)


def _text(world: RunContext, oid: str) -> str:
    content = world.objects.beginning(oid, LOOKED_AT)
    return "" if b"\0" in content[:_BINARY] else content.decode("utf-8", "replace")


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
        if _has_markers(_file_text(world, head, path)) and not _has_markers(_file_text(world, phase.base, path)):
            return WorkRefused(reason=Reason.CONFLICT, detail=unsolved(phase, f"it left conflict markers in {path}"))
    return None


def _has_markers(text: str | None) -> bool:
    lines = (text or "").splitlines()
    return all(any(line.startswith(mark) for line in lines) for mark in ("<<<<<<< ", ">>>>>>> "))


def _foreign(changes: tuple[Change, ...], world: RunContext, head: str) -> WorkRefused | None:
    """A repository inside the work would land as a mere name of a commit that is nowhere, and its content be lost."""
    modules = _file_text(world, head, ".gitmodules") or ""
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
        before=lambda path: _file_text(world, phase.base, path),
        after=lambda path: _file_text(world, head, path),
    )
    return refusal_of((*found, *command, *leaked(phase, world, head, permit)))


def _changed(phase: PhaseRun, world: RunContext, head: str, change: Change) -> tamper.FileChange:
    inside = tamper.wants_text(change.path)
    return tamper.FileChange(
        path=change.path,
        before=_file_text(world, phase.base, change.path) if inside else None,
        after=_file_text(world, head, change.path) if inside else None,
        deleted=change.kind == "D",
        added=change.kind == "A",
    )


def _file_text(world: RunContext, commit: str, path: str) -> str | None:
    content = world.objects.blob(commit, path)
    return None if content is None else content.decode("utf-8", "replace")
