"""Writes the sections of a plan's report from the journal and from git; never from an agent's own account."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import asdict

from runplan.adapters.store.protocol import Store
from runplan.domain.plan.proposal import describe_summary, summarize
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import PlanningChosen, ProposalMade, StepJudged
from runplan.domain.run.attempts import Attempt, WorkAttempt
from runplan.domain.run.kinds import GateAnswer, PhaseStep
from runplan.domain.run.reasons import describe_proof, next_action
from runplan.domain.run.recorded import Recorded
from runplan.domain.text import bounded, command, counted, elapsed
from runplan.domain.times import parse_iso
from runplan.engine.report.text import code_span, escape_first_line, escape_inline, indent_block, table_row

SHORT = 7  #: digits of a commit
LONGEST = 300  #: characters quoted of one foreign line; git or a log has the whole
LONGEST_DETAIL = 20_000
MOST = 100  #: lines of one kind
NAMED = 5  #: tests that are named of each kind
NO_TESTS = "Tests: skipped — no test infrastructure"
LONGEST_ANSWER = 2_000  #: characters of a finding or an answer


def phase_section(
    phase: WorkAttempt,
    *,
    plan: str,
    run: str,
    subjects: Mapping[str, str],
    commands: Mapping[str, str],
    words: Iterable[str] = (),
    warnings: Iterable[str] = (),
    approved_at: str = "",
) -> str:
    """A phase that is about to land; `subjects` by commit, `commands` by the name of the check."""
    assert phase.lease is not None
    fixes = phase.cycle - 1
    after = f" after {fixes} fix cycle{'' if fixes == 1 else 's'}" if fixes else ""
    lines = [f"- {escape_inline(bounded(line, LONGEST_DETAIL))}" for line in _list_verification(phase, commands)]
    lines += _as_list([f"Warning: {escape_inline(bounded(line, LONGEST_DETAIL))}" for line in warnings])
    verdicts = [verdict for verdict in phase.proof.verdicts if not verdict.scope]
    texts = dict((*phase.chosen.items, *phase.proof.questions))
    answers_by_item: dict[str, list[tuple[str, bool, str]]] = {}
    for verdict in verdicts:
        for item, passed, evidence in verdict.items:
            answers_by_item.setdefault(item, []).append((verdict.agent, passed, evidence))
    items = [table_row("#", "Item", "Status", "Evidence"), "|---|---|---|---|"]
    for item, answers in answers_by_item.items():
        status = "pass" if all(passed for _, passed, _ in answers) else "fail"
        several = "; ".join(f"{code_span(agent)}: {escape_inline(evidence)}" for agent, _, evidence in answers)
        evidence = several if len(verdicts) > 1 else escape_inline(answers[0][2])
        items.append(table_row(escape_inline(item), escape_inline(texts.get(item, "")), status, evidence))
    parts = [
        f"**Branch:** {code_span(phase.lease.branch.removeprefix('refs/heads/'))}",
        "**Commits:**",
        _list_commits(subjects),
        "### Work Items",
        "\n".join(items),
        "### Verification",
        "\n".join(lines),
    ]
    if signed := list(_list_sign_off(phase, words, approved_at)):
        parts += ["### Sign-off", "\n".join(signed)]
    if phase.work is not None and (said := phase.work.remarks.describe()):
        parts += ["### Remarks of the Agent", "\n".join(f"- {escape_inline(line)}" for line in said)]
    return _write_section(phase, "Phase", f"Completed (verified, landed){after}", parts, run=run, plan=plan)


def subplan_section(
    phase: WorkAttempt, subplan: str, *, plan: str, run: str, report: str, commands: Mapping[str, str]
) -> str:
    done = f" in the run {code_span(phase.over.run)}" if phase.over and phase.over.run else ""
    lines = "\n".join(f"- {escape_inline(line)}" for line in _list_verification(phase, commands))
    parts = [
        f"**Report of the sub-plan:** [{report}]({report})",
        *(["### Verification", lines] if phase.is_last else []),
        *(["### Sign-off", "\n".join(signed)] if (signed := list(_list_sign_off(phase, (), ""))) else []),
    ]
    return _write_section(phase, "Phase", f"Completed by {code_span(subplan)}{done}", parts, run=run, plan=plan)


def undo_section(phase: Attempt, *, plan: str, run: str, subjects: Mapping[str, str]) -> str:
    status = "Undone (its changes reverted, its row set back to todo)"
    reverted = f"**Landing reverted:** {code_span(phase.built.undoes)}"
    parts = [reverted, "**Commits reverted:**", _list_commits(subjects), "The checks were not run on the result."]
    return _write_section(phase, "Phase Undone", status, parts, run=run, plan=plan)


def failure_sections(store: Store, plan: str, run: str = "") -> list[str]:
    """Every failure of the plan, or of one run, oldest first; they reach the repository with the next landing."""
    failures = [failure for failure in store.list_facts(e.PhaseFailed, plan=plan) if run in ("", failure.run)]
    ends = store.list_facts(e.RunEnded, plan=plan) if failures else []
    shared = store.list_facts(e.IssueShared, plan=plan) if failures else []
    parked = {(end.run, end.event.lane): end.event.parked for end in ends}
    sections = []
    for failure in failures:
        notes = [issue.event.words for issue in shared if issue.run == failure.run]
        kept = parked.get((failure.run, failure.event.lane), "")
        sections.append(failure_section(failure, plan=plan, parked=kept, notes=notes))
    return sections


def newest_pull_request(store: Store, plan: str) -> str:
    pulls = [landed.event.pull for landed in store.list_facts(e.Landed, plan=plan)]
    return next((pull for pull in reversed(pulls) if pull), "")


def failure_section(failure: Recorded[e.PhaseFailed], *, plan: str, parked: str = "", notes: Iterable[str] = ()) -> str:
    failed = failure.event
    landed = "Nothing was changed" if failed.step is PhaseStep.UNDO else "Nothing of the phase landed"
    landed = "The work of the phase has landed before, and stays on the target" if failed.stays else landed
    detail = "\n\n".join(part for part in (failed.detail, failed.evidence, failed.output) if part)
    shown = indent_block(bounded(detail, LONGEST_DETAIL))
    parts = [
        f"## Run Failed — {parse_iso(failure.at):%Y-%m-%d %H:%M}",
        _section_mark(run=failure.run, phase=failed.phase, attempt=str(failed.attempt)),
        f"**Plan:** {code_span(plan)}",
        f"**Phase:** {escape_inline(f'{failed.phase} {failed.title}')}",
        f"**Failed at:** {escape_inline(failed.step)}",
        f"**Time:** {parse_iso(failure.at):%Y-%m-%d %H:%M:%S} UTC",
        f"**Reason:** {code_span(failed.reason.value)}. {next_action(failed.reason, failed.step)}",
        *(["**Detail:**", shown] if shown else []),
        "**State:**",
        "\n".join(
            f"- {escape_first_line(fact)}"
            for fact in (landed, *describe_kept_work(failed, parked, ".git/runplan"), *notes)
        ),
        f"**To resume:** {code_span(command('runplan', 'retry', plan))}",
    ]
    return "\n\n".join(parts) + "\n"


def describe_kept_work(failed: e.PhaseFailed, parked: str, state: str | Path) -> list[str]:
    """Where the work of a failed phase is; `state` is the directory of the logs, "" where they are not here."""
    parts = (
        (failed.branch, f"The work is kept on the branch `{failed.branch}`; the next attempt continues from it"),
        (failed.parked, f"The work before the conflict is kept at `{failed.parked}`"),
        (parked, f"Work that is on no branch is kept at `{parked}`"),
        (state and failed.dispatch, f"The log of the last process is `{state}/dispatch/{failed.dispatch}/out.log`"),
    )
    return [words for name, words in parts if name]


def _write_section(phase: Attempt, title: str, status: str, parts: list[str], *, run: str, plan: str) -> str:
    heading = f"## {title} — {escape_inline(f'{phase.chosen.phase} {phase.chosen.title}')}"
    mark = _section_mark(run=run, phase=phase.chosen.phase)
    return "\n\n".join([heading, mark, f"**Status:** {status}", f"**Plan:** {code_span(plan)}", *parts]) + "\n"


def _section_mark(**names: str) -> str:
    plain = (f"{key} {re.sub(r'[^A-Za-z0-9._]+', '-', name)}" for key, name in names.items())
    return f"<!-- runplan: {', '.join(plain)} -->"


def _list_commits(subjects: Mapping[str, str]) -> str:
    shown = ((code_span(oid[:SHORT]), bounded(subject, LONGEST)) for oid, subject in subjects.items())
    return "\n".join(_as_list([f"{oid} {escape_inline(subject)}" for oid, subject in shown])) or "None."


def _as_list(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return [f"- {line}" for line in (*lines[:MOST], *more)]


def _list_verification(phase: WorkAttempt, commands: Mapping[str, str]) -> Iterator[str]:
    gates = [gate for gate in phase.proof.gates if gate.answer is not GateAnswer.SKIPPED]
    if not phase.proof.baselines and not gates:
        yield NO_TESTS
    if settings := [f"{name} {code_span(value)}" for name, value in asdict(phase.chosen.own).items() if value]:
        yield f"Set by the phase: {', '.join(settings)}"
    if phase.setup.notes:
        yield f"Set-up ran {counted(len(phase.setup.notes), 'time')}: {'; '.join(phase.setup.notes)}"
    elif phase.setup.tree or phase.setup.agents:
        yield "Set-up: products of an earlier one reused"
    for known in phase.proof.baselines.values():
        if known.results:
            exit_code = json.loads(known.results)["exit_code"]
            result = describe_counts(known.results) or ("passed" if exit_code == 0 else "failed")
            yield _describe_check("Baseline", known, commands, exit_code=exit_code, result=result)
    for gate in gates:
        results = [bounded(gate.line, LONGEST)]
        for kind, count, names in gate.differences:
            more = ", …" if count > NAMED else ""
            results.append(f"{count} {kind}: {bounded(', '.join(names[:NAMED]), LONGEST)}{more}")
        repeated = ("second run, because the first failed", "all tests, with a fresh set-up")
        word = "Gate" if gate.time == 1 else f"Gate ({repeated[gate.time > 2]})"
        yield _describe_check(word, gate, commands, exit_code=gate.code, result="; ".join(results))
    for proof in phase.proof.runs:
        yield bounded(describe_proof(proof), LONGEST)
    tree = phase.delivery.candidate.tree if phase.delivery.candidate else ""
    for verdict in phase.proof.verdicts:
        word = "Verdict on all phases" if verdict.scope else "Verdict"
        carried = "" if verdict.tree == tree else f", carried over to tree {code_span(tree)} (the same patch)"
        yield f"{word}: pass by {code_span(verdict.agent)} on tree {code_span(verdict.tree)}{carried}"
    yield from phase.proof.trial.describe() if phase.proof.trial else ()
    yield from phase.proof.exceptions


def _list_sign_off(phase: WorkAttempt, words: Iterable[str], approved_at: str) -> Iterator[str]:
    """What a person was to look at, who approved it and when, and what people said before."""
    delivery = phase.delivery
    tree = delivery.candidate.tree if delivery.candidate else ""
    if delivery.is_approved:
        yield from (f"- [x] {escape_inline(text)}" for text in (*phase.chosen.sign_off, *phase.proof.exceptions))
        carried = "" if delivery.approved == tree else f", carried over to tree {code_span(tree)} (the same patch)"
        moment = f", {approved_at[:16].replace('T', ' ')} UTC" if approved_at else ""
        who = escape_inline(delivery.approved_by or "a person")
        yield f"- Approved by {who} on tree {code_span(delivery.approved)}{carried}{moment}"
    yield from (f"- {escape_inline(bounded(line, LONGEST_DETAIL))}" for line in (*phase.words, *words))


def _describe_check(
    word: str, check: e.BaselineKnown | e.GateJudged, commands: Mapping[str, str], *, exit_code: int | None, result: str
) -> str:
    name = word if check.name == e.TESTS else f"{word} {check.name}"
    ending = "did not finish" if exit_code is None else f"exit {exit_code}"
    return f"{name}: {code_span(commands[check.name])} on tree {code_span(check.tree)}: {ending}, {result}"


def describe_counts(results: str) -> str:
    totals = json.loads(results) if results else {}
    passed = totals.get("passed")
    return "" if passed is None else f"{passed} passed, {totals.get('failed') or 0} failed"


def planning_report(store: Store, plan: str, run: str = "") -> str:
    chosen = [fact for fact in store.list_facts(PlanningChosen, plan=plan) if run in ("", fact.run)]
    if not chosen:
        return ""
    runs = {fact.run for fact in chosen}
    kinds = (PlanningChosen, e.DispatchEnded, StepJudged, ProposalMade, e.Answered, e.PhaseFailed)
    facts = [fact for fact in store.list_facts(*kinds, plan=plan) if fact.run in runs]
    lines = ["## Planning", "", *_list_steps(facts)]
    findings: dict[str, str] = {}
    critiques = 0
    for fact in facts:
        match fact.event:
            case StepJudged(problems=(), findings=rows) if rows:
                findings = dict(rows)
                critiques += 1
                lines += ["", f"### Critique {critiques}", ""]
            case StepJudged(problems=(), answers=answers):
                for name, answer in answers:
                    finding = escape_inline(bounded(findings.get(name, name), LONGEST_ANSWER))
                    done = escape_inline(bounded(answer, LONGEST_ANSWER))
                    lines.append(f"- {escape_inline(name)}: {finding} — {done}")
            case e.Answered(approved=False, why=why, by=by) if why:
                via = f" by {escape_inline(by)}" if by else ""
                lines += ["", f"### Rejected{via}: {escape_inline(bounded(why, LONGEST_ANSWER))}", ""]
            case e.PhaseFailed(reason=reason, detail=detail):
                lines += ["", f"### Failed — {reason}", "", escape_inline(bounded(detail, LONGEST_ANSWER))]
    proposals = [fact.event for fact in facts if isinstance(fact.event, ProposalMade)]
    if proposals:
        last = proposals[-1]
        lines += ["", "### Proposal", "", f"{code_span(last.path)}, SHA-256 {code_span(last.sha256)}", ""]
        lines += [f"- {escape_inline(line.strip())}" for line in describe_proposal(last)]
        lines += ["", f"See it: {code_span(command('runplan', 'diff', plan))}", ""]
    return "\n".join(lines)


def describe_proposal(proposal: ProposalMade) -> list[str]:
    summary = summarize(proposal.text, path=proposal.path)
    return describe_summary(summary, is_edited=proposal.is_edited, number=proposal.number, notes=proposal.notes)


def _list_steps(facts: Iterable[Recorded[e.Event]]) -> Iterator[str]:
    yield table_row("Step", "Agent", "Time", "Used", "Result")
    yield "|---|---|---|---|---|"
    ended: dict[str, e.DispatchEnded] = {}
    for fact in facts:
        match fact.event:
            case e.DispatchEnded() as event:
                ended[event.id] = event
            case StepJudged() as step if (process := ended.pop(step.dispatch, None)) is not None:
                result = f"{counted(len(step.answers), 'finding')} answered" if step.answers else "accepted"
                if step.problems:
                    result = f"refused, kept in .git/runplan/dispatch/{step.dispatch}: {'; '.join(step.problems)}"
                elif step.parts:
                    result = f"{counted(len(step.parts), 'exploration')}, which the next step merges"
                elif step.verdicts:
                    failed = sum(verdict.startswith("FAIL") for _, verdict in step.verdicts)
                    findings = counted(len(step.findings), "finding")
                    result = f"{counted(len(step.verdicts), 'principle')} judged, {failed} failed, {findings}"
                yield _step_row(process, result)
                for beside in [id_ for id_ in ended if id_.startswith(f"{step.dispatch}-")]:
                    yield _step_row(ended.pop(beside), "one of them")
    for process in ended.values():
        yield _step_row(process, process.detail or str(process.kind or process.ending))


def _step_row(process: e.DispatchEnded, result: str) -> str:
    used = process.usage.words or "-"
    cells = (process.role, process.agent, elapsed(process.seconds), used, bounded(result, LONGEST_ANSWER))
    return table_row(*map(escape_inline, cells))
