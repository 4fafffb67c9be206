"""Each decided action has a step."""

from runplan.domain.run import actions as a
from runplan.domain.run.kinds import Role
from runplan.engine.loop.advance import PREPARATIONS, STEPS


def test_every_action_has_a_step() -> None:
    simple = [action for action in vars(a).values() if isinstance(action, a.Action)]
    assert len(simple) > 20
    assert {action.step for action in simple} == STEPS.keys()


def test_every_agent_is_prepared() -> None:
    assert PREPARATIONS.keys() == {role for role in Role if role.agent}
