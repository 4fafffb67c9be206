"""runplan check: a plan file as runplan parses it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from runplan.adapters.configuration.load import environment, load_user
from runplan.adapters.store.files import publish
from runplan.domain import names
from runplan.domain.errors import Exit, NotFound, RefusedEarly
from runplan.domain.plan.body import WHOLE_PHASE, named_paths
from runplan.domain.plan.marks import ExecutionKind, NoWorkKind
from runplan.domain.plan.model import Phase, Plan, other_way, parse_plan
from runplan.domain.plan.reading import Reading
from runplan.domain.plan.tracker import NoPhase, add_tracker, choose_phase
from runplan.domain.text import command, cut_cells, visible
from runplan.engine.loop.context import describe_link, open_context, plan_in, plan_path, read_checkout, task_folder
from runplan.engine.loop.preflight import foresee_refusals
from runplan.engine.report.views import as_json

WIDEST_ITEM = 100  #: cells of an item that are shown


def run_check(args: argparse.Namespace) -> Exit:
    file, name = _find_file(args.plan)
    if link := describe_link(file, name, "check"):
        raise (RefusedEarly if file.is_file() else NotFound)(link)
    text = read_checkout(file, name)
    if args.fix:
        fixed = add_tracker(text, path=name)
        note = "the plan has statuses already; nothing was added"
        if fixed != text:
            mode = file.stat().st_mode
            publish(file, fixed, sync=True)
            file.chmod(mode)
            text = fixed
            note = "a tracker was added"
        print(f"runplan: {name}: {note}", file=sys.stderr)
    plan = parse_plan(text, path=name)
    readings = other_way(text, path=name)
    with contextlib.suppress(RefusedEarly), open_context(file.parent, warn=lambda _: None) as context:
        plan = foresee_refusals(context, plan, context.tip())
    picture = [] if args.json else [*_draw_plan(plan), *_describe_plan(plan, readings, text)]
    print(as_json(_view_plan(plan, readings)) if args.json else visible("\n".join(picture), is_prose=True))
    return Exit.USAGE if plan.refusals(strict=args.strict) else Exit.DONE


def _find_file(word: str) -> tuple[Path, str]:
    """The file as given, else the plan of this repository by that name."""
    file = plan_in(Path(word))
    if os.path.isfile(file) or os.path.islink(file) or task_folder(file):  # noqa: PTH113, PTH114 - a name may be long
        names.require_plain(file.name if file.is_absolute() else str(file))
        return file, str(file)
    if word.endswith(".md"):
        raise NotFound(f"{names.shown(word)}: no such file")
    try:
        with open_context() as context:
            path = plan_path(context, word)
            file = context.root / path
            if not os.path.lexists(file):
                shown = f"a proposed plan is shown by: {command('runplan', 'diff', path)}"
                raise NotFound(f"{path} is not in the checkout; {shown}")
            return file, path
    except RefusedEarly as error:  # outside of a repository a plan is a file
        if os.path.isfile(f"{word}.md"):  # noqa: PTH113 - likewise
            return _find_file(f"{word}.md")
        raise NotFound(f"{names.shown(word)}: no such plan file; {error}") from None


def _view_plan(plan: Plan, readings: tuple[Reading, Reading] | None) -> dict[str, Any]:
    return {
        "plan": plan.path,
        "title": plan.title,
        "status": plan.status or None,
        "complete": plan.complete,
        "format": plan.format,
        "read_as": plan.read_as,
        "readings": [
            {"format": way.format, "read_as": way.name, "phases": len(way.places), "line": way.decided_by + 1}
            for way in readings or ()
        ],
        "issues": plan.issues,
        "phases": [_view_phase(phase) for phase in plan.phases],
        "warnings": plan.remarks,
    }


def _view_phase(phase: Phase) -> dict[str, Any]:
    shown = {name: getattr(phase, name) for name in phase.__struct_fields__ if name not in ("text", "heading_line")}
    items = [{**asdict(item), "paths": named_paths(item.text)} for item in phase.items]
    return {**shown, "items": items, "commit": phase.commit or None, "execution": phase.execution.text}


def _draw_plan(plan: Plan) -> list[str]:
    """The phases as a tree: each below the last phase that it waits for."""
    order = {phase.id: number for number, phase in enumerate(plan.phases)}
    below: dict[str | None, list[Phase]] = {}
    for phase in plan.phases:
        below.setdefault(max(phase.depends, key=lambda id_: order[id_], default=None), []).append(phase)
    lines = [f"{plan.title}  ({plan.path}, read as: {plan.read_as})", ""]
    drawn: set[str] = set()
    for root in (*below.get(None, ()), *plan.phases):  # phases that are done may wait for each other
        left: list[tuple[Phase, str, str, frozenset[str]]] = [(root, "", "", frozenset())]
        while left:
            phase, branch, inner, above = left.pop()
            if phase.id in drawn:
                continue
            drawn.add(phase.id)
            also = ", ".join(id_ for id_ in phase.depends if id_ not in above)
            lines.append(
                f"{branch}{phase.id}  {phase.title}  [{phase.status}]{f'  (also after {also})' if also else ''}"
            )
            children = below.get(phase.id, [])
            lines += [f"{inner}{'│' if children else ' '}     {detail}" for detail in _describe_phase(phase)]
            for child in reversed(children):
                is_last = child is children[-1]
                mark, rail = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
                left.append((child, inner + mark, inner + rail, above | {phase.id}))
    return lines


def _describe_phase(phase: Phase) -> Iterator[str]:
    for item in phase.items:
        if item.id != WHOLE_PHASE:
            yield f"{item.id} {cut_cells(item.text, WIDEST_ITEM)}"
        if paths := named_paths(item.text):
            yield f"{item.id} names: {', '.join(paths)}"
    yield from (f"sign-off: {cut_cells(text, WIDEST_ITEM)}" for text in phase.sign_off)
    for name in ("touches", "allows", "soft"):
        if values := getattr(phase, name):
            yield f"{'ideally after' if name == 'soft' else name}: {', '.join(values)}"
    if phase.note:
        yield f"{phase.status}: {cut_cells(phase.note, WIDEST_ITEM)}"
    if phase.host:
        effect = "" if load_user(environment()).fleet.dsn else " (no effect without a fleet)"
        yield f"host: {', '.join(phase.host)}{effect}"
    if phase.execution.kind is not ExecutionKind.WORKTREE:
        yield f"execution: {phase.execution.text}"


def _describe_plan(plan: Plan, readings: tuple[Reading, Reading] | None, text: bytes) -> Iterator[str]:
    due = choose_phase(plan, wanted=None)
    inactive = [due.detail] if isinstance(due, NoPhase) and due.kind is NoWorkKind.INACTIVE else []
    if plan.remarks or readings or inactive:
        yield ""
    yield from (f"{plan.path}: warning: {detail}" for detail in inactive)
    for remark in plan.remarks:
        yield f"{plan.path}:{remark.line}: {'error' if remark.is_error else 'warning'}: {remark.text}"
    if readings is not None:
        chosen, other = readings
        lines = text.decode().splitlines()
        yield f"{plan.path} can be read in two ways:"
        for reading in readings:
            where = f"line {reading.decided_by + 1}: {lines[reading.decided_by].strip()}"
            yield f"  {reading.name}, {len(reading.places)} phases ({where}){' - chosen' if reading is chosen else ''}"
        word = other.format if chosen.format is not other.format else other.name.lower()
        yield f"  To choose the other one, add to the front matter: format: {word}"
