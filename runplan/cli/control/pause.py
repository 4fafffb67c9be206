"""runplan pause: pause a plan; the current step finishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import Exit, NotFound, error_with
from runplan.text import command

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan pause plans/X.md      until: runplan resume plans/X.md"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.control import submit
    from runplan.cli.show import progress
    from runplan.daemon import submitting
    from runplan.engine.context import is_kept, open_context, plan_path, refuse_under_agent
    from runplan.run.requests import BY_PERSON
    from runplan.run.rows import Command

    refuse_under_agent("pause")
    with open_context(warn=progress.warn) as at:
        plan = plan_path(at, args.plan)
        nothing = NotFound(f"{plan} has no daemon run and no schedule; see: {command('runplan', 'status', plan)}")
        if not is_kept(at, plan):
            raise nothing
        asked = Command(plan=plan, verb="pause", arguments={}, by=BY_PERSON, at="")
        (answer,) = submitting.submit(at, [asked], talk=submit.TALK)
    if answer is not None and answer.error:
        raise error_with(answer.error, answer.exit)
    if answer is not None and not answer.lines:
        raise nothing
    message = answer.lines[0] if answer is not None else submit.BUSY
    progress.say(f"runplan: {message}. Resume with: {command('runplan', 'resume', plan)}")
    return Exit.DONE
