"""The report of a planning run: its steps, findings and answers, its time and cost, and the proposal."""

from collections.abc import Iterable, Iterator

from runplan.adapters.store.protocol import Store
from runplan.domain.plan.proposal import describe_summary, summarize
from runplan.domain.run.events import Answered, DispatchEnded, Event, PhaseFailed
from runplan.domain.run.planning_events import PlanningChosen, ProposalMade, StepJudged
from runplan.domain.run.recorded import Recorded
from runplan.domain.standing.usage import AgentUsage
from runplan.domain.text import bounded, command, counted, elapsed
from runplan.engine.report.text import code_span, escape_inline, table_row

KINDS: tuple[type[Event], ...] = (PlanningChosen, DispatchEnded, StepJudged, ProposalMade, Answered, PhaseFailed)
LONGEST = 2_000  #: characters of a finding or an answer


def planning_report(store: Store, plan: str, run: str = "") -> str:
    chosen = [fact for fact in store.list_facts(PlanningChosen, plan=plan) if run in ("", fact.run)]
    if not chosen:
        return ""
    runs = {fact.run for fact in chosen}
    listed: list[Recorded[Event]] = [fact for kind in KINDS for fact in store.list_facts(kind, plan=plan)]
    facts = sorted((fact for fact in listed if fact.run in runs), key=lambda fact: fact.seq)
    lines = ["## Planning", "", *_list_steps(facts), *_list_changes(facts)]
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


def _list_steps(facts: Iterable[Recorded[Event]]) -> Iterator[str]:
    yield table_row("Step", "Agent", "Time", "Used", "Result")
    yield "|---|---|---|---|---|"
    ended: dict[str, DispatchEnded] = {}
    for fact in facts:
        match fact.event:
            case DispatchEnded() as event:
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
            case _:
                pass
    for process in ended.values():
        yield _step_row(process, process.detail or str(process.kind or process.ending))


def _step_row(process: DispatchEnded, result: str) -> str:
    tokens = process.input_tokens + process.output_tokens
    used = AgentUsage(tokens=tokens, usd=process.usd, estimated=process.estimated).words or "-"
    cells = (process.role, process.agent, elapsed(process.seconds), used, bounded(result, LONGEST))
    return table_row(*map(escape_inline, cells))


def _list_changes(facts: Iterable[Recorded[Event]]) -> Iterator[str]:
    findings: dict[str, str] = {}
    number = 0
    for fact in facts:
        match fact.event:
            case StepJudged(problems=(), findings=rows) if rows:
                number += 1
                findings = dict(rows)
                yield from ("", f"### Critique {number}", "")
            case StepJudged(problems=(), answers=answers) if answers:
                for name, answer in answers:
                    finding = escape_inline(bounded(findings.get(name, name), LONGEST))
                    yield f"- {escape_inline(name)}: {finding} — {escape_inline(bounded(answer, LONGEST))}"
            case Answered(approved=False, why=why, by=by) if why:
                via = f" by {escape_inline(by)}" if by else ""
                yield from ("", f"### Rejected{via}: {escape_inline(bounded(why, LONGEST))}", "")
            case PhaseFailed(reason=reason, detail=detail):
                yield from ("", f"### Failed — {reason}", "", escape_inline(bounded(detail, LONGEST)))
            case _:
                pass
