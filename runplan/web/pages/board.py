"""The board: every plan of every repository."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.routing import Route

from runplan.views.board import HEADINGS, Group, read_board
from runplan.web.render import render, site_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_FINISHED = 12  #: finished plans on the board


def show_board(request: Request) -> Response:
    board = read_board(site_of(request).env, datetime.now(UTC))
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


ROUTES = (Route("/", show_board),)
