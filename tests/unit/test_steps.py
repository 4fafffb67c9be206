"""Each decided action has a step, and each step names functions that exist."""

import pytest

from runplan.engine.advance import STEPS, _find_step, _load_function
from runplan.run import actions as a
from runplan.run.events import DispatchStarted
from runplan.run.kinds import Role


@pytest.mark.parametrize("name", STEPS)
def test_a_step_names_functions_that_exist(name: str) -> None:
    step = STEPS[name]
    assert all(callable(_load_function(function)) for function in (step.act, step.already_done) if function)


def test_every_action_has_a_step() -> None:
    simple = [action for action in vars(a).values() if isinstance(action, a.Action)]
    assert len(simple) > 20
    assert {action.step for action in simple} <= STEPS.keys()


@pytest.mark.parametrize("role", Role)
def test_a_process_is_started_by_the_module_of_its_kind(role: Role) -> None:
    module = _find_step(a.Start(dispatch=DispatchStarted(role=role, cycle=0))).act.partition(".")[0]
    kinds = {"implementer": "process", "planner": "planning", "verifier": "verify", "": "commands"}
    assert module == ("planning" if role is Role.CRITIQUE else kinds[role.agent])
