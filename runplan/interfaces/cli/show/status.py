"""runplan status and next: every plan with its phases, its run and its schedule."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec.structs import replace

from runplan.app.operations.model import Caller
from runplan.app.views.plans import read_plans, read_schedules
from runplan.app.views.status import HostView, Level, PlanState, PlanView, count_plans, describe_schedule
from runplan.domain.decoding import as_json
from runplan.domain.errors import RefusedEarly, RunplanError
from runplan.domain.run.kinds import WaitKind
from runplan.domain.standing.actions import describe_actions
from runplan.domain.standing.phases import PhaseState
from runplan.domain.standing.usage import usage_of
from runplan.domain.text import clock, command, counted, cut_cells, in_words, plain
from runplan.interfaces.cli.terminal import Style, warn

WIDE = 160  #: characters of a line that is not wrapped, where the width is unknown
FEW = 3  #: finished plans that are shown when no other plan is
LINES_SHOWN = 3  #: of the reason of a failure, and of the output of its command
#: Plans, what keeps them from being worked, and their folder.
Plans: TypeAlias = tuple[list[PlanView], HostView | None, str]


def run_status(args: argparse.Namespace) -> None:
    caller = Caller(warn=warn)
    now = datetime.now(UTC)
    is_one = args.plan is not None
    root_here = ""
    shown: dict[str, Plans] = {}
    try:
        with caller.open(lenient=True) as context:
            root_here = str(context.root)
            if is_one or not args.all:
                shown[root_here] = *read_plans(context, args.plan or "", now, warn=warn), context.settings.paths.plans
    except RefusedEarly:  # outside of a repository
        shown = {} if is_one else _read_repositories(caller, now)
        if not shown:
            raise
    shown = shown or _read_repositories(caller, now)
    if args.json:
        rows = ((view, root, host) for root, (views, host, _) in shown.items() for view in views)
        listed = [replace(view, repository=root, daemon=host) for view, root, host in rows]
        print(as_json(listed[0] if is_one else listed))
        return
    style = Style.of(sys.stdout)
    for number, (root, (views, host, folder)) in enumerate(shown.items()):
        head = style.paint(f"== {command('cd', root)}", "cyan") + "\n\n" if [*shown] != [root_here] else ""
        print(end="\n" if number else "")
        is_short = not (args.all or is_one)
        pages = [view.plan for view in views if view.state is PlanState.PAGE and is_short]
        finished = [view.plan for view in views if view.state is PlanState.DONE and is_short]
        if len(finished) == len(views) - len(pages) <= FEW:
            finished = []
        page = Page(style, now)
        plans = [page.render_plan(view) for view in views if view.plan not in {*pages, *finished}]
        foot = page.foot(finished, pages, host)
        if not plans and not finished:
            write = f"Write one under {folder}/ (paths.plans) and commit it"
            foot.insert(0, f'No plans yet. {write}, or have one written: runplan plan "GOAL"')
        counts = [style.paint(f"Plans: {count_plans(views)}", "bold")] if len(views) - len(pages) > 1 else []
        print(head + "\n\n".join([*counts, *plans, *foot]))


def _read_repositories(caller: Caller, now: datetime) -> dict[str, Plans]:
    from runplan.app.views.repositories import list_with_current, open_known  # slow to import, and mostly not needed

    shown = {}
    for known in list_with_current(caller.env):
        try:
            with open_known(known, warn=warn) as context:
                shown[known.root] = *read_plans(context, "", now, warn=warn), context.settings.paths.plans
        except (RunplanError, OSError) as error:
            warn(f"{known.root} cannot be read: {error}")
    return shown


_COLOURS = {
    PhaseState.DONE: "green",
    PhaseState.RUNNING: "cyan bold",
    PhaseState.WAITING: "yellow",
    PhaseState.NEXT: "yellow",
    PhaseState.BLOCKED: "red",
    PhaseState.ELSEWHERE: "cyan bold",
    PhaseState.FAILED: "red",
}
_LEVELS = {Level.FINE: "green", Level.SLOW: "yellow", Level.LOOK: "red"}


class Page:
    def __init__(self, style: Style, now: datetime) -> None:
        self._style = style
        self._now = now

    def render_plan(self, view: PlanView) -> str:
        """One plan: its phases, its run, its schedule, and what a person can do next."""
        paint = self._style.paint
        wrap = self._style.wrap
        counts = f", {view.status}, {view.done} of {len(view.phases)} done" if view.phases else ""
        title = plain(view.title)
        head = wrap(f"{title}  ({view.plan}{counts})", "    ").replace(title, paint(title, "bold"), 1)
        if view.error:
            head = paint(wrap(plain(view.error), "    "), "red")
        about = []
        if view.answered:
            about.append(f"Last look at {self._local_time(view.answered.at)}: {view.answered.words}")
        about += [view.words] if view.answered is None and view.words else []
        about += self._run_lines(view)
        about += filter(None, [view.queued_sentence, view.refusal])
        about += [describe_schedule(view.schedule, now=self._now)] if view.schedule is not None else []
        about += filter(None, [describe_actions(view.needed_actions)])
        shown = [wrap(f"  {plain(line)}", "    ") for line in about]
        if view.run is not None and view.run.stuck is not None:
            verdict, colon, rest = shown[0].partition(":")
            shown[0] = f"{paint(verdict, _LEVELS[view.run.stuck.level])}{colon}{rest}"
        return "\n".join([head, *self._phase_lines(view), *shown])

    def foot(self, finished: list[str], pages: list[str], host: HostView | None) -> list[str]:
        """The finished plans and other pages in one line each, and why the daemon cannot work here."""
        kinds = ((finished, "finished plan", "finished plans"), (pages, "page is no plan", "pages are no plans"))
        blocks = []
        for paths, singular, plural in kinds:
            names = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
            text = f"{counted(len(paths), singular, plural)}: {names}  (runplan status --all)"
            blocks += [self._style.paint(self._style.wrap(plain(text), "  "), "dim")] if paths else []
        if host and host.state == "absent":
            blocks.append(self._style.paint(self._style.wrap(host.error, "  "), "red"))
        elif host:
            why = f"since {self._local_time(host.since)}: {plain(host.error)}"
            again = f"it tries again at {self._local_time(host.until)}"
            blocks.append(f"The daemon (process {host.pid}) cannot work here {why}; {again}.")
        return blocks

    def _phase_lines(self, view: PlanView) -> list[str]:
        wide = max((len(phase.id) for phase in view.phases), default=0)
        state_wide = max((len(phase.words) for phase in view.phases), default=0)
        lines = []
        for phase in view.phases:
            words = f"{phase.words[:1].upper()}{phase.words[1:]}"
            before = f"  {phase.id:<{wide}}  "
            line = f"{before}{words:<{state_wide}}  {plain(phase.title)}".rstrip()
            after = self._style.wrap(line, " " * (wide + state_wide + 6))[len(before) + len(words) :]
            lines.append(f"{before}{self._style.paint(words, _COLOURS.get(phase.state, 'dim'))}{after}")
            indent = " " * len(before)
            if phase.state in (PhaseState.BLOCKED, PhaseState.ELSEWHERE):
                lines.append(self._style.wrap(f"{indent}It {plain(phase.hindrance)}", indent))
            if failed := phase.failed:
                said = [line for line in plain(failed.output).splitlines() if line.strip()][-LINES_SHOWN:]
                lines.append(self._style.wrap(f"{indent}{plain(failed.why)}", indent, most=LINES_SHOWN))
                lines += [cut_cells(f"{indent}{line}", self._style.width or WIDE) for line in said]
        return lines

    def _run_lines(self, view: PlanView) -> list[str]:
        run = view.run
        if run is None:
            return []
        pulls = [f"Open: {pull}" for pull in run.pulls]
        used = [f"attempt {run.attempt}" if run.attempt > 1 else "", usage_of(run).words]
        if not run.is_active:
            ended = ", ".join(filter(None, [f"{self._age_words(run.since)} ago", *used]))
            return [f"Last run {run.id}: {run.words} {ended}", *pulls]
        lines = [run.words, *filter(None, [run.warning])]
        for lane in run.lanes:
            if lane.failed:
                words = f"failed ({lane.failed}), so no further phase starts"
            elif lane.waiting_for:
                until = f" until {self._local_time(lane.wake)}" if lane.wake else ""
                words = f"waiting{until} ({lane.about or lane.waiting_for})"
            else:
                by = f" by {lane.agent}" if lane.agent else ""
                words = f"{lane.step or 'between steps'}{by} for {self._age_words(lane.since)}"
            lines.append(f"  phase {lane.phase}: {words}")
        lines += [f"Not pushed: {work.kept}" for work in run.lanes or (run,) if work.kept]
        agent = f"{run.agent} {run.version or ''}".rstrip() if run.agent else ""
        about = ", ".join(filter(None, [agent, *used]))
        host, slash, _ = view.claim.owner.partition("/") if view.claim and view.claim.alive else ("", "", "")
        lines.append(f"Run {run.id}{f' on {host}' if slash else ''}" + (f": {about}" if about else ""))
        lines += pulls
        return [*lines, f"The daemon waits: {run.about}"] if run.waiting_for is WaitKind.CLAIM else lines

    def _age_words(self, since: str) -> str:
        return in_words((self._now - datetime.fromisoformat(since)).total_seconds())

    def _local_time(self, moment: str) -> str:
        return clock(datetime.fromisoformat(moment), None, now=self._now)


def run_next(args: argparse.Namespace) -> None:
    now = datetime.now(UTC)
    with Caller(warn=warn).open(lenient=True) as context:
        views, absent = read_schedules(context, now, warn=warn)
    if args.json:
        print(as_json(views))
        return
    width = max((len(view.plan) for view in views), default=0)
    for view in views:
        passed_over = tuple(f"  {plain(words)}" for words in view.passed_over)
        print(f"{view.plan:<{width}}  {describe_schedule(view, now=now)}", *passed_over, sep="\n")
    if not views:
        print("No schedules.")
    elif absent is not None:
        style = Style.of(sys.stdout)
        print("", style.paint(style.wrap(absent.error, "  "), "red"), sep="\n")


def print_steps() -> None:
    """`runplan` without a verb: what to do next here."""
    from runplan.app.guide import list_steps  # slow to import, and `status` does not need it

    style = Style.of(sys.stdout)
    print("runplan works through a Markdown plan with coding agents, and lands what passed its checks.\n\nNext here:")
    for step in list_steps(Caller(warn=warn)):
        why = style.wrap(f"      {plain(step.why)}", "      ")
        print(f"  {style.paint(plain(step.command), 'bold')}", why, sep="\n")
