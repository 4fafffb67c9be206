"""Finds plans and their phases by the words that a person types."""

from __future__ import annotations

from runplan.adapters.git.objects import read_plan
from runplan.app.operations.model import Caller
from runplan.domain.plan.model import Phase, parse_plan
from runplan.engine.loop.context import known_plans, plan_path, read_checkout, spec_plans


def list_plan_paths(caller: Caller) -> list[str]:
    """The plans in the checkout and on the target, also those of other tools."""
    with caller.open(lenient=True) as context:
        return [*known_plans(context, ()), *spec_plans(context.root)]


def list_phases(caller: Caller, word: str) -> tuple[Phase, ...]:
    """The phases of the plan that the word means, as the checkout has it; else as the target has it."""
    with caller.open(lenient=True) as context:
        path = plan_path(context, word)
        file = context.root / path
        name = f"{context.tip()}:{path}"
        text = read_checkout(file, path) if file.exists() else read_plan(context.git, name, path)
    return tuple(parse_plan(text or b"", path=path).phases)
