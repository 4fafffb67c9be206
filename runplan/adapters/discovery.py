"""Looks for the programs of agents, and for a place for worktrees, for `init` and `doctor`."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from runplan.adapters.agents import about
from runplan.adapters.calling import account_of, lacks_login, own_file, unwatched, version_of
from runplan.adapters.settings import kinds
from runplan.adapters.versions import Versions
from runplan.core.facts import SENT, Cast, Place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.core.config import AgentsSettings


def worktree_place(path: Path) -> Place:
    """Whether worktrees could be made in `path`; it need not exist, and nothing is made."""
    nearest = next(each for each in (path, *path.parents) if each.exists())
    return Place(path=str(path), writable=nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK))


def cast(root: Path, agents: AgentsSettings, *, env: Mapping[str, str]) -> tuple[Cast, ...]:
    """For each role of a run, whether the program of its agent can be found."""
    versions = Versions()
    return tuple(_cast(root, agents, role, versions, env) for role in SENT if getattr(agents, role))


def _cast(root: Path, agents: AgentsSettings, role: str, versions: Versions, env: Mapping[str, str]) -> Cast:
    name: str = getattr(agents, role)
    agent = agents.agent(name)
    file = own_file(agent)
    if agent.kind == "script" or (file and not (root / file).is_file()):
        return Cast(role=role, agent=name, program=file, found=(root / file).is_file(), file=True)
    program = about(agent.kind).call(agent)[0]
    # A path with a slash is taken from the worktree, which holds what the checkout holds.
    where = str(root / program) if "/" in program else program
    return Cast(
        role=role,
        agent=name,
        program=program,
        found=is_on_path(where, env),
        version=version_of(agent, versions, env),
        unwatched=unwatched(agent),
        account=account_of(agent, env),
        lacks=lacks_login(agent, env),
    )


def known_agents() -> tuple[str, ...]:
    """The agents whose programs can be looked for, in the order they are suggested."""
    told = {kind: about(kind) for kind in kinds()}
    return tuple(sorted((kind for kind in told if told[kind].known), key=lambda kind: (told[kind].rank, kind)))


def is_on_path(program: str, env: Mapping[str, str]) -> bool:
    return shutil.which(program, path=env.get("PATH", os.defpath)) is not None
