"""The board, the inbox and the schedules of all repositories."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.routing import Route

from runplan.report.inbox import read_inbox
from runplan.views.board import HEADINGS, Group, read_board, shorten_roots
from runplan.views.repositories import list_with_current
from runplan.web.render import render, site_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

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
    inbox = read_inbox({root: repository.state for root, repository in known.items()})
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


ROUTES = (Route("/", show_board), Route("/inbox", show_inbox), Route("/schedules", show_schedules))
