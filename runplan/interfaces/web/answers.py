"""Signed links in notifications: each shows one change without a sign-in, and takes one answer to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.adapters.configuration.places import key_directory
from runplan.adapters.notify.links import Expired, Forged, Link, is_used, load_key, read_link
from runplan.app.views.changes import ChangeView, ProposalView, list_pending, view_change
from runplan.app.views.repositories import find_known, open_known
from runplan.domain.errors import Busy, NotFound, UsageError
from runplan.interfaces.web.actions import Form, carry_out, read_form, show_outcome
from runplan.interfaces.web.pages.change import prepare_change
from runplan.interfaces.web.render import render, site_of

VERBS = ("approve", "reject")
REPLACED = "The change was replaced: the link is for an earlier change, or it was answered. See: runplan inbox"


class LinkedChange(Struct, frozen=True, kw_only=True):
    """The change of a valid link, as it is now."""

    link: Link
    root: Path
    view: ChangeView | ProposalView


def open_link(env: Mapping[str, str], token: str, now: float) -> LinkedChange:
    """The change that the link is for, if it still waits."""
    link = read_link(load_key(key_directory(env)), token, now)
    if isinstance(link, Forged):
        raise NotFound("No such link: it is not complete, or it was made by another runplan.")
    if isinstance(link, Expired):
        raise HTTPException(410, "The link has expired: it was valid for a day. Answer by: runplan inbox")
    try:
        known = find_known(env, link.repo)
    except NotFound:
        raise Busy(REPLACED) from None
    with open_known(known, warn=lambda _: None) as context:
        if is_used(context.store(), link.nonce):
            raise HTTPException(410, "The link was used: the change was answered with it, and a link takes one answer.")
        for change in list_pending(context, link.plan, link.phase or None, "approve"):
            if change.run == link.run and change.attempt.answerable == link.tree:
                return LinkedChange(link=link, root=Path(known.root), view=view_change(context, change))
    raise Busy(REPLACED)


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
