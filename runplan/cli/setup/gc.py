"""runplan gc: remove the leftovers of ended runs whose content is on the target; list the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.errors import Exit
from runplan.text import escaped, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from runplan.git.removal import Kept, Removed

EXAMPLES = """\
  runplan gc --dry-run       list what would be removed and what is kept, and why
  runplan gc                 remove leftovers that are provably on the target"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only list")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from msgspec import to_builtins

    from runplan.engine.context import open_context, refuse_under_agent
    from runplan.engine.leftovers import collect

    if not args.dry_run:
        refuse_under_agent("gc")
    with open_context() as at:
        found, logs = collect(at, dry_run=args.dry_run)
    if args.json:
        rows = [{"answer": type(one).__name__.lower(), **to_builtins(one)} for one in (*found, *logs)]
        print(escaped(json.dumps(rows, ensure_ascii=False, indent=2)))
        return Exit.DONE
    for line in _lines(found, logs, "would remove" if args.dry_run else "removed"):
        print(plain(line))
    return Exit.DONE


def _lines(found: Sequence[Removed | Kept], logs: Sequence[Removed | Kept], verb: str) -> Iterator[str]:
    """One line for each leftover; logs are many, so those with the same answer share a line."""
    from runplan.git.removal import Kept

    for one in found:
        yield f"kept  {one.what}: {one.why}" if isinstance(one, Kept) else f"{verb}  {one.what}"
    by_reason: dict[str, list[str]] = {}
    for one in logs:
        by_reason.setdefault(one.why if isinstance(one, Kept) else "", []).append(one.what)
    for why, names in sorted(by_reason.items()):
        many = f"{len(names)} log{'' if len(names) == 1 else 's'} of agents and checks in {names[0].rpartition('/')[0]}"
        yield f"kept  {many}: {why}" if why else f"{verb}  {many}: their phases have landed"
    if not found and not logs:
        yield "Nothing is left over."
