"""runplan logs, explain, metrics: what the journal has recorded, as a list, as reasons, as numbers."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runplan.cli.terminal import Style, as_json, warn
from runplan.errors import Exit, NotFound
from runplan.text import clock, escaped, localized, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runplan.run.dispatch import AgentEvent
    from runplan.run.events import Event, Recorded
    from runplan.run.rows import EventRow, RunRow
    from runplan.store.sqlite import Store
    from runplan.supervise.output import DispatchFiles

FOLLOW_S = 0.5  #: between two looks at a followed journal or log

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


def words(event: str) -> str:
    """An event type in plain words: `worktree ready`, `run ended`."""
    return WORDS.get(event) or re.sub(r"(?<=.)([A-Z])", r" \1", event).lower()


# --- logs ---------------------------------------------------------------------------------------------


def run_logs(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import newest_run, open_context

    with open_context(warn=warn) as at:
        store, run = newest_run(at, args.plan)
        looks = _looks(lambda: args.follow and _is_worked(store, run))
        if args.agent:
            _print_transcripts(store, run, at.state / "dispatch", looks, follow=args.follow)
            return Exit.DONE
        seen = 0
        for _ in looks:
            for row in store.events(run.id, after=seen):
                print(_json(row) if args.json else _text(row), flush=args.follow)
                seen = row.seq
    return Exit.DONE


def _looks(is_open: Callable[[], bool]) -> Iterator[bool]:
    """Look again and again while it is open, and once after that; whether it was open before the look."""
    while is_open():
        yield True
        time.sleep(FOLLOW_S)
    yield False


def _is_worked(store: Store, run: RunRow) -> bool:
    """Whether it is the plan's newest run, and a live process works on it."""
    from runplan.engine.preflight import living_owner

    newest = store.newest(run.plan)
    is_running = newest is not None and newest.id == run.id and newest.state == "running"
    return is_running and bool(living_owner(store, run.plan))


def _json(row: EventRow) -> str:
    head = {"seq": row.seq, "at": row.at, "run": row.run, "type": row.type}
    return as_json(head | json.loads(row.body), indent=None)


def _text(row: EventRow) -> str:
    body = json.loads(row.body)
    fields = {"lane": body.pop("lane", ""), **body}
    shown = (f"{name}={_short(value)}" for name, value in fields.items() if value and name not in INTERNAL)
    return f"{row.at}  {words(row.type):<18}  {'  '.join(shown)}".rstrip()


def _short(value: object) -> str:
    text = plain(value) if isinstance(value, str) else escaped(json.dumps(value, ensure_ascii=False))
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:59]}…"


# --- the transcript of an agent -----------------------------------------------------------------------


def _print_transcripts(store: Store, run: RunRow, dispatches: Path, looks: Iterator[bool], *, follow: bool) -> None:
    """Print the transcript of the newest agent of the run; with `follow`, also of those after it."""
    from runplan.supervise.output import DispatchFiles

    shown = 0
    for _ in looks:
        facts = (json.loads(row.body) for row in store.events(run.id) if row.type == "DispatchStarted")
        agents = [fact for fact in facts if fact["agent"]]
        if not agents:
            raise NotFound(f"no agent has worked on {run.plan} in the run {run.id} yet")
        for one in agents[shown or -1 :] if shown < len(agents) else ():
            print(f"== {one['role']} by {one['agent']}, phase {one['phase']}", flush=True)
            _print_log(DispatchFiles(dispatches / one["id"]), follow=follow)
        shown = len(agents)


def _print_log(files: DispatchFiles, *, follow: bool) -> None:
    """Print the log; with `follow`, until the dispatch has ended."""
    reader, rest, read = files.shim().reader, b"", 0
    for runs in _looks(lambda: follow and files.locked()):
        content = files.out.read_bytes()[read:] if files.out.exists() else b""
        read += len(content)
        *lines, rest = (rest + content).split(b"\n")
        for line in lines if runs else [*lines, rest]:
            for text in _texts(line, reader):
                print(plain(text), flush=follow)


def _texts(line: bytes, reader: str) -> Iterator[str]:
    """One line of output for people."""
    from runplan.settings.load import kinds
    from runplan.supervise.output import MISREAD, reader_of

    if not line.strip():
        return
    if reader not in kinds():
        yield line.decode("utf-8", "replace")
        return
    try:
        events = reader_of(reader)(line)
    except MISREAD:  # of an unknown form
        return
    texts = [text for event in events if (text := _event_text(event))]
    if not texts and not line.startswith(b"{"):  # a CLI that prints plain text
        texts = [line.decode("utf-8", "replace")]
    yield from texts


def _event_text(event: AgentEvent) -> str:
    from runplan.run import dispatch as u

    match event:
        case u.Started(model=model, version=version) if model or version:
            return f"-- {' '.join(part for part in (model, version) if part)}"
        case u.Message(text=text, final=False):
            return text.rstrip("\n")
        case u.ToolUsed(tool=tool, path=path, denied=denied):
            return f"> {tool} {path}".rstrip() + (" (denied)" if denied else "")
        case u.Trouble(kind=kind, words=words):
            return f"! {kind.value}: {words}"
        case u.Retrying(words=words):
            return f"! waiting for the provider: {words}"
        case u.Finished(ok=ok, words=words):
            return f"-- {'finished' if ok else 'failed'}{f': {words}' if words else ''}"
        case _:
            return ""


# --- explain ------------------------------------------------------------------------------------------


def run_explain(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import newest_run, open_context
    from runplan.store.journal import recorded

    with open_context(warn=warn) as at:
        store, newest = newest_run(at, args.plan)
        every = _steps(recorded(store, newest.id))
    steps = [step for step in every if args.phase in (None, step["phase"])]
    if args.phase and not steps:
        raise NotFound(f"the run {newest.id} has not reached a phase {args.phase}")
    why = steps[-1]["why"] if steps else "nothing has been started"
    if args.json:
        print(as_json({"run": newest.id, "plan": newest.plan, "now": why, "steps": steps}, indent=None))
        return Exit.DONE
    style, now = Style.of(sys.stdout), datetime.now(UTC)
    head = style.paint(f"{newest.plan}, run {newest.id}", "bold")
    print(head, style.wrap(plain(f"now: {localized(why, now=now)}"), "     "), "", sep="\n\n", end="")
    for step in steps:
        moment = clock(datetime.fromisoformat(step["at"]), None, now=now)
        text = plain(f"{moment:<9}  {words(step['event']):<18}  then: {localized(step['why'], now=now)}")
        wrapped = style.wrap(text, " " * 31)
        print(style.paint(wrapped[: len(moment)], "dim") + wrapped[len(moment) :])
    return Exit.DONE


def _steps(facts: list[Recorded[Event]]) -> list[dict[str, str]]:
    """After each recorded fact, the decision that followed."""
    from runplan.run.decide import decide
    from runplan.run.state import RunState, apply

    state = RunState()
    steps = []
    for one in facts:
        state = apply(state, one.event)
        lanes = {lane.name: lane.phase for lane in state.lanes}
        phase = lanes.get(one.event.lane, "") or (state.phase.read.phase if state.phase else "")
        steps.append({"at": one.at, "event": type(one.event).__name__, "phase": phase, "why": decide(state).why})
    return steps


# --- metrics ------------------------------------------------------------------------------------------


def run_metrics(_args: argparse.Namespace) -> Exit:
    """Print the metrics of the daemon and all repositories; without a daemon, of this repository."""
    from runplan.daemon.client import NotRunning, connect
    from runplan.daemon.protocol import Metrics, MetricsText
    from runplan.engine.context import open_context
    from runplan.report.metrics import render, samples
    from runplan.settings.load import environment

    try:
        with connect(environment()) as client:
            text = client.call(Metrics(), MetricsText).text
    except NotRunning:
        with open_context(warn=warn) as at:
            text = render(samples(at.store(), repository=str(at.repository.root), now=datetime.now(UTC)))
    print(text, end="")
    return Exit.DONE
