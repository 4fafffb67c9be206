"""Reads settings from the user's file, the repository's file and the environment."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from runplan.adapters.configuration.places import credential_files, home, repository_file, user_file
from runplan.domain.errors import SettingsError
from runplan.domain.settings import schema
from runplan.domain.text import nearest_word

#: Variables that runplan sets for agents (docs/agents.md) and notifications (docs/configuration.md), no settings.
OURS = frozenset(
    f"RUNPLAN_{name}"
    for name in (
        *("ROLE", "PLAN", "PHASE", "RUN", "ATTEMPT", "PROMPT", "RETURN", "AGENT", "DISPATCH", "CYCLE"),
        *("NOTICE", "REASON", "TITLE", "TEXT", "COMMAND", "REPOSITORY", "LINK"),
    )
)
LARGEST = 1024 * 1024  #: bytes of a settings file
USER_PREFIXES = tuple(f"RUNPLAN_{section.upper()}_" for section in schema.USER_SECTIONS)
_VARIABLES = {f"RUNPLAN_{key.path.replace('.', '_')}".upper(): key for key in schema.KEYS}
_AGENT_MODULES = os.path.join(os.path.dirname(os.path.dirname(__file__)), "agents", "clis")  # noqa: PTH120
CONTAINER = "agents.container"  #: a table that is no agent
_KEYS = {key.path: key for key in (*schema.KEYS, *schema.AGENT_KEYS, *schema.GATE_KEYS)}


class Layer(Struct, frozen=True, kw_only=True):
    """Values from one place; `origin` names it in errors and in `runplan config`."""

    origin: str
    values: Mapping[str, object]


class LoadedSettings(Struct, frozen=True, kw_only=True):
    """The settings, and for each dotted key its value as written and its origin."""

    settings: schema.Settings
    values: dict[str, object]
    origins: dict[str, str]


def environment() -> dict[str, str]:
    """The environment of this process; it is read here only."""
    return dict(os.environ)


def list_agent_kinds() -> tuple[str, ...]:
    """The kinds of agents, one for each module. The modules are listed and not imported."""
    names = (name.removesuffix(".py") for name in os.listdir(_AGENT_MODULES) if name.endswith(".py"))  # noqa: PTH208
    return tuple(sorted(name for name in names if name.isidentifier() and not name.startswith("_")))


def load_settings(root: Path, *, env: Mapping[str, str], committed: tuple[str, bytes] | None = None) -> LoadedSettings:
    """The settings for the repository at `root`; a `committed` file counts instead of that of the checkout."""
    if committed is None and (path := repository_file(root)):
        committed = (path.relative_to(root).as_posix(), path.read_bytes())
    repository = [_parse_file(*committed)] if committed else []
    for layer in repository:  # it may not set the values of the user
        for section in filter(layer.values.get, schema.USER_SECTIONS):
            why = f"applies to all repositories of a user; move it to {user_file(env)}"
            raise _key_error(layer.origin, f"[{section}]", why)
        for section in ("agents", "tests"):
            for key, place in list_secret_places(layer.values.get(section), env):
                why = f"{place} holds keys of yours, so only {user_file(env)} may name it"
                raise _key_error(layer.origin, f"[{section}] {key}", why)
    return merge_layers([*_user_layers(env), *repository, *_from_environment(env)])


def load_user(env: Mapping[str, str]) -> schema.Settings:
    """The settings for all repositories: the user's file, and variables of the sections that only a user can set."""
    of_user = {name: text for name, text in env.items() if name.startswith(USER_PREFIXES)}
    return merge_layers([*_user_layers(env), *_from_environment(of_user)]).settings


def _user_layers(env: Mapping[str, str]) -> list[Layer]:
    path = user_file(env)
    return [_parse_file(str(path), path.read_bytes())] if path.is_file() else []


def list_secret_places(section: object, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The keys of a section that open places with keys of the user to agents or tests, and these places."""
    if not isinstance(section, dict):
        return
    for key, place in list_secret_places(section.get("container"), env):
        yield f"container.{key}", place
    named = ((key, section.get(key)) for key in ("home", "mounts"))
    for key, place in ((key, str(place)) for key, places in named if isinstance(places, list) for place in places):
        real = (home(env) / place.partition(":")[0]).resolve()
        secrets = [path.resolve() for path in credential_files(env)]
        is_secret = any(real.is_relative_to(secret) for secret in secrets) or real.name == "docker.sock"
        if is_secret or (key == "mounts" and any(secret.is_relative_to(real) for secret in secrets)):
            yield key, place


def _parse_file(origin: str, content: bytes) -> Layer:
    if len(content) > LARGEST:
        raise SettingsError(f"{origin}: larger than {LARGEST} bytes; settings are a few kilobytes")
    try:
        return Layer(origin=origin, values=tomllib.loads(content.decode("utf-8-sig")))
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{origin}: invalid TOML: {error}") from None


def setting_variables(env: Mapping[str, str]) -> dict[str, str]:
    ours = (name for name in env if name.startswith("RUNPLAN_"))
    return {name: env[name] for name in sorted(ours) if name not in OURS}


def _from_environment(env: Mapping[str, str]) -> list[Layer]:
    layers = []
    for name, text in setting_variables(env).items():
        key = _VARIABLES.get(name)
        if key is None:
            raise SettingsError(f"{name}: unknown setting; did you mean {nearest_word(name, _VARIABLES, 0.0)}?")
        values: dict[str, object] = {key.name: key.from_text(text)}
        for part in reversed(key.section.split(".")):
            values = {part: values}
        layers.append(Layer(origin=name, values=values))
    return layers


def merge_layers(layers: Iterable[Layer]) -> LoadedSettings:
    """Put `layers` over the defaults, the weakest first; a value that cannot be used is a SettingsError."""
    values: dict[str, object] = {key.path: key.written for key in schema.KEYS}
    origins = dict.fromkeys(values, "default")
    values_of: dict[str, dict[str, object]] = {section: {} for section in schema.SECTIONS}  #: by section and field
    for layer in layers:
        for section, name, value in _flatten_tables(layer):
            kind, dot, _ = section.partition(".")
            of = f"{kind}.*" if dot and section != CONTAINER else section
            key = _KEYS.get(f"{of}.{name}")
            if key is None:
                valid = tuple(key.name for key in _KEYS.values() if key.section == of)
                expected = f"must be a table; write [{section}.NAME] above its keys"
                why = f"unknown key; {_suggest_key(name, valid)}" if valid else expected
                raise _key_error(layer.origin, f"[{section}] {name}", why)
            try:
                values_of.setdefault(section, {})[key.field] = key.read(value)
            except ValueError as error:
                raise _key_error(layer.origin, f"[{section}] {name}", str(error)) from None
            path = f"{section}.{name}"
            values[path] = value
            origins[path] = layer.origin
    values_of["agents"]["container"] = schema.ContainerSettings(**values_of.pop(CONTAINER, {}))  # type: ignore[arg-type]
    tables: dict[str, dict[str, object]] = {"agents": {}, "gates": {}}
    for section in [section for section in values_of if section not in schema.SECTIONS]:
        kind, name = section.split(".", 1)
        make: Callable[..., schema.AgentTable | schema.GateTable] = _read_agent if kind == "agents" else _read_gate
        try:
            tables[kind][name] = make(name, **values_of[section])
        except ValueError as error:
            origin = [origin for path, origin in origins.items() if path.startswith(f"{section}.")][-1]
            raise _key_error(origin, f"[{section}]", str(error)) from None
    for kind, made in tables.items():
        values_of[kind]["tables"] = made
    made_of = {part.name: part.type(**values_of[part.encode_name]) for part in fields(schema.Settings)}
    settings = schema.Settings(**made_of)
    for role, name in settings.agents.named:
        try:
            if name not in settings.agents.tables and name in list_agent_kinds():
                _read_agent(name)
        except ValueError as error:
            why = f"{name!r} needs a table [agents.{name}]: {error}"
            raise _key_error(origins[f"agents.{role}"], f"[agents] {role}", why) from None
        known = dict.fromkeys((*settings.agents.tables, *list_agent_kinds()))
        if name not in known:
            why = f"unknown agent {name!r}; known agents: {', '.join(known)}"
            raise _key_error(origins[f"agents.{role}"], f"[agents] {role}", why)
    return LoadedSettings(settings=settings, values=values, origins=origins)


def _key_error(origin: str, where: str, why: str) -> SettingsError:
    return SettingsError(f"{origin}: {where}: {why}")


def _flatten_tables(layer: Layer) -> Iterator[tuple[str, str, object]]:
    """Each value with its section and its name; a table such as [agents.local] is a section."""
    for section, table in layer.values.items():
        if section not in schema.SECTIONS:
            raise _key_error(layer.origin, section, f"unknown section; {_suggest_key(section, schema.SECTIONS)}")
        if not isinstance(table, dict):
            raise _key_error(layer.origin, section, f"must be a table; write [{section}] above its keys")
        for name, value in table.items():
            if isinstance(value, dict) and section in ("agents", "gates") and name not in schema.ROLES:
                yield from ((f"{section}.{name}", key, inner) for key, inner in value.items())
            else:
                yield section, name, value


def _suggest_key(name: str, valid: tuple[str, ...]) -> str:
    home = next((key.section for key in schema.KEYS if key.name == name), "")
    return f"it belongs to [{home}]" if home else f"did you mean {nearest_word(name.lower(), valid, 0.0)!r}?"


def _read_gate(name: str, **values: Any) -> schema.GateTable:
    if name == schema.TESTS or not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError("must have a name of small letters, digits, - and _, other than tests")
    if "command" not in values:
        raise ValueError('needs command = "..."')
    return schema.GateTable(**values)


def _read_agent(name: str, **values: Any) -> schema.AgentTable:
    """The agent of a table; ValueError for an unknown kind, or keys that its kind lacks or cannot have."""
    table = schema.AgentTable(**{"name": name, "kind": name} | values)
    if table.kind not in list_agent_kinds():
        raise ValueError(f"kind must be one of {', '.join(list_agent_kinds())}, not {table.kind!r}")
    if table.kind in ("command", "script") and (table.model or table.args):
        raise ValueError(f"a {table.kind} agent has no model or args; they are for the built-in agents")
    if table.kind == "command" and not table.argv:
        raise ValueError('a command needs argv = ["program", "argument"]')
    if table.kind == "script" and not table.script:
        raise ValueError('a script needs script = "file.toml"')
    return table
