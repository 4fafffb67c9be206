"""Phases ahead: on which phase another may begin, and what becomes of it when that lands, fails or is corrected."""

from typing import Any

import pytest
from msgspec.structs import replace

from runplan.domain.plan.model import parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, Mode, PhaseStep, Reason, Role, RunOutcome
from runplan.domain.run.projection import project_run
from runplan.domain.run.rules.lanes import list_ahead, list_bases, may_begin_ahead
from runplan.domain.run.state import RunState, apply, fold, list_places, open_lanes
from tests.support.builders import a_plan, decided, fold_on, keep, started

BEGUN = e.LanesChosen(tip="c0", lanes=(("1", "2", ()),), ahead=(("1", "1", "c1"),))
BUILT = e.CandidateBuilt(onto="c0", onto_tree="t0", commits=("c1",), tree="t1", patch="p1")


def leased(phase: str, base: str = "c0") -> e.Leased:
    return e.Leased(phase=phase, branch=phase, base=base, base_tree="t", worktree="w", attempt=1)


def proven(**options: Any) -> list[e.Event]:
    """Phase 1 is written, and its checks are due."""
    begin = keep(started(setup="make setup"), **{"pipeline": 1, **options})
    chosen = e.PhaseChosen(tip="c0", phase="1", items=(("W1", "x"),))
    setup = e.DispatchStarted(id="s", role=Role.SETUP, cycle=1)
    over = e.DispatchEnded(id="s", role=Role.SETUP, ending=Ending.EXITED, code=0)
    work = e.WorkTaken(head="w1", tree="t1", commits=1, files=("a.py",))
    return [begin, chosen, leased("1"), setup, over, work, BUILT]


def ahead(*events: e.Event) -> RunState:
    """Phase 2 has begun on phase 1, in lane 1."""
    chosen = e.PhaseChosen(tip="c0", phase="2", base="c1", items=(("W1", "x"),), lane="1")
    return fold([*proven(), BEGUN, chosen, replace(leased("2", "c1"), lane="1"), *events])


LANDED = e.Landed(id="l", phase="1", tip="c3", code="c1")
WRITTEN = e.WorkTaken(head="w2", tree="t2", commits=1, lane="1")


def test_the_plan_is_searched_when_a_phase_is_to_be_proven_and_once() -> None:
    state = fold(proven())
    assert decided(state) == "setup t0, read-plan"
    assert decided(apply(state, e.LanesChosen(tip="c0", lanes=()))) == "setup t0"
    assert list_bases(state) == {"1": "c1"}


def changed(kind: type[e.Event], **fields: Any) -> list[e.Event]:
    """The same events, of which one has other fields."""
    return [replace(fact, **fields) if isinstance(fact, kind) else fact for fact in proven()]


@pytest.mark.parametrize(
    "facts",
    [
        proven(pipeline=0),
        proven(auto=False),
        proven(mode=Mode.NEXT),
        proven(sign_off=("*.py",)),
        [*proven(), e.PhaseFailed(phase="1", reason=Reason.TIMEOUT, step=PhaseStep.GATE, detail="")],
        [*proven(), e.RulesBroken(tree="t1", reason=Reason.TAMPERED, lines=("x",))],
        [*proven(), e.LandingHeld(why="an edit")],
        [*proven(), e.DriftFound(of="1", corrections=(("2", 1, "3", 4),))],
        [*proven(), e.StopRequested(by="ann")],
        [*proven(), e.CandidateConflicted(onto="c9", paths=("a",))],
        [*proven(), e.DispatchStarted(role=Role.FIX, cycle=2, agent="r")],
        [*proven()[:-1]],
        changed(e.PhaseChosen, sign_off=("look",)),
        changed(e.PhaseChosen, direct=True),
        changed(e.CandidateBuilt, rejected="no"),
    ],
)
def test_no_phase_begins_on_one_that_may_change_or_that_a_person_has_to_see(facts: list[e.Event]) -> None:
    assert may_begin_ahead(fold(proven()))
    assert not may_begin_ahead(fold(facts))
    assert "read-plan" not in decided(fold(facts))


BODIES = {
    "1": "Text.",
    "2": "Text.",
    "3": "Touches: c/\n\n### Dependencies\n\nPhase 1.",
    "4": "Touches: d/\n\n### Dependencies\n\nPhases 1 and 3.",
    "5": "Touches: a/\nExecution: direct",
    "6": "Touches: e/",
}


@pytest.mark.parametrize(
    ("worked", "bases", "below", "expected"),
    [
        ({"1": ()}, ["1"], {}, [("2", "1")]),
        ({"1": ()}, [], {}, []),
        ({"1": ("a/",), "2": ("b/",)}, ["1"], {}, [("3", "1")]),
        ({"1": ("a/",), "2": ("c/",)}, ["1"], {}, []),  # phase 3 overlaps with phase 2, which is not below
        ({"1": ("a/",), "2": ("c/",)}, ["1", "2"], {}, []),
        ({"1": ("a/",), "2": ("c/",)}, ["1", "2"], {"2": "1"}, [("3", "2")]),
        ({"1": ("a/",), "2": ("b/",), "3": ("c/",)}, ["1", "3"], {"3": "1"}, [("4", "3")]),
        ({"1": ("a/",), "2": ("b/",), "3": ("c/",)}, ["1", "3"], {}, []),
        ({"1": ("a/",), "2": ("b/",)}, ["1"], {"2": "1"}, []),  # phase 2 has begun on phase 1, and lands first
        ({"1": ("a/",), "2": ("b/",), "3": ("c/",), "4": ("d/",)}, ["1"], {}, []),  # phase 5 is next, and direct
        ({"1": ("a/",), "2": ("b/",), "3": ("c/",), "4": ("d/",), "5": ("f/",)}, ["1"], {}, [("6", "1")]),
    ],
)
def test_a_phase_begins_on_the_one_that_contains_all_it_waits_for(
    worked: dict[str, tuple[str, ...]], bases: list[str], below: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    plan = parse_plan(a_plan(dict.fromkeys(BODIES, "⬚"), BODIES), path="plans/x.md")
    chosen = list_ahead(plan, worked, bases, below, limit=1)
    assert [(phase.id, after) for phase, after in chosen] == expected
    assert list_ahead(plan, worked, bases, below, limit=0) == []


def test_a_phase_ahead_is_written_and_then_waits_for_the_landing_below() -> None:
    assert decided(ahead()) == "1: setup, setup t0", "no baseline: it is the gate of phase 1"
    waiting = ahead(WRITTEN)
    assert decided(waiting) == "setup t0"
    assert decided(open_lanes(waiting)[0]) == "waits for phase"
    assert "1: build-candidate" in decided(apply(waiting, LANDED))


def test_a_phase_ahead_takes_over_the_worktrees_and_a_fixer_below_gets_another() -> None:
    state = ahead()
    assert (open_lanes(state)[0].zone, open_lanes(state)[0].proof) == ("", "")
    assert (state.zone, state.proof) == ("1", "")
    assert list_places(state) == ["", "1"]
    failed = e.GateJudged(tree="t1", answer=GateAnswer.FAILED, code=1, line="red", time=2)
    known = e.BaselineKnown(key="k", tree="t0", results="")
    assert decided(fold_on(state, known, failed)) == "1: setup, setup"


@pytest.mark.parametrize(
    "fact",
    [
        e.PhaseFailed(phase="1", reason=Reason.TESTS_FAILED, step=PhaseStep.GATE, detail="red"),
        e.DriftFound(of="1", corrections=(("2", 1, "3", 4),)),
    ],
)
def test_a_phase_ahead_is_dropped_when_its_base_fails_or_corrects_its_text(fact: e.Event) -> None:
    running = e.DispatchStarted(id="d", role=Role.IMPLEMENT, agent="r", cycle=1, lane="1")
    state = apply(ahead(running), fact)
    assert "1: end" in decided(state)
    over = ahead(running, fact, e.RunEnded(outcome=RunOutcome.STOPPED, reason=Reason.STOPPED, lane="1"))
    assert not open_lanes(over)
    if isinstance(fact, e.PhaseFailed):
        assert decided(apply(over, e.CleanedUp(phase="1"))) == "finish failed tests-failed"
    else:
        assert "finish" not in decided(over)


@pytest.mark.parametrize(("code", "counts"), [("c1", True), ("c2", False)], ids=["as-it-was", "fixed"])
def test_a_failure_ahead_counts_if_the_phase_below_lands_as_it_was(code: str, counts: bool) -> None:
    failed = e.PhaseFailed(phase="2", reason=Reason.AGENT_FAILED, step=PhaseStep.IMPLEMENT, detail="", lane="1")
    ends = [e.CleanedUp(phase="2", lane="1"), e.RunEnded(outcome=RunOutcome.FAILED, lane="1")]
    landed = [e.Landed(id="l", phase="1", tip="c3", code=code), e.CleanedUp(phase="1")]
    (action,) = decide(ahead(failed, *ends, *landed)).actions
    assert action.step == ("finish" if counts else "read-plan")


def test_the_failed_phase_represents_a_run_whose_first_phase_has_landed() -> None:
    failed = e.PhaseFailed(phase="2", reason=Reason.TESTS_FAILED, step=PhaseStep.GATE, detail="red", lane="1")
    ends = [e.CleanedUp(phase="2", lane="1"), e.RunEnded(outcome=RunOutcome.FAILED, lane="1")]
    landed = [LANDED, e.CleanedUp(phase="1")]
    state = ahead(WRITTEN, *landed, failed, *ends)
    assert project_run(state, run="r", plan="plans/x.md", started="", since="").phase == "2"
