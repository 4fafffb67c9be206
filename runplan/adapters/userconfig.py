"""Finds the files outside of the repository that git obeys there: the user's and the machine's configuration.

Nothing of them is written down but what git obeys in them, and no value: the user may keep passwords there.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from runplan.core.gitconfig import attribute_files, includes, summary
from runplan.core.guard import FileStamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SYSTEM = ("/etc/gitconfig", "/etc/gitattributes")
LARGEST = 1024 * 1024  #: bytes of a file that is read
TOO_LARGE = "[include]\npath = more than is looked at\n"  #: stands for what is larger: it could hold anything
MOST = 200  #: files that include one another


def user_files(env: Mapping[str, str], common_dir: Path) -> dict[str, FileStamp]:
    """Every such file by its full path, with what git obeys in it; costs no process.

    `env` is what our git is given; `common_dir` has the repository's own configuration, which may include others.
    """
    home = env.get("HOME", "")
    own = [os.path.join(common_dir, name) for name in ("config", "config.worktree")]
    configs, named = _followed([*own, *_configs(env, home)], home)
    stamps = {path: stamp for path, stamp in configs.items() if path not in own}
    for path in (SYSTEM[1], os.path.join(_xdg(env, home), "git", "attributes"), *named):
        if (read := _read(path)) is not None:
            stamps[path] = FileStamp(text=summary(read[0], by_line=True), mode=read[1])
    return stamps


def _configs(env: Mapping[str, str], home: str) -> Iterator[str]:
    if env.get("GIT_CONFIG_NOSYSTEM", "").lower() not in ("1", "true", "yes", "on"):
        yield SYSTEM[0]
    if "GIT_CONFIG_GLOBAL" in env:
        yield env["GIT_CONFIG_GLOBAL"]
        return
    yield os.path.join(_xdg(env, home), "git", "config")
    yield os.path.join(home, ".gitconfig")


def _xdg(env: Mapping[str, str], home: str) -> str:
    return env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")


def _followed(first: list[str], home: str) -> tuple[dict[str, FileStamp], list[str]]:
    """Configuration files and all that they include, and the files of attributes they name."""
    found: dict[str, FileStamp] = {}
    named: list[str] = []
    left = list(first)
    while left and len(found) < MOST:
        path = left.pop(0)
        read = None if path in found else _read(path)
        if read is None:
            continue
        text, mode = read
        found[path] = FileStamp(text=summary(text), mode=mode)
        left += [_named(other, path, home) for other in includes(text)]
        named += [_named(other, path, home) for other in attribute_files(text)]
    return found, named


def _named(name: str, by: str, home: str) -> str:
    """A path as git understands it: below the home, or beside the file that names it."""
    if name.startswith("~/"):
        name = os.path.join(home, name[2:])
    return os.path.normpath(os.path.join(os.path.dirname(by), name))  # noqa: PTH120 - git's own words


def _read(path: str) -> tuple[str, int] | None:
    """Text and mode of a plain file, by whatever links it is reached; people keep these files elsewhere."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):  # or a name that no file can have
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        text = TOO_LARGE if found.st_size > LARGEST else os.fsdecode(os.read(descriptor, LARGEST))
        return text, stat.S_IMODE(found.st_mode)
    finally:
        os.close(descriptor)
