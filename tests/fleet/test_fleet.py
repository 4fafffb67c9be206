"""Two workers on hosts of their own: a frozen one, a lost one, and a database that crashes. More: make chaos-fleet."""

from collections.abc import Iterator

import pytest

from tests.fleet.scenarios import Outcome, Trial, is_ended, prove, running
from tests.support.cli import until
from tests.support.fleet import Fleet

LEASE_S = 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    plans = {"P1": ("1",), "P2": ("1", "2")}
    with running(tmp_path_factory.mktemp("fleet"), plans, slots=1, lease_s=LEASE_S) as made:
        yield made


def finish(fleet: Fleet, plan: str, phases: tuple[str, ...]) -> Outcome:
    """Wait for the end of the plan; what has become of it."""
    until(lambda: is_ended(fleet, [plan]))
    outcome = Outcome(plan)
    prove(fleet, {plan: phases}, outcome)
    return outcome


def start_on_alpha(fleet: Fleet, plan: str) -> Trial:
    """Start the plan while the other host takes none."""
    ran = fleet.hosts["desk"].run("fleet", "drain", "beta")
    assert ran.code == 0, ran.err
    trial = Trial(fleet, {plan: ("1",)})
    trial.start()
    return trial


def test_a_frozen_host_is_fenced_and_its_agent_ended_before_anything_lands(fleet: Fleet) -> None:
    trial = start_on_alpha(fleet, "P1")
    with trial.at_work():
        fleet.restart_database()
        fleet.hosts["desk"].run("fleet", "up", "beta")
        trial.victim.freeze()
        trial.until_taken_over()
        trial.victim.thaw()
        trial.until_agents_end()
    outcome = finish(fleet, "P1", ("1",))

    assert outcome.ok, outcome
    assert outcome.fenced == 1


def test_the_phase_of_a_lost_host_is_landed_once_by_another(fleet: Fleet) -> None:
    trial = start_on_alpha(fleet, "P2")
    with trial.at_work():
        trial.victim.kill()
        fleet.hosts["desk"].run("fleet", "up", "beta")
        trial.until_taken_over()
    outcome = finish(fleet, "P2", ("1", "2"))

    assert outcome.ok, outcome
    assert outcome.repeated == 1
