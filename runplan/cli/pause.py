"""runplan pause: begin nothing new for a plan; what runs may end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.commands import command
from runplan.core.errors import Exit, NotFound, Unreachable

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan pause plans/X.md      until: runplan resume plans/X.md"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli import progress
    from runplan.wiring.here import here_anyhow, plan_path, refuse_under_agent
    from runplan.wiring.stopping import pause

    refuse_under_agent("pause")
    with here_anyhow(progress.warn) as at:
        plan = plan_path(at, args.plan)
        told, unanswered = pause(at, plan)
    if unanswered:
        raise Unreachable(unanswered)
    if not told:
        raise NotFound(f"the daemon has no run and no schedule of {plan}; see: {command('runplan', 'status', plan)}")
    progress.say(f"runplan: {told[0]}; go on with: {command('runplan', 'resume', plan)}")
    return Exit.DONE
