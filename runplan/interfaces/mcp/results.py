"""Results of tools as structured content and as readable text, bounded. Pure."""

import json
import re
from typing import Any, TypeAlias

from msgspec import Struct, to_builtins

from runplan.app.views.status import PlanView
from runplan.domain.errors import NotFound
from runplan.domain.standing.phases import PhaseState
from runplan.domain.text import visible

LARGEST_TEXT = 20_000  #: characters of one text of a result
LINES_SHOWN = 30  #: of a followed run
_FILE_OF_DIFF = re.compile(r"(?m)^(?=diff --git )")
#: The fields of a plan and of its run in a list.
_PLAN_FIELDS = ("plan", "title", "status", "next", "schedule")
_RUN_FIELDS = ("id", "state", "phase", "step", "waiting_for", "outcome", "reason")


Content: TypeAlias = dict[str, object]


class Result(Struct, frozen=True, kw_only=True):
    text: str
    content: Content
    is_error: bool = False


def make_result(content: Content, *, is_error: bool = False) -> Result:
    kept: Content = bound(content)
    return Result(text=render(kept), content=kept, is_error=is_error)


def list_plan(view: PlanView) -> Content:
    done = sum(phase.state is PhaseState.DONE for phase in view.phases)
    return {
        **{name: to_builtins(getattr(view, name)) for name in _PLAN_FIELDS},
        "done": f"{done} of {len(view.phases)} phases",
        "run": view.run and {name: getattr(view.run, name) for name in _RUN_FIELDS},
        "user_can": [f"{action.label}: {action.command}" for action in view.needed_actions],
    }


def cut_diff(diff: str, file: str, offset: int) -> str:
    """The part of the diff, and how to see the rest. Every character is visible."""
    diff = visible(diff)
    if file:
        head, *parts = _FILE_OF_DIFF.split(diff)
        ends = (f" b/{file}", f' "b/{file}"')  # git quotes special characters
        diff = next((part for part in parts if part.partition("\n")[0].endswith(ends)), "")
        if not diff:
            raise NotFound(f"{file}: no such file in the diff:\n{head}")
    end = offset + LARGEST_TEXT
    rest = len(diff) - end
    note = f"\n[{rest} more characters: call diff with file, or with offset {end}]" if rest > 0 else ""
    return diff[offset:end] + note


def bound(value: Any) -> Any:
    """The value without empty fields, its longest texts cut and each character visible: a model pays for each word."""
    match value:
        case dict():
            return {name: bound(inner) for name, inner in value.items() if inner not in (None, "", [], {})}
        case list():
            return [bound(inner) for inner in value]
        case str() if len(value) > LARGEST_TEXT + 100:  # the note of a diff that was cut
            more = len(value) - LARGEST_TEXT
            return f"{visible(value[:LARGEST_TEXT], is_prose=True)}\n[{more} more characters: use the runplan command]"
        case str():
            return visible(value, is_prose=True)
        case _:
            return value


def render(value: Any, indent: str = "") -> str:
    """The value as indented lines: `name: value`, and `-` before the entries of a list."""
    match value:
        case dict():
            lines = []
            for name, inner in value.items():
                is_block = isinstance(inner, (dict, list)) or (isinstance(inner, str) and "\n" in inner.rstrip())
                shown = f"\n{render(inner, f'{indent}  ')}" if is_block else f" {render(inner)}"
                lines.append(f"{indent}{name}:{shown}")
            return "\n".join(lines)
        case list():
            return "\n".join(f"{indent}- {render(inner, f'{indent}  ').lstrip()}" for inner in value)
        case str():
            return "\n".join(f"{indent}{line}" for line in value.rstrip().split("\n"))
        case _:
            return f"{indent}{json.dumps(value)}"
