"""Each decided action has a step."""

from functools import partial

import pytest

from runplan.domain.run import actions as a
from runplan.domain.run.events import DispatchStarted
from runplan.domain.run.kinds import Role
from runplan.engine.loop.advance import STEPS, _name_step


def test_every_action_has_a_step() -> None:
    simple = [action for action in vars(a).values() if isinstance(action, a.Action)]
    assert len(simple) > 20
    assert {action.step for action in simple} <= STEPS.keys()


@pytest.mark.parametrize("role", Role)
def test_a_process_is_prepared_by_the_module_of_its_kind(role: Role) -> None:
    step = STEPS[_name_step(a.Start(dispatch=DispatchStarted(role=role, cycle=0)))]
    prepare = step.keywords["prepare"] if isinstance(step, partial) else step
    module = prepare.__module__.rpartition(".")[2]
    kinds = {"implementer": "process", "planner": "planning", "verifier": "verify", "try": "verify", "": "process"}
    assert module == ("planning" if role is Role.CRITIQUE else kinds[role.agent])
