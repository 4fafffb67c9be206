"""An action has two halves: has it happened already, and how is it done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runplan.app.runcontext import RunContext
    from runplan.core.events import Event
    from runplan.core.run import PhaseRun, RunState


def unseen(action: Any, state: RunState, world: RunContext) -> tuple[Event, ...]:  # noqa: ARG001 - the shape of an observer
    """For actions that may simply be done again: their doing is idempotent and leaves the world as it finds it."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """`observe` answers from git, the process table or the store, never from memory; `do` yields facts as they come.

    An intent is recorded by yielding it: it is on disk before `do` goes on, as is every fact that may not wait
    (core/waiting.py).
    """

    do: Callable[[Any, RunState, RunContext], Iterator[Event]]
    observe: Callable[[Any, RunState, RunContext], tuple[Event, ...]] = unseen


def phase_of(state: RunState) -> PhaseRun:
    """The phase at work; the machine asks for phase actions only while there is one."""
    assert state.phase is not None
    return state.phase
