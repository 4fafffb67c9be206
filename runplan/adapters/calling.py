"""How the configured agents and the project's own commands are called: argv and environment."""

from __future__ import annotations

import importlib
import shutil
from typing import TYPE_CHECKING

from runplan.adapters.agents import script
from runplan.adapters.agents.task import Task
from runplan.adapters.environment import agent_environment, task_environment
from runplan.adapters.gittrace import trace_environment
from runplan.core.errors import RefusedEarly
from runplan.core.guard import signing
from runplan.core.keys import DISPATCHED
from runplan.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.core.config import AgentsSettings, AgentTable
    from runplan.core.dispatch import Role


class Agents:
    """The agents of the settings, seen from one run."""

    def __init__(self, settings: AgentsSettings, *, root: Path, plan: str, run: str, caller: Mapping[str, str]) -> None:
        self._settings = settings
        self._root = root
        self._plan = plan
        self._run = run
        self._caller = caller

    def launch(
        self, name: str, *, dispatch: str, role: Role, phase: str, attempt: int, cycle: int, directory: Path
    ) -> tuple[tuple[str, ...], dict[str, str], str]:
        table = self._settings.agent(name)
        module = importlib.import_module(f"runplan.adapters.agents.{table.kind}")
        task = Task(role=role, phase=phase, cycle=cycle, root=self._root, directory=directory)
        argv: tuple[str, ...] = module.launch(table, task)
        variables = task_environment(
            dispatch=dispatch,
            role=role,
            plan=self._plan,
            phase=phase,
            run=self._run,
            attempt=attempt,
            cycle=cycle,
            prompt=str(directory / "prompt.md"),
            return_file=str(directory / "return.json"),
        )
        env = agent_environment(self._caller, keep=table.env, settings=variables)
        own = {"GIT_COMMITTER_EMAIL": signing(dispatch).email}
        return argv, env | own | trace_environment(directory / "git.trace"), table.kind

    def command(self, line: str, *, dispatch: str, role: Role, phase: str) -> tuple[tuple[str, ...], dict[str, str]]:
        """Tests and setup see the caller's environment: they are the user's own. One stream keeps their order."""
        own = {name: value for name, value in self._caller.items() if not name.startswith("GIT_")}
        variables = {
            "RUNPLAN_DISPATCH": dispatch,
            "RUNPLAN_AGENT": "1",
            "RUNPLAN_ROLE": role.value,
            "RUNPLAN_PLAN": self._plan,
            "RUNPLAN_PHASE": phase,
            "RUNPLAN_RUN": self._run,
        }
        return ("/bin/sh", "-c", f"exec 2>&1\n{line}"), own | variables


def require_agents(settings: AgentsSettings, *, root: Path, caller: Mapping[str, str]) -> None:
    """Refuse before any work what could not be dispatched later."""
    for role, name in (("implementer", settings.implementer), ("verifier", settings.verifier)):
        table = settings.agent(name)
        if table.kind not in DISPATCHED:
            raise RefusedEarly(
                f"agents.{role} = {name!r}: this version of runplan cannot dispatch {table.kind} agents; "
                f'wrap its command line in an [agents.<name>] table with kind = "command" (docs/agents.md)'
            )
        _require_program(table, role, root, caller)


def _require_program(table: AgentTable, role: str, root: Path, caller: Mapping[str, str]) -> None:
    if table.kind == "script":
        if not (root / table.script).is_file():
            raise RefusedEarly(f"{Reason.AGENT_MISSING}: agents.{role}: there is no script {table.script}")
        script.check(root / table.script)
        return
    program = table.argv[0]
    path = caller.get("PATH", "")
    if shutil.which(program, path=path) is None and not (root / program).is_file():
        raise RefusedEarly(
            f"{Reason.AGENT_MISSING}: agents.{role}: {program} is not installed or not on PATH; "
            "install it, or name another agent under [agents] in runplan.toml"
        )
