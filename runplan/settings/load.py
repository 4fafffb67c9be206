"""Reads settings from the user's file, the repository's file and the environment."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import fields

from runplan.errors import SettingsError
from runplan.settings.places import repository_file, user_file
from runplan.settings.schema import (
    AGENT_KEYS,
    BY_PATH,
    GATE_KEYS,
    KEYS,
    ROLES,
    SECTIONS,
    TESTS,
    USER_SECTIONS,
    AgentTable,
    GateTable,
    Settings,
    is_gate_name,
    nearest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from runplan.settings.schema import AgentsSettings, Key

#: Variables that runplan sets for agents (docs/agents.md) and notifications (docs/configuration.md), no settings.
OURS = frozenset(
    f"RUNPLAN_{name}"
    for name in (
        *("ROLE", "PLAN", "PHASE", "RUN", "ATTEMPT", "PROMPT", "RETURN", "AGENT", "DISPATCH", "CYCLE"),
        *("NOTICE", "REASON", "TITLE", "TEXT", "COMMAND", "REPOSITORY"),
    )
)
_USER_PREFIXES = tuple(f"RUNPLAN_{section.upper()}_" for section in USER_SECTIONS)
_VARIABLES = {f"RUNPLAN_{key.section}_{key.name}".upper(): key for key in KEYS}
_AGENT_MODULES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "agents", "clis")  # noqa: PTH120
_TABLE_KEYS = {"agents": {key.name: key for key in AGENT_KEYS}, "gates": {key.name: key for key in GATE_KEYS}}


class Layer(Struct, frozen=True, kw_only=True):
    """Values from one place; `origin` names it in errors and in `runplan config`."""

    origin: str
    values: Mapping[str, object]

    def error(self, section: str, name: str, why: str) -> SettingsError:
        """The error about a key, or about a section if `name` is empty."""
        key = " ".join(part for part in (section and f"[{section}]", name) if part)
        return SettingsError(f"{self.origin}: {key}: {why}")


_DEFAULTS = Layer(origin="default", values={})


class LoadedSettings(Struct, frozen=True, kw_only=True):
    """The settings, and for each dotted key its value as written and its origin."""

    settings: Settings
    values: dict[str, object]
    origins: dict[str, str]


def environment() -> dict[str, str]:
    """The environment of this process; it is read here only."""
    return dict(os.environ)


def kinds() -> tuple[str, ...]:
    """The kinds of agents, one for each module. The modules are listed and not imported."""
    names = (name.removesuffix(".py") for name in os.listdir(_AGENT_MODULES) if name.endswith(".py"))  # noqa: PTH208
    return tuple(sorted(name for name in names if name.isidentifier() and not name.startswith("_")))


# --- loading -----------------------------------------------------------------------------------------------


def load(root: Path, *, env: Mapping[str, str]) -> LoadedSettings:
    """The settings for the repository at `root`."""
    return merge([*_user_layers(env), *_own_layers(root, env), *_from_environment(env)])


def load_committed(name: str, content: bytes, *, env: Mapping[str, str]) -> LoadedSettings:
    own = _without_user_settings(_parsed(content, name), env)
    return merge([*_user_layers(env), own, *_from_environment(env)])


def load_files(root: Path, env: Mapping[str, str]) -> Settings:
    return merge([*_user_layers(env), *_own_layers(root, env)]).settings


def load_lenient(root: Path, *, env: Mapping[str, str], warn: Callable[[str], None]) -> Settings:
    """The settings, or the defaults and a warning if they are invalid: for verbs that show and stop runs."""
    try:
        return load(root, env=env).settings
    except SettingsError as error:
        warn(f"{error}; using the default settings")
        return Settings()


def load_user(env: Mapping[str, str]) -> Settings:
    """The settings for all repositories: the user's file, and variables of the sections that only a user can set."""
    own = {name: text for name, text in env.items() if name.startswith(_USER_PREFIXES)}
    return merge([*_user_layers(env), *_from_environment(own)]).settings


def record(settings: Settings) -> str:
    """The settings as JSON, for the record of a run; without those of the user, which may contain secrets."""
    values = {section: fields for section, fields in to_builtins(settings).items() if section not in USER_SECTIONS}
    import json

    return json.dumps(values, separators=(",", ":"))


@functools.cache
def recorded(text: str) -> Settings:
    import json

    return convert(json.loads(text), Settings)


# --- sources -----------------------------------------------------------------------------------------------


def _user_layers(env: Mapping[str, str]) -> list[Layer]:
    user = user_file(env)
    return [_layer(user, str(user))] if user.is_file() else []


def _own_layers(root: Path, env: Mapping[str, str]) -> list[Layer]:
    own = repository_file(root)
    return [_without_user_settings(_layer(own, own.relative_to(root).as_posix()), env)] if own else []


def _without_user_settings(layer: Layer, env: Mapping[str, str]) -> Layer:
    for section in USER_SECTIONS:
        if layer.values.get(section):
            raise layer.error(section, "", f"applies to all repositories of a user; move it to {user_file(env)}")
    return layer


def _layer(path: Path, origin: str) -> Layer:
    try:
        return _parsed(path.read_bytes(), origin)
    except OSError as error:
        raise SettingsError(f"{origin}: cannot be read: {error.strerror}") from None


def _parsed(content: bytes, origin: str) -> Layer:
    import tomllib  # only if there is a file

    try:
        text = content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
        return Layer(origin=origin, values=tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{origin}: invalid TOML: {error}") from None
    except RecursionError:
        raise SettingsError(f"{origin}: lists or tables are nested too deeply") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{origin}: not UTF-8 text (byte {error.start})") from None


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that set something, by name."""
    own = (name for name in env if name.startswith("RUNPLAN_"))
    return {name: env[name] for name in sorted(own) if name not in OURS}


def run_variables(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that set something for a run, to be stored with its schedule."""
    return tuple((name, text) for name, text in variables(env).items() if not name.startswith(_USER_PREFIXES))


def _from_environment(env: Mapping[str, str]) -> list[Layer]:
    layers = []
    for name, text in variables(env).items():
        key = _VARIABLES.get(name)
        if key is None:
            hint = nearest(name.lower(), tuple(known.lower() for known in _VARIABLES)).upper()
            raise SettingsError(f"{name}: unknown setting; did you mean {hint}?")
        layers.append(Layer(origin=name, values={key.section: {key.name: key.from_text(text)}}))
    return layers


# --- merging -----------------------------------------------------------------------------------------------


def merge(layers: Sequence[Layer], *, agent_kinds: tuple[str, ...] | None = None) -> LoadedSettings:
    """Put `layers` over the defaults, the weakest first; a value that cannot be used is a SettingsError.

    `agent_kinds` are the built-in agents: the values of a table's `kind`, and the agents that need no table.
    """
    return _Merge(kinds() if agent_kinds is None else agent_kinds).add(layers).result()


class _Merge:
    """The values of all layers, checked one by one."""

    def __init__(self, agent_kinds: tuple[str, ...]) -> None:
        self._kinds = agent_kinds
        self._values: dict[str, object] = {key.path: key.written for key in KEYS}
        self._sources = dict.fromkeys(self._values, _DEFAULTS)
        self._typed: dict[str, dict[str, Any]] = {}  #: section to field to value

    def add(self, layers: Iterable[Layer]) -> _Merge:
        for layer in layers:
            for section, table in layer.values.items():
                if section not in SECTIONS:
                    raise self._stray(layer, section)
                if not isinstance(table, dict):
                    raise layer.error("", section, f"must be a table; write [{section}] above its keys")
                for name, value in table.items():
                    if section in _TABLE_KEYS and isinstance(value, dict):
                        self._add_table(layer, section, name, value)
                    elif section == "gates":
                        raise layer.error(section, name, f'must be a table; write [gates.{name}] above command = "..."')
                    else:
                        self._put(layer, section, self._key(layer, section, name), value)
        return self

    def _stray(self, layer: Layer, name: str) -> SettingsError:
        if home := _section_of(name):
            return layer.error("", name, f"must be below a section; it belongs to [{home}]")
        return layer.error(name, "", f"unknown section; did you mean [{nearest(name, SECTIONS)}]?")

    def _key(self, layer: Layer, section: str, name: str) -> Key:
        if key := BY_PATH.get(f"{section}.{name}"):
            return key
        home = _section_of(name)
        valid = tuple(key.name for key in KEYS if key.section == section)
        hint = f"it belongs to [{home}]" if home else f"did you mean {nearest(name, valid)!r}?"
        raise layer.error(section, name, f"unknown key; {hint}")

    def _add_table(self, layer: Layer, kind: str, name: str, table: dict[str, object]) -> None:
        section, keys = f"{kind}.{name}", _TABLE_KEYS[kind]
        if kind == "agents" and name in ROLES:
            raise layer.error(section, "", f'is a role, not an agent; write {name} = "NAME" under [agents]')
        if kind == "gates" and (name == TESTS or not is_gate_name(name)):
            raise layer.error(section, "", "must have a name of small letters, digits, - and _, other than tests")
        for key, value in table.items():
            if key not in keys:
                raise layer.error(section, key, f"unknown key; did you mean {nearest(key, tuple(keys))!r}?")
            if key == "kind" and value not in self._kinds:
                raise layer.error(section, key, f"must be one of {', '.join(self._kinds)}, not {value!r}")
            self._put(layer, section, keys[key], value)
        if kind == "gates" and "command" not in self._typed.get(section, {}):
            raise layer.error(section, "", 'needs command = "..."')

    def _put(self, layer: Layer, section: str, key: Key, value: object) -> None:
        try:
            typed = key.read(value)
        except ValueError as error:
            raise layer.error(section, key.name, str(error)) from None
        path = f"{section}.{key.name}"
        self._values[path], self._sources[path] = value, layer
        self._typed.setdefault(section, {})[key.field] = typed

    def result(self) -> LoadedSettings:
        agents = {section.removeprefix("agents."): self._table(section) for section in self._tables("agents")}
        gates = {section.removeprefix("gates."): GateTable(**self._typed[section]) for section in self._tables("gates")}
        given = self._typed | {"agents": self._typed.get("agents", {}) | {"tables": agents}, "gates": {"tables": gates}}
        settings = Settings(
            **{section.name: section.type(**given.get(section.name, {})) for section in fields(Settings)}
        )
        for role in ROLES:
            self._check_role(role, getattr(settings.agents, role), settings.agents)
        for name in settings.agents.verifiers:
            self._check_role("verifiers", name, settings.agents)
        origins = {path: layer.origin for path, layer in self._sources.items()}
        return LoadedSettings(settings=settings, values=self._values, origins=origins)

    def _tables(self, kind: str) -> list[str]:
        return [section for section in self._typed if section.startswith(f"{kind}.")]

    def _table(self, section: str) -> AgentTable:
        name = section.removeprefix("agents.")
        given = {"kind": name} | self._typed[section]
        layer = next(layer for path, layer in reversed(self._sources.items()) if path.startswith(f"{section}."))
        if given["kind"] not in self._kinds:
            raise layer.error(section, "", f'no kind; add kind = "command" (or {", ".join(self._kinds)})')
        table = AgentTable(name=name, **given)
        if wrong := _unusable(table):
            raise layer.error(section, "", wrong)
        return table

    def _check_role(self, role: str, name: str, agents: AgentsSettings) -> None:
        """A role must name an agent that can be dispatched."""
        layer = self._sources[f"agents.{role}"]
        if name in agents.tables or (role == "fallback" and not name):
            return
        if name not in self._kinds:
            known = ", ".join(dict.fromkeys((*agents.tables, *self._kinds)))
            raise layer.error("agents", role, f"unknown agent {name!r}; known agents: {known}")
        if wrong := _unusable(agents.agent(name)):
            raise layer.error("agents", role, f"{name!r} needs a table [agents.{name}]: {wrong}")


def _section_of(name: str) -> str:
    """The section that has a key of that name; "" for none."""
    return next((key.section for key in KEYS if key.name == name), "")


def _unusable(table: AgentTable) -> str:
    """The key that a table of this kind lacks or cannot have; "" when it can be used."""
    if table.kind in ("command", "script") and (table.model or table.args):
        return f"a {table.kind} agent has no model or args; they are for the built-in agents"
    if table.kind == "command" and not table.argv:
        return 'a command needs argv = ["program", "argument"]'
    if table.kind == "script" and not table.script:
        return 'a script needs script = "file.toml"'
    return ""
