"""runplan stop, pause, resume, now: commands for plans that have a run or a schedule."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import TYPE_CHECKING

from runplan import processes
from runplan.cli.control import runs
from runplan.cli.show import progress
from runplan.cli.terminal import optional_plan_argument, plan_argument
from runplan.daemon import state, submit
from runplan.engine.context import is_kept, open_context, plan_or_watch, refuse_under_agent, scheduled
from runplan.engine.runs import end_recorded_agents
from runplan.errors import Exit, NotFound, Unreachable, UsageError, error_with
from runplan.run.requests import Answer
from runplan.run.rows import Command
from runplan.settings.places import state_directory
from runplan.text import command

if TYPE_CHECKING:
    import argparse

    from runplan.engine.context import RepositoryContext

ENDING_S = 20.0  #: for a foreground run to end its agents
EXAMPLES = {
    "stop": """\
  runplan stop                  everything in this repository
  runplan stop plans/X.md       the plan's schedule and its run
  runplan stop issues:runplan   the watch of this label; the issue at work is finished""",
    "pause": "  runplan pause plans/X.md      until: runplan resume plans/X.md",
    "resume": "  runplan resume plans/X.md     after a pause, a failed phase, or a lost key",
    "now": """\
  runplan now                   the one schedule of this repository
  runplan now plans/X.md        the schedule of this plan""",
}
pause_arguments = resume_arguments = plan_argument
now_arguments = optional_plan_argument


def run_pause(args: argparse.Namespace) -> Exit:
    with open_context(warn=progress.warn) as at:
        return _submit(at, args.plan, "pause", ". Resume with: runplan resume")


def run_resume(args: argparse.Namespace) -> Exit:
    with open_context() as at:
        return _submit(at, args.plan, "resume", "; see: runplan status")


def _submit(at: RepositoryContext, word: str, verb: str, then: str) -> Exit:
    """Pause or resume the plan; `then` is the rest of the message, without the plan."""
    refuse_under_agent(verb)
    plan = plan_or_watch(at, word)
    answer = runs.submit(at, plan, verb, wait=verb == "resume") if is_kept(at, plan) else Answer()
    if answer is not None and not answer.lines:
        raise NotFound(f"{plan} has no daemon run and no schedule; see: {command('runplan', 'status', plan)}")
    progress.say(f"{answer.lines[0] if answer is not None else submit.BUSY}{then} {command(plan)}")
    return Exit.DONE


def run_now(args: argparse.Namespace) -> Exit:
    refuse_under_agent("now")
    with open_context() as at:
        plans = scheduled(at)
        if args.plan is None and len(plans) > 1:
            raise UsageError(f"now: there is more than one schedule; name one of {', '.join(plans)}")
        plan = plan_or_watch(at, args.plan) if args.plan else plans[0] if plans else "PLAN"
        if plan not in plans:
            make = command("runplan", "start", plan, "auto", "every", "4h")
            raise NotFound(f"{plan} has no schedule; make one: {make}")
        answer = runs.submit(at, plan, "now")
    assert answer is not None
    return runs.print_answer(plan, answer)


# --- stop -------------------------------------------------------------------------------------------------


def stop_arguments(parser: argparse.ArgumentParser) -> None:
    optional_plan_argument(parser)
    parser.add_argument("--force", action="store_true", help="kill a run of another terminal at once")


def run_stop(args: argparse.Namespace) -> Exit:
    refuse_under_agent("stop")
    with open_context(warn=progress.warn) as at:
        plan = plan_or_watch(at, args.plan) if args.plan else ""
        lines, error = _stop(at, plan, force=args.force)
    if not lines and error is None:
        lines = [f"Nothing to stop {f'for {plan}' if plan else 'here'}"]
    for line in lines:
        progress.say(line)
    if error is not None:
        raise error
    return Exit.DONE


def _stop(at: RepositoryContext, plan: str, *, force: bool) -> tuple[list[str], Exception | None]:
    """Cancel schedules and end runs, of one plan or of all; messages, and the error to end with."""
    store = at.store()
    if store is None:
        return [], None
    lines, still_running = _end_foreground(at, plan, force=force)
    error = Unreachable("; ".join(still_running.values())) if still_running else None
    plans = [one for one in store.active_plans(queued=True) if plan in ("", one) and one not in still_running]
    commands = [Command(plan=one, verb="stop", arguments={}, by="runplan stop", at="") for one in plans]
    if not commands:
        return lines, error
    try:
        answers = submit.submit(at, commands, say=progress.say)
    except Unreachable as failed:
        # The daemon does not answer, or nothing can be recorded: agents are ended all the same.
        lines += [f"Ended the agent of {one}; its work is kept" for one in end_recorded_agents(at.state, plan)]
        is_queued = isinstance(failed, submit.Queued)  # the daemon executes it when it can
        return lines, failed if is_queued else Unreachable(f"{failed}; then stop it again")
    answered = [answer for answer in answers if answer is not None]
    lines += [line for answer in answered for line in answer.lines]
    if None in answers:
        lines.append(submit.BUSY)
    refused = next((answer for answer in answered if answer.error), None)
    return lines, error_with(refused.error, refused.exit) if refused is not None else error


def _end_foreground(at: RepositoryContext, plan: str, *, force: bool) -> tuple[list[str], dict[str, str]]:
    """End foreground runs in other terminals as Ctrl-C twice does; messages, and errors by plan."""
    store = at.store()
    if store is None:
        return [], {}
    with closing(store):
        claims = {key: owner for key, (_, owner, _) in store.claims("plan").items() if plan in ("", key)}
    daemon = state.holder(state_directory(at.env))
    others = (processes.identity(os.getpid()), daemon.identity if daemon else None)
    lines, still_running = list[str](), dict[str, str]()
    for key, owner in claims.items():
        process = processes.living(owner) if owner not in others else None
        if process is None:
            continue
        # The second signal ends the agents; the same signal twice could be delivered once. Ctrl-Z may have stopped it.
        for number in (signal.SIGKILL,) if force else (signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            processes.send(process, number)
        if processes.await_gone([process], timeout_s=ENDING_S):
            at_once = command("runplan", "stop", key, "--force")
            still_running[key] = f"the run of {key} in process {process.pid} still runs; end it at once: {at_once}"
        else:
            lines.append(f"Stopped the run of {key} in process {process.pid}")
    return lines, still_running
