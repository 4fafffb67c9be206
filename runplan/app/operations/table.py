"""The operations by name, for interfaces that make requests of named fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from runplan.app.operations import answers, commands, planning, retry, start
from runplan.app.operations.model import (
    Caller,
    Edit,
    Judge,
    Named,
    Operation,
    Outcome,
    Plan,
    Reply,
    Request,
    Retry,
    Start,
    Stop,
    Undo,
    WatchIssues,
    try_operation,
)
from runplan.domain.decoding import convert
from runplan.domain.errors import UsageError

#: The function and the type of its request.
OPERATIONS: dict[str, tuple[Operation[Any], type[Request]]] = {
    "start": (start.start, Start),
    "watch-issues": (start.watch_issues, WatchIssues),
    "plan": (planning.plan, Plan),
    "edit": (planning.edit, Edit),
    "stop": (commands.stop, Stop),
    "pause": (commands.pause, Named),
    "resume": (commands.resume, Named),
    "now": (commands.now, Named),
    "retry": (retry.retry, Retry),
    "undo": (retry.undo, Undo),
    "approve": (answers.approve, Judge),
    "reject": (answers.reject, Judge),
    "answer": (answers.answer, Reply),
}


def try_named(name: str, caller: Caller, fields: Mapping[str, object]) -> Outcome:
    """Carry out the operation of this name with the fields of its request."""
    function, kind = OPERATIONS[name]
    try:
        request = convert(fields, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}") from None
    return try_operation(function, caller, request)
