"""runplan logs, explain, metrics: what the journal has recorded, as a list, as reasons, as numbers."""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from runplan.cli.terminal import BOLD, DIM, Style, warn
from runplan.cli.verb import Verb, no_arguments, optional_plan_argument
from runplan.errors import Exit, NotFound
from runplan.text import clock, escaped, localized, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.run.events import Event, Recorded
    from runplan.run.rows import EventRow, RunRow
    from runplan.run.usage import AgentEvent
    from runplan.store.sqlite import Store
    from runplan.supervise.output import DispatchFiles

FOLLOW_S = 0.5  #: between two looks at a followed journal or log

#: Events whose type does not say it in plain words.
WORDS = {
    "ClaimTaken": "plan claimed",
    "LanesChosen": "phases chosen",
    "Queued": "waiting for a slot",
    "Admitted": "slot free",
    "AgentLimited": "usage limit",
    "Paused": "waiting",
    "Woke": "wait over",
    "Halted": "paused",
    "Leased": "worktree ready",
    "DispatchStarted": "process started",
    "DispatchEnded": "process ended",
    "GuardFound": "repository changed",
    "WorkTaken": "work collected",
    "CandidateBuilt": "change built",
    "CandidateConflicted": "conflict",
    "GateJudged": "tests judged",
    "ApprovalAsked": "approval needed",
    "LandingHeld": "landing waits",
    "LandingMoved": "target moved",
}
#: Fields that only runplan itself needs.
INTERNAL = {
    "settings",
    "slug",
    "patch",
    "onto_tree",
    "base_tree",
    "bounds",
    "given",
    "needs",
    "command",
}


def words(event: str) -> str:
    """An event type in plain words: `worktree ready`, `run ended`."""
    return WORDS.get(event) or re.sub(r"(?<=.)([A-Z])", r" \1", event).lower()


# --- logs ---------------------------------------------------------------------------------------------


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    optional_plan_argument(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="continue until the run ends")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--agent", action="store_true", help="the transcript of the running agent, or of the last one")
    how.add_argument("--json", action="store_true", help="one JSON object per line")


def _logs(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import newest_run, open_context

    with open_context(warn=warn) as at:
        store, newest = newest_run(at, args.plan)
        if args.agent:
            _print_transcripts(store, newest, at.state / "dispatch", follow=args.follow)
        else:
            _print_events(store, newest, follow=args.follow, as_json=args.json)
    return Exit.DONE


def _print_events(store: Store, run: RunRow, *, follow: bool, as_json: bool) -> None:
    seen = 0
    while True:
        continues = follow and _is_worked(store, run)
        for row in store.events(run.id, after=seen):
            print(_json(row) if as_json else _text(row), flush=follow)
            seen = row.seq
        if not continues:
            return
        time.sleep(FOLLOW_S)


def _is_worked(store: Store, run: RunRow) -> bool:
    """Whether it is the plan's newest run, and a live process works on it."""
    from runplan.engine.preflight import living_owner

    newest = store.newest(run.plan)
    is_running = newest is not None and newest.id == run.id and newest.state == "running"
    return is_running and bool(living_owner(store, run.plan))


def _json(row: EventRow) -> str:
    whole = {"seq": row.seq, "at": row.at, "run": row.run, "type": row.type, **json.loads(row.body)}
    return escaped(json.dumps(whole, ensure_ascii=False))


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


def _print_transcripts(store: Store, run: RunRow, dispatches: Path, *, follow: bool) -> None:
    """Print the transcript of the newest agent of the run; with `follow`, also of those after it."""
    from runplan.supervise.output import DispatchFiles

    shown: set[str] = set()
    while True:
        continues = follow and _is_worked(store, run)
        started = [one for one in _agents(store, run.id) if one["id"] not in shown]
        if not started and not shown:
            raise NotFound(f"no agent has worked on {run.plan} in the run {run.id} yet")
        for one in started if shown else started[-1:]:
            print(f"== {one['role']} by {one['agent']}, phase {one['phase']}", flush=True)
            _print_log(DispatchFiles(dispatches / str(one["id"])), follow=follow)
        shown |= {str(one["id"]) for one in started}
        if not continues:
            return
        time.sleep(FOLLOW_S)


def _agents(store: Store, run: str) -> list[dict[str, object]]:
    """The dispatches of agents, oldest first."""
    facts = (json.loads(row.body) for row in store.events(run) if row.type == "DispatchStarted")
    return [fact for fact in facts if fact["agent"]]


def _print_log(files: DispatchFiles, *, follow: bool) -> None:
    """Print the log; with `follow`, until the dispatch has ended."""
    reader, rest, read = files.shim().reader, b"", 0
    while True:
        runs = follow and files.locked()
        content = files.out.read_bytes()[read:] if files.out.exists() else b""
        read += len(content)
        *lines, rest = (rest + content).split(b"\n")
        for line in lines if runs else [*lines, rest]:
            for text in _texts(line, reader):
                print(plain(text), flush=follow)
        if not runs:
            return
        time.sleep(FOLLOW_S)


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
    from runplan.run import usage as u

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


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    optional_plan_argument(parser)
    parser.add_argument("phase", nargs="?", metavar="PHASE", help="only the steps of this phase")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _explain(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import newest_run, open_context
    from runplan.store.journal import recorded

    with open_context(warn=warn) as at:
        store, newest = newest_run(at, args.plan)
        every = _steps(recorded(store, newest.id))
    steps = [step for step in every if args.phase in (None, step["phase"])]
    if args.phase and not steps:
        raise NotFound(f"the run {newest.id} has not reached a phase {args.phase}")
    now = steps[-1]["why"] if steps else "nothing has been started"
    if args.json:
        whole = {"run": newest.id, "plan": newest.plan, "now": now, "steps": steps}
        print(escaped(json.dumps(whole, ensure_ascii=False)))
    else:
        _print(f"{newest.plan}, run {newest.id}", now, steps)
    return Exit.DONE


def _print(head: str, why: str, steps: list[dict[str, str]]) -> None:
    style, now = Style.of(sys.stdout), datetime.now(UTC)
    print(style.paint(head, BOLD))
    print()
    print(style.wrap(plain(f"now: {localized(why, now=now)}"), "     "))
    print()
    for step in steps:
        at = clock(datetime.fromisoformat(step["at"]), None, now=now)
        text = plain(f"{at:<9}  {words(step['event']):<18}  then: {localized(step['why'], now=now)}")
        wrapped = style.wrap(text, " " * 31)
        print(style.paint(wrapped[: len(at)], DIM) + wrapped[len(at) :])


def _steps(facts: list[Recorded[Event]]) -> list[dict[str, str]]:
    """After each recorded fact, the decision that followed."""
    from runplan.run.decide import decide
    from runplan.run.events import name_of
    from runplan.run.state import RunState, apply

    state = RunState()
    steps = []
    for one in facts:
        state = apply(state, one.event)
        lanes = {lane.name: lane.phase for lane in state.lanes}
        phase = lanes.get(one.event.lane, "") or (state.phase.read.phase if state.phase else "")
        steps.append({"at": one.at, "event": name_of(one.event), "phase": phase, "why": decide(state).why})
    return steps


# --- metrics ------------------------------------------------------------------------------------------


def _metrics(_args: argparse.Namespace) -> Exit:
    text = _from_daemon()
    print(_from_journal() if text is None else text, end="")
    return Exit.DONE


def _from_daemon() -> str | None:
    """The metrics of all repositories and of the daemon; None when no daemon runs."""
    from runplan.daemon.client import NotRunning, connect
    from runplan.daemon.protocol import Metrics, MetricsText
    from runplan.settings.load import environment

    try:
        with connect(environment()) as client:
            return client.call(Metrics(), MetricsText).text
    except NotRunning:
        return None


def _from_journal() -> str:
    from runplan.engine.context import open_context
    from runplan.report.metrics import render, samples

    with open_context(warn=warn) as at:
        store = at.store()
        if store is None:
            return ""
        return render(samples(store, repository=str(at.repository.root), now=datetime.now(UTC)))


VERBS = {
    "logs": Verb(
        run=_logs,
        arguments=_logs_arguments,
        EXAMPLES="""\
  runplan logs                   the newest run of all plans
  runplan logs X -f              follow the newest run of a plan until it ends
  runplan logs X --agent -f      the messages and tool calls of its agent
  runplan logs X --json          one JSON object per line: seq, at, run, type, and the event's own fields""",
    ),
    "explain": Verb(
        run=_explain,
        arguments=_explain_arguments,
        EXAMPLES="""\
  runplan explain plans/X.md          the next action and its reason, then the steps so far
  runplan explain X 2                 the same for one phase of the newest run
  runplan explain X --json            for a script""",
    ),
    "metrics": Verb(
        run=_metrics,
        arguments=no_arguments,
        EXAMPLES="  runplan metrics        runs, phases, agents, tokens, schedules and the daemon",
    ),
}
