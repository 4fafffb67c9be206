"""The report of a plan, and the news of all repositories, as Markdown with their figures; and what agents have cost."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from datetime import date, datetime, timedelta

from msgspec import Struct, field

from runplan.adapters.git.objects import read_plan
from runplan.adapters.store.location import Location
from runplan.adapters.store.protocol import open_store
from runplan.app.operations.model import Caller
from runplan.app.views.inspection import read_short_diffs
from runplan.app.views.repositories import list_journals
from runplan.domain import names
from runplan.domain.errors import NotFound, PlanUnreadable, RunplanError, UsageError
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.rows import UsageTotal
from runplan.domain.settings.schema import parse_duration
from runplan.domain.standing.usage import AgentUsage, sum_usage
from runplan.domain.text import command, dated
from runplan.domain.times import iso
from runplan.engine.loop.context import newest_run, plan_path, slug_of
from runplan.engine.report import summary, text as report
from runplan.engine.report.html import COMMIT, read_title, render_body, render_inline as render_inline, render_page
from runplan.engine.report.sections import failure_sections, newest_pull_request, planning_report

DAYS = 30  #: of costs
MOST_PLANS = 30  #: with a row of their own; the others are summed


class PlanReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The report of a plan; `report --json` is this value encoded, without diffs."""

    plan: str
    markdown: str = field(name="report")
    title: str
    phases: tuple[summary.PhaseRecord, ...]
    diffs: dict[str, str] = {}  #: of the commits that it lists, by their abbreviated ids

    @property
    def html(self) -> str:
        return render_page(self.markdown, diffs=self.diffs)


class News(Struct, frozen=True, kw_only=True):
    """The news of all repositories; `report --since … --json` is this value encoded."""

    since: str  #: UTC ISO-8601
    counts: str = field(name="summary")
    repositories: list[summary.RepositoryNews]

    @property
    def markdown(self) -> str:
        since = datetime.fromisoformat(self.since).astimezone()
        return summary.morning_report(self.repositories, since=dated(since))

    @property
    def html(self) -> str:
        return render_page(self.markdown, diffs={})


def read_report(caller: Caller, word: str = "", *, diffs: bool = False) -> PlanReport:
    """The report of a plan or of a run; without a word, of the plan of the newest run."""
    with caller.open(lenient=True) as context:
        store = context.store()
        run = store.get_run(word) if word else newest_run(context, None)[1]
        path = run.plan if run is not None else plan_path(context, word)
        only = run.id if run is not None and word else ""  # the report of a run
        context = context.for_plan(path)
        context.fetch_landed(caller.warn)
        tip = context.tip()
        landed = context.git.blob(tip, names.report_path(context.settings.paths.reports, slug_of(context, path)))
        failures = failure_sections(store, path, only)
        planned = planning_report(store, path, only)
        if landed is None and not failures and not planned and not only:
            latest = store.get_newest_run(path)
            see = f"see: {command('runplan', 'status', path)}"
            remedy = see if latest is not None else f"start it: {command('runplan', 'start', path)}"
            raise NotFound(f"nothing to report of {path} yet; {remedy}")
        plan = None
        text = read_plan(context.git, f"{tip}:{path}", path) if not only else None
        with suppress(PlanUnreadable):
            plan = parse_plan(text, path=path) if text is not None else None
        recorded = [fact for fact in store.list_facts(*summary.KINDS, plan=path) if only in ("", fact.run)]
        owned = bool(store.get_living_owner(path))
        newest = run if only else store.get_newest_run(path)
        facts = summary.summary_of(path, plan, newest, summary.summarise_attempts(recorded), owned=owned)
        old = None if landed is None else landed.decode("utf-8", "surrogateescape")
        if only:
            title = f"{path}, run {only}"
            listed = re.split(r"^(?=## )", (old or "").replace("\r\n", "\n"), flags=re.MULTILINE)
            of_run = (section for section in reversed(listed) if f"<!-- runplan: run {only}," in section)
            sections = [*(f"{section.rstrip()}\n" for section in of_run), *failures]
            whole = report.prepend_sections(None, plan_title=title, sections=sections)
        else:
            whole = report.prepend_sections(old, plan_title=facts.title, sections=failures)
            whole = report.name_pull_request(whole, newest_pull_request(store, path))
        whole = report.insert_section(whole, summary.summary_section(facts))
        whole = f"{whole}\n{planned}\n" if planned else whole
        listed_commits = (match[1] for line in whole.splitlines() if (match := COMMIT.match(line)))
        shown = read_short_diffs(context, dict.fromkeys(listed_commits)) if diffs else {}
    return PlanReport(plan=path, title=facts.title, markdown=whole, phases=facts.phases, diffs=shown)


def render_html(markdown: str, diffs: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The title of a report as text, and its content as HTML in which all text is escaped."""
    return read_title(markdown), render_body(markdown, diffs=diffs or {})


def read_news(caller: Caller, word: str, *, now: datetime) -> News:
    """The news since the moment, in local time, that a word means: today, yesterday, a span such as 8h, or a date."""
    days = {"today": 0, "yesterday": 1}.get(word.lower())
    moment = None
    with suppress(ValueError, OverflowError):
        if days is not None:
            moment = datetime.combine(now.date() - timedelta(days=days), datetime.min.time()).astimezone()
        elif (span := parse_duration(word)) is not None:
            moment = now - timedelta(seconds=span)
        elif re.match(r"\d{4}-\d\d-\d\d", word):
            moment = datetime.fromisoformat(word).astimezone()
    if moment is None:
        raise UsageError(f"report: --since {word}: unknown moment; use today, yesterday, 8h, 2d or 2026-11-15")
    since = iso(moment)
    news = summary.news_of(list_journals(caller.env), since=since)
    return News(since=since, counts=summary.count_phases(news), repositories=news)


class CostRow(AgentUsage, frozen=True, kw_only=True):
    name: str
    repository: str = ""  #: the root of the plan's
    count: int = 0


class Costs(Struct, frozen=True, kw_only=True):
    total: CostRow
    days: tuple[CostRow, ...]  #: the oldest first, with those without use
    plans: tuple[CostRow, ...]  #: these and the next have the most expensive first
    agents: tuple[CostRow, ...]
    roles: tuple[CostRow, ...]
    unreadable: tuple[str, ...] = ()  #: the repositories whose journal cannot be read, each with the reason


def read_costs(journals: Mapping[str, Location], *, today: date) -> Costs:
    since = (today - timedelta(days=DAYS - 1)).isoformat()
    totals: list[tuple[str, UsageTotal]] = []
    unreadable = []
    for root, journal in sorted(journals.items()):
        try:
            with closing(open_store(journal, writable=False, missing_ok=True)) as store:
                totals += [(root, total) for total in store.sum_usage(since)]
        except (RunplanError, OSError) as error:
            unreadable.append(f"{root}: {error}")
    return sum_costs(totals, today=today, unreadable=unreadable)


def sum_costs(totals: Iterable[tuple[str, UsageTotal]], *, today: date, unreadable: Iterable[str] = ()) -> Costs:
    """The sums of (repository, usage) pairs of the last days."""
    pairs = list(totals)
    by_day = {usage.name: usage for usage in _group(pairs, lambda _, total: (total.day, ""))}
    days = [(today - timedelta(days=ago)).isoformat() for ago in reversed(range(DAYS))]
    plans = _group(pairs, lambda root, total: (total.plan, root))
    others = sum_usage(CostRow, plans[MOST_PLANS:], name="", repository="")
    return Costs(
        total=sum_usage(CostRow, by_day.values(), name="", repository=""),
        days=tuple(by_day.get(day, CostRow(name=day)) for day in days),
        plans=(*plans[:MOST_PLANS], *([others] if others.count else [])),
        agents=tuple(_group(pairs, lambda _, total: (total.agent, ""))),
        roles=tuple(_group(pairs, lambda _, total: (total.role, ""))),
        unreadable=tuple(unreadable),
    )


def _group(pairs: list[tuple[str, UsageTotal]], key: Callable[[str, UsageTotal], tuple[str, str]]) -> list[CostRow]:
    """The sums by name and repository, the most expensive first."""
    groups: dict[tuple[str, str], list[UsageTotal]] = {}
    for root, total in pairs:
        groups.setdefault(key(root, total), []).append(total)
    usages = (sum_usage(CostRow, members, name=name, repository=root) for (name, root), members in groups.items())
    return sorted(usages, key=lambda usage: (-usage.usd, -usage.tokens, usage.name, usage.repository))
