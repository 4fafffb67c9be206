"""runplan report: a plan, or all repositories since a moment, as Markdown, HTML or JSON; runplan inbox."""

from __future__ import annotations

import argparse
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from runplan.adapters.git.objects import read_plan
from runplan.app.views.inspection import read_short_diffs
from runplan.app.views.repositories import list_journals
from runplan.domain import names
from runplan.domain.errors import NotFound, PlanUnreadable, UsageError
from runplan.domain.plan.model import parse_plan
from runplan.domain.settings.schema import parse_duration
from runplan.domain.text import command, command_in, in_words, plain, visible
from runplan.domain.times import iso, parse_iso
from runplan.engine.loop.context import newest_run, open_context, plan_path, slug_of
from runplan.engine.report import html, summary, text as report
from runplan.engine.report.inbox import InboxEntry, read_inbox
from runplan.engine.report.planning import planning_report
from runplan.engine.report.sections import failure_sections, newest_pull_request
from runplan.engine.report.views import as_json
from runplan.interfaces.cli.terminal import Style, warn


def run_report(args: argparse.Namespace) -> None:
    if args.since is not None and args.plan is not None:
        raise UsageError("report: --since is for all repositories; leave out PLAN")
    text = _all_repositories(args) if args.since is not None else _one_plan(args)
    if args.output is None:
        print(text, end="")
    else:
        try:
            Path(args.output).write_text(text, encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise UsageError(f"report: cannot write {args.output}: {error.strerror}") from None


# --- a plan -----------------------------------------------------------------------------------------------


def _one_plan(args: argparse.Namespace) -> str:
    with open_context(warn=warn) as context:
        store = context.store()
        run = store.get_run(args.plan) if args.plan is not None else newest_run(context, None)[1]
        path = run.plan if run is not None else plan_path(context, args.plan)
        only = run.id if run is not None and args.plan else ""  # the report of a run
        context = context.for_plan(path)
        tip = context.tip()
        landed = context.git.blob(tip, names.report_path(context.settings.paths.reports, slug_of(context, path)))
        failures = failure_sections(store, path, only)
        planned = planning_report(store, path, only)
        if landed is None and not failures and not planned and not only:
            raise NotFound(f"nothing to report of {path} yet; start it: {command('runplan', 'start', path)}")
        plan = None
        text = read_plan(context.git, f"{tip}:{path}", path) if not only else None
        with suppress(PlanUnreadable):
            plan = parse_plan(text, path=path) if text is not None else None
        recorded = [fact for fact in summary.list_summary_facts(store, path) if only in ("", fact.run)]
        owned = bool(store.get_living_owner(path))
        newest = run if only else store.get_newest_run(path)
        facts = summary.summary_of(path, plan, newest, summary.summarise_attempts(recorded), owned=owned)
        old = None if landed is None else landed.decode("utf-8", "surrogateescape")
        if only:
            title = f"{path}, run {only}"
            sections = [*report.sections_of_run(old or "", only), *failures]
            whole = report.prepend_sections(None, plan_title=title, sections=sections)
        else:
            whole = report.prepend_sections(old, plan_title=facts.title, sections=failures)
            whole = report.name_pull_request(whole, newest_pull_request(store, path))
        whole = report.insert_section(whole, summary.summary_section(facts))
        whole = f"{whole}\n{planned}\n" if planned else whole
        if args.html:
            return html.render_page(whole, diffs=read_short_diffs(context, html.commits_in(whole)))
    if args.json:
        view = {"plan": path, "report": whole, "title": facts.title, "phases": facts.phases}
        return as_json(view, indent=None) + "\n"
    return plain(whole)


# --- all repositories -------------------------------------------------------------------------------------


def _all_repositories(args: argparse.Namespace) -> str:
    moment = moment_of(args.since, now=datetime.now(UTC).astimezone())
    news = summary.news_of(list_journals(), since=iso(moment))
    if args.json:
        return (
            as_json({"since": iso(moment), "summary": summary.count_phases(news), "repositories": news}, indent=None)
            + "\n"
        )
    markdown = summary.morning_report(news, since=f"{moment:%Y-%m-%d %H:%M %Z}")
    return html.render_page(markdown, diffs={}) if args.html else plain(markdown)


def moment_of(word: str, *, now: datetime) -> datetime:
    """The moment, in local time, that a word means: today, yesterday, a span such as 8h, or a date."""
    days = {"today": 0, "yesterday": 1}.get(word.lower())
    if days is not None:
        return datetime.combine(now.date() - timedelta(days=days), datetime.min.time()).astimezone()
    with suppress(ValueError, OverflowError):
        if (span := parse_duration(word)) is not None:
            return now - timedelta(seconds=span)
        if re.match(r"\d{4}-\d\d-\d\d", word):
            return datetime.fromisoformat(word).astimezone()
    raise UsageError(f"report: --since {word}: unknown moment; use today, yesterday, 8h, 2d or 2026-11-15")


# --- what waits for a person ------------------------------------------------------------------------------


def run_inbox(args: argparse.Namespace) -> None:
    inbox = read_inbox(list_journals())
    if args.json:
        print(as_json(inbox))
        return
    for lost in inbox.unreadable:
        warn(f"{lost.repository} cannot be read: {lost.error}")
    style = Style.of(sys.stdout)
    now = datetime.now(UTC)
    print("\n\n".join(_show_entry(entry, style, now) for entry in inbox.entries) or "Nothing waits for you.")


def _show_entry(entry: InboxEntry, style: Style, now: datetime) -> str:
    phase = f", phase {entry.phase} {entry.title}" if entry.phase else f", {entry.title}"
    waited = in_words(max(0.0, (now - parse_iso(entry.since)).total_seconds()))
    head = style.paint(visible(f"{entry.kind}: {entry.plan}{phase}", is_prose=True), "bold")
    lines = [f"{head}  ({waited}, {entry.repository})", *visible(entry.text, is_prose=True).split("\n")]
    is_here = Path.cwd().is_relative_to(entry.repository)
    is_fleet = not Path(entry.repository, ".git").exists()  # then it has the name of its remote
    there = (line if is_here else command_in(entry.repository, line, is_fleet=is_fleet) for line in entry.commands)
    return "\n  ".join([*lines, *(style.paint(line, "cyan") for line in there)])
