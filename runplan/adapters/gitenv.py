"""Makes the environment that git runs in: it chooses no other repository, and shows objects as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Objects are what their ids say: a replacement or a graft would have git show another tree than the one that lands.
AS_STORED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null/none"}  # an empty one would be advised against


def scrubbed(env: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would turn git to another repository, editor or language."""
    kept = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    # Tests and packagers isolate git with these two; they choose configuration, never a repository.
    kept |= {name: env[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM") if name in env}
    kept |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true"}
    return kept | AS_STORED


def borrowing(objects: Path) -> dict[str, str]:
    """An environment in which git also reads the objects of another repository."""
    quoted = f'"{objects}"' if ":" in str(objects) else str(objects)
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted}


def configured(*settings: str) -> dict[str, str]:
    """Further settings for one command, each `key=value`, as an environment."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, setting in enumerate(settings):
        key, _, value = setting.partition("=")
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env
