"""runplan logs, explain, metrics: what the journal has recorded, as a list, as reasons, as numbers."""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import replace

from runplan.app.machine import read_metrics
from runplan.app.operations.model import Caller
from runplan.app.views.journal import RunLog, describe_event, event_words, follow_events, open_run, read_steps
from runplan.app.views.plans import read_plans
from runplan.app.views.transcript import Transcript
from runplan.domain.decoding import as_json
from runplan.domain.errors import NotFound
from runplan.domain.names import QUEUE
from runplan.domain.run import events as e
from runplan.domain.run.recorded import from_json
from runplan.domain.run.rows import EventRow, RunRow
from runplan.domain.standing.actions import describe_actions
from runplan.domain.standing.usage import usage_of
from runplan.domain.text import clock, command, escaped, localized, plain, zone_name
from runplan.domain.times import parse_iso
from runplan.interfaces.cli.show import progress
from runplan.interfaces.cli.show.report import print_queue
from runplan.interfaces.cli.terminal import Style, warn

#: Fields that only runplan itself needs.
INTERNAL = {"settings", "slug", "patch", "onto_tree", "base_tree", "bounds", "given", "needs", "command"}
_LAST = 5  #: steps that `explain` shows
_ROUTINE = ("DispatchStarted", "DispatchEnded")  #: each is followed by what came of it


def run_logs(args: argparse.Namespace) -> None:
    with open_run(Caller(warn=warn), args.plan) as (context, store, run):
        if args.list:
            runs = store.list_runs(run.plan if args.plan else None)
            if args.json:
                names = ("id", "plan", "mode", "started", "since", "state", "outcome", "reason", "tokens", "usd")
                print(as_json([{name: getattr(listed, name) for name in names} for listed in runs]))
                return
            now = datetime.now(UTC)
            for listed in runs:
                why = f" ({listed.reason})" if listed.reason not in (None, listed.state) else ""
                used = usage_of(listed).words
                began = clock(parse_iso(listed.started), None, now=now)
                line = f"{listed.id}  {began:<20}  {listed.plan}, {listed.mode}: {listed.state}{why}"
                print(line, used, sep=", " if used else "")
            return
        log = RunLog(store, run, context.state)
        transcripts = Transcripts(run, partial(Transcript, context.outputs(store)))
        day = ""
        for rows, is_last in follow_events(store, run.plan, run.id, is_followed=args.follow):
            if args.json or args.events:
                for row in rows:
                    print(_show_event(row, is_json=args.json))
            elif args.agent:
                for row in rows:
                    transcripts.add(row)
                transcripts.look(is_last=is_last)
            else:
                for lines in log.read(rows):
                    day = _print_lines(run, log, lines, day)
                if is_last:
                    _print_lines(run, log, log.list_last(), day)
            sys.stdout.flush()


def run_attach(args: argparse.Namespace) -> None:
    run_logs(argparse.Namespace(**vars(args), list=False, follow=True, agent=True, events=False, json=False))


def _show_event(row: EventRow, *, is_json: bool) -> str:
    body = json.loads(row.body)
    if is_json:
        return as_json({"seq": row.seq, "at": row.at, "run": row.run, "type": row.type} | body, indent=None)
    shown = []
    for name, value in {"lane": body.pop("lane", ""), **body}.items():
        text = plain(value) if isinstance(value, str) else escaped(json.dumps(value, ensure_ascii=False))
        flat = " ".join(text.split())
        if value and name not in INTERNAL:
            shown.append(f"{name}={flat if len(flat) <= 60 else f'{flat[:59]}…'}")
    return f"{row.at}  {event_words(row.type):<18}  {'  '.join(shown)}".rstrip()


def _print_lines(run: RunRow, log: RunLog, lines: list[str], day_before: str) -> str:
    """Print the lines of an event below their day, which is returned."""
    style = Style.of(sys.stdout)
    day = f"{log.moment:%Y-%m-%d} {zone_name(log.moment)}" if lines else day_before
    if day != day_before:
        print(style.paint(f"{run.plan}, run {run.id}, {day}", "bold"))
    for line in lines:
        print(progress.paint_line(line, style, f"{log.moment:%H:%M:%S}  {log.lane}") if line else "")
    return day


class Transcripts:
    """Prints the output of every agent, in the order in which they started."""

    def __init__(self, run: RunRow, open_transcript: Callable[[e.DispatchStarted], Transcript]) -> None:
        self._run = run
        self._open_transcript = open_transcript
        self._open: dict[str, Transcript] = {}  #: by dispatch
        self._has_begun = False
        self._style = Style.of(sys.stdout)

    def add(self, row: EventRow) -> None:
        match from_json(row.type, row.body):
            case e.DispatchStarted(agent=agent) as started if agent:
                for id_ in (started.id, *started.beside):
                    self._open[id_] = self._open_transcript(replace(started, id=id_))
                self._has_begun = True
            case e.DispatchEnded(id=id_) as ended if id_ in self._open:
                self._open[id_].ended = ended
            case e.Told() as told:
                print(self._style.wrap(plain(describe_event(told).strip()), ""))

    def look(self, *, is_last: bool) -> None:
        if is_last and not self._has_begun:
            raise NotFound(f"no agent has worked on {self._run.plan} in the run {self._run.id} yet")
        for transcript in self._open.values():
            for line in transcript.read_new(is_last=is_last):
                print(self._style.wrap(line, " " * len(transcript.lane)))
        self._open = {id_: transcript for id_, transcript in self._open.items() if transcript.ended is None}


def run_explain(args: argparse.Namespace) -> None:
    if args.plan and args.plan.startswith(QUEUE):
        print_queue(args.plan, is_json=args.json)
        return
    now = datetime.now(UTC)
    with open_run(Caller(warn=warn), args.plan) as (context, store, newest):
        every, repeats = read_steps(store, newest.id)
        views = read_plans(context, newest.id, now, warn=warn)[0] if not args.json else []
    steps = [step for step in every if args.phase in (None, step.phase)]
    if args.phase and not steps:
        raise NotFound(f"the run {newest.id} has not reached a phase {args.phase}")
    why = steps[-1].why if steps else "nothing has been started"
    if args.json:
        print(as_json({"run": newest.id, "plan": newest.plan, "now": why, "steps": steps}, indent=None))
        return
    style = Style.of(sys.stdout)
    head = style.paint(f"{newest.plan}, run {newest.id}", "bold")
    print(head, style.wrap(plain(f"now: {localized(why, now=now)}"), "     "), "", sep="\n\n", end="")
    told = [step for place, step in enumerate(every) if place not in repeats and args.phase in (None, step.phase)]
    turns = told if args.all else [step for step in told if step.event not in _ROUTINE][-_LAST:]
    for step in turns:
        moment = clock(datetime.fromisoformat(step.at), None, now=now)
        by = f"by {step.by}; " if step.by else ""
        text = plain(f"{moment:<13}  {event_words(step.event):<18}  {by}then: {localized(step.why, now=now)}")
        wrapped = style.wrap(text, " " * 35)
        print(style.paint(wrapped[: len(moment)], "dim") + wrapped[len(moment) :])
    actions = [action for view in views if view.run and view.run.id == newest.id for action in view.needed_actions]
    following = describe_actions(action for action in actions if action.verb != "explain")
    whole = command("runplan", "explain", newest.id, "--all")
    more = f"All {len(told)} steps: {whole}" if len(turns) < len(told) else ""
    print(end="".join(f"\n{style.wrap(plain(line), '  ')}\n" for line in (following, more) if line))


def run_metrics(_args: argparse.Namespace) -> None:
    print(read_metrics(Caller(warn=warn)), end="")
