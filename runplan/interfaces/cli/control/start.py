"""runplan start and watch-issues: begin runs, in the daemon or in this process."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from runplan.adapters.agents import prompts
from runplan.adapters.clock import SystemClock
from runplan.domain import names
from runplan.domain.errors import Exit, RefusedEarly, UsageError
from runplan.domain.plan.marks import ExecutionKind, Status
from runplan.domain.plan.model import Phase
from runplan.domain.plan.tracker import assume_done, describe_hindrance
from runplan.domain.run.events import Rows, RunStarted
from runplan.domain.run.kinds import Role
from runplan.domain.run.requests import RunRequest
from runplan.domain.settings.options import Options, in_plan, parse_words
from runplan.domain.text import counted
from runplan.engine.loop import issues, preflight
from runplan.engine.loop.context import RepositoryContext, open_context
from runplan.engine.steps.read_plan import choose_phase
from runplan.interfaces.cli.control import runs
from runplan.interfaces.cli.control.answers import ask_on_terminal
from runplan.interfaces.cli.show import progress

# --- start ------------------------------------------------------------------------------------------------


def run_start(args: argparse.Namespace) -> Exit:
    plan = args.plan
    number = args.issue
    if number is None and plan is None:
        raise UsageError("name a plan, or an issue with --issue")
    words = args.words if number is None or plan is None else [plan, *args.words]
    asked = parse_words(words)
    if number is not None and (args.dry_run or asked.every):
        word = "every" if asked.every else "--dry-run"
        raise UsageError(f"{word} with --issue: an issue is worked on once, and has no plan yet; leave out one of them")
    if args.foreground and asked.every:
        raise RefusedEarly("schedules need the daemon; leave out --foreground")
    with open_context() as context:
        if number is not None:
            asked = in_plan(asked, ["1"])
            context = _with_pull_requests(context, asked, "--issue")
            taken = issues.take_issue(context, number, now=SystemClock().now())
            if isinstance(taken, issues.TakenElsewhere):
                progress.say(taken.why)
                return Exit.DONE
            context = taken.context
            plan = taken.plan
            asked = replace(asked, landing="pr")
        if args.dry_run:
            print(_dry_run(context, plan, asked))
            return Exit.DONE
        return start_run(context, plan, asked, here=args.foreground, wait=args.wait)


def _with_pull_requests(context: RepositoryContext, asked: Options, option: str) -> RepositoryContext:
    """The context of runs that land by pr, after the checks of a start."""
    if asked.landing not in ("", "pr"):
        raise UsageError(f"{asked.landing} with {option}: the plan of an issue lands by pr; leave out {asked.landing}")
    context = runs.with_landing(context, "pr")
    runs.complete_landings(context)
    return runs.with_target_settings(context, "pr")


def start_run(
    context: RepositoryContext,
    word: str,
    asked: Options,
    *,
    here: bool,
    wait: bool = False,
    again: bool = False,
    like: RunStarted | None = None,
    review: Rows = (),
) -> Exit:
    """Begin the run that the options ask for, in the daemon or `here`, in this process.

    `again`: as a retry of the plan's last run, which was `like`.
    """
    match runs.resolve_start(context, word, asked, like=like, review=review):
        case runs.NothingToDo(why=why):
            progress.say(why)
            return Exit.DONE
        case runs.AlreadyRunning(why=why, plan=plan, run=run):
            progress.say(why)
            code = runs.follow_run(context, plan, run) if wait and run else Exit.DONE
        case runs.Ready(context=context, request=request) as start:
            if asked.auto and (signed := _list_sign_offs(start)):
                waits = f"{'phase' if len(signed) == 1 else 'phases'} {', '.join(signed)}"
                others = "; independent phases go on meanwhile" if len(start.phases) > len(signed) else ""
                progress.say(f"{waits} will wait for your sign-off{others}")
            if asked.every and asked.phase:
                progress.say(f"phase {asked.phase} is not chosen: a schedule works on the next phase each time")
            request = replace(request, again=again)
            plan = request.started.plan
            if here:
                code = runs.run_here(context, request)
            else:
                runs.admit_agents(context)
                code = runs.submit_run(context, request, runs.timing_of(asked, context.settings.run), wait=wait)
    if code is Exit.WAITING and (here or wait):
        code = ask_on_terminal(context, plan, code)
    return code


def _list_sign_offs(start: runs.Ready) -> list[str]:
    return [phase.id for phase in start.plan.phases if phase.id in start.phases and phase.sign_off]


def _dry_run(context: RepositoryContext, word: str, asked: Options) -> str:
    """What a start would do; nothing is written."""
    context = runs.with_target_settings(runs.with_landing(context, asked.landing), asked.landing)
    start = runs.resolve_request(context, runs.resolve_plan(context, word), asked)
    if isinstance(start, runs.NothingToDo):
        return start.why
    started = start.request.started
    agents = context.settings.agents
    after = assume_done(start.plan, *start.phases)
    others = [phase for phase in start.plan.phases if phase.status is not Status.DONE and phase.id not in start.phases]
    signed = _list_sign_offs(start)
    pauses = f"before the landing of {', '.join(signed)}" if signed else "none"
    lines = [
        f"plan        {started.plan} ({started.title})",
        f"target      {started.target}, landing by {started.landing}",
        f"pauses      {pauses if started.auto else 'before each landing'}",
        f"agents      {agents.implementer} implements, verified by {' and '.join(agents.judges)}",
        f"tests       {context.settings.tests.command or 'none'}",
        "",
        *(_describe_phase(context, started, phase) for phase in start.plan.phases if phase.id in start.phases),
        *(
            f"phase {phase.id:<5} is not worked: it {describe_hindrance(after, phase)}"
            for phase in others
            if asked.finish
        ),
        "",
        "Nothing was changed.",
    ]
    return "\n".join(lines)


def _describe_phase(context: RepositoryContext, started: RunStarted, phase: Phase) -> str:
    head = f"phase {phase.id:<5} {phase.title}"
    if phase.execution.kind in (ExecutionKind.PLAN, ExecutionKind.DELEGATE):
        return f"{head}\n  {phase.execution.text}"
    branch = names.branch(context.settings.run.branch_prefix, started.slug, phase.id)
    read = choose_phase(phase, tip="")
    brief = prompts.Brief(
        plan=started.plan, chosen=read, worktree="", branch=branch, test_command=context.settings.tests.command
    )
    size = len(prompts.implement_prompt(preflight.require_prompts(context)[Role.IMPLEMENT].text, brief).encode())
    return f"{head}\n  branch {branch}; prompt of {size} bytes with {counted(len(phase.items), 'item')}"


def run_watch_issues(args: argparse.Namespace) -> Exit:
    asked = in_plan(parse_words(args.words), ())
    if not asked.every:
        raise UsageError("watch-issues needs a schedule, such as: every 10m")
    if not args.label.strip() or "," in args.label or not names.is_plain(args.label):
        raise RefusedEarly("the label is empty, or has a comma or control characters; a watch has one label")
    with open_context() as context:
        context = _with_pull_requests(context, asked, "watch-issues")
        preflight.require_test_command(context)
        runs.admit_agents(context)
        watch = f"{names.WATCH}{args.label}"
        title = f"Issues with the label {args.label}"
        request = RunRequest(started=runs.run_started(context, watch, title, asked))
        return runs.submit_run(context, request, runs.timing_of(asked, context.settings.run))
