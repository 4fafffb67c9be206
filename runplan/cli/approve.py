"""runplan approve: a person lets the waiting candidate land, and the run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from runplan.core.errors import Exit

EXAMPLES = """\
  runplan approve plans/X.md      land what was shown, then go on as the run was started"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, refuse_under_agent

    refuse_under_agent("approve")
    with open_context() as at:
        from runplan.cli.answers import answer_waiting
        from runplan.core.events import Approved

        return answer_waiting(at, args.plan, lambda tree: Approved(tree=tree), waits=("approval",))
