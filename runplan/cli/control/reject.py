"""runplan reject: refuse a pending change; its work stays on its branch and the run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from runplan.errors import Exit

EXAMPLES = """\
  runplan reject plans/X.md -m "the flag must be optional"      the reason goes into the report and to the next agent"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")
    parser.add_argument("-m", dest="why", default="", metavar="REASON", help="why, for the report and the next agent")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.control.approve import answer_pending
    from runplan.engine.context import open_context, refuse_under_agent
    from runplan.run.events import Rejected

    refuse_under_agent("reject")
    with open_context() as at:
        waits = ("approval", "checkout")
        return answer_pending(at, args.plan, lambda tree: Rejected(tree=tree, why=args.why), waits=waits)
