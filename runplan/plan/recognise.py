"""Finds the format of a plan: the formats are tried in order, most telling first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import PlanUnreadable
from runplan.plan.formats import checklist, headings, kiro, sections, speckit, table
from runplan.plan.reading import Format, Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.plan.scan import Lines

MAX_PHASES = 1000
RECOGNISERS: dict[Format, Callable[[Lines, str], Reading | None]] = {
    Format.TRACKER: table.read,
    Format.SPEC_KIT: speckit.read,
    Format.HUMANLAYER: sections.read_humanlayer,
    Format.SECTIONS: sections.read,
    Format.KIRO: kiro.read,
    Format.OPENSPEC: headings.read_openspec,
    Format.HEADINGS: headings.read,
    Format.TODO: checklist.read_todo,
    Format.CHECKLIST: checklist.read,
}


def recognise(lines: Lines, path: str, *, wanted: str = "") -> Reading:
    """The reading of the first format that the plan shows, or of the one that its front matter names."""
    if wanted and wanted not in RECOGNISERS:
        raise PlanUnreadable(f"{path}:1: unknown format {wanted!r}; the formats are {', '.join(RECOGNISERS)}")
    for format_, read in RECOGNISERS.items():
        if wanted in ("", format_) and (found := read(lines, path)) is not None:
            if len(found.places) > MAX_PHASES:
                what = f"{len(found.places):,} phases as {found.name}, and a plan has at most {MAX_PHASES:,}"
                raise PlanUnreadable(f"{path}:{found.decided_by + 1}: {what}; is it a plan?")
            return found
    if wanted:
        raise PlanUnreadable(f"{path}:1: the front matter says format: {wanted}, but the plan has nothing of that form")
    fence = f" (the fence opened on line {lines.open_fence + 1} is never closed)" if lines.open_fence >= 0 else ""
    raise PlanUnreadable(
        f"{path}:1: no phases found{fence}: neither a Progress Tracker table nor '## Phase 1 — Title' or "
        f"'### Task 1: Title' headings nor '- [ ]' items; add phase sections, then run runplan check {path} --fix"
    )


def other_reading(lines: Lines, path: str, chosen: Reading) -> Reading | None:
    """Another reading that the same evidence allows; None for a plan that is not ambiguous."""
    rivals: list[Reading | None] = []
    if chosen.format in (Format.SECTIONS, Format.HUMANLAYER, Format.HEADINGS):
        rivals += headings.readings(lines, path)
    elif chosen.format in (Format.TODO, Format.CHECKLIST):
        rivals += [checklist.read(lines, path), checklist.read_todo(lines, path)]
    firsts = [place.first for place in chosen.places]
    return next((found for found in rivals if found and [place.first for place in found.places] != firsts), None)
