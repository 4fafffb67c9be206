"""Carries out what the forms of the pages ask for."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from runplan.app.operations.model import Caller, Outcome, Where
from runplan.app.operations.table import try_named
from runplan.app.views.repositories import find_known
from runplan.domain.errors import Exit, UsageError
from runplan.domain.settings.options import parse_words
from runplan.domain.text import command
from runplan.interfaces.web import access
from runplan.interfaces.web.render import link, render, site_of

MOST_FIELDS = 20
LIMIT_S = 120.0  #: for an answer of the daemon; a request stays queued after it


class Form(Struct, frozen=True, kw_only=True):
    """The fields of a form; those that a verb does not need are empty."""

    csrf: str = ""
    repo: str = ""  #: the key of the repository
    verb: str = ""
    plan: str = ""
    phase: str = ""
    tree: str = ""  #: the tree, or the SHA-256 of the proposal, that the page has shown
    text: str = ""
    id: str = ""  #: of a question
    words: str = ""  #: of a start, as in a shell


async def read_form(request: Request) -> Form:
    try:
        body = (await request.body()).decode("utf-8", "replace")
        fields = dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise HTTPException(400, "The form has too many fields") from None
    except ClientDisconnect:
        raise HTTPException(400, "The form is not complete") from None
    return Form(**{name: value for name, value in fields.items() if name in Form.__struct_fields__})


def read_request(form: Form) -> dict[str, object]:
    """The fields of the request. What the page has shown is what is answered, and the daemon continues the run."""
    plan: dict[str, object] = {"plan": form.plan}
    phase = {**plan, "phase": form.phase, "where": Where.DAEMON.value}
    match form.verb:
        case "approve":
            return {**phase, "tree": _require("tree", form.tree)}
        case "reject":
            return {**phase, "tree": _require("tree", form.tree), "why": form.text.strip()}
        case "answer":
            text = _require("text", form.text.strip())
            return {"id": _require("id", form.id), "text": text, "where": Where.DAEMON.value}
        case "start":
            return {**plan, "options": parse_words(_split_words(form.words))}
        case "retry":
            return phase
        case "stop" | "pause" | "resume" | "now":
            return {"plan": _require("plan", form.plan)}
        case _:
            raise UsageError("no such action")


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the words cannot be read: {error}") from None


def _require(name: str, value: str) -> str:
    if not value:
        raise UsageError(f"the {name} is missing")
    return value


def carry_out(form: Form, root: Path, env: Mapping[str, str], by: str) -> Outcome:
    caller = Caller(cwd=root, env=env, by=by, limit_s=LIMIT_S)
    return try_named(form.verb, caller, read_request(form))


async def act(request: Request) -> Response:
    """POST /act: carry it out, and show what became of it."""
    form = await read_form(request)
    site = site_of(request)
    if not access.is_form_token(site, request.state.session, form.csrf):
        raise HTTPException(403, "The form is out of date; load the page again")
    known = await run_in_threadpool(find_known, site.env, form.repo)
    outcome = await run_in_threadpool(carry_out, form, Path(known.root), site.env, "page")
    back = link("/plan", repo=form.repo, plan=form.plan) if form.plan else "/inbox"
    return show_outcome(request, form, outcome, back=back)


def show_outcome(request: Request, form: Form, outcome: Outcome, *, back: str = "") -> Response:
    """The page with what was said; the script shows its last sentence."""
    status = 200 if outcome.code == Exit.DONE else 409 if outcome.code == Exit.WAITING else 422
    line = command("runplan", form.verb, *filter(None, (form.plan or form.id, form.phase)))
    return render(request, "result.html", status=status, result=outcome, line=line, back=back)
