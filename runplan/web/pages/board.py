"""The board: every plan of every repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from runplan.views.repositories import list_known
from runplan.web.render import render, site_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


def show_board(request: Request) -> Response:
    return render(request, "board.html", live="/live", repositories=list_known(site_of(request).env))


ROUTES = (Route("/", show_board),)
