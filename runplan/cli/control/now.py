"""runplan now: run a scheduled plan now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import Exit, NotFound, UsageError
from runplan.text import command

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan now                   the one schedule of this repository
  runplan now plans/X.md        the schedule of this plan"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="a plan that has a schedule")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.control import submit
    from runplan.engine.context import open_context, plan_path, refuse_under_agent, scheduled
    from runplan.run.requests import BY_PERSON
    from runplan.run.rows import Command

    refuse_under_agent("now")
    with open_context() as at:
        plans = scheduled(at)
        if not plans:
            raise NotFound("no schedule here; make one: runplan start PLAN auto every 4h")
        if args.plan is None and len(plans) > 1:
            raise UsageError(f"now: there is more than one schedule; name one of {', '.join(plans)}")
        plan = plan_path(at, args.plan) if args.plan else plans[0]
        if plan not in plans:
            make = command("runplan", "start", plan, "auto", "every", "4h")
            raise NotFound(f"{plan} has no schedule; make one: {make}")
        answer = submit.submit(at, Command(plan=plan, verb="now", arguments={}, by=BY_PERSON, at=""))
    if answer.declined and not answer.owner:
        return submit.not_started(answer)
    submit.print_answer(plan, answer)
    return Exit.DONE
