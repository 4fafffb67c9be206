"""runplan report: a plan, or all repositories since a moment, as Markdown, HTML or JSON; inbox; memory; queue."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from msgspec import to_builtins

from runplan.app.operations.model import Caller
from runplan.app.operations.queue import queue
from runplan.app.operations.requests import ForgetRequest, QueueRequest
from runplan.app.operations.upkeep import forget, list_lessons
from runplan.app.views.board import read_queue_view
from runplan.app.views.plans import read_plans
from runplan.app.views.reports import News, PlanReport, read_news, read_report
from runplan.app.views.repositories import read_all_inboxes
from runplan.app.views.status import describe_schedule
from runplan.domain.decoding import as_json
from runplan.domain.errors import UsageError
from runplan.domain.text import command_in, in_words, plain, visible
from runplan.domain.times import iso, parse_iso
from runplan.interfaces.cli.terminal import Style, say, warn


def run_report(args: argparse.Namespace) -> None:
    if args.since is not None and args.plan is not None:
        raise UsageError("report: --since is for all repositories; leave out PLAN")
    caller = Caller(warn=warn)
    if args.since is not None:
        shown: News | PlanReport = read_news(caller, args.since)
    else:
        shown = read_report(caller, args.plan or "", diffs=args.html)
    if args.html:
        text = shown.html
    elif not args.json:
        text = plain(shown.markdown)
    elif isinstance(shown, News):
        view = {"since": iso(shown.since), "summary": shown.counts, "repositories": shown.repositories}
        text = as_json(view, indent=None) + "\n"
    else:
        view = {"plan": shown.plan, "report": shown.markdown, "title": shown.title, "phases": shown.phases}
        text = as_json(view, indent=None) + "\n"
    if args.output is None:
        print(text, end="")
    else:
        try:
            Path(args.output).write_text(text, encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise UsageError(f"report: cannot write {args.output}: {error.strerror}") from None


def run_inbox(args: argparse.Namespace) -> None:
    inbox = read_all_inboxes(Caller().env)
    if args.json:
        print(as_json(inbox))
        return
    for lost in inbox.unreadable:
        warn(f"{lost.repository} cannot be read: {lost.error}")
    style = Style.of(sys.stdout)
    now = datetime.now(UTC)
    blocks = []
    for entry in inbox.entries:
        phase = f", phase {entry.phase} {entry.title}" if entry.phase else f", {entry.title}"
        waited = in_words(max(0.0, (now - parse_iso(entry.since)).total_seconds()))
        head = style.paint(visible(f"{entry.kind}: {entry.plan}{phase}", is_prose=True), "bold")
        lines = [f"{head}  ({waited}, {entry.repository})", *visible(entry.text, is_prose=True).split("\n")]
        is_here = Path.cwd().is_relative_to(entry.repository)
        is_fleet = not Path(entry.repository, ".git").exists()  # then it has the name of its remote
        there = (line if is_here else command_in(entry.repository, line, is_fleet=is_fleet) for line in entry.commands)
        blocks.append("\n  ".join([*lines, *(style.paint(line, "cyan") for line in there)]))
    print("\n\n".join(blocks) or "Nothing waits for you.")


def run_memory(args: argparse.Namespace) -> None:
    caller = Caller(say=say, warn=warn)
    if args.clear or args.forget:
        forget(caller, ForgetRequest(id=args.forget))
        return
    lessons = list_lessons(caller)
    if args.json:
        print(as_json(to_builtins(lessons)))
        return
    for lesson in lessons:
        times = f", {lesson.count} times" if lesson.count > 1 else ""
        print(plain(f"{lesson.id}  {lesson.last[:10]}  {lesson.source}{times}: {lesson.text}"))
    if not lessons:
        print("Nothing yet. Runs teach by rejections, answers, failures that were mended, and what agents hand over.")


def run_queue(args: argparse.Namespace) -> None:
    caller = Caller(say=say, warn=warn)
    if args.action:
        queue(caller, QueueRequest(action=args.action, plan=args.plan, to=args.to))
        return
    with caller.open(lenient=True) as context:
        views, host = read_plans(context, "", datetime.now(UTC), warn=warn)
        view = read_queue_view(context, views)
    if args.json:
        print(as_json(view))
        return
    width = max((len(plan.plan) for plan in view.plans), default=0)
    for number, plan in enumerate(view.plans, 1):
        print(plain(f"{number:>3}  {plan.plan:<{width}}  {'pinned, ' * plan.is_pinned}{plan.words}"))
    style = Style.of(sys.stdout)
    lines = [f"Forecast of what is ready: {view.forecast}"] if view.forecast else []
    now = datetime.now(UTC)
    for work in view.works:
        when = describe_schedule(work.schedule, now=now) if work.schedule is not None else ""
        lines.append(f"{work.plan}: {'; '.join(filter(None, [work.words, when]))}")
    lines += [host.error] if host else []
    print(*([""] if lines and view.plans else []), *(style.wrap(plain(line), "  ") for line in lines), sep="\n")
    if not view.plans:
        print("No plan is open.")
