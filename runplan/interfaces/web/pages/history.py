"""The journal of a plan, with the decisions."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runplan.adapters.store.journal import list_records
from runplan.app.views.journal import describe_duration, describe_event, event_words, list_steps
from runplan.app.views.plan_page import require_plan
from runplan.app.views.repositories import find_known, open_known
from runplan.domain.errors import NotFound
from runplan.domain.run import events as e
from runplan.domain.run.recorded import Recorded
from runplan.domain.text import bounded, localized
from runplan.interfaces.web.render import link, read_number, render, site_of

MOST_RUNS = 50
MOST_EVENTS = 200  #: on one page
LONGEST = 1_000  #: characters of a sentence


class EventLine(Struct, frozen=True, kw_only=True):
    """One fact of the journal, and the decision that followed."""

    seq: int
    at: str
    lane: str
    name: str
    phase: str
    text: str  #: the sentence of `logs`; "" for facts that only the journal needs
    then: str  #: the reason of `explain`


def show_journal(request: Request) -> Response:
    query = request.query_params
    repo, plan = query.get("repo", ""), query.get("plan", "")
    known = find_known(site_of(request).env, repo)
    with open_known(known, warn=lambda _: None) as context:
        require_plan(context, plan)
        store = context.store()
        runs = store.list_runs(plan, limit=MOST_RUNS)
        run = store.get_run(query.get("run", "")) or (runs[0] if runs and not query.get("run") else None)
        if runs and (run is None or run.plan != plan):
            raise NotFound("the plan has no such run; see its journal for the newest ones")
        records = list_records(store, run.id) if run else []
    lines = describe_records(records, now=datetime.now(UTC))
    page = read_page(query.get("page", ""), len(lines))
    return render(
        request,
        "journal.html",
        live=link("/live", repo=repo, plan=plan),
        repo=repo,
        plan=plan,
        runs=runs,
        run=run,
        why=lines[0].then if lines else "",
        lines=lines[page * MOST_EVENTS : (page + 1) * MOST_EVENTS],
        page=page,
        pages=max(-(-len(lines) // MOST_EVENTS), 1),
    )


def describe_records(records: list[Recorded[e.Event]], *, now: datetime) -> list[EventLine]:
    """The events of a run with the decisions that followed, the newest first."""
    lines = []
    for record, step in zip(records, list_steps(records), strict=True):
        event = record.event
        text = describe_event(event)
        if not text and isinstance(event, e.DispatchEnded):
            text = describe_duration(event, event.seconds)
        lines.append(
            EventLine(
                seq=record.seq,
                at=record.at,
                lane=event.lane,
                name=event_words(type(event).__name__),
                phase=step.phase,
                text=bounded("\n".join(line.strip() for line in text.strip().splitlines()), LONGEST),
                then=bounded(localized(step.why, now=now), LONGEST),
            )
        )
    return lines[::-1]


def read_page(text: str, count: int) -> int:
    """The number of a page, from 0, of so many events; the first page for anything else."""
    number = read_number(text)
    return number if number * MOST_EVENTS < count else 0


ROUTES = (Route("/journal", show_journal),)
