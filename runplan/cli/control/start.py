"""runplan start (see begin.py), watch-issues, retry, undo: begin or resume runs, in the daemon or in this process."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan import names
from runplan.agents import prompts
from runplan.cli.control import runs
from runplan.cli.show import progress
from runplan.clock import SystemClock
from runplan.engine import issues, preflight
from runplan.engine.context import RepositoryContext, newest_run, open_context, plan_path
from runplan.engine.runs import describe_busy, describe_success, state_of
from runplan.errors import Busy, Exit, NotFound, RefusedEarly, UsageError
from runplan.landing import modes
from runplan.plan.marks import ExecutionKind, Status
from runplan.plan.model import Phase, parse_plan
from runplan.plan.tracker import describe_hindrance
from runplan.run.events import Landed, Rows, RunStarted
from runplan.run.kinds import Mode, Role, RunStatus
from runplan.run.requests import RunRequest
from runplan.settings.options import Options, in_plan, parse_words
from runplan.steps.read_plan import choose_phase
from runplan.supervise.dispatches import start_spawner
from runplan.text import bounded, command, plain

if TYPE_CHECKING:
    from runplan.forge.model import ReviewComment
    from runplan.store.protocol import Store
    from runplan.supervise.dispatches import Spawner


# --- start ------------------------------------------------------------------------------------------------


def start_plan(args: argparse.Namespace, asked: Options, context: RepositoryContext, spawner: Spawner | None) -> Exit:
    """Work on the plan or the issue, in this process if there is a spawner."""
    plan = args.plan
    if args.issue is not None:
        asked = in_plan(asked, ["1"])
        context = _with_pull_requests(context, asked, "--issue")
        taken = issues.take_issue(context, args.issue, now=SystemClock().now())
        if isinstance(taken, issues.TakenElsewhere):
            progress.say(taken.why)
            return Exit.DONE
        context = taken
        plan = issues.path_of(taken, args.issue)
        asked = replace(asked, landing="pr")
    if args.dry_run:
        print(_dry_run(context, plan, asked))
        return Exit.DONE
    return _start_run(context, plan, asked, spawner=spawner, wait=args.wait)


def _with_pull_requests(context: RepositoryContext, asked: Options, option: str) -> RepositoryContext:
    """The context of runs that land by pr, after the checks of a start."""
    if asked.landing not in ("", "pr"):
        raise UsageError(f"{asked.landing} with {option}: the plan of an issue lands by pr; leave out {asked.landing}")
    context = runs.with_landing(context, "pr")
    runs.complete_landings(context)
    return runs.with_target_settings(context, "pr")


def _start_run(
    context: RepositoryContext,
    word: str,
    asked: Options,
    *,
    spawner: Spawner | None,
    wait: bool = False,
    again: bool = False,
    like: RunStarted | None = None,
    review: Rows = (),
) -> Exit:
    """Begin the run that the options ask for, in this process if there is a spawner.

    `again`: as a retry of the plan's last run, which was `like`.
    """
    match runs.resolve_start(context, word, asked, like=like, review=review):
        case runs.NothingToDo(why=why):
            progress.say(why)
            return Exit.DONE
        case runs.AlreadyRunning(why=why, plan=plan, run=run):
            progress.say(why)
            code = runs.follow_run(context, plan, run) if wait and run else Exit.DONE
        case runs.Ready(context=context, request=request):
            request = replace(request, again=again)
            plan = request.started.plan
            if spawner is not None:
                code = runs.run_here(context, request, spawner)
            else:
                runs.admit_agents(context)
                code = runs.submit_run(context, request, runs.timing_of(asked, context.settings.run), wait=wait)
    if code is Exit.WAITING and (spawner is not None or wait):
        from runplan.cli.control.answers import ask_on_terminal  # 3 ms, and most runs end without a question

        code = ask_on_terminal(context, plan, code)
    return code


def _dry_run(context: RepositoryContext, word: str, asked: Options) -> str:
    """What a start would do; nothing is written."""
    context = runs.with_target_settings(runs.with_landing(context, asked.landing), asked.landing)
    start = runs.resolve_request(context, runs.resolve_plan(context, word), asked)
    if isinstance(start, runs.NothingToDo):
        return start.why
    started = start.request.started
    agents = context.settings.agents
    others = [phase for phase in start.plan.phases if phase.status is not Status.DONE and phase.id not in start.phases]
    lines = [
        f"plan        {started.plan} ({started.title})",
        f"target      {started.target}, landing by {started.landing}",
        f"pauses      {'none' if started.auto else 'before each landing'}",
        f"agents      {agents.implementer} implements, verified by {' and '.join(agents.judges)}",
        f"tests       {context.settings.tests.command or 'none'}",
        "",
        *(_describe_phase(context, started, phase) for phase in start.plan.phases if phase.id in start.phases),
        *(
            f"phase {phase.id:<6}is not worked: it {describe_hindrance(start.plan, phase)}"
            for phase in others
            if asked.finish
        ),
        "",
        "Nothing was changed.",
    ]
    return "\n".join(lines)


def _describe_phase(context: RepositoryContext, started: RunStarted, phase: Phase) -> str:
    head = f"phase {phase.id:<6}{phase.title}"
    if phase.execution.kind in (ExecutionKind.PLAN, ExecutionKind.DELEGATE):
        return f"{head}\n  {phase.execution.text}"
    branch = names.branch(context.settings.run.branch_prefix, started.slug, phase.id)
    read = choose_phase(phase, tip="")
    brief = prompts.Brief(
        plan=started.plan, chosen=read, worktree="", branch=branch, test_command=context.settings.tests.command
    )
    size = len(prompts.implement_prompt(preflight.require_prompts(context)[Role.IMPLEMENT].text, brief).encode())
    return f"{head}\n  branch {branch}; prompt of {size} bytes with {len(phase.items)} items"


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


# --- retry ------------------------------------------------------------------------------------------------


def run_retry(args: argparse.Namespace) -> Exit:
    with open_context() as context:
        store, row = newest_run(context, args.plan)
        last = state_of(store, row).options
        context = context.for_run(last)
        here = args.foreground or not (args.wait or args.background or last.daemon)
        review: Rows = ()
        if args.review:
            review = _new_comments(context, last, store)
            if not review:
                return Exit.DONE
            last = replace(last, mode=Mode.FINISH, wanted="", auto=False) if last.mode is Mode.UNDO else last
        elif args.phase:
            last = replace(_last_work(store, last), mode=Mode.PHASE, wanted=args.phase)
        elif row.state == RunStatus.DONE:
            progress.say(describe_success(row.plan))
            return Exit.DONE
        elif last.mode is Mode.UNDO:
            return _undo_phase(context, row.plan, last.wanted)
        elif last.mode is Mode.PLAN:
            again = RunRequest(started=replace(last, command=0), again=True)
            return runs.run_here(context, again) if here else runs.submit_run(context, again, wait=args.wait)
        is_again = not args.phase and not args.review
        asked = Options(phase=last.wanted, finish=last.mode is Mode.FINISH, auto=last.auto, landing=last.landing)
        asked = replace(asked, anew=args.fresh)
        with start_spawner() if here else contextlib.nullcontext() as spawner:
            return _start_run(
                context, row.plan, asked, spawner=spawner, wait=args.wait, again=is_again, like=last, review=review
            )


def _last_work(store: Store, last: RunStarted) -> RunStarted:
    """The plan's last run that was no undo, which runs in this process and asks for no approval."""
    options = (state_of(store, row).options for row in store.list_runs(last.plan))
    worked = next((started for started in options if started.mode not in (Mode.UNDO, Mode.PLAN)), None)
    return worked or replace(last, daemon=True, auto=False)


def _new_comments(context: RepositoryContext, last: RunStarted, store: Store) -> Rows:
    """The comments of reviewers on the plan's open pull request that no run has handled: ids and quoted texts."""
    if not last.concludes:
        raise RefusedEarly(f"the last run of {last.plan} landed by {last.landing}; only a pull request has a review")
    run = context.settings.run
    forge = modes.open_forge(context.git, run, context.env)
    pull = forge.find_pull_request(branch=names.pull_branch(run.branch_prefix, last.slug), base=run.target)
    if pull is None or not pull.is_open:
        raise NotFound(f"{last.plan} has no open pull request; see: {command('runplan', 'status', last.plan)}")
    handled = {id_ for fact in store.list_facts(Landed, plan=last.plan) for id_ in fact.event.review}
    comments = [comment for comment in forge.list_review_comments(pull.number) if comment.id not in handled]
    if not comments:
        progress.say(f"no new review comments on pull request #{pull.number}; nothing to do")
    strangers = {comment.author for comment in comments if not forge.may_write(comment.author)}
    if strangers:
        progress.warn(f"comments of accounts without write access are among them: {', '.join(sorted(strangers))}")
    return tuple((comment.id, _quote_comment(comment, is_stranger=comment.author in strangers)) for comment in comments)


def _quote_comment(comment: ReviewComment, *, is_stranger: bool) -> str:
    lines = plain(bounded(comment.text)).splitlines()
    author = f"{comment.author} (without write access)" if is_stranger else comment.author
    where = f" on {comment.place}" if comment.place else ""
    return "\n".join([f"{author}{where}:", *(f"> {line}" for line in lines)])


# --- undo -------------------------------------------------------------------------------------------------


def run_undo(args: argparse.Namespace) -> Exit:
    with open_context() as context:
        return _undo_phase(context, plan_path(context, args.plan), args.phase)


def _undo_phase(context: RepositoryContext, path: str, phase: str) -> Exit:
    """Revert the phase in this process, with the landing mode of the plan."""
    context = context.for_plan(path)
    runs.complete_landings(context)
    plan = parse_plan(preflight.committed_plan(context, path, is_compared=False), path=path)
    left = runs.unfinished_run(context, path)
    if left is not None and (owner := context.store().get_living_owner(path)):
        was = left[1].options
        if (was.mode, was.wanted) != (Mode.UNDO, phase):
            raise Busy(describe_busy(path, left[0].id, left[1]))
        progress.say(runs.describe_owner(path, owner))
        return Exit.DONE
    undone = preflight.phase_to_undo(context, plan, phase, unfinished=left[1].started if left else None)
    context = runs.with_landing(context.with_committed_settings().for_plan(path), "")
    asked = runs.run_started(context, path, plan.title, Options(phase=undone, auto=True))
    return runs.run_here(context, RunRequest(started=context.record_settings(replace(asked, mode=Mode.UNDO))))
