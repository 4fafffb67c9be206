"""runplan check: a plan file as runplan parses it."""

import argparse
from collections.abc import Iterator

from msgspec.structs import asdict, replace

from runplan.app.operations.model import Caller
from runplan.app.operations.start import check_start
from runplan.app.views.checks import read_plan_file, view_plan_file
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit, RunplanError
from runplan.domain.plan.body import WHOLE_PHASE, named_paths
from runplan.domain.plan.marks import ExecutionKind, NoWorkKind
from runplan.domain.plan.model import Phase, Plan
from runplan.domain.plan.tracker import NoPhase, choose_phase
from runplan.domain.text import cut_cells, plain, visible
from runplan.interfaces.cli.terminal import say, warn

WIDEST_ITEM = 100  #: cells of an item that are shown


def run_check(args: argparse.Namespace) -> Exit:
    caller = Caller(say=say)
    read = read_plan_file(caller, args.plan, fix=args.fix)
    plan = read.plan
    due = choose_phase(plan, wanted=None)
    if args.json:
        print(as_json(view_plan_file(read)))
    else:
        lines = _draw_plan(plan, is_fleet=bool(caller.user_settings.fleet.dsn))
        inactive = [due.detail] if isinstance(due, NoPhase) and due.kind is NoWorkKind.INACTIVE else []
        lines += [""] if plan.remarks or read.readings or inactive else []
        lines += [f"{plan.path}: warning: {detail}" for detail in inactive]
        for remark in plan.remarks:
            lines.append(f"{plan.path}:{remark.line}: {'error' if remark.is_error else 'warning'}: {remark.text}")
        if read.readings is not None:
            chosen, other = read.readings
            texts = read.text.decode().splitlines()
            lines.append(f"{plan.path} can be read in two ways:")
            for way in read.readings:
                where = f"line {way.decided_by + 1}: {texts[way.decided_by].strip()}"
                mark = " - chosen" if way is chosen else ""
                lines.append(f"  {way.name}, {len(way.places)} phases ({where}){mark}")
            word = other.format if chosen.format is not other.format else other.name.lower()
            lines.append(f"  To choose the other one, add to the front matter: format: {word}")
        print(visible("\n".join(lines), is_prose=True))
    if args.preflight:
        try:
            check_start(replace(caller, warn=warn), args.plan)
        except RunplanError as error:
            say(f"a start would be refused: {error}")
            return Exit.FAILED
    if plan.refusals(strict=args.strict):
        return Exit.USAGE
    if read.next and not args.json and not isinstance(due, NoPhase):
        print(plain(f"\nNext: {read.next}"))
    return Exit.DONE


def _draw_plan(plan: Plan, *, is_fleet: bool) -> list[str]:
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
            after = f"  (also after {also})" if also else ""
            lines.append(f"{branch}{phase.id}  {phase.title}  [{phase.status}]{after}")
            children = below.get(phase.id, [])
            bar = "│" if children else " "
            lines += [f"{inner}{bar}     {detail}" for detail in _describe_phase(phase, is_fleet=is_fleet)]
            for child in reversed(children):
                mark, rail = ("└─ ", "   ") if child is children[-1] else ("├─ ", "│  ")
                left.append((child, inner + mark, inner + rail, above | {phase.id}))
    return lines


def _describe_phase(phase: Phase, *, is_fleet: bool) -> Iterator[str]:
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
        effect = "" if is_fleet else " (no effect without a fleet)"
        yield f"host: {', '.join(phase.host)}{effect}"
    yield from (f"{name}: {value}" for name, value in asdict(phase.own).items() if value)
    if phase.pull_request:
        yield f"pull request: {phase.pull_request}"
    if phase.execution.kind is not ExecutionKind.WORKTREE:
        yield f"execution: {phase.execution.text}"
