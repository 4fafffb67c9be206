"""What the machine sees, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.run.timing import MOST_BUSY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.run.events import DispatchEnded, Paused
    from runplan.run.state import PhaseRun, RunState


def step_of(phase: PhaseRun) -> str:
    """Where the phase is, in one word."""
    if phase.dispatch is not None:
        return phase.dispatch.role
    if phase.ended is not None:
        return phase.ended.role
    if phase.lease is None:
        return {"all-done": "land", "undo": "undo"}.get(phase.read.choice, "lease")
    if phase.work is None:
        return "implement"
    if phase.verdict is not None and phase.verdict.passed:
        return "land"
    return "verify" if phase.gates and phase.gates[-1].answer != "failed" else "gate"


def filling(phase: PhaseRun) -> str:
    """What is to be added of a writer whose context is filling."""
    armed = phase.armed
    if armed is None or phase.dispatch is None or armed.id != phase.dispatch.id:
        return ""
    return f"; its context is {full(armed.percent, estimated=armed.estimated)}, and a hand-over is prepared"


def full(percent: int, *, estimated: bool) -> str:
    """How full a context is, in words."""
    return f"{'about ' if estimated else ''}{percent} % full"


def conflicting(phase: PhaseRun) -> str:
    return ", ".join(phase.conflict.paths) if phase.conflict else ""


def unsolved(phase: PhaseRun, why: str) -> str:
    """A conflict that the fixer left: its files, why it is not solved, and the ref that keeps the work."""
    paths = ", ".join(phase.unsolved.paths) if phase.unsolved else ""
    return f"the fixer did not solve the conflict in {paths}: {why}; the work is kept at {phase.parked}"


def waited_for(pause: Paused) -> str:
    """What a run waits for that time will mend."""
    match pause.kind:
        case "limit":
            return f"{pause.agent} usage limit"
        case "overloaded":
            return f"{pause.agent} is overloaded"
        case _:
            return pause.words


def is_told(ended: DispatchEnded) -> bool:
    """Whether the agent told why it cannot go on, and hung until our clock ended it: then that is the reason."""
    return ended.ending in ("silent", "timeout") and ended.kind in ("auth", "refusal", "setup", "denied")


def how(ended: DispatchEnded) -> str:
    how = _kind(ended) if is_told(ended) else ""
    how = how or {
        "timeout": "ran longer than its limit and was ended",
        "silent": "gave no sign of life and was ended",
        "missing": "could not be started",
        "signalled": f"died by signal {ended.signal}",
        "budget": "used up its budget and was ended",
        "context": "filled its context and was ended",
    }.get(ended.ending, "")
    how = how or _kind(ended)
    return f"the {ended.role} process {how}" + (f": {ended.detail}" if ended.detail else "")


def _kind(ended: DispatchEnded) -> str:
    told = {
        "auth": "has no valid key or login",
        "refusal": "refused the work",
        "overloaded": f"found its provider overloaded {MOST_BUSY + 1} times in a row",
        "max-turns": "used up its turns",
        "context": "ran out of context",
        "budget": "used up its own budget",
        "setup": "is not set up",
        "denied": "was denied a tool it needs",
        "no-output": "ended without an answer",
    }.get(ended.kind)
    if told:
        return told
    if ended.kind == "crashed" and not ended.code:
        return "failed, although its exit code says nothing of it"
    return "says that it failed" if ended.said == "failed" else f"ended with exit code {ended.code}"


def run_ended(state: RunState) -> str:
    assert state.ended is not None
    told = f"the run ended: {state.ended.outcome}"
    return told + (f" ({state.ended.reason}: {state.ended.detail})" if state.ended.reason else "")


def variables(names: Sequence[str]) -> str:
    """The names for a message: $A, $B."""
    return ", ".join(f"${name}" for name in names)
