"""runplan status and next: every plan with its phases, its run and its schedule."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from runplan import __version__
from runplan.cli.terminal import Style, warn
from runplan.daemon.state import read_holder
from runplan.engine.context import (
    RepositoryContext,
    describe_link,
    known_plans,
    open_context,
    plan_or_watch,
    plans_on_target,
)
from runplan.errors import NotAPlan, PlanUnreadable, RefusedEarly, RunplanError, Unreachable
from runplan.names import WATCH
from runplan.plan.marks import PlanStatus
from runplan.report.views import Need, PlanOutline, as_json, by_need, format_usage, schedule_view, status_view
from runplan.run.kinds import UNFINISHED, Mode, RunStatus, WaitKind
from runplan.run.rows import OwnerState, PlanFacts, RunRow, Work, wait_of
from runplan.settings.places import socket_path, state_directory
from runplan.store.files import is_held, last_write
from runplan.store.protocol import open_store, store_exists
from runplan.text import clock, command, counted, in_words, plain
from runplan.times import iso, zone

if TYPE_CHECKING:
    from runplan.plan.model import Phase, Plan

    W = TypeVar("W", bound=Work)

WATCH_S = 2.0
WIDE = 160  #: characters of a line that is not wrapped, where the width is unknown
FEW = 3  #: finished plans that are shown when no other plan is
ANSWER_S = 1.0  #: to ask the daemon
LINES_SHOWN = 3  #: of the reason of a failure, and of the output of its command
ABSENT = "No daemon is running, so no schedule fires. Start it now and at each login: runplan service install"
STANDS_STILL = "Stands still: the daemon cannot work in this repository for now."


def run_status(args: argparse.Namespace) -> None:
    is_screen = sys.stdout.isatty() and not args.json
    if args.watch:
        repeat_output(lambda height: _render_page(args, height), time.sleep, terminal=is_screen, lines=args.json)
    else:
        print(_render_page(args))


def repeat_output(
    output: Callable[[int], str], wait: Callable[[float], None], *, terminal: bool, lines: bool = False
) -> None:
    """Print it again and again: in place on a terminal, else block after block; Ctrl-C ends it."""
    from shutil import get_terminal_size  # 4 ms, and only --watch needs it

    with suppress(KeyboardInterrupt):
        while True:
            height = get_terminal_size().lines - 2 if terminal else 0
            text = output(height)
            if terminal:  # over the last one, without a cleared screen in between
                shown = text.splitlines()[:height]
                text = "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J"
            print(text if terminal or lines else f"{text}\n", flush=True)
            wait(WATCH_S)


def _render_page(args: argparse.Namespace, height: int = 0) -> str:
    """The text of at most `height` lines; 0 for any number."""
    now = datetime.now(UTC)
    with open_context(warn=warn) as context:
        context.git.prepare_reader()  # starts while the journal is opened
        views = Reader(context, plan_or_watch(context, args.plan) if args.plan is not None else "", now).views()
        daemon = _view_closed_repository(context, views) or _view_missing_daemon(context, views)
    views = by_need(views)
    if args.json:
        for view in views:
            view["daemon"] = daemon
        return as_json(views if args.plan is None else views[0], indent=None if args.watch else 2)
    page = Page(Style.of(sys.stdout), now)
    pages = [view["plan"] for view in views if view["need"] is Need.PAGE]
    finished = [view["plan"] for view in views if view["need"] is Need.DONE]
    if args.all or args.plan is not None:
        pages = []
        finished = []
    elif len(finished) == len(views) - len(pages) <= FEW:
        finished = []
    shown = [page.block(view) for view in views if view["plan"] not in {*pages, *finished}]
    foot = page.foot(finished, pages, daemon)
    if not shown and not finished:
        foot.insert(0, "No plans yet. Write one under plans/ and commit it.")
    return "\n\n".join(fit_blocks(shown, foot, height) if height else [*(block.text for block in shown), *foot])


class Block(msgspec.Struct, frozen=True):
    """A plan as text, and in one line for a screen that is too small."""

    text: str
    line: str
    is_running: bool


def fit_blocks(blocks: list[Block], foot: list[str], height: int) -> list[str]:
    """The blocks for a screen of this height. Running plans come first; the plans without room are counted."""
    if sum(_count_lines(text) for text in (*(block.text for block in blocks), *foot)) <= height + 1:
        return [*(block.text for block in blocks), *foot]
    shown = {number: block.line for number, block in enumerate(blocks) if block.is_running}
    left = height + 1 - sum(map(_count_lines, (*shown.values(), *foot, "… more")))
    for number, block in sorted(enumerate(blocks), key=lambda numbered: not numbered[1].is_running):
        taken = _count_lines(shown[number]) if number in shown else 0
        best = next((text for text in (block.text, block.line) if _count_lines(text) - taken <= left), None)
        if best is not None:
            left -= _count_lines(best) - taken
            shown[number] = best
    hidden = len(blocks) - len(shown)
    return [*(shown[number] for number in sorted(shown)), *([f"… {hidden} more"] if hidden else []), *foot]


def _count_lines(text: str) -> int:
    """Its lines, and the empty one below it."""
    return text.count("\n") + 2


def _view_missing_daemon(context: RepositoryContext, views: list[dict[str, Any]]) -> dict[str, Any] | None:
    """That no daemon runs, where a schedule needs one."""
    if not any(view["schedule"] and not view["schedule"]["paused"] for view in views):
        return None
    return {"state": "absent", "error": ABSENT} if read_holder(state_directory(context.env)) is None else None


def _view_closed_repository(context: RepositoryContext, views: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Why the daemon cannot work in this repository; asked only for a run that continues but has no process."""
    running = [view["run"] for view in views if view["run"] is not None and view["run"]["state"] == RunStatus.RUNNING]
    idle = [run for run in running if not any(work["dispatched"] for work in (run, *run["lanes"]))]
    if not idle:
        return None
    from runplan.daemon.client import Client  # 20 ms, and most runs have a process

    try:
        with Client(socket_path(context.env), answer_s=ANSWER_S) as client:
            hello = client.hello
    except RunplanError:  # no daemon, or a busy one
        return None
    closed = next((repository for repository in hello.closed if repository.root == str(context.root)), None)
    if closed is None:
        return None
    for run in idle:
        run["stuck"] = {"level": "look", "sentence": STANDS_STILL}
    about = {"pid": hello.pid, "version": hello.version, "state": "closed"}
    return {**about, "until": closed.again, "since": closed.since, "error": closed.error}


# --- reading ------------------------------------------------------------------------------------------


class Reader:
    """Reads the plans of a repository. The journal and the tree of each target are read once for all of them."""

    def __init__(self, context: RepositoryContext, plan: str, now: datetime) -> None:
        self._context = context
        self._now = now
        self._plan = plan  #: the only one to read; "" for all
        self._store = context.store()
        self._facts = self._store.read_plan_facts(plan)
        self._blobs: dict[str, dict[str, str]] = {}  #: by target and plan
        self._new: list[tuple[str, str, str]] = []  #: outlines of plans that were parsed here

    def views(self) -> list[dict[str, Any]]:
        known = [self._plan] if self._plan else known_plans(self._context, self._store.list_active_plans())
        ran = [path for path, facts in self._facts.items() if facts.run is not None]
        scheduled = [path for path, facts in self._facts.items() if facts.schedule is not None]
        watches = [path for path in ([self._plan] if self._plan else scheduled) if path.startswith(WATCH)]
        views = [self._view_plan(path) for path in sorted({*known, *ran}.difference(watches))]
        views += [self._view_watch(path) for path in sorted(watches)]
        if self._new and store_exists(self._context.state):
            with suppress(RunplanError, OSError), closing(open_store(self._context.state)) as store:
                store.put_outlines(self._new)
        return views

    def _view_watch(self, name: str) -> dict[str, Any]:
        """A watch of issues in the form of a plan, with the answer to its last slot."""
        watch = PlanOutline(title=f"Issues with the label {name.removeprefix(WATCH)}", status="watching")
        facts = PlanFacts(schedule=self._facts[name].schedule)
        last = self._store.list_firings(name, limit=1)
        answered = {"at": last[0].at, "answer": last[0].answer, "why": last[0].why} if last else None
        return {**status_view(name, watch, facts, landing="pr", now=self._now), "answered": answered}

    def _view_plan(self, path: str) -> dict[str, Any]:
        facts = self._facts.get(path, PlanFacts())
        landing = self._context.settings.run.landing
        outline = self._read_outline(path, facts)
        if facts.run is not None:
            run = self._with_output(facts.run)
            facts = replace(
                facts, run=replace(run, lanes=tuple(map(self._with_output, run.lanes))) if run.lanes else run
            )
        if facts.owner:
            owner = self._store.get_owner_state(facts.owner)
            is_alive = owner is not OwnerState.GONE
            is_stopped = owner is OwnerState.SUSPENDED
            facts = replace(facts, alive=is_alive, stopped=is_stopped)
        if facts.run is not None and not outline.complete:
            facts = replace(facts, failures=self._store.list_failures(path))
        return status_view(path, outline, facts, landing=landing, now=self._now)

    def _with_output(self, work: W) -> W:
        """The work with the last output of its process, or without a process that has ended."""
        if work.dispatch is None:
            return work
        directory = self._context.state / "dispatch" / work.dispatch
        if not is_held(directory / "lock"):
            return replace(work, dispatch=None, agent=None, version=None, dispatched=None, gates=())
        written = last_write(directory / "out.log", directory / "err.log")
        return replace(work, output=iso(datetime.fromtimestamp(written, UTC)) if written else None)

    def _read_outline(self, path: str, facts: PlanFacts) -> PlanOutline:
        """The plan where its newest run lands, else in the checkout."""
        context = self._context if facts.run is None else self._context.with_landing_of(facts.run)
        if facts.run is None and (link := describe_link(context.root / path, path, "status")):
            return PlanOutline(error=link, is_page=True)
        if blob := self._find_blob(context, path):
            stored = self._stored_outline(blob, path, facts)
            return replace(stored, status="active", complete=False) if context.is_on_branch else stored
        if facts.run is not None and facts.run.mode is Mode.PLAN:
            return self._read_proposal(path, facts.run)
        try:
            return _parse_outline((context.root / path).read_bytes(), path)
        except FileNotFoundError:
            return PlanOutline(
                error=f"{path}: the plan is gone, from {self._context.target_name} and from the checkout"
            )

    def _read_proposal(self, path: str, run: RunRow) -> PlanOutline:
        """The plan of a planning run, which is not in the repository yet."""
        from runplan.run.planning_events import ProposalMade  # slow to import, and most plans are in the repository

        proposals = [fact.event for fact in self._store.list_facts(ProposalMade, plan=path) if fact.run == run.id]
        if not proposals:
            return PlanOutline(title=run.title, status=PlanStatus.DRAFT)
        outline = _parse_outline(proposals[-1].text.encode("utf-8", "surrogateescape"), path)
        return outline if run.is_active else replace(outline, status=PlanStatus.ABANDONED)

    def _find_blob(self, context: RepositoryContext, path: str) -> str:
        """The id of the plan's blob on the target; "" for none."""
        if context.target not in self._blobs:
            try:
                context.tip()
            except RefusedEarly as error:  # the branch is gone
                warn(f"{error}; plans are shown as in the checkout")
            self._blobs[context.target] = plans_on_target(context)
        if blob := self._blobs[context.target].get(path):
            return blob
        stored = context.git.object(f"{context.target}:{path}")  # outside the directory of plans
        return stored.oid if stored is not None and stored.kind == "blob" else ""

    def _stored_outline(self, blob: str, path: str, facts: PlanFacts) -> PlanOutline:
        """The outline that was stored for this blob, or a new one."""
        stamp = f"{__version__} {blob}"
        known, outline = facts.outline
        if known == stamp:
            with suppress(msgspec.DecodeError):  # text that is not valid Unicode
                return msgspec.json.decode(outline, type=PlanOutline)
        stored = self._context.git.known(blob)
        if stored is None:
            raise Unreachable(f"{path} cannot be read; see: git fsck")
        plan = _parse_outline(stored.content, path)
        # Not msgspec.json: a text need not be valid Unicode, and json escapes it.
        self._new.append((path, stamp, json.dumps(msgspec.to_builtins(plan))))
        return plan


def outline_of(plan: Plan, describe_hindrance: Callable[[Plan, Phase], str]) -> PlanOutline:
    outline = msgspec.convert(plan, PlanOutline, from_attributes=True)
    hindrances = ["" if phase.status == "done" else describe_hindrance(plan, phase) for phase in plan.phases]
    phases = (replace(phase, hindrance=why) for phase, why in zip(outline.phases, hindrances, strict=True))
    return replace(outline, phases=tuple(phases))


def _parse_outline(text: bytes, path: str) -> PlanOutline:
    from runplan.plan import model, tracker  # slow to import, and most plans are known

    try:
        return outline_of(model.parse_plan(text, path=path), tracker.describe_hindrance)
    except PlanUnreadable as error:
        return PlanOutline(error=str(error), is_page=isinstance(error, NotAPlan))


# --- text ---------------------------------------------------------------------------------------------

_COLOURS = {"Done": "green", "In": "cyan bold", "Next": "yellow", "After": "dim", "Blocked": "red", "Failed": "red"}
_LEVELS = {"fine": "green", "slow": "yellow", "look": "red"}


class Page:
    """Lays out the blocks of plans for a terminal or a pipe."""

    def __init__(self, style: Style, now: datetime) -> None:
        self._style = style
        self._now = now

    def block(self, view: dict[str, Any]) -> Block:
        """One plan: its phases, its run, its schedule."""
        run = view["run"]
        about = run["stuck"]["sentence"] if run is not None and run["stuck"] else view["need"]
        line = self._cut_line(plain(f"{view['plan']}: {about}"))
        is_running = run is not None and run["state"] in UNFINISHED and not wait_of(run["waiting_for"]).is_for_person
        return Block(self._render_plan(view), line, is_running)

    def _cut_line(self, line: str) -> str:
        width = self._style.width or WIDE
        return line if len(line) <= width else f"{line[: width - 1]}…"

    def _render_plan(self, view: dict[str, Any]) -> str:
        paint = self._style.paint
        lines = [*self._plan_head(view), *self._phase_lines(view)]
        if answered := view.get("answered"):
            words = f"{self._local_time(answered['at'])}: {answered['answer']}, {answered['why']}"
            lines.append(self._plan_line(f"Last look at {words}"))
        about = [self._plan_line(line) for line in self._run_lines(view)]
        if about and view["run"]["stuck"]:
            verdict, colon, rest = about[0].partition(":")
            about[0] = f"{paint(verdict, _LEVELS[view['run']['stuck']['level']])}{colon}{rest}"
        lines += about
        if view["queued"] not in (None, "stop", "pause"):
            lines.append(self._plan_line(f"Queued: {view['queued']}; the daemon executes it when it responds"))
        if view["refused"]:
            lines.append(self._plan_line(f"The last {view['refused_verb']} was refused: {view['refused']}"))
        if view["schedule"] is not None:
            lines.append(self._plan_line(describe_schedule(view["schedule"], now=self._now, zone=None)))
        return "\n".join(lines)

    def _plan_line(self, text: str) -> str:
        return self._style.wrap(f"  {plain(text)}", "    ")

    def _plan_head(self, view: dict[str, Any]) -> list[str]:
        paint = self._style.paint
        wrap = self._style.wrap
        if "error" in view:
            return [paint(wrap(plain(view["error"]), "    "), "red")]
        done = sum(phase["status"] == "done" for phase in view["phases"])
        counts = f", {view['status']}, {done} of {len(view['phases'])} done" if view["phases"] else ""
        title = plain(view["title"])
        return [wrap(f"{title}  ({view['plan']}{counts})", "    ").replace(title, paint(title, "bold"), 1)]

    def foot(self, finished: list[str], pages: list[str], daemon: dict[str, Any] | None) -> list[str]:
        """The finished plans and other pages in one line each, and why the daemon cannot work here."""
        kinds = ((finished, "finished plan", "finished plans"), (pages, "page is no plan", "pages are no plans"))
        blocks = [self._fold_plans(paths, *words) for paths, *words in kinds if paths]
        if daemon and daemon["state"] == "absent":
            blocks.append(self._style.paint(self._style.wrap(daemon["error"], "  "), "red"))
        elif daemon:
            why = f"since {self._local_time(daemon['since'])}: {plain(daemon['error'])}"
            again = f"it tries again at {self._local_time(daemon['until'])}"
            blocks.append(f"The daemon (process {daemon['pid']}) cannot work here {why}; {again}.")
        return blocks

    def _fold_plans(self, paths: list[str], singular: str, plural: str) -> str:
        names = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
        text = f"{counted(len(paths), singular, plural)}: {names}  (runplan status --all)"
        return self._style.paint(self._style.wrap(plain(text), "  "), "dim")

    def _phase_lines(self, view: dict[str, Any]) -> list[str]:
        states = [_state_words(phase, view["next"]) for phase in view["phases"]]
        wide = max((len(phase["id"]) for phase in view["phases"]), default=0)
        state_wide = max((len(state) for state in states), default=0)
        lines = []
        for phase, state in zip(view["phases"], states, strict=True):
            colours = next((colours for word, colours in _COLOURS.items() if state.startswith(word)), "")
            before = f"  {phase['id']:<{wide}}  "
            line = f"{before}{state:<{state_wide}}  {plain(phase['title'])}".rstrip()
            after = self._style.wrap(line, " " * (wide + state_wide + 6))[len(before) + len(state) :]
            lines.append(f"{before}{self._style.paint(state, colours)}{after}")
            indent = " " * len(before)
            if state == "Blocked":
                lines.append(self._style.wrap(f"{indent}It {plain(phase['hindrance'])}", indent))
            if failed := phase["failed"]:
                said = [line for line in plain(failed["output"]).splitlines() if line.strip()][-LINES_SHOWN:]
                lines.append(self._style.wrap(f"{indent}{plain(failed['why'])}", indent, most=LINES_SHOWN))
                lines += [self._cut_line(f"{indent}{line}") for line in said]
                lines.append(self._style.wrap(f"{indent}Retry it: {failed['command']}", indent))
        return lines

    def _run_lines(self, view: dict[str, Any]) -> list[str]:
        run = view["run"]
        if run is None:
            return []
        attempt = f"attempt {run['attempt']}" if run["attempt"] > 1 else ""
        used = [attempt, format_usage(run["tokens"], run["usd"], unpriced=run["unpriced"])]
        if run["state"] not in UNFINISHED:
            why = f" ({run['reason']})" if run["reason"] not in (None, run["state"]) else ""
            more = f". Report: {command('runplan', 'report', view['plan'])}" if run["state"] != RunStatus.DONE else ""
            ended = ", ".join(filter(None, [f"{self._age_words(run['since'])} ago", *used]))
            return [f"Last run {run['id']}: {run['state']}{why} {ended}{more}"]
        agent = f"{run['agent']} {run['version'] or ''}".rstrip() if run["agent"] else ""
        about = ", ".join(filter(None, [agent, *used]))
        lanes = [f"  phase {lane['phase']}: {self._lane_line(lane)}" for lane in run["lanes"]]
        return [
            run["stuck"]["sentence"],
            *lanes,
            f"Run {run['id']}" + (f": {about}" if about else ""),
            *_help_line(view),
        ]

    def _lane_line(self, lane: dict[str, Any]) -> str:
        if lane["failed"]:
            return f"failed ({lane['failed']}), so no further phase starts"
        if lane["waiting_for"]:
            until = f" until {self._local_time(lane['wake'])}" if lane["wake"] else ""
            return f"waiting{until} ({lane['about'] or lane['waiting_for']})"
        by = f" by {lane['agent']}" if lane["agent"] else ""
        return f"{lane['step'] or 'between steps'}{by} for {self._age_words(lane['since'])}"

    def _age_words(self, since: str) -> str:
        return in_words((self._now - datetime.fromisoformat(since)).total_seconds())

    def _local_time(self, moment: str) -> str:
        return clock(datetime.fromisoformat(moment), None, now=self._now)


def _state_words(phase: dict[str, Any], following: str | None) -> str:
    if phase["status"] == "done":
        return f"Done ({phase['commit']})" if phase["commit"] else "Done"
    if phase["failed"]:
        return f"Failed ({phase['failed']['reason']})"
    if phase["status"] == "todo" and phase["blocked_by"]:
        return f"After {', '.join(phase['blocked_by'])}"
    if phase["status"] == "todo" and not phase["hindrance"]:
        return "Next" if phase["id"] == following else "Todo"
    return "In progress" if phase["status"] == "in-progress" else "Blocked"


def _help_line(view: dict[str, Any]) -> list[str]:
    """The commands that a waiting or interrupted run, or one of its lanes, needs."""
    run = view["run"]
    waiting = view["run"]["waiting_for"]
    if waiting == WaitKind.CLAIM:
        return [f"The daemon waits: {run['about']}"]
    waits = [wait_of(work["waiting_for"]) for work in (run, *run["lanes"]) if work["waiting_for"]]
    helps = [wait.help(view["plan"]) for wait in waits if wait.is_for_person]
    is_left = not (view["claim"] and view["claim"]["alive"]) and (waiting is None or run["wake"] is not None)
    return list(dict.fromkeys(helps)) or ([wait_of(waiting).help(view["plan"])] if is_left else [])


def describe_schedule(schedule: dict[str, Any], *, now: datetime, zone: tzinfo | None) -> str:
    """`every 4h, next 20:30 (in 2h 15m)`, or why not."""
    if schedule["next"] is None:
        when = "next time unknown on this machine"
    else:
        moment = datetime.fromisoformat(schedule["next"])
        when = f"next {clock(moment, zone, now=now)} (in {in_words((moment - now).total_seconds())})"
    if why := schedule["paused"]:
        return f"{schedule['spec']}, {why if why.startswith('paused') else f'paused: {why}'}; otherwise {when}"
    return f"{schedule['spec']}, {'due now, then ' if schedule['due'] else ''}{when}"


# --- next ---------------------------------------------------------------------------------------------


def run_next(args: argparse.Namespace) -> None:
    now = datetime.now(UTC)
    with open_context(warn=warn) as context:
        rows = context.store().list_schedules()
        views: list[dict[str, Any]] = [{"plan": row.plan, **schedule_view(row, now), "zone": row.zone} for row in rows]
        absent = _view_missing_daemon(context, [{"schedule": view} for view in views])
    if args.json:
        print(as_json(views))
        return
    width = max((len(view["plan"]) for view in views), default=0)
    for view in views:
        there = zone(view["zone"]) if view["next"] else UTC  # an unknown zone has no next time either
        print(f"{view['plan']:<{width}}  {describe_schedule(view, now=now, zone=there)}")
    if not views:
        print("No schedules.")
    elif absent is not None:
        style = Style.of(sys.stdout)
        print("", style.paint(style.wrap(absent["error"], "  "), "red"), sep="\n")
