"""runplan start, retry, undo: begin or resume runs, in the daemon or in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan import names
from runplan.agents import prompts
from runplan.cli.control import runs
from runplan.cli.show import progress
from runplan.cli.terminal import optional_plan_argument, plan_argument
from runplan.engine.context import open_context, plan_path, refuse_under_agent
from runplan.engine.preflight import committed_plan, living_owner, phase_to_undo, require_prompts
from runplan.engine.runs import succeeded
from runplan.errors import Exit, NotFound, RefusedEarly, UsageError
from runplan.landing import modes
from runplan.plan.model import parse
from runplan.run.requests import RunRequest, Timing
from runplan.run.state import words as words_of
from runplan.settings import options
from runplan.text import command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from runplan.engine.context import RepositoryContext
    from runplan.plan.model import Phase
    from runplan.run.events import Rows, RunStarted
    from runplan.store.sqlite import Store

EXAMPLES = {
    "start": """\
  runplan start plans/X.md finish auto                everything, phase after phase, by the daemon
  runplan start plans/X.md auto every 4h              the next phase every 4 hours; with `now` also at once
  runplan start X every "weekday at 9:30"             in run.timezone
  runplan start plans/X.md --foreground               the next phase, here; it lands after runplan approve
  runplan start plans/X.md 4b auto --foreground       one phase, without asking
  runplan start X finish auto direct --foreground     everything, pushed to the remote's branch
  runplan start --issue 42 auto                       an issue on GitHub, landed by a pull request that fixes it
  runplan start X finish --dry-run                    what would be done; changes nothing""",
    "retry": """\
  runplan retry plans/X.md        again, with the options of the last run
  runplan retry plans/X.md 4b     only this phase, landing the same way
  runplan retry X --review        have an agent handle the review of the pull request""",
    "undo": "  runplan undo plans/X.md 3       revert what phase 3 landed; it can be worked on again",
}


# --- start ------------------------------------------------------------------------------------------------


def start_arguments(parser: argparse.ArgumentParser) -> None:
    optional_plan_argument(parser)
    words = "a phase id or `finish`; `auto`; cherry-pick, pr or direct; every SCHEDULE; now"
    parser.add_argument("words", nargs="*", default=[], metavar="WORD", help=words)
    parser.add_argument("--issue", type=int, metavar="NUMBER", help="instead of PLAN: an issue on GitHub; lands by pr")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--foreground", action="store_true", help="run here and exit with the outcome")
    mode.add_argument("--wait", action="store_true", help="follow the daemon's run and exit with its outcome")
    mode.add_argument("--dry-run", action="store_true", help="show what would be done and change nothing")


def run_start(args: argparse.Namespace) -> Exit:
    refuse_under_agent("start")
    if args.issue is None and args.plan is None:
        raise UsageError("name a plan, or an issue with --issue")
    with open_context() as at:
        plan, words = args.plan, args.words
        if args.issue is not None:
            if args.dry_run:
                raise UsageError("--dry-run with --issue: an issue has no plan yet; leave out one of them")
            from runplan.cli.control.issue import with_issue

            words = [word for word in (plan, *words) if word]
            taken = with_issue(at, args.issue, words)
            if not isinstance(taken, tuple):
                progress.say(taken.why)
                return Exit.DONE
            at, plan = taken
            words = [*words, "pr"]
        if args.dry_run:
            print(_dry_run(at, plan, words))
            return Exit.DONE
        return _start(at, plan, words, foreground=args.foreground, wait=args.wait)


def _start(
    at: RepositoryContext,
    plan_word: str,
    words: Sequence[str],
    *,
    foreground: bool,
    wait: bool = False,
    again: bool = False,
    like: RunStarted | None = None,
    review: Rows = (),
) -> Exit:
    """Begin the run that the words ask for; `again`: as a retry of the plan's last run, which was `like`."""
    asked = options.parse_words(words, phases=None)
    if foreground and asked.every is not None:
        raise RefusedEarly("schedules need the daemon; leave out --foreground")
    found = runs.prepared(at, plan_word, words, like=like, review=review)
    if isinstance(found, str):
        progress.say(found)
        return runs.follow_running(at, plan_path(at, plan_word)) if wait else Exit.DONE
    at, request = found
    request = replace(request, again=again)
    if foreground:
        return runs.run_here(at, request)
    runs.admit_agents(at)
    run, every = at.settings.run, asked.every
    timing = Timing(every=every, now=asked.now, zone=run.timezone, misfire=run.misfire) if every is not None else None
    return runs.submit_run(at, request, timing, wait=wait)


def _dry_run(at: RepositoryContext, plan_word: str, words: Sequence[str]) -> str:
    """What a start would do; nothing is written."""
    at = runs.with_target_settings(runs.with_landing(at, words), words)
    found = runs.request_for(at, plan_word, words)
    if isinstance(found, str):
        return found
    started, agents = found[0].started, at.settings.agents
    lines = [
        f"plan        {started.plan} ({started.title})",
        f"target      {started.target}, landing by {started.landing}",
        f"pauses      {'none' if started.auto else 'before each landing'}",
        f"agents      {agents.implementer} implements, verified by {' and '.join(agents.judges)}",
        f"tests       {started.test_command or 'none'}",
        "",
        *(_describe(at, started, phase) for phase in found[1]),
        "",
        "Nothing was changed.",
    ]
    return "\n".join(lines)


def _describe(at: RepositoryContext, started: RunStarted, phase: Phase) -> str:
    branch = names.branch(at.settings.run.branch_prefix, started.slug, phase.id)
    brief = prompts.Brief(
        plan=started.plan,
        phase=phase.id,
        title=phase.title,
        text=phase.text,
        items=tuple((item.id, item.text) for item in phase.items),
        touches=phase.touches,
        worktree="",
        branch=branch,
        test_command=started.test_command,
    )
    size = len(prompts.implement_prompt(require_prompts(at)["implement"].text, brief).encode())
    return f"phase {phase.id:<6}{phase.title}\n  branch {branch}; prompt of {size} bytes with {len(phase.items)} items"


# --- retry ------------------------------------------------------------------------------------------------


def retry_arguments(parser: argparse.ArgumentParser) -> None:
    plan_argument(parser)
    parser.add_argument("phase", metavar="PHASE", nargs="?", help="a phase id; default: as the last run")
    parser.add_argument("--review", action="store_true", help="have an agent handle new comments on the pull request")


def run_retry(args: argparse.Namespace) -> Exit:
    refuse_under_agent("retry")
    with open_context() as at:
        path = plan_path(at, args.plan)
        store = at.store()
        row = store.newest(path) if store is not None else None
        if store is None or row is None:
            raise NotFound(f"no run of {path} is recorded here; start one: {command('runplan', 'start', path)}")
        state = runs.state_of(store, row)
        assert state.started is not None
        if args.review:
            return _review(at.for_run(state.started), state.started, store)
        if row.state == "done" and not args.phase:
            progress.say(succeeded(path))
            return Exit.DONE
        at = at.for_run(state.started)
        if state.started.mode == "undo" and not args.phase:
            return _undo(at, path, state.started.wanted)
        asked = state.started
        if args.phase:
            asked = replace(_last_work(store, state.started), mode="phase", wanted=args.phase)
        return _start(at, path, words_of(asked), foreground=not asked.daemon, again=not args.phase, like=asked)


def _last_work(store: Store, last: RunStarted) -> RunStarted:
    """The plan's last run that was no undo, which runs in this process and asks for no approval."""
    found = (runs.state_of(store, row).started for row in store.runs(last.plan))
    worked = next((one for one in found if one is not None and one.mode != "undo"), None)
    return worked or replace(last, daemon=True, auto=False)


def _review(at: RepositoryContext, last: RunStarted, store: Store) -> Exit:
    """Continue the last run with the comments that reviewers made and no run has handled."""
    number, review = runs.review_of(at, last, store)
    if not review:
        progress.say(f"no new review comments on pull request #{number}; nothing to do")
        return Exit.DONE
    if last.mode == "undo":
        last = replace(last, mode="finish", wanted="", auto=False)
    return _start(at, last.plan, words_of(last), foreground=not last.daemon, like=last, review=review)


# --- undo -------------------------------------------------------------------------------------------------


def undo_arguments(parser: argparse.ArgumentParser) -> None:
    plan_argument(parser)
    parser.add_argument("phase", metavar="PHASE", help="the id of a phase that is done")


def run_undo(args: argparse.Namespace) -> Exit:
    refuse_under_agent("undo")
    with open_context() as at:
        return _undo(at, plan_path(at, args.plan), args.phase)


def _undo(at: RepositoryContext, path: str, phase: str) -> Exit:
    """Revert the phase in this process, with the landing mode of the plan."""
    at = at.for_plan(path)
    runs.complete_landings(at)
    blob = at.repository.git.blob(at.tip(), path)
    plan = parse(committed_plan(path, at.tip(), blob, "absent", target=at.target_name), path=path)
    found, store = runs.unfinished(at, path), at.store()
    if found is not None and store is not None and (owner := living_owner(store, path)):
        progress.say(runs.describe_owner(path, owner))
        return Exit.DONE
    undone = phase_to_undo(at, plan, phase, unfinished=found[1].started if found else None)
    at = at.with_committed_settings().for_plan(path)
    resolved = options.resolve(options.parse_words([], phases=None), at.settings)
    modes.require_allowed(resolved.landing, at.settings.run)
    asked = runs.run_started(at, path, plan, resolved)
    asked = replace(asked, mode="undo", wanted=undone, auto=True, issues=())
    return runs.run_here(at, RunRequest(started=asked))
