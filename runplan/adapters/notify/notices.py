"""Notices for a person who is away: a run is done, has failed, or waits for them."""

import json
from collections.abc import Sequence

from msgspec import Struct, to_builtins

from runplan.adapters.agents.environment import describe_missing
from runplan.domain.run.actions import Decision
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.decide import actions_of_state
from runplan.domain.run.kinds import ANSWERED, ON_PULL_REQUEST, REPEATED_WAITS, Reason, RunOutcome, WaitKind
from runplan.domain.run.reasons import next_action
from runplan.domain.run.rows import wait_of
from runplan.domain.run.state import RunState, failure as failure_of, find_awaiting
from runplan.domain.standing.actions import actions_of_wait, describe_actions
from runplan.domain.text import command


class Notice(Struct, frozen=True, kw_only=True, rename={"kind": "notice"}):
    """One message to a person; fields that do not apply are empty."""

    kind: str  #: done, failed, waiting, limit, morning, test
    repository: str = ""  #: its root
    plan: str = ""
    run: str = ""
    phase: str = ""
    reason: str = ""  #: of a failure, or the kind of the wait
    title: str  #: one line
    text: str  #: a few sentences
    command: str = ""  #: what to type next
    link: str = ""  #: the page that shows it, or the change to answer; empty without [web] url


def as_json(notice: Notice) -> bytes:
    return json.dumps(to_builtins(notice)).encode("ascii")


# The functions below take the repository, the plan, the run and the link as keywords.


def of_ending(state: RunState, *, plan: str, **where: str) -> Notice | None:
    """The notice of an ended run; None when a person stopped it, or there was nothing to do."""
    if state.ended is None or state.ended.outcome in (RunOutcome.STOPPED, RunOutcome.NOTHING_TO_DO):
        return None
    report = command("runplan", "report", plan)
    reason = state.ended.reason
    detail = state.ended.detail
    if state.ended.outcome is RunOutcome.DONE:
        phases = ", ".join(landed.phase for landed in state.landed if landed.phase)
        text = f"Landed: {phases}." if phases else "The plan landed." if state.landed else "Nothing is left to do."
        return Notice(kind="done", plan=plan, title=f"{plan}: done", text=text, command=report, **where)
    failure = failure_of(state)
    phase, step = (failure.phase, failure.step) if failure else ("", None)
    title = f"{plan}: {f'phase {phase} ' if phase else ''}failed" + (f" ({reason})" if reason else "")
    text = " ".join([*([f"{detail}."] if detail else []), *([next_action(Reason(reason), step)] if reason else [])])
    return Notice(kind="failed", plan=plan, phase=phase, reason=reason, title=title, text=text, command=report, **where)


def of_test(host: str, link: str) -> Notice:
    text = f"Notifications of runplan on {host} arrive here."
    return Notice(kind="test", title="runplan: test", text=text, command="runplan status", link=link)


def of_lost_keys(names: Sequence[str], *, plan: str, **where: str) -> Notice:
    text = f"{describe_missing(names, plan=plan)}."
    resume = actions_of_wait(WaitKind.KEY, plan)[0].command
    title = f"{plan}: waits for {', '.join(names)}"
    return Notice(kind="waiting", plan=plan, reason=WaitKind.KEY, title=title, text=text, command=resume, **where)


def of_near_limit(limit: str, *, plan: str, **where: str) -> Notice:
    """The notice of a limit of which four fifths are used; agents are stopped at the limit."""
    title = f"{plan}: a limit is nearly used up"
    text = f"{limit} when the last agent began. Agents are stopped at the limit; raise it, or let the run end there."
    see = command("runplan", "status", plan)
    return Notice(kind="limit", plan=plan, reason=WaitKind.BUDGET, title=title, text=text, command=see, **where)


def of_waiting(state: RunState, decision: Decision, *, plan: str, **where: str) -> Notice | None:
    """The notice of a run that waits for a person; None for other waits."""
    wait = wait_of(decision.waiting)
    reason = decision.waiting
    if reason is None or not wait.is_notified or (reason in REPEATED_WAITS and state.waits > 1):
        return None  # one notice is enough for something that is looked at again and again
    if reason is WaitKind.HOST and decision.wake:
        return None  # a host has the labels
    waits = find_awaiting(state)
    phase = waits.chosen.phase if waits and reason not in ON_PULL_REQUEST else ""
    others = "the pull request" if reason in ON_PULL_REQUEST else "the run"
    subject = f"phase {phase}" if phase else "the plan" if isinstance(waits, PlanningAttempt) else others
    title = f"{plan}: {subject} waits for you ({reason})"
    about = f"{decision.about or decision.why}."
    is_linked = bool(where.get("link")) and reason in ANSWERED  # the page shows the change and the answers
    actions = actions_of_state(state, reason, plan)
    text = about if is_linked else f"{about} {describe_actions(actions)}."
    see = actions[0].command
    return Notice(kind="waiting", plan=plan, phase=phase, reason=reason, title=title, text=text, command=see, **where)
