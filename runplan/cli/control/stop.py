"""runplan stop: cancel schedules and end runs; their work is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import Exit, Unreachable, error_with

if TYPE_CHECKING:
    import argparse

    from runplan.engine.context import RepositoryContext

ENDING_S = 20.0  #: for a foreground run to end its agents

EXAMPLES = """\
  runplan stop                  everything in this repository
  runplan stop plans/X.md       the plan's schedule and its run"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", nargs="?", help="a plan; without it, all of this repository")
    parser.add_argument(
        "--force", action="store_true", help="do not wait for a run of another terminal to end by itself"
    )


def run(args: argparse.Namespace) -> Exit:
    from runplan.cli.show import progress
    from runplan.engine.context import open_context, plan_path, refuse_under_agent

    refuse_under_agent("stop")
    with open_context(warn=progress.warn) as at:
        plan = plan_path(at, args.plan) if args.plan else ""
        lines = stop(at, plan, force=args.force)
    if not lines:
        lines = [f"Nothing to stop {f'for {plan}' if plan else 'here'}"]
    for line in lines:
        progress.say(f"runplan: {line}")
    return Exit.DONE


def stop(at: RepositoryContext, plan: str, *, force: bool) -> list[str]:
    """Cancel schedules and end runs, of one plan or of all; messages."""
    from runplan.cli.control import submit
    from runplan.cli.show import progress
    from runplan.daemon import submitting
    from runplan.engine.context import kept_plans
    from runplan.engine.runs import end_recorded_agents
    from runplan.run.rows import Command
    from runplan.store.sqlite import Store

    if not Store.exists(at.state):
        return []
    lines, still_there = _end_foreground(at, plan, force=force)
    plans = [one for one in kept_plans(at) if plan in ("", one) and one not in still_there]
    commands = [Command(plan=one, verb="stop", arguments={}, by="runplan stop", at="") for one in plans]
    if not commands:
        return lines
    try:
        answers = submitting.submit(at, commands, talk=submit.TALK)
    except Unreachable as error:
        # The daemon does not answer, or nothing can be recorded: agents are ended all the same.
        lines += [f"Ended the agent of {one}; its work is kept" for one in end_recorded_agents(at.state, plan)]
        for line in lines:
            progress.say(f"runplan: {line}")
        if isinstance(error, submitting.Queued | submitting.Unstored):  # the daemon executes it when it can
            raise
        raise Unreachable(f"{error}; then stop it again") from error
    refused = next((answer for answer in answers if answer is not None and answer.error), None)
    lines += [line for answer in answers if answer is not None for line in answer.lines]
    if None in answers:
        lines.append(submit.BUSY)
    if refused is not None:
        for line in lines:
            progress.say(f"runplan: {line}")
        raise error_with(refused.error, refused.exit)
    return lines


def _end_foreground(at: RepositoryContext, plan: str, *, force: bool) -> tuple[list[str], list[str]]:
    """End foreground runs in other terminals; messages, and the plans whose run is still ending."""
    from contextlib import closing

    from runplan.daemon import submitting

    store = at.store()
    if store is None:
        return [], []
    with closing(store):
        claims = {key: owner for key, (_, owner, _) in store.claims("plan").items() if plan in ("", key)}
    lines, still_there = [], []
    for key, owner in claims.items():
        if not submitting.foreground_owner(owner):
            continue
        number = owner.partition(":")[0]
        if submitting.end_foreground(owner, force=force, within_s=ENDING_S):
            lines.append(f"Stopped the run of {key} in process {number}")
        else:
            still_there.append(key)
            lines.append(f"The run of {key} in process {number} is still ending; run stop again")
    return lines, still_there
