"""A planning run and its proposal, as JSON data and as text."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from msgspec import convert, to_builtins

from runplan.engine.runs import state_of
from runplan.plan.proposal import Summary, summarize
from runplan.report.planning import describe_summary
from runplan.run.attempts import PlanningAttempt
from runplan.text import command

if TYPE_CHECKING:
    from runplan.store.protocol import Store


def view_planning(store: Store, run: str) -> dict[str, Any]:
    """A planning run and its proposal as data (docs/reference.md)."""
    row = store.get_run(run)
    assert row is not None
    attempt = state_of(store, row).attempt
    proposal = attempt.proposal if isinstance(attempt, PlanningAttempt) else None
    before = attempt.chosen.before if isinstance(attempt, PlanningAttempt) else ""
    return {
        "plan": row.plan,
        "title": proposal.title if proposal else row.title,
        "run": row.id,
        "state": row.state,
        "step": row.step,
        "waiting_for": row.waiting_for,
        "outcome": row.outcome,
        "reason": row.reason,
        "tokens": row.tokens,
        "usd": round(row.usd, 4),
        "proposal": proposal
        and {
            "sha256": proposal.sha256,
            "edited": proposal.is_edited,
            "text": proposal.text,
            "diff": _compare_texts(before, proposal.text, proposal.path) if before else None,
            "summary": to_builtins(summarize(proposal.text, path=proposal.path)),
        },
    }


def _compare_texts(before: str, after: str, path: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(lines)


def render_proposal(view: dict[str, Any]) -> str:
    """The proposal as text: what it grants, then all of it, or the changes of a revision."""
    plan = view["plan"]
    proposal = view["proposal"]
    summary = describe_summary(
        convert(proposal["summary"], Summary), label=", edited by user" if proposal["edited"] else ""
    )
    helps = f"to land it: {command('runplan', 'approve', plan)}; to change it: {command('runplan', 'edit', plan)}"
    reject = f"to have it revised: {command('runplan', 'reject', plan)} -m REASON"
    head = f"{plan} waits for {view['waiting_for']}, SHA-256 {proposal['sha256'][:12]}"
    return "\n".join([head, *summary, "", proposal["diff"] or proposal["text"], "", f"{helps}; {reject}"])
