"""The repositories in which runplan was used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from runplan.daemon.state import Known, list_repositories
from runplan.engine.context import RepositoryContext, open_context
from runplan.errors import NotFound, RunplanError, Unreachable
from runplan.settings.load import environment, load_user
from runplan.settings.places import state_directory
from runplan.store.location import FleetLocation, Location
from runplan.store.protocol import load_postgres


def list_known(env: Mapping[str, str]) -> list[Known]:
    """The repositories in which a run was started, by their paths."""
    return sorted(list_repositories(state_directory(env)), key=lambda known: known.root)


def find_known(env: Mapping[str, str], key: str) -> Known:
    listed = (known for list_some in (list_known, list_with_current) for known in list_some(env))
    known = next((known for known in listed if known.key == key), None)
    if known is None:
        raise NotFound("no such repository is known; start a run in it first")
    return known


@contextlib.contextmanager
def open_known(known: Known, *, warn: Callable[[str], None]) -> Iterator[RepositoryContext]:
    """The repository with its settings, for reading; broken settings are a warning."""
    if not Path(known.common).is_dir():
        raise Unreachable(f"{known.root} cannot be read: {known.common} is not there")
    with open_context(Path(known.root), warn=warn) as context:
        yield context


def list_with_current(env: Mapping[str, str]) -> list[Known]:
    """The repositories in which a run was started, and the current one."""
    known = list_known(env)
    try:
        with open_context(warn=lambda _: None) as context:
            current = Known(common=str(context.common_dir), root=str(context.root))
    except RunplanError:  # not in a repository
        return known
    return known if current.common in {repository.common for repository in known} else [*known, current]


def list_journals() -> dict[str, Location]:
    """The journals of the repositories in which a run was started, and of the current one; or those of the fleet."""
    env = environment()
    if dsn := load_user(env).fleet.dsn:
        return {row.url: FleetLocation(dsn, row.url) for row in load_postgres().list_fleet(dsn)}
    return {known.root: known.state for known in list_with_current(env)}
