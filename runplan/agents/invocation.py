"""How agents and the project's own commands are started: argv and environment, and whether they could be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from runplan.agents.adapter import Task, first_set
from runplan.agents.clis import agent_of
from runplan.agents.environment import agent_environment, allowed_variables, task_environment
from runplan.checks.guarded import INSTRUCTIONS
from runplan.checks.secrets import redact_text, secret_values
from runplan.errors import RefusedEarly
from runplan.git.repository import Checkouts
from runplan.gitfacts import committing_as
from runplan.run.dispatch import EVERY_PHASE, NOTES, OWN, RETURN
from runplan.run.events import DispatchStarted
from runplan.run.kinds import Reason, Role
from runplan.settings.places import credential_files, key_directory, state_directory, user_file
from runplan.settings.schema import AgentsSettings, AgentTable

VERSION_S = 15.0  #: some programs take a second to print their version
_VERSION = r"\d{1,6}\.\d{1,6}[\w.+-]{0,40}"
_INTERPRETER = r"(?:python|node|ruby|perl|bash|dash|zsh|sh)[\d.]*"


class Agents(Struct, frozen=True, dict=True):
    """The agents of the settings, for one run."""

    settings: AgentsSettings
    root: Path
    plan: str
    run: str
    caller: Mapping[str, str]
    checks: Sequence[str] = ()  #: further variables that tests and setup get (tests.env)
    sandbox: Sandbox | None = None
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
        keep = (*agent.list_variables(table, self.caller), *table.env)
        env = agent_environment(self.caller, keep=keep, settings=variables)
        if self.sandbox and task.sandboxed:
            argv = self.sandbox.wrap(argv, cwd, (task.own, *writable))
        return argv, {**env, **self.git_config, **committing_as(started.id)}, table.kind

    def command(
        self, line: str, started: DispatchStarted, *, directory: Path, cwd: Path, writable: Sequence[Path]
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and environment for tests and setup. They run an agent's work, so they get what agents get."""
        env = self.script_env | self._variables(started.id, started.role, started.phase)
        env |= {"GIT_NO_REPLACE_OBJECTS": "1", **self.git_config}  # they must see the tree that would land
        argv: tuple[str, ...] = ("/bin/sh", "-c", f"exec 2>&1\n{line}")  # one stream keeps the order of lines
        if self.sandbox and is_used(self.settings.sandbox, self.caller):
            argv = self.sandbox.wrap(argv, cwd, (directory / OWN, *writable))
        return argv, env

    def delegate(self, line: str, started: DispatchStarted) -> tuple[tuple[str, ...], dict[str, str]]:
        """argv and environment of a command with the user's rights: the caller's variables, and no sandbox."""
        variables = self._variables(started.id, started.role, started.phase)
        return ("/bin/sh", "-c", f"exec 2>&1\n{line}"), {**self.caller, **variables}

    def is_sandboxed(self, agent: str) -> bool:
        """Whether the agent runs in the sandbox, where a verifier cannot change its worktree."""
        return self.sandbox is not None and is_used(self.settings.sandbox_of(agent), self.caller)

    @cached_property
    def personal(self) -> tuple[str, ...]:
        """The names of untracked files that the run's agents read."""
        return tuple(sorted({file for table in self.settings.used for file in agent_of(table.kind).personal}))

    @cached_property
    def script_env(self) -> dict[str, str]:
        """The variables of the caller that tests, setup and scripts on an agent's files get."""
        return allowed_variables(self.caller, keep=self.checks)

    @cached_property
    def digest(self) -> str:
        """Identifies the variables of the caller that tests and setup get."""
        return _digest(self.script_env)

    @cached_property
    def named_digest(self) -> str:
        """Identifies those of them that tests.env names."""
        return _digest({name: value for name, value in self.script_env.items() if name in self.checks})

    def confine(self, argv: Sequence[str], cwd: Path, writable: Sequence[Path]) -> Sequence[str]:
        """A command of runplan that opens an agent's files, in the sandbox of agents and without a network."""
        if self.sandbox and is_used(self.settings.sandbox, self.caller):
            return self.sandbox.wrap(argv, cwd, writable, network=False)
        return argv

    def _variables(self, dispatch: str, role: Role, phase: str) -> dict[str, str]:
        return task_environment(dispatch=dispatch, role=role, plan=self.plan, phase=phase, run=self.run)

    def version(self, name: str) -> str:
        return version_of(self.settings.agent(name), self.caller)

    def redacted(self, text: str) -> str:
        return redact_text(text, secret_values(self.caller))


def list_instructions(agents: AgentsSettings) -> tuple[str, ...]:
    """The patterns of the files of a repository that the agents of a run take as instructions."""
    kinds = [agent_of(kind) for kind in sorted({table.kind for table in agents.used})]
    return (*INSTRUCTIONS, *(file for agent in kinds for file in (*agent.personal, *agent.instructions)))


def _digest(variables: Mapping[str, str]) -> str:
    return sha256(repr(sorted(variables.items())).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def lacks_login(table: AgentTable, caller: Mapping[str, str]) -> str:
    """Why the agent cannot reach its provider: no key and no login; "" when it can."""
    agent = agent_of(table.kind)
    keys = agent.keys_for(table.model)
    if not keys or first_set(caller, *keys, *table.env) or agent.is_configured(caller):
        return ""
    unset = f"neither {' nor '.join(keys)} is set" if len(keys) > 1 else f"{keys[0]} is not set"
    return f"{unset}, and there is no login"


def has_unknown_cost(table: AgentTable) -> bool:
    """Whether its cost in dollars is unknown: it reports none and has no price."""
    return not (agent_of(table.kind).reports_usd or table.usd_per_mtok_in or table.usd_per_mtok_out)


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
    """The version that a program prints, asked once per binary."""
    code, output = _run_program((path, "--version"), env=dict(env), within_s=VERSION_S)
    version = re.search(_VERSION, output[:1_000]) if code == 0 else None
    return version[0] if version else ""


def _run_program(
    argv: Sequence[str], *, env: Mapping[str, str], within_s: float, errors: bool = False
) -> tuple[int, str]:
    """The exit code of a program, and its output or its errors; -1 when it does not run."""
    try:
        ran = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=within_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, f"{argv[0]} does not run: {error}"
    return ran.returncode, (ran.stderr if errors else ran.stdout).decode(errors="replace")


def has_module(python: str, module: str, caller: Mapping[str, str]) -> bool:
    """Whether an installed Python has a module; asked from a directory without modules of the project."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module.partition('.')[0]!r}) is None)"
    env = agent_environment(caller, keep=(), settings={})
    path = shutil.which(python, path=env.get("PATH", os.defpath))
    return path is not None and _run_program((path, "-I", "-c", look), env=env, within_s=VERSION_S)[0] == 0


def own_file(table: AgentTable) -> str:
    """The project's file that the agent runs: its script, or the argument of an interpreter."""
    if table.kind == "script":
        return table.script
    program, *rest = (*table.argv, "")
    is_script = re.fullmatch(_INTERPRETER, Path(program).name) is not None and rest and not rest[0].startswith("-")
    return rest[0] if table.kind == "command" and is_script else ""


def worktree_files(table: AgentTable) -> tuple[str, ...]:
    """The project's files that are expected in the worktree when the agent starts."""
    if table.kind == "script":
        return ()
    program = agent_of(table.kind).program_words(table)[0]
    named = (program if "/" in program else "", own_file(table))
    return tuple(name for name in named if name and not name.startswith(("/", "../")))


def require_agents(agents: AgentsSettings, *, root: Path, caller: Mapping[str, str], in_dollars: bool = False) -> None:
    """Refuse agents that could not be dispatched later; `in_dollars`: also those whose dollars are unknown."""
    for role, name in agents.dispatched:
        require_agent(agents.agent(name), role, root=root, caller=caller, in_dollars=in_dollars)
    require_sandbox(sandbox_modes(agents), caller)


def sandbox_modes(agents: AgentsSettings) -> dict[str, str]:
    """The settings of the sandbox in force, by key."""
    modes = {f"agents.{name}.sandbox": mode for _, name in agents.dispatched if (mode := agents.agent(name).sandbox)}
    return {"agents.sandbox": agents.sandbox} | modes


def require_agent(
    table: AgentTable, role: str, *, root: Path, caller: Mapping[str, str], in_dollars: bool = False
) -> None:
    if in_dollars and has_unknown_cost(table):
        raise RefusedEarly(
            f"agents.{role}: {table.name} reports no dollars, and [limits] are in dollars; set usd_per_mtok_in and "
            f"usd_per_mtok_out under [agents.{table.name}], or limit tokens instead of dollars"
        )
    another = "name another agent under [agents] in runplan.toml"
    ways = f"{another} (runplan init finds those on PATH; runplan demo needs none)"
    if (file := own_file(table)) and not (root / file).is_file():
        raise RefusedEarly(f"{Reason.AGENT_MISSING}: agents.{role}: there is no script {file}; write it, or {another}")
    if table.kind == "script":
        from runplan.agents.clis import script  # few projects have one

        script.load_script(root / table.script)
        return
    program = program_of(table)
    if shutil.which(program, path=caller.get("PATH", "")) is None and not (root / program).is_file():
        raise RefusedEarly(
            f"{Reason.AGENT_MISSING}: agents.{role}: {program} is not installed or not on PATH; install it, or {ways}"
        )
    if lacks := agent_of(table.kind).explain_lack(table, caller):
        raise RefusedEarly(f"agents.{role}: {table.name} {lacks}")


def program_of(table: AgentTable) -> str:
    """The program or script file of an agent."""
    return table.script if table.kind == "script" else agent_of(table.kind).program_words(table)[0]


# --- bubblewrap --------------------------------------------------------------------------------------------------

PROBE_S = 10.0
_EMPTY_FILE = str(Path(__file__).parents[1] / "py.typed")  #: not /dev/null, which a bind mount makes unreadable

#: With a pid namespace, programs can signal no process outside. The network stays.
#: Without CAP_SYS_ADMIN root cannot remount anything writable; other users have no capability in there.
_BASE = ("--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--cap-drop", "CAP_SYS_ADMIN")


def sandbox_command(
    argv: Sequence[str],
    *,
    bwrap: str,
    cwd: str,
    pinned: Sequence[str] = (),
    read_only: Sequence[str] = (),
    writable: Sequence[str] = (),
    hidden: Sequence[str] = (),
    more: Sequence[str] = (),
) -> tuple[str, ...]:
    """The command under bubblewrap. Paths are resolved; `writable` ones exist and can be inside read-only ones.

    Directories that are `pinned` cannot be renamed, as each is a mount. Places that are `hidden` are empty in there.
    """
    mounted = (word for path in sorted(pinned) for word in ("--dev-bind", path, path))
    closed = (word for path in sorted(read_only) for word in ("--ro-bind-try", path, path))
    opened = (word for path in sorted(writable) for word in ("--bind", path, path))
    emptied = (word for path in hidden for word in _hide_path(path))
    return (bwrap, *_BASE, *more, *mounted, *closed, *opened, *emptied, "--chdir", cwd, "--", *argv)


def _hide_path(path: str) -> tuple[str, ...]:
    """The options that hide a directory or a file; bubblewrap would create a path that is not there."""
    if Path(path).is_dir():
        return "--tmpfs", path
    return ("--ro-bind", _EMPTY_FILE, path) if Path(path).exists() else ()


class Sandbox(Struct, frozen=True):
    """The sandbox of one repository's dispatches."""

    checkouts: Checkouts
    worktrees: Path
    env: Mapping[str, str]

    def wrap(
        self, argv: Sequence[str], cwd: Path, writable: Sequence[Path], *, network: bool = True
    ) -> tuple[str, ...]:
        """The command under bubblewrap."""
        path = self.env.get("PATH", "")
        if shutil.which(str(cwd / argv[0]) if "/" in argv[0] else argv[0], path=path) is None:
            return tuple(argv)  # the shim reports a missing program by name; bwrap would only exit with 1
        bwrap = shutil.which("bwrap", path=path) or "bwrap"
        options = () if network else ("--unshare-net",)
        project = _resolve_paths(self._project())
        places = (user_file(self.env).parent, state_directory(self.env))
        # What is not there could be made by the agent, with settings for later runs. A key could be made meanwhile.
        for place in (*places, key_directory(self.env)):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return sandbox_command(
            argv,
            bwrap=bwrap,
            cwd=os.path.realpath(cwd),
            pinned=tuple(
                {str(parent) for path in (*project, *_resolve_paths(places)) for parent in Path(path).parents[:-1]}
            ),
            read_only=(*project, *_resolve_paths(places)),
            writable=_resolve_paths(writable),
            hidden=_resolve_paths(credential_files(self.env)),
            more=options,
        )

    def _project(self) -> Iterable[Path]:
        common = self.checkouts.common_dir
        yield common
        if common.name == ".git":  # the main checkout, also when runplan was started in a linked one
            yield common.parent
        yield from (checkout.root for checkout in self.checkouts.all())
        yield self.worktrees


class Obstacle(Struct, frozen=True):
    """Why bubblewrap does not work here."""

    problem: str
    remedy: str


def find_obstacle(env: Mapping[str, str]) -> Obstacle | None:
    """None where bubblewrap works. Each bwrap is tried once per process."""
    if sys.platform != "linux":
        return Obstacle("bubblewrap is for Linux only", "run runplan on Linux")
    bwrap = shutil.which("bwrap", path=env.get("PATH", ""))
    if bwrap is None:
        return Obstacle("bwrap is not on PATH", "apt install bubblewrap")
    allow = "sudo sysctl -w user.max_user_namespaces=10000 (Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)"
    failed = _probe_bwrap(bwrap)
    return Obstacle(failed, f"allow user namespaces, e.g. {allow}") if failed else None


@cache
def _probe_bwrap(bwrap: str) -> str:
    """The error of a bwrap that cannot make a sandbox, else ""."""
    argv = sandbox_command(("/bin/sh", "-c", ":"), bwrap=bwrap, cwd="/", read_only=("/usr",))
    code, message = _run_program(argv, env={}, within_s=PROBE_S, errors=True)
    return "" if code == 0 else " ".join(message.split())[:300] or f"{bwrap} ends with code {code}"


def is_used(mode: str, env: Mapping[str, str]) -> bool:
    """Whether a dispatch with this setting runs in the sandbox."""
    return mode == "bwrap" or (mode == "auto" and find_obstacle(env) is None)


def require_sandbox(modes: Mapping[str, str], env: Mapping[str, str]) -> Obstacle | None:
    """Refuse a start when a setting demands a sandbox that does not work; else the obstacle to one that is wanted.

    `modes` has the value of each setting by its key.
    """
    wanted = {mode: key for key, mode in modes.items() if mode != "none"}
    obstacle = find_obstacle(env) if wanted else None
    if obstacle and (key := wanted.get("bwrap")):
        raise RefusedEarly(f'{key} = "bwrap" does not work here: {obstacle.problem}; {obstacle.remedy}')
    return obstacle


def _resolve_paths(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths))
