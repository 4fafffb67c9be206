"""The board, the inbox, the schedules and the costs of all repositories."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.app.views.board import HEADINGS, Group, read_board, shorten_roots
from runplan.app.views.costs import read_costs
from runplan.app.views.repositories import list_known, list_with_current
from runplan.engine.report.inbox import read_inbox
from runplan.interfaces.web.drawing import Column, draw_columns, draw_share
from runplan.interfaces.web.render import render, site_of

MOST_FINISHED = 12  #: finished plans on the board


def show_board(request: Request) -> Response:
    board = read_board(list_with_current(site_of(request).env), datetime.now(UTC))
    groups = [(group, HEADINGS[group], board.list_group(group)) for group in Group]
    return render(
        request,
        "board.html",
        live="/live",
        board=board,
        groups=groups,
        waiting=len(board.list_group(Group.NEEDS_YOU)),
        is_busy=any(card.group is not Group.FINISHED for card in board.cards),
        most_finished=MOST_FINISHED,
    )


def show_inbox(request: Request) -> Response:
    known = {repository.root: repository for repository in list_with_current(site_of(request).env)}
    inbox = read_inbox({root: repository.journal for root, repository in known.items()})
    return render(
        request,
        "inbox.html",
        live="/live",
        inbox=inbox,
        keys={root: repository.key for root, repository in known.items()},
        names=shorten_roots(list(known)),
    )


def show_schedules(request: Request) -> Response:
    board = read_board(list_with_current(site_of(request).env), datetime.now(UTC))
    return render(request, "schedules.html", live="/live", board=board)


def show_costs(request: Request) -> Response:
    known = list_known(site_of(request).env)
    keys = {repository.root: repository.key for repository in known}
    costs = read_costs({repository.root: repository.journal for repository in known}, today=datetime.now(UTC).date())
    dollars = [Column(label=day.name[5:], value=day.usd, words=day.cost) for day in costs.days]
    tokens = [Column(label=day.name[5:], value=day.tokens, words=f"{day.token_words} tokens") for day in costs.days]
    return render(
        request,
        "costs.html",
        live="/live",
        costs=costs,
        dollars=draw_columns(dollars, title="Dollars by day, the last 30 days", key="dollars", unit="$"),
        tokens=draw_columns(tokens, title="Tokens by day, the last 30 days", key="tokens"),
        tables={"Plan": costs.plans, "Agent": costs.agents, "Role": costs.roles},
        keys=keys,
        draw_share=draw_share,
    )


ROUTES = (
    Route("/", show_board),
    Route("/inbox", show_inbox),
    Route("/schedules", show_schedules),
    Route("/costs", show_costs),
)
