"""Renders pages from templates. Text that is not of a template is escaped, and each of its characters is visible."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from runplan import __version__
from runplan.app.views.reports import render_inline
from runplan.app.views.repositories import read_all_inboxes
from runplan.domain.standing.usage import usage_of
from runplan.domain.text import clock, cut_cells, elapsed, in_words, plain_line, visible
from runplan.domain.times import parse_iso, zone as zone_of
from runplan.interfaces.web.access import Site, make_form_token

H = TypeVar("H", bound=Callable[..., Any])

FOLDER = Path(__file__).parent
ROUTES: list[Route] = []  #: to which each module of pages adds its own
#: The pages of the navigation: address, name, and the key that goes there after `g`.
NAVIGATION = (
    ("/", "Board", "b"),
    ("/inbox", "Inbox", "i"),
    ("/schedules", "Schedules", "s"),
    ("/start", "Start", "n"),
    ("/reports", "Reports", "r"),
    ("/costs", "Costs", "c"),
    ("/health", "Health", "h"),
)
#: The page of the navigation to which another one belongs.
PARENTS = {"/change": "/inbox", "/change/file": "/inbox", "/report": "/reports"}


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def route(path: str, method: str = "GET") -> Callable[[H], H]:
    """Have the function answer the requests for a path."""

    def add(handler: H) -> H:
        ROUTES.append(Route(path, handler, methods=[method]))
        return handler

    return add


def render(request: Request, template: str, *, status: int = 200, live: bool = False, **values: Any) -> HTMLResponse:
    """The page of a template, which knows `repo` and `plan` of the address. A page that is not live has no events."""
    site = site_of(request)
    path: str = request.scope["path"]
    repo, plan = (request.query_params.get(name, "") for name in ("repo", "plan"))
    common = {
        "repo": repo,
        "plan": plan,
        "navigation": NAVIGATION,
        "path": PARENTS.get(path, path),
        "live": link("/live", repo=repo, plan=plan, seen=str(request.state.began_ns)) if live else "",
        "signed_in": bool(request.state.session),
        "csrf": make_form_token(site, request.state.session) if request.state.session else "",
        "read_only": site.is_read_only,
        "version": __version__,
        "now": datetime.now(UTC),
        "count_waiting": lambda: len(read_all_inboxes(site.env).entries),
    }
    text = TEMPLATES.get_template(template).render(**common | values)
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)  # a path need not be UTF-8


def link(path: str, **query: str) -> str:
    """An address of this site; empty values are left out."""
    filled = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(filled, errors='surrogateescape')}" if filled else path


def read_number(text: str, default: int = 0) -> int:
    """The number in a part of an address; the default for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else default


def show_time(moment: str | None, zone: str = "", *, is_age: bool = False) -> str:
    """The time in the zone, or the local time of this machine: `20:30 CET`; with the day where that is not today.

    Or how long ago it was; the script counts on.
    """
    if not moment:
        return ""
    shown = parse_iso(moment)
    now = datetime.now(UTC)
    text = in_words((now - shown).total_seconds()) if is_age else clock(shown, zone_of(zone) if zone else None, now=now)
    exact = f"{shown.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    more = Markup(" data-age") if is_age else ""
    return Markup('<time datetime="{0}" title="{0}"{1}>{2}</time>').format(exact, more, text)


def show_inline(text: str, *, has_links: bool = True) -> Markup:
    """A text of Markdown, such as a title or an item. Without links it can be the text of one."""
    return Markup(render_inline(visible(text, is_prose=True), has_links=has_links))  # noqa: S704 - it is escaped


TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    # Every character of a text is visible; escaping comes after it.
    finalize=lambda value: visible(value, is_prose=True) if type(value) is str else value,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
TEMPLATES.filters |= {
    "time": show_time,
    "age": partial(show_time, is_age=True),
    "inline": show_inline,
    "label": lambda text: show_inline(text, has_links=False),
    "hash": lambda id_: Markup('<span class="mono" title="{}">{}</span>').format(id_, id_[:7]),
    "bare": lambda text: show_inline(text).striptags(),
    "until": lambda moment: in_words((parse_iso(moment) - datetime.now(UTC)).total_seconds()),
    "elapsed": elapsed,
    "usage": usage_of,
    "cut": lambda text, most: cut_cells(plain_line(text), most),
    "short": lambda number: f"{number:.1f}".removesuffix(".0"),
}
TEMPLATES.globals |= {"link": link}
