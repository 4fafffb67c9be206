"""The board, the inbox, the schedules and the costs of all repositories."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.app.views.board import GROUPS, read_board, shorten_roots
from runplan.app.views.costs import read_costs
from runplan.app.views.repositories import label_of, list_known, list_with_current, read_all_inboxes
from runplan.interfaces.web.drawing import draw_columns
from runplan.interfaces.web.render import render, route, site_of

MOST_FINISHED = 12  #: finished plans on the board
MOST_QUEUED = 20  #: plans of each queue there

ROUTES: list[Route] = []


@route(ROUTES, "/")
def show_board(request: Request) -> Response:
    board = read_board(list_with_current(site_of(request).env), datetime.now(UTC))
    groups = [(word, heading, board.list_group(group)) for group, (word, heading) in GROUPS.items()]
    most = {"most_finished": MOST_FINISHED, "most_queued": MOST_QUEUED}
    return render(request, "board.html", live=True, board=board, groups=groups, **most)


@route(ROUTES, "/inbox")
def show_inbox(request: Request) -> Response:
    env = site_of(request).env
    known = {label_of(repository): repository for repository in list_with_current(env)}
    inbox = read_all_inboxes(env)
    return render(request, "inbox.html", live=True, inbox=inbox, known=known, names=shorten_roots(list(known)))


@route(ROUTES, "/schedules")
def show_schedules(request: Request) -> Response:
    board = read_board(list_with_current(site_of(request).env), datetime.now(UTC))
    return render(request, "schedules.html", live=True, board=board)


@route(ROUTES, "/costs")
def show_costs(request: Request) -> Response:
    known = {repository.root: repository for repository in list_known(site_of(request).env)}
    costs = read_costs({root: repository.journal for root, repository in known.items()}, today=datetime.now(UTC).date())
    dollars = [(day.name[5:], day.usd, day.cost) for day in costs.days]
    tokens = [(day.name[5:], day.tokens, f"{day.token_words} tokens") for day in costs.days]
    return render(
        request,
        "costs.html",
        live=True,
        costs=costs,
        dollars=draw_columns(dollars, title="Dollars by day, the last 30 days", key="dollars", unit="$"),
        tokens=draw_columns(tokens, title="Tokens by day, the last 30 days", key="tokens"),
        tables={"Plan": costs.plans, "Agent": costs.agents, "Role": costs.roles},
        known=known,
    )
