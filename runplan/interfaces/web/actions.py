"""Runs the commands that the forms of the pages ask for."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from runplan.app.views.commands import BACKGROUND, CommandResult, run_command
from runplan.app.views.repositories import find_known
from runplan.domain.errors import Exit, UsageError
from runplan.interfaces.web import access
from runplan.interfaces.web.render import link, render, site_of

MOST_FIELDS = 20


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


def build_words(form: Form) -> list[str]:
    """The words of the command. No field can become an option: names that begin with a dash are refused."""
    match form.verb:
        case "approve":
            return ["approve", *_name_phase(form), _bind(form), BACKGROUND]
        case "reject":
            why = [f"-m={_require_text(form)}"] if form.text.strip() else []
            return ["reject", *_name_phase(form), _bind(form), *why, BACKGROUND]
        case "answer":
            text = f" {_require_text(form)}"  # the space: it may begin with a dash
            return ["answer", BACKGROUND, _require("id", form.id), text]
        case "start":
            return ["start", _require("plan", form.plan), *_split_words(form.words)]
        case "retry":
            return ["retry", *_name_phase(form), BACKGROUND]
        case "stop" | "pause" | "resume" | "now":
            return [form.verb, _require("plan", form.plan)]
        case _:
            raise UsageError("no such action")


def _name_phase(form: Form) -> list[str]:
    return [_require("plan", form.plan), *([_require("phase", form.phase)] if form.phase else [])]


def _bind(form: Form) -> str:
    """The answer is for what was shown."""
    return f"--tree={_require('tree', form.tree)}"


def _require_text(form: Form) -> str:
    text = form.text.strip().replace("\0", "")
    if text in ("", "--"):  # argparse of Python 3.11 drops the second one wherever it stands
        raise UsageError("the text is empty")
    return text


def _split_words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"the words cannot be read: {error}") from None
    return [_require("word", word) for word in words]


def _require(name: str, value: str) -> str:
    if not value or value.startswith("-") or "\0" in value:
        raise UsageError(f"{value or 'nothing'!r} cannot be the {name}")
    return value


async def act(request: Request) -> Response:
    """POST /act: run the command, and show what it printed."""
    form = await read_form(request)
    site = site_of(request)
    if not access.is_form_token(site, request.state.session, form.csrf):
        raise HTTPException(403, "The form is out of date; load the page again")
    known = await run_in_threadpool(find_known, site.env, form.repo)
    words = [*build_words(form), *(["--via=page"] if form.verb in ("approve", "reject") else [])]
    result = await run_in_threadpool(run_command, words, cwd=Path(known.root), env=site.env)
    back = link("/plan", repo=form.repo, plan=form.plan) if form.plan else "/inbox"
    return show_result(request, result, back=back)


def show_result(request: Request, result: CommandResult, *, back: str = "") -> Response:
    """The page with the command, its exit code and its output; the script shows its first sentence."""
    status = 200 if result.code == Exit.DONE else 409 if result.code == Exit.WAITING else 422
    return render(request, "result.html", status=status, result=result, back=back)
