"""Which host works on a phase, in which queue its plan waits for one, and what a person is told."""

from msgspec.structs import replace

from runplan.adapters.notify.notices import of_waiting
from runplan.app.views.journal import describe_event
from runplan.domain.fleet import MAX_LABELS, list_queues, name_queue
from runplan.domain.run import events as e
from runplan.domain.run.decide import decide
from runplan.domain.run.kinds import RunStatus, WaitKind
from runplan.domain.run.projection import project_run
from runplan.domain.run.state import RunState, apply, awaited_labels, fold
from tests.support.builders import LEASED, decided, started

CHOSEN = e.PhaseChosen(tip="c0", phase="1", items=(("W1", "x"),), host=("docker", "gpu"))
LATER = "2026-03-01T13:30:00Z"


def taken(*labels: str) -> e.ClaimTaken:
    return e.ClaimTaken(owner="a", labels=labels)


def begun(*events: e.Event) -> RunState:
    return fold([started("next"), *events])


def paused(until: str = "") -> e.Paused:
    return e.Paused(kind=WaitKind.HOST, until=until, words="phase 1 needs a host with the labels docker, gpu")


def test_a_host_takes_plans_from_the_queues_of_all_combinations_of_its_labels() -> None:
    assert list_queues(()) == ["any"]
    assert list_queues(["gpu", "docker", "gpu"]) == ["any", "docker", "gpu", "docker+gpu"]
    assert name_queue(("gpu", "docker")) in list_queues(("docker", "arm", "gpu"))
    assert name_queue(("gpu", "docker")) not in list_queues(("docker", "arm"))
    assert len(list_queues([str(number) for number in range(MAX_LABELS)])) == 256


def test_a_phase_is_worked_by_a_host_with_all_its_labels_and_without_a_fleet_by_any() -> None:
    for claim in (e.ClaimTaken(owner="a"), taken("docker", "gpu", "big")):
        assert decided(begun(claim, CHOSEN)) == "lease"
    assert decided(begun(taken("docker"), CHOSEN)) == "await-host"
    assert decide(begun(taken("docker"), CHOSEN)).why == "this host lacks the labels gpu"


def test_the_next_host_that_claims_the_run_continues_or_waits_anew() -> None:
    state = begun(taken(), CHOSEN, paused())
    assert (decide(state).waiting, awaited_labels(state)) == (WaitKind.HOST, ("docker", "gpu"))
    assert decided(apply(state, taken("gpu"))) == "await-host"
    state = apply(state, taken("docker", "gpu"))
    assert (decided(state), awaited_labels(state)) == ("lease", ())


def test_any_host_may_choose_the_next_phase() -> None:
    state = begun(taken(), CHOSEN, LEASED)
    assert awaited_labels(state)
    assert awaited_labels(apply(state, e.CleanedUp(phase="1"))) == ()


def test_lanes_wait_for_their_own_hosts() -> None:
    lanes = e.LanesChosen(tip="c0", lanes=(("1", "1", ("a",)), ("2", "2", ("b",))))
    plain = e.PhaseChosen(tip="c0", phase="2", items=(("W1", "x"),), lane="2")
    state = fold([started(), taken(), lanes, replace(CHOSEN, lane="1"), plain])
    assert decided(state) == "1: await-host, 2: lease"
    assert awaited_labels(state) == CHOSEN.host


def test_a_question_and_an_approval_are_not_hidden_by_the_wait() -> None:
    state = begun(taken("docker", "gpu"), CHOSEN, LEASED, e.QuestionAsked(id="q", text="which?", phase="1"), taken())
    assert decided(state) == "waits for question"
    assert decided(apply(state, e.QuestionAnswered(id="q", text="this"))) == "await-host"


def test_a_person_is_told_where_no_worker_has_the_labels() -> None:
    there, absent = begun(taken(), CHOSEN, paused(LATER)), begun(taken(), CHOSEN, paused())
    row = project_run(absent, run="r", plan="p.md", started="", since="")
    assert (row.state, row.waiting_for, row.needs_person) == (RunStatus.WAITING, WaitKind.HOST, True)
    assert row.about == paused().words
    assert describe_event(paused()) == f"  waiting    {row.about}"
    notice = of_waiting(absent, decide(absent), plan="p.md")
    assert notice is not None
    assert (notice.title, notice.reason) == ("p.md: phase 1 waits for you (host)", "host")
    assert of_waiting(there, decide(there), plan="p.md") is None
    assert not project_run(there, run="r", plan="p.md", started="", since="").needs_person
