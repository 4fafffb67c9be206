"""How agents and the project's own commands are called: argv, environment, versions of programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runplan.agents.budgets import Price, price_of, unwatched_remedy
from runplan.agents.clis import about, module_of, script
from runplan.agents.endings import Profile
from runplan.agents.environment import agent_environment, allowed, task_environment
from runplan.agents.kit.module import model_remedy
from runplan.agents.kit.task import Task, first_set
from runplan.agents.sandbox import is_used, require
from runplan.checks.secrets import redacted, secret_values
from runplan.errors import RefusedEarly
from runplan.gitfacts import committing_as
from runplan.run.dispatch import OWN, RETURN, WRITERS
from runplan.run.reasons import Reason
from runplan.settings.schema import DISPATCHED_ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.agents.kit.module import Account
    from runplan.agents.sandbox import Sandbox
    from runplan.run.dispatch import Role
    from runplan.settings.schema import AgentsSettings, AgentTable


#: Some take a second to start; one that takes longer is asked in vain.
PATIENCE_S = 15.0

_NUMBER = re.compile(r"\d{1,6}\.\d{1,6}[\w.+-]{0,40}")


class Versions:
    """The versions of programs, known by path and time of change."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {}

    def of(self, program: Sequence[str], *, asking: Sequence[str], env: Mapping[str, str]) -> str:
        """The version that the program tells when it is called with `asking`; "" when it tells none."""
        path = shutil.which(program[0], path=env.get("PATH", os.defpath))
        if path is None:
            return ""
        key = (path, os.stat(path).st_mtime_ns)  # noqa: PTH116
        if key not in self._known:
            self._known[key] = _asked((path, *program[1:], *asking), env)
        return self._known[key]


def _asked(argv: Sequence[str], env: Mapping[str, str]) -> str:
    try:
        ran = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(env),
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _NUMBER.search(ran.stdout[:1_000].decode(errors="replace")) if ran.returncode == 0 else None
    return found[0] if found else ""


_INTERPRETER = re.compile(r"(?:python|node|ruby|perl|bash|dash|zsh|sh)[\d.]*")


class Agents:
    """The agents of the settings, seen from one run."""

    def __init__(
        self,
        settings: AgentsSettings,
        *,
        root: Path,
        plan: str,
        run: str,
        caller: Mapping[str, str],
        checks: Sequence[str] = (),
        sandbox: Sandbox | None = None,
    ) -> None:
        """`checks` names the further variables that tests and setup see (tests.env)."""
        self._sandbox = sandbox
        self._checks = checks
        self._settings = settings
        self._root = root
        self._plan = plan
        self._run = run
        self._caller = caller
        self._versions = Versions()
        self._secrets = secret_values(caller)

    def launch(
        self,
        name: str,
        *,
        dispatch: str,
        role: Role,
        phase: str,
        attempt: int,
        cycle: int,
        directory: Path,
        worktree: Path,
        usd: float = 0.0,
    ) -> tuple[tuple[str, ...], dict[str, str], str]:
        table = self._settings.agent(name)
        module = module_of(table.kind)
        theirs = uses_own(table, self._caller)
        # Where its user has chosen a login, a key beside it is not forced on the program.
        keyed = bool(first_set(self._caller, *keys_of(table))) and (table.private is not None or not theirs)
        task = Task(
            role=role,
            phase=phase,
            cycle=cycle,
            root=self._root,
            directory=directory,
            keyed=keyed,
            home=None if theirs else directory / OWN / "home",
            sandboxed=self._sandbox is not None and is_used(self._settings.sandbox_of(name), self._caller),
            hears=self.profile(name, role).hears,
            usd=usd,
        )
        module.prepare(table, task, self._caller)
        own, names = module.environment(table, task, self._caller)
        argv = module.launch(table, task)
        variables = task_environment(
            dispatch=dispatch,
            role=role,
            plan=self._plan,
            phase=phase,
            run=self._run,
            attempt=attempt,
            cycle=cycle,
            prompt=str(directory / "prompt.md"),
            return_file=str(directory / RETURN),
        )
        env = agent_environment(self._caller, keep=(*names, *table.env), settings={**own, **variables})
        env |= committing_as(dispatch)
        if self._sandbox and task.sandboxed:
            argv = self._sandbox.wrap(argv, role=role, worktree=worktree, own=task.own)
        return argv, env, table.kind

    def version(self, name: str) -> str:
        """The version of the agent's program, asked once per binary; "" when it tells none."""
        return version_of(self._settings.agent(name), self._versions, self._caller)

    def profile(self, name: str, role: Role) -> Profile:
        """What has to be known of this agent in this role. Who only reads is never told anything."""
        told = about(self._settings.agent(name).kind)
        return Profile(
            closes=told.closes,
            answers=told.known,
            writes=role in WRITERS,
            hears=role in WRITERS and told.say is not None,
            codes=told.codes,
            zone=datetime.now(UTC).astimezone().tzinfo,
        )

    def price(self, name: str) -> Price:
        """What a million tokens of this agent cost, by the settings or by a guess."""
        table = self._settings.agent(name)
        return price_of(table, guess=about(table.kind).guess)

    def redacted(self, text: str) -> str:
        return redacted(text, self._secrets)

    def command(
        self, line: str, *, dispatch: str, role: Role, phase: str, directory: Path, worktree: Path
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Tests and setup run an agent's work, so they see what agents see. One stream keeps their order."""
        own = allowed(self._caller, keep=self._checks)
        variables = {
            "RUNPLAN_DISPATCH": dispatch,
            "RUNPLAN_AGENT": "1",
            "RUNPLAN_ROLE": role.value,
            "RUNPLAN_PLAN": self._plan,
            "RUNPLAN_PHASE": phase,
            "RUNPLAN_RUN": self._run,
            "GIT_NO_REPLACE_OBJECTS": "1",  # what they look at is what would land
        }
        argv: tuple[str, ...] = ("/bin/sh", "-c", f"exec 2>&1\n{line}")
        if self._sandbox and is_used(self._settings.sandbox, self._caller):
            argv = self._sandbox.wrap(argv, role=role, worktree=worktree, own=directory / OWN)
        return argv, own | variables


def keys_of(table: AgentTable) -> tuple[str, ...]:
    """The variables in which the keys are that this agent can use: its own, or those of its model's provider."""
    return module_of(table.kind).keys(table)


def uses_own(table: AgentTable, caller: Mapping[str, str]) -> bool:
    """Whether the agent gets its user's configuration, and not one that is made for the dispatch."""
    if table.private is not None:
        return not table.private
    return not first_set(caller, *keys_of(table)) or module_of(table.kind).configured(caller)


def account_of(table: AgentTable, caller: Mapping[str, str]) -> Account | None:
    """The login, address, model and bill of an agent; None for a user's own command, of which nothing is known."""
    module = module_of(table.kind)
    if not module.ABOUT.known:
        return None
    told = module.account(table, caller, own=uses_own(table, caller))
    return replace(told, address=redacted(told.address))


def lacks_login(table: AgentTable, caller: Mapping[str, str]) -> str:
    """Why the agent could not reach its provider: no key is set and no login found; "" where that is not known."""
    module = module_of(table.kind)
    keys, files = module.keys(table), module.logins(caller)
    if not keys or not files or first_set(caller, *keys, *table.env):
        return ""
    if table.private:  # its user's own configuration is not used
        return f"neither {' nor '.join(keys)} is set, which a private configuration needs"
    if any(file.exists() for file in files):
        return ""
    return f"neither {' nor '.join(keys)} is set, and there is no login ({files[0]})"


def unwatched(table: AgentTable) -> bool:
    """Whether nobody could tell what it costs: neither itself nor a price."""
    told = about(table.kind)
    return not told.tells_usd and price_of(table, guess=told.guess) == Price()


def version_of(table: AgentTable, versions: Versions, caller: Mapping[str, str]) -> str:
    """The version of an agent's program; what a user's own command does with the question nobody knows."""
    told = about(table.kind)
    if not told.known or not told.version:
        return ""
    env = agent_environment(caller, keep=(), settings={})
    return versions.of(told.call(table), asking=told.version, env=env)


def own_file(table: AgentTable) -> str:
    """The file of the project's that the agent is: its script, or what its command has an interpreter run."""
    if table.kind == "script":
        return table.script
    program, *rest = (*table.argv, "")
    plain = _INTERPRETER.fullmatch(Path(program).name) is not None and rest and not rest[0].startswith("-")
    return rest[0] if table.kind == "command" and plain else ""


def worktree_files(table: AgentTable) -> tuple[str, ...]:
    """The files of the project's that are looked for in the worktree when the agent is started."""
    if table.kind == "script":
        return ()
    program = about(table.kind).call(table)[0]
    named = (program if "/" in program else "", own_file(table))
    return tuple(name for name in named if name and not name.startswith(("/", "../")))


def require_agents(agents: AgentsSettings, *, root: Path, caller: Mapping[str, str], in_dollars: bool = False) -> str:
    """Refuse before any work what could not be dispatched later; `in_dollars`: or whose dollars nobody could watch.

    Answers with what the user is to be warned of, or nothing.
    """
    for role in DISPATCHED_ROLES:
        if name := getattr(agents, role):
            _require_program(agents.agent(name), role, root, caller)
            if in_dollars and unwatched(agents.agent(name)):
                raise RefusedEarly(
                    f"agents.{role}: {name} tells no dollars, and [limits] are in dollars; {unwatched_remedy(name)}"
                )
    names = [name for role in DISPATCHED_ROLES if (name := getattr(agents, role))]
    own = {f"agents.{name}.sandbox": mode for name in names if (mode := agents.agent(name).sandbox)}
    return require({"agents.sandbox": agents.sandbox} | own, caller)


def _require_program(table: AgentTable, role: str, root: Path, caller: Mapping[str, str]) -> None:
    if (file := own_file(table)) and not (root / file).is_file():
        raise RefusedEarly(f"{Reason.AGENT_MISSING}: agents.{role}: there is no script {file}")
    if table.kind == "script":
        script.check(root / table.script)
        return
    program = about(table.kind).call(table)[0]
    path = caller.get("PATH", "")
    if shutil.which(program, path=path) is None and not (root / program).is_file():
        raise RefusedEarly(
            f"{Reason.AGENT_MISSING}: agents.{role}: {program} is not installed or not on PATH; "
            "install it, or name another agent under [agents] in runplan.toml"
        )
    account = account_of(table, caller)
    if account and account.lacks:
        raise RefusedEarly(f"agents.{role}: {table.name} {account.lacks}; {account.remedy or model_remedy(table.name)}")
