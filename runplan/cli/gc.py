"""runplan gc: what ended runs left behind is removed when its content is on the target, and listed when not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.core.errors import Exit

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan gc --dry-run       list what would go and what is kept, and why
  runplan gc                 remove what is provably on the target"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only list")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.core.gitfacts import Removed
    from runplan.wiring.here import here
    from runplan.wiring.leftovers import collect

    with here() as at:
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
