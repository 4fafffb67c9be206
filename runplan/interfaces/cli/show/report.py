"""runplan report: a plan, or all repositories since a moment, as Markdown, HTML or JSON; runplan inbox."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from runplan.adapters.configuration.load import environment
from runplan.app.operations.model import Caller
from runplan.app.views.reports import News, Report, read_news, read_report
from runplan.app.views.repositories import read_all_inboxes
from runplan.domain.decoding import as_json
from runplan.domain.errors import UsageError
from runplan.domain.text import command_in, in_words, plain, visible
from runplan.domain.times import iso, parse_iso
from runplan.engine.report import html, summary
from runplan.engine.report.inbox import InboxEntry
from runplan.interfaces.cli.terminal import Style, warn


def run_report(args: argparse.Namespace) -> None:
    if args.since is not None and args.plan is not None:
        raise UsageError("report: --since is for all repositories; leave out PLAN")
    caller = Caller(cwd=Path.cwd(), env=environment(), warn=warn)
    if args.since is not None:
        text = _render_news(read_news(caller, args.since), args)
    else:
        text = _render_report(read_report(caller, args.plan or "", diffs=args.html), args)
    if args.output is None:
        print(text, end="")
    else:
        try:
            Path(args.output).write_text(text, encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise UsageError(f"report: cannot write {args.output}: {error.strerror}") from None


def _render_report(report: Report, args: argparse.Namespace) -> str:
    if args.html:
        return html.render_page(report.markdown, diffs=report.diffs)
    if args.json:
        view = {"plan": report.plan, "report": report.markdown, "title": report.title, "phases": report.phases}
        return as_json(view, indent=None) + "\n"
    return plain(report.markdown)


def _render_news(news: News, args: argparse.Namespace) -> str:
    if args.json:
        view = {"since": iso(news.since), "summary": summary.count_phases(news.repositories)}
        return as_json({**view, "repositories": news.repositories}, indent=None) + "\n"
    return html.render_page(news.markdown, diffs={}) if args.html else plain(news.markdown)


# --- what waits for a person ------------------------------------------------------------------------------


def run_inbox(args: argparse.Namespace) -> None:
    inbox = read_all_inboxes(environment())
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
