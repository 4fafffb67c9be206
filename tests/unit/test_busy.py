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


@pytest.mark.parametrize(
    ("running", "asked", "does"),
    [
        ([started("next"), READ_1], started("next"), True),
        ([started("next"), READ_1], started("phase", wanted="1"), True),
        ([started("next"), READ_1], started("phase", wanted="2"), False),
        ([started("next"), READ_1], started("finish"), False),
        ([started("phase", wanted="1")], started("phase", wanted="1"), True),
        ([started("phase", wanted="1")], started("phase", wanted="2"), False),
        ([started("phase", wanted="1"), READ_1], started("next"), True),
        ([started("finish"), READ_1], started("next"), True),
        ([started("finish"), READ_1], started("finish", auto=False), True),
        ([started("finish"), READ_1], started("phase", wanted="2"), True),
        ([started("finish"), READ_1], replace(started("finish"), landing="direct"), False),
        ([started("finish"), READ_1], replace(started("finish"), target="next"), False),
        ([started("finish"), READ_1], replace(started("next"), anew=True), False),
        ([replace(started("next"), anew=True), READ_1], replace(started("next"), anew=True), True),
        ([started("finish"), READ_1], started("undo", wanted="1"), False),
        ([started("undo", wanted="1")], started("undo", wanted="1"), True),
        ([started("undo", wanted="1")], started("next"), False),
        ([planning("a")], planning("a"), True),
        ([planning("a")], planning("b"), False),
        ([started("finish"), LANES], started("phase", wanted="3"), True),
        ([started("finish"), LANES, LANE_FAILED], started("phase", wanted="2"), True),
        ([started("finish"), LANES, LANE_FAILED], started("phase", wanted="3"), False),
    ],
)
def test_a_run_does_what_is_asked_or_other_work(running: list[e.Event], asked: e.RunStarted, *, does: bool) -> None:
    assert does_what_is_asked(fold(running), asked) == does


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
