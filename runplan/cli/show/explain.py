"""runplan explain: the current state and how the run got there, by the function that decides."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runplan.cli.terminal import BOLD, DIM, Style, Warnings
from runplan.errors import Exit, NotFound
from runplan.text import clock, escaped, localized, plain

if TYPE_CHECKING:
    import argparse

    from runplan.run.events import Event, Recorded

EXAMPLES = """\
  runplan explain plans/X.md          the next action and its reason, then the steps so far
  runplan explain X 2                 the same for one phase of the newest run
  runplan explain X --json            for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a path, a base name, or a unique part of one")
    parser.add_argument("phase", nargs="?", metavar="PHASE", help="only the steps of this phase")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import newest_run, open_context
    from runplan.store.journal import recorded

    warnings = Warnings()
    with open_context(warn=warnings.warn) as at:
        store, newest = newest_run(at, args.plan)
        every = _steps(recorded(store, newest.id))
    steps = [step for step in every if args.phase in (None, step["phase"])]
    if args.phase and not steps:
        raise NotFound(f"the run {newest.id} has not reached a phase {args.phase}")
    now = steps[-1]["why"] if steps else "nothing has been started"
    if args.json:
        whole = {"run": newest.id, "plan": newest.plan, "now": now, "steps": steps}
        print(escaped(json.dumps(whole, ensure_ascii=False)))
    else:
        _print(f"{newest.plan}, run {newest.id}", now, steps)
    return warnings.exit


def _print(head: str, why: str, steps: list[dict[str, str]]) -> None:
    style, now = Style.of(sys.stdout), datetime.now(UTC)
    print(style.paint(head, BOLD))
    print()
    print(style.wrap(plain(f"now: {localized(why, now=now)}"), "     "))
    print()
    for step in steps:
        at = clock(datetime.fromisoformat(step["at"]), None, now=now)
        text = plain(f"{at:<9}  {step['event']:<18}  then: {localized(step['why'], now=now)}")
        wrapped = style.wrap(text, " " * 31)
        print(style.paint(wrapped[: len(at)], DIM) + wrapped[len(at) :])


def _steps(facts: list[Recorded[Event]]) -> list[dict[str, str]]:
    """After each recorded fact, the decision that followed."""
    from runplan.run.decide import decide
    from runplan.run.events import name_of
    from runplan.run.state import RunState, apply

    state = RunState()
    steps = []
    for one in facts:
        state = apply(state, one.fact)
        lanes = {lane.name: lane.phase for lane in state.lanes}
        phase = lanes.get(one.lane, "") or (state.phase.read.phase if state.phase else "")
        steps.append({"at": one.at, "event": name_of(one.event), "phase": phase, "why": decide(state).why})
    return steps
