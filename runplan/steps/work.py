"""Prepares the branch of a phase in the run's worktree, and takes over the agent's work."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.checks import tamper
from runplan.checks.lineage import off_base
from runplan.checks.secrets import redacted
from runplan.checks.tamper import FileChange, leaks
from runplan.errors import ObjectsRefused, RefusedEarly
from runplan.git.objects import Signature
from runplan.git.removal import Kept
from runplan.gitfacts import AGENT, signing
from runplan.plan.body import QUOTED
from runplan.run.events import BranchRebuilt, Leased, WorkRefused, WorkTaken
from runplan.run.reasons import Reason, conflicting, unsolved
from runplan.settings.schema import FILES
from runplan.steps.context import phase_of
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runplan.checks.tamper import Permit, Tampering
    from runplan.git.worktrees import BranchStanding, WorktreeState
    from runplan.gitfacts import Change
    from runplan.run.actions import Action, RebuildBranch
    from runplan.run.events import Event
    from runplan.run.state import PhaseRun, RunState
    from runplan.steps.context import RunContext


def lease(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    if phase.read.drift:
        yield WorkRefused(reason=Reason.DRIFT, detail=phase.read.drift)
        return
    branch, base = context.branch(phase.read.phase), phase.read.tip
    earlier = context.store.leases(context.plan, branch)
    refusal = refused(context.worktrees.standing, branch, base, known=bool(earlier))
    if refusal:
        yield WorkRefused(reason=Reason.BLOCKED, detail=refusal)
        return
    context.removal.remove_stale_locks([branch])  # a killed git may have left a lock
    parked = _park(context, branch, base)
    run = context.settings.run
    # A run that died while it leased has left a worktree in which run.setup has not run.
    fresh = run.clean == "ignored" or not state.leased or not context.worktrees.path(context.worktree).exists()
    path = context.lease(branch, base, is_tidy=state.tidy)
    context.worktrees.copy(path, run.copy, context.root)
    yield Leased(
        phase=phase.read.phase,
        branch=branch,
        base=base,
        base_tree=context.objects.commit(base).tree,
        worktree=context.worktree,
        attempt=earlier + 1,
        fresh=fresh,
        parked=parked,
    )


def refused(standing: Callable[[str, str], BranchStanding], branch: str, base: str, *, known: bool) -> str:
    """Why the branch cannot be used: it is the user's own. A branch of an earlier attempt is parked instead."""
    if known:
        return ""
    found, short = standing(branch, base), branch.removeprefix("refs/heads/")
    behind, foreign = found.behind and not found.ahead, found.ahead and not found.by_agents
    if not (behind or foreign):  # commits of agents are from a run whose journal was lost
        return ""
    rename = command("git", "branch", "-m", short, f"{short}-kept")
    return f"the branch {short} exists, and runplan did not make it; look at it, then: {rename}"


def _park(context: RunContext, branch: str, base: str) -> str:
    """Move the work of an earlier attempt from the branch to a parked ref."""
    if context.worktrees.tip(branch) in (None, base) and not context.worktrees.published(branch):
        return ""
    answer = context.removal.ref(branch)
    if isinstance(answer, Kept):
        raise RefusedEarly(f"the branch {branch.removeprefix('refs/heads/')} cannot be restarted: {answer.why}")
    return answer.parked


def rebuild_branch(action: RebuildBranch, state: RunState, context: RunContext) -> Iterator[Event]:
    """Restart the branch on the target's tip; its former commits stay under a parked ref."""
    phase = phase_of(state)
    assert phase.lease is not None
    parked = _park(context, phase.lease.branch, action.start)
    context.lease(phase.lease.branch, action.start, onto=action.onto)
    where = f" It conflicts in {conflicting(phase)}." if phase.conflict else ""
    conflict = (
        f"The work does not apply on the target any more.{where} It is kept at {parked}: bring it onto this branch."
    )
    yield BranchRebuilt(
        base=action.onto,
        base_tree=context.objects.commit(action.onto).tree,
        parked=parked,
        complaint=action.complaint or conflict,
        tree=action.tree,
    )


SCANNED = 1_000_000  #: bytes of a committed file that are scanned for secrets
BEGINNING = 8192  #: bytes of an untracked file that are read; git calls a file with a NUL in them binary
NAMED = 8  #: paths named in one sentence
GITLINK = "160000"  #: the mode of a repository inside a tree


def take_work(action: Action, state: RunState, context: RunContext) -> Iterator[Event]:  # noqa: ARG001
    phase = phase_of(state)
    assert phase.lease is not None
    head = commit_leftovers(phase, context, message=f"{phase.read.title or f'Phase {phase.read.phase}'}\n")
    if isinstance(head, WorkRefused):
        yield head
        return
    lineage = context.candidates.lineage(phase.base, head, run=context.mark)
    if why := off_base(lineage, branch=phase.lease.branch, base=phase.base):
        yield WorkRefused(reason=Reason.OFF_BASE, detail=why)
        return
    changes = context.candidates.changes(phase.base, head)
    refusal = (
        _conflict_markers(phase, context, head)
        or _nested_repository(changes, context, head)
        or refusal_of(_tampered(phase, context, head, changes))
    )
    if refusal is not None:
        yield refusal
        return
    commits = context.candidates.commits(phase.base, head)
    yield WorkTaken(
        head=head,
        tree=context.objects.commit(head).tree,
        commits=0 if not changes else len(commits) if commits else 1,
        files=tuple(change.path for change in changes),
    )


def commit_leftovers(phase: PhaseRun, context: RunContext, *, message: str) -> str | WorkRefused:
    """Commit everything that the agent left; the newest commit. Nothing is committed if any file is refused."""
    assert phase.lease is not None
    assert phase.ended is not None
    path = context.worktrees.path(phase.lease.worktree)
    try:
        tip = context.worktrees.take(phase.lease.worktree, branch=phase.lease.branch, base=phase.base)
    except ObjectsRefused as error:
        return WorkRefused(reason=Reason.TAMPERED, detail=redacted(str(error)))
    if not path.is_dir() or not any(path.iterdir()):  # the agent deleted its worktree; its commits are on the branch
        return tip
    left = without_copies(context.worktrees.state(path), context.settings.run.copy)
    if nested := [file.path for file in left.untracked if file.path.endswith("/")]:
        return WorkRefused(reason=Reason.TAMPERED, detail=f"{nested[0]} is a git repository of its own")
    found = tamper.unwanted(left.untracked, permit_of(phase, context), texts=_beginnings(path, left))
    if (refusal := refusal_of(found)) is not None:
        return refusal
    rest = [*left.changed, *(file.path for file in left.untracked if not tamper.is_lifecycle(file.path))]
    if not rest:
        return left.head
    by = Signature(author=AGENT, committer=signing(phase.ended.id), when=context.git_date())
    try:
        return context.worktrees.commit_leftovers(path, rest, branch=phase.lease.branch, message=message, by=by)
    except ObjectsRefused as error:
        reason = Reason.BLOCKED if "clean filter" in str(error) else Reason.TAMPERED
        return WorkRefused(reason=reason, detail=redacted(str(error)))


def without_copies(left: WorktreeState, copies: tuple[str, ...]) -> WorktreeState:
    """The state without the files of run.copy, which are runplan's own."""
    return replace(left, untracked=tuple(file for file in left.untracked if file.path not in copies))


def _beginnings(path: Path, left: WorktreeState) -> dict[str, str]:
    """The first bytes of every untracked file, to look for secrets."""
    texts = {}
    for file in left.untracked:
        place = path / file.path
        if place.is_file() and not place.is_symlink():
            with place.open("rb") as stream:
                texts[file.path] = stream.read(BEGINNING).decode("utf-8", "replace")
    return texts


def permit_of(phase: PhaseRun, context: RunContext) -> Permit:
    written = context.bookkeeping
    read = phase.read
    # An issue, a review or the log of a check may name a file, and permits nothing by that.
    lines = [] if read.choice == "repair" else read.text.splitlines(keepends=True)
    own = "".join(line for line in lines if not line.startswith(QUOTED))
    return tamper.Permit(
        text=own, touches=read.touches, allows=read.allows, bookkeeping=(*written, *FILES), written=written
    )


def refusal_of(found: tuple[Tampering, ...]) -> WorkRefused | None:
    """All findings as one refusal that names the first few; None for no findings."""
    if not found:
        return None
    scope = all(one.reason is Reason.OUT_OF_SCOPE for one in found)
    named = "; ".join(str(one) for one in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return WorkRefused(
        reason=Reason.OUT_OF_SCOPE if scope else Reason.TAMPERED, detail=named + more + tamper.remedy(found)
    )


def _conflict_markers(phase: PhaseRun, context: RunContext, head: str) -> WorkRefused | None:
    """A file that still has the conflict markers that the fixer had to resolve."""

    def has_markers(commit: str, path: str) -> bool:
        lines = (_file_text(context, commit, path) or "").splitlines()
        return all(any(line.startswith(mark) for line in lines) for mark in ("<<<<<<< ", ">>>>>>> "))

    for path in phase.unsolved.paths if phase.unsolved else ():
        if has_markers(head, path) and not has_markers(phase.base, path):
            return WorkRefused(reason=Reason.CONFLICT, detail=unsolved(phase, f"it left conflict markers in {path}"))
    return None


def _nested_repository(changes: tuple[Change, ...], context: RunContext, head: str) -> WorkRefused | None:
    """A nested repository would land as a bare commit id, and its content would be lost."""
    modules = _file_text(context, head, ".gitmodules") or ""
    for change in changes:
        if change.new_mode == GITLINK != change.old_mode and f"path = {change.path}\n" not in f"{modules}\n":
            return WorkRefused(reason=Reason.TAMPERED, detail=f"{change.path} is a git repository of its own")
    return None


def _tampered(
    phase: PhaseRun, context: RunContext, head: str, changes: tuple[Change, ...]
) -> tuple[tamper.Tampering, ...]:
    permit = permit_of(phase, context)

    def before(path: str) -> str | None:
        return _file_text(context, phase.base, path)

    def after(path: str) -> str | None:
        return _file_text(context, head, path)

    files = [
        tamper.FileChange(
            path=change.path,
            before=before(change.path) if tamper.wants_text(change.path) else None,
            after=after(change.path) if tamper.wants_text(change.path) else None,
            deleted=change.kind == "D",
            added=change.kind == "A",
        )
        for change in changes
    ]
    command = tamper.examine_command(context.settings.tests.command, permit, before=before, after=after)
    return (*tamper.examine(files, permit), *command, *_leaked(phase, context, head, permit))


def _leaked(phase: PhaseRun, context: RunContext, head: str, permit: Permit) -> tuple[Tampering, ...]:
    """Secrets in any commit of the phase: one that is added and removed again would land in the history."""
    commits = None if phase.handovers else context.candidates.commits(phase.base, head)
    steps = [phase.base, *(commit.oid for commit in commits)] if commits else [phase.base, head]
    changes = {
        (change.path, change.new): change
        for old, new in pairwise(steps)
        for change in context.candidates.changes(old, new)
    }
    # The first change of a path starts from its content before the phase.
    before = {change.path: _text(context, change.old) for change in reversed(changes.values())}
    files = [
        FileChange(path=path, before=before[path], after=_text(context, change.new), added=change.kind == "A")
        for (path, _), change in changes.items()
    ]
    # After a hand-over the work lands as one commit, under the title of the phase.
    messages = [] if phase.handovers else [one.message for one in commits or (context.objects.commit(head),)]
    return leaks(files, messages, permit)


def _text(context: RunContext, oid: str) -> str:
    found = context.objects.object(oid, most=SCANNED)
    content = found.content if found and found.kind == "blob" else b""
    return "" if b"\0" in content[:BEGINNING] else content.decode("utf-8", "replace")


def _file_text(context: RunContext, commit: str, path: str) -> str | None:
    content = context.objects.blob(commit, path)
    return None if content is None else content.decode("utf-8", "replace")
