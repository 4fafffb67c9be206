"""The repositories in which runplan was used."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from runplan.adapters.configuration.load import environment, load_user
from runplan.adapters.configuration.places import base_directory, state_directory
from runplan.adapters.store.location import FleetLocation, Location, normalize_url
from runplan.adapters.store.protocol import load_postgres
from runplan.domain.errors import NotFound, RunplanError, Unreachable
from runplan.engine.loop.context import RepositoryContext, open_context
from runplan.engine.report.inbox import Inbox, read_inbox
from runplan.hosts.daemon.state import Known, list_repositories
from runplan.hosts.fleet.clones import open_checkout


def list_known(env: Mapping[str, str]) -> list[Known]:
    """The repositories in which a run was started, by their paths; in a fleet, all of its repositories."""
    fleet = list(list_fleet(env).values())
    return fleet or sorted(list_repositories(state_directory(env)), key=lambda known: known.root)


def find_known(env: Mapping[str, str], key: str) -> Known:
    listed = (known for list_some in (list_known, list_with_current) for known in list_some(env))
    known = next((known for known in listed if known.key == key), None)
    if known is None:
        raise NotFound("no such repository is known; start a run in it first")
    return known


@contextlib.contextmanager
def open_known(known: Known, *, warn: Callable[[str], None]) -> Iterator[RepositoryContext]:
    """The repository with its settings, for reading; broken settings are a warning."""
    if known.remote and not Path(known.common).is_dir():
        open_checkout(known.remote, Path(known.root), environment())
    if not Path(known.common).is_dir():
        raise Unreachable(f"{known.root} cannot be read: {known.common} is not there")
    with open_context(Path(known.root), warn=warn) as context:
        yield context


def open_by_key(env: Mapping[str, str], key: str) -> contextlib.AbstractContextManager[RepositoryContext]:
    return open_known(find_known(env, key), warn=lambda _: None)


def list_with_current(env: Mapping[str, str]) -> list[Known]:
    known = list_known(env)
    if any(repository.fleet for repository in known):
        return known
    try:
        with open_context(warn=lambda _: None) as context:
            current = Known(common=str(context.common_dir), root=str(context.root))
    except RunplanError:  # not in a repository
        return known
    return known if current.common in {repository.common for repository in known} else [*known, current]


def label_of(known: Known) -> str:
    return known.fleet.url if known.fleet else known.root


def list_journals(env: Mapping[str, str]) -> dict[str, Location]:
    """The journals of the repositories in which a run was started, and of the current one; or those of the fleet."""
    return {label_of(known): known.journal for known in list_with_current(env)}


def read_all_inboxes(env: Mapping[str, str]) -> Inbox:
    return read_inbox(list_journals(env))


def list_fleet(env: Mapping[str, str]) -> dict[str, Known]:
    """The repositories of the user's fleet by their URLs, with the places of clones, which need not exist."""
    dsn = load_user(env).fleet.dsn
    rows = load_postgres().list_fleet(dsn) if dsn else ()
    cache = base_directory(env, "XDG_CACHE_HOME", ".cache") / "runplan"
    roots = {row: cache / row.schema / row.url.rpartition("/")[2] for row in rows}
    return {
        row.url: Known(common=str(root / ".git"), root=str(root), fleet=FleetLocation(dsn, row.url), remote=row.remote)
        for row, root in roots.items()
    }


def enter_repository(url: str) -> None:
    """Make a clone of a repository of the fleet the current directory, as its remote has it now."""
    known = list_fleet(environment()).get(normalize_url(url))
    if known is None:
        raise NotFound(f"{url} is no repository of your fleet; see: runplan fleet status")
    open_checkout(known.remote, Path(known.root), environment())
    os.chdir(known.root)
