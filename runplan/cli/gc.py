"""runplan gc: what ended runs left behind is removed when its content is on the target, and listed when not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.core.errors import Exit

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan gc --dry-run       list what would go and what is kept, and why
  runplan gc                 remove what is provably on the target
  runplan gc --release X     drop a claim on a plan that cannot be read, when you know that nobody works on it"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only list")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--release", metavar="PLAN", help="only drop the plan's claim, if it cannot be read")


def run(args: argparse.Namespace) -> Exit:
    from runplan.core.gitfacts import Removed
    from runplan.wiring.here import here, plan_path, refuse_under_agent
    from runplan.wiring.leftovers import collect, release

    with here() as at:
        if args.release is not None:
            refuse_under_agent("gc --release")
            plan = plan_path(at, args.release)
            done = release(at, plan)
            print(f"released the claim on {plan}" if done else f"{plan} has no claim that cannot be read")
            return Exit.DONE
        told = collect(at, dry_run=args.dry_run)
    if args.json:
        print(json.dumps([_view(one) for one in told], ensure_ascii=False, indent=2))
        return Exit.DONE
    verb = "would remove" if args.dry_run else "removed"
    for one in told:
        print(f"{verb}  {one.what}" if isinstance(one, Removed) else f"kept  {one.what}: {one.why}")
    if not told:
        print("Nothing is left over.")
    return Exit.DONE


def _view(one: object) -> dict[str, str]:
    from dataclasses import asdict

    from runplan.core.gitfacts import Kept, Removed

    assert isinstance(one, Removed | Kept)
    return {"answer": type(one).__name__.lower(), **asdict(one)}
