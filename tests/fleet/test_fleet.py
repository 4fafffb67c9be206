"""Two workers on hosts of their own: a frozen one, and a database that crashes. More: make chaos-fleet."""

from pathlib import Path

from tests.fleet.scenarios import Outcome, Trial, is_ended, prove, running
from tests.support.cli import until

PLANS: dict[str, tuple[str, ...]] = {"P1": ("1",)}


def test_a_frozen_host_is_fenced_and_its_agent_ended_before_anything_lands(tmp_path: Path) -> None:
    with running(tmp_path, PLANS, slots=1, lease_s=4) as fleet:
        desk = fleet.hosts["desk"]
        assert desk.run("fleet", "drain", "beta").code == 0  # so alpha works on the plan
        trial = Trial(fleet, PLANS)
        trial.start()
        with trial.at_work():
            fleet.restart_database()
            desk.run("fleet", "up", "beta")
            trial.victim.freeze()
            trial.until_taken_over()
            trial.victim.thaw()
            trial.until_agents_end()
        until(lambda: is_ended(fleet, list(PLANS)))
        outcome = Outcome("frozen")
        prove(fleet, PLANS, outcome)

    assert outcome.ok, outcome
    assert outcome.repeated == 1, "the restart of the database has ended nothing"
    # Where hosts share their processes, the second one ends the agent of the first before it begins.
    assert outcome.fenced == (1 if fleet.network.is_separate else 0)
