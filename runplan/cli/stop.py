"""runplan stop: cancel schedules and end runs, keeping what was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.errors import Exit, Unreachable

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan stop                  everything in this repository
  runplan stop plans/X.md       the plan's schedule and its run"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="a plan; without it, all of this repository")
    parser.add_argument(
        "--force", action="store_true", help="do not wait for a run of another terminal to end by itself"
    )


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli import progress
    from runplan.wiring.here import here_anyhow, plan_path, refuse_under_agent
    from runplan.wiring.stopping import stop

    refuse_under_agent("stop")
    with here_anyhow(progress.warn) as at:
        plan = plan_path(at, args.plan) if args.plan else None
        told, unanswered = stop(at, plan, force=args.force)
    for line in told:
        progress.say(f"runplan: {line}")
    if unanswered:
        raise Unreachable(unanswered)
    if not told:
        progress.say(f"runplan: nothing runs {f'for {plan}' if plan else 'here'}, and nothing is scheduled")
    return Exit.DONE
