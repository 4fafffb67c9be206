"""runplan status and next: every plan with its phases, its run and its schedule."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any, TypeAlias

from runplan.adapters.configuration.load import environment
from runplan.app.views.plans import PlanReader, view_daemon, view_missing_daemon
from runplan.domain.errors import RefusedEarly, RunplanError
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.run.kinds import UNFINISHED, RunStatus, WaitKind
from runplan.domain.run.rows import wait_of
from runplan.domain.text import clock, command, counted, cut_cells, in_words, plain
from runplan.engine.loop.context import RepositoryContext, open_context, plan_or_watch
from runplan.engine.report.views import Need, as_json, by_need, describe_schedule, format_usage, schedule_view
from runplan.interfaces.cli.terminal import Style, warn

WIDE = 160  #: characters of a line that is not wrapped, where the width is unknown
FEW = 3  #: finished plans that are shown when no other plan is
LINES_SHOWN = 3  #: of the reason of a failure, and of the output of its command


Plans: TypeAlias = tuple[list[dict[str, Any]], dict[str, Any] | None, str]  #: views, that of the daemon, their folder


def run_status(args: argparse.Namespace) -> None:
    now = datetime.now(UTC)
    is_one = args.plan is not None
    root_here = ""
    try:
        with open_context(warn=warn) as context:
            root_here = str(context.root)
            shown = {} if args.all and not is_one else {root_here: _read_plans(context, args.plan, now)}
    except RefusedEarly:  # outside of a repository
        shown = {} if is_one else _read_repositories(now)
        if not shown:
            raise
    shown = shown or _read_repositories(now)
    if args.json:
        rows = ((view, root, daemon) for root, (views, daemon, _) in shown.items() for view in views)
        listed = [{**view, "repository": root, "daemon": daemon} for view, root, daemon in rows]
        print(as_json(listed[0] if is_one else listed))
        return
    style = Style.of(sys.stdout)
    for number, (root, (views, daemon, folder)) in enumerate(shown.items()):
        head = style.paint(f"== {command('cd', root)}", "cyan") + "\n\n" if [*shown] != [root_here] else ""
        print(end="\n" if number else "")
        print(head + _render_page(Page(style, now, folder), views, daemon, is_all=args.all or is_one))


def _read_plans(context: RepositoryContext, word: str | None, now: datetime) -> Plans:
    """The plans of a repository, or the one that the word means, by need; and what keeps the daemon from working."""
    run = context.store().get_run(word) if word is not None else None
    plan = run.plan if run is not None else plan_or_watch(context, word) if word is not None else ""
    views = PlanReader(context, plan, now, warn=warn).views()
    return by_need(views), view_daemon(context, views), context.settings.paths.plans


def _read_repositories(now: datetime) -> dict[str, Plans]:
    """The plans of all known repositories, by root."""
    from runplan.app.views.repositories import list_with_current, open_known  # slow to import, and mostly not needed

    shown = {}
    for known in list_with_current(environment()):
        try:
            with open_known(known, warn=warn) as context:
                shown[known.root] = _read_plans(context, None, now)
        except (RunplanError, OSError) as error:
            warn(f"{known.root} cannot be read: {error}")
    return shown


def _render_page(page: Page, views: list[dict[str, Any]], daemon: dict[str, Any] | None, *, is_all: bool) -> str:
    pages = [view["plan"] for view in views if view["need"] is Need.PAGE]
    finished = [view["plan"] for view in views if view["need"] is Need.DONE]
    if is_all:
        pages = []
        finished = []
    elif len(finished) == len(views) - len(pages) <= FEW:
        finished = []
    shown = [page.render_plan(view) for view in views if view["plan"] not in {*pages, *finished}]
    foot = page.foot(finished, pages, daemon)
    if not shown and not finished:
        write = f"Write one under {page.plans}/ (paths.plans) and commit it"
        foot.insert(0, f'No plans yet. {write}, or have one written: runplan plan "GOAL"')
    return "\n\n".join([*shown, *foot])


# --- text ---------------------------------------------------------------------------------------------

_COLOURS = {"Done": "green", "In": "cyan bold", "Next": "yellow", "After": "dim", "Blocked": "red", "Failed": "red"}
_LEVELS = {"fine": "green", "slow": "yellow", "look": "red"}


class Page:
    """Lays out plans for a terminal or a pipe."""

    def __init__(self, style: Style, now: datetime, plans: str = "plans") -> None:
        self._style = style
        self._now = now
        self.plans = plans  #: where plans are looked for

    def render_plan(self, view: dict[str, Any]) -> str:
        """One plan: its phases, its run, its schedule."""
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
            words = f"Queued: {view['queued']}; the daemon, or a worker of the fleet, executes it when it responds"
            lines.append(self._plan_line(words))
        if view["refused"]:
            lines.append(self._plan_line(f"The last {view['refused_verb']} was refused: {view['refused']}"))
        if view["schedule"] is not None:
            lines.append(self._plan_line(describe_schedule(view["schedule"], now=self._now)))
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
        blocks = []
        for paths, singular, plural in kinds:
            names = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
            text = f"{counted(len(paths), singular, plural)}: {names}  (runplan status --all)"
            blocks += [self._style.paint(self._style.wrap(plain(text), "  "), "dim")] if paths else []
        if daemon and daemon["state"] == "absent":
            blocks.append(self._style.paint(self._style.wrap(daemon["error"], "  "), "red"))
        elif daemon:
            why = f"since {self._local_time(daemon['since'])}: {plain(daemon['error'])}"
            again = f"it tries again at {self._local_time(daemon['until'])}"
            blocks.append(f"The daemon (process {daemon['pid']}) cannot work here {why}; {again}.")
        return blocks

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
            if state in ("Blocked", "In progress") and phase["hindrance"]:
                lines.append(self._style.wrap(f"{indent}It {plain(phase['hindrance'])}", indent))
            if failed := phase["failed"]:
                said = [line for line in plain(failed["output"]).splitlines() if line.strip()][-LINES_SHOWN:]
                lines.append(self._style.wrap(f"{indent}{plain(failed['why'])}", indent, most=LINES_SHOWN))
                lines += [cut_cells(f"{indent}{line}", self._style.width or WIDE) for line in said]
                lines.append(self._style.wrap(f"{indent}Retry it: {failed['command']}", indent))
        return lines

    def _run_lines(self, view: dict[str, Any]) -> list[str]:
        run = view["run"]
        if run is None:
            return []
        attempt = f"attempt {run['attempt']}" if run["attempt"] > 1 else ""
        marks = {mark: run[mark] for mark in ("unpriced", "estimated")}
        used = [attempt, format_usage(run["tokens"], run["usd"], **marks)]
        if run["state"] not in UNFINISHED:
            why = f" ({run['reason']})" if run["reason"] not in (None, run["state"]) else ""
            more = f". Report: {command('runplan', 'report', view['plan'])}" if run["state"] != RunStatus.DONE else ""
            if more and view["status"] == PlanStatus.ACTIVE and not any(phase["failed"] for phase in view["phases"]):
                more += f"; continue it: {command('runplan', 'retry', view['plan'])}"
            ended = ", ".join(filter(None, [f"{self._age_words(run['since'])} ago", *used]))
            return [f"Last run {run['id']}: {run['state']}{why} {ended}{more}"]
        agent = f"{run['agent']} {run['version'] or ''}".rstrip() if run["agent"] else ""
        about = ", ".join(filter(None, [agent, *used]))
        lanes = [f"  phase {lane['phase']}: {self._lane_line(lane)}" for lane in run["lanes"]]
        claim = view["claim"] or {"owner": "", "alive": False}
        host, slash, _ = claim["owner"].partition("/") if claim["alive"] else ("", "", "")
        return [
            run["stuck"]["sentence"],
            *lanes,
            *(f"Not pushed: {work['kept']}" for work in run["lanes"] or (run,) if work["kept"]),
            f"Run {run['id']}{f' on {host}' if slash else ''}" + (f": {about}" if about else ""),
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
    helps = [wait.help(view["plan"], questions=run["questions"]) for wait in waits if wait.is_for_person]
    owner = (view["claim"] or {}).get("owner", "")
    is_left = run["stuck"]["level"] == "look" and not (view["claim"] and view["claim"]["alive"]) and "/" not in owner
    is_left = is_left and (waiting is None or run["wake"] is not None)
    return list(dict.fromkeys(helps)) or ([wait_of(waiting).help(view["plan"])] if is_left else [])


# --- next ---------------------------------------------------------------------------------------------


def run_next(args: argparse.Namespace) -> None:
    now = datetime.now(UTC)
    with open_context(warn=warn) as context:
        rows = context.store().list_schedules()
        views: list[dict[str, Any]] = [{"plan": row.plan, **schedule_view(row, now)} for row in rows]
        absent = view_missing_daemon(context, [{"schedule": view} for view in views])
        for view in views:
            (plan,) = PlanReader(context, view["plan"], now, warn=warn).views()
            left = [] if plan["next"] else [phase for phase in plan["phases"] if not phase["blocked_by"]]
            view["passed_over"] = [f"phase {phase['id']} {phase['hindrance']}" for phase in left if phase["hindrance"]]
    if args.json:
        print(as_json(views))
        return
    width = max((len(view["plan"]) for view in views), default=0)
    for view in views:
        passed_over = (f"  {plain(words)}" for words in view["passed_over"])
        print(f"{view['plan']:<{width}}  {describe_schedule(view, now=now)}", *passed_over, sep="\n")
    if not views:
        print("No schedules.")
    elif absent is not None:
        style = Style.of(sys.stdout)
        print("", style.paint(style.wrap(absent["error"], "  "), "red"), sep="\n")
