"""The page of a change, or of a proposed plan: its diff beside its evidence, and the forms that answer it."""

from __future__ import annotations

import contextlib

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.app.views.changes import ChangeView, Proposal, ProposalView, find_change, list_questions, view_change
from runplan.app.views.diffs import MOST_OPEN, FileDiff, choose_inline, cut_lines, parse_diff
from runplan.app.views.plan_page import require_plan
from runplan.app.views.repositories import find_known, open_known
from runplan.domain.errors import Busy, NotFound
from runplan.interfaces.web.render import link, read_number, render, site_of

MOST_FILES = 300  #: that are listed
MOST_LINES = 2_000  #: of a file at once


class FileRow(Struct, frozen=True, kw_only=True):
    """A file of the diff, as the page shows it."""

    number: int
    file: FileDiff
    is_inline: bool  #: its lines are part of the page
    address: str = ""  #: of its lines; "" where they are not served


class ChangePage(Struct, frozen=True, kw_only=True):
    """What the template of a change needs besides the view."""

    files: tuple[FileRow, ...]
    hidden: int  #: files that are not listed
    is_open: bool  #: the files are open
    added: int
    removed: int
    proposal: Proposal | None
    approve: str  #: the label of the button; "" when it does not wait for an answer


def show_change(request: Request) -> Response:
    query = request.query_params
    repo, plan, phase = (query.get(name, "") for name in ("repo", "plan", "phase"))
    view = None
    with open_known(find_known(site_of(request).env, repo), warn=lambda _: None) as context:
        require_plan(context, plan)
        questions = list_questions(context, plan)
        with contextlib.suppress(NotFound):  # answered meanwhile
            view = view_change(context, find_change(context, plan, phase or None))
    return render(
        request,
        "change.html",
        live=link("/live", repo=repo, plan=plan),
        repo=repo,
        plan=plan,
        change=view,
        questions=questions,
        shown=prepare_change(view, repo=repo, is_all=query.get("files") == "all") if view else None,
        action="/act",
    )


def show_file(request: Request) -> Response:
    """The lines of one file of a large diff; the script takes the element `lines` of it."""
    query = request.query_params
    repo, plan, phase, shown = (query.get(name, "") for name in ("repo", "plan", "phase", "tree"))
    with open_known(find_known(site_of(request).env, repo), warn=lambda _: None) as context:
        view = view_change(context, find_change(context, plan, phase or None))
    if shown and shown != view.tree:
        raise Busy("the change was replaced since the page was loaded; load it again")
    files = parse_diff(view.diff)
    number = read_number(query.get("file", ""))
    if number >= len(files):
        raise NotFound("the change has no such file; load the page of the change again")
    start = read_number(query.get("from", ""))
    file = files[number]
    following = start + MOST_LINES
    address = {"repo": repo, "plan": plan, "phase": phase, "tree": shown, "file": str(number)}
    return render(
        request,
        "change_file.html",
        file=cut_lines(file, start, MOST_LINES),
        line_count=file.line_count,
        start=start,
        most=MOST_LINES,
        back=link("/change", repo=repo, plan=plan, phase=phase),
        following=link("/change/file", **address, **{"from": str(following)}) if following < file.line_count else "",
    )


ROUTES = (Route("/change", show_change), Route("/change/file", show_file))


def prepare_change(view: ChangeView | ProposalView, *, repo: str = "", is_all: bool = False) -> ChangePage:
    """The files of the change. With a repository the lines of large files have an address of their own."""
    is_proposal = isinstance(view, ProposalView)
    files = parse_diff(view.diff)
    rows = []
    for number, (file, is_inline) in enumerate(zip(files, choose_inline(files), strict=True)):
        query = {"repo": repo, "plan": view.plan, "phase": view.phase, "tree": view.tree, "file": str(number)}
        rows.append(
            FileRow(
                number=number,
                file=file,
                is_inline=is_inline or is_proposal,
                address=link("/change/file", **query) if repo and not is_proposal else "",
            )
        )
    changed = sum(file.added + file.removed for file in files)
    listed = rows if is_all else rows[:MOST_FILES]
    return ChangePage(
        files=tuple(listed),
        hidden=len(rows) - len(listed),
        is_open=changed < MOST_OPEN,
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        proposal=view.proposal if isinstance(view, ProposalView) else None,
        approve=next((action.label for action in view.actions if action.verb == "approve"), "") if view.tree else "",
    )
