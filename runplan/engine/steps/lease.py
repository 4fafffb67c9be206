"""The branch of an attempt: where it begins, the work of an earlier attempt, and the user's own branches."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from runplan.adapters.git.command import Git
from runplan.adapters.git.handover import AgentZone
from runplan.adapters.git.objects import KEEPER
from runplan.adapters.git.repository import is_users_own
from runplan.domain.errors import ObjectsRefused, RefusedEarly
from runplan.domain.gitfacts import Kept, Oid
from runplan.domain.names import HEADS, wip_ref
from runplan.domain.run import events as e
from runplan.domain.run.actions import RebuildBranch
from runplan.domain.run.attempt_parts import HostChanged
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.dispatch import GRACE_S
from runplan.domain.run.kinds import Beginning, Reason
from runplan.domain.run.reasons import beginning_after
from runplan.domain.run.recorded import Recorded
from runplan.domain.run.state import RunState
from runplan.domain.text import command
from runplan.engine.landing.direct import RemoteLander
from runplan.engine.landing.pull_request import PullRequestLander
from runplan.engine.steps.context import RunContext
from runplan.engine.steps.outcome import record_ended


def lease(state: RunState, context: RunContext) -> e.Event:
    phase = state.work
    branch = context.branch(phase.chosen.phase)
    tip = phase.chosen.tip
    earlier = context.store.count_leases(context.plan, branch)
    leased = e.Leased(
        phase=phase.chosen.phase, branch=branch, base=tip, base_tree="", worktree=context.zone.name, attempt=earlier + 1
    )
    if phase.lands_itself:  # the work is done elsewhere; only the worktree of the checks is used
        base = context.find_plan_base(phase) if isinstance(phase.chosen, e.SubplanChosen) else tip
        return replace(leased, base=base, base_tree=context.objects.commit(base).tree)
    if isinstance(phase.chosen, e.PhaseChosen) and phase.chosen.drift:
        return e.WorkRefused(reason=Reason.DRIFT, detail=phase.chosen.drift)
    if isinstance(phase.chosen, e.PhaseChosen) and phase.chosen.direct and context.direct is None:
        detail = "the phase says `Execution: direct`, but the run lands by pr or the target is protected"
        return e.WorkRefused(reason=Reason.BLOCKED, detail=detail)
    if refusal := describe_refusal(context.workspace.user, branch, tip, known=bool(earlier)):
        return e.WorkRefused(reason=Reason.BLOCKED, detail=refusal)
    context.removal.remove_stale_locks([branch])  # a killed git may have left a lock
    failures = context.failures(phase.chosen.phase)
    kept: e.KeptWork | None = None
    if failures and not state.options.anew and isinstance(phase.chosen, e.PhaseChosen):
        last, ref = _publish_kept_work(failures, state, context, branch)
        kept = _read_kept_work(last, ref, state, context)
    parked = ""
    base = kept.base if kept else phase.chosen.base or tip
    if kept is not None:
        context.workspace.fetch(kept.head, without=[tip])
    elif context.objects.tip(branch) not in (None, base) or context.workspace.user.tip(branch) is not None:
        answer = context.removal.remove_ref(branch)  # the work of an earlier attempt goes to a parked ref
        if isinstance(answer, Kept):
            raise RefusedEarly(f"the branch {branch.removeprefix('refs/heads/')} cannot be restarted: {answer.why}")
        parked = answer.parked
    judged = tip if kept and not _has_landed(context, phase.chosen.phase, base) else base  # the commit of the baseline
    context.zone.lease(branch=branch, base=kept.head if kept else base, onto=tip, pin=context.mark)
    return replace(leased, base=base, base_tree=context.objects.commit(judged).tree, parked=parked, kept=kept)


def _publish_kept_work(
    failures: Sequence[Recorded[e.PhaseFailed]], state: RunState, context: RunContext, branch: str
) -> tuple[Recorded[e.PhaseFailed], str]:
    """Bring the last work to a branch of the user: from a lane, another host or `tool.git`. Its failure and its ref."""
    kept = [fact for fact in failures if fact.event.branch] or list(failures[-1:])
    while len(kept) > 1 and not kept[-1].event.tree and kept[-1].event.head == kept[-2].event.head:
        kept.pop()  # an attempt without any says nothing about it
    last = kept[-1]
    failure = last.event
    ref = f"{HEADS}{failure.branch}" if failure.branch else branch
    leases = {lease.event.worktree: lease.event for lease in context.store.list_facts(e.Leased, plan=context.plan)}
    # Also where `tool.git` was lost, the lane has the agent's commits, unless another phase has used it since.
    lanes = [lease.worktree for lease in leases.values() if lease.phase == state.work.chosen.phase]
    for lane in lanes if failures[-1].event.reason == Reason.CRASHED else ():
        with suppress(ObjectsRefused):
            AgentZone(context.zones, lane).hand_over(branch=branch, base=state.work.chosen.tip, copies=context.personal)
    if state.host and failure.head and context.workspace.user.tip(ref) != failure.head:  # of another host
        pushed = remote_lander(context).fetch_work(wip_ref(branch), context.objects)
        context.objects.update_refs(*([f"update {branch} {pushed}"] if pushed == failure.head else []))
    unpublished = context.objects.tip(branch)  # where runplan crashed before it published the work
    if unpublished is not None and not context.objects.is_ancestor(unpublished, state.work.chosen.tip):
        ref = context.workspace.publish(branch, newer_than=(ref, failure.head))
    return last, ref


def _read_kept_work(last: Recorded[e.PhaseFailed], ref: str, state: RunState, context: RunContext) -> e.KeptWork | None:
    """The work of the failure, as it is on the user's branch now; None to begin without it."""
    phase = state.work
    failure = last.event
    head = context.workspace.user.tip(ref)
    if failure.reason == Reason.CONFLICT and failure.parked and head in (None, failure.head):
        ref = failure.parked
        head = context.workspace.user.tip(failure.parked)  # without what the fixer tried
        failure = replace(failure, head=head or "")
    base = context.objects.run("merge-base", phase.chosen.tip, head, ok=(0, 1)).text if head else ""
    before = context.objects.tip(failure.base) if base and failure.base else None
    # The recorded base may be of another phase, which has not landed as it was then.
    if head and before and all(context.objects.is_ancestor(*pair) for pair in ((base, before), (before, head))):
        base = before
    if not head or not base or context.objects.commit(head).tree == context.objects.commit(base).tree:
        return None
    readings = context.store.list_facts(e.PhaseChosen, plan=context.plan)
    of_phase = (fact for fact in readings if fact.event.phase == phase.chosen.phase and fact.seq < last.seq)
    texts = [fact.event.text for fact in of_phase]  # before that failure
    is_changed = head != failure.head or (bool(texts) and texts[-1] != phase.chosen.text)
    beginning = beginning_after(failure, is_changed=is_changed, has_fixers=state.options.kept.run.max_fix_cycles > 0)
    if beginning is Beginning.CONTINUE and not _has_landed(context, phase.chosen.phase, base):
        beginning = Beginning.ANEW
    if beginning is Beginning.ANEW:
        return None
    return e.KeptWork(
        ref=ref,
        head=head,
        tree=context.objects.commit(head).tree,
        base=base,
        beginning=beginning,
        complaint=failure.detail,
        failed=failure.failed,
        red=failure.red,
        authors=failure.authors,
    )


def _has_landed(context: RunContext, phase: str, base: str) -> bool:
    """Whether the base of the phase's work is on the target: not so if it is of a phase that landed otherwise."""
    readings = context.store.list_facts(e.PhaseChosen, plan=context.plan)
    is_ahead = any(fact.event.phase == phase and fact.event.base == base for fact in readings)
    landings = context.store.list_facts(e.Landed, plan=context.plan) if is_ahead else []
    return not is_ahead or any(fact.event.code == base for fact in landings)


def describe_refusal(user: Git, branch: str, base: str, *, known: bool) -> str:
    """Why the branch cannot be used: it is the user's own. A branch of an earlier attempt is parked instead."""
    if known or not is_users_own(user, branch, base):  # commits of agents are from a run whose journal was lost
        return ""
    short = branch.removeprefix("refs/heads/")
    rename = command("git", "branch", "-m", short, f"{short}-kept")
    return f"the branch {short} exists, and runplan did not make it; look at it, then: {rename}"


def rebuild_branch(action: RebuildBranch, state: RunState, context: RunContext) -> e.Event:
    phase = state.work
    assert phase.work is not None
    parked = context.workspace.park(phase.work.head, under=phase.leased.branch)
    context.zone.lease(branch=phase.leased.branch, base=action.start, onto=action.onto, pin=context.mark)
    conflict = (
        f"The work does not apply on the target any more. It conflicts in {phase.delivery.conflicting_paths}. "
        f"It is kept at {parked}: bring it onto this branch."
    )
    return e.BranchRebuilt(
        base=action.onto,
        base_tree=context.objects.commit(action.onto).tree,
        parked=parked,
        complaint=action.complaint or conflict,
        tree=action.tree,
        start=action.start,
    )


def remote_lander(context: RunContext) -> RemoteLander:
    assert isinstance(context.lander, RemoteLander)  # hosts share nothing but a remote
    return context.lander


def take_over(state: RunState, context: RunContext) -> Iterator[e.Event]:
    attempt = state.attempt
    tip = context.tip()
    if isinstance(context.lander, PullRequestLander):
        context.lander.target_tip()
    if running := state.running:
        context.dispatches.end([running.id], grace_s=GRACE_S)  # this host may have started it
        yield record_ended(running, context, f"its host {state.home} is gone")
    changed = HostChanged(host=state.host, before=state.home)
    is_over = attempt is not None and (attempt.failure is not None or attempt.delivery.landed is not None)
    has_branch = isinstance(attempt, WorkAttempt) and attempt.lease is not None and not attempt.lands_itself
    anew = replace(changed, is_restarted=True, has_branch=False)
    if is_over or not has_branch:
        is_gone = state.base and not is_over and context.objects.tip(state.base) is None
        yield anew if is_gone else changed
        return
    # The branch gets the newest work on the remote; the event says whether that is all of it.
    phase = state.work
    git = context.objects
    branch = phase.leased.branch
    kept = phase.leased.kept if phase.base == phase.leased.base else None
    first = phase.start or (kept.head if kept else phase.base)
    # Before the first push of this attempt, the remote may have work of an earlier one.
    newest = remote_lander(context).fetch_work(wip_ref(branch), git) if phase.pushing.head else None
    left = ""
    if newest and git.commit(newest).author == KEEPER.author:  # uncommitted files
        newest, left = git.commit(newest).parents[0], newest
    if git.tip(phase.base) is None or git.tip(first) is None:
        yield anew
        return
    if not newest or not git.is_ancestor(first, newest):  # or it is the work before a conflict
        _park(newest, context, branch, unless=first)
        newest, left = first, ""
    _park(git.tip(branch), context, branch, unless=newest)  # this host may have worked on it before
    is_behind = phase.pushing.is_behind
    if phase.work is not None:
        is_behind = git.tip(phase.work.head) is None or not git.is_ancestor(phase.work.head, newest)
    if is_behind and kept is not None:
        yield anew
        return
    context.zone.lease(branch=branch, base=newest, onto=tip, pin=context.mark, left=left)
    yield replace(changed, is_restarted=is_behind)


def _park(oid: Oid | None, context: RunContext, branch: str, *, unless: Oid) -> None:
    if oid and not context.objects.is_ancestor(oid, unless):
        context.workspace.park(oid, under=branch)
