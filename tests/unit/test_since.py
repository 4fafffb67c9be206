"""Since when: moved by what is shown, and by nothing else that is recorded."""

import pytest
from msgspec.structs import replace

from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Role, RunOutcome, WaitKind
from runplan.domain.run.projection import CurrentStep, start_of_current_step
from runplan.domain.run.state import RunState, apply, fold
from tests.support.builders import started

BEGUN = replace(started("next", auto=False, test_command=""), daemon=True)
READ = e.PhaseChosen(tip="c1", phase="1", items=(("W1", "x"),))
LEASED = e.Leased(phase="1", worktree="w", branch="b", base="c1", base_tree="t1", attempt=1)
SENT = e.DispatchStarted(id="d1", role=Role.IMPLEMENT, agent="robot", cycle=1)
LIMITED = e.DispatchEnded(id="d1", role=Role.IMPLEMENT, ending=Ending.EXITED, code=1, agent="robot", kind="limit")
TAKEN = e.ClaimTaken(owner="me", took_over="")
WORKING = [BEGUN, TAKEN, READ, LEASED, SENT]  # from 3 on it implements
STOP, ENDED = e.StopRequested(by="a person"), e.RunEnded(outcome=RunOutcome.STOPPED, reason="stopped")


def limit(until: str) -> e.Paused:
    return e.Paused(kind=WaitKind.LIMIT, until=until, agent="robot")


def away(until: str) -> e.Paused:
    return e.Paused(kind=WaitKind.UNREACHABLE, until=until, words="git does not answer")


@pytest.mark.parametrize(
    ("facts", "since"),
    [
        ([BEGUN, TAKEN], "0"),
        (WORKING, "3"),
        ([*WORKING, TAKEN, TAKEN], "3"),
        ([*WORKING, LIMITED, limit("9")], "6"),
        ([*WORKING, LIMITED, limit("9"), TAKEN, TAKEN], "6"),
        ([*WORKING, LIMITED, limit("9"), e.Woke(kind=WaitKind.LIMIT), replace(SENT, id="d2")], "8"),
        ([*WORKING, *[away("9"), e.Woke(kind=WaitKind.UNREACHABLE)] * 2, away("9")], "5"),
        ([*WORKING[:-1], e.Halted(by="a person"), TAKEN], "4"),
        ([*WORKING[:-1], e.Halted(by="a person"), e.Continued()], "5"),
        ([*WORKING[:-1], e.Queued(), TAKEN], "4"),
        ([*WORKING, STOP, ENDED], "6"),
        ([*WORKING, away("9"), STOP, ENDED], "7"),
    ],
    ids=[
        *("begun", "works", "works after restarts", "waits", "waits after restarts", "goes on after a wait"),
        *("waits on after each look", "paused", "goes on after a pause", "queued", "ended", "ended during a wait"),
    ],
)
def test_the_shown_state_has_the_time_of_its_last_change(facts: list[e.Event], since: str) -> None:
    """The facts were recorded at 0, 1, 2, …"""
    state, since_state = RunState(), CurrentStep()
    for at, fact in enumerate(facts):
        state = apply(state, fact)
        since_state = start_of_current_step(since_state, state, str(at))
    assert since_state.since == since


def test_waits_are_counted_while_the_same_thing_is_looked_at_again() -> None:
    """By which the time to the next look grows."""
    woke = e.Woke(kind=WaitKind.UNREACHABLE)
    counts = [fold([*WORKING, *facts]).waits for facts in ([away("9")], [away("9"), woke, away("9")])]
    other = fold([*WORKING, away("9"), woke, away("9"), woke, limit("9")])
    assert (counts, other.waits) == ([1, 2], 1)
