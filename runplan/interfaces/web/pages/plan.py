"""The page of a plan: its phases as a graph, its dispatches, the agent at work, and one phase in depth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.app.views.board import describe_phase, make_card
from runplan.app.views.plan_page import Dispatch, PlanPage, read_plan_page
from runplan.app.views.repositories import find_known, open_known
from runplan.domain.run.kinds import UNFINISHED
from runplan.domain.run.rows import wait_of
from runplan.domain.text import cut_cells, elapsed, plain_line
from runplan.domain.times import parse_iso
from runplan.engine.report.views import format_usage
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
        page = read_plan_page(context, plan, query.get("phase", ""), now=datetime.now(UTC))
    values = prepare_plan(page, repo, is_all=query.get("phases") == "all")
    return render(
        request, "plan.html", live=link("/live", repo=repo, plan=plan), root=known.root, notes=notes, **values
    )


def prepare_plan(page: PlanPage, repo: str, *, is_all: bool = False) -> dict[str, Any]:
    """The values for the template."""
    view = page.view
    plan = view["plan"]
    shown = choose_phases(view["phases"], page.selected, is_all=is_all)
    nodes = [make_node(phase, page, link("/plan", repo=repo, plan=plan, phase=phase["id"])) for phase in shown]
    done = sum(phase["status"] == "done" for phase in view["phases"])
    title = f"{len(nodes)} phases of {view['title']}, {done} done; the table below lists them"
    return {
        "repo": repo,
        "plan": plan,
        "page": page,
        "card": make_card(view, repo, "", page.usage),
        "actions": list_actions(view),
        "nodes": nodes,
        "graph": draw_graph(nodes, title=title),
        "timeline": draw_timeline(make_bars(page.dispatches), title="Dispatches over time; the table below lists them"),
        "hidden": len(view["phases"]) - len(nodes),
        "selected": next((phase for phase in view["phases"] if phase["id"] == page.selected), None),
    }


ROUTES = (Route("/plan", show_plan),)


def choose_phases(phases: Sequence[dict[str, Any]], selected: str, *, is_all: bool) -> list[dict[str, Any]]:
    """The phases to show. Of a long plan, done ones are left out first, the oldest before the others."""
    surplus = 0 if is_all else len(phases) - MOST_PHASES
    order = [phase["id"] for phase in phases if phase["status"] == "done" and phase["id"] != selected]
    order += [phase["id"] for phase in reversed(phases) if phase["status"] == "todo" and phase["id"] != selected]
    left_out = set(order[: max(surplus, 0)])
    return [phase for phase in phases if phase["id"] not in left_out]


def make_node(phase: dict[str, Any], page: PlanPage, address: str) -> Node:
    state, words = describe_phase(phase, page.view)
    return Node(
        id=phase["id"],
        title=cut_cells(plain_line(phase["title"]), LONGEST_TITLE),
        state=state,
        words=words,
        depends=tuple(phase["depends"]),
        address=f"{address}#phase",
        is_selected=phase["id"] == page.selected,
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
    ended = dispatch.ended
    used = format_usage(dispatch.tokens, ended.usd, unpriced=False, estimated=ended.estimated) if ended else ""
    about = [f"{dispatch.started.role} by {dispatch.who}", elapsed(dispatch.seconds), dispatch.result, used]
    return ", ".join(filter(None, about))


def list_actions(view: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The verbs that fit now, each with its label and its phase."""
    run = view["run"]
    failed = next((phase["id"] for phase in view["phases"] if phase["failed"]), "")
    if run is None or run["state"] not in UNFINISHED:
        if failed:
            return [("retry", f"Retry phase {failed}", failed)]
        has_ended_badly = run is not None and run["state"] in ("failed", "stopped") and view["status"] != "complete"
        return [("retry", "Retry", "")] if has_ended_badly else [("now", "Run now", "")] if view["schedule"] else []
    if run["asked"] == "stop":
        return []
    waits = run["waiting_for"]
    verbs = [verb for _, verb in wait_of(waits).helps] if waits else []
    is_left = not (view["claim"] and view["claim"]["alive"])
    actions = [("resume", "Resume", "")] if "resume" in verbs else []
    if not actions and ("retry" in verbs or (is_left and not waits)):
        actions = [("retry", "Continue", "")]
    if not waits and not run["asked"] and not is_left:
        actions = [("pause", "Pause", "")]
    return [*actions, ("stop", "Stop", "")]
