"""Signed links in notifications: each shows one change without a sign-in, and takes one answer to it."""

from __future__ import annotations

import time

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.app.operations.answers import open_link
from runplan.domain.errors import UsageError
from runplan.interfaces.web.actions import Form, carry_out, read_form, show_outcome
from runplan.interfaces.web.pages.change import prepare_change
from runplan.interfaces.web.render import render, site_of

VERBS = ("approve", "reject")


def show_link(request: Request) -> Response:
    """GET /a/TOKEN: the change, and the forms that answer it."""
    linked = open_link(site_of(request).env, request.path_params["token"], time.time())
    shown = prepare_change(linked.view)
    return render(request, "answer.html", repo="", change=linked.view, shown=shown, action=request.scope["path"])


async def answer_link(request: Request) -> Response:
    """POST /a/TOKEN: answer the change of the link, and nothing else."""
    site = site_of(request)
    form = await read_form(request)
    if form.verb not in VERBS:
        raise UsageError("a link approves or rejects one change")
    linked = await run_in_threadpool(open_link, site.env, request.path_params["token"], time.time())
    link = linked.link
    bound = Form(verb=form.verb, plan=link.plan, phase=link.phase, tree=link.tree, text=form.text)
    return show_outcome(request, bound, await run_in_threadpool(carry_out, bound, linked.root, site.env, link.by))


ROUTES = (
    Route("/a/{token}", show_link),
    Route("/a/{token}", answer_link, methods=["POST"]),
)
