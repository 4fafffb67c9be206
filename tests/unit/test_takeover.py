"""What a run of a fleet pushes, and what follows when another host takes it over."""

import pytest
from msgspec.structs import replace

from runplan.domain.run import actions as a, events as e
from runplan.domain.run.attempt_parts import HostChanged, WorkKept, WorkPushed
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import EndingKind
from runplan.domain.run.kinds import PhaseStep, Reason, Role, WaitKind
from runplan.domain.run.projection import project_run
from runplan.domain.run.state import RunState, fold
from tests.support import builders
from tests.support.builders import CHOSEN, decided, ended, started

OWNED = e.ClaimTaken(owner="alpha/7:1:boot")
TAKEN_OVER = e.ClaimTaken(owner="beta/9:1:boot", took_over="alpha/7:1:boot")
MOVED = HostChanged(host="beta", before="alpha")
PUSHED = WorkPushed(head="h")
LEASED: list[e.Event] = [CHOSEN, builders.LEASED]
BEGUN: list[e.Event] = [started("next", test_command=""), OWNED, *LEASED]
TAKEN, BUILT = builders.TAKEN, builders.BUILT
PROVEN: list[e.Event] = [builders.SKIPPED, builders.PROVEN]
INTENT = e.LandingStarted(id="r.1", ref="refs/remotes/origin/main", old="c0", new="c2", code="c1")


def written(role: Role = Role.IMPLEMENT, kind: str = "", *, cycle: int = 1) -> list[e.Event]:
    begun = e.DispatchStarted(id="d", role=role, agent="r", cycle=cycle)
    return [begun, ended("d", role, kind=kind, agent="r")]


def due(*events: e.Event) -> str:
    """The step that is due, with the role of a process that starts."""
    return decided(fold(events)).partition(" ")[0]


@pytest.mark.parametrize(
    "events",
    [
        [*written(), TAKEN],
        [*written(kind="context"), e.HandedOver(number=1, tree="t1", note="", why="")],
        [*written(), e.QuestionAsked(id="d", text="?")],
        [*written(), e.RulesBroken(tree="t1", reason=Reason.TAMPERED, lines=("x",))],
        [*written(kind=EndingKind.LIMIT), e.Paused(kind=WaitKind.LIMIT, until="2026-01-01T00:00:00Z")],
        [*written(), e.PhaseFailed(phase="1", reason=Reason.STOPPED, step=PhaseStep.STOP, detail="")],
    ],
    ids=["work", "hand-over", "question", "broken rules", "usage limit", "failure"],
)
def test_new_work_is_pushed_once_and_only_in_a_fleet(events: list[e.Event]) -> None:
    assert due(*BEGUN, *events) == "push-work"
    assert decide(fold([*BEGUN, *events, PUSHED])).actions != (a.PUSH_WORK,)
    assert decide(fold([*BEGUN, *events, WorkKept(host="alpha", why="no answer")])).actions != (a.PUSH_WORK,)
    assert decide(fold([BEGUN[0], e.ClaimTaken(owner="7:1:boot"), *LEASED, *events])).actions != (a.PUSH_WORK,)


def test_work_is_examined_before_it_is_pushed_and_is_not_pushed_while_it_lands() -> None:
    assert due(*BEGUN, *written()) == "take-work"
    assert due(*BEGUN, *written(), TAKEN, BUILT, *PROVEN, INTENT) == "land"


def test_status_says_which_host_alone_has_the_work_until_it_is_pushed() -> None:
    def kept(*events: e.Event) -> str | None:
        return project_run(fold([*BEGUN, *written(), *events]), run="r", plan="x", started="", since="").kept

    lost = WorkKept(host="alpha", why="a.txt: looks like a secret")
    assert kept(TAKEN, lost) == "only the host alpha has the newest work: a.txt: looks like a secret"
    assert kept(TAKEN, lost, *written(Role.FIX, cycle=2), TAKEN, PUSHED) is None


@pytest.mark.parametrize("events", [[], LEASED, [*LEASED, *written()[:1]], [*LEASED, *written(), TAKEN, BUILT, INTENT]])
def test_another_host_first_takes_the_run_over_and_its_own_restart_does_not(events: list[e.Event]) -> None:
    begun = [started("next"), OWNED, *events]
    assert due(*begun, TAKEN_OVER) == "take-over"
    assert decide(fold([*begun, e.ClaimTaken(owner="alpha/8:2:boot")])) == decide(fold(begun))
    # It did nothing there, so everything is still here.
    assert decide(fold([*begun, TAKEN_OVER, OWNED])) == decide(fold(begun))


PROVEN_AND_PUSHED = [*written(), TAKEN, PUSHED, BUILT, *PROVEN]
FIXED = [*written(Role.FIX, cycle=2), TAKEN]


@pytest.mark.parametrize(
    ("events", "then"),
    [
        (written()[:1], "implement"),
        (written(), "implement"),
        ([*written(), TAKEN, PUSHED], "build-candidate"),
        (PROVEN_AND_PUSHED, "build-candidate"),
        ([*PROVEN_AND_PUSHED, INTENT], "land"),
        ([*PROVEN_AND_PUSHED, e.Answered(tree="t1", approved=False, why="shorter")], "build-candidate"),
        ([*written(), TAKEN, PUSHED, *written(Role.FIX, cycle=2)], "fix"),
    ],
)
def test_on_another_host_the_same_process_or_candidate_is_due_again(events: list[e.Event], then: str) -> None:
    state = fold([*BEGUN, *events, TAKEN_OVER, MOVED])
    assert due(*BEGUN, *events, TAKEN_OVER, MOVED) == then
    assert (state.work.dispatches.lost, state.work.leased.attempt) == (0, 1)
    assert "the host beta continued what alpha had begun" in state.work.warnings


@pytest.mark.parametrize(
    ("answer", "then"),
    [(e.Answered(tree="t1", approved=True), "land"), (e.Answered(tree="t1", approved=False, why="shorter"), "fix")],
)
def test_a_candidate_that_is_built_again_keeps_its_proof_and_the_words_of_a_person(answer: e.Event, then: str) -> None:
    assert due(*BEGUN, *PROVEN_AND_PUSHED, answer, TAKEN_OVER, MOVED, BUILT) == then


def test_products_of_setup_are_made_again_on_another_host() -> None:
    begun = [started("next", test_command="", setup="make"), *BEGUN[1:]]
    begun += [e.DispatchStarted(id="d", role=Role.SETUP, cycle=1), ended("d", "setup")]
    assert (due(*begun), due(*begun, TAKEN_OVER, MOVED)) == ("implement", "setup")


@pytest.mark.parametrize(
    ("events", "has_branch", "then"),
    [
        ([*written(), TAKEN, BUILT, *FIXED], True, "implement"),
        ([*written(), TAKEN, BUILT, *FIXED], False, "lease"),
        ([*written(), TAKEN, PUSHED, BUILT, *FIXED], True, "fix"),  # only the cycle begins again
    ],
)
def test_an_attempt_whose_work_is_lost_begins_again(events: list[e.Event], *, has_branch: bool, then: str) -> None:
    again = HostChanged(host="beta", before="alpha", is_restarted=True, has_branch=has_branch)
    assert due(*BEGUN, *events, TAKEN_OVER, again) == then
    warning = fold([*BEGUN, *events, TAKEN_OVER, again]).work.warnings[-1]
    assert PUSHED in events or warning.endswith("lacked its newest work, so the attempt began again")


def lanes(*more: e.Event) -> RunState:
    chosen = e.LanesChosen(tip="c0", lanes=(("a", "1", ()), ("b", "2", ())), ahead=(("b", "1", "c1"),))
    first = [e.PhaseChosen(tip="c0", phase="1"), *LEASED[1:], *written(), TAKEN, PUSHED, BUILT]
    begun = [e.LanesChosen(tip="c0", lanes=chosen.lanes[:1]), *(replace(event, lane="a") for event in first)]
    ahead = e.LanesChosen(tip="c0", lanes=chosen.lanes[1:], ahead=chosen.ahead)
    return fold([started("finish", test_command=""), OWNED, *begun, ahead, *more])


def test_each_lane_is_taken_over_and_one_whose_base_is_lost_is_dropped() -> None:
    assert decided(lanes(TAKEN_OVER)).split(", ")[-2:] == ["a: take-over", "b: take-over"]
    lost = HostChanged(host="beta", before="alpha", is_restarted=True, has_branch=False, lane="b")
    state = lanes(TAKEN_OVER, replace(MOVED, lane="a"), lost)
    (first, ahead) = state.lanes
    assert (first.is_dropped, ahead.is_dropped) == (False, True)
    assert {action.lane: action.step for action in decide(state).actions}["b"] == "finish"
    work = (e.PhaseChosen(tip="c0", phase="2", base="c1"), *LEASED[1:], *written())
    begun = [replace(event, lane="b") for event in work]
    failed = e.PhaseFailed(phase="2", reason=Reason.STOPPED, step=PhaseStep.STOP, detail="", lane="b")
    state = lanes(*begun, TAKEN_OVER, replace(MOVED, lane="a"), lost, failed)
    assert {action.lane: action.step for action in decide(state).actions}["b"] == "clean-up"
