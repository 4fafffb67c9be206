"""What an undo would take back, and all that speaks against it; asked at the door, and again when it is built."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan import names
from runplan.errors import PlanUnreadable
from runplan.git.trailers import LANDING, Unclear, Undoable, newest_landing, read_trailers
from runplan.plan import model as plans
from runplan.run.events import WorkRefused
from runplan.run.reasons import Reason
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.git.candidate import Candidates
    from runplan.git.command import Git
    from runplan.gitfacts import Oid
    from runplan.plan.model import Phase, Plan


class Undoing(Struct, frozen=True, kw_only=True):
    """A landing that can be taken back."""

    landing: str
    code: tuple[Oid, ...]  #: newest first, the commits that change more than plan and report
    without: tuple[str, ...]  #: plan and report, which are written anew and never reverted


class Standing(Struct, frozen=True, kw_only=True):
    """No landing that can be taken back, and why."""

    why: str


class _Look(Struct, frozen=True, kw_only=True):
    """One landing of one phase, with what it takes to look into it."""

    objects: Git
    candidates: Candidates
    plan: str
    row: Phase
    found: Undoable

    def changed(self, oid: Oid) -> tuple[str, ...]:
        parent = self.objects.commit(oid).parents[0]
        return tuple(change.path for change in self.candidates.changes(parent, oid))


def landing_to_undo(
    tip: Oid, plan: Plan, row: Phase, *, target: str, objects: Git, candidates: Candidates
) -> Undoing | Standing:
    """The phase's newest landing on `tip`, or why it cannot be taken back."""
    found = newest_landing(candidates.marked(tip), plan=plan.path, phase=row.id)
    if found is None:
        by_hand = command("git", "revert", row.commit) if row.commit else "by hand"
        return Standing(
            why=f"no commit on {target} says that it landed phase {row.id} of {plan.path} (Runplan-Phase); "
            f"take its commits back yourself ({by_hand}), and set its row to todo"
        )
    if isinstance(found, Unclear):
        return Standing(why=f"the commit {found.commit[:12]} {found.why}; {_by_hand(found.commit)}")
    look = _Look(objects=objects, candidates=candidates, plan=plan.path, row=row, found=found)
    why = _incomplete(look) or _of_other_rows(look) or _not_of_this_row(look)
    if why:
        return Standing(why=why)
    without = tuple(sorted(_bookkeeping(look, found.commits)))
    code = tuple(oid for oid in found.commits if set(look.changed(oid)) - set(without))
    why = _rewritten(look, code, without)
    return Standing(why=why) if why else Undoing(landing=found.landing, code=code, without=without)


def taken_back_meanwhile(phase: str) -> WorkRefused:
    """Two undid one phase, and this one came second."""
    return WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail=f"phase {phase} was taken back on the target meanwhile")


def _by_hand(oid: Oid) -> str:
    return f"look at it ({command('git', 'show', oid[:12])}), take the phase back yourself, and set its row to todo"


def _incomplete(look: _Look) -> str:
    for oid in look.found.commits:
        parents = look.objects.commit(oid).parents
        if len(parents) != 1:
            return f"the commit {oid[:12]} is a {'merge' if parents else 'first commit'}; {_by_hand(oid)}"
        if look.objects.tip(parents[0]) is None:
            return (
                f"what was before {oid[:12]} is not here, because this clone is shallow; "
                f"first run: {command('git', 'fetch', '--deepen=100')}"
            )
    return ""


def _of_other_rows(look: _Look) -> str:
    """A commit that sets rows of other phases holds their work, whatever its message says."""
    for oid in look.found.commits:
        before = _rows(look, look.objects.commit(oid).parents[0])
        after = _rows(look, oid)
        others = [id_ for id_, row in after.items() if id_ in before and before[id_] != row and id_ != look.row.id]
        if others:
            return f"the commit {oid[:12]} sets the rows of {', '.join(others)}, too; {_by_hand(oid)}"
    return ""


def _rows(look: _Look, oid: Oid) -> dict[str, tuple[str, str]]:
    """Status and commit of each phase, as the plan had them in that commit."""
    text = look.objects.blob(oid, look.plan)
    try:
        phases = plans.parse(text, path=look.plan).phases if text is not None else ()
    except PlanUnreadable:
        return {}
    return {phase.id: (str(phase.status), phase.commit) for phase in phases}


def _not_of_this_row(look: _Look) -> str:
    """The row and the landing must speak of each other: another plan may have stood at this path."""
    row, found = look.row, look.found
    last = found.commits[1:2] or found.commits  # below the bookkeeping
    shorts = ", ".join(oid[:7] for oid in found.commits)
    if not row.commit:
        return (
            f"the row of phase {row.id} in {look.plan} names no commit, so {shorts} may be another phase's work; "
            f"if they are this one's, write {last[0][:7]} into it and commit that"
        )
    if any(oid.startswith(row.commit) for oid in found.commits):
        return ""
    # A rebase gives the commits new names; the row that its bookkeeping wrote came along as it was.
    if any(_rows(look, oid).get(row.id) == (str(row.status), row.commit) for oid in found.commits):
        return ""
    return (
        f"the row of phase {row.id} in {look.plan} names {row.commit}, but what landed as this phase is {shorts}; "
        f"if it is the same work, write {last[0][:7]} into the row and commit that"
    )


def _bookkeeping(look: _Look, commits: Iterable[Oid]) -> set[str]:
    """The plan, and its report by whatever name and wherever it was when this landed."""
    report = re.compile(rf"(?:.*/)?plan-{re.escape(names.slug(look.plan))}(?:-[0-9a-f]{{8}})?\.md")
    beside = (paths for oid in commits if look.plan in (paths := look.changed(oid)))
    return {look.plan, *(path for paths in beside for path in paths if report.fullmatch(path))}


def _rewritten(look: _Look, code: tuple[Oid, ...], without: tuple[str, ...]) -> str:
    """Commits that were made anew may hold more or less than what landed; the old ones tell, while git has them."""
    if not code:
        return (
            f"no commit of the landing of phase {look.row.id} changes any code, so its work is somewhere else; "
            f"look for it ({command('git', 'log', '--stat', look.found.commits[0][:12])}), take it back yourself, "
            "and set its row to todo"
        )
    at = look.objects.tip(look.row.commit)
    if at is None or any(oid.startswith(look.row.commit) for oid in look.found.commits):
        return ""
    landed: set[str] = set()
    while read_trailers((commit := look.objects.commit(at)).message).get(LANDING) == look.found.landing:
        landed |= set(look.changed(at))
        at = commit.parents[0]
        if look.objects.tip(at) is None:
            return ""
    now = {path for oid in code for path in look.changed(oid)}
    if not landed or not (differing := sorted((landed ^ now) - set(without))):
        return ""
    return (
        f"the commits of phase {look.row.id} were made anew and differ in {', '.join(differing)}; {_by_hand(code[0])}"
    )
