"""runplan doctor and gc: check the setup; remove what ended runs left behind."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import to_builtins

from runplan.app.health import Check, examine
from runplan.app.operations.model import Caller
from runplan.app.operations.upkeep import gc
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.text import counted, plain
from runplan.interfaces.cli.show import progress


def run_doctor(args: argparse.Namespace) -> Exit:
    caller = Caller(say=progress.say, show=progress.show_event)
    with progress.live_line():
        checks = examine(caller, runs_once=args.run)
    if args.json:
        print(as_json([{"name": check.name, "ok": check.ok, **to_builtins(check)} for check in checks]))
    else:
        print("\n".join(map(_format_check, checks)))
    return Exit.DONE if all(check.ok for check in checks) else Exit.USAGE


def _format_check(check: Check) -> str:
    detail = check.detail.replace("\n", f"\n{'':<18}")
    line = f"{check.state:<4}  {check.name:<12}{detail}"
    return f"{line}\n      {'':<12}-> {check.remedy}" if check.remedy else line


# --- gc ----------------------------------------------------------------------------------------------------


def run_gc(args: argparse.Namespace) -> None:
    found = gc(Caller(), dry_run=args.dry_run)
    if args.json:
        answers = (*found.answers, *found.logs)
        print(as_json([{"answer": type(answer).__name__.lower(), **to_builtins(answer)} for answer in answers]))
        return
    verb = "would remove" if args.dry_run else "removed"
    for line in _describe_leftovers(found.answers, found.logs, verb):
        print(plain(line))


def _describe_leftovers(answers: Sequence[Removed | Kept], logs: Sequence[Removed | Kept], verb: str) -> Iterator[str]:
    """One line for each leftover; logs are many, so those with the same answer and place share a line."""
    for answer in answers:
        yield f"kept  {answer.what}: {answer.why}" if isinstance(answer, Kept) else f"{verb}  {answer.what}"
    places = ((answer.why if isinstance(answer, Kept) else "", answer.what.rpartition("/")[0]) for answer in logs)
    for (why, place), count in sorted(Counter(places).items()):
        many = f"{counted(count, 'log')} of agents and checks in {place}"
        yield f"kept  {many}: {why}" if why else f"{verb}  {many}: their phases have landed"
    if not answers and not logs:
        yield "Nothing is left over."
