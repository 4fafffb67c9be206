"""How agents and the project's own commands are started: argv and environment, and whether they could be."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents.adapter import Task
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.environment import agent_environment, allowed_variables
from runplan.adapters.configuration.load import list_agent_kinds
from runplan.adapters.processes import AGENT_MARK, MARK, run_program
from runplan.adapters.sandbox import serve
from runplan.adapters.sandbox.engines import CONTAINER, is_used, open_sandbox
from runplan.adapters.sandbox.home import HomeMounts
from runplan.adapters.sandbox.view import HomeUse, Places, Sandbox, View
from runplan.domain.checks.guarded import INSTRUCTIONS, list_scripts
from runplan.domain.checks.secrets import redact_text, secret_values
from runplan.domain.errors import RefusedEarly
from runplan.domain.gitfacts import committing_as
from runplan.domain.names import digest_of, is_below
from runplan.domain.run.dispatch import EVERY_PHASE, NOTES, OWN, RETURN, SCRATCH
from runplan.domain.run.events import DispatchStarted
from runplan.domain.run.kinds import Access, Reason, Role
from runplan.domain.settings.schema import AgentsSettings, AgentTable, CheckSettings, Network, TrySettings

VERSION_S = 15.0  #: some programs take a second to print their version
_INTERPRETER = r"(?:python|node|ruby|perl|bash|dash|zsh|sh)[\d.]*"


class Agents(Struct, frozen=True, dict=True):
    settings: AgentsSettings
    root: Path
    plan: str
    run: str
    caller: Mapping[str, str]
    tests: CheckSettings = CheckSettings()
    trial: TrySettings = TrySettings()
    places: Places = Places()
    git_config: Mapping[str, str] = {}  #: variables that name the global configuration of git, without credentials

    def launch(
        self,
        started: DispatchStarted,
        *,
        attempt: int,
        directory: Path,
        cwd: Path,
        writable: Sequence[Path] = (),
        guarded: Sequence[str] = (),
    ) -> tuple[tuple[str, ...], dict[str, str], str]:
        """argv, environment, and the kind of the agent, which reads its output."""
        table = self.settings.agent(started.agent)
        table = replace(table, model=started.model or table.model, effort=started.effort or table.effort)
        role = started.role
        phase = EVERY_PHASE if started.scope else started.phase
        agent = agent_of(table.kind)
        task = Task(
            table=table,
            caller=self.caller,
            role=role,
            phase=phase,
            cycle=started.cycle,
            root=self.root,
            directory=directory,
            guarded=tuple(guarded),
            sandboxed=self.is_sandboxed(started.agent),
            usd=started.usd,
        )
        for file, content in agent.make_files(task).items():
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).write_text(content, encoding="utf-8")
        argv = agent.build_argv(task)
        variables = agent.build_environment(task) | self._variables(started.id, role, phase)
        variables |= {"RUNPLAN_ATTEMPT": str(attempt), "RUNPLAN_CYCLE": str(started.cycle)}
        variables |= {"RUNPLAN_PROMPT": str(task.prompt), "RUNPLAN_RETURN": str(directory / RETURN)}
        variables |= {"RUNPLAN_NOTES": str(directory / NOTES)} if role.is_writer else {}
        wanted = {"RUNPLAN_MODEL": table.model, "RUNPLAN_EFFORT": table.effort}  # a command has no options for them
        variables |= {name: value for name, value in wanted.items() if value}
        keep = (*agent.list_variables(table, self.caller), *table.env)
        hidden_places = ("/tmp", "/var/tmp")  # noqa: S108 - they are private in a sandbox
        scripts = tuple(word for word in table.argv if is_below(word, hidden_places) and Path(word).is_file())
        uses = agent.use_home(self.caller) | home_use(self.settings) | HomeUse(readable=scripts)
        if role is Role.TRY:
            # try.serve comes first; it runs the agent's work, and so does not get the agent's keys.
            hidden = {*keep, *agent.build_environment(task), "RUNPLAN_RETURN", "RUNPLAN_PROMPT"} - {*self.tests.env}
            program = "python3" if self.settings.sandbox_of(started.agent) == CONTAINER else sys.executable
            source = Path(serve.__file__).read_text(encoding="utf-8")
            served = (f"{self.trial.timeout_s:g}", ",".join(sorted(hidden)), self.trial.serve)
            argv = (program, "-I", "-S", "-c", source, *served, *argv)
            keep += self.tests.env
            uses |= home_use(self.tests)
        env = agent_environment(self.caller, keep=keep, settings=variables)
        view = self._view(started, directory, cwd, writable, uses)
        argv = self._sandbox(self.settings.sandbox_of(started.agent)).wrap(argv, view)
        return argv, {**env, **self.git_config, **committing_as(started.id)}, table.kind

    def command(
        self, line: str, started: DispatchStarted, *, directory: Path, cwd: Path, writable: Sequence[Path]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and environment for tests and setup. They run an agent's work, so they get what agents get.

        The command of a phase has the user's rights: the caller's variables, and no sandbox.
        """
        variables = self._variables(started.id, started.role, started.phase)
        argv: tuple[str, ...] = ("/bin/sh", "-c", f"exec 2>&1\n{line}")  # one stream keeps the order of lines
        if started.role is Role.DELEGATE:
            return argv, {**self.caller, **variables}
        env = self.script_env | variables
        env |= {"GIT_NO_REPLACE_OBJECTS": "1", **self.git_config}  # they must see the tree that would land
        view = self._view(started, directory, cwd, writable, home_use(self.tests))
        return self._sandbox(self.settings.sandbox).wrap(argv, view), env

    def is_sandboxed(self, agent: str) -> bool:
        """Whether the agent runs in the sandbox, where a verifier cannot change its worktree."""
        return is_used(self.settings.sandbox_of(agent), self.caller)

    @property
    def confines_checks(self) -> bool:
        return is_used(self.settings.sandbox, self.caller)

    def describe_unseen(self, output: str, *, after_work: bool) -> str:
        """What checks that failed with this output do not see in the sandbox, with the settings; "" for nothing."""
        if not self.confines_checks or not output:
            return ""
        homes = "; the checks have a home of their own: only run.setup, and no agent, installs what they find there"
        hidden = HomeMounts(self.caller, home_use(self.tests)).find_hidden(output)
        settings = " and ".join(f"tests.{key} = {json.dumps(names)}" for key, names in hidden.items())
        named = f"; the sandbox hides places that the output names: if the checks need them, set {settings}"
        return f"{homes if after_work else ''}{named if hidden else ''}"

    @property
    def protects_proof(self) -> bool:
        """Whether nothing but set-up can change the proof worktree."""
        return self.confines_checks and all(self.is_sandboxed(table.name) for table in self.settings.used)

    def _sandbox(self, mode: str) -> Sandbox:
        return open_sandbox(mode, self.caller, self.places, self.settings.container)

    def end(self, started: DispatchStarted) -> tuple[str, ...]:
        """The command that ends what the dispatch leaves outside its process tree; () for nothing."""
        mode = self.settings.sandbox_of(started.agent) if started.agent else self.settings.sandbox
        return self._sandbox(mode).end(started.id)

    def remove_leftovers(self, list_live: Callable[[], Collection[str]]) -> None:
        """Remove what dispatches and scripts that have ended left in the engine of a sandbox."""
        for mode in {self.settings.sandbox, *(table.sandbox for table in self.settings.used if table.sandbox)}:
            self._sandbox(mode).remove_leftovers(list_live)

    def _view(self, started: DispatchStarted, own: Path, cwd: Path, writable: Sequence[Path], uses: HomeUse) -> View:
        """The view of a process of a run. Its home belongs to its worktree; only writers and set-up change it."""
        access = started.role.access
        is_dropped = access is Access.SCRATCH
        return View(
            cwd=cwd,
            dispatch=started.id,
            writable=(own / OWN, *(() if is_dropped else writable)),
            layers=tuple(writable) if is_dropped else (),
            is_copy=bool(started.again),
            home=self.places.homes / cwd.name,
            drops_home=access in (Access.SCRATCH, Access.NOTHING),
            is_judge=access is Access.NOTHING,
            scratch=own / SCRATCH,
            uses=uses,
            network=self._network_of(started),
        )

    def _network_of(self, started: DispatchStarted) -> Network:
        return self.settings.network if started.agent else self.tests.network

    def list_hosts(self, started: DispatchStarted) -> tuple[str, ...]:
        """The hosts that the process reaches through a proxy; none when it has no network, or all of it."""
        network = self._network_of(started)
        return () if isinstance(network, str) else network

    @cached_property
    def personal(self) -> tuple[str, ...]:
        """The names of untracked files that the run's agents read."""
        return tuple(sorted({file for table in self.settings.used for file in agent_of(table.kind).personal}))

    @cached_property
    def script_env(self) -> dict[str, str]:
        """The variables of the caller that tests, setup and scripts on an agent's files get."""
        return allowed_variables(self.caller, keep=self.tests.env)

    @cached_property
    def digest(self) -> str:
        """Identifies the variables of the caller that tests and setup get, and the hosts that they may reach."""
        bounded = {} if self.tests.network == "all" else {"tests.network": str(self.tests.network)}
        variables = repr(sorted((self.script_env | bounded).items()))
        return digest_of(variables.encode("utf-8", "surrogateescape"))[:16]

    def confine(self, argv: Sequence[str], cwd: Path, writable: Sequence[Path]) -> Sequence[str]:
        """A command of runplan that opens an agent's files, in the sandbox of agents and without a network."""
        view = View(cwd=cwd, writable=tuple(writable), network="none")
        return self._sandbox(self.settings.sandbox).wrap(argv, view)

    def _variables(self, dispatch: str, role: Role, phase: str) -> dict[str, str]:
        """Those that describe the task to an agent or a check (docs/agents.md)."""
        names = {"ROLE": role.value, "PLAN": self.plan, "PHASE": phase, "RUN": self.run}
        return {MARK: dispatch, AGENT_MARK: "1", **{f"RUNPLAN_{name}": value for name, value in names.items()}}

    def version(self, name: str) -> str:
        """The version of an agent's program on this machine; "" for one in an image."""
        is_inside = self.settings.sandbox_of(name) == CONTAINER
        return "" if is_inside else version_of(self.settings.agent(name), self.caller)

    def redacted(self, text: str) -> str:
        return redact_text(text, secret_values(self.caller))


def list_instructions(agents: AgentsSettings) -> tuple[str, ...]:
    """The patterns of the files of a repository that the agents of a run take as instructions, or that run them."""
    kinds = [agent_of(kind) for kind in sorted({table.kind for table in agents.used})]
    scripts = (script for table in agents.used for script in list_scripts(" ".join(table.argv)))
    return (*INSTRUCTIONS, *(file for agent in kinds for file in (*agent.personal, *agent.instructions)), *scripts)


def home_use(settings: AgentsSettings | CheckSettings) -> HomeUse:
    return HomeUse(private=settings.caches, readable=settings.home, mounts=settings.mounts)


def version_of(table: AgentTable, caller: Mapping[str, str]) -> str:
    """The version of an agent's program; "" when it is unknown. A user's own command is not asked."""
    agent = agent_of(table.kind)
    env = agent_environment(caller, keep=(), settings={})
    path = shutil.which(agent.program, path=env.get("PATH", os.defpath)) if not table.argv else None
    if not agent.prints_version or path is None:
        return ""
    return _ask_version(path, tuple(env.items()), Path(path).stat().st_mtime_ns)


@cache
def _ask_version(path: str, env: tuple[tuple[str, str], ...], _changed_ns: int) -> str:
    code, output, _ = run_program((path, "--version"), dict(env), within_s=VERSION_S)
    version = re.search(r"\d{1,6}\.\d{1,6}[\w.+-]{0,40}", output[:1_000]) if code == 0 else None
    return version[0] if version else ""


def own_file(table: AgentTable) -> str:
    """The project's file that the agent runs: its script, or the argument of an interpreter."""
    if table.kind == "script":
        return table.script
    program, *rest = (*table.argv, "")
    is_script = re.fullmatch(_INTERPRETER, Path(program).name) is not None and rest and not rest[0].startswith("-")
    return rest[0] if table.kind == "command" and is_script else ""


def list_known(agents: AgentsSettings) -> list[str]:
    """The names of agents that can be dispatched: the tables, and the kinds that need none."""
    return sorted({*agents.tables, *(kind for kind in list_agent_kinds() if agent_of(kind).program)})


def require_agents(agents: AgentsSettings, *, root: Path, caller: Mapping[str, str], in_dollars: bool = False) -> None:
    """Refuse agents that could not be dispatched later; `in_dollars`: also those whose dollars are unknown."""
    for role, name in agents.dispatched:
        require_agent(agents, agents.agent(name), role, root=root, caller=caller, in_dollars=in_dollars)
    for table in agents.others:
        require_agent(agents, table, table.name, root=root, caller=caller, in_dollars=in_dollars)


def require_agent(
    agents: AgentsSettings,
    table: AgentTable,
    role: str,
    *,
    root: Path,
    caller: Mapping[str, str],
    in_dollars: bool = False,
) -> None:
    has_cost = agent_of(table.kind).reports_usd or table.usd_per_mtok_in or table.usd_per_mtok_out
    if in_dollars and not has_cost:
        raise RefusedEarly(
            f"agents.{role}: {table.name} reports no dollars, and [limits] are in dollars; set usd_per_mtok_in and "
            f"usd_per_mtok_out under [agents.{table.name}], or limit tokens instead of dollars"
        )
    another = "name another agent under [agents] in runplan.toml"
    ways = f"{another} (runplan init finds those on PATH; runplan demo needs none)"
    if (file := own_file(table)) and not (root / file).is_file():
        raise RefusedEarly(f"{Reason.AGENT_MISSING}: agents.{role}: there is no script {file}; write it, or {another}")
    if table.kind == "script":
        from runplan.adapters.agents.clis import script  # few projects have one

        script.load_script(root / table.script)
        return
    program = program_of(table)
    is_inside = (table.sandbox or agents.sandbox) == CONTAINER  # `doctor` looks into the image
    is_missing = shutil.which(program, path=caller.get("PATH", "")) is None and not (root / program).is_file()
    if is_missing and not is_inside:
        install = agent_of(table.kind).install if not table.argv else ""
        remedy = f"install it{f': {install}' if install else ''}, or {ways}"
        why = f"{program} is not installed or not on PATH; {remedy}"
        raise RefusedEarly(f"{Reason.AGENT_MISSING}: agents.{role}: {why}")
    if lacks := agent_of(table.kind).explain_lack(table, caller):
        raise RefusedEarly(f"agents.{role}: {table.name} {lacks}")


def program_of(table: AgentTable) -> str:
    return table.script if table.kind == "script" else (table.argv or (agent_of(table.kind).program,))[0]
