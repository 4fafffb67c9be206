"""runplan status: every plan with its phases, and what is being done about them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runplan.errors import Exit, PlanUnreadable
from runplan.text import escaped, plain
from runplan.times import zone as named_zone

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from datetime import tzinfo

    from runplan.cli.show.aside import Aside
    from runplan.engine.context import RepositoryContext
    from runplan.report.views import Seen
    from runplan.run.progress import Work
    from runplan.run.rows import RunRow, ScheduleRow
    from runplan.store.sqlite import Store

EXAMPLES = """\
  runplan status                every plan that has ever been run, and the open ones under plans/
  runplan status X --watch      one plan, refreshed until Ctrl-C
  runplan status X --json       one plan, for a script"""

WATCH_S = 2.0
ANSWER_S = 1.0  #: for what is worth knowing only if it is known at once
ACTIVE = ("queued", "running")
STILL = {
    "closed": "Stands still: the daemon can do nothing in this repository for now.",
    "stopped": "Stands still: the daemon is stopped.",
}
CLEAR = "\x1b[H\x1b[J"  #: from the top to the end of the screen; what was there before it stays


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", nargs="?", metavar="PLAN", help="a path, a base name, or a unique part of one")
    parser.add_argument("--watch", action="store_true", help="refresh it every 2 seconds, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print JSON; with --watch, one line each time")


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.show.aside import Aside

    aside = Aside()
    if not args.watch:
        print(_told(args, aside))
        return aside.code
    import sys
    from time import sleep

    return watch(lambda: _told(args, aside), sleep, terminal=sys.stdout.isatty() and not args.json, json=args.json)


def watch(told: Callable[[], str], wait: Callable[[float], None], *, terminal: bool, json: bool = False) -> Exit:
    """Tell it again and again: in place on a terminal, else block after block; Ctrl-C is the way to end it."""
    try:
        while True:
            text = told()
            print(f"{CLEAR}{text}" if terminal else text if json else f"{text}\n", flush=True)
            wait(WATCH_S)
    except KeyboardInterrupt:
        return Exit.DONE


def _told(args: argparse.Namespace, aside: Aside) -> str:
    from runplan.engine.context import open_context, plan_path

    now = datetime.now(UTC)
    with open_context(warn=aside.warn) as at:
        at.repository.git.prepare()  # it starts while the journal is opened
        zone = named_zone(at.settings.run.timezone)
        look = Looking(at, now=now, zone=zone)
        views: Any = look.all() if args.plan is None else look.one(plan_path(at, args.plan), aside.warn)
        daemon = _daemon(at, [views] if args.plan else views)
    if args.json:
        import json

        for view in views if args.plan is None else [views]:
            view["daemon"] = daemon
        return escaped(json.dumps(views, ensure_ascii=False, indent=None if args.watch else 2))
    from runplan.cli.show.statustext import block, overview

    told = [_sentence(daemon)] if daemon else []
    if args.plan is not None:
        return plain("\n\n".join([block(views, now=now, zone=zone), *told]))
    blocks = [block(view, now=now, zone=zone) for view in views]
    nothing = [] if blocks else ["No plans yet; write one under plans/ and commit it."]
    return plain("\n\n".join([*blocks, *overview(views, now=now), *nothing, *told]))


def _daemon(at: RepositoryContext, views: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What keeps the daemon from going on as one would expect; None when nothing does, or nobody would expect it."""
    standing = [view["run"] for view in views if _stands(view)]
    told = _draining(at.env) or (_stopped(at.env) if any(_goes_on(view) for view in views) else None)
    if told is None and standing:
        told = _closed(at)
    if told is not None and told["state"] != "draining":
        for run in standing:
            run["stuck"] = {"level": "look", "sentence": STILL[told["state"]]}
    return told


def _draining(env: Mapping[str, str]) -> dict[str, Any] | None:
    """The daemon, if it drains; else None."""
    from runplan.daemon import singleton
    from runplan.settings.places import state_directory

    state = state_directory(env)
    found = singleton.record(state)
    if found is None or not found.draining or singleton.holder(state) is None:
        return None
    return {"pid": found.pid, "version": found.version, "state": "draining", "until": found.draining}


def _stopped(env: Mapping[str, str]) -> dict[str, Any] | None:
    """That the daemon does nothing until it is told to go on; else None."""
    from runplan.daemon import singleton
    from runplan.settings.places import state_directory

    found = singleton.stopped(state_directory(env))
    return {"pid": found.pid, "version": found.version, "state": "stopped", "until": None} if found else None


def _goes_on(view: dict[str, Any]) -> bool:
    """Whether somebody has to be there for it; a run that waits for a person, or without an end, needs nobody."""
    run = view["run"]
    return view["schedule"] is not None or (run is not None and (run["state"] in ACTIVE or run["wake"] is not None))


def _stands(view: dict[str, Any]) -> bool:
    """Whether a run is to go on and no process of it is there: mostly for a moment, between two of them."""
    run = view["run"]
    return run is not None and run["state"] == "running" and not any(one["dispatched"] for one in (run, *run["lanes"]))


def _closed(at: RepositoryContext) -> dict[str, Any] | None:
    """What the daemon says when it can do nothing in this repository; else None."""
    from runplan.daemon.client import Client
    from runplan.daemon.protocol import DaemonStatus, Status
    from runplan.errors import RunplanError
    from runplan.settings.places import socket_path

    try:
        with Client(socket_path(at.env), answer_s=ANSWER_S) as client:
            told = client.call(Status(), DaemonStatus, within_s=ANSWER_S).closed
            about = {"pid": client.hello.pid, "version": client.hello.version, "state": "closed"}
    except RunplanError:  # nobody is there, or it has no time
        return None
    for one in told:
        if one.root == str(at.repository.root):
            return {**about, "until": one.again, "since": one.since, "error": one.error}
    return None


def _sentence(daemon: dict[str, Any]) -> str:
    if daemon["state"] == "closed":
        return (
            f"The daemon (process {daemon['pid']}) can do nothing here since {daemon['since']}: {daemon['error']}; "
            f"it tries again at {daemon['until']}."
        )
    if daemon["state"] == "stopped":
        pid = daemon["pid"]
        return f"The daemon (process {pid}) is stopped and does nothing; continue it: kill -CONT {pid}"
    return (
        f"The daemon (process {daemon['pid']}) is draining: it begins nothing new and has let go "
        f"by {daemon['until']}; the next one goes on where it stood."
    )


class Looking:
    """One look at the repository, with the journal open once for all plans."""

    def __init__(self, at: RepositoryContext, *, now: datetime, zone: tzinfo) -> None:
        self._at = at
        self._now = now
        self._zone = zone
        self._store = at.store()
        self._tips: dict[str, str] = {}  #: by target
        self._schedules: dict[str, ScheduleRow] = {}
        self._queued: dict[str, str] = {}  #: by plan: the verb of the newest command that waits
        if self._store is not None:
            from runplan.store.schedules import Schedules

            self._schedules = {row.plan: row for row in Schedules(self._store).all()}
            queued = self._store.query("SELECT plan, verb FROM commands WHERE answer IS NULL ORDER BY seq")
            self._queued = {str(plan): str(verb) for plan, verb in queued}

    def all(self) -> list[dict[str, Any]]:
        from runplan.engine.context import shown_plans

        views = []
        for path in shown_plans(self._at, self._store):
            try:
                views.append(self.view(path))
            except PlanUnreadable as error:
                views.append(self._unreadable(path, str(error)))
        return views

    def one(self, path: str, warn: Callable[[str], None]) -> dict[str, Any]:
        """What is wrong with a plan that somebody asks for is an error, and hides nothing of what is done about it."""
        try:
            return self.view(path)
        except PlanUnreadable as error:
            warn(str(error))
            return self._unreadable(path, str(error))

    def view(self, path: str) -> dict[str, Any]:
        from runplan.plan.model import parse
        from runplan.report.views import status_view

        at = self._at
        seen = self._seen(path)
        # The plan is seen where its newest run lands.
        text = at.repository.git.blob(self._tip(at.for_plan(path, self._store) if seen.run else at), path)
        if text is None:
            try:
                text = (at.repository.root / path).read_bytes()
            except FileNotFoundError:
                return self._unreadable(path, f"{path}: the plan is gone, from {at.target_name} and from the checkout")
        plan = parse(text, path=path)
        return status_view(plan, seen, landing=at.settings.run.landing, now=self._now, zone=self._zone)

    def _tip(self, at: RepositoryContext) -> str:
        """Where the target stands, the same for all plans that land there."""
        if at.target not in self._tips:
            self._tips[at.target] = at.tip()
        return self._tips[at.target]

    def _unreadable(self, path: str, error: str) -> dict[str, Any]:
        """Whatever its file is like, what is done about it is told."""
        from runplan.report.views import unreadable_view

        return unreadable_view(path, error, self._seen(path), now=self._now, zone=self._zone)

    def _seen(self, path: str) -> Seen:
        from runplan.report.views import Seen

        store = self._store
        if store is None:
            return Seen()
        claim = store.claim("plan", path)
        owner = claim[1] if claim else ""
        newest = store.newest(path)
        work, outputs = self._work(store, newest) if newest else (None, {})
        return Seen(
            run=newest,
            work=work,
            outputs=outputs,
            owner=owner,
            alive=bool(owner) and _lives(owner),
            wished=self._wished(path),
            schedule=self._schedules.get(path),
        )

    def _wished(self, path: str) -> str:
        """The stop or pause that waits for the worker of the plan."""
        queued = self._queued.get(path, "")
        return queued if queued in ("stop", "pause") else ""

    def _work(self, store: Store, run: RunRow) -> tuple[Work, dict[str, datetime]]:
        """What the run is at, and when its processes last said something."""
        work = store.work(run.id)
        outputs: dict[str, datetime] = {}
        if work.lanes:
            from msgspec.structs import replace

            work = replace(work, lanes=tuple(self._standing(lane, outputs) for lane in work.lanes))
        return self._standing(work, outputs), outputs

    def _standing(self, work: Work, outputs: dict[str, datetime]) -> Work:
        """A process that is recorded as running, but does not, is none."""
        if work.dispatch is None:
            return work
        from runplan.store.files import look_at

        seen = look_at(self._at.state, work.dispatch)
        if not seen.runs:
            return work.at_rest()
        if seen.output is not None:
            outputs[work.dispatch] = datetime.fromtimestamp(seen.output, UTC)
        return work


def _lives(owner: str) -> bool:
    from runplan.processes import alive  # dear, and most plans are nobody's at the moment

    return alive(owner)
