"""runplan start: checks the words, and starts the first processes of a run while the code of runs is loaded."""

from __future__ import annotations

import argparse
import contextlib

from runplan.engine.context import open_context
from runplan.errors import Exit, RefusedEarly, UsageError
from runplan.settings.options import parse_words
from runplan.supervise.dispatches import start_spawner


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
    is_here = args.foreground and not args.dry_run
    with open_context() as context, contextlib.ExitStack() as closing:
        spawner = closing.enter_context(start_spawner()) if is_here else None
        from runplan.cli.control.start import start_plan  # takes as long as the processes to start

        return start_plan(args, asked, context, spawner)
