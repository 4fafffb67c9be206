"""runplan start --issue and watch-issues: issues of the forge are worked on as plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan import names
from runplan.cli.control import runs
from runplan.clock import SystemClock
from runplan.engine import issues
from runplan.engine.context import open_context, refuse_under_agent
from runplan.engine.preflight import require_test_command
from runplan.errors import RefusedEarly, UsageError
from runplan.landing import modes
from runplan.run.events import RunStarted
from runplan.run.requests import RunRequest, Timing
from runplan.settings import options
from runplan.settings.load import run_variables

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from runplan.engine.context import RepositoryContext
    from runplan.errors import Exit
    from runplan.settings.options import Options

EXAMPLES = {
    "watch-issues": """\
  runplan watch-issues --label runplan every 10m      open issues with the label, one after the other
  runplan watch-issues --label runplan every 1h now   the first one at once
  runplan now issues:runplan                          look for the next one now
  runplan stop issues:runplan                         end the watch; the issue at work is finished""",
}


def with_issue(
    at: RepositoryContext, number: int, words: Sequence[str]
) -> tuple[RepositoryContext, str] | issues.TakenElsewhere:
    """Take the issue for this repository; the context and path of its plan."""
    asked = options.parse_words(words, phases=["1"])
    if asked.every is not None:
        raise UsageError("every with --issue: an issue is worked on once; leave out every")
    at = _with_pull_requests(at, asked, "--issue")
    taken = issues.take(at, number, now=SystemClock().now())
    return taken if isinstance(taken, issues.TakenElsewhere) else (taken, issues.path_of(taken, number))


def _with_pull_requests(at: RepositoryContext, asked: Options, what: str) -> RepositoryContext:
    """The context of runs that land by pr, after the checks of a start."""
    if asked.landing not in ("", "pr"):
        raise UsageError(f"{asked.landing} with {what}: the plan of an issue lands by pr; leave out {asked.landing}")
    at = runs.with_landing(at, ["pr"])
    runs.complete_landings(at)
    return runs.with_target_settings(at, ["pr"])


# --- watch-issues -----------------------------------------------------------------------------------------


def watch_issues_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", default=[], metavar="WORD", help="every SCHEDULE, which implies auto; now")
    parser.add_argument("--label", required=True, help="of the issues to work on")


def run_watch_issues(args: argparse.Namespace) -> Exit:
    refuse_under_agent("watch-issues")
    asked = options.parse_words(args.words, phases=())
    if asked.every is None:
        raise UsageError("watch-issues needs a schedule, such as: every 10m")
    if not args.label.strip() or "," in args.label or not names.is_plain(args.label):
        raise RefusedEarly("the label is empty, or has a comma or control characters; a watch has one label")
    with open_context() as at:
        at = _with_pull_requests(at, asked, "watch-issues")
        require_test_command(at)
        runs.admit_agents(at)
        settings = at.settings.run
        started = RunStarted(
            plan=f"{names.WATCH}{args.label}",
            title=f"Issues with the label {args.label}",
            mode=options.Mode.NEXT,
            wanted="",
            auto=True,
            landing="pr",
            target=settings.target,
            slug="",
            max_fix_cycles=settings.max_fix_cycles,
            test_command=at.settings.tests.command,
            remote=settings.remote,
            concludes=modes.concludes("pr"),
            given=run_variables(at.env),
        )
        timing = Timing(every=asked.every, now=asked.now, zone=settings.timezone, misfire=settings.misfire)
        return runs.submit_run(at, RunRequest(started=started), timing)
