"""runplan retry: resume the last run, or restart its failed phase."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.errors import Exit, NotFound
from runplan.text import command

if TYPE_CHECKING:
    import argparse

    from runplan.run.events import RunStarted
    from runplan.store.sqlite import Store

EXAMPLES = """\
  runplan retry plans/X.md        again, with the options of the last run
  runplan retry plans/X.md 4b     only this phase, landing the same way"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")
    parser.add_argument("phase", metavar="PHASE", nargs="?", help="a phase id; default: as the last run")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, plan_path, refuse_under_agent

    refuse_under_agent("retry")
    with open_context() as at:
        from runplan.cli.control import prepare
        from runplan.cli.control.undo import undo
        from runplan.cli.show import progress
        from runplan.engine.acquire import ended_well
        from runplan.run.state import words

        path = plan_path(at, args.plan)
        store = at.store()
        row = store.newest(path) if store is not None else None
        if store is None or row is None:
            raise NotFound(f"no run of {path} is recorded here; start one: {command('runplan', 'start', path)}")
        state = prepare.state_of(store, row)
        assert state.started is not None
        if row.state == "done" and not args.phase:
            progress.say(f"runplan: {ended_well(path)}")
            return Exit.DONE
        at = at.for_run(state.started)
        if state.started.mode == "undo" and not args.phase:
            return undo(at, path, state.started.wanted)
        asked = replace(state.started, auto=state.auto)
        if args.phase:
            asked = replace(_worked(store, asked), mode="phase", wanted=args.phase, landing=asked.landing)
        again = not args.phase
        if asked.daemon:
            from runplan.cli.control import submit

            return submit.start(at, path, words(asked), wait=False, again=again, like=asked)
        return prepare.start(at, path, words(asked), again=again, like=asked)


def _worked(store: Store, newest: RunStarted) -> RunStarted:
    """The newest run that was not an undo."""
    from runplan.run.events import RunStarted

    if newest.mode != "undo":
        return newest
    earlier = (one.event for one in reversed(store.facts(RunStarted, plan=newest.plan)))
    worked = (started for started in earlier if started.mode != "undo")
    return next(worked, replace(newest, auto=False))
