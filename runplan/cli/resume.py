"""runplan resume: let a paused plan and its schedule go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.commands import command
from runplan.core.errors import Exit, NotFound

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan resume plans/X.md     after a pause, a failed phase, or a restart that lost a key"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli import progress
    from runplan.cli.handing import waits_for
    from runplan.wiring import handing
    from runplan.wiring.here import here, plan_path, refuse_under_agent
    from runplan.wiring.stopping import is_there

    refuse_under_agent("resume")
    with here() as at:
        plan = plan_path(at, args.plan)
        told = handing.resume(at, plan, say=waits_for).get("told") if is_there(at, plan) else None
    if not told:
        raise NotFound(
            f"the daemon has no run and no schedule of {plan}; start it: {command('runplan', 'start', plan)}"
        )
    progress.say(f"runplan: {told[0]}; see: {command('runplan', 'status', plan)}")
    return Exit.DONE
