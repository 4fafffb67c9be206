"""runplan start: work a plan, in this process, to its end or to where a person is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.errors import Exit, RefusedEarly

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan start plans/X.md --foreground               the next phase; asks before it lands
  runplan start plans/X.md 4b auto --foreground       one phase, without asking
  runplan start X finish auto --foreground            everything, phase after phase
  runplan start X finish auto direct --foreground     the same, pushed to the remote's branch
  runplan start X finish --dry-run                    what would be done; changes nothing"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a path, a base name, or a unique part of one under plans/")
    parser.add_argument(
        "words", nargs="*", default=[], metavar="WORD", help="a phase id or `finish`; `auto`; cherry-pick or direct"
    )
    parser.add_argument("--foreground", action="store_true", help="run here and exit with the outcome")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done and change nothing")


def run(args: argparse.Namespace) -> Exit:
    from runplan.wiring.here import here, refuse_under_agent

    refuse_under_agent("start")
    if not args.foreground and not args.dry_run:
        raise RefusedEarly("there is no daemon in this version of runplan; add --foreground to run it here")
    with here() as at:
        from runplan.cli import carrying

        if not args.dry_run:
            return carrying.start(at, args.plan, args.words)
        at = carrying.towards_landing(at, args.words)
        errand = carrying.errand_for(at, args.plan, args.words)
        print(errand if isinstance(errand, str) else carrying.dry_run(at, errand))
        return Exit.DONE
