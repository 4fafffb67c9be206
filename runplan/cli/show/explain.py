"""runplan explain: explains the current state, from the function that decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.errors import Exit, NotFound
from runplan.text import escaped

if TYPE_CHECKING:
    import argparse

    from runplan.run.events import Event, Recorded

EXAMPLES = """\
  runplan explain plans/X.md          what is due next, and why; then how it came there
  runplan explain X 2                 the same for one phase of the newest run
  runplan explain X --json            for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a path, a base name, or a unique part of one")
    parser.add_argument("phase", nargs="?", metavar="PHASE", help="only the steps of this phase")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.show.aside import Aside
    from runplan.engine.context import open_context, plan_path
    from runplan.store.journal import recorded

    aside = Aside()
    with open_context(warn=aside.warn) as at:
        store = at.store()
        path = plan_path(at, args.plan) if args.plan is not None else None
        found = store.runs(path, limit=1) if store is not None else []
        if store is None or not found:
            raise NotFound(f"no run of {path or 'any plan'} is recorded here")
        facts = recorded(store, found[0].id)
    steps = _steps(facts, args.phase)
    if args.phase and not steps:
        raise NotFound(f"the run {found[0].id} has not come to a phase {args.phase}")
    now = steps[-1]["why"] if args.phase else _why(facts)
    if args.json:
        whole = {"run": found[0].id, "plan": found[0].plan, "now": now, "steps": steps}
        print(escaped(json.dumps(whole, ensure_ascii=False)))
        return aside.code
    print(f"{found[0].plan}, run {found[0].id}\n\nnow: {now}\n")
    for step in steps:
        print(f"{step['at']}  {step['event']:<18}  then: {step['why']}")
    return aside.code


def _why(facts: list[Recorded[Event]]) -> str:
    from runplan.run.decide import decide
    from runplan.run.state import fold

    return decide(fold(one.fact for one in facts)).why


def _steps(facts: list[Recorded[Event]], phase: str | None) -> list[dict[str, str]]:
    """After each recorded fact, what the machine decided because of it."""
    from runplan.run.decide import decide
    from runplan.run.events import name_of
    from runplan.run.state import RunState, apply

    state = RunState()
    steps = []
    for one in facts:
        state = apply(state, one.fact)
        lanes = {lane.name: lane.phase for lane in state.lanes}
        at_phase = lanes.get(one.lane, "") or (state.phase.read.phase if state.phase else "")
        if phase is None or at_phase == phase:
            steps.append({"at": one.at, "event": name_of(one.event), "phase": at_phase, "why": decide(state).why})
    return steps
