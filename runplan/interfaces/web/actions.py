"""Carries out what the forms of the pages ask for."""

import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from urllib.parse import parse_qsl

from msgspec import Struct
from msgspec.structs import asdict
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from runplan.app.operations.model import Accepted, Caller, Where
from runplan.app.operations.table import OPERATIONS, OperationResult, try_operation
from runplan.app.views.repositories import find_known
from runplan.domain.errors import Exit, UsageError
from runplan.domain.standing.actions import EFFECTS
from runplan.interfaces.web import access
from runplan.interfaces.web.render import link, render, route, site_of

LARGEST = 64 * 1024  #: bytes of a form
LIMIT_S = 120.0  #: for an answer of the daemon; a request stays queued after it
#: The operations that a form may ask for, and the fields that their requests need here.
ACTIONS = (
    *("approve", "reject", "answer", "start", "plan", "work", "queue", "retry", "stop", "pause", "resume", "now"),
    *("tell", "forget"),
)
NEEDED = ("plan", "tree", "id", "text", "goal")


class Form(Struct, frozen=True, kw_only=True):
    csrf: str = ""
    repo: str = ""  #: the key of the repository
    verb: str = ""
    plan: str = ""
    phase: str = ""
    tree: str = ""  #: the tree, or the SHA-256 of the proposal, that the page has shown
    text: str | None = None  #: None: the form does not ask for words
    id: str = ""  #: of a question
    words: str = ""  #: of a start, as in a shell
    goal: str = ""  #: of a plan to be written
    quick: str = ""
    fresh: str = ""
    action: str = ""  #: on the queue: pin, unpin, or move and the new number of the plan

    @property
    def effect(self) -> str:
        return "revise" if self.verb == "reject" and self.text else self.verb


async def read_form(request: Request) -> Form:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                raise HTTPException(413, f"A form may have {LARGEST} bytes.")
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise HTTPException(400, "The form has too many fields") from None
    except ClientDisconnect:
        raise HTTPException(400, "The form is not complete") from None
    return Form(**{name: value for name, value in fields.items() if name in Form.__struct_fields__})


def read_request(form: Form) -> object:
    """The request of the form. What the page has shown is what is answered."""
    if form.verb not in ACTIONS:
        raise UsageError("no such action")
    try:
        options = tuple(shlex.split(form.words))
    except ValueError as error:
        raise UsageError(f"the words cannot be read: {error}") from None
    text = (form.text or "").strip()
    if form.verb == "reject" and form.text is not None and not text:
        raise UsageError("the text is missing")  # without words it would end the run
    values = {**asdict(form), "text": text, "why": text, "options": options}
    values |= {"goal": form.goal.strip(), "quick": bool(form.quick), "fresh": bool(form.fresh)}
    action, _, to = form.action.partition(" ")
    values |= {"action": action, "to": int(to) if to.isdecimal() and len(to) < 9 else None}
    kind = OPERATIONS[form.verb][1]
    names = [field.name for field in fields(kind) if field.name in values]
    if missing := [name for name in names if name in NEEDED and not values[name]]:
        raise UsageError(f"the {missing[0]} is missing")
    return kind(**{name: values[name] for name in names})


def carry_out(form: Form, root: Path, env: Mapping[str, str], by: str) -> OperationResult:
    caller = Caller(cwd=root, env=env, by=by, where=Where.DAEMON, limit_s=LIMIT_S)
    return try_operation(form.verb, caller, read_request(form))


@route("/act", "POST")
async def act(request: Request) -> Response:
    """POST /act: carry it out, and show the plan with what happens now, or why nothing does."""
    form = await read_form(request)
    site = site_of(request)
    if not access.is_same(access.make_form_token(site, request.state.session), form.csrf):
        raise HTTPException(403, "The form is out of date; load the page again")
    known = await run_in_threadpool(find_known, site.env, form.repo)
    outcome = await run_in_threadpool(carry_out, form, Path(known.root), site.env, "page")
    plan = (isinstance(outcome.answer, Accepted) and outcome.answer.plan) or form.plan
    if isinstance(outcome.answer, Accepted) and form.verb == "queue":
        return RedirectResponse("/#queue", 303)
    if isinstance(outcome.answer, Accepted) and plan:
        return RedirectResponse(link("/plan", repo=form.repo, plan=plan, done=form.effect), 303)
    back = link("/plan", repo=form.repo, plan=plan) if plan else "/inbox"
    return await run_in_threadpool(show_outcome, request, form, outcome, back=back)


def show_outcome(request: Request, form: Form, outcome: OperationResult, *, back: str = "") -> Response:
    """The page with what follows, or with what was said; the script shows its last sentence."""
    status = 200 if outcome.code == Exit.DONE else 409 if outcome.code == Exit.WAITING else 422
    effect = EFFECTS[form.effect] if isinstance(outcome.answer, Accepted) else ""
    return render(request, "result.html", status=status, result=outcome, effect=effect, back=back)
