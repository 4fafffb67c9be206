"""runplan status and next: every plan with its phases, its run and its schedule."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from runplan import __version__
from runplan.cli.terminal import Style, as_json, json_argument, optional_plan_argument, warn
from runplan.engine.context import known_plans, open_context, plan_or_watch, plans_on_target
from runplan.errors import Exit, PlanUnreadable, RunplanError, Unreachable
from runplan.names import WATCH
from runplan.report.views import PlanOutline, Seen, outline_of, schedule_view, status_view, to_json
from runplan.run.rows import UNFINISHED, Work
from runplan.store.sqlite import Overview, StoredOutline, keep_outlines, read_overview
from runplan.text import clock, command, in_words, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from datetime import tzinfo

    from runplan.engine.context import RepositoryContext
    from runplan.run.rows import RunRow

WATCH_S = 2.0
FEW = 3  #: finished plans that are shown when no other plan is
ANSWER_S = 1.0  #: to ask the daemon
STANDS_STILL = "Stands still: the daemon cannot work in this repository for now."
EXAMPLES = {
    "status": """\
  runplan status                open plans, and finished ones in one line
  runplan status --all          finished plans as well
  runplan status X --watch      one plan, refreshed until Ctrl-C
  runplan status X --json       one plan, for a script""",
    "next": """\
  runplan next             each schedule with its next time
  runplan next --json      for a script""",
}


def status_arguments(parser: argparse.ArgumentParser) -> None:
    optional_plan_argument(parser)
    parser.add_argument("--all", action="store_true", help="show finished plans as well")
    parser.add_argument("--watch", action="store_true", help="refresh every 2 seconds, until Ctrl-C")
    json_argument(parser)


def run_status(args: argparse.Namespace) -> Exit:
    if not args.watch:
        print(_output(args))
        return Exit.DONE
    from time import sleep

    return watch(lambda: _output(args), sleep, terminal=sys.stdout.isatty() and not args.json, lines=args.json)


def watch(output: Callable[[], str], wait: Callable[[float], None], *, terminal: bool, lines: bool = False) -> Exit:
    """Print it again and again: in place on a terminal, else block after block; Ctrl-C ends it."""
    try:
        while True:
            text = output()
            print(_in_place(text) if terminal else text if lines else f"{text}\n", flush=True)
            wait(WATCH_S)
    except KeyboardInterrupt:
        return Exit.DONE


def _in_place(text: str) -> str:
    """The text over the last one, without a cleared screen in between, and at most one screen of it."""
    import shutil

    lines = text.splitlines()[: shutil.get_terminal_size().lines - 2]
    return "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J"


def _output(args: argparse.Namespace) -> str:
    now = datetime.now(UTC)
    with open_context(warn=warn) as at:
        at.repository.git.prepare()  # starts while the journal is opened
        views = Reader(at, plan_or_watch(at, args.plan) if args.plan is not None else "", now).views()
        daemon = _closed(at, views)
    if args.json:
        for view in views:
            view["daemon"] = daemon
        return as_json(views if args.plan is None else views[0], indent=None if args.watch else 2)
    page = Page(Style.of(sys.stdout), now)
    finished = [] if args.all or args.plan is not None else [view["plan"] for view in views if _is_finished(view)]
    if len(finished) == len(views) <= FEW:
        finished = []
    folded = set(finished)
    blocks = [page.block(view) for view in views if view["plan"] not in folded]
    blocks += [page.folded(finished)] if finished else []
    blocks += [page.daemon(daemon)] if daemon else []
    return "\n\n".join(blocks) or "No plans yet. Write one under plans/ and commit it."


def _is_finished(view: dict[str, Any]) -> bool:
    is_active = view["run"] is not None and view["run"]["state"] in UNFINISHED
    return view["status"] == "complete" and not (is_active or view["schedule"] or view["queued"])


def _closed(at: RepositoryContext, views: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Why the daemon cannot work in this repository; asked only for a run that continues but has no process."""
    idle = [view["run"] for view in views if _is_idle(view["run"])]
    if not idle:
        return None
    from runplan.daemon.client import Client
    from runplan.daemon.protocol import DaemonStatus, Status
    from runplan.settings.places import socket_path

    try:
        with Client(socket_path(at.env), answer_s=ANSWER_S) as client:
            closed = client.call(Status(), DaemonStatus, within_s=ANSWER_S).closed
            hello = client.hello
    except RunplanError:  # no daemon, or a busy one
        return None
    found = next((one for one in closed if one.root == str(at.repository.root)), None)
    if found is None:
        return None
    for run in idle:
        run["stuck"] = {"level": "look", "sentence": STANDS_STILL}
    about = {"pid": hello.pid, "version": hello.version, "state": "closed"}
    return {**about, "until": found.again, "since": found.since, "error": found.error}


def _is_idle(run: dict[str, Any] | None) -> bool:
    return run is not None and run["state"] == "running" and not any(one["dispatched"] for one in (run, *run["lanes"]))


# --- reading ------------------------------------------------------------------------------------------


class Reader:
    """Reads the plans of a repository. The journal and the tree of each target are read once for all of them."""

    def __init__(self, at: RepositoryContext, plan: str, now: datetime) -> None:
        self._at = at
        self._now = now
        self._plan = plan  #: the only one to read; "" for all
        self._store = at.store()
        self._overview = read_overview(self._store, plan) if self._store is not None else Overview()
        self._blobs: dict[str, dict[str, str]] = {}  #: by target and plan
        self._new: list[StoredOutline] = []  #: of plans that were parsed here

    def views(self) -> list[dict[str, Any]]:
        if self._plan.startswith(WATCH):
            return [self._watch(self._plan)]
        known = [self._plan] if self._plan else known_plans(self._at, self._store)
        views = [self._view(path) for path in sorted({*known, *self._overview.newest})]
        if not self._plan:
            views += [self._watch(name) for name in self._overview.schedules if name.startswith(WATCH)]
        if self._new and self._store is not None:
            keep_outlines(self._at.state, self._new)
        return views

    def _view(self, path: str) -> dict[str, Any]:
        landing = self._at.settings.run.landing
        return status_view(path, self._outline(path), self._seen(path), landing=landing, now=self._now)

    def _watch(self, name: str) -> dict[str, Any]:
        """A watch of issues in the form of a plan, with the answer to its last slot."""
        watch = PlanOutline(title=f"Issues with the label {name.removeprefix(WATCH)}", status="watching")
        seen = Seen(schedule=self._overview.schedules[name])
        last = self._store.schedules.firings(name, limit=1) if self._store else []
        answered = {"at": last[0].at, "answer": last[0].answer, "why": last[0].why} if last else None
        return {**status_view(name, watch, seen, landing="pr", now=self._now), "answered": answered}

    def _outline(self, path: str) -> PlanOutline:
        """The plan where its newest run lands, else in the checkout."""
        at, git = self._at, self._at.repository.git
        if place := self._overview.places.get(path):
            landing, target, remote, pull = place
            there = at.with_landing(landing, target=target, remote=remote)
            there = replace(there, pull=pull) if pull else there
            at = there if there is at or git.tip(there.target) else at
        if blob := self._blob(at, path):
            found = self._known(blob, path)
            return replace(found, status="active", complete=False) if at.is_on_branch else found
        try:
            return _parsed((at.repository.root / path).read_bytes(), path)
        except FileNotFoundError:
            return PlanOutline(error=f"{path}: the plan is gone, from {self._at.target_name} and from the checkout")

    def _blob(self, at: RepositoryContext, path: str) -> str:
        """The id of the plan's blob on the target; "" for none."""
        if at.target not in self._blobs:
            at.tip()  # fails without a target
            self._blobs[at.target] = plans_on_target(at)
        if blob := self._blobs[at.target].get(path):
            return blob
        found = at.repository.git.object(f"{at.target}:{path}")  # outside the directory of plans
        return found.oid if found is not None and found.kind == "blob" else ""

    def _known(self, blob: str, path: str) -> PlanOutline:
        """The outline that was stored for this blob, or a new one."""
        stamp, found = f"{__version__} {blob}", self._overview.outlines.get(path)
        if found is not None and found.stamp == stamp:
            with suppress(msgspec.DecodeError):  # text that is not valid Unicode
                return msgspec.json.decode(found.value, type=PlanOutline)
        stored = self._at.repository.git.known(blob)
        if stored is None:
            raise Unreachable(f"{path} cannot be read; see: git fsck")
        outline = _parsed(stored.content, path)
        self._new.append(StoredOutline(path, stamp, to_json(outline)))
        return outline

    def _seen(self, path: str) -> Seen:
        newest, owner = self._overview.newest.get(path), self._overview.owners.get(path, "")
        work, outputs = self._work(newest) if newest else (Work(), {})
        refused_at, verb, refused = self._overview.refused.get(path, ("", "", ""))
        is_refused = newest is None or refused_at > newest.started
        alive = stopped = False
        if owner:
            from runplan import processes  # slow to import, and most plans have no owner

            alive, stopped = processes.alive(owner), processes.is_suspended(owner)
        return Seen(
            run=newest,
            work=work,
            outputs=outputs,
            owner=owner,
            alive=alive,
            stopped=stopped,
            queued=self._overview.queued.get(path, ""),
            refused=refused if is_refused else "",
            refused_verb=verb if is_refused else "",
            schedule=self._overview.schedules.get(path),
            wait=self._overview.waits.get(path),
        )

    def _work(self, run: RunRow) -> tuple[Work, dict[str, datetime]]:
        """The current work of the run, and the last output of its processes."""
        work, outputs = run.work, dict[str, datetime]()
        if work.lanes:
            work = replace(work, lanes=tuple(self._checked(lane, outputs) for lane in work.lanes))
        return self._checked(work, outputs), outputs

    def _checked(self, work: Work, outputs: dict[str, datetime]) -> Work:
        """The same, at rest when its process does not run any more."""
        if work.dispatch is None:
            return work
        from runplan.store.files import look_at

        seen = look_at(self._at.state, work.dispatch)
        if seen.runs and seen.output is not None:
            outputs[work.dispatch] = datetime.fromtimestamp(seen.output, UTC)
        return work if seen.runs else work.at_rest()


def _parsed(text: bytes, path: str) -> PlanOutline:
    from runplan.plan.model import parse  # slow to import, and most plans are known

    try:
        return outline_of(parse(text, path=path))
    except PlanUnreadable as error:
        return PlanOutline(error=str(error))


# --- text ---------------------------------------------------------------------------------------------

_COLOURS = {"Done": "green", "In progress": "cyan bold", "Next": "yellow", "Blocked": "red", "After": "dim"}
_LEVELS = {"fine": "green", "slow": "yellow", "look": "red"}


class Page:
    """Lays out the blocks of plans for a terminal or a pipe."""

    def __init__(self, style: Style, now: datetime) -> None:
        self._style = style
        self._now = now

    def block(self, view: dict[str, Any]) -> str:
        """One plan: its phases, its run, its schedule."""
        paint, wrap = self._style.paint, self._style.wrap
        lines = [
            self._head(view) if view.get("error") is None else paint(wrap(plain(str(view["error"])), "    "), "red")
        ]
        lines += self._phases(view)
        if answered := view.get("answered"):
            words = f"{self._local(answered['at'])}: {answered['answer']}, {plain(answered['why'])}"
            lines.append(wrap(f"  Last look at {words}", "    "))
        about = [wrap(f"  {plain(line)}", "    ") for line in self._run(view)]
        if about and view["run"]["stuck"]:
            verdict, colon, rest = about[0].partition(":")
            about[0] = f"{paint(verdict, _LEVELS[view['run']['stuck']['level']])}{colon}{rest}"
        lines += about
        if view["queued"] not in (None, "stop", "pause"):
            lines.append(f"  Queued: {view['queued']}; the daemon executes it when it responds")
        if view["refused"]:
            lines.append(wrap(f"  The last {view['refused_verb']} was refused: {plain(view['refused'])}", "    "))
        if view["schedule"] is not None:
            lines.append(wrap(f"  {plain(scheduled(view['schedule'], now=self._now, zone=None))}", "    "))
        return "\n".join(lines)

    def _head(self, view: dict[str, Any]) -> str:
        done = sum(phase["status"] == "done" for phase in view["phases"])
        title, counts = plain(view["title"]), f"{view['status']}, {done} of {len(view['phases'])} done"
        about = f"({view['plan']}, {counts})" if view["phases"] else f"({view['plan']})"
        return self._style.wrap(f"{title}  {about}", "    ").replace(title, self._style.paint(title, "bold"), 1)

    def folded(self, plans: list[str]) -> str:
        """The finished plans in one line."""
        names = ", ".join(plans[:3]) + (", …" if len(plans) > 3 else "")
        count = f"{len(plans)} finished plan{'' if len(plans) == 1 else 's'}"
        return self._style.paint(self._style.wrap(plain(f"{count}: {names}  (runplan status --all)"), "  "), "dim")

    def daemon(self, daemon: dict[str, Any]) -> str:
        why = f"since {self._local(daemon['since'])}: {plain(str(daemon['error']))}"
        again = f"it tries again at {self._local(daemon['until'])}"
        return f"The daemon (process {daemon['pid']}) cannot work here {why}; {again}."

    def _phases(self, view: dict[str, Any]) -> list[str]:
        states = [_state(phase, view["next"]) for phase in view["phases"]]
        wide = max((len(phase["id"]) for phase in view["phases"]), default=0)
        state_wide = max((len(state) for state in states), default=0)
        lines = []
        for phase, state in zip(view["phases"], states, strict=True):
            colours = next((colours for word, colours in _COLOURS.items() if state.startswith(word)), "")
            before = f"  {phase['id']:<{wide}}  "
            line = f"{before}{state:<{state_wide}}  {plain(phase['title'])}".rstrip()
            after = self._style.wrap(line, " " * (wide + state_wide + 6))[len(before) + len(state) :]
            lines.append(f"{before}{self._style.paint(state, colours)}{after}")
        return lines

    def _run(self, view: dict[str, Any]) -> list[str]:
        run = view["run"]
        if run is None:
            return []
        if run["state"] not in UNFINISHED:
            why = f" ({run['reason']})" if run["reason"] not in (None, run["state"]) else ""
            more = f". Report: {command('runplan', 'report', view['plan'])}" if run["state"] != "done" else ""
            ago = f"{self._age(run['since'])} ago"
            return [f"Last run {run['id']}: {run['state']}{why} {', '.join([ago, *self._used(view)])}{more}"]
        used = ", ".join(
            [*([f"{run['agent']} {run['version'] or ''}".rstrip()] if run["agent"] else []), *self._used(view)]
        )
        lines = [run["stuck"]["sentence"]]
        lines += [f"  phase {lane['phase']}: {self._lane(lane)}" for lane in run["lanes"]]
        lines.append(f"Run {run['id']}" + (f": {used}" if used else ""))
        return [*lines, *_help(view)]

    def _lane(self, lane: dict[str, Any]) -> str:
        if lane["failed"]:
            return f"failed ({lane['failed']}), so no further phase starts"
        if lane["wake"] and lane["waiting_for"]:
            return f"waiting until {self._local(lane['wake'])} ({lane['about']})"
        by = f" by {lane['agent']}" if lane["agent"] else ""
        return f"{lane['step'] or 'between steps'}{by} for {self._age(lane['since'])}"

    def _used(self, view: dict[str, Any]) -> list[str]:
        run = view["run"]
        least = "≥ " if run["unpriced"] else ""
        parts = (
            f"attempt {run['attempt']}" if run["attempt"] > 1 else "",
            f"{short(run['tokens'])} tokens" if run["tokens"] else "",
            f"{least}${run['usd']:.2f}" if run["usd"] else "cost -" if run["tokens"] else "",
        )
        return [part for part in parts if part]

    def _age(self, since: str) -> str:
        return in_words((self._now - datetime.fromisoformat(since)).total_seconds())

    def _local(self, moment: str) -> str:
        return clock(datetime.fromisoformat(moment), None, now=self._now)


def _state(phase: dict[str, Any], following: str | None) -> str:
    if phase["status"] == "done":
        return f"Done ({phase['commit']})" if phase["commit"] else "Done"
    if phase["status"] == "todo" and phase["blocked_by"]:
        return f"After {', '.join(phase['blocked_by'])}"
    if phase["status"] == "todo":
        return "Next" if phase["id"] == following else "Todo"
    return {"in-progress": "In progress", "blocked": "Blocked"}[phase["status"]]


def _help(view: dict[str, Any]) -> list[str]:
    """The command that a waiting or interrupted run needs."""
    run, plan = view["run"], view["plan"]
    waiting = run["waiting_for"]
    if waiting in ("approval", "sign-off"):
        return [f"See it: {command('runplan', 'diff', plan)}. Land it: {command('runplan', 'approve', plan)}"]
    if waiting in ("key", "paused"):
        why = f"{run['about']}. From a shell that has it: " if waiting == "key" else "Resume it: "
        return [f"{why}{command('runplan', 'resume', plan)}"]
    if waiting == "claim":
        return [f"The daemon waits: {run['about']}"]
    is_left = not (view["claim"] and view["claim"]["alive"]) and (waiting is None or run["wake"] is not None)
    is_held = waiting == "checkout" and run["wake"] is None
    return [f"Continue it: {command('runplan', 'retry', plan)}"] if is_left or is_held else []


def short(count: int) -> str:
    """A large number in few characters: 950, 12.3k, 4.6M."""
    if count < 1000:
        return str(count)
    size, unit = (1e3, "k") if count < 999_950 else (1e6, "M")
    return f"{count / size:.1f}".removesuffix(".0") + unit


def scheduled(schedule: dict[str, Any], *, now: datetime, zone: tzinfo | None) -> str:
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

next_arguments = json_argument


def run_next(args: argparse.Namespace) -> Exit:
    from runplan.daemon.state import holder
    from runplan.settings.places import state_directory

    now = datetime.now(UTC)
    with open_context(warn=warn) as at:
        store = at.store()
        rows = store.schedules.all() if store is not None else []
        views: list[dict[str, Any]] = [{"plan": row.plan, **schedule_view(row, now), "zone": row.zone} for row in rows]
    if args.json:
        print(as_json(views))
        return Exit.DONE
    print("\n".join(_lines(views, now)) or "No schedules.")
    if rows and holder(state_directory(at.env)) is None:
        print("\nNo daemon is running, so nothing fires. Start it with: runplan daemon")
    return Exit.DONE


def _lines(views: list[dict[str, Any]], now: datetime) -> list[str]:
    from runplan.times import zone

    width = max((len(view["plan"]) for view in views), default=0)
    # A zone that this machine does not know has no next time either.
    zones = {view["zone"]: zone(view["zone"]) if view["next"] else UTC for view in views}
    return [f"{view['plan']:<{width}}  {scheduled(view, now=now, zone=zones[view['zone']])}" for view in views]
