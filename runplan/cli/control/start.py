"""runplan start: run a plan, in the daemon or in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import Exit

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan start plans/X.md finish auto                everything, phase after phase, by the daemon
  runplan start plans/X.md auto every 4h              the next phase every 4 hours; with `now` also at once
  runplan start X every "weekday at 9:30"             in run.timezone
  runplan start plans/X.md --foreground               the next phase, here; asks before it lands
  runplan start plans/X.md 4b auto --foreground       one phase, without asking
  runplan start X finish auto direct --foreground     everything, pushed to the remote's branch
  runplan start X finish --dry-run                    what would be done; changes nothing"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")
    parser.add_argument(
        "words",
        nargs="*",
        default=[],
        metavar="WORD",
        help="a phase id or `finish`; `auto`; cherry-pick or direct; every SCHEDULE; now",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--foreground", action="store_true", help="run here and exit with the outcome")
    mode.add_argument("--wait", action="store_true", help="follow the daemon's run and exit with its outcome")
    mode.add_argument("--dry-run", action="store_true", help="show what would be done and change nothing")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, refuse_under_agent

    refuse_under_agent("start")
    with open_context() as at:
        from runplan.cli.control import prepare

        if args.dry_run:
            at = prepare.fixed(prepare.towards_landing(at, args.words), args.words)
            request = prepare.request_for(at, args.plan, args.words)
            print(request if isinstance(request, str) else prepare.dry_run(at, request))
            return Exit.DONE
        if args.foreground:
            return prepare.start(at, args.plan, args.words)
        from runplan.cli.control import submit

        return submit.start(at, args.plan, args.words, wait=args.wait)
