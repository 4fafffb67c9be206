"""The operations by name, for interfaces that make requests of named fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from runplan.app.operations import answers, commands, model, planning, retry, start, upkeep
from runplan.app.operations.model import Caller, Operation, Outcome, try_operation
from runplan.domain.decoding import convert
from runplan.domain.errors import UsageError

#: The function and the type of its request.
OPERATIONS: dict[str, tuple[Operation[Any], type[model.Request]]] = {
    "start": (start.start, model.Start),
    "watch-issues": (start.watch_issues, model.WatchIssues),
    "plan": (planning.plan, model.Plan),
    "edit": (planning.edit, model.Edit),
    "stop": (commands.stop, model.Stop),
    "pause": (commands.pause, model.Named),
    "resume": (commands.resume, model.Named),
    "now": (commands.now, model.Named),
    "retry": (retry.retry, model.Retry),
    "undo": (retry.undo, model.Undo),
    "approve": (answers.approve, model.Judge),
    "reject": (answers.reject, model.Judge),
    "answer": (answers.answer, model.Reply),
    "init": (upkeep.init, model.Initialize),
    "gc": (upkeep.gc, model.Collect),
}


def try_named(name: str, caller: Caller, fields: Mapping[str, object]) -> Outcome:
    """Carry out the operation of this name with the fields of its request."""
    function, kind = OPERATIONS[name]
    try:
        request = convert(fields, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}") from None
    return try_operation(function, caller, request)
