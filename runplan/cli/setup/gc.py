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
  runplan gc --dry-run       list what would go and what is kept, and why
  runplan gc                 remove what is provably on the target"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only list")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, refuse_under_agent
    from runplan.engine.leftovers import collect

    if not args.dry_run:
        refuse_under_agent("gc")
    with open_context() as at:
        found, logs = collect(at, dry_run=args.dry_run)
    if args.json:
        print(escaped(json.dumps([_view(one) for one in (*found, *logs)], ensure_ascii=False, indent=2)))
        return Exit.DONE
    for line in (*_lines(found, dry_run=args.dry_run), *_log_lines(logs, dry_run=args.dry_run)):
        print(plain(line))
    if not found and not logs:
        print("Nothing is left over.")
    return Exit.DONE


def _lines(found: Sequence[Removed | Kept], *, dry_run: bool) -> Iterator[str]:
    from runplan.git.removal import Removed

    for one in found:
        yield f"{_verb(dry_run)}  {one.what}" if isinstance(one, Removed) else f"kept  {one.what}: {one.why}"


def _log_lines(logs: Sequence[Removed | Kept], *, dry_run: bool) -> Iterator[str]:
    """Logs are many: a line for all that share an answer, with the directory they are in."""
    from runplan.git.removal import Kept

    alike: dict[str, list[str]] = {}
    for one in logs:
        alike.setdefault(one.why if isinstance(one, Kept) else "", []).append(one.what)
    for why, what in sorted(alike.items()):
        home = what[0].rpartition("/")[0]
        logs_of = f"{len(what)} log{'' if len(what) == 1 else 's'} of agents and checks in {home}"
        yield f"kept  {logs_of}: {why}" if why else f"{_verb(dry_run)}  {logs_of}: their phases have landed"


def _verb(dry_run: bool) -> str:
    return "would remove" if dry_run else "removed"


def _view(one: object) -> dict[str, str]:
    from msgspec import to_builtins

    from runplan.git.removal import Kept, Removed

    assert isinstance(one, Removed | Kept)
    return {"answer": type(one).__name__.lower(), **to_builtins(one)}
