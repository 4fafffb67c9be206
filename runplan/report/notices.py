"""What a person is told without asking: a run is done, has failed, or waits for them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.environment import describe_missing
from runplan.run.reasons import Reason, next_action
from runplan.run.state import awaiting, failure as failure_of
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.decide import Decision
    from runplan.run.state import RunState

#: What only a person can give, and what to type then.
_ASKS = {"approval": "diff", "checkout": "explain"}


class Notice(Struct, frozen=True, kw_only=True):
    """One message to a person; what does not apply is empty."""

    kind: str  #: done, failed, waiting
    plan: str
    run: str
    title: str  #: one line
    text: str  #: a few sentences
    phase: str = ""
    reason: str = ""  #: of a failure, or what is waited for
    command: str = ""  #: what to type next
    repository: str = ""  #: its root


def facts(notice: Notice) -> dict[str, str]:
    """The notice by the names under which programs are given it."""
    return {
        "notice": notice.kind,
        "repository": notice.repository,
        "plan": notice.plan,
        "run": notice.run,
        "phase": notice.phase,
        "reason": notice.reason,
        "title": notice.title,
        "text": notice.text,
        "command": notice.command,
    }


def as_json(notice: Notice) -> bytes:
    return json.dumps(facts(notice)).encode("ascii")


def of_ending(state: RunState, *, repository: str, plan: str, run: str) -> Notice | None:
    """What is told of a run that has ended; None where a person ended it, or there was nothing to do."""
    if state.ended is None or state.ended.outcome in ("stopped", "nothing-to-do"):
        return None
    phases = ", ".join(landed.phase for landed in state.landed if landed.phase)
    if state.ended.outcome == "done":
        return Notice(
            kind="done",
            repository=repository,
            plan=plan,
            run=run,
            title=f"{plan}: done",
            text=f"Landed: {phases}." if phases else "Nothing is left to do.",
            command=command("runplan", "report", plan),
        )
    failure = failure_of(state)
    reason, detail = state.ended.reason, state.ended.detail
    where = f"phase {failure.phase} " if failure else ""
    helps = next_action(Reason(reason), failure.step if failure else "") if reason else ""
    return Notice(
        kind="failed",
        repository=repository,
        plan=plan,
        run=run,
        phase=failure.phase if failure else "",
        reason=reason,
        title=f"{plan}: {where}failed ({reason})" if reason else f"{plan}: failed",
        text=" ".join(part for part in (f"{detail}." if detail else "", helps) if part),
        command=command("runplan", "report", plan),
    )


def of_settings(words: str, *, repository: str) -> Notice:
    """What is told of settings that cannot be used any more; `repository` is "" for those of the user."""
    return Notice(
        kind="waiting",
        repository=repository,
        plan="",
        run="",
        reason="settings",
        title="runplan: settings that cannot be used",
        text=f"{words}; what was set before holds until that is mended.",
        command="runplan config",
    )


def of_lost_keys(names: Sequence[str], *, repository: str, plan: str, run: str) -> Notice:
    """What is told of a run that cannot go on after a restart without the variables of its caller."""
    return Notice(
        kind="waiting",
        repository=repository,
        plan=plan,
        run=run,
        reason="key",
        title=f"{plan}: waits for {', '.join(names)}",
        text=f"{describe_missing(names, plan=plan)}.",
        command=command("runplan", "resume", plan),
    )


def _answers(plan: str) -> str:
    approve, reject = command("runplan", "approve", plan), command("runplan", "reject", plan)
    return f" To land it: {approve}; to refuse it: {reject} -m REASON."


def of_waiting(state: RunState, decision: Decision, *, repository: str, plan: str, run: str) -> Notice | None:
    """What is told of a run that waits; None unless it is for a person."""
    verb = _ASKS.get(decision.waiting)
    if verb is None or (decision.waiting == "checkout" and state.waits > 1):
        return None  # a checkout is looked at again and again; one call is enough
    waits = awaiting(state)
    phase = waits.read.phase if waits else ""
    return Notice(
        kind="waiting",
        repository=repository,
        plan=plan,
        run=run,
        phase=phase,
        reason=decision.waiting,
        title=f"{plan}: phase {phase} waits for you ({decision.waiting})",
        text=f"{decision.about or decision.why}.{_answers(plan) if decision.waiting == 'approval' else ''}",
        command=command("runplan", verb, plan),
    )
