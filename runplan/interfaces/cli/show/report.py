"""runplan report: a plan, or all repositories since a moment, as Markdown, HTML or JSON; inbox; memory; queue."""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from msgspec import to_builtins

from runplan.app.operations.model import Caller
from runplan.app.operations.requests import ForgetRequest, QueueRequest
from runplan.app.operations.start import queue
from runplan.app.operations.upkeep import forget, list_lessons
from runplan.app.views.board import read_queue_here
from runplan.app.views.reports import News, PlanReport, read_news, read_report
from runplan.app.views.repositories import read_all_inboxes
from runplan.app.views.status import describe_schedule
from runplan.domain.decoding import as_json
from runplan.domain.errors import UsageError
from runplan.domain.standing.actions import describe_actions
from runplan.domain.text import command_in, in_words, plain, visible
from runplan.domain.times import parse_iso
from runplan.interfaces.cli.terminal import Style, say, warn

WIDEST = 40  #: characters of the names in a list, in a terminal of 80; a longer name stands out


def run_report(args: argparse.Namespace) -> None:
    if args.since is not None and args.plan is not None:
        raise UsageError("report: --since is for all repositories; leave out PLAN")
    caller = Caller(warn=warn)
    if args.since is not None:
        shown: News | PlanReport = read_news(caller, args.since, now=datetime.now().astimezone())
    else:
        shown = read_report(caller, args.plan or "", diffs=args.html)
    if args.html:
        text = shown.html
    elif not args.json:
        text = plain(shown.markdown)
    else:
        text = as_json(shown, indent=None) + "\n"
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
        warn(lost.words)
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
    print_queue("", is_json=args.json)


def print_queue(work: str, *, is_json: bool) -> None:
    """The plans of the queue and the works on it; of one with a name only that work, and first."""
    now = datetime.now(UTC)
    view = read_queue_here(Caller(warn=warn), work, now)
    if is_json:
        print(as_json(view))
        return
    style = Style.of(sys.stdout)
    width = min(max((len(plan.plan) for plan in view.plans), default=0), WIDEST)
    plans = []
    for number, plan in enumerate(view.plans, 1):
        line = f"{number:>3}  {plan.plan:<{width}}  {'pinned, ' * plan.is_pinned}{plan.words}"
        plans.append(style.wrap(plain(line), "     "))
        plans += [style.wrap(f"     {describe_actions(plan.actions[:1])}", "       ")] if plan.actions else []
    begin = " Work on the next one: runplan work" if view.forecast else ""
    lines = [f"{view.words}{begin}"] if view.words else []
    for work_view in view.works:
        when = describe_schedule(work_view.schedule, now=now) if work_view.schedule is not None else ""
        lines.append(f"{work_view.plan}: {'; '.join(filter(None, [work_view.words, when]))}")
        needed = describe_actions(work_view.needed_actions)
        lines += [f"  {needed}"] if needed else []
    lines += [f"Forecast of what is ready: {view.forecast}"] if view.forecast else []
    lines += [view.host] if view.host else []
    lines = [style.wrap(plain(line), "  ") for line in lines]
    blocks = [lines, plans] if work else [plans, lines]
    print("\n\n".join("\n".join(block) for block in blocks if block))
