"""Draws the phases of a plan, its dispatches and costs as SVG. Colours come from the style sheet, by class."""

import math
from collections.abc import Callable, Sequence
from graphlib import CycleError, TopologicalSorter
from time import localtime, strftime
from typing import NamedTuple

from markupsafe import Markup
from msgspec import Struct

from runplan.app.views.status import PhaseView
from runplan.domain.text import count_cells, cut_cells, plain_line
from runplan.interfaces.web.render import TEMPLATES

# --- text -----------------------------------------------------------------------------------------------


def _draw(template: str, **values: object) -> Markup:
    return Markup(TEMPLATES.get_template(template).render(**values))  # noqa: S704 - the template escapes all text


def wrap_text(text: str, width: int, most: int) -> list[str]:
    """At most so many lines of the text; the last one is cut."""
    lines: list[str] = []
    left = plain_line(text)
    while left and len(lines) < most - 1 and count_cells(left) > width:
        fitting = max((end for end in range(1, width + 1) if count_cells(left[:end]) <= width), default=1)
        space = left.rfind(" ", 0, fitting + 1)
        end = space if space > width // 3 else fitting
        lines.append(left[:end])
        left = left[end:].lstrip()
    return [*lines, cut_cells(left, width)] if left else lines


# --- the graph of phases --------------------------------------------------------------------------------

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


def find_layers(phases: Sequence[PhaseView]) -> dict[str, int]:
    """The layer of each phase: one more than the deepest of those it depends on."""
    known = {phase.id for phase in phases}
    depends = {phase.id: [other for other in phase.depends if other in known] for phase in phases}
    try:
        order = list(TopologicalSorter(depends).static_order())
    except CycleError:  # only of phases that are done; the plan is refused otherwise
        order = list(depends)
    layers: dict[str, int] = {}
    for id_ in order:
        layers[id_] = max((layers[other] for other in depends[id_] if other in layers), default=-1) + 1
    return layers


def drop_implied(phases: Sequence[PhaseView]) -> dict[str, tuple[str, ...]]:
    """The dependencies of each phase, without those that follow from the others."""
    layers = find_layers(phases)
    above: dict[str, frozenset[str]] = {}  #: everything that a phase depends on
    for phase in sorted(phases, key=lambda phase: layers[phase.id]):
        direct = [other for other in phase.depends if layers.get(other, len(layers)) < layers[phase.id]]
        above[phase.id] = frozenset(direct).union(*(above[other] for other in direct))
    kept = {}
    for phase in phases:
        direct = [other for other in dict.fromkeys(phase.depends) if other in above[phase.id]]
        kept[phase.id] = tuple(other for other in direct if not any(other in above[more] for more in direct))
    return kept


class Corner(NamedTuple):
    x: float
    y: float
    top: float


def place_phases(phases: Sequence[PhaseView]) -> dict[str, Corner]:
    """The place of each phase: layers from left to right, in bands from top to bottom."""
    layers = find_layers(phases)
    edges = drop_implied(phases)
    columns: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for phase in phases:
        columns[layers[phase.id]].append(phase.id)
    corners: dict[str, Corner] = {}

    def mean_height(id_: str) -> float:
        heights = [corners[other].y for other in edges[id_] if other in corners]
        return sum(heights) / len(heights) if heights else 0.0

    top = float(MARGIN)
    for first in range(0, len(columns), BAND):
        band = columns[first : first + BAND]
        rows = max(map(len, band))
        for number, column in enumerate(band):
            free = (rows - len(column)) * (NODE_HEIGHT + GAP_Y) / 2
            for row, id_ in enumerate(sorted(column, key=mean_height)):
                y = top + free + row * (NODE_HEIGHT + GAP_Y)
                corners[id_] = Corner(MARGIN + number * (NODE_WIDTH + GAP_X), y, top)
        top += rows * (NODE_HEIGHT + GAP_Y) - GAP_Y + BAND_GAP
    return corners


def draw_graph(
    phases: Sequence[PhaseView], *, title: str, selected: str = "", address_of: Callable[[str], str] = str
) -> Markup:
    """The phases with arrows to those that wait for them. Each is a link; the state has a sign, a word and a class."""
    corners = place_phases(phases)
    if not corners:
        return Markup("")
    edges = drop_implied(phases)
    return _draw(
        "graph.svg",
        title=title,
        phases=phases,
        corners=corners,
        arrows=[_arrow_path(corners[other], corners[phase.id]) for phase in phases for other in edges[phase.id]],
        width=f"{max(corner.x for corner in corners.values()) + NODE_WIDTH + MARGIN:.0f}",
        height=f"{max(corner.y for corner in corners.values()) + NODE_HEIGHT + MARGIN:.0f}",
        node_width=NODE_WIDTH,
        node_height=NODE_HEIGHT,
        states=STATES,
        selected=selected,
        address_of=address_of,
        wrap=wrap_text,
    )


def _arrow_path(start: Corner, end: Corner) -> str:
    x1, y1 = start.x + NODE_WIDTH, start.y + NODE_HEIGHT / 2
    x2, y2 = end.x, end.y + NODE_HEIGHT / 2
    if start.top == end.top:
        turn = x2 - GAP_X  # straight past the columns between, then up or down in the last gap
        middle = (turn + x2) / 2
        return f"M{x1:.0f} {y1:.0f}H{turn:.0f}C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    # between the columns down to the gap above the other band, and along it
    return f"M{x1:.0f} {y1:.0f}h14V{end.top - BAND_GAP / 2:.0f}H{x2 - 14:.0f}V{y2:.0f}H{x2:.0f}"


# --- the timeline of dispatches -------------------------------------------------------------------------

TIMELINE_WIDTH = 1240
LABEL_WIDTH = 190
AXIS_HEIGHT = 22
TICK_GAP = 84  #: pixels between two times of the axis, at least
TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
ROW_HEIGHT = 30
BREAK_WIDTH = 26  #: of a time in which nothing ran


#: The class of the bars of a role; commands of the project are like phases that are ready.
ROLES = {"implement": "running", "fix": "needs-you", **dict.fromkeys(("verify", "try", "critique"), "scheduled")}
ROLES |= dict.fromkeys(("understand", "explore", "alternatives", "draft", "revise"), "running")


class Bar(Struct, frozen=True, kw_only=True):
    row: str  #: its phase
    start_s: float  #: on any clock
    seconds: float
    kind: str  #: its role
    name: str = ""  #: its role and who did it
    address: str = ""  #: of its log
    words: str  #: about it, for people
    is_bad: bool = False
    is_running: bool = False

    @property
    def look(self) -> str:
        return "failed" if self.is_bad else ROLES.get(self.kind, "ready")


class Scale:
    """Places of moments. Times in which nothing ran, longer than a tenth of the time at work, are cut to a break."""

    def __init__(self, bars: Sequence[Bar], width: float) -> None:
        busy = sum(bar.seconds for bar in bars) or 1.0
        spans: list[tuple[float, float]] = []
        for bar in sorted(bars, key=lambda bar: bar.start_s):
            end = bar.start_s + bar.seconds
            if spans and bar.start_s - spans[-1][1] <= busy / 10:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((bar.start_s, end))
        if len(spans) > int(width / 4 / BREAK_WIDTH):  # too many breaks: one scale for all of the time
            spans = [(spans[0][0], max(end for _, end in spans))]
        total = sum(end - start for start, end in spans) or 1.0
        self.spans = spans  #: in which something ran, oldest first
        self.per_second = (width - BREAK_WIDTH * (len(spans) - 1)) / total

    def place(self, moment: float) -> float:
        x = 0.0
        for start, end in self.spans:
            if moment <= end:
                return x + max(moment - start, 0.0) * self.per_second
            x += (end - start) * self.per_second + BREAK_WIDTH
        return x - BREAK_WIDTH

    def list_ticks(self) -> list[float]:
        """The moments of the axis: the start of each time at work, and round ones where there is room."""
        step = next((step for step in TICKS_S if step * self.per_second >= TICK_GAP), TICKS_S[-1])
        ticks: list[float] = []
        for start, end in self.spans:
            for moment in (start, *range(math.ceil(start / step) * step, math.floor(end) + 1, step)):
                if not ticks or self.place(moment) - self.place(ticks[-1]) >= TICK_GAP:
                    ticks.append(moment)
        return ticks


def draw_timeline(bars: Sequence[Bar], *, title: str) -> Markup:
    """One row for each phase, one bar for each dispatch, breaks where nothing ran."""
    if not bars:
        return Markup("")
    rows = list(dict.fromkeys(bar.row for bar in bars))
    scale = Scale(bars, TIMELINE_WIDTH - LABEL_WIDTH - 4)
    return _draw(
        "timeline.svg",
        title=title,
        rows=rows,
        breaks=[LABEL_WIDTH + scale.place(end) + BREAK_WIDTH / 2 for _, end in scale.spans[:-1]],
        bars=[(bar, LABEL_WIDTH + scale.place(bar.start_s), max(bar.seconds * scale.per_second, 3.0)) for bar in bars],
        width=TIMELINE_WIDTH,
        ticks=[(LABEL_WIDTH + scale.place(tick), strftime("%H:%M:%S", localtime(tick))) for tick in scale.list_ticks()],
        top=AXIS_HEIGHT,
        height=AXIS_HEIGHT + (len(rows) + 1) * ROW_HEIGHT,  # with the legend
        row_height=ROW_HEIGHT,
        legend=sorted({(bar.look, "✕ failed" if bar.is_bad else bar.kind) for bar in bars}),
    )


# --- charts ---------------------------------------------------------------------------------------------

CHART_WIDTH = 480
CHART_HEIGHT = 150
AXIS = 44  #: for the numbers at the left


def draw_columns(columns: Sequence[tuple[str, float, str]], *, title: str, key: str, unit: str = "") -> Markup:
    """A chart of labels, values and their words; every seventh column has its label. `key` makes its ids unique."""
    if not columns:
        return Markup("")
    largest = max(value for _, value, _ in columns)
    power = 10.0 ** math.floor(math.log10(largest)) if largest > 0 else 1.0
    ceiling = next((power * step for step in (1, 2, 5) if power * step >= largest), power * 10)  # of the axis
    marks = [(share, _shorten(ceiling * share)) for share in (0.0, 0.5, 1.0)]
    size = {"axis": AXIS, "width": CHART_WIDTH - AXIS, "height": CHART_HEIGHT}
    return _draw("columns.svg", title=title, key=key, unit=unit, columns=columns, ceiling=ceiling, marks=marks, **size)


def _shorten(value: float) -> str:
    """`1.5M`, `200k`, `0.5`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
