"""runplan resume: resume a paused plan and its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import Exit, NotFound
from runplan.text import command

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan resume plans/X.md     after a pause, a failed phase, or a restart that lost a key"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.control import submit
    from runplan.cli.show import progress
    from runplan.engine.context import is_kept, open_context, plan_path, refuse_under_agent
    from runplan.run.requests import BY_PERSON
    from runplan.run.rows import Command

    refuse_under_agent("resume")
    with open_context() as at:
        plan = plan_path(at, args.plan)
        asked = Command(plan=plan, verb="resume", arguments={}, by=BY_PERSON, at="")
        lines = submit.submit(at, asked).lines if is_kept(at, plan) else ()
    if not lines:
        raise NotFound(f"{plan} has no daemon run and no schedule; start it: {command('runplan', 'start', plan)}")
    progress.say(f"runplan: {lines[0]}; see: {command('runplan', 'status', plan)}")
    return Exit.DONE
