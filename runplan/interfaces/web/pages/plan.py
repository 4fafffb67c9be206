"""The page of a plan: its phases as a graph, its dispatches, the agent at work, one phase in depth; and its journal."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from runplan.app.views.plan_page import read_journal, read_log, read_plan_page
from runplan.app.views.repositories import find_known, open_by_key, open_known
from runplan.app.views.status import PhaseView
from runplan.domain.standing.actions import EFFECTS
from runplan.domain.text import cut_cells, plain_line
from runplan.interfaces.web.drawing import draw_graph, draw_timeline
from runplan.interfaces.web.render import link, read_number, render, route, site_of

MOST_PHASES = 36  #: that are drawn and listed
LONGEST_TITLE = 120
MOST_EVENTS = 200  #: on one page of the journal


@route("/plan")
def show_plan(request: Request) -> Response:
    query = request.query_params
    repo, plan = query.get("repo", ""), query.get("plan", "")
    known = find_known(site_of(request).env, repo)
    notes: list[str] = []
    with open_known(known, warn=notes.append) as context:
        page = read_plan_page(context, repo, plan, query.get("phase", ""), now=datetime.now(UTC))
    view = page.card.view
    shown = choose_phases(view.phases, page.selected, is_all=query.get("phases") == "all")
    title = f"{len(shown)} phases of {view.title}, {view.done} done; the table below lists them"
    graph = draw_graph(
        shown,
        title=title,
        selected=page.selected,
        address_of=lambda phase: f"{link('/plan', repo=page.card.repo, plan=view.plan, phase=phase)}#phase",
    )
    titles = {phase.id: phase.title for phase in view.phases}
    timeline = draw_timeline(page.dispatches, titles, title="Steps over time; the list below has their logs")
    about = {"root": known.root, "notes": notes, "effect": EFFECTS.get(query.get("done", ""), "")}
    return render(request, "plan.html", live=True, about=about, page=page, shown=shown, drawn=(graph, timeline))


def choose_phases(phases: Sequence[PhaseView], selected: str, *, is_all: bool) -> list[PhaseView]:
    """The phases to show. Of a long plan, done ones are left out first, the oldest before the others."""
    surplus = 0 if is_all else len(phases) - MOST_PHASES
    order = [phase.id for phase in phases if phase.status == "done" and phase.id != selected]
    order += [phase.id for phase in reversed(phases) if phase.status == "todo" and phase.id != selected]
    left_out = set(order[: max(surplus, 0)])
    shown = [phase for phase in phases if phase.id not in left_out]
    return [replace(phase, title=cut_cells(plain_line(phase.title), LONGEST_TITLE)) for phase in shown]


@route("/log")
def show_log(request: Request) -> Response:
    """The output of one step; the script takes the element `lines` of it."""
    repo, plan, id_ = (request.query_params.get(name, "") for name in ("repo", "plan", "dispatch"))
    with open_by_key(site_of(request).env, repo) as context:
        dispatch, lines = read_log(context, plan, id_, now=datetime.now(UTC))
    return render(request, "log.html", dispatch=dispatch, lines=lines)


@route("/journal")
def show_journal(request: Request) -> Response:
    repo, plan, run, page = (request.query_params.get(name, "") for name in ("repo", "plan", "run", "page"))
    with open_by_key(site_of(request).env, repo) as context:
        journal = read_journal(context, plan, run, now=datetime.now(UTC))
    asked = read_number(page)
    number = asked if asked * MOST_EVENTS < len(journal.lines) else 0  # the first page for anything else
    phases = groupby(journal.lines[number * MOST_EVENTS :][:MOST_EVENTS], attrgetter("phase"))
    groups = [
        (phase, [(step, list(some)) for step, some in groupby(rows, attrgetter("step"))]) for phase, rows in phases
    ]
    return render(request, "journal.html", live=True, journal=journal, page=number, most=MOST_EVENTS, groups=groups)
