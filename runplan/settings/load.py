"""Finds and reads settings: user file, repository file, environment, flags."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.errors import SettingsError
from runplan.settings.config import Layer, Settled, settle
from runplan.settings.keys import BY_PATH, FILES, KEYS, USER_SECTIONS, nearest
from runplan.settings.values import from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runplan.settings.config import DaemonSettings, Settings

#: What runplan itself sets for agents (docs/agents.md) and for whoever is notified (docs/configuration.md), or reads
#: in tests; these are no settings.
OURS = frozenset(
    f"RUNPLAN_{name}"
    for name in (
        *("ROLE", "PLAN", "PHASE", "RUN", "ATTEMPT", "PROMPT", "RETURN", "AGENT", "DISPATCH", "CYCLE"),
        *("NOTICE", "REASON", "TITLE", "TEXT", "COMMAND", "REPOSITORY"),
    )
)
OUR_PREFIX = "RUNPLAN_TEST_"

#: A settings file is a few kilobytes; a larger or deeper one is none, and its reader would take minutes for it.
LARGEST = 256 * 1024
DEEPEST = 200  #: dots in a key

_AGENTS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "agents", "clis")  # noqa: PTH120

_VARIABLES = {f"RUNPLAN_{key.section}_{key.name}".upper(): key for key in KEYS}


def environment() -> dict[str, str]:
    """The environment of this process: the one place it is asked."""
    return dict(os.environ)


def kinds() -> tuple[str, ...]:
    """The kinds of agents there are: one for each module in their directory, which is listed and not imported."""
    names = (name.removesuffix(".py") for name in os.listdir(_AGENTS) if name.endswith(".py"))  # noqa: PTH208
    return tuple(sorted(name for name in names if name.isidentifier() and not name.startswith("_")))


def load(root: Path, *, env: Mapping[str, str], flags: Mapping[str, object]) -> Settled:
    """The settings for the repository at `root`; `flags` by dotted key, text or typed, None for not given."""
    return settled(file_layers(root, env), env=env, flags=flags)


def load_committed(name: str, content: bytes, *, env: Mapping[str, str]) -> Settled:
    """The same with the repository's file as it is committed, of that name and content."""
    own = _without_user_settings(_parsed(content, name), env)
    return settled([*_user_layers(env), own], env=env, flags={})


@functools.cache
def restored(text: str) -> Settings:
    """The settings that a run was started with, from its record."""
    from runplan.settings import text as settingstext  # only a run has a record

    return settingstext.restored(text, settle([], kinds=kinds()).settings)


def settled(files: Sequence[Layer], *, env: Mapping[str, str], flags: Mapping[str, object]) -> Settled:
    """What was read from files, with the variables and the flags laid over it."""
    return _settled([*files, *_from_environment(env), *_from_flags(flags)], in_zone=True)


def _settled(layers: Sequence[Layer], *, in_zone: bool = False) -> Settled:
    """What the layers come to; what is wrong with a file is told with its line."""
    try:
        found = settle(layers, kinds=kinds())
        if in_zone:
            _check_zone(found)
    except SettingsError as error:
        from runplan.settings.text import located

        raise SettingsError(located(str(error), layers)) from None
    return found


def load_anyhow(root: Path, *, env: Mapping[str, str], warn: Callable[[str], None]) -> Settings:
    """The settings without what is broken among them, which is told: for who looks at runs and stops them."""
    with contextlib.suppress(SettingsError):
        return load(root, env=env, flags={}).settings
    good: list[Layer] = []
    sources: tuple[Callable[[], list[Layer]], ...] = (
        lambda: _user_layers(env),
        lambda: _own_layers(root, env),
        lambda: _from_environment(env),
    )
    for read in sources:
        try:
            more = [*good, *read()]
            _settled(more, in_zone=True)
        except SettingsError as error:
            warn(f"{error}; going on without it")
        else:
            good = more
    return _settled(good).settings


def load_user(env: Mapping[str, str]) -> Settings:
    """What the user has set for all repositories; variables that tests and callers set are a run's, not the user's."""
    return _settled(_user_layers(env)).settings


def load_host(env: Mapping[str, str]) -> DaemonSettings:
    """How work goes on and ends on this host, for a process of the user's own: no repository has a say in that."""
    given = {name: text for name, text in env.items() if name.startswith("RUNPLAN_DAEMON_")}
    return _settled([*_user_layers(env), *_from_environment(given)]).settings.daemon


def user_file(env: Mapping[str, str]) -> Path:
    """The file that holds for every repository of this user; it need not exist."""
    if base := env.get("XDG_CONFIG_HOME"):
        return Path(base) / "runplan" / "runplan.toml"
    below = "Library/Application Support" if sys.platform == "darwin" else ".config"
    return _home(env) / below / "runplan" / "runplan.toml"


def repository_file(root: Path) -> Path | None:
    """The settings file of the repository, when it has one."""
    return next((path for name in FILES if (path := root / name).is_file()), None)


def worktree_root(root: Path, settings: Settings, env: Mapping[str, str]) -> Path:
    """The directory worktrees are made in: `~` is the home, a relative one begins at `root`."""
    written = settings.run.worktrees
    if written == "~" or written.startswith("~/"):
        return _home(env) / written[2:]
    return root / written


def _home(env: Mapping[str, str]) -> Path:
    home = env.get("HOME")
    return Path(home) if home else Path.home()


def file_layers(root: Path, env: Mapping[str, str]) -> list[Layer]:
    """What the files of the user and of the repository say, as it is written there."""
    return [*_user_layers(env), *_own_layers(root, env)]


def _own_layers(root: Path, env: Mapping[str, str]) -> list[Layer]:
    own = repository_file(root)
    if own is None:
        return []
    return [_without_user_settings(_layer(own, own.relative_to(root).as_posix()), env)]


def _without_user_settings(layer: Layer, env: Mapping[str, str]) -> Layer:
    """Refuse in a repository's file what only the user's file can set."""
    for section in USER_SECTIONS:
        if layer.values.get(section):
            said = f"{layer.origin}: [{section}]: holds for all repositories of a user; move it to {user_file(env)}"
            from runplan.settings.text import located

            raise SettingsError(located(said, [layer]))
    return layer


def _user_layers(env: Mapping[str, str]) -> list[Layer]:
    user = user_file(env)
    return [_layer(user, str(user))] if user.is_file() else []


def _layer(path: Path, origin: str) -> Layer:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)  # a larger one is refused without being read whole
    except OSError as error:
        raise SettingsError(f"{origin}: cannot be read: {error.strerror}") from None
    return _parsed(content, origin)


def _parsed(content: bytes, origin: str) -> Layer:
    import tomllib  # only where there is a file to read

    try:
        text = _text(content, origin)
        return Layer(origin=origin, values=tomllib.loads(text), text=text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(_located(origin, str(error))) from None
    except RecursionError:
        raise SettingsError(f"{origin}: lists or tables are nested too deeply; no setting needs that") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{origin}: not UTF-8 text (byte {error.start})") from None


def _text(content: bytes, origin: str) -> str:
    if len(content) > LARGEST:
        raise SettingsError(f"{origin}: settings have at most {LARGEST} bytes; take out what does not belong there")
    text = content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    for number, line in enumerate(text.splitlines(), 1):
        if line.partition("=")[0].count(".") > DEEPEST:
            raise SettingsError(f"{origin}:{number}: a key with more than {DEEPEST} dots is no setting; remove it")
    return text


def _located(origin: str, said: str) -> str:
    """What the TOML reader said, with its line where an editor looks for it."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", said, re.DOTALL)
    if found is None:
        return f"{origin}: invalid TOML: {said}"
    where = f"{origin}:{found[2]}" if found[2] else origin
    return f"{where}: invalid TOML: {found[1]}" + ("" if found[2] else " at the end of the file")


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """The settings that are given as variables, by their names."""
    given = (name for name in env if name.startswith("RUNPLAN_") and not name.startswith(OUR_PREFIX))
    return {name: env[name] for name in sorted(given) if name not in OURS}


def given(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings of a run among them, to be kept with its schedule."""
    users = tuple(f"RUNPLAN_{section.upper()}_" for section in USER_SECTIONS)
    return tuple((name, text) for name, text in variables(env).items() if not name.startswith(users))


def _from_environment(env: Mapping[str, str]) -> list[Layer]:
    layers = []
    for name, text in variables(env).items():
        key = _VARIABLES.get(name)
        if key is None:
            hint = nearest(name.lower(), tuple(known.lower() for known in _VARIABLES)).upper()
            raise SettingsError(f"{name}: names no setting; did you mean {hint}?")
        layers.append(Layer(origin=name, values={key.section: {key.name: from_text(key.shape, text)}}))
    return layers


def _from_flags(flags: Mapping[str, object]) -> list[Layer]:
    layers = []
    for path, value in flags.items():
        if value is None:
            continue
        section, _, name = path.partition(".")
        if isinstance(value, str) and path in BY_PATH:
            value = from_text(BY_PATH[path].shape, value)
        layers.append(Layer(origin="command line", values={section: {name: value}}))
    return layers


def _check_zone(settled: Settled) -> None:
    zone = settled.settings.run.timezone
    if zone == "UTC":
        return
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        origin = settled.origins["run.timezone"]
        raise SettingsError(
            f"{origin}: [run] timezone: this machine knows no zone {zone!r}; say UTC, or one like Europe/Berlin"
        ) from None
