"""The page of a plan: its phases as a graph, its dispatches, the agent at work, and one phase in depth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.app.views.plan_page import Dispatch, PlanPage, read_plan_page
from runplan.app.views.repositories import find_known, open_known
from runplan.app.views.status import PhaseView
from runplan.domain.text import cut_cells, elapsed, plain_line
from runplan.domain.times import parse_iso
from runplan.interfaces.web.drawing import Bar, Node, draw_graph, draw_timeline
from runplan.interfaces.web.render import link, render, site_of

MOST_PHASES = 36  #: that are drawn and listed
LONGEST_TITLE = 120
MOST_ROWS = 20  #: phases of the timeline


def show_plan(request: Request) -> Response:
    query = request.query_params
    repo, plan = query.get("repo", ""), query.get("plan", "")
    known = find_known(site_of(request).env, repo)
    notes: list[str] = []
    with open_known(known, warn=notes.append) as context:
        page = read_plan_page(context, repo, plan, query.get("phase", ""), now=datetime.now(UTC))
    drawings = draw_plan(page, is_all=query.get("phases") == "all")
    live = link("/live", repo=repo, plan=plan)
    return render(
        request,
        "plan.html",
        live=live,
        root=known.root,
        notes=notes,
        page=page,
        drawings=drawings,
        repo=repo,
        plan=plan,
    )


class Drawings(Struct, frozen=True, kw_only=True):
    """The drawings of a plan, and the phases that they show."""

    nodes: tuple[Node, ...]
    hidden: int  #: phases that are not shown
    graph: str
    timeline: str


def draw_plan(page: PlanPage, *, is_all: bool = False) -> Drawings:
    view = page.card.view
    shown = choose_phases(view.phases, page.selected, is_all=is_all)
    addresses = [link("/plan", repo=page.card.repo, plan=view.plan, phase=phase.id) for phase in shown]
    nodes = [make_node(phase, page.selected, address) for phase, address in zip(shown, addresses, strict=True)]
    title = f"{len(nodes)} phases of {view.title}, {page.card.done} done; the table below lists them"
    return Drawings(
        nodes=tuple(nodes),
        hidden=len(view.phases) - len(nodes),
        graph=draw_graph(nodes, title=title),
        timeline=draw_timeline(make_bars(page.dispatches), title="Dispatches over time; the table below lists them"),
    )


ROUTES = (Route("/plan", show_plan),)


def choose_phases(phases: Sequence[PhaseView], selected: str, *, is_all: bool) -> list[PhaseView]:
    """The phases to show. Of a long plan, done ones are left out first, the oldest before the others."""
    surplus = 0 if is_all else len(phases) - MOST_PHASES
    order = [phase.id for phase in phases if phase.status == "done" and phase.id != selected]
    order += [phase.id for phase in reversed(phases) if phase.status == "todo" and phase.id != selected]
    left_out = set(order[: max(surplus, 0)])
    return [phase for phase in phases if phase.id not in left_out]


def make_node(phase: PhaseView, selected: str, address: str) -> Node:
    return Node(
        id=phase.id,
        title=cut_cells(plain_line(phase.title), LONGEST_TITLE),
        state=phase.state,
        words=phase.words,
        depends=phase.depends,
        address=f"{address}#phase",
        is_selected=phase.id == selected,
    )


def make_bars(dispatches: Sequence[Dispatch]) -> list[Bar]:
    """The bars of the dispatches of the phases that were worked on last.

    The processes of a phase run one after the other; their recorded starts are whole seconds.
    """
    rows = list(dict.fromkeys(dispatch.started.phase for dispatch in reversed(dispatches)))[:MOST_ROWS]
    ends: dict[str, float] = {}
    bars = []
    for dispatch in dispatches:
        if dispatch.started.phase not in rows:
            continue
        start_s = max(parse_iso(dispatch.started.at).timestamp(), ends.get(dispatch.started.phase, 0.0))
        ends[dispatch.started.phase] = start_s + dispatch.seconds
        bars.append(
            Bar(
                row=f"Phase {dispatch.started.phase}" if dispatch.started.phase else "Plan",
                start_s=start_s,
                seconds=dispatch.seconds,
                kind=dispatch.started.role.value,
                words=describe_dispatch(dispatch),
                is_bad=dispatch.result not in ("ok", "running", "ended"),
                is_running=dispatch.result == "running",
            )
        )
    return bars


def describe_dispatch(dispatch: Dispatch) -> str:
    role = f"{dispatch.started.role} by {dispatch.who}"
    about = [role, elapsed(dispatch.seconds), dispatch.result, dispatch.usage.words]
    return ", ".join(filter(None, about))
