"""The page of a change, or of a proposed plan: its diff beside its evidence, and the forms that answer it."""

import contextlib
import time
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from runplan.app.operations.commands import open_link
from runplan.app.views.changes import ChangeView, ProposalView, find_change, list_questions, view_change
from runplan.app.views.diffs import parse_diff
from runplan.app.views.plan_page import read_trial_file, require_plan
from runplan.app.views.repositories import open_by_key
from runplan.domain.checks.returns import find_image_type
from runplan.domain.errors import Busy, NotFound, UsageError
from runplan.interfaces.web.actions import Form, carry_out, read_form, show_outcome
from runplan.interfaces.web.render import link, read_number, render, route, site_of

MOST_FILES = 300  #: that are listed
MOST_OPEN = 1_500  #: changed lines of a diff whose files are open, and lines that are part of the page
MOST_INLINE = 1_000  #: lines of a file that is part of the page
MOST_LINES = 50_000  #: of a file; a longer one is shown in a terminal


@route("/change")
def show_change(request: Request) -> Response:
    query = request.query_params
    repo, plan, phase = (query.get(name, "") for name in ("repo", "plan", "phase"))
    view = None
    with open_by_key(site_of(request).env, repo) as context:
        require_plan(context, plan)
        questions = list_questions(context, plan)
        with contextlib.suppress(NotFound):  # answered meanwhile
            view = view_change(context, find_change(context, plan, phase or None))
    most = None if query.get("files") == "all" else MOST_FILES
    return _render_change(request, "change.html", view, most=most, live=True, questions=questions, to="/act")


@route("/a/{token}")
def show_link(request: Request) -> Response:
    """GET /a/TOKEN: the change of a signed link, without a sign-in, and the forms that answer it."""
    _, _, view = open_link(site_of(request).env, request.path_params["token"], time.time())
    return _render_change(request, "answer.html", view, repo="", to=request.scope["path"])


def _render_change(
    request: Request, template: str, view: ChangeView | ProposalView | None, most: int | None = MOST_FILES, **more: Any
) -> Response:
    files = parse_diff(view.diff) if view else []
    more |= {"files": files, "most": most or len(files), "most_open": MOST_OPEN, "most_inline": MOST_INLINE}
    return render(request, template, change=view, **more)


@route("/trial")
def show_trial_file(request: Request) -> Response:
    """A file of a trial: an image, else as plain text; an agent wrote it."""
    repo, plan, dispatch, name = (request.query_params.get(key, "") for key in ("repo", "plan", "dispatch", "file"))
    with open_by_key(site_of(request).env, repo) as context:
        content = read_trial_file(context, plan, dispatch, name)
    return Response(content, media_type=find_image_type(content) or "text/plain; charset=utf-8")


@route("/change/file")
def show_file(request: Request) -> Response:
    """The lines of one file of a large diff; the script takes the element `lines` of it."""
    query = request.query_params
    repo, plan, phase, shown = (query.get(name, "") for name in ("repo", "plan", "phase", "tree"))
    with open_by_key(site_of(request).env, repo) as context:
        view = view_change(context, find_change(context, plan, phase or None))
    if shown and shown != view.tree:
        raise Busy("the change was replaced since the page was loaded; load it again")
    files = parse_diff(view.diff)
    number = read_number(query.get("file", ""))
    if number >= len(files):
        raise NotFound("the change has no such file; load the page of the change again")
    back = link("/change", repo=repo, plan=plan, phase=phase)
    return render(request, "change_file.html", file=files[number], most=MOST_LINES, back=back)


@route("/a/{token}", "POST")
async def answer_link(request: Request) -> Response:
    """POST /a/TOKEN: answer the change of the link, and nothing else."""
    site = site_of(request)
    form = await read_form(request)
    if form.verb not in ("approve", "reject"):
        raise UsageError("a link approves or rejects one change")
    link, root, _ = await run_in_threadpool(open_link, site.env, request.path_params["token"], time.time())
    bound = Form(verb=form.verb, plan=link.plan, phase=link.phase, tree=link.tree, text=form.text)
    outcome = await run_in_threadpool(carry_out, bound, root, site.env, link.by)
    return await run_in_threadpool(show_outcome, request, bound, outcome)
