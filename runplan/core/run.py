"""The state of a run, folded from its journal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runplan.core import events as e
from runplan.core.phaserun import PhaseRun as PhaseRun, after
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """Everything the machine knows of a run."""

    started: e.RunStarted | None = None
    auto: bool = False
    plan: e.PlanRead | None = None  #: the newest reading not yet acted upon
    phase: PhaseRun | None = None
    dispatches: int = 0  #: processes started so far; numbers their ids
    landed: tuple[e.Landed, ...] = ()
    leased: bool = False  #: the run has a worktree
    tidy: bool = False  #: and it holds nothing but what git knows
    pause: e.Paused | None = None  #: what time will mend
    waits: int = 0  #: waits for the same thing in a row
    queued: bool = False  #: waits for its turn
    halted: str = ""  #: who asked that nothing new is begun
    stop: str = ""
    ended: e.RunEnded | None = None


def words(started: e.RunStarted) -> list[str]:
    """The words that ask for such a run, as they are said after `runplan start PLAN`."""
    first = "finish" if started.mode == "finish" else started.wanted
    return [word for word in (first, "auto" if started.auto else "", started.landing) if word]


def fold(recorded: Iterable[e.Event]) -> RunState:
    """The state after these events, in order."""
    state = RunState()
    for event in recorded:
        state = apply(state, event)
    return state


def apply(state: RunState, event: e.Event) -> RunState:
    """The state after one more event."""
    match event:
        case e.RunStarted():
            return replace(state, started=event, auto=event.auto)
        case e.RunResumed():
            return _resumed(state, event)
        case e.PlanRead(choice="next" | "all-done" | "undo"):
            return replace(state, plan=event, phase=PhaseRun(read=event))
        case e.PlanRead():
            return replace(state, plan=event, phase=None)
        case e.StopRequested():
            return replace(state, stop=event.by)
        case e.Queued() | e.Admitted() | e.Halted() | e.Continued() | e.Paused():
            return _waits(state, event)
        case e.RunEnded():
            return replace(state, ended=event)
        case e.LandingMoved() if state.phase is not None and state.phase.candidate is None:
            return replace(state, plan=None, phase=None)  # only the plan was to be marked; it is read again
        case e.Woke():
            state = replace(state, pause=None)
        case e.Landed():
            state = replace(state, landed=(*state.landed, event), plan=None, waits=0)
        case e.Leased():
            state = replace(state, leased=True)
        case e.CleanedUp():
            state = replace(state, tidy=_is_tidy(state.phase))
        case e.DispatchStarted():
            state = replace(state, dispatches=state.dispatches + 1, waits=0)
        case _:
            pass
    if state.phase is None:
        return state
    return replace(state, phase=after(state.phase, event))


def _waits(state: RunState, event: e.Queued | e.Admitted | e.Halted | e.Continued | e.Paused) -> RunState:
    match event:
        case e.Queued():
            return replace(state, queued=True)
        case e.Admitted():
            return replace(state, queued=False)
        case e.Halted():
            return replace(state, halted=event.by)
        case e.Continued():
            return replace(state, halted="")
        case e.Paused():
            again = state.waits if event.kind in ("checkout", "unreachable") else 0
            return replace(state, pause=event, waits=again + 1)


def _resumed(state: RunState, event: e.RunResumed) -> RunState:
    """What is asked for now holds from here on; what was proven with other checks is proven again."""
    assert state.started is not None
    was = state.started
    started = replace(
        was,
        mode=event.mode,
        wanted=event.wanted,
        max_fix_cycles=event.max_fix_cycles,
        test_command=event.test_command,
        setup=event.setup,
        clean=event.clean,
    )
    phase = replace(state.phase, held="", asked="") if state.phase else None
    checks = (was.test_command, was.setup, was.clean)
    if phase is not None and checks != (started.test_command, started.setup, started.clean):
        phase = replace(phase, baseline=None, gates=(), set_up=False, prepared="")
    state = replace(state, pause=None, waits=0, halted="")
    return replace(state, started=started, auto=event.auto, phase=phase, tidy=False)


def _is_tidy(phase: PhaseRun | None) -> bool:
    """Whether the verifier was the last to be in the worktree, and left nothing there."""
    return phase is not None and phase.verdict is not None and phase.verdict.pristine and phase.moves == 0
