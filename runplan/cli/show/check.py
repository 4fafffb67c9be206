"""runplan check: a plan file as runplan parses it."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan import names
from runplan.errors import Exit, NotFound, PlanUnreadable, UsageError

if TYPE_CHECKING:
    import argparse

    from runplan.plan.model import Plan

EXAMPLES = """\
  runplan check plans/X.md              phases, dependencies and items as understood
  runplan check plans/X.md --fix        add a tracker to a plan of bare phase sections
  runplan check plans/X.md --strict     warnings are errors (exit 2)"""

LARGEST = 64 * 1024 * 1024  #: bytes read; the parser refuses much smaller files


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a file, or a plan of this repository")
    parser.add_argument("--fix", action="store_true", help="add a tracker to a plan of bare phase sections")
    parser.add_argument("--strict", action="store_true", help="turn warnings into errors")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    from runplan.plan.model import parse

    file, name = _file(args.plan)
    text = _read(file, name)
    if args.fix:
        from runplan.plan.tracker import add_tracker

        fixed = add_tracker(text, path=name)
        note = "the plan has statuses already; nothing was added"
        if fixed != text:
            _replace(file, fixed)
            text, note = fixed, "a tracker was added"
        print(f"runplan: {name}: {note}", file=sys.stderr)
    plan = parse(text, path=name)
    print(json.dumps(_view(plan), ensure_ascii=False, indent=2) if args.json else _table(plan))
    return Exit.USAGE if args.strict and plan.remarks else Exit.DONE


def _file(word: str) -> tuple[Path, str]:
    """The file as given, else the plan of this repository by that name."""
    given = Path(word)
    if os.path.isdir(given):  # noqa: PTH112 - a name too long for a file is answered, not raised
        raise UsageError(f"{word} is a directory; name the plan file in it")
    exists = os.path.exists(given)  # noqa: PTH110 - likewise
    if exists or word.endswith(".md"):
        if exists:
            names.require_plain(given.name if given.is_absolute() else word)
        return given, names.shown(word)
    from runplan.engine.context import open_context, plan_path

    with open_context() as at:
        path = plan_path(at, word)
        return at.repository.root / path, path


def _read(file: Path, name: str) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG):
            raise
        raise NotFound(f"{name}: no such file") from None


def _replace(file: Path, text: bytes) -> None:
    """Replace the file atomically, with its mode."""
    draft = file.with_name(f".{file.name}.draft")
    draft.write_bytes(text)
    draft.chmod(file.stat().st_mode & 0o777)
    os.replace(draft, file)


def _view(plan: Plan) -> dict[str, Any]:
    return {
        "plan": plan.path,
        "title": plan.title,
        "status": plan.status or None,
        "complete": plan.complete,
        "format": str(plan.format),
        "issues": list(plan.issues),
        "phases": [
            {
                "id": phase.id,
                "title": phase.title,
                "status": str(phase.status),
                "commit": phase.commit or None,
                "line": phase.line,
                "depends": list(phase.depends),
                "soft": list(phase.soft),
                "touches": list(phase.touches),
                "allows": list(phase.allows),
                "execution": phase.execution,
                "items": [{"id": item.id, "text": item.text} for item in phase.items],
            }
            for phase in plan.phases
        ],
        "warnings": [{"line": remark.line, "text": remark.text} for remark in plan.remarks],
    }


def _table(plan: Plan) -> str:
    rows = [("Phase", "Status", "Depends on", "Items", "Title")]
    rows += [
        (phase.id, str(phase.status), ", ".join(phase.depends) or "-", _items(phase.items), phase.title)
        for phase in plan.phases
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    ]
    lines = [f"{plan.title}  ({plan.path}, statuses in the {plan.format})", "", *table]
    if plan.remarks:
        lines += ["", *(f"{plan.path}:{remark.line}: warning: {remark.text}" for remark in plan.remarks)]
    return "\n".join(lines)


def _items(items: tuple[Any, ...]) -> str:
    work = sum(item.id.startswith("W") for item in items)
    criteria = sum(item.id.startswith("C") for item in items)
    return f"{work}W {criteria}C" if work or criteria else "whole"


__all__ = ["EXAMPLES", "PlanUnreadable", "arguments", "run"]
