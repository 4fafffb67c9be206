"""Settings: layered tables from files, environment and flags, settled into one typed, frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.errors import SettingsError
from runplan.settings.keys import AGENT_KEYS, BY_PATH, KEYS, SECTIONS, Key, nearest, read
from runplan.settings.values import Unfit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The origin of a value nobody set.
DEFAULT = "default"

_ROLES = ("implementer", "verifier", "planner", "fallback")
_AGENT_KEYS = {key.name: key for key in AGENT_KEYS}


class RunSettings(Struct, frozen=True, kw_only=True):
    """How phases are worked on and landed."""

    landing: str
    target: str
    remote: str
    main_protected: bool
    branch_prefix: str
    author: str
    worktrees: str  #: as written; adapters.settings.worktree_root gives the directory
    max_fix_cycles: int
    setup: str
    copy: tuple[str, ...]
    clean: str
    timezone: str
    misfire: str = "run-once"
    parallel: int = 1


class AgentTable(Struct, frozen=True, kw_only=True):
    """One agent that can be dispatched."""

    name: str
    kind: str
    argv: tuple[str, ...] = ()
    script: str = ""
    env: tuple[str, ...] = ()  #: names of further environment variables it is given
    model: str = ""  #: "" leaves the choice to the program
    args: tuple[str, ...] = ()  #: further arguments for its program
    context: int = 0  #: tokens its context has room for; 0: as it tells, or by the model's name
    usd_per_mtok_in: float = 0.0  #: what a million tokens cost, where it tells no dollars; 0: unknown
    usd_per_mtok_out: float = 0.0
    private: bool | None = None  #: a configuration of its own for each dispatch; None: when a key is at hand
    sandbox: str = ""  #: auto, bwrap or none; "": what is set for all


class AgentsSettings(Struct, frozen=True, kw_only=True):
    """Who does what."""

    implementer: str
    verifier: str
    planner: str
    tables: dict[str, AgentTable]
    fallback: str = ""  #: nobody
    sandbox: str = "auto"  #: of agents whose table says nothing else, and of tests and setup

    def sandbox_of(self, name: str) -> str:
        """The sandbox setting of the agent of that name."""
        return self.agent(name).sandbox or self.sandbox

    def agent(self, name: str) -> AgentTable:
        """The agent of that name; a built-in kind needs no table."""
        return self.tables.get(name) or AgentTable(name=name, kind=name)


class CheckSettings(Struct, frozen=True, kw_only=True):
    """The project's own checks."""

    command: str
    timeout_s: float
    allow_red_baseline: bool
    summary: str
    env: tuple[str, ...] = ()  #: names of further variables of the caller that tests and setup see


class LimitSettings(Struct, frozen=True, kw_only=True):
    """Where an agent is stopped; 0 is no limit, except for wall_s. Without a scope in its name: per dispatch."""

    wall_s: float
    silence_s: float
    tokens: int
    usd: float
    context_warn: int = 50  #: per cent; points more where the gauge is only estimated
    context_critical: int = 60
    phase_tokens: int = 0
    phase_usd: float = 0.0
    phase_wall_s: float = 0.0
    plan_tokens: int = 0
    plan_usd: float = 0.0
    plan_wall_s: float = 0.0
    day_tokens: int = 0
    day_usd: float = 0.0
    day_wall_s: float = 0.0

    @property
    def in_dollars(self) -> bool:
        """Whether any scope limits dollars."""
        return any((self.usd, self.phase_usd, self.plan_usd, self.day_usd))


class DaemonSettings(Struct, frozen=True, kw_only=True):
    """How much is done at once, and how it ends."""

    max_parallel: int
    max_parallel_repository: int
    grace_s: float = 30.0


class PathSettings(Struct, frozen=True, kw_only=True):
    """Where things lie, relative to the repository."""

    plans: str
    reports: str


class NotifySettings(Struct, frozen=True, kw_only=True):
    """How a person is told of what became of runs; "" and False are ways that are not gone."""

    command: str = ""
    webhook: str = ""
    desktop: bool = False
    on: tuple[str, ...] = ()


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that can be set."""

    run: RunSettings
    agents: AgentsSettings
    tests: CheckSettings
    limits: LimitSettings
    daemon: DaemonSettings
    paths: PathSettings
    notify: NotifySettings = NotifySettings()


class Layer(Struct, frozen=True, kw_only=True):
    """Values from one place; `origin` names it in errors and in `runplan config`."""

    origin: str
    values: Mapping[str, object]
    text: str = ""  #: of a file, as it is written


class Settled(Struct, frozen=True, kw_only=True):
    """The settings, and for each dotted key what was written and where."""

    settings: Settings
    values: dict[str, object]
    origins: dict[str, str]


def settle(layers: Sequence[Layer], *, kinds: tuple[str, ...]) -> Settled:
    """Lay `layers` over the defaults, the weakest first; a value that cannot be used is a SettingsError.

    `kinds` are the built-in agents: what a table's `kind` may say, and what may be named without a table.
    """
    values: dict[str, object] = {key.path: key.default for key in KEYS}
    origins = dict.fromkeys(values, DEFAULT)
    typed: dict[str, Any] = {key.path: read(key, key.default) for key in KEYS}
    for layer in layers:
        for path, value, checked in _entries(layer, kinds):
            values[path], typed[path], origins[path] = value, checked, layer.origin
    fields = {section: {key.field: typed[key.path] for key in KEYS if key.section == section} for section in SECTIONS}
    tables = _tables(typed, origins, kinds)
    _check_roles(typed, origins, tables, kinds)
    settings = Settings(
        run=RunSettings(**fields["run"]),
        agents=AgentsSettings(**fields["agents"], tables=tables),
        tests=CheckSettings(**fields["tests"]),
        limits=LimitSettings(**fields["limits"]),
        daemon=DaemonSettings(**fields["daemon"]),
        paths=PathSettings(**fields["paths"]),
        notify=NotifySettings(**fields["notify"]),
    )
    return Settled(settings=settings, values=values, origins=origins)


def _entries(layer: Layer, kinds: tuple[str, ...]) -> list[tuple[str, object, Any]]:
    """Every value of a layer as (dotted key, as written, typed)."""
    found: list[tuple[str, object, Any]] = []
    for section, table in layer.values.items():
        if section not in SECTIONS:
            raise SettingsError(f"{layer.origin}: {_stray(section)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{layer.origin}: {section}: must be a table; write [{section}] above its keys")
        for name, value in table.items():
            if section == "agents" and isinstance(value, dict):
                found += _agent_entries(layer.origin, name, value, kinds)
            else:
                found.append((f"{section}.{name}", value, _checked(layer.origin, section, name, value)))
    return found


def _stray(section: str) -> str:
    """What to say of a word at the top of the file that is no section."""
    if home := _home(section):
        return f"{section}: stands above every section; it belongs to [{home}]"
    return f"[{section}]: unknown section; did you mean [{nearest(section, SECTIONS)}]?"


def _home(name: str) -> str:
    """The section that knows `name`, when there is one."""
    return next((key.section for key in KEYS if key.name == name), "")


def _checked(origin: str, section: str, name: str, value: object) -> Any:
    key = BY_PATH.get(f"{section}.{name}")
    if key is None:
        home = _home(name)
        valid = tuple(key.name for key in KEYS if key.section == section)
        hint = f"it belongs to [{home}]" if home else f"did you mean {nearest(name, valid)!r}?"
        raise SettingsError(f"{origin}: [{section}] {name}: unknown key; {hint}")
    return _read(origin, section, key, value)


def _agent_entries(
    origin: str, agent: str, table: dict[str, object], kinds: tuple[str, ...]
) -> list[tuple[str, object, Any]]:
    if agent in _ROLES:
        raise SettingsError(f'{origin}: [agents.{agent}]: a role, not an agent; write {agent} = "NAME" under [agents]')
    section = f"agents.{agent}"
    found: list[tuple[str, object, Any]] = []
    for name, value in table.items():
        key = _AGENT_KEYS.get(name)
        if key is None:
            hint = nearest(name, tuple(_AGENT_KEYS))
            raise SettingsError(f"{origin}: [{section}] {name}: unknown key; did you mean {hint!r}?")
        if name == "kind" and value not in kinds:
            raise SettingsError(f"{origin}: [{section}] kind: must be one of {', '.join(kinds)}, not {value!r}")
        found.append((f"{section}.{name}", value, _read(origin, section, key, value)))
    return found


def _read(origin: str, section: str, key: Key, value: object) -> Any:
    typed = read(key, value)
    if isinstance(typed, Unfit):
        raise SettingsError(f"{origin}: [{section}] {key.name}: {typed.why}")
    return typed


def _tables(typed: Mapping[str, Any], origins: Mapping[str, str], kinds: tuple[str, ...]) -> dict[str, AgentTable]:
    """The agents that have a table, each whole."""
    written: dict[str, dict[str, Any]] = {}
    origin: dict[str, str] = {}
    for path, value in typed.items():
        if path not in BY_PATH:
            agent, _, name = path.removeprefix("agents.").rpartition(".")
            written.setdefault(agent, {})[name] = value
            origin[agent] = origins[path]
    return {agent: _table(origin[agent], agent, values, kinds) for agent, values in written.items()}


def _table(origin: str, agent: str, values: dict[str, Any], kinds: tuple[str, ...]) -> AgentTable:
    kind = values.pop("kind", agent)
    if kind not in kinds:
        raise SettingsError(f'{origin}: [agents.{agent}]: no kind; add kind = "command" (or {", ".join(kinds)})')
    table = AgentTable(name=agent, kind=kind, **values)
    if missing := _missing(table):
        raise SettingsError(f"{origin}: [agents.{agent}]: {missing}")
    return table


def _missing(table: AgentTable) -> str:
    """What a table of this kind still needs, or cannot have."""
    if table.kind in ("command", "script") and (table.model or table.args or table.private is not None):
        return f"a {table.kind} takes neither model nor args nor private; they are for the built-in agents"
    if table.kind == "command" and not table.argv:
        return 'a command needs argv = ["program", "argument"]'
    if table.kind == "script" and not table.script:
        return 'a script needs script = "file.toml"'
    return ""


def _check_roles(
    typed: Mapping[str, Any], origins: Mapping[str, str], tables: dict[str, AgentTable], kinds: tuple[str, ...]
) -> None:
    """Every role must name an agent that can be dispatched."""
    for role in _ROLES:
        path = f"agents.{role}"
        name = typed[path]
        if name in tables or (role == "fallback" and not name):
            continue
        if name not in kinds:
            known = ", ".join(dict.fromkeys((*tables, *kinds)))
            raise SettingsError(f"{origins[path]}: [agents] {role}: unknown agent {name!r}; there are {known}")
        if missing := _missing(AgentTable(name=name, kind=name)):
            raise SettingsError(f"{origins[path]}: [agents] {role}: {name!r} needs a table [agents.{name}]: {missing}")
