"""A request while a run goes on: the run does it anyway, or the plan is busy with other work."""

import pytest
from msgspec.structs import replace

from runplan.domain.run import events as e
from runplan.domain.run.decide import is_ending
from runplan.domain.run.kinds import Mode, PhaseStep, Reason, RunOutcome
from runplan.domain.run.projection import project_run
from runplan.domain.run.state import fold
from runplan.engine.loop.runs import describe_busy, does_other_work, does_what_is_asked
from tests.support.builders import started

PLAN = "plans/x.md"
READ_1 = e.PhaseChosen(tip="c1", phase="1")
LANES = e.LanesChosen(tip="c1", lanes=(("a", "1", ("a/",)), ("b", "2", ("b/",))))
LANE_FAILED = e.RunEnded(outcome=RunOutcome.FAILED, reason="tests-failed", lane="a")


def planning(goal: str) -> e.RunStarted:
    return replace(started("plan"), planning=e.Planning(goal=goal))


UNDO, PHASE_1, PHASE_2 = started("undo", wanted="1"), started("phase", wanted="1"), started("phase", wanted="2")
NEXT, FINISH = started("next"), started("finish")
ANEW = replace(NEXT, anew=True)


@pytest.mark.parametrize(
    ("running", "does", "does_not"),
    [
        ([NEXT, READ_1], [NEXT, PHASE_1], [PHASE_2, FINISH]),
        ([PHASE_1], [PHASE_1], [PHASE_2]),
        ([PHASE_1, READ_1], [NEXT], []),
        ([FINISH, READ_1], [NEXT, started("finish", auto=False), PHASE_2], [replace(FINISH, landing="direct")]),
        ([FINISH, READ_1], [], [replace(FINISH, target="next"), ANEW, UNDO]),
        ([ANEW, READ_1], [ANEW], []),
        ([UNDO], [UNDO], [NEXT]),
        ([planning("a")], [planning("a")], [planning("b")]),
        ([FINISH, LANES], [started("phase", wanted="3")], []),
        ([FINISH, LANES, LANE_FAILED], [PHASE_2], [started("phase", wanted="3")]),
    ],
)
def test_a_run_does_what_is_asked_or_other_work(
    running: list[e.Event], does: list[e.RunStarted], does_not: list[e.RunStarted]
) -> None:
    state = fold(running)
    assert [asked for asked in does if not does_what_is_asked(state, asked)] == []
    assert [asked for asked in does_not if does_what_is_asked(state, asked)] == []


@pytest.mark.parametrize(
    ("running", "asked", "other"),
    [
        ([started("phase", wanted="1")], started("phase", wanted="2"), True),
        ([started("next")], started("phase", wanted="2"), False),
        ([started("next"), READ_1], started("finish"), False),
        ([started("finish"), LANES], started("phase", wanted="1"), True),
    ],
    ids=["not-read", "no-phase", "more", "lanes"],
)
def test_a_waiting_run_is_resumed_for_its_own_work(running: list[e.Event], asked: e.RunStarted, *, other: bool) -> None:
    assert does_other_work(fold(running), asked) == other


@pytest.mark.parametrize(
    ("running", "work"),
    [
        ([started("next")], "another run"),
        ([started("next"), READ_1], "phase 1"),
        ([started("finish"), LANES], "phases 1, 2"),
        ([started("undo", wanted="1")], "the undo of phase 1"),
    ],
)
def test_a_declined_request_names_the_phases_at_work(running: list[e.Event], work: str) -> None:
    assert describe_busy(PLAN, "r1", fold(running)) == (
        f"{PLAN} is busy with {work} (r1); nothing was changed. "
        f"Follow it: runplan logs {PLAN} -f; end it: runplan stop {PLAN}"
    )


BUILT = e.CandidateBuilt(onto="c1", onto_tree="t0", commits=("c2",), tree="t1", patch="p")
LANDED = e.Landed(id="l", phase="1", tip="c3", code="c2")
NO = e.Answered(tree="t1", approved=False)
YES = e.Answered(tree="t1", approved=True)
FAILED = e.PhaseFailed(phase="1", reason=Reason.STOPPED, step=PhaseStep.LAND, detail="no")


@pytest.mark.parametrize(
    ("facts", "mode", "step", "ends"),
    [
        ([NO], Mode.NEXT, "clean-up", True),
        ([NO], Mode.FINISH, "clean-up", True),
        ([NO, FAILED], Mode.FINISH, "clean-up", True),
        ([NO, FAILED, e.CleanedUp(phase="1")], Mode.FINISH, "clean-up", True),
        ([YES], Mode.NEXT, "undo", True),
        ([YES, LANDED], Mode.NEXT, "clean-up", True),
        ([YES, LANDED], Mode.FINISH, "clean-up", False),
        ([e.ApprovalAsked(tree="t1")], Mode.NEXT, "undo", False),
        ([e.RunResumed(mode=Mode.NEXT, wanted="", auto=True)], Mode.NEXT, "undo", False),
    ],
)
def test_a_start_is_queued_behind_a_run_that_lands(facts: list[e.Event], mode: Mode, step: str, *, ends: bool) -> None:
    chosen = e.UndoChosen(tip="c1", phase="1")  # it needs no checks
    state = fold([replace(started("next", auto=False), mode=mode), chosen, BUILT, *facts])
    assert is_ending(state) is ends
    assert project_run(state, run="r1", plan=PLAN, started="", since="").step == step


def test_a_run_that_waits_for_an_answer_is_not_called_busy() -> None:
    begun = [started("next", auto=False), e.UndoChosen(tip="c1", phase="1")]  # it needs no checks
    said = describe_busy(PLAN, "r1", fold([*begun, BUILT, e.ApprovalAsked(tree="t1")]))
    assert said == (
        f"{PLAN}: phase 1 (r1) waits for your answer; nothing was changed. "
        f"See it: runplan diff {PLAN}; end it: runplan stop {PLAN}"
    )
