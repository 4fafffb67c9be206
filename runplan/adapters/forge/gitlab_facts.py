"""Answers of GitLab as plain values of a forge."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from runplan.adapters.forge import protocol as m
from runplan.domain.gitfacts import Oid

Facts = Mapping[str, Any]  #: an object of an answer
_S = m.MergeState
#: Of `detailed_merge_status`. GitLab adds values; one that is not here is a rule that is not met.
MERGE_STATES = {
    **dict.fromkeys(("checking", "unchecked", "preparing", "approvals_syncing"), _S.UNKNOWN),
    **dict.fromkeys(("mergeable", "draft_status", "not_open"), _S.READY),
    **dict.fromkeys(("conflict", "broken_status"), _S.CONFLICT),
    "need_rebase": _S.BEHIND,
}
OBJECTION = "requested_changes"  #: state of a reviewer
APPROVED = "approved"
#: States of a job or commit status. `manual` waits for a person; a job that may fail blocks nothing.
CHECK_STATES = {
    **dict.fromkeys(("success", "skipped"), m.CheckState.PASSED),
    **dict.fromkeys(("failed", "canceled", "canceling"), m.CheckState.FAILED),
}


def user_name(user: Facts | None) -> str:
    return str(user["username"]) if user else m.GHOST


def to_seconds(when: str | None) -> float:
    return datetime.fromisoformat(when).timestamp() if when else 0.0


def is_open(facts: Facts) -> bool:
    return facts["state"] in ("opened", "locked")  # it is locked while it is merged


def to_check(facts: Facts) -> m.PullCheck:
    """A job or commit status; jobs have other names for the same fields."""
    is_optional = bool(facts.get("allow_failure")) and facts["status"] in ("failed", "canceled", "manual")
    state = m.CheckState.PASSED if is_optional else CHECK_STATES.get(facts["status"], m.CheckState.PENDING)
    return m.PullCheck(
        name=facts["name"],
        state=state,
        url=facts.get("target_url") or facts.get("web_url") or "",
        summary=facts.get("description") or "",
        changed=to_seconds(facts.get("finished_at") or facts.get("started_at") or facts.get("created_at")),
    )


def to_messages(
    notes: Sequence[tuple[Facts, str]], states: Iterable[Facts], approvals: Iterable[Facts], *, head: Oid
) -> tuple[m.PullMessage, ...]:
    """The notes, each with its thread, and the opinions of reviewers, oldest first.

    An opinion has no text: an objection takes its author's newest note. It has no time, either; GitLab notes each
    change by itself, and newer versions say when one approved.
    """
    changed = {user_name(note["author"]): note["created_at"] for note, _ in notes if note["system"]}
    changed |= {user_name(facts.get("user")): facts["approved_at"] for facts in approvals if facts.get("approved_at")}
    shown: list[m.PullMessage] = []
    for note, thread in notes:
        if note["system"] or note.get("resolved"):
            continue
        position = note.get("position") or {}
        path = position.get("new_path") or position.get("old_path") or ""
        line = position.get("new_line") or position.get("old_line")
        first = ((position.get("line_range") or {}).get("start") or {}).get("new_line") or line
        message = m.PullMessage(
            id=f"{'line' if path else 'comment'} {note['id']}",
            author=user_name(note["author"]),
            text=note["body"] or "",
            changed=to_seconds(note["updated_at"]),
            place=f"{path}:{line if first == line else f'{first}-{line}'}" if line else path,
            thread=thread if path else "",
        )
        shown.append(message)
    for facts in states:
        name, state = user_name(facts["user"]), facts["state"]
        id_ = f"review {name} {state} {head:.12}"
        when = to_seconds(changed.get(name))
        opinion = m.PullMessage(id=id_, author=name, text="", changed=when, is_approval=state == APPROVED)
        remarks = [message for message in shown if message.author == name and message.text[:1] not in ("", "/")]
        remarks = [message for message in remarks if not message.place]  # neither on a line nor a command
        if remarks and state == OBJECTION:
            shown.remove(remarks[-1])
            opinion = replace(remarks[-1], id=f"review {remarks[-1].id}")
        if state in (APPROVED, OBJECTION):
            shown.append(opinion)
    return tuple(sorted(shown, key=lambda message: message.changed))


def to_issue(facts: Facts) -> m.Issue:
    return m.Issue(
        number=facts["iid"],
        title=facts["title"],
        body=facts.get("description") or "",
        is_open=facts["state"] == "opened",
        url=facts["web_url"],
        author=user_name(facts.get("author")),
        closed_by=(facts.get("closed_by") or {}).get("username", ""),
    )
