"""Numbers that a plan states and agents measure: examined before any work, judged after it, corrected on landing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.checks import drift
from runplan.errors import PlanUnreadable
from runplan.plan.model import parse
from runplan.run.dispatch import Outcome
from runplan.run.events import DriftFound, Landed

if TYPE_CHECKING:
    from runplan.plan.model import Phase, Plan
    from runplan.run.state import PhaseRun
    from runplan.steps.context import RunContext

MOST_OFF = 20  #: per cent; a phase whose own numbers differ by more is not worked on


def examined(plan: Plan, phase: Phase, context: RunContext) -> tuple[str, tuple[str, ...]]:
    """Why the text of the phase has to be revised before any work, and remarks for its report."""
    contradicted = drift.contradictions(phase.text)
    found = [(one.percent, f"{one.text} is {one.derived}, and the phase states {one.stated}") for one in contradicted]
    if wrong := next((words for off, words in found if off > MOST_OFF), ""):
        return f"{plan.path}:{phase.heading_line}: {wrong}", ()
    if (words := drift.stale_phrase(phase.text)) and not _is_revised(plan, phase, context):
        return f"{plan.path}:{phase.heading_line}: phase {phase.id} says {words!r}; revise its text and commit it", ()
    return "", tuple(words for _, words in found)


def _is_revised(plan: Plan, phase: Phase, context: RunContext) -> bool:
    """Whether the phase was reworded after all phases that it depends on had landed."""
    commits = [row.commit for name in phase.depends if (row := plan.phase(name)) is not None and row.commit]
    return bool(commits) and all(_text_at(commit, plan.path, phase.id, context) != phase.text for commit in commits)


def _text_at(commit: str, path: str, phase: str, context: RunContext) -> str:
    try:
        row = parse(context.objects.blob(commit, path) or b"", path=path).phase(phase)
    except PlanUnreadable:
        return ""
    return row.text if row is not None else ""


def measured(phase: PhaseRun, context: RunContext, message: str) -> DriftFound | None:
    """The differences that the last writer and the verifier report; None when they report none."""
    outcome = context.dispatches.standing(phase.written) if phase.written else None
    written = drift.read_tokens(outcome.message if isinstance(outcome, Outcome) else "")
    verified = drift.read_tokens(message)
    malformed = [f"not understood: {drift.MARK} {line}" for line in (*written.malformed, *verified.malformed)]
    if not (written.drifts or verified.drifts or malformed):
        return None
    decision = drift.judge(written, verified, _corrected(context))
    noted = [one.why for one in decision.judged if one.action in (drift.DriftAction.NOTE, drift.DriftAction.SKIP)]
    advice = ["several numbers are off by more than 10 %; revise the plan"] if decision.should_refine else []
    corrections = [one.drift for one in decision.corrections]
    return DriftFound(
        abort=decision.abort,
        of=phase.read.phase,
        corrections=tuple((to.phase, to.bullet, to.stated, to.actual) for to in corrections),
        lines=(*noted, *advice, *malformed),
    )


def _corrected(context: RunContext) -> set[tuple[str, int]]:
    """The places that landings of this run have corrected."""
    landings, found = context.store.facts(Landed, plan=context.plan), context.store.facts(DriftFound, plan=context.plan)
    landed = {one.event.phase for one in landings if one.run == context.run}
    made = [one.event for one in found if one.run == context.run and one.event.of in landed]
    return {(phase, bullet) for event in made for phase, bullet, _, _ in event.corrections}


def corrected(text: bytes, phase: PhaseRun, context: RunContext) -> tuple[bytes, list[str]]:
    """The plan with the corrections of the phase, and a line about each for the report."""
    lines = list(phase.drift.lines) if phase.drift else []
    for of, bullet, stated, actual in phase.drift.corrections if phase.drift else ():
        one = drift.Drift(of, bullet, "", stated, actual)
        row = parse(text, path=context.plan).phase(of)
        if row is None or (context.lane and of != phase.read.phase):  # another lane may be working on that phase
            lines.append(f"phase {of}, criterion {bullet}: states {stated}, measured are {actual}; not corrected")
            continue
        new = drift.replacement(stated, actual)
        section = drift.correct(row.text, one, new, date=context.iso()[:10])
        if isinstance(section, drift.Uncorrectable):
            lines.append(f"{section.why}; the plan was not corrected")
            continue
        whole = text.decode("utf-8", "surrogateescape").replace(row.text, section, 1)
        text = whole.encode("utf-8", "surrogateescape")
        lines.append(f"phase {of}, criterion {bullet}: corrected from {stated} to {new}, as {actual} were measured")
    return text, lines
