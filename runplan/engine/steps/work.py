"""The attempt at a phase: its branch, the agent's work, a hand-over, a failure, and the end of a phase and of a run."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from msgspec.structs import replace

from runplan.adapters.agents.invocation import list_instructions
from runplan.adapters.agents.prompts import Standing, handover_note
from runplan.adapters.configuration.places import remove_unused_root
from runplan.adapters.git.command import Stored
from runplan.adapters.git.objects import SUBMODULE, Entry, Signature
from runplan.domain.checks import tamper
from runplan.domain.checks.guarded import list_scripts
from runplan.domain.checks.secrets import redact_text
from runplan.domain.gitfacts import AGENT, Change, Commit, Kept, Oid, signing
from runplan.domain.globs import covers
from runplan.domain.names import HEADS, base_ref, is_plain, wip_ref
from runplan.domain.plan.body import QUOTED
from runplan.domain.run import events as e
from runplan.domain.run.actions import Fail, Finish
from runplan.domain.run.attempt_parts import MessagesHandled, WorkKept, WorkPushed
from runplan.domain.run.attempts import PlanningAttempt, WorkAttempt
from runplan.domain.run.dispatch import NOTES, Remarks, Return, ReturnStatus
from runplan.domain.run.kinds import NOT_OF_WORK, GateAnswer, Reason
from runplan.domain.run.reasons import describe_ending
from runplan.domain.run.state import RunState, list_places
from runplan.domain.settings.schema import FILES
from runplan.domain.text import bounded, plain
from runplan.engine.landing.conversation import write_answers
from runplan.engine.steps.conclude import comment_failure, report_end
from runplan.engine.steps.context import RunContext
from runplan.engine.steps.gates import describe_lacking, log_files, read_content
from runplan.engine.steps.lease import remote_lander
from runplan.engine.steps.verify import reply_of

SCANNED = 1_000_000  #: bytes of a committed file that are scanned for secrets
BEGINNING = 8192  #: bytes; git calls a file with a NUL in them binary
LONGEST_SUMMARY = 600  #: characters of an agent's summary
NAMED = 8  #: paths named in one sentence
OUTPUT_READ = 64 * 1024  #: bytes at the end of a failed command's output that are read
LINES_SHOWN = 20  #: lines of it in the report
LONGEST_LINE = 300
LONGEST_SUBJECT = 60  #: characters of a commit's subject that are shown


def describe_off_base(foreign: Sequence[tuple[Oid, str]] | None, *, branch: str, base: Oid) -> str:
    """Why foreign commits, None for a branch that left its base, cannot be landed; "" for none."""
    name = branch.removeprefix(HEADS)
    kept = f"nothing landed, and the work is kept on {name}"
    if foreign is None:
        return f"the branch {name} no longer contains its base {base[:12]}: it was reset, rebased or amended; {kept}"
    shown = ", ".join(f"{oid[:12]} {redact_text(subject[:LONGEST_SUBJECT])}" for oid, subject in foreign)
    return f"the branch {name} contains commits that this attempt did not make: {shown}; {kept}" if foreign else ""


def take_work(state: RunState, context: RunContext) -> e.Event:
    phase = state.work
    kept = state.work.leased.kept
    head = _commit_leftovers(phase, context)
    if isinstance(head, e.WorkRefused):
        return head
    known = phase.start or (kept.head if kept else "")  # the user may have it: another phase began on it
    foreign = context.candidates.foreign(phase.base, head, run=context.mark, kept=known)
    if why := describe_off_base(foreign, branch=phase.leased.branch, base=phase.base):
        return e.WorkRefused(reason=Reason.OFF_BASE, detail=why)
    changes = context.candidates.changes(phase.base, head)
    if refusal := _refuse_tree(phase, context, head, changes):
        return refusal
    permit = permit_of(phase, context)
    tree = context.objects.commit(head).tree
    guarded = tamper.examine_checks(
        (check.command for check in context.settings.checks.values()),
        (change.path for change in changes),
        permit,
        before=partial(context.read_file, phase.base),
        after=partial(context.read_file, head),
    )
    files = [_file_change(context, change) for change in changes]
    if findings := (*tamper.examine_changes(files, permit), *guarded):
        is_scope = all(finding.reason is Reason.OUT_OF_SCOPE for finding in findings)
        more = [f"and {len(findings) - NAMED} more"] if len(findings) > NAMED else []
        lines = (*map(str, findings[:NAMED]), *more)
        reason = Reason.OUT_OF_SCOPE if is_scope else Reason.TAMPERED
        return e.RulesBroken(tree=tree, reason=reason, lines=lines, remedy=tamper.describe_remedy(findings))
    commits = context.candidates.commits(phase.base, head)
    of_work = commits or (context.objects.commit(head),)
    hidden = () if phase.squash else _find_in_commits(phase, context, of_work, permit)
    answer = reply_of(phase.written, context)[1] if phase.written else None
    remarks = answer.remarks if isinstance(answer, Return) else Remarks()
    remarks = phase.remarks if remarks == Remarks() else remarks  # a fixer may have nothing to add
    made = []
    for artifact in remarks.artifacts:  # a file that is named is looked for, as evidence is
        is_there = is_plain(artifact.path) and context.objects.known(f"{head}:{artifact.path}") is not None
        made.append(artifact if is_there else replace(artifact, kind="not in the tree"))
    return e.WorkTaken(
        head=head,
        tree=tree,
        commits=0 if not changes else len(commits) if commits else 1,
        files=tuple(change.path for change in changes),
        squash=bool(hidden) or any(commit.message.startswith(_wip_subject(phase, context)) for commit in commits or ()),
        lines=tuple(f"one commit lands instead of single ones, in which {finding}" for finding in hidden[:NAMED]),
        remarks=replace(remarks, artifacts=tuple(made)),
        summary=bounded(answer.summary, LONGEST_SUMMARY) if isinstance(answer, Return) else "",
    )


def _wip_subject(phase: WorkAttempt, context: RunContext) -> str:
    """The first words of a commit of unfinished work, which never lands as it is."""
    return f"wip: {context.slug} phase {phase.chosen.phase} "


def _commit_leftovers(
    phase: WorkAttempt, context: RunContext, *, unfinished: str = "", has_failed: bool = False
) -> str | e.WorkRefused:
    """Commit everything that the agent left; the newest commit. Failed work is kept without nested repositories."""
    left = context.zone.leftovers
    tip = context.objects.tip(phase.leased.branch) or phase.base
    if left is None or context.objects.commit(left).parents != (tip,):
        return tip
    added = [change for change in context.candidates.changes(tip, left) if change.kind == "A"]
    nested = [change.path for change in added if change.new_mode == SUBMODULE]
    if nested and not has_failed:
        return e.WorkRefused(reason=Reason.TAMPERED, detail=f"{nested[0]} is a git repository of its own")
    ours: dict[str, Entry | None] = {change.path: None for change in added if covers(tamper.LIFECYCLE, change.path)}
    ours |= dict.fromkeys(nested)
    tree = context.candidates.tree_with(context.objects.commit(left).tree, ours)
    made = tip
    if tree != context.objects.commit(tip).tree:
        fix = f" (fix {phase.cycle - 1})" if phase.cycle > 1 else ""
        subject = f"{phase.chosen.title or f'Phase {phase.chosen.phase}'}{fix}"
        message = f"{_wip_subject(phase, context)}{unfinished}\n" if unfinished else f"{subject}\n"
        by = Signature(author=AGENT, committer=signing(phase.written), when=context.git_date())
        made = context.candidates.commit(tree, onto=tip, message=message, by=by)
    context.zone.forget_leftovers(*([f"update {phase.leased.branch} {made}"] if made != tip else []))
    return made


def permit_of(phase: WorkAttempt, context: RunContext) -> tamper.Permit:
    # An issue, a review or the log of a check may name a file, and permits nothing by that.
    lines = [] if phase.is_repair else phase.chosen.text.splitlines(keepends=True)
    return tamper.Permit(
        text="".join(line for line in lines if not line.startswith(QUOTED)),
        touches=phase.chosen.touches,
        allows=phase.chosen.allows,
        bookkeeping=(*context.bookkeeping, *FILES),
        test_paths=context.settings.tests.paths,
        written=context.bookkeeping,
        built=context.settings.agents.container.build,
        setup=tuple(list_scripts(context.settings.run.setup)),
        instructions=list_instructions(context.settings.agents),
    )


def _refuse_tree(phase: WorkAttempt, context: RunContext, head: str, changes: Sequence[Change]) -> e.WorkRefused | None:
    """Refuse conflict markers that the fixer had to resolve, and a nested repository, whose content would be lost."""

    def has_markers(commit: str, path: str) -> bool:
        lines = (context.read_file(commit, path) or "").splitlines()
        return all(any(line.startswith(mark) for line in lines) for mark in ("<<<<<<< ", ">>>>>>> "))

    # A merge of the target has the markers in its base.
    before = phase.chosen.tip if isinstance(phase.chosen, e.MergeChosen) else phase.base
    for path in phase.unsolved.paths if phase.unsolved else ():
        if has_markers(head, path) and not has_markers(before, path):
            detail = phase.describe_unsolved(f"it left conflict markers in {path}")
            return e.WorkRefused(reason=Reason.CONFLICT, detail=detail)
    modules = context.read_file(head, ".gitmodules") or ""
    for change in changes:
        if change.new_mode == SUBMODULE != change.old_mode and f"path = {change.path}\n" not in f"{modules}\n":
            return e.WorkRefused(reason=Reason.TAMPERED, detail=f"{change.path} is a git repository of its own")
    return None


def _find_in_commits(
    phase: WorkAttempt, context: RunContext, commits: Sequence[Commit], permit: tamper.Permit
) -> tuple[tamper.Tampering, ...]:
    """Findings in single commits: a file that is added and removed again would land in the history."""
    steps = [phase.base, *(commit.oid for commit in commits)] if len(commits) > 1 else []  # one has the net change
    made = (change for old, new in pairwise(steps) for change in context.candidates.changes(old, new))
    changes = {(change.path, change.new): change for change in made}
    # The first change of a path starts from its content before the phase.
    before = {change.path: _read_text(context, change.old) for change in reversed(changes.values())}
    files = [_file_change(context, change, before[change.path]) for change in changes.values()]
    return tamper.examine_commits(files, permit, messages=[commit.message for commit in commits])


def _find_leaks(phase: WorkAttempt, context: RunContext, head: str) -> list[tamper.Tampering]:
    """Secrets and large files in the commits of unfinished work, each of which the remote would get."""
    commits = map(context.objects.commit, context.objects.text("rev-list", f"{phase.base}..{head}").split())
    messages = list[str]()
    files = list[tamper.FileChange]()
    for commit in commits:
        messages.append(commit.message)
        changes = context.candidates.changes((commit.parents or (phase.base,))[0], commit.oid)
        files += [_file_change(context, change) for change in changes]
    findings = tamper.examine_commits(files, permit_of(phase, context), messages=messages)
    return [finding for finding in findings if finding.kind in (tamper.TamperKind.SECRET, tamper.TamperKind.TOO_LARGE)]


def _file_change(context: RunContext, change: Change, before: str | None = None) -> tamper.FileChange:
    stored = context.objects.object(change.new, most=SCANNED) if change.new_mode != SUBMODULE else None
    return tamper.FileChange(
        path=change.path,
        before=_read_text(context, change.old) if before is None else before,
        after=_decode_blob(stored),
        deleted=change.kind == "D",
        added=change.kind == "A",
        size=stored.size if stored else 0,
    )


def _read_text(context: RunContext, oid: str) -> str:
    return _decode_blob(context.objects.object(oid, most=SCANNED))


def _decode_blob(stored: Stored | None) -> str:
    content = stored.content if stored and stored.kind == "blob" else b""
    return "" if b"\0" in content[:BEGINNING] else content.decode("utf-8", "replace")


def hand_over(state: RunState, context: RunContext) -> e.Event:
    phase = state.work
    number = len(phase.handovers) + 1
    head = _commit_leftovers(phase, context, unfinished=f"hand-over {number}")
    if isinstance(head, e.WorkRefused):
        return head
    message, returned = reply_of(phase.ended.id, context)
    why = describe_ending(phase.ended)
    standing = Standing(
        number=number,
        why=why,
        plan=context.plan,
        phase=phase.chosen.phase,
        items=phase.chosen.items,
        done=tuple(item.item for item in returned.items if item.passed) if isinstance(returned, Return) else (),
        summary=returned.summary if isinstance(returned, Return) else "",
        files=tuple(change.path for change in context.candidates.changes(phase.base, head)),
        message=message,
        notes=context.agents.redacted(context.dispatches.read(phase.ended.id, NOTES) or ""),
        commit=head,
    )
    text = plain(handover_note(standing))
    context.dispatches.write(phase.ended.id, "handoff.md", text)
    return e.HandedOver(number=number, tree=context.objects.commit(head).tree, note=text, why=why)


def push_work(state: RunState, context: RunContext) -> e.Event:
    """Push the newest work; a remote that does not answer fails no phase."""
    phase = state.work
    old = phase.pushing.head
    head = context.objects.tip(phase.leased.branch) or phase.base
    left = context.zone.leftovers  # the files that an agent left uncommitted
    head = left if left is not None and context.objects.commit(left).parents == (head,) else head
    if head in (phase.base, old):
        return WorkPushed(head=old)
    why = "; ".join(map(str, _find_leaks(phase, context, head)))
    ref = wip_ref(phase.leased.branch)
    is_owner = partial(context.claims.owns_plan, context.plan)
    why = why or remote_lander(context).push_work(ref, head, old=old, is_owner=is_owner)
    return WorkKept(host=state.host, why=why) if why else WorkPushed(head=head)


def ask_question(state: RunState, context: RunContext) -> e.Event:
    attempt = state.current
    ended = attempt.ended
    if isinstance(attempt, WorkAttempt) and ended.role.is_writer:
        head = _commit_leftovers(attempt, context, unfinished="question")
        if isinstance(head, e.WorkRefused):
            return head
    return e.QuestionAsked(id=ended.id, text=ended.detail or "no question given", phase=attempt.chosen.phase)


def fail(action: Fail, state: RunState, context: RunContext) -> e.Event:
    phase = state.current
    words = filter(None, (*phase.rejections, phase.rejected))
    failed = e.PhaseFailed(
        phase=phase.chosen.phase,
        title=phase.chosen.title,
        reason=action.reason,
        step=action.at,
        detail=action.detail,
        dispatch=phase.dispatches.newest.id if phase.dispatches.newest else "",
        rejected="\n\n".join(words) if phase.rejections or phase.rejected is not None else None,
    )
    if not isinstance(phase, WorkAttempt):
        return failed
    branch = ""
    if phase.lease is not None and not phase.lands_itself:
        if phase.work is None:  # a refused file is parked with the worktree
            _commit_leftovers(phase, context, has_failed=True)
        newer_than = (phase.lease.kept.ref, phase.lease.kept.head) if phase.lease.kept else None
        branch = context.workspace.publish(phase.lease.branch, base=phase.base, newer_than=newer_than)
    tree = phase.work.tree if phase.work else ""
    earlier = context.failures(failed.phase) if tree and failed.reason not in NOT_OF_WORK else []
    last = earlier[-1].event if earlier else failed
    is_same = last.reason in (failed.reason, Reason.NO_PROGRESS) and last.step == failed.step
    is_stuck = bool(earlier) and last.tree == tree and is_same
    is_before_work = failed.reason in (Reason.BASELINE_RED, Reason.SETUP_FAILED)
    detail = f"{failed.detail}{describe_lacking(phase, context)}" if is_before_work else failed.detail
    output = _read_output(failed.reason, phase, context)
    detail += context.agents.describe_unseen("\n".join(output), after_work=not is_before_work)
    proofs: list[str] = []
    if failed.reason in (Reason.VERIFICATION_FAILED, Reason.NO_PROGRESS) and phase.proof.verdict is not None:
        proofs = [f"{item}: {evidence}" for item, evidence in phase.proof.failed_items]
    elif failed.reason == Reason.GUARD_VIOLATED:
        proofs = [line for line in phase.warnings if phase.refusal is None or line not in phase.refusal[1]]
    last_lines = [line for text in output for line in plain(text).splitlines()[-LINES_SHOWN:]]
    return replace(
        failed,
        reason=Reason.NO_PROGRESS if is_stuck else failed.reason,
        detail=f"same tree and same failure as the previous attempt; {detail}" if is_stuck else detail,
        tree=tree,
        attempt=phase.lease.attempt if phase.lease else 1,
        branch=branch.removeprefix("refs/heads/"),
        parked=phase.parked,
        evidence="\n".join((*phase.cycles, *(context.agents.redacted(line[:LONGEST_LINE]) for line in proofs))),
        output="\n".join(context.agents.redacted(line[:LONGEST_LINE]) for line in last_lines),
        head=(context.workspace.user.tip(branch) or "") if branch else "",
        base=phase.base,
        failed=phase.proof.failed_items,
        red=phase.proof.red_checks,
        authors=phase.authors,
        stays=phase.lands_itself and phase.delivery.candidate is not None,
    )


def _read_output(reason: str, phase: WorkAttempt, context: RunContext) -> list[str]:
    is_tests = reason in (Reason.TESTS_FAILED, Reason.TESTS_UNFINISHED)
    if is_tests or (reason == Reason.NO_PROGRESS and not phase.proof.verdict):
        return [gate.output for gate in phase.proof.newest_gates.values() if gate.answer is not GateAnswer.PASSED]
    if reason in (Reason.BASELINE_RED, Reason.SETUP_FAILED) and phase.dispatches.newest is not None:
        logs = log_files(phase.dispatches.newest, context).values()
        return [read_content(path)[-OUTPUT_READ:].decode("utf-8", "replace") for path in logs]
    return []


def clean_up(state: RunState, context: RunContext) -> Iterator[e.Event]:
    attempt = state.current
    if isinstance(attempt, WorkAttempt) and attempt.lease is not None:
        lease = attempt.lease
        is_landed = bool(attempt.delivery.landed)
        head = attempt.work.head if attempt.work and is_landed else ""
        if head and context.objects.tip(lease.branch) == head:
            context.objects.update_refs(f"delete {lease.branch} {head}")
        else:
            context.workspace.give_to_user(lease.branch, base=attempt.base)
        if is_landed and (attempt.pushing.head or attempt.pushing.kept):
            remote_lander(context).drop_work(wip_ref(lease.branch))
        kept = lease.kept if is_landed else None
        if kept is not None and context.workspace.user.tip(kept.ref) == kept.head:  # else a person has moved it
            has_kept = bool(head) and context.objects.is_ancestor(kept.head, head)
            context.removal.remove_ref(kept.ref, landed=kept.head if has_kept else "")
    if isinstance(attempt, WorkAttempt) and attempt.review and (attempt.delivery.landed or attempt.is_answer):
        message, reply = reply_of(attempt.written, context)
        if not isinstance(reply, Return):
            reply = Return(status=ReturnStatus.DONE, summary=context.agents.redacted(message))
        judged = [row for verdict in attempt.proof.verdicts for row in verdict.items]
        proven = {item: evidence for item, passed, evidence in judged if passed}
        commit = attempt.delivery.landed.code[:7] if attempt.delivery.landed else ""
        comments = attempt.chosen.comments if isinstance(attempt.chosen, e.RepairChosen) else ()
        answers = write_answers(comments, reply, commit=commit, proven=proven)
        yield MessagesHandled(review=attempt.review, answers=answers)
    if isinstance(attempt, PlanningAttempt):
        context.proof.remove()
        remove_unused_root(context.workspace.root, context.settings)
    yield e.CleanedUp(phase=attempt.chosen.phase)


def finish(action: Finish, state: RunState, context: RunContext) -> e.Event:
    detail = action.detail
    parked = ""
    # A run that was stopped while it leased has a pin of its base and no lease.
    context.workspace.user.update_refs(f"delete {base_ref(context.mark)}")
    for lane in list_places(state):
        answer = context.removal.remove_worktree(context.worktree(lane))
        if isinstance(answer, Kept):
            detail = f"{detail}; {answer.what} was kept: {answer.why}".lstrip("; ")
        else:
            parked = answer.parked or parked
            remove_unused_root(context.workspace.root, context.settings)
    over = e.RunEnded(outcome=action.outcome, reason=action.reason, detail=detail, parked=parked)
    notes = (*report_end(over, state, context), *comment_failure(over, state, context))
    return replace(over, detail="; ".join(filter(None, (detail, *notes))))
