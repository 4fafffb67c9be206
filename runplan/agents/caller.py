"""Says what of the caller's environment the daemon is given: with a run, and when it is started itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runplan.agents import forwarded as forwarded_environment
from runplan.agents.calling import keys_of
from runplan.agents.clis import module_of
from runplan.agents.environment import ALLOWED, ALLOWED_PREFIXES
from runplan.agents.kit.task import Task
from runplan.run.dispatch import Role
from runplan.settings.load import OURS
from runplan.settings.schema import DISPATCHED_ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.settings.schema import AgentsSettings

#: Settings may be given as variables; they are the run's, not the daemon's.
_SETTINGS = "RUNPLAN_"
#: How the interpreter itself is set up.
_INTERPRETER = "PYTHON"


def for_a_run(caller: Mapping[str, str], agents: AgentsSettings, *, checks: Sequence[str] = ()) -> dict[str, str]:
    """What travels with `start`: kept in the daemon's memory for the run, and nowhere else."""
    names = ALLOWED.union(checks, *(_names(agents, name, caller) for name in _cast(agents)))
    return forwarded_environment.forwarded(caller, names=names, prefixes=(*ALLOWED_PREFIXES, _SETTINGS), withheld=OURS)


def for_the_daemon(caller: Mapping[str, str]) -> dict[str, str]:
    """What a daemon is started with: no key, and no setting that would then hold for everybody's runs."""
    prefixes = (*ALLOWED_PREFIXES, _INTERPRETER)
    return forwarded_environment.forwarded(caller, names=ALLOWED, prefixes=prefixes, withheld=OURS)


def needed_by_a_run(
    sent: Mapping[str, str], agents: AgentsSettings, *, pushes: bool, checks: Sequence[str] = ()
) -> tuple[str, ...]:
    """The names whose loss makes the run wait; to be remembered with it, without their values."""
    own = {*checks, *(name for agent in _cast(agents) for name in agents.agent(agent).env)}
    keys = {key for agent in _cast(agents) for key in keys_of(agents.agent(agent))}
    return forwarded_environment.needed(sent, keys=own | keys, pushes=pushes)


def _cast(agents: AgentsSettings) -> tuple[str, ...]:
    named = (getattr(agents, role) for role in DISPATCHED_ROLES)
    return tuple(dict.fromkeys(name for name in named if name))


def _names(agents: AgentsSettings, name: str, caller: Mapping[str, str]) -> tuple[str, ...]:
    """The variables the agent would see of the caller's, asked as if it used the user's own configuration."""
    table = agents.agent(name)
    nowhere = Path("/nonexistent")
    task = Task(role=Role.IMPLEMENT, phase="", cycle=1, root=nowhere, directory=nowhere)
    _, names = module_of(table.kind).environment(table, task, caller)
    return (*names, *table.env)
