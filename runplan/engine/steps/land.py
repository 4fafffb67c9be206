"""Builds the candidate, or the revert of a landed phase, and lands it: intent, compare-and-swap, observed."""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.forge.protocol import PullRequest
from runplan.adapters.git.command import Git
from runplan.adapters.git.objects import Built, Candidates, Conflicted, NothingLeft, Replayed, Signature, find
from runplan.adapters.git.repository import Repository
from runplan.adapters.store.claims import landing_lock
from runplan.domain import gitfacts as g
from runplan.domain.errors import RefusedEarly
from runplan.domain.names import REQUIRES, is_below, report_path, slug as plan_slug, split_files
from runplan.domain.plan import tracker
from runplan.domain.plan.model import Phase, Plan, Status
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import LandingRefused, PlanningChosen
from runplan.domain.run.attempts import Attempt, PlanningAttempt, WorkAttempt
from runplan.domain.run.kinds import Mode, Reason, WaitKind
from runplan.domain.run.state import RunState
from runplan.domain.text import bounded, command, inert
from runplan.domain.times import FIRST_PARENT_S, delay_s, iso, parse_iso
from runplan.engine.landing import modes
from runplan.engine.landing.lander import Failed, Landed, Pending, TargetMoved
from runplan.engine.landing.pull_request import PullRequestLander
from runplan.engine.landing.stack import TOP
from runplan.engine.report import sections, text as report
from runplan.engine.steps.context import RunContext
from runplan.engine.steps.planning import landed_files
from runplan.engine.steps.proof import list_unproven, plan_proofs
from runplan.engine.steps.verify import correct_plan

Files: TypeAlias = dict[str, bytes]
RECENT = timedelta(days=2)  #: older landings of ours do not explain a moved target


def build_candidate(state: RunState, context: RunContext) -> e.Event:
    phase = state.work
    assert phase.work is not None
    if context.objects.tip(phase.work.head) is None:
        detail = f"the commits of {phase.work.head[:12]} are gone from git"
        return e.WorkRefused(reason=Reason.NO_COMMITS, detail=detail)
    onto = context.tip()
    is_shared = context.settings.run.concludes and phase.chosen.phase  # a run of another repository may land it, too
    row = context.plan_at(onto)[0].phase(phase.chosen.phase) if is_shared else None
    if row is not None and row.status is Status.DONE:
        listed = context.objects.text("rev-list", "--first-parent", onto, f"^{phase.base}", "--").split()
        landed = (g.read_trailers(context.objects.commit(oid).message) for oid in listed)
        runs = (values.get(g.RUN, "") for values in landed if values.get(g.PHASE) == row.id)
        ours = {"", *(run.id for run in context.store.list_runs(context.plan))}
        if other := next((run for run in runs if run not in ours), ""):
            here = command("runplan", "start", context.plan, "finish", "auto", "pr")
            detail = (
                f"run {other} of another repository landed phase {phase.chosen.phase} meanwhile; this run stands back"
            )
            detail = f"{detail}; to continue here when that one has ended: {here}"
            return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail=detail, other_run=other)
    co_author = context.settings.run.co_author
    trailers = (*([("Co-authored-by", co_author)] if co_author else []), *trailers_of(context, state))
    by = context.signature()
    is_merge = isinstance(phase.chosen, e.MergeChosen)
    if is_merge and onto != phase.chosen.tip:
        return record_move(context, phase.chosen.tip, onto)

    def rewrite(commit: g.Commit) -> tuple[str, Signature]:
        author = commit.author if context.settings.run.author == "agent" else context.user
        title = phase.chosen.title or f"Phase {phase.chosen.phase}"
        message = inert(title if phase.squash else commit.message).strip() or inert(title)
        return g.add_trailers(message, trailers), replace(by, author=author, authored=commit.authored)

    if is_merge:
        message = g.add_trailers(f"{phase.chosen.title}\n", trailers)
        replayed = context.candidates.whole(phase.work.tree, onto=onto, message=message, by=by)
        if isinstance(replayed, NothingLeft):  # only the history lacks it
            replayed = Built(commits=(onto,), tree=phase.work.tree, patch="")
    else:
        base, head = phase.base, phase.work.head
        replayed = context.candidates.replay(base=base, head=head, onto=onto, rewrite=rewrite, whole=phase.squash)
    built = _record_candidate(replayed, onto, context)
    if isinstance(built, e.CandidateBuilt):
        built = replace(built, change=context.candidates.change_id(built.onto, built.commits[-1]))
        built = replace(built, rejected=find_rejection(built, context))
        built = built if is_merge else plan_proofs(built, context)
    return built


def find_rejection(built: e.CandidateBuilt, context: RunContext) -> str:
    """Who rejected this change before, in any plan and on any base; "" if the newest answer to it is none."""
    answers = reversed(context.store.list_facts(e.Answered, naming=(built.tree, built.change)))
    same = (fact for fact in answers if fact.event.tree == built.tree or fact.event.change == built.change)
    newest = next(same, None)
    if newest is None or newest.event.approved:
        return ""
    run = context.store.get_run(newest.run)
    of_other = f" in {run.plan}" if run is not None and run.plan != context.plan else ""
    by = f" by {newest.event.by}" if newest.event.by else ""
    why = f": {newest.event.why}" if newest.event.why else ""
    return f"a person rejected this very change{of_other} on {parse_iso(newest.at):%Y-%m-%d %H:%M} UTC{by}{why}"


def _record_candidate(replayed: Replayed, onto: str, context: RunContext) -> e.Event:
    match replayed:
        case Built(commits=commits, tree=tree, patch=patch):
            onto_tree = context.objects.commit(onto).tree
            return e.CandidateBuilt(onto=onto, onto_tree=onto_tree, commits=commits, tree=tree, patch=patch)
        case Conflicted(paths=paths):
            return e.CandidateConflicted(onto=onto, paths=paths)
        case NothingLeft():
            return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail="the target already holds every change")
        case unreachable:
            assert_never(unreachable)


def landing_id(context: RunContext, state: RunState) -> str:
    """One per phase of a run, however often its candidate is rebuilt."""
    return f"{context.mark}.{len(state.landed) + 1}"


def trailers_of(context: RunContext, state: RunState) -> tuple[tuple[str, str], ...]:
    attempt = state.current
    undoes = attempt.delivery.candidate.undoes if attempt.delivery.candidate else ""
    return (
        (g.PLAN, context.plan),
        (g.PHASE, "plan" if isinstance(attempt, PlanningAttempt) else attempt.chosen.phase or "complete"),
        (g.RUN, context.run),
        (g.LANDING, landing_id(context, state)),
        *([(g.UNDOES, undoes)] if undoes else []),
        *([("Signed-off-by", f"{context.user.name} <{context.user.email}>")] if context.settings.run.signoff else []),
    )


def write_bookkeeping(state: RunState, context: RunContext, onto: str) -> Files | e.Event:
    """Plan, report and index as they land, made from the texts of `onto`; or what prevents the landing."""
    phase = state.current
    if isinstance(phase, PlanningAttempt):
        return landed_files(phase, context, onto)
    plan, text = context.plan_at(onto)
    row = plan.phase(phase.chosen.phase) if phase.chosen.phase else None
    parts = sections.failure_sections(context.store, context.plan)
    where = {"plan": plan.path, "run": context.run}
    if phase.chosen.phase and row is None:
        raise RefusedEarly(f"{context.plan} has no phase {phase.chosen.phase} any more")
    if row is not None and isinstance(phase.chosen, e.UndoChosen):
        if row.status is not Status.DONE:
            return _undone_meanwhile(row.id)
        text = tracker.set_status(text, path=context.plan, phase=row.id, status=Status.TODO)
        text = tracker.set_completed(text, path=context.plan, completed=None)
        parts.append(sections.undo_section(phase, subjects=_list_subjects(context, phase), **where))
        return _write_files(context, onto, plan.title, text, parts, is_done=False)
    if hindrance := _find_hindrance(state, context, plan, row):
        return hindrance
    if row is not None and isinstance(phase, WorkAttempt):
        commands = {name: check.command for name, check in context.settings.checks.items()}
        if isinstance(phase.chosen, e.SubplanChosen):
            commit = phase.chosen.tip
            newest = context.store.get_newest_run(phase.chosen.subplan)
            slug = newest.slug if newest else plan_slug(phase.chosen.subplan)
            name = PurePosixPath(report_path(context.settings.paths.reports, slug)).name
            section = sections.subplan_section(phase, phase.chosen.subplan, report=name, commands=commands, **where)
        else:
            commit = phase.built.commits[-1]
            text, remarks = correct_plan(text, phase, context)
            answers = context.store.list_facts(e.Answered, plan=context.plan)
            approved = phase.delivery.approved
            section = sections.phase_section(
                phase,
                subjects=_list_subjects(context, phase),
                commands=commands,
                words=[f"{told.by} told the agents: {told.text}" for told in context.list_told(since_landing=True)],
                warnings=(*state.warnings, *phase.warnings, *remarks, *list_unproven(phase, context)),
                approved_at=max((fact.at for fact in answers if approved and fact.event.tree == approved), default=""),
                **where,
            )
        short = commit[: sections.SHORT]
        text = tracker.set_status(text, path=plan.path, phase=row.id, status=Status.DONE, commit=short)
        parts.append(section)
    is_done = tracker.is_complete_with(plan, phase.chosen.phase)
    if is_done:
        text = tracker.set_completed(text, path=context.plan, completed=context.iso())
    return _write_files(context, onto, plan.title, text, parts, is_done=is_done)


def _list_subjects(context: RunContext, phase: Attempt) -> dict[str, str]:
    commits = phase.built.undone or phase.built.commits
    subjects = ((oid, context.objects.commit(oid).message.partition("\n")[0]) for oid in commits)
    return {oid: context.agents.redacted(subject) for oid, subject in subjects}


def _find_hindrance(state: RunState, context: RunContext, plan: Plan, row: Phase | None) -> e.Event | None:
    """An edit of the plan that the landing must not overwrite, or what has to happen before the plan is complete."""
    phase = state.current
    target = context.settings.run.target
    if row is not None and row.status is Status.DONE:
        detail = f"phase {row.id} was marked done on the target meanwhile, so another run has landed it"
        return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail=detail)
    if row is not None and row.text.rstrip() != phase.chosen.text.rstrip():
        why = f"phase {row.id} was reworded on {target} while it was worked on; restore the wording, or drop this work"
        return e.LandingHeld(why=f"{why} and begin again: {command('runplan', 'reject', context.plan)}")
    if row is not None and (waits := tracker.missing_dependencies(plan, row)):
        why = f"phase {row.id} depends on {', '.join(waits)}, which {target} shows as not done; bring it back, or keep"
        return e.LandingHeld(why=f"{why} this work and start again: {command('runplan', 'stop', context.plan)}")
    if not tracker.is_complete_with(plan, phase.chosen.phase):
        return None
    ref = f"{REQUIRES}{context.slug}"
    if context.workspace.user.tip(ref) is not None and not plan.complete:
        until = context.clock.now() + timedelta(seconds=delay_s(state.waits + 1, first_s=FIRST_PARENT_S))
        words = f"a parent holds the end of the plan; to release it: {command('git', 'update-ref', '-d', ref)}"
        return e.Paused(kind=WaitKind.PARENT, until=iso(until), words=words)
    # A repair follows the phases, which were verified together before.
    if not isinstance(phase, WorkAttempt) or phase.is_repair or phase.is_last:
        return None
    if phase.chosen.own.tests and not phase.chosen.ends:  # the other phases were ended meanwhile
        return e.FinalVerificationDue(tree=phase.answerable, is_narrowed=True)
    is_finish = bool(context.lane) or state.options.mode is Mode.FINISH
    is_subplan = isinstance(phase.chosen, e.SubplanChosen)  # its work is not on the branch of a pull request
    if not is_finish or (is_subplan and context.settings.run.concludes):
        return None
    return e.FinalVerificationDue(tree=phase.answerable) if context.find_plan_base(phase) != phase.onto else None


def _write_files(context: RunContext, onto: str, title: str, text: bytes, parts: list[str], *, is_done: bool) -> Files:
    blobs = (context.objects.blob(onto, path) for path in (context.report, context.index))
    plan = split_files(text, context.plan) or {context.plan: text}
    old, listed = (None if blob is None else blob.decode("utf-8", "surrogateescape") for blob in blobs)
    if old is None and not parts:
        return plan
    landed = report.PlanRow(plan=context.plan, title=title, report=PurePosixPath(context.report).name, is_done=is_done)
    waiting = [row for row in context.store.list_waiting() if row[0] != context.plan]
    written_report = report.prepend_sections(old, plan_title=title, sections=parts)
    written_report = report.name_pull_request(written_report, sections.newest_pull_request(context.store, context.plan))
    new = {context.report: (old, written_report)}
    if not context.settings.run.concludes:  # the branches of two pull requests would conflict in it
        index = report.update_index(listed, landed, today=context.clock.now().date(), waiting=waiting)
        new[context.index] = (listed, index)
    written = {path: after for path, (before, after) in new.items() if after != before}
    return {**{path: after.encode("utf-8", "surrogateescape") for path, after in written.items()}, **plan}


def _undone_meanwhile(phase: str) -> e.WorkRefused:
    return e.WorkRefused(reason=Reason.ALREADY_ON_TARGET, detail=f"phase {phase} was undone on the target meanwhile")


class Undoable(Struct, frozen=True, kw_only=True):
    landing: str
    code: tuple[g.Oid, ...]  #: newest first, the commits that change more than bookkeeping
    bookkeeping: tuple[str, ...]  #: plan, report and index, which are written anew and never reverted


def landing_to_undo(
    tip: g.Oid, plan: Plan, row: Phase, *, target: str, objects: Git, merged: Sequence[PullRequest]
) -> Undoable:
    """The phase's newest landing on `tip`; refused when it cannot be reverted."""
    # A squash has no commit of the phase: those of the merged pull request are reverted. Of a plan with one phase it is
    # the squash itself, with the repairs of the pull request.
    candidates = Candidates(objects)
    heads = [pull.head for pull in merged]
    originals = candidates.landed_commits(*heads) if heads else ()
    marked = g.with_originals(candidates.landed_commits(tip), originals)
    landing = g.newest_landing(marked, plan=plan.path, phase=row.id)
    if landing is None:
        why = f"no commit on {target} has the trailers of phase {row.id} of {plan.path} (Runplan-Phase)"
        raise _refuse_undo(why, row.commit)
    if isinstance(landing, g.Unclear):
        why = "belongs to more than one landing, or has text below its Runplan trailers"
        raise _refuse_undo(f"the commit {landing.commit[:12]} {why}", landing.commit)
    changed: dict[g.Oid, set[str]] = {}
    for oid in landing.commits:
        parents = objects.commit(oid).parents
        if len(parents) != 1 or objects.tip(parents[0]) is None:
            raise _refuse_undo(f"the commit {oid[:12]} is a merge, or its parent is not in this clone", oid)
        changed[oid] = {change.path for change in candidates.changes(parents[0], oid)}
    # No agent may change the plan, so a commit that does is runplan's own.
    of_runplan = [paths for paths in changed.values() if any(is_below(path, (plan.path,)) for path in paths)]
    bookkeeping = {path for paths in of_runplan for path in paths}
    code = tuple(oid for oid, paths in changed.items() if paths - bookkeeping)
    if not code:
        raise _refuse_undo(f"no commit of the landing of phase {row.id} changes code alone", landing.commits[0])
    if len(plan.phases) == 1 and not any(g.UNDOES in message for _, message in marked):
        paths = {path for oid in code for path in changed[oid]}
        commits = (objects.commit(pull.merge_commit) for pull in merged if objects.known(pull.merge_commit))
        parents_by_oid = {commit.oid: commit.parents for commit in commits if len(commit.parents) == 1}
        for oid, (parent,) in parents_by_oid.items():
            if paths <= {change.path for change in candidates.changes(parent, oid)}:
                code = (oid,)
    return Undoable(landing=landing.landing, code=code, bookkeeping=tuple(sorted(bookkeeping)))


def _refuse_undo(why: str, oid: g.Oid) -> RefusedEarly:
    look = f"look at it ({command('git', 'show', oid[:12])}), " if oid else ""
    shallow = "in a shallow clone first run: git fetch --deepen=100"
    return RefusedEarly(f"{why}; {look}revert the phase yourself, and set its row to todo; {shallow}")


def build_undo(state: RunState, context: RunContext) -> e.Event:
    read = state.current.chosen
    onto = context.tip()
    target = context.settings.run.target
    plan, _ = context.plan_at(onto)
    row = plan.phase(read.phase)
    if row is None or row.status is not Status.DONE:
        return _undone_meanwhile(read.phase)
    here = Repository(root=context.root, common_dir=context.workspace.common_dir, git=context.workspace.user)
    merged = modes.fetch_merged(here, context.settings, context.slug, context.env, plan)
    undoable = landing_to_undo(onto, plan, row, target=target, objects=context.objects, merged=merged)
    first_lines = ((oid, context.objects.commit(oid).message.partition("\n")[0]) for oid in undoable.code)
    subjects = [f"    {bounded(line)} ({oid[:12]})" for oid, line in first_lines]
    message = "\n".join([f"Undo phase {read.phase}: {read.title}", "", "This reverts:", "", *subjects])
    reverted = context.candidates.revert(
        undoable.code,
        without=(*undoable.bookkeeping, *context.bookkeeping),
        onto=onto,
        message=g.add_trailers(message, (*trailers_of(context, state), (g.UNDOES, undoable.landing))),
        by=context.signature(),
    )
    if isinstance(reverted, NothingLeft):  # reverted by hand before; only row and report are left to set
        reverted = Built(commits=(onto,), tree=context.objects.commit(onto).tree, patch="")
    built = _record_candidate(reverted, onto, context)
    if isinstance(built, e.CandidateBuilt):
        built = replace(built, undoes=undoable.landing, undone=undoable.code)
    return built


def ask(state: RunState, _context: RunContext) -> e.Event:
    return e.ApprovalAsked(tree=state.current.answerable)


def land(state: RunState, context: RunContext) -> Iterator[e.Event]:
    recorded = state.current.delivery.landing
    with landing_lock(context.claims.locks):
        if recorded is not None:  # it has happened when its id is between the old tip and the target
            context.lander.recover(recorded)
            if (seen := context.lander.observe(recorded)) is not None:
                yield _record_landing(state.current, recorded, seen)
                return
        started: e.Event = recorded or _start_landing(state, context)
        if not isinstance(started, e.LandingStarted):
            yield started
            return
        if recorded is None:
            yield started
        elif context.objects.tip(started.new) is None:  # it was on the host that began the landing
            yield e.LandingMoved(tip=started.old, ours=True)
            return
        deliver = partial(context.workspace.deliver, started.new, without=[started.old])
        match context.lander.land(started, deliver):
            case Landed() as seen:
                context.workspace.release_landed()
                yield _record_landing(state.current, started, seen)
            case Pending(why=why):
                yield e.LandingHeld(why=why)
            case TargetMoved(tip=tip):
                yield record_move(context, started.old, tip)
            case Failed(reason=reason, why=why):
                yield LandingRefused(why=why, reason=reason)


def record_move(context: RunContext, old: str, tip: str) -> e.LandingMoved:
    """The target moved from `old` to `tip`; `ours` where landings of our own alone lie between them."""
    facts = partial(context.store.list_facts, since=iso(context.clock.now() - RECENT))
    begun = {fact.event.id: fact.event.old for fact in facts(e.LandingStarted)}
    before = {fact.event.tip: begun.get(fact.event.id, "") for fact in facts(e.Landed)}
    reached = tip
    while reached != old and reached in before:
        reached = before[reached]
    return e.LandingMoved(tip=tip, ours=reached == old)


def _start_landing(state: RunState, context: RunContext) -> e.Event:
    attempt = state.current
    candidate = attempt.delivery.candidate
    tip = context.tip()
    chosen = tip if isinstance(attempt, PlanningAttempt) else attempt.chosen.tip
    code = candidate.commits[-1] if candidate else chosen
    onto = candidate.onto if candidate and not (isinstance(attempt, WorkAttempt) and attempt.lands_itself) else code
    if tip != onto or context.objects.tip(code) is None:
        return record_move(context, onto, tip)
    is_merge = isinstance(attempt.chosen, e.MergeChosen)
    files = write_bookkeeping(state, context, code if is_merge else onto)  # people may have edited the plan
    if not isinstance(files, dict):
        return files
    match attempt.chosen:
        case e.RepairChosen() | e.MergeChosen():
            words = "repair the pull request"
        case e.UndoChosen(phase=phase):
            words = f"set phase {phase} back to todo"
        case e.CompletionChosen():
            words = "mark the plan complete"
        case PlanningChosen(before=before):
            words = f"{'revise' if before else 'add'} the plan"
        case begun:
            words = f"record phase {begun.phase} as done"
    subject = context.settings.run.bookkeeping_subject.format(plan=context.slug, what=words)
    trailers = trailers_of(context, state)
    merged = attempt.chosen.merge if isinstance(attempt.chosen, e.MergeChosen) else ""
    bookkeep = partial(context.candidates.bookkeep, code=code, files=files, by=context.signature(), merged=merged)
    new = bookkeep(message=g.add_trailers(f"{subject}\n", trailers))
    lander = context.lander
    is_lower = isinstance(lander, PullRequestLander) and lander.group != TOP
    whole = lander.of_group(TOP).known_tip() if isinstance(lander, PullRequestLander) and is_lower else new
    complete = context.plan_at(whole or new)[0].complete
    fixes = [("Fixes", f"#{number}") for number in state.options.issues]  # a forge closes them when it gets the commit
    if fixes and complete and not context.settings.run.concludes:
        new = bookkeep(message=g.add_trailers(f"{subject}\n", (*fixes, *trailers)))
    branch = _squash_bookkeeping(context, new) if complete else None
    since, new, remade = branch or ("", new, {})
    landing = context.lander.prepare(id=landing_id(context, state), old=onto, new=new)
    code = remade.get(code, code)
    return replace(landing, since=since, code=code, complete=complete, remade=tuple(remade.values()))


def _squash_bookkeeping(context: RunContext, new: str) -> tuple[str, str, dict[str, str]] | None:
    """Make the branch of a pull request anew, with one bookkeeping commit, its last.

    Returns the commit from which it is made, its tip, and each code commit with the one that takes its place. None
    where there is nothing to squash, and for merges, commits of others, and plans of several files.
    """
    objects = context.objects
    if not isinstance(context.lander, PullRequestLander) or context.settings.pull_request.bookkeeping != "squash":
        return None
    base = objects.run("merge-base", new, context.lander.target_tip(), ok=(0, 1)).text
    line = context.candidates.commits(base, new) if base else None
    trailers = [g.read_trailers(commit.message) for commit in line or ()]
    if not line or not all(g.TAKEN_BY in values or values.get(g.PLAN) == context.plan for values in trailers):
        return None
    entries = {path: find(objects, objects.commit(base).tree, path)[1] for path in context.bookkeeping}
    head = base
    remade: dict[str, str] = {}
    for commit in line:
        tree = context.candidates.tree_with(commit.tree, entries)
        if tree == objects.commit(head).tree:
            continue
        if commit.parents == (head,) and commit.tree == tree:
            head = commit.oid
        else:
            by = replace(context.signature(), author=commit.author, authored=commit.authored)
            head = context.candidates.commit(tree, onto=head, message=commit.message, by=by)
        remade[commit.oid] = head

    def rename(name: re.Match[bytes]) -> bytes:
        short = name[0].decode()
        return next((new[: len(short)] for old, new in remade.items() if old.startswith(short)), short).encode()

    blobs = {path: objects.blob(new, path) for path in context.bookkeeping}
    files = {path: re.sub(rb"\b[0-9a-f]{7,40}\b", rename, blob) for path, blob in blobs.items() if blob is not None}
    message = objects.commit(new).message
    tip = context.candidates.bookkeep(code=head, files=files, message=message, by=context.signature())
    written = {path: find(objects, objects.commit(new).tree, path)[1] for path in context.bookkeeping}
    is_same = context.candidates.tree_with(objects.commit(tip).tree, written) == objects.commit(new).tree
    return (base, tip, remade) if is_same and len(remade) < len(line) - 1 else None


def _record_landing(attempt: Attempt, started: e.LandingStarted, seen: Landed) -> e.Landed:
    return e.Landed(
        id=started.id,
        phase=attempt.chosen.phase,
        tip=seen.tip,
        code=started.code,
        note=seen.note,
        pull=seen.pull,
        complete=started.complete,
        review=attempt.review if isinstance(attempt, WorkAttempt) else (),
    )
