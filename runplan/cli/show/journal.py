"""runplan logs, explain, metrics: what the journal has recorded, as a list, as reasons, as numbers."""

from __future__ import annotations

import argparse
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.agents.clis import agent_of
from runplan.cli.show.progress import RunLog, follow_events
from runplan.cli.terminal import Style, warn
from runplan.daemon.client import NotRunning, connect_daemon
from runplan.daemon.protocol import Metrics, MetricsText
from runplan.engine.context import newest_run, open_context
from runplan.errors import NotFound
from runplan.report.metrics import collect_samples, render_samples
from runplan.report.views import as_json
from runplan.run import dispatch as u, events as e
from runplan.run.decide import decide
from runplan.run.recorded import from_json
from runplan.run.state import RunState, apply
from runplan.settings.load import environment, list_agent_kinds
from runplan.store.journal import list_records
from runplan.supervise.output import MISREAD, DispatchFiles
from runplan.text import clock, elapsed, escaped, localized, plain

if TYPE_CHECKING:
    from runplan.agents.adapter import Agent
    from runplan.run.recorded import Recorded
    from runplan.run.rows import EventRow, RunRow


#: Events whose type does not say it in plain words.
WORDS = {
    "LanesChosen": "phases chosen",
    "Paused": "waiting",
    "Woke": "wait over",
    "Halted": "paused",
    "Leased": "worktree ready",
    "DispatchStarted": "process started",
    "DispatchEnded": "process ended",
    "GuardFound": "repository changed",
}
#: Fields that only runplan itself needs.
INTERNAL = {"settings", "slug", "patch", "onto_tree", "base_tree", "bounds", "given", "needs", "command"}


def event_words(event: str) -> str:
    """An event type in plain words: `worktree ready`, `run ended`."""
    return WORDS.get(event) or re.sub(r"(?<=.)([A-Z])", r" \1", event).lower()


# --- logs ---------------------------------------------------------------------------------------------


def run_logs(args: argparse.Namespace) -> None:
    with open_context(warn=warn) as context:
        store, run = newest_run(context, args.plan)
        batches = follow_events(store, run.plan, run.id, is_followed=args.follow)
        if args.json or args.events:
            for rows, _ in batches:
                print(
                    "".join(f"{(_event_as_json if args.json else _event_as_text)(row)}\n" for row in rows),
                    end="",
                    flush=True,
                )
            return
        log = Transcripts(run, context.state / "dispatch") if args.agent else RunLog(store, run, context.state)
        for rows, is_last in batches:
            for row in rows:
                log.add(row)
            log.look(is_last=is_last)
            sys.stdout.flush()


def _event_as_json(row: EventRow) -> str:
    head = {"seq": row.seq, "at": row.at, "run": row.run, "type": row.type}
    return as_json(head | json.loads(row.body), indent=None)


def _event_as_text(row: EventRow) -> str:
    body = json.loads(row.body)
    fields = {"lane": body.pop("lane", ""), **body}
    shown = (f"{name}={_shorten_value(value)}" for name, value in fields.items() if value and name not in INTERNAL)
    return f"{row.at}  {event_words(row.type):<18}  {'  '.join(shown)}".rstrip()


def _shorten_value(value: object) -> str:
    text = plain(value) if isinstance(value, str) else escaped(json.dumps(value, ensure_ascii=False))
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:59]}…"


# --- the transcripts of agents ------------------------------------------------------------------------


class Transcripts:
    """Prints the output of the running agents, or of the last one, and of those after them."""

    def __init__(self, run: RunRow, dispatches: Path) -> None:
        self._run = run
        self._dispatches = dispatches
        self._open: dict[str, Transcript] = {}  #: by dispatch
        self._has_begun = False

    def add(self, row: EventRow) -> None:
        match from_json(row.type, row.body):
            case e.DispatchStarted(id=id_, agent=agent) as started if agent:
                self._open[id_] = Transcript(self._dispatches / id_, started)
            case e.DispatchEnded(id=id_, seconds=seconds) if id_ in self._open:
                self._open[id_].took_s = seconds

    def look(self, *, is_last: bool) -> None:
        if not self._has_begun:  # the agents before this look have been seen, but for the last one
            running = {id_: transcript for id_, transcript in self._open.items() if transcript.took_s is None}
            self._open = running or dict([*self._open.items()][-1:])
            self._has_begun = bool(self._open)
        if is_last and not self._has_begun:
            raise NotFound(f"no agent has worked on {self._run.plan} in the run {self._run.id} yet")
        for transcript in self._open.values():
            transcript.print_new(is_last=is_last)
        self._open = {id_: transcript for id_, transcript in self._open.items() if transcript.took_s is None}


class Transcript:
    """The output of one agent, for people: messages joined to whole lines, tools with their files and commands."""

    def __init__(self, directory: Path, started: e.DispatchStarted) -> None:
        self.took_s: float | None = None  #: None while the agent runs
        self._files = DispatchFiles(directory)
        self._style = Style.of(sys.stdout)
        self._lane = f"[{started.lane}] " if started.lane else ""
        self._name = f"{'final verification' if started.scope else started.role} by {started.agent}"
        about = "all phases" if started.scope else f"phase {started.phase}"
        since = clock(datetime.fromisoformat(started.at), None, now=datetime.now(UTC))
        self._head = f"== {self._name}, {about}, since {since}"
        self._agent: Agent | None = None
        self._read = 0  #: bytes of the log
        self._rest = b""  #: of an incomplete line
        self._message = ""  #: the end of the message, until its line is complete
        self._is_prompt = False

    def print_new(self, *, is_last: bool) -> None:
        """Print the output since the last time; all of it when the agent has ended."""
        self._print_text(self._head)
        self._head = ""
        *lines, self._rest = (self._rest + self._new_output()).split(b"\n")
        is_over = is_last or self.took_s is not None
        for line in [*lines, self._rest] if is_over else lines:
            if line.strip():
                self._show_line(line)
        if is_over:
            self._end_message()
        if self.took_s is not None:
            self._print_text(f"== {self._name} ended after {elapsed(self.took_s)}")

    def _new_output(self) -> bytes:
        try:
            with self._files.out.open("rb") as log:
                log.seek(self._read)
                output = log.read()
        except FileNotFoundError:  # it has not begun, or its log was removed
            return b""
        if not self._read:
            reader = self._files.shim().reader
            self._agent = agent_of(reader) if reader in list_agent_kinds() else None
            self._is_prompt = self._agent is not None and bool(self._agent.prompt_ends)
        self._read += len(output)
        return output

    def _show_line(self, line: bytes) -> None:
        if self._agent is not None and self._is_prompt:
            self._is_prompt = not line.startswith(self._agent.prompt_ends)
        if self._is_prompt:
            return
        try:
            events = self._agent.read_line(line) if self._agent is not None else ()
        except MISREAD:  # of an unknown form
            events = (u.Unread(),)
        for event in events:
            if isinstance(event, u.Message) and not event.final:
                *lines, self._message = (self._message + event.text).split("\n")
                for text in lines:
                    self._print_text(text)
            elif (text := _event_text(event)) or isinstance(event, u.Message):
                self._end_message()
                self._print_text(text)
        if not line.startswith(b"{") and all(
            isinstance(event, (u.Context, u.Unread)) for event in events
        ):  # plain text
            self._print_text(line.decode("utf-8", "replace"))

    def _end_message(self) -> None:
        self._print_text(self._message)
        self._message = ""

    def _print_text(self, text: str) -> None:
        if text.strip():
            print(self._style.wrap(plain(f"{self._lane}{text}".rstrip()), " " * len(self._lane)))


def _event_text(event: u.AgentEvent) -> str:
    match event:
        case u.Started(model=model, version=version) if model or version:
            return f"-- {' '.join(part for part in (model, version) if part)}"
        case u.ToolUsed(tool=tool, path=path, detail=detail, denied=denied):
            use = " ".join(f"{tool} {detail} {path}".split())
            return f"> {use}{' (denied)' if denied else ''}"
        case u.Trouble(kind=kind, words=event_words):
            return f"! {kind.value}: {event_words}"
        case u.Retrying(words=event_words):
            return f"! waiting for the provider: {event_words}"
        case u.Finished(ok=ok, words=event_words, so_far=False):
            return f"-- {'finished' if ok else 'failed'}{f': {event_words}' if event_words else ''}"
        case _:
            return ""


# --- explain ------------------------------------------------------------------------------------------


def run_explain(args: argparse.Namespace) -> None:
    with open_context(warn=warn) as context:
        store, newest = newest_run(context, args.plan)
        every = _list_steps(list_records(store, newest.id))
    steps = [step for step in every if args.phase in (None, step["phase"])]
    if args.phase and not steps:
        raise NotFound(f"the run {newest.id} has not reached a phase {args.phase}")
    why = steps[-1]["why"] if steps else "nothing has been started"
    if args.json:
        print(as_json({"run": newest.id, "plan": newest.plan, "now": why, "steps": steps}, indent=None))
        return
    style = Style.of(sys.stdout)
    now = datetime.now(UTC)
    head = style.paint(f"{newest.plan}, run {newest.id}", "bold")
    print(head, style.wrap(plain(f"now: {localized(why, now=now)}"), "     "), "", sep="\n\n", end="")
    for step in steps:
        moment = clock(datetime.fromisoformat(step["at"]), None, now=now)
        text = plain(f"{moment:<13}  {event_words(step['event']):<18}  then: {localized(step['why'], now=now)}")
        wrapped = style.wrap(text, " " * 35)
        print(style.paint(wrapped[: len(moment)], "dim") + wrapped[len(moment) :])


def _list_steps(facts: list[Recorded[e.Event]]) -> list[dict[str, str]]:
    """After each recorded fact, the decision that followed."""
    state = RunState()
    steps = []
    for fact in facts:
        state = apply(state, fact.event)
        lanes = {lane.name: lane.phase for lane in state.lanes}
        phase = lanes.get(fact.event.lane, "") or (state.attempt.chosen.phase if state.attempt else "")
        steps.append({"at": fact.at, "event": type(fact.event).__name__, "phase": phase, "why": decide(state).why})
    return steps


# --- metrics ------------------------------------------------------------------------------------------


def run_metrics(_args: argparse.Namespace) -> None:
    """Print the metrics of the daemon and all repositories; without a daemon, of this repository."""
    try:
        with connect_daemon(environment()) as client:
            text = client.call(Metrics(), MetricsText).text
    except NotRunning:
        with open_context(warn=warn) as context:
            text = render_samples(collect_samples(context.store(), repository=str(context.root), now=datetime.now(UTC)))
    print(text, end="")
