"""The pages of all repositories: the board, the inbox, schedules, costs, start, reports and health."""

import shlex
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from runplan.app.health import SetupCheck, examine
from runplan.app.operations.model import Caller
from runplan.app.operations.start import forecast_start
from runplan.app.operations.upkeep import list_lessons
from runplan.app.views.board import GROUPS, find_card, read_board, shorten_roots
from runplan.app.views.checks import list_disks, read_plan_file, view_plan_file
from runplan.app.views.plans import ask_daemon
from runplan.app.views.reports import read_costs, read_news, read_report, render_html
from runplan.app.views.repositories import find_known, label_of, list_known, list_with_current, read_all_inboxes
from runplan.domain.errors import RunplanError, UsageError
from runplan.domain.plan.marks import Status
from runplan.domain.settings.options import parse_words
from runplan.domain.settings.schema import LANDINGS
from runplan.domain.text import command
from runplan.domain.times import iso
from runplan.interfaces.web.render import render, route, site_of

MOST_FINISHED = 12  #: finished plans on the board
MOST_QUEUED = 20  #: plans of each queue there


class Choice(Struct, frozen=True, kw_only=True):
    scope: str = "finish"  #: finish, next, or the id of a phase after `phase `
    auto: str = ""
    landing: str = ""
    every: str = ""
    now: str = ""

    def list_words(self) -> list[str]:
        """The words after PLAN. A schedule works on one phase at a time, and never asks."""
        landing = [self.landing] if self.landing in LANDINGS else []
        every = self.every.split()
        if every:
            spec = every if every[0].lower() == "every" else ["every", *every]
            return [*landing, *spec, *(["now"] if self.now else [])]
        scope = [] if self.scope == "next" else [self.scope.removeprefix("phase ")]
        return [*scope, *(["auto"] if self.auto else []), *landing]


@route("/start")
def show_start(request: Request) -> Response:
    query = request.query_params
    env = site_of(request).env
    now = datetime.now(UTC)
    if not query.get("plan"):
        repositories = list_with_current(env)
        cards = [card for card in read_board(repositories, now).cards if card.view.can_start]
        names = shorten_roots([repository.root for repository in repositories])
        return render(request, "choose.html", cards=cards, repositories=repositories, names=names)
    known, card = find_card(env, query.get("repo", ""), query["plan"], now)
    is_made = "scope" in query  # the form was sent
    choice = Choice(**{name: query[name] for name in Choice.__struct_fields__ if is_made and name in query})
    words = choice.list_words() if is_made else []
    problem = error = forecast = ""
    checked = None
    try:
        parse_words(words)
    except UsageError as refused:
        problem = str(refused)
    try:
        caller = Caller(cwd=Path(known.root), env=env)
        file = read_plan_file(caller, card.view.plan)
        checked = view_plan_file(file)
        with caller.open(lenient=True) as context:
            forecast = forecast_start(context, [phase for phase in file.plan.phases if phase.status is not Status.DONE])
    except RunplanError as unreadable:
        error = str(unreadable)
    return render(
        request,
        "start.html",
        card=card,
        checked=checked,
        forecast=forecast,
        error=error,
        choice=choice,
        is_chosen=is_made and not problem,
        problem=problem,
        words=shlex.join(words),
        command=command("runplan", "start", card.view.plan, *words),
        landings=LANDINGS,
    )


@route("/reports")
def show_reports(request: Request) -> Response:
    board = read_board(list_with_current(site_of(request).env), datetime.now(UTC))
    cards = sorted((card for card in board.cards if card.view.run), key=lambda card: card.since, reverse=True)
    return render(request, "reports.html", cards=cards)


@route("/report")
def show_report(request: Request) -> Response:
    query = request.query_params
    env = site_of(request).env
    if since := query.get("since"):
        card = None
        title, body = render_html(read_news(Caller(env=env), since, now=datetime.now().astimezone()).markdown)
    else:
        known, card = find_card(env, query.get("repo", ""), query.get("plan", ""), datetime.now(UTC))
        report = read_report(Caller(cwd=Path(known.root), env=env), card.view.plan, diffs=True)
        title, body = render_html(report.markdown, report.diffs)
    return render(request, "report.html", card=card, title=title, body=Markup(body))  # noqa: S704 - it is escaped


@route("/health")
def show_health(request: Request) -> Response:
    """The daemon and the disks; the checks of a repository when it is chosen."""
    env = site_of(request).env
    repositories = list_with_current(env)
    key = request.query_params.get("repo", "")
    chosen = find_known(env, key) if key else None
    caller = Caller(cwd=Path(chosen.root), env=env) if chosen else None
    began = datetime.now(UTC)
    checks: list[SetupCheck] = []
    problem = ""
    try:
        checks = examine(caller) if caller else []
    except RunplanError as error:
        problem = str(error)
    return render(
        request,
        "health.html",
        daemon=ask_daemon(env, answer_s=2.0),
        disks=list_disks(env, repositories),
        repositories=repositories,
        names=shorten_roots([repository.root for repository in repositories]),
        chosen=chosen,
        checks=checks,
        problem=problem,
        made=iso(began),
        took_s=(datetime.now(UTC) - began).total_seconds(),
        lessons=list_lessons(caller) if caller else (),
    )


@route("/")
def show_board(request: Request) -> Response:
    board = read_board(list_with_current(site_of(request).env), datetime.now(UTC))
    groups = [(word, heading, board.list_group(group)) for group, (word, heading) in GROUPS.items()]
    most = {"most_finished": MOST_FINISHED, "most_queued": MOST_QUEUED}
    return render(request, "board.html", live=True, board=board, groups=groups, **most)


@route("/inbox")
def show_inbox(request: Request) -> Response:
    env = site_of(request).env
    known = {label_of(repository): repository for repository in list_with_current(env)}
    inbox = read_all_inboxes(env)
    return render(request, "inbox.html", live=True, inbox=inbox, known=known, names=shorten_roots(list(known)))


@route("/schedules")
def show_schedules(request: Request) -> Response:
    board = read_board(list_with_current(site_of(request).env), datetime.now(UTC))
    return render(request, "schedules.html", live=True, board=board)


@route("/costs")
def show_costs(request: Request) -> Response:
    known = {repository.root: repository for repository in list_known(site_of(request).env)}
    costs = read_costs({root: repository.journal for root, repository in known.items()}, today=datetime.now(UTC).date())
    return render(
        request,
        "costs.html",
        live=True,
        costs=costs,
        tables={"Plan": costs.plans, "Agent": costs.agents, "Role": costs.roles},
        known=known,
    )
