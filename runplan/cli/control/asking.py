"""Shows a person the diff of a candidate and takes the answer; without a terminal nobody is asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from runplan.run.events import Approved, Rejected
from runplan.run.state import awaiting

if TYPE_CHECKING:
    from runplan.engine.context import RepositoryContext
    from runplan.run.events import CandidateBuilt
    from runplan.run.state import PhaseRun, RunState


def ask_here(at: RepositoryContext, state: RunState) -> Approved | Rejected | None:
    """Yes, no, or None when there is no terminal or no answer."""
    phase = awaiting(state)
    if phase is None or phase.candidate is None:
        return None
    try:
        return _ask(at, phase, phase.candidate)
    except OSError:  # the terminal is gone
        return None


def _ask(at: RepositoryContext, phase: PhaseRun, candidate: CandidateBuilt) -> Approved | Rejected | None:
    diff = at.diff(candidate.onto, candidate.commits[-1]).decode("utf-8", "surrogateescape").rstrip("\n")
    print(f"\n{diff}\n", file=sys.stderr)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    while True:
        print(
            f"Land phase {phase.read.phase} on {at.settings.run.target}? [y]es / [n]o / [l]ater: ",
            end="",
            file=sys.stderr,
        )
        sys.stderr.flush()
        answer = sys.stdin.readline()
        match answer.strip().lower():
            case "y" | "yes":
                return Approved(tree=candidate.tree)
            case "n" | "no":
                return Rejected(tree=candidate.tree)
            case "l" | "later":
                return None
            case _ if not answer:
                return None
            case _:
                continue
