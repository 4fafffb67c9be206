"""Draws the phases of a plan and its dispatches as SVG. Colours come from the style sheet, by class."""

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from statistics import fmean
from time import localtime, strftime
from typing import NamedTuple

from markupsafe import Markup

from runplan.app.views.plan_page import Dispatch
from runplan.app.views.status import PhaseView
from runplan.domain.times import parse_iso
from runplan.interfaces.web.render import TEMPLATES

NODE_WIDTH = 160
NODE_HEIGHT = 64
GAP_X = 34
GAP_Y = 16
BAND = 6  #: layers side by side; the next ones begin below them
BAND_GAP = 40
MARGIN = 18
#: The class and the sign of each state: they differ without colours, too.
STATES = {
    "done": ("finished", "✓"),
    "running": ("running", "▶"),
    "waiting": ("needs-you", "◆"),
    "failed": ("failed", "✕"),
    "blocked": ("needs-you", "■"),
    "elsewhere": ("needs-you", "■"),
    "next": ("ready", "→"),
    "todo": ("ready", "○"),
}
TIMELINE_WIDTH = 1240
LABEL_WIDTH = 190
AXIS_HEIGHT = 22
TICK_GAP = 84  #: pixels between two times of the axis, at least
TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
ROW_HEIGHT = 30
MOST_ROWS = 20  #: phases
BREAK_SHARE = 1 / 30  #: of the time at work, as which longer times without work are drawn
#: The class of the bars of a role; commands of the project are like phases that are ready.
ROLES = {"implement": "running", "fix": "needs-you", **dict.fromkeys(("verify", "try", "critique"), "scheduled")}
ROLES |= dict.fromkeys(("understand", "explore", "alternatives", "draft", "revise"), "running")


def _draw(template: str, **values: object) -> Markup:
    return Markup(TEMPLATES.get_template(template).render(**values))  # noqa: S704 - the template escapes all text


def find_layers(phases: Sequence[PhaseView]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """The layer of each phase: one more than the deepest of those it depends on; and its arrows from those.

    A dependency that follows from the others has no arrow.
    """
    known = {phase.id for phase in phases}
    depends = {phase.id: [other for other in dict.fromkeys(phase.depends) if other in known] for phase in phases}
    try:
        order = list(TopologicalSorter(depends).static_order())
    except CycleError:  # only of phases that are done; the plan is refused otherwise
        order = list(depends)
    layers: dict[str, int] = {}
    arrows: dict[str, list[str]] = {}
    above: dict[str, set[str]] = {}  #: everything that a phase depends on
    for id_ in order:
        direct = [other for other in depends[id_] if other in layers]
        implied = set[str]().union(*(above[other] for other in direct))
        layers[id_] = max((layers[other] for other in direct), default=-1) + 1
        arrows[id_] = [other for other in direct if other not in implied]
        above[id_] = implied.union(direct)
    return layers, arrows


class Corner(NamedTuple):
    x: int
    y: int
    top: int  #: of its band


def draw_graph(
    phases: Sequence[PhaseView], *, title: str, selected: str = "", address_of: Callable[[str], str] = str
) -> Markup:
    """The phases with arrows to those that wait for them: layers from left to right, in bands from top to bottom.

    Each is a link; the state has a sign, a word and a class.
    """
    if not phases:
        return Markup("")
    layers, arrows = find_layers(phases)
    corners: dict[str, Corner] = {}
    top = MARGIN
    for first in range(0, max(layers.values()) + 1, BAND):
        band = [[phase.id for phase in phases if layers[phase.id] == first + number] for number in range(BAND)]
        rows = max(map(len, band))
        for number, column in enumerate(band):
            heights = {id_: fmean([corners[other].y for other in arrows[id_]] or [0]) for id_ in column}
            free = (rows - len(column)) * (NODE_HEIGHT + GAP_Y) // 2
            for row, id_ in enumerate(sorted(column, key=heights.__getitem__)):
                y = top + free + row * (NODE_HEIGHT + GAP_Y)
                corners[id_] = Corner(MARGIN + number * (NODE_WIDTH + GAP_X), y, top)
        top += rows * (NODE_HEIGHT + GAP_Y) - GAP_Y + BAND_GAP
    return _draw(
        "graph.svg",
        title=title,
        phases=phases,
        corners=corners,
        arrows=[(corners[other], corners[phase.id]) for phase in phases for other in arrows[phase.id]],
        width=max(corner.x for corner in corners.values()) + NODE_WIDTH + MARGIN,
        height=top - BAND_GAP + MARGIN,
        node_width=NODE_WIDTH,
        node_height=NODE_HEIGHT,
        gap_x=GAP_X,
        band_gap=BAND_GAP,
        states=STATES,
        selected=selected,
        address_of=address_of,
        wrap=partial(textwrap.wrap, width=19, max_lines=2, placeholder="…"),
    )


class Scale:
    """Places of moments. A time in which nothing ran is at most as long as a share of the time at work."""

    def __init__(self, bars: Sequence[tuple[float, float]], width: float) -> None:
        """`bars` are the times at work, from and to."""
        self.break_s = sum(end - start for start, end in bars) * BREAK_SHARE or 1.0
        self.spans: list[tuple[float, float]] = []  #: in which something ran, oldest first
        for start, end in sorted(bars):
            if self.spans and start - self.spans[-1][1] <= self.break_s:
                self.spans[-1] = (self.spans[-1][0], max(end, self.spans[-1][1]))
            else:
                self.spans.append((start, end))
        total = sum(end - start + self.break_s for start, end in self.spans) - self.break_s
        self.per_second = width / (total or 1.0)
        step = next((step for step in TICKS_S if step * self.per_second >= TICK_GAP), TICKS_S[-1])
        self.ticks: list[float] = []  #: the start of each time at work, and round times where there is room
        for start, end in self.spans:
            for moment in (start, *range(math.ceil(start / step) * step, math.floor(end) + 1, step)):
                if not self.ticks or self.place(moment) - self.place(self.ticks[-1]) >= TICK_GAP:
                    self.ticks.append(moment)

    def place(self, moment: float) -> float:
        x = 0.0
        for start, end in self.spans:
            if moment <= end:
                return x + max(moment - start, 0.0) * self.per_second
            x += (end - start + self.break_s) * self.per_second
        return x - self.break_s * self.per_second


def draw_timeline(dispatches: Sequence[Dispatch], titles: Mapping[str, str], *, title: str) -> Markup:
    """A row for each of the phases worked on last, a bar for each dispatch, breaks where nothing ran."""
    newest = list(dict.fromkeys(dispatch.started.phase for dispatch in reversed(dispatches)))[:MOST_ROWS]
    ends: dict[str, float] = {}  #: of each phase
    bars: list[tuple[Dispatch, str, float]] = []  #: with the look and the start
    for dispatch in (dispatch for dispatch in dispatches if dispatch.started.phase in newest):
        phase = dispatch.started.phase
        start = max(parse_iso(dispatch.started.at).timestamp(), ends.get(phase, 0.0))  # recorded in whole seconds
        ends[phase] = start + dispatch.seconds
        bars.append((dispatch, ROLES.get(dispatch.started.role, "ready") if dispatch.is_good else "failed", start))
    if not bars:
        return Markup("")
    scale = Scale([(start, start + bar.seconds) for bar, _, start in bars], TIMELINE_WIDTH - LABEL_WIDTH - 4)
    return _draw(
        "timeline.svg",
        title=title,
        rows=[(phase, f"{phase} {titles.get(phase, '')}".rstrip() if phase else "Plan") for phase in ends],
        breaks=[LABEL_WIDTH + scale.place(end) + scale.break_s * scale.per_second / 2 for _, end in scale.spans[:-1]],
        bars=[
            (dispatch, look, LABEL_WIDTH + scale.place(start), max(dispatch.seconds * scale.per_second, 3.0))
            for dispatch, look, start in bars
        ],
        width=TIMELINE_WIDTH,
        ticks=[(LABEL_WIDTH + scale.place(tick), strftime("%H:%M:%S", localtime(tick))) for tick in scale.ticks],
        top=AXIS_HEIGHT,
        height=AXIS_HEIGHT + (len(ends) + 1) * ROW_HEIGHT,  # with the legend
        row_height=ROW_HEIGHT,
        legend=sorted({(look, "✕ failed" if look == "failed" else bar.started.role.value) for bar, look, _ in bars}),
    )
